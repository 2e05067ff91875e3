"""Calls that docstrings show, read off their text."""

from tables import each_row
from toolkiln.model.spec import ToolSpec
from toolkiln.operations.sources import read_source
from toolkiln.schema.examples import example_calls

TOOL = '''
from datetime import date, datetime
from decimal import Decimal


def book(
    room: str,
    day: date | None = None,
    price: Decimal = Decimal(1),
    tags: list[str] = [],
    seats: float = 1,
) -> str:
    """Book a room.

    Examples:
{examples}
    """
    return room
'''


def spec(*lines: str) -> ToolSpec:
    examples = "\\n".join(f"        {line}" for line in lines)
    (tool,) = read_source(TOOL.replace("{examples}", examples)).reading.tools
    return tool


def test_arguments_are_listed_by_name_in_any_spelling_of_the_call() -> None:
    shown = example_calls(
        spec(
            '>>> labels = ["quiet", "big"]',
            '>>> print(book("Blue", date(2026, 11, 17), tags=labels))',
            "Blue",
            '>>> asyncio.run(book(room="Red", price=Decimal("9.5"), seats=-1)).upper()',
        )
    )

    assert shown == (
        {"room": "Blue", "day": "2026-11-17", "tags": ["quiet", "big"]},
        {"room": "Red", "price": "9.5", "seats": -1},
    )


@each_row(
    "line",
    [
        ">>> book(room_of(4))",
        ">>> book(*rooms)",
        ">>> book(**{'room': 'Blue'})",
        ">>> book(1, 2, 3, 4, 5, 6)",
        ">>> book('Blue', seats=1e999)",
        ">>> book('Blue', date(10**30, 1, 1))",
        ">>> book('Blue', date(99999999999999999999, 1, 1))",
        ">>> book('Blue', datetime())",
        ">>> book(7)",
        ">>> book('Blue', colour='red')",
        ">>> book(",
        ">>>book('Blue')",
        f">>> book({'[' * 300}{']' * 300})",
        ">>> other('Blue')",
    ],
)
def test_a_call_that_is_not_static_or_invalid_is_no_example(line: str) -> None:
    assert example_calls(spec(line)) == ()
