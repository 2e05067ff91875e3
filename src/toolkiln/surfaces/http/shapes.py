"""What bodies and queries of the API have in common; the shapes themselves are with their handlers.

A body says exactly what it means: `"5"` is no number in it. A query is all text, and read as
what its fields are.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from toolkiln.model import Value

LONGEST_TEXT = 100_000
"""Characters of a prompt."""
LONGEST_QUERY = 2_000
"""Characters of what is searched for: the first line of a request has to hold it."""
MOST_LISTED = 200


class Body(Value):
    """What a client sends."""

    model_config = ConfigDict(strict=True)


class Query(Value):
    """The parameters of a path."""


def _flag(value: Any) -> Any:
    if value in ("true", "false"):
        return value == "true"
    if isinstance(value, str):
        raise ValueError("it is neither true nor false")
    return value


def _whole(value: Any) -> Any:
    if isinstance(value, str) and not (value.isascii() and value.removeprefix("-").isdigit()):
        raise ValueError("it is no whole number")
    return value


Flag = Annotated[bool, BeforeValidator(_flag)]
"""`true` or `false`, and nothing else that Python takes for one of them."""
Count = Annotated[int, BeforeValidator(_whole)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Source = Annotated[str, Field(min_length=1, max_length=1 << 20)]
Reason = Annotated[str, Field(max_length=2_000)]


class Page(Query):
    """Which part of a list."""

    limit: Annotated[Count, Field(ge=1, le=MOST_LISTED)] = 50
    """How many at most."""
    cursor: Annotated[str | None, Field(max_length=500)] = None
    """The `next_cursor` of the part before."""
