"""Which buckets calls draw from."""

import pytest

from toolkiln.model.identity import Caller
from toolkiln.model.policy import Rate
from toolkiln.security.guard import Rates

from .test_rules import spec

ANN, BOB = Caller(user_id="ann"), Caller(user_id="bob")
READ, WRITE = spec("read_file"), spec("write_file")
SLOW, FAST = Rate(1, 60), Rate(100, 1)


def buckets(rates: Rates, caller: Caller, name: str = "read_file") -> list[str]:
    return [draw.bucket for draw in rates.draws(caller, spec(name))]


def test_without_rates_nothing_is_drawn() -> None:
    assert Rates({}).draws(ANN, READ) == ()


def test_a_tool_that_no_entry_fits_draws_nothing() -> None:
    assert Rates({"write_*": {"caller": SLOW, "tool": FAST}}).draws(ANN, READ) == ()


def test_every_entry_that_fits_draws_at_its_own_rate() -> None:
    rates = Rates({"*": {"caller": FAST}, "read_*": {"caller": SLOW, "tool": FAST}})

    draws = rates.draws(ANN, READ)

    assert [draw.rate for draw in draws] == [FAST, SLOW, FAST]
    assert len({draw.bucket for draw in draws}) == 3


def test_a_rate_for_all_tools_is_one_bucket_for_each_caller() -> None:
    rates = Rates({"*": {"caller": SLOW}})

    assert buckets(rates, ANN, "read_file") == buckets(rates, ANN, "write_file")
    assert buckets(rates, ANN) != buckets(rates, BOB)


def test_a_rate_for_some_tools_is_a_bucket_for_each_caller_and_tool() -> None:
    rates = Rates({"*_file": {"caller": SLOW}})

    assert buckets(rates, ANN, "read_file") != buckets(rates, ANN, "write_file")
    assert buckets(rates, ANN) != buckets(rates, BOB)


@pytest.mark.parametrize("glob", ["*", "*_file"])
def test_a_rate_of_tools_is_a_bucket_for_each_tool_over_all_callers(glob: str) -> None:
    rates = Rates({glob: {"tool": SLOW}})

    assert buckets(rates, ANN) == buckets(rates, BOB)
    assert buckets(rates, ANN, "read_file") != buckets(rates, ANN, "write_file")


def test_agents_channels_and_sessions_of_a_caller_share_a_bucket() -> None:
    rates = Rates({"*": {"caller": SLOW}})
    others = Caller(user_id="ann", agent_id="x", channel_id="y", session="z", workspace="w")

    assert buckets(rates, ANN) == buckets(rates, others)


@pytest.mark.parametrize(
    "other",
    [
        Caller(user_id="42"),
        Caller(user_id="42", platform="slack"),
        Caller(user_id="discord:42"),
        Caller(platform="discord"),
        Caller(),
        Caller(user_id="None", platform="discord"),
        Caller(user_id="2", platform="discord:4"),
        Caller(user_id="42', 'discord"),
    ],
)
def test_similar_names_do_not_share_a_bucket(other: Caller) -> None:
    rates = Rates({"*": {"caller": SLOW}})

    assert buckets(rates, other) != buckets(rates, Caller(user_id="42", platform="discord"))


def test_a_bucket_of_a_caller_is_none_of_a_tool() -> None:
    (one,) = buckets(Rates({"x": {"caller": SLOW}}), ANN, "x")
    (other,) = buckets(Rates({"x": {"tool": SLOW}}), ANN, "x")

    assert one != other


@pytest.mark.parametrize("user", ["\ud800", "a\nb\0\x1b", "x" * 1_000_000, "é"])
def test_names_of_buckets_have_one_length_whatever_they_are_for(user: str) -> None:
    rates = Rates({"*": {"caller": SLOW}})

    (bucket,) = buckets(rates, Caller.model_construct(user_id=user))

    assert len(bucket) == 32
    assert bucket.isalnum()
    assert bucket.isascii()


def test_names_of_buckets_are_the_same_in_every_process() -> None:
    assert buckets(Rates({"*": {"caller": SLOW}}), ANN) == ["06953f05b0ad6e8e768810ad6b53015f"]


def test_a_look_alike_does_not_escape_a_rate() -> None:
    assert buckets(Rates({"read_*": {"caller": SLOW}}), ANN, "Read-File")
