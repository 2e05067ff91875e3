"""What approvals promise, over Redis: the store's own tests, and what only Redis can do."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest

from store.conftest import Clock
from store.test_approvals import (  # noqa: F401  # collected here, over the fixture below
    DAY,
    KEYS,
    NO,
    YES,
    ask,
    remembered,
    test_a_forgotten_answer_is_asked_for_again,
    test_a_request_from_the_future_is_not_answered,
    test_a_request_is_kept_exactly_and_timed_by_the_store,
    test_a_request_withdrawn_too_late_stays_expired_whatever_the_clock_does,
    test_a_retried_call_finds_its_request_and_its_answer,
    test_a_withdrawn_request_is_not_answered,
    test_an_answer_from_the_future_is_not_remembered,
    test_an_answer_is_kept_with_who_when_and_why,
    test_an_answer_is_remembered_by_its_own_key_for_its_time,
    test_an_answer_that_contradicts_itself_is_bad_input,
    test_an_answer_without_more_is_not_remembered,
    test_an_answered_request_is_not_withdrawn,
    test_an_expired_request_is_no_longer_answered,
    test_an_id_that_there_is_not_finds_nothing,
    test_another_body_or_another_call_is_another_request,
    test_any_arguments_come_back_as_they_were,
    test_arguments_that_are_not_json_are_refused,
    test_names_cannot_break_out_of_a_message,
    test_requests_are_listed_newest_first_by_state_and_bounded,
    test_the_pending_requests_of_one_call_are_found_among_those_of_others,
    test_the_second_answer_is_told_of_the_first,
    test_what_came_to_nothing_is_asked_anew,
    test_what_has_no_key_cannot_be_remembered,
    test_what_was_approved_is_used_once_and_for_its_fingerprint_only,
    test_what_was_approved_lapses_after_a_day,
    test_what_was_rejected_is_never_used,
)
from toolkiln.errors import InputError, StoreError
from toolkiln.fleet.address import open_redis
from toolkiln.fleet.security_stores import RedisApprovals
from toolkiln.model.policy import ApprovalVerdict

from .servers import Server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(server: Server, clock: Clock) -> Iterator[Any]:
    """As much of a store as the tests of approvals need."""
    with closing(open_redis(server.url)) as connection:
        yield SimpleNamespace(approvals=RedisApprovals(connection, clock), prune=lambda: None)


def test_of_many_who_ask_and_answer_one_call_at_once_one_counts(server: Server) -> None:
    with closing(open_redis(server.url)) as connection:
        book: Any = SimpleNamespace(approvals=RedisApprovals(connection))
        start = Barrier(4)

        def take_part(which: int) -> tuple[str, bool, bool]:
            start.wait(timeout=60)
            asked = ask(book)
            try:
                book.approvals.decide(asked.id, ApprovalVerdict(approve=True, by=str(which)))
            except InputError:
                won = False
            else:
                won = True
            start.wait(timeout=60)
            return asked.id, won, book.approvals.use(asked.id, "f") is not None

        with ThreadPoolExecutor(4) as pool:
            ids, won, used = zip(*pool.map(take_part, range(4)), strict=True)

    assert len(set(ids)) == 1
    assert (won.count(True), used.count(True)) == (1, 1)


def test_the_beginning_of_an_id_serves(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for made in ("abcdef000000", "abcdef111111"):
        monkeypatch.setattr("secrets.token_hex", lambda _, made=made: made)
        ask(store, made)
    found = store.approvals.get("abcdef0")

    assert found.id == "abcdef000000"
    assert store.approvals.decide("abcdef1", YES).id == "abcdef111111"
    with pytest.raises(InputError, match="several") as caught:
        store.approvals.get("abcdef")
    assert caught.value.hint
    assert "abcdef000000" in caught.value.hint


def test_old_requests_go_and_nothing_is_kept_for_ever(
    store: Any, clock: Clock, server: Server
) -> None:
    for number in range(3):
        ask(store, str(number))
    kept = store.approvals.list()[0]
    store.approvals.decide(kept.id, YES.model_copy(update={"remember": "arguments"}))
    clock.now += 300 + DAY
    anew = ask(store, "anew")

    everything = ("pending", "approved", "rejected", "expired", "withdrawn", "used")
    assert {found.id for found in store.approvals.list(everything)} == {kept.id, anew.id}
    assert remembered(store, *KEYS.values()) == kept.id
    with closing(server.client()) as client:
        assert [key for key in client.scan_iter() if client.ttl(key) < 0] == []
        assert len(list(client.scan_iter("toolkiln:approval:*"))) == 2


@pytest.mark.parametrize(
    ("field", "damage"),
    [("request", b"{"), ("request", b"[]"), ("request", b"\xff"), ("state", b"perhaps")],
)
def test_a_damaged_request_is_said_to_be_so(
    store: Any, server: Server, field: str, damage: bytes
) -> None:
    asked = ask(store)
    with closing(server.client()) as client:
        client.hset(f"toolkiln:approval:{asked.id}", field, damage)

    with pytest.raises(StoreError) as looked:
        store.approvals.get(asked.id)
    with pytest.raises(StoreError) as answered:
        store.approvals.decide(asked.id, NO)
    assert looked.value.hint
    assert answered.value.hint


def test_the_servers_own_clock_runs(server: Server) -> None:
    with closing(open_redis(server.url)) as connection:
        book: Any = SimpleNamespace(approvals=RedisApprovals(connection))
        asked = ask(book)
        book.approvals.decide(asked.id, YES.model_copy(update={"remember": "session"}))

        assert book.approvals.use(asked.id, "f")
        assert remembered(book, KEYS["session"]) == asked.id
        assert book.approvals.forget(asked.id)
