"""Token buckets, in Redis and in the store alike."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from toolkiln.errors import InputError
from toolkiln.model.policy import Draw, Rate

from .conftest import BucketsLike, Guards

# So slow that no token comes back while a busy machine runs a test.
SLOW = Rate(6, 86_400)


def drained(buckets: BucketsLike, *draws: Draw) -> int:
    """How often a token can be taken before it is refused."""
    return next(number for number in range(10_000) if buckets.take(draws) > 0)


def test_a_bucket_is_full_at_first_and_gives_no_more_than_it_holds(buckets: BucketsLike) -> None:
    assert drained(buckets, Draw("ann", SLOW)) == 6


def test_a_refusal_says_how_long_to_wait_and_waiting_is_enough(guards: Guards) -> None:
    draw = Draw("ann", SLOW)
    drained(guards.buckets, draw)

    wait = guards.buckets.take([draw])
    guards.wait(wait)

    assert 0 < wait <= 14_400
    assert guards.buckets.take([draw]) == 0.0


@pytest.mark.parametrize("rate", [Rate(7, 3.3), Rate(1, 86_400), Rate(999, 1001), Rate(3, 1e7)])
def test_the_returned_wait_is_enough_for_any_rate(guards: Guards, rate: Rate) -> None:
    draw = Draw("ann", rate)

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


def test_buckets_do_not_share_tokens(buckets: BucketsLike) -> None:
    drained(buckets, Draw("ann", SLOW))

    assert [drained(buckets, Draw(name, SLOW)) for name in ("Ann", "ann ", "ben", "")] == [6] * 4


def test_tokens_are_taken_from_all_buckets_or_from_none(buckets: BucketsLike) -> None:
    small, large = Draw("caller", Rate(2, 86_400)), Draw("tool", Rate(10, 86_400))
    both = drained(buckets, large, small)
    for _ in range(20):
        buckets.take([large, small])
        buckets.take([small, large])

    assert both == 2
    assert drained(buckets, large) == 8


def test_the_longest_wait_is_returned(buckets: BucketsLike) -> None:
    short, long = Draw("a", Rate(1, 3600)), Draw("b", Rate(1, 86_400))
    buckets.take([short, long])

    assert 80_000 < buckets.take([long, short]) <= 86_400
    assert 0 < buckets.take([short]) <= 3600


def test_no_draws_are_granted(buckets: BucketsLike) -> None:
    assert buckets.take([]) == 0.0


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


def test_a_smaller_rate_holds_at_once(buckets: BucketsLike) -> None:
    buckets.take([Draw("ann", Rate(1000, 86_400))])

    assert drained(buckets, Draw("ann", Rate(3, 86_400))) == 3


@pytest.mark.parametrize(
    "rate", [Rate(0, 60), Rate(-1, 60), Rate(1, 0), Rate(1, -1), Rate(1, float("nan"))]
)
def test_what_is_no_rate_is_refused_and_takes_nothing(buckets: BucketsLike, rate: Rate) -> None:
    good = Draw("good", SLOW)
    with pytest.raises(InputError):
        buckets.take([good, Draw("ann", rate)])

    assert drained(buckets, good) == 6


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x\r\n", "é" * 2_000_000])
def test_a_bucket_may_have_any_name(buckets: BucketsLike, name: str) -> None:
    assert drained(buckets, Draw(name, Rate(2, 86_400))) == 2
    assert drained(buckets, Draw(name[:-1], Rate(2, 86_400))) == 2


def test_processes_never_get_more_tokens_than_there_are(guards: Guards) -> None:
    command = [sys.executable, "-m", "tests.fleet.taker", guards.place, "ann", "60"]
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
