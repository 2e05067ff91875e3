"""The page about each tool as a resource of Toolkiln's own: its address, and how it is listed."""

from typing import Any
from urllib.parse import quote, unquote

from toolkiln.model import ToolSpec

MARKDOWN = "text/markdown"
TEMPLATE = "toolkiln://tools/{name}"
_PREFIX = TEMPLATE.removesuffix("{name}")


def is_page(uri: str) -> bool:
    """Whether an address is that of a page, of a tool or of none."""
    return uri.startswith(_PREFIX)


def tool_name(uri: str) -> str:
    """The tool that a page is about."""
    return unquote(uri.removeprefix(_PREFIX))


def listed(spec: ToolSpec) -> dict[str, Any]:
    """A page in the list of resources."""
    return {
        "uri": _PREFIX + quote(spec.name, safe=""),
        "name": spec.name,
        "title": spec.display_name,
        "description": f"Documentation of the tool {spec.name}",
        "mimeType": MARKDOWN,
    }


def template() -> dict[str, Any]:
    """How the address of a page is made."""
    return {
        "uriTemplate": TEMPLATE,
        "name": "tool",
        "title": "Documentation of a tool",
        "description": "How to use a tool well: parameters, results, examples.",
        "mimeType": MARKDOWN,
    }
