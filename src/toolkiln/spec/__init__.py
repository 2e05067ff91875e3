"""Source text → `ToolSpec` and findings, never running the code that is read."""

from toolkiln.spec.checks.findings import KnownTools
from toolkiln.spec.checks.imports import distribution_of, imported_modules
from toolkiln.spec.ignore_comments import overrule
from toolkiln.spec.neighbours import version_digest
from toolkiln.spec.reading import read
from toolkiln.spec.report import cut_findings
from toolkiln.spec.syntax import MAX_BYTES
from toolkiln.spec.text import decode

__all__ = [
    "MAX_BYTES",
    "KnownTools",
    "cut_findings",
    "decode",
    "distribution_of",
    "imported_modules",
    "overrule",
    "read",
    "version_digest",
]
