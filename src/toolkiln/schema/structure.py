"""Whether a Python value is a JSON value of reasonable size, told without recursion.

It looks at the data alone, never at a schema. It exists because what comes later is not
safe with everything: validators recurse on the stack of the process, encoders turn dates
and NaN into something else without a word.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolkiln.schema.document import join


@dataclass(frozen=True, slots=True)
class Sizes:
    """The largest arguments that are looked at."""

    depth: int = 64
    """Arrays and objects inside one another."""
    string_length: int = 1_000_000
    items: int = 100_000
    """Members of one array or object."""
    total_bytes: int = 4_000_000
    """Of the arguments as JSON."""


class Flaw(NamedTuple):
    """One place where a value is not JSON, or too big."""

    path: str
    reason: str


def flaws(value: object, sizes: Sizes, at_most: int = 20) -> list[Flaw]:
    """What keeps `value` from being a JSON value within `sizes`, at most so many points."""
    found: list[Flaw] = []
    spent = 0
    pending: list[tuple[str, Any, int, tuple[int, ...]]] = [("", value, 1, ())]
    while pending and len(found) < at_most:
        path, item, depth, above = pending.pop()
        spent += 1
        if isinstance(item, str):
            spent += len(item)
        if spent > sizes.total_bytes:
            return [Flaw("", f"is larger than {sizes.total_bytes:,} bytes")]
        if not isinstance(item, dict | list | tuple):
            reason = _scalar_flaw(item, sizes)
            if reason:
                found.append(Flaw(path, reason))
        elif id(item) in above:
            found.append(Flaw(path, "contains itself"))
        elif depth > sizes.depth:
            found.append(Flaw(path, f"is nested deeper than {sizes.depth} levels"))
        elif len(item) > sizes.items:
            found.append(Flaw(path, f"has more than {sizes.items:,} members"))
        else:
            inner = (*above, id(item))
            if isinstance(item, dict):
                for key in item:
                    reason = _key_flaw(key, sizes)
                    if reason:
                        found.append(Flaw(path, reason))
                    else:
                        spent += len(key)
                        pending.append((join(path, key), item[key], depth + 1, inner))
            else:
                pending.extend((join(path, i), v, depth + 1, inner) for i, v in enumerate(item))
    return found[:at_most]


def plain(value: Any) -> Any:
    """A copy of a value without flaws, made of the seven JSON types and nothing derived."""
    if isinstance(value, dict):
        return {str.__str__(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind.__str__(value) if kind is str else kind(value)
    raise TypeError(type(value).__name__)


def deeper_than(value: object, depth: int) -> bool:
    """Whether arrays and objects are nested more than `depth` levels."""
    level: list[Any] = [value]
    for _ in range(depth + 1):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        if not inner:
            return False
        # By identity, so that shared or circular parts are looked at once a level.
        level = list({id(item): item for item in inner if isinstance(item, dict | list)}.values())
    return bool(level)


def json_types(value: Any) -> frozenset[str]:
    """The JSON types of a value; a whole number has two."""
    if value is None:
        return frozenset(("null",))
    if isinstance(value, bool):
        return frozenset(("boolean",))
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return frozenset(("integer", "number"))
    kinds: tuple[tuple[type, str], ...] = ((float, "number"), (str, "string"), (list, "array"))
    return frozenset((next((name for kind, name in kinds if isinstance(value, kind)), "object"),))


def _scalar_flaw(item: object, sizes: Sizes) -> str | None:
    if item is None or isinstance(item, bool):
        return None
    if isinstance(item, str):
        if len(item) > sizes.string_length:
            return f"is longer than {sizes.string_length:,} characters"
        return None if _is_unicode(item) else "contains a lone surrogate, which is not Unicode text"
    if isinstance(item, int):
        # Python refuses to print integers beyond this many digits.
        return None if item.bit_length() < 13_000 else "is an integer of thousands of digits"
    if isinstance(item, float):
        return None if math.isfinite(item) else f"{float(item)} is not a JSON number"
    return f"a Python {type(item).__name__} is not a JSON value"


def _key_flaw(key: object, sizes: Sizes) -> str | None:
    if not isinstance(key, str):
        return f"the key {_short(key)} is not a string"
    if len(key) > sizes.string_length:
        return f"has a key longer than {sizes.string_length:,} characters"
    return None if _is_unicode(key) else "has a key with a lone surrogate, which is not Unicode"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short(value: object) -> str:
    # Foreign objects may have a repr that raises or never ends.
    return (
        repr(value)[:40] if isinstance(value, int | float | bytes | None) else type(value).__name__
    )
