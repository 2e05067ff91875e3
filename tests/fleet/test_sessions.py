"""Sessions, in Redis and in the store alike."""

import pytest

from toolkiln.errors import InputError, StoreError
from toolkiln.model.identity import Caller, SessionRecord

from .conftest import Guards, SessionsLike

DAY = 86_400.0
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


def session(trace_id: str = "t1", key_id: str | None = None, caller: Caller = ANN) -> SessionRecord:
    return SessionRecord(trace_id=trace_id, caller=caller, key_id=key_id)


def names(sessions: SessionsLike, limit: int = 100) -> list[str]:
    return [one.trace_id for one, _ in sessions.alive(limit)]


def test_what_was_put_is_found_with_the_time_that_is_left(sessions: SessionsLike) -> None:
    sessions.put("h1", session(key_id="k1"), 300)

    found = sessions.get("h1")

    assert found
    assert found[0] == session(key_id="k1")
    assert 200 < found[1] <= 300


@pytest.mark.parametrize("forged", ["h2", "H1", "h1 ", "", "*", "%", "h" * 3_000_000, "h1\n"])
def test_a_forged_hash_finds_renews_and_ends_nothing(sessions: SessionsLike, forged: str) -> None:
    sessions.put("h1", session(), 300)

    assert sessions.get(forged) is None
    assert sessions.get(forged, running=True) is None
    assert sessions.renew(forged, 300) is False
    assert sessions.end(forged) is False
    assert sessions.get("h1")


def test_a_session_is_ended_by_its_public_name(sessions: SessionsLike) -> None:
    sessions.put("h1", session(key_id="k1"), 300)
    sessions.put("h2", session("t2"), 300)

    ended = sessions.end_by_trace_id("t1")

    assert ended == session(key_id="k1")
    assert sessions.get("h1", running=True) is None
    assert names(sessions) == ["t2"]
    assert [sessions.end_by_trace_id(name) for name in ("t1", "", "%", "\ud800")] == [None] * 4


def test_an_expired_session_is_not_ended_by_its_name(guards: Guards) -> None:
    guards.sessions.put("h1", session(), 300)
    guards.wait(301)

    assert guards.sessions.end_by_trace_id("t1") is None


def test_an_expired_session_holds_for_running_calls_only(guards: Guards) -> None:
    guards.sessions.put("h1", session(), 300)
    guards.wait(301)

    assert guards.sessions.get("h1") is None
    assert guards.sessions.get("h1", running=True) == (session(), 0.0)
    assert names(guards.sessions) == []


def test_a_running_call_may_use_an_expired_session_for_a_day(guards: Guards) -> None:
    guards.sessions.put("h1", session(), 300)
    guards.wait(300 + DAY - 60)
    before = guards.sessions.get("h1", running=True)
    guards.wait(61)
    after = guards.sessions.get("h1", running=True)

    assert before
    assert after is None


def test_a_renewed_session_holds_from_then_on(guards: Guards) -> None:
    guards.sessions.put("h1", session(), 300)
    guards.wait(250)
    renewed = guards.sessions.renew("h1", 300)
    guards.wait(250)
    found = guards.sessions.get("h1")

    assert renewed
    assert found
    assert found[0] == session()
    assert 0 < found[1] <= 50


def test_an_expired_session_cannot_be_renewed(guards: Guards) -> None:
    guards.sessions.put("h1", session(), 300)
    guards.wait(301)

    assert guards.sessions.renew("h1", 300) is False
    assert guards.sessions.get("h1") is None


def test_an_ended_session_is_gone_for_running_calls_too(sessions: SessionsLike) -> None:
    sessions.put("h1", session(), 300)

    assert sessions.end("h1") is True
    assert sessions.get("h1", running=True) is None
    assert sessions.renew("h1", 300) is False
    assert sessions.end("h1") is False
    assert names(sessions) == []


def test_an_expired_session_can_be_ended_under_a_running_call(guards: Guards) -> None:
    guards.sessions.put("h1", session(), 300)
    guards.wait(301)

    assert guards.sessions.end("h1") is True
    assert guards.sessions.get("h1", running=True) is None


