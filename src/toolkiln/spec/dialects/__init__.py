"""The six ways to declare a tool, each read into dialect-independent declarations.

Decorators and base classes are recognised by name, no matter where they are imported from.
Only a file without any declaration exposes its public functions.
"""

from toolkiln.spec.declaration import Declaration
from toolkiln.spec.dialects import agno, classes, functions, langchain, smolagents
from toolkiln.spec.findings import Findings
from toolkiln.spec.namespace import Module


def declarations(module: Module, findings: Findings) -> list[Declaration]:
    """Return all tools that a file declares, in source order."""
    declared = [
        *functions.decorated_tools(module, findings),
        *functions.constant_tools(module, findings),
        *classes.toolkit_tools(module, findings),
        *agno.toolkits(module, findings),
        *smolagents.tools(module, findings),
        *classes.base_tools(module, findings),
        *langchain.tool_classes(module, findings),
        *langchain.tool_objects(module, findings),
        *classes.open_webui_tools(module),
    ]
    incomplete = functions.has_constants(module) or classes.has_base_tools(module)
    if not declared and not incomplete and classes.open_webui_class(module) is None:
        declared = list(functions.plain_functions(module, findings))
    return sorted(declared, key=lambda declaration: declaration.line)
