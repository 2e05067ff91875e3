"""Text that people and tools chose, laid out so that nothing in it passes for something else.

Unlike `terminal.say`, this holds for files and pipes as well: a cell with a line break in it
would forge a row, and an argument that a person decides about must be seen as it is.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import chain

from toolkiln.surfaces.cli.terminal import say

_WIDEST = 60
_WIDEST_LAST = 300


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows below their titles, each on one line; what is long is cut."""
    last = len(titles) - 1
    shown = [
        [one_line(cell, _WIDEST_LAST if at == last else _WIDEST) for at, cell in enumerate(row)]
        for row in chain([titles], rows)
    ]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())


def one_line(text: str, most: int = _WIDEST_LAST) -> str:
    """A text as one line of printable characters."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def exact_json(value: object) -> str:
    """JSON for people to decide about: what cannot be seen is written as an escape."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def when(at: float | None, otherwise: str = "") -> str:
    """A moment in UTC."""
    if at is None:
        return otherwise
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, OSError, ValueError):  # no year that there will ever be
        return f"{at!r}"


def listed(values: Iterable[str]) -> str:
    """Several texts in one cell."""
    return ", ".join(sorted(values))
