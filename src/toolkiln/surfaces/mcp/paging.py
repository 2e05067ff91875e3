"""Lists in pages, by name: a cursor is the last name of a page, so that none expires."""

from collections.abc import Iterable

PAGE = 500
"""Names on one page."""


def paged(names: Iterable[str], cursor: str | None) -> tuple[list[str], dict[str, str]]:
    """The names after a cursor, in order, and what leads to the following ones."""
    found = sorted(name for name in names if cursor is None or name > cursor)
    following = {"nextCursor": found[PAGE - 1]} if len(found) > PAGE else {}
    return found[:PAGE], following
