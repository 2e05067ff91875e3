"""The tools of a folder: reading its files, admitting versions, serving snapshots.

`catalog` holds what is served, `admission` what people decide, `watch` notices changes;
`naming`, `mending`, `repairs` and `changes` are the pure parts of authoring.
"""

from toolkiln.catalog.admission import Admissions, Assessment, Candidate, Decision, refuse_proposal
from toolkiln.catalog.cache import read_sources
from toolkiln.catalog.catalog import Catalog, Options, utc_now
from toolkiln.catalog.changes import RightsAsked
from toolkiln.catalog.checking import Report, check, report
from toolkiln.catalog.files import read_file, tool_files, with_companions
from toolkiln.catalog.manifest import FILE_NAME as MANIFEST
from toolkiln.catalog.manifest import ManifestError, MissingManifest
from toolkiln.catalog.mending import with_docstrings
from toolkiln.catalog.naming import file_for, name_finding
from toolkiln.catalog.removal import Outdated, refuse_outdated
from toolkiln.catalog.repairs import Repair, repairs_for
from toolkiln.catalog.transaction import Conflict
from toolkiln.catalog.watch import Change, watch

__all__ = [
    "MANIFEST",
    "Admissions",
    "Assessment",
    "Candidate",
    "Catalog",
    "Change",
    "Conflict",
    "Decision",
    "ManifestError",
    "MissingManifest",
    "Options",
    "Outdated",
    "Repair",
    "Report",
    "RightsAsked",
    "check",
    "file_for",
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
