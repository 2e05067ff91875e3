"""Which buckets calls draw from."""

from tables import each_row
from toolkiln.model.identity import Caller
from toolkiln.model.policy import Rate
from toolkiln.security.guard import Rates

from .test_rules import spec

ANN, BOB = Caller(user_id="ann"), Caller(user_id="bob")
READ, WRITE = spec("read_file"), spec("write_file")
SLOW, FAST = Rate(1, 60), Rate(100, 1)


def buckets(rates: Rates, caller: Caller, name: str = "read_file") -> list[str]:
    return [draw.bucket for draw in rates.draws(caller, spec(name))]


@each_row("rates", [{}, {"write_*": {"caller": SLOW, "tool": FAST}}])
def test_a_tool_that_no_entry_fits_draws_nothing(rates: dict[str, dict[str, Rate]]) -> None:
    assert Rates(rates).draws(ANN, READ) == ()


def test_every_entry_that_fits_draws_at_its_own_rate() -> None:
    rates = Rates({"*": {"caller": FAST}, "read_*": {"caller": SLOW, "tool": FAST}})

    draws = rates.draws(ANN, READ)

    assert [draw.rate for draw in draws] == [FAST, SLOW, FAST]
    assert len({draw.bucket for draw in draws}) == 3


@each_row(
    "glob, counted, tools_share, callers_share",
    [
        ("*", "caller", True, False),
        ("*_file", "caller", False, False),
        ("*", "tool", False, True),
        ("*_file", "tool", False, True),
    ],
)
def test_callers_and_tools_share_the_buckets_of_a_rate(
    glob: str, counted: str, tools_share: bool, callers_share: bool
) -> None:
    rates = Rates({glob: {counted: SLOW}})
    same_user = Caller(user_id="ann", agent_id="x", channel_id="y", session="z", workspace="w")

    assert (buckets(rates, ANN) == buckets(rates, ANN, "write_file")) is tools_share
    assert (buckets(rates, ANN) == buckets(rates, BOB)) is callers_share
    assert buckets(rates, ANN) == buckets(rates, same_user)


@each_row(
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


@each_row("user", ["\ud800", "a\nb\0\x1b", "x" * 1_000_000, "é"])
def test_names_of_buckets_have_one_length_whatever_they_are_for(user: str) -> None:
    rates = Rates({"*": {"caller": SLOW}})

    (bucket,) = buckets(rates, Caller.model_construct(user_id=user))

    assert len(bucket) == 32
    assert bucket.isalnum()
    assert bucket.isascii()


def test_names_of_buckets_are_the_same_in_every_process() -> None:
    assert buckets(Rates({"*": {"caller": SLOW}}), ANN) == ["06953f05b0ad6e8e768810ad6b53015f"]


@each_row("name", ["Read-File", "ｒead_file"])
def test_a_look_alike_does_not_escape_a_rate(name: str) -> None:
    assert buckets(Rates({"read_*": {"caller": SLOW}}), ANN, name)
