"""What rate buckets promise, over SQLite and PostgreSQL."""

from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tables import each_row
from toolkiln.errors import InputError, StoreError
from toolkiln.model.policy import Draw, Rate
from toolkiln.store.store import Store

from .conftest import Clock, Opener, count_rows, execute, running
from .test_processes import go

ODD = "\0\ud800\x1b[31m\n😀" * 1000
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


def test_buckets_are_told_apart_by_their_whole_names(store: Store) -> None:
    one = Rate(1, 60)

    assert take(store, ODD, rate=one) == 0
    assert take(store, ODD + "x", rate=one) == 0
    assert take(store, ODD, rate=one) > 0
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


@pytest.mark.parametrize("jump", [1, 3600, 10**7])
def test_a_clock_set_back_neither_fills_nor_freezes_a_bucket(
    store: Store, clock: Clock, jump: float
) -> None:
    for _ in range(3):
        take(store, "b")
    clock.now -= jump
    refused = take(store, "b")
    clock.now += 20

    assert refused == pytest.approx(20)
    assert take(store, "b") == 0
    assert take(store, "b") == pytest.approx(20)


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


def test_a_changed_rate_holds_from_then_on(store: Store, clock: Clock) -> None:
    take(store, "b", rate=Rate(10, 60))

    assert [take(store, "b", rate=Rate(2, 60)) for _ in range(2)] == [0, 0]
    assert take(store, "b", rate=Rate(2, 60)) == pytest.approx(30)
    assert take(store, "b", rate=Rate(60, 60)) == pytest.approx(1)
    clock.now += 1
    assert take(store, "b", rate=Rate(60, 60)) == 0


@each_row(
    "rate", [Rate(0, 60), Rate(-1, 60), Rate(1, 0), Rate(1, float("nan")), Rate(1, float("inf"))]
)
def test_what_is_no_rate_is_bad_input(store: Store, rate: Rate) -> None:
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


def test_whoever_waits_as_told_is_let_through(place: str, opened: Opener, clock: Clock) -> None:
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


def test_processes_together_take_what_there_is(place: str, opened: Opener) -> None:
    opened(place)
    with ExitStack() as stack:
        takers = [
            stack.enter_context(running(place, "take", "50", "40", script="guard.py"))
            for _ in range(3)
        ]
        taken = [int(said) for said in go(takers)]

    assert sum(taken) == 50


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


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_damaged_bucket_is_said_to_be_so(store: Store, place: str) -> None:
    take(store, "b")
    execute(place, "UPDATE toolkiln_buckets SET level = 'much'")

    with pytest.raises(StoreError, match="cannot be read"):
        take(store, "b")


def test_the_stores_own_clock_runs(place: str, opened: Opener) -> None:
    store = opened(place)

    assert take(store, "b", rate=Rate(1, 1000)) == 0
    assert 0 < take(store, "b", rate=Rate(1, 1000)) <= 1000
