"""Source text → `ToolSpec` and findings, never running the code that is read."""

from toolkiln.spec.reading import read

__all__ = ["read"]
