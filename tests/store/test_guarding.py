"""What sessions and API keys promise, over SQLite and PostgreSQL."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from toolkiln.errors import InputError, StoreError
from toolkiln.model.identity import Caller, KeyRecord, SessionRecord
from toolkiln.store.store import Store

from .conftest import Clock, Opener, count_rows, execute, running, wait_until_blocked

ODD = "\0\ud800\x1b[31m\n'; DROP TABLE toolkiln_sessions; -- 😀"
ANN = Caller(
    user_id="ann" + ODD,
    platform="discord",
    guild_id="g",
    channel_id="c",
    groups=frozenset({"b", "a", ODD}),
    privileges=frozenset({"APPROVE", "ADMIN"}),
    tools=("read_*", "x"),
    agent_id="a1",
    agent_state={"deep": [{"k" + ODD: [1.5, None, True, 2**70, "\ud83d\ude00"]}]},
    session="trace",
    workspace="w",
)
TOKEN, OTHER = "a" * 64, "b" * 64
DAY = 86_400


def session(trace_id: str = "trace", key_id: str | None = None) -> SessionRecord:
    return SessionRecord(trace_id=trace_id, caller=ANN, key_id=key_id)


def test_a_session_comes_back_whole_with_the_seconds_left(store: Store, clock: Clock) -> None:
    store.sessions.put(TOKEN, session(key_id="k" + ODD), 300)
    clock.now += 100

    assert store.sessions.get(TOKEN) == (session(key_id="k" + ODD), 200)
    assert store.sessions.get(OTHER) is None


def test_equal_callers_are_written_alike(store: Store, place: str) -> None:
    groups = [frozenset(f"g{n}" for n in order) for order in (range(50), reversed(range(50)))]
    for token, some in zip((TOKEN, OTHER), groups, strict=True):
        store.sessions.put(token, SessionRecord(trace_id="t", caller=Caller(groups=some)), 300)

    assert count_rows(place, "(SELECT DISTINCT caller FROM toolkiln_sessions) AS callers") == 1


def test_a_session_expires_at_its_time(store: Store, clock: Clock) -> None:
    store.sessions.put(TOKEN, session(), 300)
    clock.now += 299.5
    before = store.sessions.get(TOKEN)
    clock.now += 0.5

    assert before == (session(), 0.5)
    assert store.sessions.get(TOKEN) is None
    assert not store.sessions.renew(TOKEN, 300)
    assert store.sessions.alive() == []


def test_a_running_call_finds_its_expired_session_for_a_day(store: Store, clock: Clock) -> None:
    store.sessions.put(TOKEN, session(), 300)
    alive = store.sessions.get(TOKEN, running=True)
    clock.now += 300 + DAY - 1
    expired = store.sessions.get(TOKEN, running=True)
    clock.now += 1

    assert alive == (session(), 300)
    assert expired == (session(), 0)
    assert store.sessions.get(TOKEN, running=True) is None


def test_an_ended_session_is_gone_also_for_running_calls(store: Store) -> None:
    store.sessions.put(TOKEN, session(), 300)

    assert store.sessions.end(TOKEN)
    assert not store.sessions.end(TOKEN)
    assert store.sessions.get(TOKEN) is None
    assert store.sessions.get(TOKEN, running=True) is None
    assert not store.sessions.renew(TOKEN, 300)


def test_a_renewed_session_holds_from_the_renewal_on(store: Store, clock: Clock) -> None:
    store.sessions.put(TOKEN, session(), 300)
    clock.now += 200

    assert store.sessions.renew(TOKEN, 250)
    assert store.sessions.get(TOKEN) == (session(), 250)
    assert not store.sessions.renew(OTHER, 250)


def test_a_session_from_the_future_is_none(store: Store, clock: Clock) -> None:
    store.sessions.put(TOKEN, session(), 300)
    clock.now -= 1

    assert store.sessions.get(TOKEN) is None
    assert store.sessions.get(TOKEN, running=True) is None
    assert store.sessions.alive() == []
    assert not store.sessions.renew(TOKEN, 300)


def test_a_clock_set_back_gives_no_session_more_than_it_was_granted(
    store: Store, clock: Clock
) -> None:
    store.sessions.put(TOKEN, session(), 300)
    clock.now += 250
    store.sessions.renew(TOKEN, 100)
    clock.now -= 200

    assert store.sessions.get(TOKEN) == (session(), 100)
    assert store.sessions.alive() == [(session(), 100)]


def test_a_clock_set_back_revives_no_session_that_was_seen_expired(
    store: Store, clock: Clock
) -> None:
    store.sessions.put(TOKEN, session(), 300)
    clock.now += 400
    store.sessions.get(TOKEN)
    clock.now -= 300

    assert store.sessions.get(TOKEN) is None
    assert store.sessions.alive() == []
    assert not store.sessions.renew(TOKEN, 300)
    assert store.sessions.get(TOKEN, running=True) == (session(), 0)


def test_living_sessions_are_listed_newest_first_and_bounded(store: Store, clock: Clock) -> None:
    for number in range(4):
        clock.now += 10
        store.sessions.put(f"{number}" * 64, session(f"t{number}"), 100 if number else 15)

    listed = store.sessions.alive(2)

    assert [(found.trace_id, left) for found, left in listed] == [("t3", 100), ("t2", 90)]
    assert len(store.sessions.alive(10**30)) == 3
    assert store.sessions.alive(-1) == []


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_session_that_would_not_end_or_hold_is_bad_input(store: Store, seconds: float) -> None:
    with pytest.raises(InputError, match="cannot be valid"):
        store.sessions.put(TOKEN, session(), seconds)
    store.sessions.put(TOKEN, session(), 300)
    with pytest.raises(InputError, match="cannot be valid"):
        store.sessions.renew(TOKEN, seconds)
    assert store.sessions.get(TOKEN) == (session(), 300)


def test_a_state_that_is_not_json_is_refused(store: Store) -> None:
    caller = Caller(agent_state={"x": object()})

    with pytest.raises(StoreError, match="cannot be stored"):
        store.sessions.put(TOKEN, SessionRecord(trace_id="t", caller=caller), 300)
    assert store.sessions.get(TOKEN) is None


def test_old_sessions_are_removed_from_time_to_time(
    place: str, opened: Opener, clock: Clock
) -> None:
    opened(place, clock).sessions.put(TOKEN, session(), 300)
    clock.now += 301 + DAY
    opened(place, clock).sessions.put(OTHER, session(), 300)

    assert count_rows(place, "toolkiln_sessions") == 1


@pytest.mark.parametrize("damage", ["nonsense", "[]", '{"groups": 1}', '{"unknown": 1}', "\xff"])
def test_a_damaged_session_is_said_to_be_so(store: Store, place: str, damage: str) -> None:
    store.sessions.put(TOKEN, session(), 300)
    value = damage.encode("latin-1").hex()
    column = f"'\\x{value}'" if "://" in place else f"x'{value}'"
    execute(place, f"UPDATE toolkiln_sessions SET caller = {column}")

    with pytest.raises(StoreError) as caught:
        store.sessions.get(TOKEN)
    assert caught.value.hint
    with pytest.raises(StoreError):
        store.sessions.alive()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("column", ["caller", "trace_id", "granted", "key_id"])
def test_a_value_of_another_type_is_said_to_be_damage(
    store: Store, place: str, column: str
) -> None:
    store.sessions.put(TOKEN, session(), 300)
    execute(place, f"UPDATE toolkiln_sessions SET {column} = 'text'")

    with pytest.raises(StoreError):
        store.sessions.get(TOKEN)


def test_the_stores_own_clock_runs(place: str, opened: Opener) -> None:
    store = opened(place)
    store.sessions.put(TOKEN, session(), 300)
    found = store.sessions.get(TOKEN)

    assert found
    assert 0 < found[1] <= 300
    assert store.sessions.renew(TOKEN, 300)


def api_key(number: int = 1, **changed: Any) -> KeyRecord:
    told = {"id": f"k{number:07}", "name": f"name {number}", "caller": ANN, "created_by": "op"}
    return KeyRecord.model_validate({**told, "created": 1_000_000.0 + number, **changed})


def test_a_key_is_found_by_its_hash_and_whole(store: Store, clock: Clock) -> None:
    key = api_key(name="n" + ODD, created_by=ODD, expires=clock.now + 50)
    store.keys.add(key, TOKEN)

    assert store.keys.find(TOKEN) == key.model_copy(update={"last_used": clock.now})
    assert store.keys.find(OTHER) is None


def test_an_expired_key_is_listed_and_not_found(store: Store, clock: Clock) -> None:
    store.keys.add(api_key(expires=clock.now + 50), TOKEN)
    clock.now += 50

    assert store.keys.find(TOKEN) is None
    assert [key.id for key in store.keys.list()] == ["k0000001"]


def test_the_last_use_is_noted_once_a_minute(store: Store, clock: Clock) -> None:
    start = clock.now
    store.keys.add(api_key(), TOKEN)
    noted = []
    for seconds in (0, 59, 1, 59, 1, -1000):
        clock.now += seconds
        store.keys.find(TOKEN)
        noted.append(store.keys.list()[0].last_used)

    assert noted == [start, start, start + 60, start + 60, start + 120, start - 880]


@pytest.mark.parametrize("which", ["k0000001", "name 1", "k0000001"[:7]])
def test_a_revoked_key_and_its_sessions_end(store: Store, clock: Clock, which: str) -> None:
    store.keys.add(api_key(), TOKEN)
    store.keys.add(api_key(20, id="other"), OTHER)
    store.sessions.put(TOKEN, session(key_id="k0000001"), 300)
    store.sessions.put(OTHER, session(key_id="other"), 300)
    revoked = store.keys.revoke(which)

    assert (revoked.id, revoked.revoked) == ("k0000001", clock.now)
    assert store.keys.find(TOKEN) is None
    assert store.sessions.get(TOKEN, running=True) is None
    assert store.sessions.get(OTHER)
    assert [(key.id, key.revoked) for key in store.keys.list()] == [
        ("other", None),
        ("k0000001", clock.now),
    ]


def test_a_revoked_key_makes_no_more_sessions(store: Store) -> None:
    store.keys.add(api_key(), TOKEN)
    store.keys.revoke("name 1")

    with pytest.raises(InputError, match="revoked"):
        store.sessions.put(TOKEN, session(key_id="k0000001"), 300)


def test_no_session_survives_the_key_that_is_revoked_meanwhile(place: str, opened: Opener) -> None:
    store = opened(place)
    store.keys.add(api_key(), TOKEN)
    maker = running(place, "session", "k0000001", script="guard.py")
    with maker as process, ThreadPoolExecutor(1) as pool:
        assert process.stdin
        assert process.stdout
        process.stdin.write("go\n")
        process.stdin.flush()
        said = [process.stdout.readline() for _ in range(2)]
        work: Future[object] = pool.submit(store.keys.revoke, "k0000001")
        if "://" in place:
            wait_until_blocked(place, work)
        process.communicate()
        work.result(timeout=60)

    assert said == ["waiting\n", "halted\n"]
    assert process.returncode == 0
    assert store.sessions.get("c" * 64, running=True) is None


@pytest.mark.parametrize(
    ("which", "message", "hint"),
    [
        ("nam 1", "no key", "'name 1'"),
        ("k000000", "several keys", "k0000001"),
        ("k00", "no key", "keys list"),
        ("", "no key", "keys list"),
        (ODD * 10_000, "no key", "keys list"),
        ("gone", "no key", None),
        ("k0000003", "already revoked", None),
    ],
)
def test_a_key_that_cannot_be_revoked_is_bad_input(
    store: Store, which: str, message: str, hint: str | None
) -> None:
    for number in (1, 2):
        store.keys.add(api_key(number), f"{number:064}")
    store.keys.add(api_key(3, name="gone"), OTHER)
    store.keys.revoke("gone")

    with pytest.raises(InputError, match=message) as caught:
        store.keys.revoke(which)
    assert len(caught.value.message) < 2000
    assert hint is None or hint in (caught.value.hint or "")
    assert [key.revoked for key in store.keys.list()].count(None) == 2


def test_a_name_is_free_again_once_its_key_is_revoked(store: Store) -> None:
    store.keys.add(api_key(1, name="bot"), TOKEN)
    with pytest.raises(InputError, match="a key named 'bot' already exists"):
        store.keys.add(api_key(2, name="bot"), OTHER)
    store.keys.revoke("bot")
    store.keys.add(api_key(2, name="bot"), OTHER)

    assert store.keys.revoke("bot").id == "k0000002"
    assert store.keys.find(OTHER) is None


def test_the_sessions_of_a_key_end_together_and_the_living_are_counted(
    store: Store, clock: Clock
) -> None:
    for number in range(3):
        store.sessions.put(f"{number:064}", session(key_id="k"), 300 if number else 10)
    store.sessions.put(TOKEN, session(), 300)
    clock.now += 10

    assert store.sessions.end_by_key("k") == 2
    assert store.sessions.end_by_key("k") == 0
    assert len(store.sessions.alive()) == 1


def test_a_damaged_key_is_said_to_be_so(store: Store, place: str) -> None:
    store.keys.add(api_key(), TOKEN)
    execute(place, "UPDATE toolkiln_keys SET caller = name")

    for read in (store.keys.list, lambda: store.keys.find(TOKEN)):
        with pytest.raises(StoreError, match="cannot be read") as caught:
            read()
        assert caught.value.hint


def test_keys_go_by_the_stores_own_clock(place: str, opened: Opener) -> None:
    store = opened(place)
    store.keys.add(api_key(1, expires=time.time() - 60), TOKEN)
    store.keys.add(api_key(2, expires=time.time() + 3600), OTHER)

    assert store.keys.find(TOKEN) is None
    assert store.keys.find(OTHER)
