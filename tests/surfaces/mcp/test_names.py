"""Names that every client takes."""

import re

from hypothesis import given
from hypothesis import strategies as st

from toolkiln.surfaces.mcp.tools import originals, wire_name

NAMES = st.text("abXY09_-", min_size=1, max_size=64)


@given(NAMES)
def test_every_name_becomes_one_that_all_clients_take(name: str) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,39}", wire_name(name))


@given(st.sets(NAMES, max_size=50))
def test_no_two_tools_get_one_name(names: set[str]) -> None:
    assert len({wire_name(name) for name in names}) == len(names)


@given(NAMES)
def test_a_generated_name_cannot_be_taken_by_another_tool(name: str) -> None:
    made = wire_name(name)

    assert made == name or wire_name(made) != made


def test_only_names_that_changed_have_to_be_found_again() -> None:
    known = originals(["fine_name", "Not-Fine"])

    assert list(known.values()) == ["Not-Fine"]
    assert next(iter(known)).startswith("not_fine_")
