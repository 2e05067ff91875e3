"""The tools of a folder: reading its files, admitting versions, serving snapshots.

`catalog` holds what is served, `admission` what people decide, `watch` notices changes;
`naming`, `mending`, `repairs` and `changes` are the pure parts of authoring.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolkiln.catalog.admission import Admissions, Assessment, CandidateVersion, refuse_proposal
from toolkiln.catalog.catalog import Catalog, CatalogOptions, utc_now
from toolkiln.catalog.diff import RequestedPermissions
from toolkiln.catalog.files import file_for, name_finding, read_file, tool_files, with_companions
from toolkiln.catalog.folder import read_sources
from toolkiln.catalog.manifest import FILE_NAME as MANIFEST
from toolkiln.catalog.manifest import ManifestError, MissingManifest
from toolkiln.catalog.removal import StaleVersion, refuse_outdated
from toolkiln.catalog.reports import FileReport, Repair, check, repairs_for, report, with_docstrings
from toolkiln.catalog.transaction import EditConflict
from toolkiln.catalog.watch import CatalogChange, watch

if TYPE_CHECKING:
    from toolkiln.catalog.admission_pipeline import AdmissionPipeline
    from toolkiln.catalog.changes import Changes
    from toolkiln.catalog.reading_pool import ReadingPool
    from toolkiln.catalog.registry import (
        BUILTIN_NAMES,
        Disabled,
        Function,
        NotAdmitted,
        Specs,
        ToolRegistry,
        functions_by_name,
    )

__all__ = [
    "BUILTIN_NAMES",
    "MANIFEST",
    "AdmissionPipeline",
    "Admissions",
    "Assessment",
    "CandidateVersion",
    "Catalog",
    "CatalogChange",
    "CatalogOptions",
    "Changes",
    "Disabled",
    "EditConflict",
    "FileReport",
    "Function",
    "ManifestError",
    "MissingManifest",
    "NotAdmitted",
    "ReadingPool",
    "Repair",
    "RequestedPermissions",
    "Specs",
    "StaleVersion",
    "ToolRegistry",
    "check",
    "file_for",
    "functions_by_name",
    "name_finding",
    "read_file",
    "read_sources",
    "refuse_outdated",
    "refuse_proposal",
    "repairs_for",
    "report",
    "tool_files",
    "utc_now",
    "watch",
    "with_companions",
    "with_docstrings",
]


_HOMES = {
    "AdmissionResult": "toolkiln.model",
    "AdmissionPipeline": "toolkiln.catalog.admission_pipeline",
    "BUILTIN_NAMES": "toolkiln.catalog.registry",
    "Changes": "toolkiln.catalog.changes",
    "Disabled": "toolkiln.catalog.registry",
    "ToolDraft": "toolkiln.model",
    "Function": "toolkiln.catalog.registry",
    "NotAdmitted": "toolkiln.catalog.registry",
    "ToolRegistry": "toolkiln.catalog.registry",
    "FindingSummary": "toolkiln.model",
    "ReadingPool": "toolkiln.catalog.reading_pool",
    "Specs": "toolkiln.catalog.registry",
    "Stage": "toolkiln.model",
    "functions_by_name": "toolkiln.catalog.registry",
}


if not TYPE_CHECKING:  # a type checker reports unknown names itself

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)
