"""What is particular to Redis: what it keeps, for how long, and what damage does."""

from typing import Any

import pytest

from toolkiln.errors import StoreError
from toolkiln.fleet import keys
from toolkiln.model.identity import Caller, SessionRecord
from toolkiln.model.policy import Draw, Rate

from .conftest import Guards

DAY_MS = 86_400_000
ANN = SessionRecord(trace_id="t", caller=Caller(user_id="ann"), key_id="k")


def test_every_key_has_our_prefix_a_bounded_name_and_an_end(
    redis_guards: Guards, behind: Any
) -> None:
    redis_guards.sessions.put("h\0" * 9_000_000, ANN, 300)
    redis_guards.buckets.take([Draw("\ud800" * 100_000, Rate(2, 60))])

    found = list(behind.scan_iter())

    assert len(found) == 4
    assert all(key.startswith(b"toolkiln:") and len(key) < 100 for key in found)
    assert all(behind.pttl(key) > 0 for key in found)


def test_a_hash_may_be_any_text(redis_guards: Guards) -> None:
    for text in ("", "\0", "\ud800", "x\r\n"):
        redis_guards.sessions.put(text, ANN, 300)

        assert redis_guards.sessions.get(text)
        assert redis_guards.sessions.end(text)


def test_a_record_and_its_indices_go_a_day_after_the_session(
    redis_guards: Guards, behind: Any
) -> None:
    redis_guards.sessions.put("h1", ANN, 600)
    redis_guards.sessions.put("h2", ANN, 60)

    kept = [behind.pttl(key) for key in (keys.session("h1"), keys.sessions_of_key("k"))]

    assert all(600_000 + DAY_MS - 60_000 < left <= 600_000 + DAY_MS for left in kept)
    assert 540_000 < behind.pttl(keys.SESSIONS) <= 600_000


def test_ended_sessions_leave_nothing_behind(redis_guards: Guards, behind: Any) -> None:
    for number in range(20):
        redis_guards.sessions.put(f"h{number}", ANN, 300)
    redis_guards.sessions.end("h0")
    redis_guards.sessions.end_by_key("k")

    assert behind.dbsize() == 0


def test_expired_sessions_leave_the_index_when_others_come(
    redis_guards: Guards, behind: Any
) -> None:
    for number in range(20):
        redis_guards.sessions.put(f"h{number}", ANN, 10)
    redis_guards.sessions.put("long", ANN, 300_000)
    redis_guards.wait(100_000)
    redis_guards.sessions.put("last", ANN, 300)

    assert behind.zcard(keys.SESSIONS) == 2
    assert behind.zcard(keys.sessions_of_key("k")) == 2
    assert behind.dbsize() == 4


def test_more_sessions_of_a_key_than_one_script_ends_all_end(redis_guards: Guards) -> None:
    for number in range(2500):
        redis_guards.sessions.put(f"h{number}", ANN, 300)

    assert redis_guards.sessions.end_by_key("k") == 2500
    assert redis_guards.sessions.alive() == []


def test_sessions_whose_records_were_evicted_are_gone(redis_guards: Guards, behind: Any) -> None:
    redis_guards.sessions.put("h1", ANN, 300)
    behind.delete(keys.session("h1"))

    assert redis_guards.sessions.get("h1", running=True) is None
    assert redis_guards.sessions.renew("h1", 300) is False
    assert redis_guards.sessions.alive() == []
    assert redis_guards.sessions.end_by_key("k") == 0


def test_a_bucket_is_kept_until_it_is_full_again(redis_guards: Guards, behind: Any) -> None:
    short, long = Draw("a", Rate(6, 6_000)), Draw("b", Rate(1, 36_000))
    redis_guards.buckets.take([short])
    kept = behind.pttl(keys.bucket("a"))
    redis_guards.buckets.take([long])
    redis_guards.wait(2_000)
    refused = redis_guards.buckets.take([short, long])

    assert 900_000 < kept <= 1_000_000
    assert 33_000 < refused <= 34_000
    assert behind.exists(keys.bucket("a")) == 0
    assert 33_000_000 < behind.pttl(keys.bucket("b")) <= 34_000_000


def test_less_than_a_millisecond_to_wait_is_a_refusal_too(
    redis_guards: Guards, behind: Any
) -> None:
    ahead = (behind.time()[0] + 3600) * 1_000_000
    behind.hset(keys.bucket("a"), mapping={"tokens": 0.5, "at": ahead})

    assert redis_guards.buckets.take([Draw("a", Rate(1, 0.0009))]) == 0.001


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff", b"[]", b'{"trace_id": 1}', b"[" * 100_000, b'{"trace_id":"t","x":1}'],
)
def test_a_damaged_session_is_an_error(redis_guards: Guards, behind: Any, text: bytes) -> None:
    redis_guards.sessions.put("h1", ANN, 300)
    behind.hset(keys.session("h1"), "session", text)

    with pytest.raises(StoreError, match="cannot be read"):
        redis_guards.sessions.get("h1")
    with pytest.raises(StoreError, match="cannot be read"):
        redis_guards.sessions.alive()
    assert redis_guards.sessions.end("h1")


def test_half_a_session_never_holds(redis_guards: Guards, behind: Any) -> None:
    for field in ("session", "made", "expires"):
        redis_guards.sessions.put(field, ANN, 300)
        behind.hdel(keys.session(field), field)

    with pytest.raises(StoreError, match="cannot be read"):
        redis_guards.sessions.get("session")
    assert redis_guards.sessions.get("made", running=True) is None
    assert redis_guards.sessions.get("expires", running=True) is None
    assert redis_guards.sessions.end_by_key("k") == 1
    assert behind.dbsize() == 0


def test_keys_of_another_kind_are_an_error(redis_guards: Guards, behind: Any) -> None:
    behind.set(keys.bucket("a"), "not ours")
    behind.set(keys.session("h1"), "not ours")

    with pytest.raises(StoreError, match="WRONGTYPE"):
        redis_guards.buckets.take([Draw("a", Rate(1, 1))])
    with pytest.raises(StoreError, match="WRONGTYPE"):
        redis_guards.sessions.get("h1")


def test_scripts_that_the_server_forgot_are_sent_again(redis_guards: Guards, behind: Any) -> None:
    draw = Draw("a", Rate(2, 86_400))
    redis_guards.buckets.take([draw])
    behind.script_flush()

    assert redis_guards.buckets.take([draw]) == 0.0
    assert redis_guards.buckets.take([draw]) > 0
