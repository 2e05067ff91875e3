"""Static reader: source text → `ToolSpec`s and findings, without running the source."""

from toolkiln.spec.checks.file_checks import KnownTools
from toolkiln.spec.findings import cut_findings, overrule
from toolkiln.spec.local_imports import version_digest
from toolkiln.spec.reader import read
from toolkiln.spec.requirements import distribution_of, imported_modules
from toolkiln.spec.syntax import MAX_BYTES, decode

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
