"""Parts of lists that change while a client reads them."""

import pytest

from tables import each_row
from toolkiln.errors import InvalidCursor
from toolkiln.operations.operation import encode_cursor, page_of

Item = tuple[float, str]
ALL: list[Item] = [(9.0, "i"), (8.0, "h"), (7.0, "g"), (7.0, "f"), (5.0, "e"), (4.0, "d")]


def part(items: list[Item], cursor: str | None, limit: int = 2) -> tuple[list[str], str | None]:
    found, following = page_of("letters", items, lambda one: one, cursor, limit)
    return [name for _, name in found], following


def test_parts_follow_each_other() -> None:
    first, cursor = part(ALL, None)
    second, cursor = part(ALL, cursor)
    third, cursor = part(ALL, cursor)

    assert (first, second, third, cursor) == (["i", "h"], ["g", "f"], ["e", "d"], None)


@each_row(
    "items",
    [
        pytest.param(ALL[2:], id="all that was seen has gone"),
        pytest.param([ALL[0], *ALL[2:]], id="the last that was seen has gone"),
        pytest.param([(11.0, "k"), (10.0, "j"), *ALL], id="others have come"),
        pytest.param([(11.0, "k"), *ALL[2:]], id="some have come, and some gone"),
        pytest.param([(11.0, "h"), ALL[0], *ALL[2:]], id="the last that was seen is there anew"),
    ],
)
def test_what_comes_and_goes_neither_repeats_nor_hides_the_rest(items: list[Item]) -> None:
    _, cursor = part(ALL, None)

    rest, _ = part(items, cursor, 9)

    assert rest == ["g", "f", "e", "d"]


def test_an_empty_list_has_no_further_part_and_another_list_refuses_the_cursor() -> None:
    _, cursor = part(ALL, None)

    assert part([], cursor) == ([], None)
    with pytest.raises(InvalidCursor):
        part(ALL, encode_cursor("numbers", 8.0, "h"))
