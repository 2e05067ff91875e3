"""State: a call finds no traces of earlier calls, however its process was started."""

import asyncio
import os
import time
from typing import Any

import pytest

from toolkiln.model.identity import Caller

from .conftest import BOUND, Service, all_gone

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLEAN: dict[str, object] = {
    "kept": [], "variable": None, "patch": None, "path": False, "module": False, "mask": False,
    "folder": False, "nice": os.nice(0), "signal": False, "threads": 1, "sleepers": 0,
}  # fmt: skip


async def looked(service: Service, kind: str, caller: Caller | None = None) -> dict[str, Any]:
    result = await service.attack(f"look_{kind}", caller=caller or Caller(), since=time.time())
    assert result.error is None, result.error
    seen: dict[str, Any] = result.value
    return seen


async def warmed(service: Service, kind: str, caller: Caller | None = None) -> dict[str, Any]:
    """What a call sees whose tool was imported before."""
    async with asyncio.timeout(BOUND):
        while not (seen := await looked(service, kind, caller))["warm"]:
            pass
    return seen


@pytest.mark.parametrize("kind", ["cheap", "heavy", "spare"])
async def test_nothing_is_left_for_the_next_call(service: Service, kind: str, marker: str) -> None:
    see = looked if kind == "cheap" else warmed
    await see(service, kind)
    for _ in range(3):
        assert await service.value(f"leave_{kind}", marker=marker) == "left"
        seen = await see(service, kind)

        assert {name: seen[name] for name in CLEAN} == CLEAN
        assert all(files == [] for files in seen["files"])
    await all_gone(marker)


@pytest.mark.parametrize("kind", ["cheap", "heavy", "spare"])
async def test_chance_is_not_the_same_twice(service: Service, kind: str) -> None:
    see = looked if kind == "cheap" else warmed

    numbers = [(await see(service, kind))["random"] for _ in range(4)]

    assert len(set(numbers)) == 4


async def test_callers_do_not_share_a_template(service: Service) -> None:
    callers = [
        Caller(user_id="one"), Caller(user_id="two"), Caller(agent_id="one"),
        Caller(user_id="one", workspace="other"),
    ]  # fmt: skip

    tokens = [{(await warmed(service, "heavy", c))["token"] for _ in range(3)} for c in callers]

    assert len(set.union(*tokens)) == sum(map(len, tokens))


async def test_spares_are_used_once(service: Service) -> None:
    tokens = [(await looked(service, "spare"))["token"] for _ in range(6)]

    assert len(set(tokens)) == 6
