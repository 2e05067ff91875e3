"""Names of the modules that have stand-ins.

Reading a file needs the names only; `finder` imports the stand-ins, in the sandbox.
"""

STAND_INS: dict[str, str] = {}
"""Stand-in in this package, by the name under which tools import it."""

ANY_MODULE = frozenset({"open_webui"})
"""Top-level packages that cannot be installed for a tool; all their modules can be imported."""

PACKAGES = frozenset(
    name[:at] for name in STAND_INS for at, character in enumerate(name) if character == "."
)
"""Packages with stand-ins in them."""


def is_provided(module: str) -> bool:
    """Return whether the sandbox provides a module, by its dotted name."""
    if module.partition(".")[0] in ANY_MODULE:
        return True
    return module in STAND_INS or module in PACKAGES
