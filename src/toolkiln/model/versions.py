"""The versions of a tool's file: what was let into a catalog, when and by whom.

Values only. Their sources and readings are kept by `store`; who admits what is
`catalog`'s business.
"""

from typing import Literal

from toolkiln.model.value import Value

Action = Literal["admit", "rollback", "dev"]
"""How a version was admitted. `dev` is found only in histories of earlier Toolkiln versions."""


class Version(Value):
    """One entry in the history of a tool's file."""

    file: str
    """Its path relative to the tools folder, with forward slashes."""
    number: int
    """1, 2, 3 … for each catalog and file."""
    digest: str
    """SHA-256 of the file, its local helper modules and its data files."""
    action: Action
    by: str
    at: str
    """UTC, ISO 8601, ending in Z."""
    tools: tuple[str, ...]
    """The names of the tools that it declares."""
    note: str = ""
