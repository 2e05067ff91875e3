"""Pages of lists, with opaque cursors, and the types of page queries."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

from toolkiln.errors import InvalidCursor
from toolkiln.model.base import Page, Value

T = TypeVar("T")
Position = tuple[float, str]
"""When an item was created, and its name."""
MOST_LISTED = 200


def _integer(value: Any) -> Any:
    if isinstance(value, str) and not (value.isascii() and value.removeprefix("-").isdigit()):
        raise ValueError("it is no whole number")
    return value


def _flag(value: Any) -> Any:
    if value in ("true", "false"):
        return value == "true"
    if isinstance(value, str):
        raise ValueError("it is neither true nor false")
    return value


Count = Annotated[int, BeforeValidator(_integer)]
"""A whole number, also as the text of a query parameter."""
Flag = Annotated[bool, BeforeValidator(_flag)]
"""`true` or `false`, and nothing else that Python accepts as a boolean."""


class PageQuery(Value):
    """Selects a page of a list."""

    limit: Annotated[Count, Field(ge=1, le=MOST_LISTED)] = 50
    """Maximum number of items."""
    cursor: Annotated[str | None, Field(max_length=500)] = None
    """The `next_cursor` of the page before."""


def encode_cursor(kind: str, *position: str | int | float) -> str:
    """Return the cursor of a position in a kind of list."""
    text = json.dumps([kind, *position], separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(kind: str, cursor: str, *types: type) -> list[Any]:
    """Return the position that a cursor names.

    Raises:
        InvalidCursor: it is none of this kind of list.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found = json.loads(urlsafe_b64decode(padded))
    except (ValueError, RecursionError):
        raise InvalidCursor from None
    if not isinstance(found, list) or [type(item) for item in found] != [str, *types]:
        raise InvalidCursor
    if found[0] != kind:
        raise InvalidCursor
    return found[1:]


def page_of(
    kind: str,
    items: Sequence[T],
    position: Callable[[T], Position],
    cursor: str | None,
    limit: int,
) -> tuple[Sequence[T], str | None]:
    """Return a page of a complete list, newest first, and the cursor of the next page.

    If the item at the cursor is gone, the page starts with the next older one.
    """
    start = 0
    if cursor is not None:
        last = tuple(decode_cursor(kind, cursor, float, str))
        positions = [position(item) for item in items]
        older = (index for index, (time, _) in enumerate(positions) if time <= last[0])
        start = positions.index(last) + 1 if last in positions else next(older, len(items))
    end = start + limit
    following = encode_cursor(kind, *position(items[end - 1])) if end < len(items) else None
    return items[start:end], following


__all__ = [
    "Count",
    "Flag",
    "Page",
    "PageQuery",
    "decode_cursor",
    "encode_cursor",
    "page_of",
]
