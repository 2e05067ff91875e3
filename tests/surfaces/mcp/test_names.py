"""Names that every client takes."""

import re

from hypothesis import given
from hypothesis import strategies as st

from toolkiln.surfaces.mcp.tools import originals, wire_name

NAMES = st.text("abXY09_-", min_size=1, max_size=64)


@given(st.sets(NAMES, max_size=50))
def test_every_tool_gets_a_name_of_its_own_that_all_clients_take(names: set[str]) -> None:
    made = {name: wire_name(name) for name in names}

    assert len(set(made.values())) == len(names)
    for name, wire in made.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]{0,39}", wire)
        assert wire == name or wire_name(wire) != wire  # no other tool can take a generated one


def test_only_names_that_changed_have_to_be_found_again() -> None:
    known = originals(["fine_name", "Not-Fine"])

    assert list(known.values()) == ["Not-Fine"]
    assert next(iter(known)).startswith("not_fine_")
