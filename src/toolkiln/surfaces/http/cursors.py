"""Cursors: where the next part of a list begins, in a form that says nothing to its holder.

A cursor names what was last seen rather than how many were, so that what comes and goes
meanwhile neither repeats nor hides anything else.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from toolkiln.surfaces.http.problems import Fault, Refused

T = TypeVar("T")
Mark = tuple[float, str]
"""When something came to be, and its name."""


def made(kind: str, *place: str | int | float) -> str:
    """A cursor of a kind of list."""
    text = json.dumps([kind, *place], separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read(kind: str, cursor: str, *types: type) -> list[Any]:
    """What a cursor of this kind names.

    Raises:
        Refused: it is none.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found = json.loads(urlsafe_b64decode(padded))
    except (ValueError, RecursionError):
        raise refused() from None
    if not isinstance(found, list) or [type(one) for one in found] != [str, *types]:
        raise refused()
    if found[0] != kind:
        raise refused()
    return found[1:]


def part(
    kind: str, items: Sequence[T], mark: Callable[[T], Mark], cursor: str | None, limit: int
) -> tuple[Sequence[T], str | None]:
    """A part of a list that is at hand as a whole, newest first, and the cursor of the next one.

    Where what was last seen has gone, its time counts.
    """
    start = 0
    if cursor is not None:
        last = tuple(read(kind, cursor, float, str))
        marks = [mark(item) for item in items]
        older = (at for at, (time, _) in enumerate(marks) if time <= last[0])
        start = marks.index(last) + 1 if last in marks else next(older, len(items))
    end = start + limit
    following = made(kind, *mark(items[end - 1])) if end < len(items) else None
    return items[start:end], following


def refused() -> Refused:
    """That a cursor is none of the list that was asked for."""
    fault = Fault(place="query.cursor", message="it is no cursor of this list")
    return Refused(
        "invalid_request",
        f"{fault.place}: {fault.message}",
        hint="start without one, then pass on `next_cursor` as it is",
        errors=(fault,),
    )