def test_a_session_that_was_seen_to_expire_is_not_revived_by_a_clock_set_back(
    guards: Guards,
) -> None:
    guards.sessions.put("h1", session(), 300)
    guards.wait(301)
    guards.sessions.get("h1")
    guards.wait(-200)

    assert guards.sessions.get("h1") is None
    assert guards.sessions.renew("h1", 300) is False
    assert names(guards.sessions) == []


def test_a_session_from_the_future_does_not_hold(guards: Guards) -> None:
    guards.sessions.put("h1", session(), 300)
    guards.wait(-3600)

    assert guards.sessions.get("h1") is None
    assert guards.sessions.get("h1", running=True) is None
    assert guards.sessions.renew("h1", 300) is False
    assert names(guards.sessions) == []


def test_the_sessions_of_a_key_end_together(guards: Guards) -> None:
    guards.sessions.put("old", session("old", "k1"), 10)
    guards.wait(11)
    guards.sessions.put("h1", session("1", "k1"), 300)
    guards.sessions.put("h2", session("2", "k1"), 300)
    guards.sessions.put("h3", session("3", "k2"), 300)
    guards.sessions.put("h4", session("4"), 300)

    assert guards.sessions.end_by_key("k1") == 2
    assert guards.sessions.end_by_key("k1") == 0
    assert guards.sessions.end_by_key("") == 0
    assert [guards.sessions.get(h, running=True) for h in ("old", "h1", "h2")] == [None] * 3
    assert sorted(names(guards.sessions)) == ["3", "4"]


def test_a_renewed_session_ends_with_its_key_long_after(guards: Guards) -> None:
    guards.sessions.put("h1", session("1", "k1"), 3 * DAY)
    guards.wait(2 * DAY)
    guards.sessions.renew("h1", 5 * DAY)
    guards.wait(4.5 * DAY)
    guards.sessions.put("h2", session("2", "k1"), 60)

    assert guards.sessions.end_by_key("k1") == 2
    assert guards.sessions.get("h1", running=True) is None


def test_a_session_put_again_is_the_later_one(sessions: SessionsLike) -> None:
    sessions.put("h1", session("1", "k1"), 300)
    sessions.put("h1", session("2", "k2"), 600)

    assert sessions.end_by_key("k1") == 0
    found = sessions.get("h1")
    assert found
    assert found[0].trace_id == "2"
    assert found[1] > 300
    assert sessions.end_by_key("k2") == 1


def test_those_that_hold_are_listed_newest_first(guards: Guards) -> None:
    for number, seconds in enumerate([900, 300, 600, 15, 800]):
        guards.sessions.put(f"h{number}", session(str(number)), seconds)
        guards.wait(10)
    guards.sessions.renew("h0", 5000)

    assert names(guards.sessions) == ["4", "2", "1", "0"]
    assert names(guards.sessions, 2) == ["4", "2"]
    assert names(guards.sessions, 0) == []
    assert names(guards.sessions, -1) == []
    assert [one for one in guards.sessions.alive() if not 0 < one[1] <= 5000] == []


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_session_that_could_not_hold_is_refused(sessions: SessionsLike, seconds: float) -> None:
    with pytest.raises(InputError):
        sessions.put("h1", session(), seconds)
    sessions.put("h1", session(), 300)
    with pytest.raises(InputError):
        sessions.renew("h1", seconds)

    assert sessions.get("h1")


@pytest.mark.parametrize(
    "text",
    ["a\0b", "\ud800", "\ud83d\ude00", "😀", "x\r\n$3\r\nDEL", "\x1b[31m", "é" * 2_000_000],
    ids=["NUL", "lone surrogate", "escaped pair", "astral", "protocol", "ANSI", "megabytes"],
)
def test_any_text_comes_back_as_it_was(sessions: SessionsLike, text: str) -> None:
    caller = Caller(user_id=text, groups=frozenset({text}), agent_state={text: [text]})
    kept = session(text, key_id=text, caller=caller)
    sessions.put("h1", kept, 300)

    found = sessions.get("h1")

    assert found
    assert found[0] == kept
    assert sessions.end_by_key(text) == 1


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [object(), nested(100_000)], ids=["object", "deep"])
def test_a_state_that_is_not_json_is_refused(sessions: SessionsLike, value: object) -> None:
    with pytest.raises((StoreError, InputError)):
        sessions.put("h1", session(caller=Caller(agent_state={"x": value})), 300)

    assert sessions.get("h1", running=True) is None
