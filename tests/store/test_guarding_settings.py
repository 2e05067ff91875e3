"""What settings of tools promise, over SQLite and PostgreSQL."""

from contextlib import ExitStack
from functools import partial

import pytest

from toolkiln.errors import StoreError
from toolkiln.store.store import Store

from .conftest import Opener, count_rows, execute, running
from .test_processes import go

ODD = "\0\ud800\n😀"


def test_what_was_set_is_read_whole(store: Store) -> None:
    values = {"z": 1, "a" + ODD: [ODD, None, 2**70, {"b": 1.5}], "c": "\ud83d\ude00"}
    store.tool_settings.change(ODD, lambda _: values)

    assert store.tool_settings.read(ODD) == values
    assert list(store.tool_settings.read(ODD)) == list(values)
    assert store.tool_settings.read("other") == {}


def instead(values: dict[str, str], _: object) -> dict[str, str]:
    return values


def test_the_operators_values_and_each_users_are_apart(store: Store) -> None:
    for user in ("", "ann", "discord:ann"):
        store.tool_settings.change("t", partial(instead, {"of": user}), user)

    read = store.tool_settings.read
    assert [read("t")["of"], read("t", "ann")["of"]] == ["", "ann"]
    assert read("t", "discord:ann") == {"of": "discord:ann"}
    assert read("t", "bob") == {}


def test_a_write_replaces_the_whole_and_nothing_removes_it(store: Store, place: str) -> None:
    store.tool_settings.change("t", lambda _: {"a": 1, "b": 2})
    store.tool_settings.change("t", lambda _: {"b": 3})
    after = store.tool_settings.read("t")
    store.tool_settings.change("t", lambda _: {})

    assert after == {"b": 3}
    assert store.tool_settings.read("t") == {}
    assert count_rows(place, "toolkiln_settings") == 0


def test_a_write_that_fails_changes_nothing(store: Store) -> None:
    store.tool_settings.change("t", lambda _: {"a": 1})

    with pytest.raises(StoreError, match="cannot be stored"):
        store.tool_settings.change("t", lambda _: {"a": object()})
    assert store.tool_settings.read("t") == {"a": 1}


def test_processes_that_change_at_once_lose_nothing(place: str, opened: Opener) -> None:
    store = opened(place)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(running(place, "set", who, "20", script="guard.py"))
            for who in ("ann", "bob")
        ]
        go(writers)

    assert store.tool_settings.read("t") == {
        f"{who}{n}": n for who in ("ann", "bob") for n in range(20)
    }


@pytest.mark.parametrize("damage", ["7b", "31", "ff"])
def test_damaged_settings_are_said_to_be_so(store: Store, place: str, damage: str) -> None:
    store.tool_settings.change("t", lambda _: {"a": 1})
    value = f"'\\x{damage}'" if "://" in place else f"x'{damage}'"
    execute(place, f"UPDATE toolkiln_settings SET content = {value}")

    with pytest.raises(StoreError) as caught:
        store.tool_settings.read("t")
    assert caught.value.hint
