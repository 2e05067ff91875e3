"""What approvals promise, over SQLite and PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tables import each_row
from toolkiln.errors import InputError, StoreError
from toolkiln.model.call import Call, Claimed, Result, Status
from toolkiln.model.identity import Caller
from toolkiln.model.policy import Approval, ApprovalVerdict
from toolkiln.store.codec import key_of
from toolkiln.store.store import Store

from .conftest import Clock, Opener, count_rows, damage, execute
from .test_contract import json_values

ODD = "\0\ud800\x1b[31m\n'; DROP TABLE toolkiln_approvals; -- 😀"
NOBODY = Caller()
DAY = 86_400
KEYS = {"session": "s" + ODD, "arguments": "a" + ODD}


def request(**changed: Any) -> Approval:
    fields = {
        "id": "",
        "tool": "pay" + ODD,
        "digest": "d",
        "arguments": {"z": ODD, "a": [1, 2.5, None, {"deep": 2**70}]},
        "user": "discord:42" + ODD,
        "session": "trace",
        "call_id": "c1" + ODD,
        "why": "the tool asks" + ODD,
        "approve_own": True,
        "created": 5.0,
        "expires": 305.0,
    }
    return Approval.model_validate({**fields, **changed})


def ask(store: Store, call_key: str = "call", fingerprint: str = "f", **changed: Any) -> Approval:
    keys: Any = changed.pop("remember_keys", KEYS)
    return store.approvals.ask(request(**changed), fingerprint, call_key, keys)


YES = ApprovalVerdict(approve=True, by="bob")
NO = ApprovalVerdict(approve=False, by="ann", reason="too much")


def test_a_request_is_kept_exactly_and_timed_by_the_store(store: Store, clock: Clock) -> None:
    asked = ask(store)

    timed = {"id": asked.id, "created": clock.now, "expires": clock.now + 300}
    assert asked == request(**timed)
    assert list(asked.arguments) == ["z", "a"]
    assert len(asked.id) == 12
    assert store.approvals.get(asked.id) == asked
    assert store.approvals.list() == [asked]


def test_the_pending_requests_of_one_call_are_found_among_those_of_others(
    store: Store, clock: Clock
) -> None:
    first = ask(store)
    clock.now += 1
    second, answered = ask(store, fingerprint="g"), ask(store, fingerprint="h")
    store.approvals.decide(answered.id, YES)
    ask(store, call_key="another")

    found = store.approvals.of_call("call")

    assert found == [second, first]
    clock.now += DAY
    assert store.approvals.of_call("call") == store.approvals.of_call("none") == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(arguments=st.dictionaries(st.text(), json_values))
def test_any_arguments_come_back_as_they_were(store: Store, arguments: dict[str, Any]) -> None:
    asked = ask(store, arguments=arguments)
    decided = store.approvals.decide(
        asked.id, ApprovalVerdict(approve=True, by="", arguments=arguments)
    )
    used = store.approvals.use(asked.id, "f")

    assert asked.arguments == arguments
    assert decided.edited == arguments
    assert used == decided.model_copy(update={"state": "used"})


def test_arguments_that_are_not_json_are_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="cannot be stored"):
        ask(store, arguments={"x": object()})
    assert store.approvals.list() == []


def test_a_retried_call_finds_its_request_and_its_answer(store: Store) -> None:
    first = ask(store)
    again = ask(store)
    approved = store.approvals.decide(first.id, YES)
    after = ask(store)
    store.approvals.use(first.id, "f")
    second = ask(store)

    assert again == first
    assert after == approved
    assert second.id != first.id
    assert second.state == "pending"


def test_another_body_or_another_call_is_another_request(store: Store) -> None:
    first = ask(store)
    store.approvals.decide(first.id, YES)

    others = [ask(store, "call", "g"), ask(store, "other", "f")]

    assert len({first.id, *(other.id for other in others)}) == 3
    assert [other.state for other in others] == ["pending"] * 2


@each_row("end", ["reject", "expire", "withdraw", "lapse"])
def test_what_came_to_nothing_is_asked_anew(store: Store, clock: Clock, end: str) -> None:
    first = ask(store, end)
    if end == "reject":
        store.approvals.decide(first.id, NO)
    elif end == "withdraw":
        store.approvals.withdraw(first.id)
    elif end == "lapse":
        store.approvals.decide(first.id, YES)
        clock.now += DAY
    else:
        clock.now += 300

    assert ask(store, end).id != first.id


def test_of_many_who_ask_for_one_call_all_get_the_same_request(place: str, opened: Opener) -> None:
    stores = [opened(place) for _ in range(4)]
    start = Barrier(4)

    def together(store: Store) -> str:
        start.wait(timeout=60)
        return ask(store).id

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(together, stores))) == 1


def test_an_answer_is_kept_with_who_when_and_why(store: Store, clock: Clock) -> None:
    asked = ask(store)
    clock.now += 10
    verdict = ApprovalVerdict(
        approve=True, by="bob" + ODD, reason=ODD, arguments={"z": 2}, remember="session"
    )
    decided = store.approvals.decide(asked.id, verdict)

    answer = {
        "state": "approved",
        "decided_by": "bob" + ODD,
        "decided": clock.now,
        "reason": ODD,
        "edited": {"z": 2},
        "remember": "session",
    }
    assert decided == asked.model_copy(update=answer)
    assert store.approvals.get(asked.id) == decided


def test_the_second_answer_is_told_of_the_first(store: Store) -> None:
    asked, other = ask(store), ask(store, "other")
    store.approvals.decide(asked.id, NO)
    store.approvals.decide(other.id, YES)
    store.approvals.use(other.id, "f")

    with pytest.raises(InputError, match="rejected by 'ann' at 1970-01-12 13:46:40 UTC"):
        store.approvals.decide(asked.id, YES)
    with pytest.raises(InputError, match="approved by 'bob'"):
        store.approvals.decide(other.id, NO)
    after = store.approvals.get(asked.id)
    assert after
    assert (after.state, after.decided_by) == ("rejected", "ann")


def test_names_cannot_break_out_of_a_message(store: Store) -> None:
    asked = ask(store)
    store.approvals.decide(asked.id, ApprovalVerdict(approve=True, by=ODD * 10_000))

    with pytest.raises(InputError) as caught:
        store.approvals.decide(asked.id, NO)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 1000


def test_an_expired_request_is_no_longer_answered(store: Store, clock: Clock) -> None:
    asked = ask(store)
    clock.now += 299
    before = store.approvals.get(asked.id)
    clock.now += 1
    after = store.approvals.get(asked.id)

    assert before
    assert before.state == "pending"
    assert after
    assert after.state == "expired"
    assert store.approvals.list() == []
    assert store.approvals.list(("expired",)) == [after]
    with pytest.raises(InputError, match="expired"):
        store.approvals.decide(asked.id, YES)
    assert store.approvals.use(asked.id, "f") is None


def test_a_request_from_the_future_is_not_answered(store: Store, clock: Clock) -> None:
    asked = ask(store)
    clock.now -= 1

    with pytest.raises(InputError, match="expired"):
        store.approvals.decide(asked.id, YES)
    assert store.approvals.list() == []


def test_a_withdrawn_request_is_not_answered(store: Store) -> None:
    asked = ask(store)

    assert store.approvals.withdraw(asked.id)
    assert not store.approvals.withdraw(asked.id)
    assert not store.approvals.withdraw("0" * 12)
    with pytest.raises(InputError, match="withdrawn"):
        store.approvals.decide(asked.id, YES)


def test_an_answered_request_is_not_withdrawn(store: Store) -> None:
    asked = ask(store)
    store.approvals.decide(asked.id, YES)

    assert not store.approvals.withdraw(asked.id)
    assert store.approvals.use(asked.id, "f")


def test_a_request_withdrawn_too_late_stays_expired_whatever_the_clock_does(
    store: Store, clock: Clock
) -> None:
    asked = ask(store)
    clock.now += 400
    store.approvals.withdraw(asked.id)
    clock.now -= 300
    found = store.approvals.get(asked.id)

    assert found
    assert found.state == "expired"
    with pytest.raises(InputError, match="expired"):
        store.approvals.decide(asked.id, YES)


def test_what_was_approved_is_used_once_and_for_its_fingerprint_only(
    store: Store, clock: Clock
) -> None:
    asked = ask(store)
    too_early = store.approvals.use(asked.id, "f")
    approved = store.approvals.decide(asked.id, YES)
    clock.now += DAY - 1

    assert too_early is None
    assert store.approvals.use(asked.id, "another digest") is None
    assert store.approvals.use(asked.id, "f") == approved.model_copy(update={"state": "used"})
    assert store.approvals.use(asked.id, "f") is None


def test_what_was_approved_lapses_after_a_day(store: Store, clock: Clock) -> None:
    asked = ask(store)
    store.approvals.decide(asked.id, YES.model_copy(update={"remember": "arguments"}))
    clock.now += DAY

    assert store.approvals.use(asked.id, "f") is None


def test_what_was_rejected_is_never_used(store: Store) -> None:
    asked = ask(store)
    store.approvals.decide(asked.id, NO)

    assert store.approvals.use(asked.id, "f") is None


def test_the_beginning_of_an_id_serves(store: Store, place: str) -> None:
    asked, other = ask(store), ask(store, "other")
    execute(place, f"UPDATE toolkiln_approvals SET id = 'abcdef000000' WHERE id = '{asked.id}'")
    execute(place, f"UPDATE toolkiln_approvals SET id = 'abcdef111111' WHERE id = '{other.id}'")
    found = store.approvals.get("abcdef0")

    assert found
    assert found.id == "abcdef000000"
    assert store.approvals.decide("abcdef1", YES).id == "abcdef111111"
    for act in (store.approvals.get, lambda which: store.approvals.decide(which, YES)):
        with pytest.raises(InputError, match="several") as caught:
            act("abcdef")
        assert caught.value.hint
        assert "abcdef000000" in caught.value.hint


@each_row("which", ["", "abcde", "%", "______", "0" * 12, "0" * 13, ODD, "x" * 10**6])
def test_an_id_that_there_is_not_finds_nothing(store: Store, which: str) -> None:
    ask(store)

    assert store.approvals.get(which) is None
    assert store.approvals.use(which, "f") is None
    assert not store.approvals.withdraw(which)
    assert not store.approvals.forget(which)
    with pytest.raises(InputError, match="no approval") as caught:
        store.approvals.decide(which, YES)
    assert len(caught.value.message) < 2000


def test_requests_are_listed_newest_first_by_state_and_bounded(store: Store, clock: Clock) -> None:
    asked = []
    for number in range(5):
        clock.now += 1
        asked.append(ask(store, str(number)).id)
    store.approvals.decide(asked[1], YES)
    store.approvals.decide(asked[3], NO)

    def listed(*arguments: Any) -> list[str]:
        return [found.id for found in store.approvals.list(*arguments)]

    assert listed() == [asked[4], asked[2], asked[0]]
    assert listed(("approved", "rejected")) == [asked[3], asked[1]]
    assert listed(("pending",), 1) == [asked[4]]
    assert listed(("pending",), -1) == listed(()) == listed((ODD[2:],)) == []
    assert len(listed(("pending",), 10**30)) == 3


def remembered(store: Store, *keys: str) -> str | None:
    found = store.approvals.remembered(keys)
    return found.id if found else None


@pytest.mark.parametrize(("remember", "seconds"), [("session", DAY), ("arguments", 30 * DAY)])
def test_an_answer_is_remembered_by_its_own_key_for_its_time(
    store: Store, clock: Clock, remember: Any, seconds: float
) -> None:
    asked = ask(store)
    before = remembered(store, *KEYS.values())
    store.approvals.decide(asked.id, YES.model_copy(update={"remember": remember}))
    store.approvals.use(asked.id, "f")
    other = KEYS["arguments" if remember == "session" else "session"]
    clock.now += seconds - 1
    store.prune()

    assert before is None
    assert remembered(store, "x", KEYS[remember]) == asked.id
    assert remembered(store, other, "x") is None
    assert remembered(store) is None
    clock.now += 1
    assert remembered(store, KEYS[remember]) is None


def test_an_answer_without_more_is_not_remembered(store: Store) -> None:
    store.approvals.decide(ask(store).id, YES)

    assert remembered(store, *KEYS.values()) is None


def test_a_forgotten_answer_is_asked_for_again(store: Store) -> None:
    asked, plain = ask(store), ask(store, "other")
    store.approvals.decide(asked.id, YES.model_copy(update={"remember": "session"}))
    store.approvals.decide(plain.id, YES)

    assert store.approvals.forget(asked.id[:8])
    assert not store.approvals.forget(asked.id)
    assert not store.approvals.forget(plain.id)
    assert remembered(store, *KEYS.values()) is None


def test_an_answer_from_the_future_is_not_remembered(store: Store, clock: Clock) -> None:
    asked = ask(store)
    store.approvals.decide(asked.id, YES.model_copy(update={"remember": "session"}))
    clock.now -= 1

    assert remembered(store, *KEYS.values()) is None


@each_row(
    "verdict",
    [
        ApprovalVerdict(approve=True, by="bob", arguments={}, remember="arguments"),
        ApprovalVerdict(approve=False, by="bob", remember="session"),
        ApprovalVerdict(approve=False, by="bob", arguments={"a": 1}),
    ],
)
def test_an_answer_that_contradicts_itself_is_bad_input(
    store: Store, verdict: ApprovalVerdict
) -> None:
    asked = ask(store)

    with pytest.raises(InputError) as caught:
        store.approvals.decide(asked.id, verdict)
    assert caught.value.hint
    assert store.approvals.get(asked.id) == asked


def test_what_has_no_key_cannot_be_remembered(store: Store) -> None:
    asked = ask(store, remember_keys={"session": "s"})

    with pytest.raises(InputError, match="cannot be remembered"):
        store.approvals.decide(asked.id, YES.model_copy(update={"remember": "arguments"}))
    assert store.approvals.get(asked.id) == asked
    store.approvals.decide(asked.id, YES.model_copy(update={"remember": "session"}))
    assert remembered(store, "s") == asked.id


def test_a_running_call_is_pending_while_its_approval_is(store: Store, clock: Clock) -> None:
    claim = store.claim(
        Call(tool="t", id="c1"), caller=NOBODY, fingerprint="f", owner="o", lease_seconds=600
    )
    assert isinstance(claim, Claimed)
    call_key = key_of(NOBODY, "c1")
    asked = ask(store, call_key)

    def states() -> set[str]:
        task = store.task(NOBODY, "c1")
        assert task
        return {task.state, *(task.state for task in store.tasks(NOBODY))}

    waiting = states()
    store.approvals.decide(asked.id, YES)
    decided = states()
    ask(store, call_key, "again")
    clock.now += 299
    waiting_again = states()
    clock.now += 1
    expired = states()

    assert waiting == {"pending"}
    assert decided == {"running"}
    assert (waiting_again, expired) == ({"pending"}, {"running"})


def test_a_call_that_was_lost_or_is_done_is_not_pending(store: Store, clock: Clock) -> None:
    for call_id in ("lost", "done"):
        claim = store.claim(
            Call(tool="t", id=call_id), caller=NOBODY, fingerprint="f", owner="o", lease_seconds=60
        )
        ask(store, key_of(NOBODY, call_id))
    assert isinstance(claim, Claimed)
    store.finish(claim, Result(call_id="done", tool="t", status=Status.DENIED))
    clock.now += 60

    assert {task.id: task.state for task in store.tasks(NOBODY)} == {"lost": "lost", "done": "done"}


def test_old_requests_are_removed_and_remembered_ones_are_not(
    store: Store, place: str, clock: Clock
) -> None:
    for number in range(3):
        ask(store, str(number))
    kept = store.approvals.list()[0]
    store.approvals.decide(kept.id, YES.model_copy(update={"remember": "arguments"}))
    clock.now += 300 + DAY
    store.prune()

    assert count_rows(place, "toolkiln_approvals") == 1
    assert remembered(store, *KEYS.values()) == kept.id


@each_row("column, data", [("arguments", b"{"), ("arguments", b"[]"), ("tool", b"\xff")])
def test_a_damaged_request_is_reported_and_stays(
    store: Store, place: str, column: str, data: bytes
) -> None:
    execute(place, "DELETE FROM toolkiln_approvals")
    asked = ask(store)
    damage(place, "approvals", column, data)

    for act in (
        lambda: store.approvals.get(asked.id),
        lambda: store.approvals.decide(asked.id, YES),
        store.approvals.list,
    ):
        with pytest.raises(StoreError) as caught:
            act()
        assert caught.value.hint
    assert count_rows(place, "toolkiln_approvals WHERE state = 'pending'") == 1


def test_an_unknown_state_is_damage(store: Store, place: str) -> None:
    asked = ask(store)
    execute(place, "UPDATE toolkiln_approvals SET state = 'perhaps'")

    with pytest.raises(StoreError, match="cannot be read"):
        store.approvals.get(asked.id)
    assert store.approvals.use(asked.id, "f") is None


def test_the_stores_own_clock_runs(place: str, opened: Opener) -> None:
    store = opened(place)
    asked = ask(store)
    store.approvals.decide(asked.id, YES.model_copy(update={"remember": "session"}))

    assert store.approvals.use(asked.id, "f")
    assert remembered(store, KEYS["session"]) == asked.id
    assert store.approvals.forget(asked.id)
