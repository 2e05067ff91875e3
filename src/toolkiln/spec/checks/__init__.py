"""What is wrong with a file or a tool, beyond what reading it already told.

"No findings" does not mean safe: the sandbox is the guarantee, these are for the author
and for whoever admits the file.
"""

from toolkiln.spec.checks.findings import check_module, check_names, check_sources, check_tool
from toolkiln.spec.checks.opened_files import check_opened_files
from toolkiln.spec.checks.roles import check_roles

__all__ = [
    "check_module",
    "check_names",
    "check_opened_files",
    "check_roles",
    "check_sources",
    "check_tool",
]
