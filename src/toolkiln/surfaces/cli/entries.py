"""An entry in what a settings file says, whatever its format: looked up, and put in."""

from collections.abc import Sequence
from typing import Any

Entry = dict[str, Any]


def under(found: Any, keys: Sequence[str]) -> Entry | None:
    """What lies under the keys; None if nothing does.

    Raises:
        ValueError: something else is in the way.
    """
    for key in keys:
        if not isinstance(found, dict):
            raise ValueError(f"what holds {key!r} has no names in it")
        if key not in found:
            return None
        found = found[key]
    if not isinstance(found, dict):
        raise ValueError(f"{keys[-1]!r} has no names in it")
    return found


def put_under(found: Entry, keys: Sequence[str], entry: Entry) -> None:
    """Have an entry lie under the keys."""
    for key in keys[:-1]:
        found = found.setdefault(key, {})
    found[keys[-1]] = entry
