"""Sessions, API keys, rate buckets and tool settings, over SQLite and PostgreSQL."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tables import each_row
from toolkiln.errors import InputError, StoreError
from toolkiln.model.identity import Caller, KeyRecord, SessionRecord
from toolkiln.model.policy import Draw, Rate
from toolkiln.store.store import Store

from .conftest import (
    Clock,
    Opener,
    count_rows,
    execute,
    go_on,
    next_line,
    running,
    together,
    wait_until_blocked,
)
from .test_approvals import YES, ask

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


def test_a_session_is_read_back_whole_with_the_seconds_left(store: Store, clock: Clock) -> None:
    store.sessions.put(TOKEN, session(key_id="k" + ODD), 300)
    clock.now += 100

    assert store.sessions.get(TOKEN) == (session(key_id="k" + ODD), 200)
    assert store.sessions.get(OTHER) is None


def test_equal_callers_are_written_alike(store: Store, place: str) -> None:
    groups = [frozenset(f"g{n}" for n in order) for order in (range(50), reversed(range(50)))]
    for token, some in zip((TOKEN, OTHER), groups, strict=True):
        store.sessions.put(token, SessionRecord(trace_id="t", caller=Caller(groups=some)), 300)

    assert count_rows(place, "(SELECT DISTINCT caller FROM toolkiln_sessions) AS callers") == 1


@each_row(
    "after, left, left_to_running_calls",
    [
        (299.5, 0.5, 0.5),
        (300, None, 0),
        (300 + DAY - 1, None, 0),
        (300 + DAY, None, None),
        (-1, None, None),
    ],
)
def test_a_session_ends_at_its_time_and_for_running_calls_a_day_later(
    store: Store,
    clock: Clock,
    after: float,
    left: float | None,
    left_to_running_calls: float | None,
) -> None:
    token = f"{abs(after):064}"
    store.sessions.put(token, session(), 300)
    clock.now += after

    assert store.sessions.get(token) == (left and (session(), left))
    running = store.sessions.get(token, running=True)
    assert running == (
        None if left_to_running_calls is None else (session(), left_to_running_calls)
    )
    assert len(store.sessions.alive()) == (left is not None)
    assert store.sessions.renew(token, 300) == (left is not None)
    store.sessions.end(token)


def test_an_ended_session_is_gone_also_for_running_calls(store: Store) -> None:
    store.sessions.put(TOKEN, session(), 300)

    assert store.sessions.end(TOKEN)
    assert not store.sessions.end(TOKEN)
    assert store.sessions.get(TOKEN) is None
    assert store.sessions.get(TOKEN, running=True) is None
    assert not store.sessions.renew(TOKEN, 300)


def test_a_renewed_session_is_valid_from_the_renewal_on(store: Store, clock: Clock) -> None:
    store.sessions.put(TOKEN, session(), 300)
    clock.now += 200

    assert store.sessions.renew(TOKEN, 250)
    assert store.sessions.get(TOKEN) == (session(), 250)
    assert not store.sessions.renew(OTHER, 250)


def test_a_clock_set_back_extends_no_session_beyond_its_grant(store: Store, clock: Clock) -> None:
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


@each_row("seconds", [0, -1, float("nan"), float("inf")])
def test_an_invalid_duration_of_a_session_is_bad_input(store: Store, seconds: float) -> None:
    with pytest.raises(InputError, match="cannot be valid"):
        store.sessions.put(OTHER, session(), seconds)
    token = f"{seconds:064}"
    store.sessions.put(token, session(), 300)
    with pytest.raises(InputError, match="cannot be valid"):
        store.sessions.renew(token, seconds)
    assert store.sessions.get(token) == (session(), 300)


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


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@each_row(
    "table, column",
    [
        ("sessions", "caller"),
        ("sessions", "trace_id"),
        ("sessions", "granted"),
        ("sessions", "key_id"),
        ("buckets", "level"),
    ],
)
def test_a_value_of_another_type_is_reported(
    store: Store, place: str, table: str, column: str
) -> None:
    token = f"{column:x>64}"
    store.sessions.put(token, session(), 300)
    take(store, "b")
    execute(place, f"UPDATE toolkiln_{table} SET {column} = 'text'")

    with pytest.raises(StoreError):
        store.sessions.get(token) if table == "sessions" else take(store, "b")


def test_a_store_without_a_clock_uses_that_of_the_database(place: str, opened: Opener) -> None:
    store = opened(place)
    store.sessions.put(TOKEN, session(), 300)
    found = store.sessions.get(TOKEN)
    store.keys.add(api_key(1, expires=time.time() - 60), TOKEN)
    store.keys.add(api_key(2, expires=time.time() + 3600), OTHER)
    waits = [take(store, "b", rate=Rate(1, 1000)) for _ in range(2)]

    assert found
    assert 0 < found[1] <= 300
    assert store.sessions.renew(TOKEN, 300)
    assert store.keys.find(TOKEN) is None
    assert store.keys.find(OTHER)
    assert waits[0] == 0 < waits[1] <= 1000


def api_key(number: int = 1, **changed: Any) -> KeyRecord:
    fields = {"id": f"k{number:07}", "name": f"name {number}", "caller": ANN, "created_by": "op"}
    return KeyRecord.model_validate({**fields, "created": 1_000_000.0 + number, **changed})


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


def test_a_revoked_key_and_its_sessions_end(store: Store, clock: Clock) -> None:
    store.keys.add(api_key(), TOKEN)
    store.keys.add(api_key(20, id="other"), OTHER)
    store.sessions.put(TOKEN, session(key_id="k0000001"), 300)
    store.sessions.put(OTHER, session(key_id="other"), 300)
    revoked = store.keys.revoke("k0000001"[:7])

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
        go_on(process)
        printed = [next_line(process) for _ in range(2)]
        work: Future[object] = pool.submit(store.keys.revoke, "k0000001")
        if "://" in place:
            wait_until_blocked(place, work)
        process.communicate()
        work.result(timeout=60)

    assert printed == ["waiting", "halted"]
    assert process.returncode == 0
    assert store.sessions.get("c" * 64, running=True) is None


@pytest.fixture
def keyed(store: Store) -> Store:
    """A store with two keys, and a third that is revoked."""
    for number in (1, 2):
        store.keys.add(api_key(number), f"{number:064}")
    store.keys.add(api_key(3, name="gone"), OTHER)
    store.keys.revoke("gone")
    return store


@each_row(
    "which, message, hint",
    [
        ("nam 1", "no key", "'name 1'"),
        ("k000000", "several keys", "k0000001"),
        ("k00", "no key", "keys list"),
        ("", "no key", "keys list"),
        (ODD * 10_000, "no key", "keys list"),
        ("gone", "no key", ""),
        ("k0000003", "already revoked", ""),
    ],
)
def test_a_key_that_cannot_be_revoked_is_bad_input(
    keyed: Store, which: str, message: str, hint: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        keyed.keys.revoke(which)
    assert len(caught.value.message) < 2000
    assert hint in (caught.value.hint or "")
    assert [key.revoked for key in keyed.keys.list()].count(None) == 2


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


LONG = "\0\ud800\x1b[31m\n😀" * 1000
MINUTE = Rate(3, 60)


def take(store: Store, *names: str, rate: Rate = MINUTE) -> float:
    return store.buckets.take([Draw(name, rate) for name in names])


def test_a_bucket_is_full_at_first_and_then_says_when(store: Store, clock: Clock) -> None:
    taken = [take(store, "b") for _ in range(3)]
    refused = take(store, "b")
    clock.now += 15
    later = take(store, "b")
    clock.now += later

    assert taken == [0, 0, 0]
    assert refused == pytest.approx(20)
    assert later == pytest.approx(5)
    assert take(store, "b") == 0
    assert take(store, "b") == pytest.approx(20)


def test_buckets_are_distinguished_by_their_whole_names(store: Store) -> None:
    one = Rate(1, 60)

    assert take(store, LONG, rate=one) == 0
    assert take(store, LONG + "x", rate=one) == 0
    assert take(store, LONG, rate=one) > 0
    assert take(store, "", rate=one) == 0


def test_a_token_comes_from_each_bucket_or_from_none(store: Store) -> None:
    slow = Draw("slow", Rate(1, 600))
    store.buckets.take([slow])

    assert store.buckets.take([Draw("b", MINUTE), slow]) == pytest.approx(600)
    assert [take(store, "b") for _ in range(3)] == [0, 0, 0]
    assert store.buckets.take([Draw("b", MINUTE), slow]) == pytest.approx(600)
    assert store.buckets.take([]) == 0


def test_a_bucket_named_twice_gives_one_token(store: Store) -> None:
    assert take(store, "b", "b", rate=Rate(1, 60)) == 0


def test_refusals_do_not_keep_a_bucket_empty(store: Store, clock: Clock) -> None:
    for _ in range(3):
        take(store, "b")
    for _ in range(19):
        clock.now += 1
        assert take(store, "b") > 0
    clock.now += 1

    assert take(store, "b") == 0


@each_row("jump", [1, 3600, 10**7])
def test_a_clock_set_back_neither_fills_nor_freezes_a_bucket(
    store: Store, clock: Clock, jump: float
) -> None:
    bucket = f"set back by {jump}"
    for _ in range(3):
        take(store, bucket)
    clock.now -= jump
    refused = take(store, bucket)
    clock.now += 20

    assert refused == pytest.approx(20)
    assert take(store, bucket) == 0
    assert take(store, bucket) == pytest.approx(20)


def test_a_clock_set_back_under_a_bucket_with_tokens_leaves_them(
    store: Store, clock: Clock
) -> None:
    take(store, "b")
    clock.now -= 1000

    assert [take(store, "b") == 0 for _ in range(3)] == [True, True, False]


def test_a_clock_set_ahead_fills_a_bucket_at_most(store: Store, clock: Clock) -> None:
    for _ in range(3):
        take(store, "b")
    clock.now += 10**9

    assert [take(store, "b") == 0 for _ in range(4)] == [True, True, True, False]


def test_a_changed_rate_applies_immediately(store: Store, clock: Clock) -> None:
    take(store, "b", rate=Rate(10, 60))

    assert [take(store, "b", rate=Rate(2, 60)) for _ in range(2)] == [0, 0]
    assert take(store, "b", rate=Rate(2, 60)) == pytest.approx(30)
    assert take(store, "b", rate=Rate(60, 60)) == pytest.approx(1)
    clock.now += 1
    assert take(store, "b", rate=Rate(60, 60)) == 0


@each_row(
    "rate", [Rate(0, 60), Rate(-1, 60), Rate(1, 0), Rate(1, float("nan")), Rate(1, float("inf"))]
)
def test_an_invalid_rate_is_bad_input(store: Store, rate: Rate) -> None:
    with pytest.raises(InputError, match="not a valid rate"):
        take(store, "b", rate=rate)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(
    rate=st.builds(Rate, st.integers(1, 20), st.floats(0.1, 1000)),
    steps=st.lists(st.floats(-50, 50), min_size=20, max_size=40),
)
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_no_more_is_taken_than_there_was(
    store: Store, clock: Clock, rate: Rate, steps: list[float]
) -> None:
    clock.now += 10**7
    taken, passed = 0, 0.0
    for step in steps:
        clock.now += step
        passed += max(0.0, step)
        taken += take(store, "b", rate=rate) == 0

    assert taken <= rate.count + passed * rate.count / rate.seconds + 0.001


def test_a_caller_that_waits_the_returned_time_gets_its_token(
    place: str, opened: Opener, clock: Clock
) -> None:
    store = opened(place, clock)
    clock.now = 1_800_000_000.123456
    rate = Rate(7, 60)
    for _ in range(7):
        take(store, "b", rate=rate)
    for _ in range(30):
        wait = take(store, "b", rate=rate)
        clock.now += wait

        assert wait > 0
        assert take(store, "b", rate=rate) == 0


def test_full_buckets_are_removed_and_others_are_not(
    store: Store, place: str, clock: Clock
) -> None:
    take(store, "quick", "quick too", rate=Rate(10, 10))
    take(store, "slow", rate=Rate(1, 1000))
    clock.now += 100
    store.prune()

    assert count_rows(place, "toolkiln_buckets") == 1
    assert take(store, "slow", rate=Rate(1, 1000)) == pytest.approx(900)
    assert take(store, "quick", rate=Rate(10, 10)) == 0


def test_of_processes_that_act_at_once_each_act_counts_once(place: str, opened: Opener) -> None:
    store = opened(place)
    waiting, approved = ([ask(store, f"{k}{n}").id for n in range(40)] for k in ("wait", "use"))
    for approval_id in approved:
        store.approvals.decide(approval_id, YES)

    def tasks(who: str, verdict: str) -> list[str]:
        decide = f"decide {who} {verdict} {' '.join(waiting)}"
        return [f"{decide} then use {who} f {' '.join(approved)} then take 50 40 then set {who} 20"]

    acts = [("ann", "approve"), ("bob", "reject"), ("bob", "reject")]
    printed = together(place, "guard.py", *(tasks(who, verdict) for who, verdict in acts))

    decided, used, taken, _ = zip(*(lines.split("\n")[:4] for lines in printed), strict=True)
    rejected = " ".join(decided[1:]).split()
    assert sorted(decided[0].split() + rejected) == sorted(waiting)
    assert {found.id for found in store.approvals.list(("rejected",))} == set(rejected)
    assert {found.decided_by for found in store.approvals.list(("rejected",))} <= {"bob"}
    assert sorted(" ".join(used).split()) == sorted(approved)
    assert sum(map(int, taken)) == 50
    expected = {f"{who}{n}": n for who in ("ann", "bob") for n in range(20)}
    assert store.tool_settings.read("t") == expected


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
