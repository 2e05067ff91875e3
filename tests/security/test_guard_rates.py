"""How often a caller may call, and how often a tool may be called."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from execution.conftest import MakeKiln
from execution.observers import code, open_session
from toolkiln import Context, tool
from toolkiln.define import ToolError
from toolkiln.kiln import Kiln
from toolkiln.model.call import Status
from toolkiln.store.store import open_store

from .guarded import about, made

RAN: list[str] = []
LIMITED = (Status.DENIED, "rate_limited")


@tool
def quick(word: str = "") -> str:
    """Answer at once."""
    RAN.append(word)
    return word


@tool
def other() -> int:
    """Answer as well."""
    return 1


@tool
def many(times: int, ctx: Context) -> int:
    """Call another tool again and again."""
    for number in range(times):
        try:
            ctx.call("quick")
        except ToolError:
            return number
    return times


@tool(needs_approval=True)
def asked() -> None:
    """Ask a person first."""


FUNCTIONS = [quick, other, many, asked]


@pytest.fixture(autouse=True)
def fresh() -> None:
    RAN.clear()


class Clock:
    """A clock that tests set."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture
async def limited(make_kiln: MakeKiln, tmp_path: Path, clock: Clock) -> AsyncIterator[Kiln]:
    """Three calls a minute for each caller of `quick`, five for all of them together."""
    rates = {"quick": {"caller": "3/minute", "tool": "5/minute"}, "asked": {"tool": "1/day"}}
    async with make_kiln({}, functions=FUNCTIONS, rates=rates) as kiln:
        (tmp_path / "state").mkdir(exist_ok=True)
        kiln.services.__dict__["store"] = open_store(tmp_path / "state" / "store.db", clock=clock)
        yield kiln


async def test_caller_is_limited_whatever_the_session_and_others_are_not(limited: Kiln) -> None:
    ann, bob, on_chat = (
        open_session(limited, "ann"),
        open_session(limited, "bob"),
        open_session(limited, "ann", platform="chat"),
    )
    agents = [
        open_session(limited, "ann", agent_id=f"agent {n}", channel_id=str(n), groups=[str(n)])
        for n in range(3)
    ]

    first = [await limited.call("quick", session=token) for token in (ann, *agents[:2])]
    early = [await limited.call("quick", session=token) for token in (ann, agents[2])]
    of_others = [await limited.call("quick", session=token) for token in (bob, on_chat)]
    of_another_tool = await limited.call("other", session=ann)

    assert [result.status for result in first] == [Status.OK] * 3
    assert [code(result) for result in early] == [LIMITED] * 2
    assert early[0].error
    assert early[0].error.retry_after == pytest.approx(20, abs=0.1)
    assert early[0].error.retryable
    assert [result.status for result in (*of_others, of_another_tool)] == [Status.OK] * 3
    assert len(RAN) == 5
    assert about(limited, early[0])[-1].outcome == "denied"


async def test_caller_who_waits_as_long_as_stated_gets_through(limited: Kiln, clock: Clock) -> None:
    ann = open_session(limited, "ann")
    for _ in range(3):
        await limited.call("quick", session=ann)
    early = await limited.call("quick", {"word": "late"}, session=ann, call_id="patient")
    assert early.error
    assert early.error.retry_after

    clock.now += early.error.retry_after
    later = await limited.call("quick", {"word": "late"}, session=ann, call_id="patient")
    too_soon = await limited.call("quick", session=ann)

    assert code(early) == LIMITED
    assert later.value == "late"
    assert code(too_soon) == LIMITED


async def test_repeated_id_costs_nothing_and_denied_or_invalid_calls_neither(limited: Kiln) -> None:
    ann = open_session(limited, "ann")
    narrow = open_session(limited, "ann", tools=["other"])

    for _ in range(5):
        assert (await limited.call("quick", session=ann, call_id="same")).status is Status.OK
        assert (await limited.call("quick", {"word": 7}, session=ann)).status is Status.INVALID
        assert (await limited.call("quick", session=narrow)).status is Status.DENIED
    left = [await limited.call("quick", session=ann) for _ in range(3)]

    assert [result.status for result in left] == [Status.OK, Status.OK, Status.DENIED]


async def test_nested_calls_and_batches_count(limited: Kiln) -> None:
    ann, bob = open_session(limited, "ann"), open_session(limited, "bob")

    nested = await limited.call("many", {"times": 10}, session=ann)
    batch = await limited.call_many([made("quick", bob) for _ in range(4)])

    assert nested.value == 3
    assert [result.status for result in batch] == [Status.OK] * 2 + [Status.DENIED] * 2


async def test_person_is_not_asked_about_a_call_that_comes_too_early(limited: Kiln) -> None:
    ann = open_session(limited, "ann")

    first = await limited.call("asked", session=ann, timeout=0.05)
    second = await limited.call("asked", session=ann, timeout=0.05)

    assert code(first) == (Status.DENIED, "approval_expired")
    assert code(second) == LIMITED
    assert len(limited.security.approvals.history()) == 1


async def test_all_tools_can_share_one_rate(make_kiln: MakeKiln) -> None:
    async with make_kiln({}, functions=FUNCTIONS, rates={"*": {"caller": "2/day"}}) as kiln:
        ann = open_session(kiln, "ann")

        results = [
            await kiln.call("quick", session=ann),
            await kiln.call("other", session=ann),
            await kiln.call("quick", session=ann),
            await kiln.call("search_tools", {"query": "x"}, session=ann),
        ]

        assert [result.status for result in results] == [Status.OK] * 2 + [Status.DENIED] * 2


async def test_tool_is_limited_for_a_crowd_of_callers_together(limited: Kiln) -> None:
    tokens = [open_session(limited, f"user {number}") for number in range(4)]

    results = await asyncio.gather(
        *(limited.call("quick", session=token) for token in tokens for _ in range(5))
    )

    assert sum(result.status is Status.OK for result in results) == len(RAN) == 5
    assert all(result.error.retry_after for result in results if result.error)
