"""Names of the modules that have stand-ins.

Reading a file needs the names only; `finder` imports the stand-ins, in the sandbox.
"""

STAND_INS: dict[str, str] = {
    "atloop.tools": "atloop",
    "atloop.tools.base": "atloop",
    "atloop.tools.output_semantic_type": "atloop",
}
"""Stand-in in this package, by the name under which tools import it."""

ANY_MODULE = frozenset({"atloop", "open_webui"})
"""Top-level packages that cannot be installed for a tool; all their modules can be imported."""

INJECTED_TYPES: dict[str, str] = {}
"""Parameter types that the runtime fills in, by dotted name: the stand-in that a call creates from
its context, as `module:name` in this package, or `default` for the parameter's default."""

TOOL_OBJECTS: dict[str, tuple[str, ...]] = {
    "agno": ("entrypoint",),
    "crewai": ("func",),
    "fastmcp": ("fn",),
    "langchain_core": ("func", "coroutine"),
    "mcp": ("fn",),
    "smolagents": ("forward",),
}
"""Where the tool objects of installed frameworks keep their function, by top-level package."""

PACKAGES = frozenset(
    name[:at] for name in STAND_INS for at, character in enumerate(name) if character == "."
)
"""Packages with stand-ins in them."""


def is_provided(module: str) -> bool:
    """Return whether the sandbox provides a module, by its dotted name."""
    if module.partition(".")[0] in ANY_MODULE:
        return True
    return module in STAND_INS or module in PACKAGES
