"""A plain async function with a NumPy docstring and a parameter of several types."""

import json
import re
from typing import Any

_STEP = re.compile(r"\.?([\w-]+)|\[(-?\d+)\]|\[(\*)\]|\[\"([^\"]+)\"\]")


async def query_json(
    document: str | dict[str, Any] | list[Any], path: str, limit: int = 100
) -> list[Any]:
    """Pick values out of a JSON document by a path such as `users[*].name`.

    Parameters
    ----------
    document
        The document, as a value or as JSON text.
    path
        Keys parted by dots; `[0]` takes one item of an array, `[-1]` the last one, `[*]`
        every item or value, `["a key"]` a key with unusual characters.
    limit
        How many values to return at most.

    Returns
    -------
    list
        The values found, in document order; empty where the path leads nowhere.

    Raises
    ------
    ValueError
        The text is not JSON, or the path cannot be understood.

    Examples
    --------
    >>> import asyncio
    >>> data = {"users": [{"name": "Ada"}, {"name": "Alan"}]}
    >>> asyncio.run(query_json(data, "users[*].name"))
    ['Ada', 'Alan']
    >>> asyncio.run(query_json('{"a": {"b": [1, 2, 3]}}', "a.b[-1]"))
    [3]
    """
    values = [json.loads(document) if isinstance(document, str) else document]
    for key in _steps(path):
        values = [found for value in values for found in _members(value, key)]
    return values[:limit]


def _steps(path: str) -> list[str | int | None]:
    """Keys, positions, and None for every member."""
    steps: list[str | int | None] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise ValueError(f"the path cannot be understood from {path[at:]!r} on")
        name, index, star, quoted = match.groups()
        steps.append(None if star else int(index) if index else name or quoted)
        at = match.end()
    return steps


def _members(value: Any, key: str | int | None) -> list[Any]:
    if key is None:
        return list(value.values()) if isinstance(value, dict) else list(_items(value))
    if isinstance(key, int):
        items = _items(value)
        return [items[key]] if -len(items) <= key < len(items) else []
    return [value[key]] if isinstance(value, dict) and key in value else []


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
