"""What settings of tools promise, over SQLite and PostgreSQL."""

from contextlib import ExitStack

import pytest

from toolkiln.store import Store, StoreError

from .conftest import Opener, count_rows, execute, running
from .test_processes import go

ODD = "\0\ud800\n😀"


def test_what_was_set_is_read_whole(store: Store) -> None:
    values = {"z": 1, "a" + ODD: [ODD, None, 2**70, {"b": 1.5}], "c": "\ud83d\ude00"}
    store.tool_settings.write(ODD, values)

    assert store.tool_settings.read(ODD) == values
    assert list(store.tool_settings.read(ODD)) == list(values)
    assert store.tool_settings.read("other") == {}


def test_the_operators_values_and_each_users_are_apart(store: Store) -> None:
    for user in ("", "ann", "discord:ann"):
        store.tool_settings.write("t", {"of": user}, user)

    read = store.tool_settings.read
    assert [read("t")["of"], read("t", "ann")["of"]] == ["", "ann"]
    assert read("t", "discord:ann") == {"of": "discord:ann"}
    assert read("t", "bob") == {}


def test_a_write_replaces_the_whole_and_nothing_removes_it(store: Store, place: str) -> None:
    store.tool_settings.write("t", {"a": 1, "b": 2})
    store.tool_settings.write("t", {"b": 3})
    after = store.tool_settings.read("t")
    store.tool_settings.write("t", {})

    assert after == {"b": 3}
    assert store.tool_settings.read("t") == {}
    assert count_rows(place, "toolkiln_settings") == 0


def test_the_version_grows_with_every_write_of_anybody(place: str, opened: Opener) -> None:
    one, other = opened(place), opened(place)
    versions = [one.tool_settings.version()]
    for store, values in ((one, {"a": 1}), (other, {"a": 1}), (one, {}), (other, {})):
        store.tool_settings.write("t", values)
        versions.append(one.tool_settings.version())

    assert versions == sorted(set(versions))
    assert other.tool_settings.version() == versions[-1]


def test_a_write_that_fails_changes_nothing(store: Store) -> None:
    store.tool_settings.write("t", {"a": 1})
    version = store.tool_settings.version()

    with pytest.raises(StoreError, match="cannot be kept"):
        store.tool_settings.write("t", {"a": object()})
    assert store.tool_settings.read("t") == {"a": 1}
    assert store.tool_settings.version() == version


def test_processes_that_write_at_once_each_count(place: str, opened: Opener) -> None:
    store = opened(place)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(running(place, "set", who, "20", script="guard.py"))
            for who in ("ann", "bob")
        ]
        seen = [[int(number) for number in said.split()] for said in go(writers)]

    assert all(numbers == sorted(set(numbers)) for numbers in seen)
    assert store.tool_settings.version() == 40
    assert store.tool_settings.read("t", "bob") == {"bob": 19}


@pytest.mark.parametrize("damage", ["7b", "31", "ff"])
def test_damaged_settings_are_said_to_be_so(store: Store, place: str, damage: str) -> None:
    store.tool_settings.write("t", {"a": 1})
    value = f"'\\x{damage}'" if "://" in place else f"x'{damage}'"
    execute(place, f"UPDATE toolkiln_settings SET content = {value}")

    with pytest.raises(StoreError) as caught:
        store.tool_settings.read("t")
    assert caught.value.hint
