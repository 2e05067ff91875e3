"""Sessions and buckets in Redis: what they promise, what is kept for how long, and damage.

The same promises over SQLite and PostgreSQL are in `tests/store/test_security_stores.py`.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from tables import each_row
from toolkiln.errors import InputError, StoreError
from toolkiln.fleet import keys
from toolkiln.fleet.address import open_redis
from toolkiln.fleet.security_stores import RedisBuckets, RedisSessions
from toolkiln.model.identity import Caller, SessionRecord
from toolkiln.model.policy import Draw, Rate
from toolkiln.store.store import open_store

from .servers import Server

DAY = 86_400.0
DAY_MS = 86_400_000
ANN = Caller(
    user_id="ann",
    platform="discord",
    groups=frozenset({"staff", "ops"}),
    privileges=frozenset({"ADMIN"}),
    tools=("read_*",),
    agent_state={"mood": [1, None, {"deep": "ä"}], "rate": 0.5},
    session="t1",
    workspace="w",
)
# So slow that no token comes back while a busy machine runs a test.
SLOW = Rate(6, DAY)


@dataclass(frozen=True)
class Guards:
    """The stores under test, and how to let time pass; less than none sets the clock back."""

    sessions: Any
    buckets: Any
    wait: Callable[[float], None]


@pytest.fixture
def guards(server: Server, behind: Any) -> Iterator[Guards]:
    with closing(open_redis(server.url)) as connection:
        sessions, buckets = RedisSessions(connection), RedisBuckets(connection)
        yield Guards(sessions, buckets, lambda seconds: age(behind, seconds))


@pytest.fixture(params=["redis", "store"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guards]:
    """Redis, then an SQLite store, for what the tests of the store do not try."""
    if request.param == "redis":
        yield request.getfixturevalue("guards")
        return
    now = [1_000_000.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    with closing(open_store(str(tmp_path / "store.db"), clock=lambda: now[0])) as store:
        yield Guards(store.sessions, store.buckets, wait)


@pytest.fixture
def sessions(guards: Guards) -> RedisSessions:
    found: RedisSessions = guards.sessions
    return found


@pytest.fixture
def buckets(guards: Guards) -> RedisBuckets:
    found: RedisBuckets = guards.buckets
    return found


def age(client: "redis.Redis", seconds: float) -> None:
    """Make all there is older, which is the same to it as a clock that went on."""
    milliseconds = round(seconds * 1000)
    for key in client.scan_iter(count=1000):
        if client.type(key) == b"zset":
            for member, score in client.zscan_iter(key):
                client.zadd(key, {member: score - milliseconds})
        else:
            for field, unit in ((b"expires", 1), (b"made", 1000), (b"at", 1000)):
                if int(client.hget(key, field) or 0):
                    client.hincrby(key, field, -milliseconds * unit)
        client.pexpire(key, client.pttl(key) - milliseconds)


def session(trace_id: str = "t1", key_id: str | None = None, caller: Caller = ANN) -> SessionRecord:
    return SessionRecord(trace_id=trace_id, caller=caller, key_id=key_id)


def names(sessions: Any, limit: int = 100) -> list[str]:
    return [one.trace_id for one, _ in sessions.alive(limit)]


def drained(buckets: RedisBuckets, *draws: Draw) -> int:
    """How often a token can be taken before it is refused."""
    return next(number for number in range(10_000) if buckets.take(draws) > 0)


# Sessions


def test_what_was_put_is_found_with_the_time_that_is_left(sessions: RedisSessions) -> None:
    sessions.put("h1", session(key_id="k1"), 300)

    found = sessions.get("h1")

    assert found
    assert found[0] == session(key_id="k1")
    assert 200 < found[1] <= 300


@each_row("forged", ["h2", "H1", "h1 ", "", "*", "%", "h" * 3_000_000, "h1\n"])
def test_a_forged_hash_finds_renews_and_ends_nothing(either: Guards, forged: str) -> None:
    sessions = either.sessions
    sessions.put("h1", session(), 300)

    assert sessions.get(forged) is None
    assert sessions.get(forged, running=True) is None
    assert sessions.renew(forged, 300) is False
    assert sessions.end(forged) is False
    assert sessions.get("h1")


def test_a_session_is_ended_by_its_public_name_until_it_expires(either: Guards) -> None:
    sessions = either.sessions
    sessions.put("h1", session(key_id="k1"), 300)
    sessions.put("h2", session("t2"), 300)

    ended = sessions.end_by_trace_id("t1")

    assert ended == session(key_id="k1")
    assert sessions.get("h1", running=True) is None
    assert names(sessions) == ["t2"]
    assert [sessions.end_by_trace_id(name) for name in ("t1", "", "%", "\ud800")] == [None] * 4
    either.wait(301)
    assert sessions.end_by_trace_id("t2") is None


def test_an_expired_session_is_found_by_running_calls_only(guards: Guards) -> None:
    guards.sessions.put("h1", session(), 300)
    guards.wait(301)

    assert guards.sessions.get("h1") is None
    assert guards.sessions.get("h1", running=True) == (session(), 0.0)
    assert names(guards.sessions) == []
    assert guards.sessions.renew("h1", 300) is False
    assert guards.sessions.end("h1") is True
    assert guards.sessions.get("h1", running=True) is None


def test_a_running_call_may_use_an_expired_session_for_a_day(guards: Guards) -> None:
    guards.sessions.put("h1", session(), 300)
    guards.wait(300 + DAY - 60)
    before = guards.sessions.get("h1", running=True)
    guards.wait(61)
    after = guards.sessions.get("h1", running=True)

    assert before
    assert after is None


def test_a_renewed_session_is_valid_from_then_on(guards: Guards) -> None:
    guards.sessions.put("h1", session(), 300)
    guards.wait(250)
    renewed = guards.sessions.renew("h1", 300)
    guards.wait(250)
    found = guards.sessions.get("h1")

    assert renewed
    assert found
    assert found[0] == session()
    assert 0 < found[1] <= 50


def test_an_ended_session_is_gone_for_running_calls_too(sessions: RedisSessions) -> None:
    sessions.put("h1", session(), 300)

    assert sessions.end("h1") is True
    assert sessions.get("h1", running=True) is None
    assert sessions.renew("h1", 300) is False
    assert sessions.end("h1") is False
    assert names(sessions) == []


def test_a_clock_set_back_does_not_revive_a_session_that_was_seen_to_expire(
    guards: Guards,
) -> None:
    guards.sessions.put("h1", session(), 300)
    guards.wait(301)
    guards.sessions.get("h1")
    guards.wait(-200)

    assert guards.sessions.get("h1") is None
    assert guards.sessions.renew("h1", 300) is False
    assert names(guards.sessions) == []


def test_a_session_from_the_future_is_invalid(guards: Guards) -> None:
    guards.sessions.put("h1", session(), 300)
    guards.wait(-3600)

    assert guards.sessions.get("h1") is None
    assert guards.sessions.get("h1", running=True) is None
    assert guards.sessions.renew("h1", 300) is False
    assert names(guards.sessions) == []


def test_the_sessions_of_a_key_end_together(guards: Guards) -> None:
    guards.sessions.put("old", session("old", "k1"), 10)
    guards.wait(11)
    for number, key in enumerate(["k1", "k1", "k2", None], 1):
        guards.sessions.put(f"h{number}", session(str(number), key), 300)

    assert guards.sessions.end_by_key("k1") == 2
    assert guards.sessions.end_by_key("k1") == 0
    assert guards.sessions.end_by_key("") == 0
    assert [guards.sessions.get(h, running=True) for h in ("old", "h1", "h2")] == [None] * 3
    assert sorted(names(guards.sessions)) == ["3", "4"]


def test_a_renewed_session_ends_with_its_key_long_after(either: Guards) -> None:
    either.sessions.put("h1", session("1", "k1"), 3 * DAY)
    either.wait(2 * DAY)
    either.sessions.renew("h1", 5 * DAY)
    either.wait(4.5 * DAY)
    either.sessions.put("h2", session("2", "k1"), 60)

    assert either.sessions.end_by_key("k1") == 2
    assert either.sessions.get("h1", running=True) is None


def test_more_sessions_of_a_key_than_one_script_ends_all_end(sessions: RedisSessions) -> None:
    for number in range(2500):
        sessions.put(f"h{number}", session(key_id="k"), 300)

    assert sessions.end_by_key("k") == 2500
    assert sessions.alive() == []


def test_a_session_put_again_is_the_later_one(either: Guards) -> None:
    sessions = either.sessions
    sessions.put("h1", session("1", "k1"), 300)
    sessions.put("h1", session("2", "k2"), 600)

    assert sessions.end_by_key("k1") == 0
    found = sessions.get("h1")
    assert found
    assert found[0].trace_id == "2"
    assert found[1] > 300
    assert sessions.end_by_key("k2") == 1


def test_valid_sessions_are_listed_newest_first(guards: Guards) -> None:
    for number, seconds in enumerate([900, 300, 600, 15, 800]):
        guards.sessions.put(f"h{number}", session(str(number)), seconds)
        guards.wait(10)
    guards.sessions.renew("h0", 5000)

    assert names(guards.sessions) == ["4", "2", "1", "0"]
    assert names(guards.sessions, 2) == ["4", "2"]
    assert names(guards.sessions, 0) == names(guards.sessions, -1) == []
    assert [one for one in guards.sessions.alive() if not 0 < one[1] <= 5000] == []


@each_row("seconds", [0, -1, float("nan"), float("inf")])
def test_an_invalid_duration_of_a_session_is_refused(
    sessions: RedisSessions, seconds: float
) -> None:
    with pytest.raises(InputError):
        sessions.put("h1", session(), seconds)
    sessions.put("h1", session(), 300)
    with pytest.raises(InputError):
        sessions.renew("h1", seconds)

    assert sessions.get("h1")


@each_row(
    "text", ["a\0b", "\ud800", "\ud83d\ude00", "😀", "x\r\n$3\r\nDEL", "\x1b[31m", "é" * 2_000_000]
)
def test_any_text_comes_back_as_it_was(sessions: RedisSessions, text: str) -> None:
    caller = Caller(user_id=text, groups=frozenset({text}), agent_state={text: [text]})
    kept = session(text, key_id=text, caller=caller)
    sessions.put("h1", kept, 300)

    found = sessions.get("h1")

    assert found
    assert found[0] == kept
    assert sessions.end_by_key(text) == 1


def test_a_state_that_is_not_json_is_refused(sessions: RedisSessions) -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]

    for value in (object(), deep):
        with pytest.raises((StoreError, InputError)):
            sessions.put("h1", session(caller=Caller(agent_state={"x": value})), 300)
    assert sessions.get("h1", running=True) is None


# What is kept of sessions


def test_every_key_has_our_prefix_a_bounded_name_and_an_end(guards: Guards, behind: Any) -> None:
    guards.sessions.put("h\0" * 9_000_000, session(key_id="k"), 300)
    guards.buckets.take([Draw("\ud800" * 100_000, Rate(2, 60))])

    found = list(behind.scan_iter())

    assert len(found) == 4
    assert all(key.startswith(b"toolkiln:") and len(key) < 100 for key in found)
    assert all(behind.pttl(key) > 0 for key in found)


@each_row("text", ["", "\0", "\ud800", "x\r\n"])
def test_a_hash_may_be_any_text(sessions: RedisSessions, text: str) -> None:
    sessions.put(text, session(), 300)

    assert sessions.get(text)
    assert sessions.end(text)


def test_a_record_and_its_indices_go_a_day_after_the_session(
    sessions: RedisSessions, behind: Any
) -> None:
    sessions.put("h1", session(key_id="k"), 600)
    sessions.put("h2", session(key_id="k"), 60)

    kept = [behind.pttl(key) for key in (keys.session("h1"), keys.sessions_of_key("k"))]

    assert all(600_000 + DAY_MS - 60_000 < left <= 600_000 + DAY_MS for left in kept)
    assert 540_000 < behind.pttl(keys.SESSIONS) <= 600_000


def test_ended_and_expired_sessions_leave_nothing_behind(guards: Guards, behind: Any) -> None:
    for number in range(20):
        guards.sessions.put(f"h{number}", session(key_id="k"), 10)
    guards.sessions.put("long", session(key_id="k"), 300_000)
    guards.wait(100_000)
    guards.sessions.put("last", session(key_id="k"), 300)
    sizes = [behind.zcard(keys.SESSIONS), behind.zcard(keys.sessions_of_key("k")), behind.dbsize()]
    guards.sessions.end("last")
    guards.sessions.end_by_key("k")

    assert sizes == [2, 2, 4]
    assert behind.dbsize() == 0


def test_sessions_whose_records_were_evicted_are_gone(sessions: RedisSessions, behind: Any) -> None:
    sessions.put("h1", session(key_id="k"), 300)
    behind.delete(keys.session("h1"))

    assert sessions.get("h1", running=True) is None
    assert sessions.renew("h1", 300) is False
    assert sessions.alive() == []
    assert sessions.end_by_key("k") == 0


@each_row(
    "text",
    [b"", b"{", b"\xff", b"[]", b'{"trace_id": 1}', b"[" * 100_000, b'{"trace_id":"t","x":1}'],
)
def test_a_damaged_session_is_an_error(sessions: RedisSessions, behind: Any, text: bytes) -> None:
    sessions.put("h1", session(), 300)
    behind.hset(keys.session("h1"), "session", text)

    with pytest.raises(StoreError, match="cannot be read"):
        sessions.get("h1")
    with pytest.raises(StoreError, match="cannot be read"):
        sessions.alive()
    assert sessions.end("h1")


def test_half_a_session_is_never_valid(sessions: RedisSessions, behind: Any) -> None:
    for field in ("session", "made", "expires"):
        sessions.put(field, session(key_id="k"), 300)
        behind.hdel(keys.session(field), field)

    with pytest.raises(StoreError, match="cannot be read"):
        sessions.get("session")
    assert sessions.get("made", running=True) is None
    assert sessions.get("expires", running=True) is None
    assert sessions.end_by_key("k") == 1
    assert behind.dbsize() == 0


def test_keys_of_another_kind_are_an_error(guards: Guards, behind: Any) -> None:
    behind.set(keys.bucket("a"), "not ours")
    behind.set(keys.session("h1"), "not ours")

    with pytest.raises(StoreError, match="WRONGTYPE"):
        guards.buckets.take([Draw("a", Rate(1, 1))])
    with pytest.raises(StoreError, match="WRONGTYPE"):
        guards.sessions.get("h1")


# Buckets


def test_a_refusal_says_how_long_to_wait_and_waiting_is_enough(guards: Guards) -> None:
    draw = Draw("ann", SLOW)
    before = drained(guards.buckets, draw)

    wait = guards.buckets.take([draw])
    guards.wait(wait)

    assert before == 6
    assert 0 < wait <= 14_400
    assert guards.buckets.take([draw]) == 0.0


@each_row("rate", [Rate(7, 3.3), Rate(1, 86_400), Rate(999, 1001), Rate(3, 1e7)])
def test_the_returned_wait_is_enough_for_any_rate(guards: Guards, rate: Rate) -> None:
    draw = Draw(str(rate), rate)

    for _ in range(5):
        guards.wait(next(wait for wait in iter(lambda: guards.buckets.take([draw]), None) if wait))

        assert guards.buckets.take([draw]) == 0.0


def test_a_bucket_fills_steadily_and_not_beyond_its_size(guards: Guards) -> None:
    draw = Draw("ann", Rate(10, 86_400))
    drained(guards.buckets, draw)
    guards.wait(2.5 * 8640)
    some = drained(guards.buckets, draw)
    guards.wait(0.7 * 8640)
    rest = drained(guards.buckets, draw)
    guards.wait(1e6)

    assert (some, rest) == (2, 1)
    assert drained(guards.buckets, draw) == 10


@each_row("name", ["Ann", "ann ", "ben", "", "a\0b", "\ud800", "x\r\n", "é" * 2_000_000])
def test_a_bucket_may_have_any_name_and_shares_no_tokens(buckets: RedisBuckets, name: str) -> None:
    drained(buckets, Draw("ann", SLOW))

    assert drained(buckets, Draw(f"{name}!", SLOW)) == 6
    assert drained(buckets, Draw(name, SLOW)) == 6


def test_tokens_are_taken_from_all_buckets_or_from_none(buckets: RedisBuckets) -> None:
    small, large = Draw("caller", Rate(2, 86_400)), Draw("tool", Rate(10, 86_400))
    both = drained(buckets, large, small)
    for _ in range(20):
        buckets.take([large, small])
        buckets.take([small, large])

    assert both == 2
    assert drained(buckets, large) == 8
    assert buckets.take([]) == 0.0


def test_the_longest_wait_is_returned(buckets: RedisBuckets) -> None:
    short, long = Draw("a", Rate(1, 3600)), Draw("b", Rate(1, 86_400))
    buckets.take([short, long])

    assert 80_000 < buckets.take([long, short]) <= 86_400
    assert 0 < buckets.take([short]) <= 3600


def test_a_clock_set_back_gives_nothing_and_does_not_stop_the_refill(guards: Guards) -> None:
    draw = Draw("ann", SLOW)
    drained(guards.buckets, draw)
    guards.wait(-1e6)
    set_back = guards.buckets.take([draw])
    guards.wait(set_back)

    assert 0 < set_back <= 14_400
    assert guards.buckets.take([draw]) == 0.0
    guards.wait(86_400)
    assert drained(guards.buckets, draw) == 6


def test_a_smaller_rate_applies_at_once(buckets: RedisBuckets) -> None:
    buckets.take([Draw("ann", Rate(1000, 86_400))])

    assert drained(buckets, Draw("ann", Rate(3, 86_400))) == 3


def test_an_invalid_rate_is_refused_and_takes_nothing(buckets: RedisBuckets) -> None:
    good = Draw("good", SLOW)
    for rate in (Rate(0, 60), Rate(-1, 60), Rate(1, 0), Rate(1, -1), Rate(1, float("nan"))):
        with pytest.raises(InputError):
            buckets.take([good, Draw("ann", rate)])

    assert drained(buckets, good) == 6


def test_processes_never_get_more_tokens_than_there_are(server: Server) -> None:
    command = [sys.executable, "-m", "tests.fleet.taker", server.url, "ann", "60"]
    pipe, root = subprocess.PIPE, Path(__file__).parents[2]
    with ExitStack() as stack:
        takers = [
            stack.enter_context(
                subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=root)
            )
            for _ in range(3)
        ]
        for taker in takers:
            assert taker.stdout
            assert taker.stdout.readline() == "waiting\n"
        for taker in takers:
            assert taker.stdin
            taker.stdin.write("go\n")
            taker.stdin.flush()
        taken = [int(taker.communicate()[0]) for taker in takers]

    assert sum(taken) == 50


def test_a_bucket_is_kept_until_it_is_full_again(guards: Guards, behind: Any) -> None:
    short, long = Draw("a", Rate(6, 6_000)), Draw("b", Rate(1, 36_000))
    guards.buckets.take([short])
    kept = behind.pttl(keys.bucket("a"))
    guards.buckets.take([long])
    guards.wait(2_000)
    refused = guards.buckets.take([short, long])

    assert 900_000 < kept <= 1_000_000
    assert 33_000 < refused <= 34_000
    assert behind.exists(keys.bucket("a")) == 0
    assert 33_000_000 < behind.pttl(keys.bucket("b")) <= 34_000_000


def test_less_than_a_millisecond_to_wait_is_a_refusal_too(
    buckets: RedisBuckets, behind: Any
) -> None:
    ahead = (behind.time()[0] + 3600) * 1_000_000
    behind.hset(keys.bucket("a"), mapping={"tokens": 0.5, "at": ahead})

    assert buckets.take([Draw("a", Rate(1, 0.0009))]) == 0.001


@each_row("fields", [{"tokens": "x", "at": "1"}, {"tokens": "1"}, {"tokens": ""}])
def test_a_damaged_bucket_is_a_full_one(
    buckets: RedisBuckets, behind: Any, fields: dict[str, str]
) -> None:
    behind.delete(keys.bucket("ann"))
    behind.hset(keys.bucket("ann"), mapping=fields)

    waits = [buckets.take([Draw("ann", Rate(2, 86_400))]) for _ in range(3)]

    assert waits[:2] == [0.0, 0.0]
    assert waits[2] > 0


def test_scripts_that_the_server_forgot_are_sent_again(buckets: RedisBuckets, behind: Any) -> None:
    draw = Draw("a", Rate(2, 86_400))
    buckets.take([draw])
    behind.script_flush()

    assert buckets.take([draw]) == 0.0
    assert buckets.take([draw]) > 0
