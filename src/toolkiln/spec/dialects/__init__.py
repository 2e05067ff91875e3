"""The six ways of writing a tool down, each read into neutral declarations.

A decorator or base class counts by its name, wherever it was imported from. Only a file
with no mark of any dialect offers its public functions as they are.
"""

from toolkiln.spec.declaration import Declaration
from toolkiln.spec.dialects import base_tool, constants, functions, open_webui, toolkit
from toolkiln.spec.modules import Module
from toolkiln.spec.report import Findings


def declarations(module: Module, findings: Findings) -> list[Declaration]:
    """All tools that a file declares, in source order."""
    marked = [
        *functions.decorated(module, findings),
        *constants.declared(module, findings),
        *toolkit.declared(module, findings),
        *base_tool.declared(module, findings),
        *open_webui.declared(module),
    ]
    unfinished = constants.is_present(module) or base_tool.is_present(module)
    found = marked if marked or unfinished else list(functions.plain(module))
    return sorted(found, key=lambda declaration: declaration.line)
