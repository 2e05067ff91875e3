"""Kiln: the only place that wires concrete parts together, for the surfaces and for Python.

`kiln` is the front, light to import; `engine` puts together what calls need and is loaded
with the first of them; `builtin` holds the tools that Toolkiln brings along.
"""

from toolkiln.app.kiln import PROVIDERS, Kiln
from toolkiln.catalog import Report, check

__all__ = ["PROVIDERS", "Kiln", "Report", "check"]
