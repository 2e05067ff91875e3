"""Source text → `ToolSpec` and findings, never running the code that is read."""

from toolkiln.spec.checks.findings import package_of
from toolkiln.spec.neighbours import version_digest
from toolkiln.spec.reading import read
from toolkiln.spec.syntax import MAX_BYTES
from toolkiln.spec.text import decode

__all__ = ["MAX_BYTES", "decode", "package_of", "read", "version_digest"]
