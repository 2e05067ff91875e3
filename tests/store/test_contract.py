"""What every store promises, over SQLite and PostgreSQL."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tables import each_row
from toolkiln.errors import InputError, NotFound, StoreError
from toolkiln.model.call import (
    OUTPUT_CHARACTERS,
    Busy,
    Call,
    CallError,
    Claim,
    Claimed,
    Done,
    IdConflict,
    Lease,
    Result,
    SentFile,
    Status,
    Truncation,
)
from toolkiln.model.identity import Caller
from toolkiln.store.store import Store

from .conftest import Clock, Opener, count_rows

ANNA = Caller(user_id="anna", agent_id="a1")
NOBODY = Caller()
same_store = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def claim(store: Store, call_id: str = "c1", **changed: Any) -> Claim:
    asked = {"fingerprint": "f", "owner": "host:1", "lease_seconds": 30, **changed}
    caller, tool = asked.pop("caller", NOBODY), asked.pop("tool", "greet")
    return store.claim(Call(tool=tool, id=call_id), caller=caller, **asked)


def claimed(store: Store, call_id: str = "c1", **changed: Any) -> Claimed:
    answer = claim(store, call_id, **changed)
    assert isinstance(answer, Claimed)
    return answer


def result(value: Any = 1, call_id: str = "c1") -> Result:
    return Result(call_id=call_id, tool="greet", status=Status.OK, value=value)


def test_a_call_is_claimed_once_and_others_see_who_has_it(store: Store, clock: Clock) -> None:
    first = claim(store)
    clock.now += 10
    second = claim(store, owner="host:2")

    assert isinstance(first, Claimed)
    assert first.attempt == 1
    assert second == Busy(owner="host:1", remaining=20)


def test_a_finished_call_answers_with_its_first_result(store: Store) -> None:
    mine = claimed(store)

    assert store.finish(mine, result("first"))
    assert not store.finish(mine, result("second"))
    assert claim(store) == Done(result=result("first"))


def test_the_same_id_with_another_fingerprint_is_a_conflict(store: Store, clock: Clock) -> None:
    mine = claimed(store)

    assert claim(store, fingerprint="other") == IdConflict()
    clock.now += 31
    assert claim(store, fingerprint="other") == IdConflict(), "also when its owner died"
    store.finish(mine, result())
    assert claim(store, fingerprint="other") == IdConflict()


def test_another_caller_never_meets_the_call(store: Store) -> None:
    others = [
        NOBODY,
        Caller(user_id="anna"),
        Caller(agent_id="a1"),
        Caller(user_id="a1", agent_id="anna"),
        Caller(user_id="", agent_id="a1"),
        Caller(user_id="anna", agent_id="a1", platform="slack"),
        Caller(user_id="anna", agent_id="a1", platform=""),
    ]
    store.finish(claimed(store, caller=ANNA), result())

    for other in others:
        assert isinstance(claim(store, caller=other), Claimed)
        assert store.task(other, "c2") is None
        assert not store.request_cancel(other, "c2")
        assert [task.state for task in store.tasks(other)] == ["running"]
    assert [task.state for task in store.tasks(ANNA)] == ["done"]


def test_another_session_of_the_same_caller_repeats_the_call(store: Store) -> None:
    store.finish(claimed(store, caller=ANNA), result())
    later = ANNA.model_copy(update={"session": "s2", "agent_state": {"turn": 2}})

    assert claim(store, caller=later) == Done(result=result())


def test_a_lease_that_ran_out_is_taken_over_by_one(store: Store, clock: Clock) -> None:
    late = claimed(store)
    clock.now += 30
    successor = claimed(store, owner="host:2")

    assert successor.attempt == 2
    assert claim(store, owner="host:3") == Busy(owner="host:2", remaining=30)
    assert store.renew(late, 30) is Lease.LOST
    assert not store.finish(late, result("late"))
    assert not store.release(late, result("late"))
    assert not store.set_progress(late, "late")
    assert store.finish(successor, result("good"))
    assert claim(store) == Done(result=result("good"))


def test_a_late_owner_that_nobody_replaced_may_go_on(store: Store, clock: Clock) -> None:
    mine = claimed(store)
    clock.now += 300

    assert store.renew(mine, 30) is Lease.HELD
    assert isinstance(claim(store), Busy)
    clock.now += 300
    assert store.finish(mine, result())


def test_a_renewed_lease_lasts_from_the_renewal_on(store: Store, clock: Clock) -> None:
    mine = claimed(store)
    clock.now += 20
    store.renew(mine, 30)
    clock.now += 20

    assert claim(store) == Busy(owner="host:1", remaining=10)


def test_a_clock_that_goes_back_gives_nothing_away(store: Store, clock: Clock) -> None:
    mine = claimed(store)
    clock.now -= 5000

    assert isinstance(claim(store), Busy)
    assert store.finish(mine, result())
    assert claim(store) == Done(result=result())


def test_a_released_id_is_free_also_for_other_arguments(store: Store) -> None:
    mine = claimed(store)

    assert store.release(mine, result())
    assert not store.release(mine, result("again"))
    again = claimed(store, fingerprint="other")
    assert again.attempt == 1
    assert not store.finish(mine, result()), "the first claim is not the second"


def test_a_released_call_can_be_asked_for_until_it_is_made_again(
    store: Store, clock: Clock
) -> None:
    store.release(claimed(store), result("not yet"))
    ended, listed = store.task(NOBODY, "c1"), store.tasks(NOBODY)
    again = claimed(store)
    running = store.task(NOBODY, "c1")
    store.release(again, result("nor now"))
    clock.now += 3_600

    assert ended is not None
    assert (ended.state, ended.result) == ("done", result("not yet"))
    assert [task.state for task in listed] == ["done"]
    assert running is not None
    assert (running.state, running.result) == ("running", None)
    assert store.task(NOBODY, "c1") is None


def test_a_finished_call_cannot_be_released(store: Store) -> None:
    mine = claimed(store)
    store.finish(mine, result())

    assert not store.release(mine, result("other"))
    assert store.renew(mine, 30) is Lease.LOST
    assert claim(store) == Done(result=result())


def test_a_result_is_forgotten_after_its_time_and_the_id_free(store: Store, clock: Clock) -> None:
    store.finish(claimed(store), result(), keep_seconds=100)
    clock.now += 99
    kept = claim(store)
    clock.now += 1

    assert isinstance(kept, Done)
    assert store.task(NOBODY, "c1") is None
    assert store.tasks(NOBODY) == []
    assert claimed(store, fingerprint="other").attempt == 1


def test_a_task_runs_is_lost_or_done(store: Store, clock: Clock) -> None:
    mine = claimed(store)
    store.set_progress(mine, "half")
    running = store.task(NOBODY, "c1")
    clock.now += 30
    lost = store.task(NOBODY, "c1")
    store.finish(mine, result())
    done = store.task(NOBODY, "c1")

    assert running
    assert (running.id, running.tool, running.state) == ("c1", "greet", "running")
    assert (running.progress, running.result) == ("half", None)
    assert lost
    assert (lost.state, lost.progress) == ("lost", "half")
    assert done
    assert (done.state, done.result) == ("done", result())
    assert store.task(NOBODY, "c2") is None


def test_a_lost_task_is_remembered_for_an_hour(store: Store, clock: Clock) -> None:
    claimed(store)
    clock.now += 30 + 3599
    remembered = store.task(NOBODY, "c1")
    clock.now += 1

    assert remembered
    assert store.task(NOBODY, "c1") is None
    assert claimed(store, fingerprint="other").attempt == 1


def test_tasks_are_listed_newest_first_bounded_and_without_results(
    store: Store, clock: Clock
) -> None:
    for number in range(5):
        clock.now += 1
        store.finish(claimed(store, f"c{number}"), result())

    assert [task.id for task in store.tasks(NOBODY, limit=3)] == ["c4", "c3", "c2"]
    assert {task.result for task in store.tasks(NOBODY)} == {None}
    assert len(store.tasks(NOBODY, limit=10**30)) == 5
    assert store.tasks(NOBODY, limit=-1) == []


def test_cancellation_reaches_the_owner_at_the_next_renewal(store: Store) -> None:
    mine = claimed(store)

    assert store.renew(mine, 30) is Lease.HELD
    assert store.request_cancel(NOBODY, "c1")
    assert store.renew(mine, 30) is Lease.CANCEL
    assert store.finish(mine, result()), "whichever result comes first counts"
    assert not store.request_cancel(NOBODY, "c1")


def test_a_successor_does_not_inherit_cancellation_or_progress(store: Store, clock: Clock) -> None:
    store.set_progress(claimed(store), "half")
    store.request_cancel(NOBODY, "c1")
    clock.now += 30
    cancelled_when_lost = store.request_cancel(NOBODY, "c1")
    successor = claimed(store)
    task = store.task(NOBODY, "c1")

    assert not cancelled_when_lost
    assert store.renew(successor, 30) is Lease.HELD
    assert task
    assert task.progress == ""


def test_long_progress_is_cut(store: Store) -> None:
    store.set_progress(claimed(store), "\U0001f600" * 100_000)
    task = store.task(NOBODY, "c1")

    assert task
    assert task.progress == "\U0001f600" * 2_000


FULL = Result(
    call_id="c1",
    tool="greet",
    digest="d",
    status=Status.FAILED,
    value={"k\ud800": ["\0", "\udfff", 1.5, None, True, 2**70]},
    text="a\0b\ud800",
    stdout="😀",
    error=CallError(code="tool_error", message="no", line=3, retryable=True),
    notes=("one",),
    files=(SentFile(name="x.bin", data=bytes(range(256))), SentFile(name="empty", data=b"")),
    messages=({"type": "card"},),
    injected_tools=("t",),
    truncation=Truncation(shown=1, total=2, handle="h"),
)


def test_every_field_of_a_result_survives(store: Store) -> None:
    store.finish(claimed(store), FULL)

    assert claim(store) == Done(result=FULL)


def test_odd_characters_in_ids_names_and_progress_survive(store: Store) -> None:
    odd_id = "\0'\"; DROP TABLE toolkiln_calls; -- 😀"
    odd = odd_id + "\ud800"
    mine = claimed(store, odd_id, tool=odd, owner=odd, fingerprint=odd)
    store.set_progress(mine, odd)
    busy = claim(store, odd_id, fingerprint=odd)
    task = store.task(NOBODY, odd_id)

    assert isinstance(busy, Busy)
    assert busy.owner == odd
    assert task
    assert (task.id, task.tool, task.progress) == (odd_id, odd, odd)
    assert isinstance(claim(store, odd_id + " "), Claimed)


@each_row("call_id", ["", "\0", "\ud800", "x" * 1_000_000])
def test_an_id_that_no_call_has_finds_nothing(store: Store, call_id: str) -> None:
    assert store.task(NOBODY, call_id) is None
    assert not store.request_cancel(NOBODY, call_id)


def test_a_result_of_fifty_megabytes_comes_back(store: Store) -> None:
    big = result("é" + "x" * 50_000_000)
    store.finish(claimed(store), big)

    assert claim(store) == Done(result=big)


def test_deep_values_come_back(store: Store) -> None:
    deep: Any = 1
    for _ in range(400):
        deep = [deep]
    store.finish(claimed(store), result(deep))
    done = claim(store)

    assert isinstance(done, Done)
    assert done.result.value == deep


def test_a_value_that_is_not_json_is_refused_and_the_claim_stays(store: Store) -> None:
    mine = claimed(store)

    with pytest.raises(StoreError, match="cannot be stored"):
        store.finish(mine, result(object()))
    assert store.finish(mine, result("replacement"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@same_store
@given(value=json_values, text=st.text(), data=st.binary())
def test_any_result_comes_back_as_it_was(
    store: Store, clock: Clock, value: Any, text: str, data: bytes
) -> None:
    whole = result(value).model_copy(
        update={"text": text, "files": (SentFile(name=text, data=data),)}
    )
    clock.now += 10
    store.finish(claimed(store), whole, keep_seconds=5)

    assert claim(store) == Done(result=whole)


def test_what_is_kept_outlives_the_process(place: str, opened: Opener, clock: Clock) -> None:
    before = opened(place, clock)
    before.finish(claimed(before), result())
    running = claimed(before, "c2")
    handle = before.save_output(NOBODY, "text")
    before.close()
    after = opened(place, clock)

    assert claim(after) == Done(result=result())
    assert after.renew(running, 30) is Lease.HELD
    assert after.read_output(NOBODY, handle, 0, 10).text == "text"


def test_the_stores_own_clock_runs(place: str, opened: Opener) -> None:
    store = opened(place)
    claimed(store, "over", lease_seconds=0)
    mine = claimed(store, "c1", lease_seconds=600)
    busy = claim(store, "c1")

    assert claimed(store, "over").attempt == 2
    assert isinstance(busy, Busy)
    assert 0 < busy.remaining <= 600
    assert store.finish(mine, result())
    assert claim(store, "c1") == Done(result=result())


def test_pruning_removes_what_expired_and_nothing_else(
    store: Store, place: str, clock: Clock
) -> None:
    store.finish(claimed(store, "short"), result(), keep_seconds=10)
    store.finish(claimed(store, "long"), result(), keep_seconds=1000)
    claimed(store, "running", lease_seconds=20)
    store.save_output(NOBODY, "x" * 100_000, keep_seconds=10)
    long = store.save_output(NOBODY, "text", keep_seconds=1000)
    clock.now += 21
    store.prune()

    assert count_rows(place, "toolkiln_calls") == 2
    assert count_rows(place, "toolkiln_outputs") == 1
    assert count_rows(place, "toolkiln_output_chunks") == 1
    assert {task.id: task.state for task in store.tasks(NOBODY)} == {
        "long": "done",
        "running": "lost",
    }
    assert store.read_output(NOBODY, long, 0, 10).text == "text"


def test_a_claim_prunes_from_time_to_time(place: str, opened: Opener, clock: Clock) -> None:
    before = opened(place, clock)
    before.finish(claimed(before), result(), keep_seconds=10)
    clock.now += 10
    claimed(opened(place, clock), "other")

    assert count_rows(place, "toolkiln_calls") == 1


def test_a_backlog_is_pruned_in_batches(store: Store, place: str, clock: Clock) -> None:
    for _ in range(25):
        store.save_output(NOBODY, "text", keep_seconds=10)
    clock.now += 10
    store.prune()
    after_one = count_rows(place, "toolkiln_outputs")
    store.prune()

    assert after_one == 5
    assert count_rows(place, "toolkiln_outputs") == count_rows(place, "toolkiln_output_chunks") == 0


def pages(store: Store, handle: str, limit: int) -> list[str]:
    found, offset = [], 0
    while True:
        page = store.read_output(NOBODY, handle, offset, limit)
        assert page.offset == offset
        found.append(page.text)
        if page.next_offset is None:
            return found
        assert page.next_offset == offset + len(page.text) == offset + limit
        offset = page.next_offset


@same_store
@given(
    text=st.text(st.characters(exclude_categories=()), max_size=200),
    limit=st.integers(1, 90_000),
    times=st.sampled_from([1, 1000]),
)
def test_pages_reassemble_to_the_text(store: Store, text: str, limit: int, times: int) -> None:
    whole = text * times
    limit = max(limit, len(whole) // 20)
    handle = store.save_output(NOBODY, whole)

    assert "".join(pages(store, handle, limit)) == whole


@each_row("length", [0, 1, 65_535, 65_536, 65_537, 131_072])
@each_row("limit", [1 << 15, 65_535, 65_536, 65_537, 10**30])
def test_pages_meet_at_the_seams_of_rows(store: Store, length: int, limit: int) -> None:
    whole = ("é😀\0" * length)[:length]
    handle = store.save_output(NOBODY, whole)

    assert "".join(pages(store, handle, limit)) == whole


def test_the_oldest_outputs_of_a_caller_go_when_they_are_too_large_together(
    store: Store, clock: Clock
) -> None:
    other = store.save_output(Caller(user_id="other"), "text")
    handles = []
    for _ in range(4):
        clock.now += 1
        handles.append(store.save_output(NOBODY, "x" * (OUTPUT_CHARACTERS // 2)))

    for gone in handles[:2]:
        with pytest.raises(NotFound):
            store.read_output(NOBODY, gone, 0, 5)
    assert [store.read_output(NOBODY, kept, 0, 2).text for kept in handles[2:]] == ["xx"] * 2
    assert store.read_output(Caller(user_id="other"), other, 0, 5).text == "text"


def test_an_output_is_kept_however_large_it_is(store: Store, clock: Clock) -> None:
    earlier = store.save_output(NOBODY, "text")
    clock.now += 1
    large = store.save_output(NOBODY, "x" * (OUTPUT_CHARACTERS + 1))

    assert store.read_output(NOBODY, large, OUTPUT_CHARACTERS, 5).text == "x"
    with pytest.raises(NotFound):
        store.read_output(NOBODY, earlier, 0, 5)


@each_row("offset", [4, 5, 10**30])
def test_behind_the_end_there_is_an_empty_last_page(store: Store, offset: int) -> None:
    page = store.read_output(NOBODY, store.save_output(NOBODY, "text"), offset, 5)

    assert (page.text, page.offset, page.total, page.next_offset) == ("", 4, 4, None)


@each_row("offset, limit", [(-1, 5), (0, 0), (0, -1)])
def test_impossible_pages_are_bad_input(store: Store, offset: int, limit: int) -> None:
    handle = store.save_output(NOBODY, "text")

    with pytest.raises(InputError, match="no page"):
        store.read_output(NOBODY, handle, offset, limit)


@each_row("handle", ["", "0" * 32, "a\0b", "\ud800", "' OR 1=1 --", "x" * 10**6])
def test_an_unknown_handle_is_bad_input(store: Store, handle: str) -> None:
    with pytest.raises(InputError, match="no output is stored") as caught:
        store.read_output(NOBODY, handle, 0, 10)

    assert caught.value.hint


def test_an_output_serves_its_caller_only_and_for_its_time(store: Store, clock: Clock) -> None:
    handle = store.save_output(ANNA, "text", keep_seconds=10)

    assert store.read_output(ANNA, handle, 0, 10).text == "text"
    with pytest.raises(InputError, match="no output"):
        store.read_output(NOBODY, handle, 0, 10)
    clock.now += 10
    with pytest.raises(InputError, match="no output"):
        store.read_output(ANNA, handle, 0, 10)
