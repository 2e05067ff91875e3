"""What is remembered of calls, over Redis: the store's own tests, and calls of the queue."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from store.conftest import Clock
from store.test_approvals import (  # noqa: F401  # collected here, over the fixture below
    YES,
    ask,
    test_a_call_that_was_lost_or_is_done_is_not_pending,
    test_a_running_call_is_pending_while_its_approval_is,
)
from store.test_contract import (  # noqa: F401
    ANNA,
    NOBODY,
    claim,
    claimed,
    result,
    test_a_call_is_claimed_once_and_others_see_who_has_it,
    test_a_clock_that_goes_back_gives_nothing_away,
    test_a_finished_call_answers_with_its_first_result,
    test_a_finished_call_cannot_be_released,
    test_a_late_owner_that_nobody_replaced_may_go_on,
    test_a_lease_that_ran_out_is_taken_over_by_one,
    test_a_lost_task_is_remembered_for_an_hour,
    test_a_released_call_can_be_asked_for_until_it_is_made_again,
    test_a_released_id_is_free_also_for_other_arguments,
    test_a_renewed_lease_lasts_from_the_renewal_on,
    test_a_result_is_forgotten_after_its_time_and_the_id_free,
    test_a_successor_does_not_inherit_cancellation_or_progress,
    test_a_task_runs_is_lost_or_done,
    test_a_value_that_is_not_json_is_refused_and_the_claim_stays,
    test_an_id_that_no_call_has_finds_nothing,
    test_an_output_is_kept_however_large_it_is,
    test_an_output_serves_its_caller_only_and_for_its_time,
    test_an_unknown_handle_is_bad_input,
    test_another_caller_never_meets_the_call,
    test_another_session_of_the_same_caller_repeats_the_call,
    test_any_result_comes_back_as_it_was,
    test_behind_the_end_there_is_an_empty_last_page,
    test_cancellation_reaches_the_owner_at_the_next_renewal,
    test_deep_values_come_back,
    test_every_field_of_a_result_survives,
    test_impossible_pages_are_bad_input,
    test_long_progress_is_cut,
    test_odd_characters_in_ids_names_and_progress_survive,
    test_pages_meet_at_the_seams_of_rows,
    test_tasks_are_listed_newest_first_bounded_and_without_results,
    test_the_oldest_outputs_of_a_caller_go_when_they_are_too_large_together,
    test_the_same_id_with_another_fingerprint_is_a_conflict,
)
from toolkiln.errors import StoreError
from toolkiln.fleet import keys
from toolkiln.fleet.address import open_redis
from toolkiln.fleet.call_store import RedisCallStore
from toolkiln.fleet.delivery import Ending
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.security_stores import RedisApprovals
from toolkiln.fleet.wire import Envelope, pack, result_to_wire
from toolkiln.model.call import Call, Claimed, Lease, Status
from toolkiln.store.codec import key_of

from .queues import Desk
from .servers import Server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(server: Server, clock: Clock) -> Iterator[Any]:
    """Records and approvals whose time is in our hands."""
    with closing(open_redis(server.url)) as connection:
        records: Any = RedisCallStore(connection, clock)
        records.approvals = RedisApprovals(connection, clock)
        yield records


@pytest.fixture
def records(server: Server) -> Iterator[RedisCallStore]:
    with closing(open_redis(server.url)) as connection:
        yield RedisCallStore(connection)


@pytest.fixture
def queue(own: Desk) -> Queue:
    return own.queue


def envelope(call_id: str = "c1", *, remember: bool = True) -> Envelope:
    record, arguments = key_of(ANNA, call_id), Raw(pack({}))
    return Envelope(id=call_id, record=record, tool="greet", arguments=arguments, remember=remember)


def test_of_many_who_claim_at_once_one_gets_it(records: Any) -> None:
    start = Barrier(8)

    def take_part(which: int) -> object:
        start.wait(timeout=60)
        return claim(records, owner=str(which))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(take_part, range(8)))
    assert sum(isinstance(answer, Claimed) for answer in answers) == 1


async def test_a_call_of_the_queue_is_a_task_of_its_caller(
    records: RedisCallStore, queue: Queue
) -> None:
    before = records.task(ANNA, "c1")
    records.note(ANNA, Call(tool="greet", id="c1"))
    noted = records.task(ANNA, "c1")
    await queue.enqueue(envelope())
    waiting = records.task(ANNA, "c1")
    (delivery,) = await queue.read("w1", 1, 100)
    records.note_progress(key_of(ANNA, "c1"), "half")
    running = records.task(ANNA, "c1")
    large = result("x" * 1_000_000)
    await queue.finish(Ending(delivery, "result", result_to_wire(large)))
    done = records.task(ANNA, "c1")

    assert (before, noted) == (None, None)
    assert waiting
    assert (waiting.id, waiting.tool, waiting.state) == ("c1", "greet", "running")
    assert waiting.started > 0
    assert running
    assert (running.state, running.progress) == ("running", "half")
    assert done
    assert (done.state, done.result) == ("done", large)
    assert [task.state for task in records.tasks(ANNA)] == ["done"]
    assert records.task(NOBODY, "c1") is None
    assert records.tasks(NOBODY) == []


async def test_a_call_of_the_queue_that_no_tool_answered_says_why(
    records: RedisCallStore, queue: Queue
) -> None:
    records.note(ANNA, Call(tool="greet", id="c1"))
    await queue.enqueue(envelope())
    asked = records.request_cancel(ANNA, "c1")
    again = records.request_cancel(ANNA, "c1")
    task = records.task(ANNA, "c1")

    assert (asked, again) == (True, False)
    assert task
    assert task.result
    assert (task.result.status, task.result.tool) == (Status.CANCELLED, "greet")


async def test_a_running_call_of_the_queue_is_asked_to_stop(
    records: RedisCallStore, queue: Queue, server: Server
) -> None:
    records.note(ANNA, Call(tool="greet", id="c1"))
    await queue.enqueue(envelope())
    await queue.read("w1", 1, 100)

    assert records.request_cancel(ANNA, "c1")
    assert not records.request_cancel(NOBODY, "c1")
    with closing(server.client()) as client:
        messages: Any = client.xrange(keys.control("default"))
    assert [fields for _, fields in messages] == [
        {b"ask": b"cancel", b"of": key_of(ANNA, "c1").encode()}
    ]


async def test_a_call_of_the_queue_waits_for_a_person(
    records: Any, queue: Queue, server: Server
) -> None:
    with closing(open_redis(server.url)) as connection:
        book: Any = SimpleNamespace(approvals=RedisApprovals(connection))
        records.note(ANNA, Call(tool="greet", id="c1"))
        await queue.enqueue(envelope())
        asked = ask(book, key_of(ANNA, "c1"))
        waiting = records.task(ANNA, "c1")
        book.approvals.decide(asked.id, YES)
        after = records.task(ANNA, "c1")

    assert (waiting.state, after.state) == ("pending", "running")


async def test_a_call_that_is_out_becomes_a_task_of_the_process_that_awaits_it(
    records: RedisCallStore, queue: Queue
) -> None:
    await queue.enqueue(envelope(remember=False))
    mine = claimed(records, caller=ANNA)  # type: ignore[arg-type]
    running = records.task(ANNA, "c1")
    records.finish(mine, result("done"))
    done = records.task(ANNA, "c1")

    assert running
    assert running.state == "running"
    assert done
    assert done.result == result("done")


async def test_a_call_whose_entry_redis_lost_is_lost(
    records: RedisCallStore, queue: Queue, server: Server
) -> None:
    records.note(ANNA, Call(tool="greet", id="c1"))
    await queue.enqueue(envelope())
    with closing(server.client()) as client:
        client.delete(keys.calls("default"))

    task = records.task(ANNA, "c1")
    assert task
    assert task.state == "lost"


def test_a_call_goes_on_whose_claim_redis_lost_until_another_has_it(
    records: Any, server: Server
) -> None:
    mine = claimed(records)
    with closing(server.client()) as client:
        client.flushall()
    alone = records.renew(mine, 30)
    other = claimed(records, owner="host:2")

    assert alone is Lease.HELD
    assert records.renew(mine, 30) is Lease.LOST
    assert not records.finish(mine, result())
    assert records.finish(other, result())


def test_a_result_that_is_too_large_is_refused_and_the_claim_stays(records: Any) -> None:
    mine = claimed(records)

    with pytest.raises(StoreError, match="cannot be stored"):
        records.finish(mine, result("x" * 34_000_000))
    assert records.finish(mine, result("small"))


@pytest.mark.parametrize(
    ("field", "damage"), [("reply", b"\xc1"), ("reply", b"\x93\xa1r\xa6result\xc4\x01x")]
)
def test_a_damaged_record_is_said_to_be_so(
    records: Any, server: Server, field: str, damage: bytes
) -> None:
    records.finish(claimed(records), result())
    with closing(server.client()) as client:
        client.hset(keys.claim(key_of(NOBODY, "c1")), field, damage)

    with pytest.raises(StoreError) as caught:
        records.task(NOBODY, "c1")
    assert caught.value.hint


def test_nothing_is_kept_for_ever(records: Any, server: Server) -> None:
    records.finish(claimed(records), result())
    claimed(records, "c2")
    records.note(ANNA, Call(tool="greet", id="c3"))
    records.save_output(NOBODY, "text")

    with closing(server.client()) as client:
        assert [key for key in client.scan_iter() if client.ttl(key) < 0] == []


def test_a_caller_has_a_thousand_tasks_at_most(store: Any, clock: Clock, server: Server) -> None:
    for number in range(1_003):
        clock.now += 1
        store.note(NOBODY, Call(tool="greet", id=str(number)))

    with closing(server.client()) as client:
        (index,) = client.scan_iter("toolkiln:claims-of:*")
        assert client.zcard(index) == 1_000
