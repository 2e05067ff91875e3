"""Secrets and settings reach the one call that they are for, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from toolkiln.execution.executor import ExecutionOutcome, Executor, Invocation
from toolkiln.model.call import Status
from toolkiln.model.identity import Caller
from toolkiln.model.tool import ResolvedTool
from toolkiln.spec.reader import read

from .executors import sandbox_executor
from .observers import code

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPEN_WEBUI = """
from pydantic import BaseModel, Field, SecretStr, field_validator

class Tools:
    class Valves(BaseModel):
        greeting: str = "Hello"
        key: SecretStr = SecretStr("")

        @field_validator("key")
        @classmethod
        def check(cls, key):
            if "bad" in key.get_secret_value():
                raise ValueError(f"bad key {key.get_secret_value()}")
            return key

    class UserValves(BaseModel):
        units: str = "metric"
        days: int = Field(3, ge=1)

    def __init__(self):
        self.valves = self.Valves()

    def greet(self, __user__: dict = {}) -> list:
        mine = __user__["valves"]
        assert isinstance(mine, self.UserValves)
        key = self.valves.key
        return [
            self.valves.greeting, str(key), key.get_secret_value(), mine.units, mine.days,
            __user__["id"], __user__["name"],
        ]

    def alone(self) -> str:
        return self.valves.greeting
"""

FUNCTIONS = """
import os, sys, time
from toolkiln import Context, tool

time.sleep(0.15)  # worth being kept warm
seen = []

@tool(requires_secrets=["KEY"])
def secrets(ctx: Context) -> list:
    seen.append(dict(ctx.secrets))
    return [dict(ctx.secrets), len(seen), repr(ctx), dict(os.environ), sys.argv]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["A", "B"])
async def executor(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Executor]:
    """Every full sandbox in turn."""
    async with sandbox_executor(tmp_path_factory.mktemp("state"), request.param) as executor:
        yield executor


async def run(
    executor: Executor, name: str, source: str = OPEN_WEBUI, **how: Any
) -> ExecutionOutcome:
    spec = next(tool for tool in read(source, "given.py").tools if tool.name == name)
    async with asyncio.timeout(30):
        tool = ResolvedTool(spec, lambda: {"given.py": source.encode()})
        return await executor.run(Invocation(tool, {}, **how))


@pytest.mark.parametrize(
    ("how", "value"),
    [
        ({"caller": Caller(user_id="ann")}, ["Hello", "", "", "metric", 3, "ann", "ann"]),
        (
            {
                "settings": {"greeting": "Hi", "key": "s3cret"},
                "user_settings": {"units": "imperial", "days": 1},
            },
            ["Hi", "**********", "s3cret", "imperial", 1, None, None],
        ),
    ],
    ids=["defaults", "set"],
)
async def test_valves_and_user_valves_are_instances_of_their_classes(
    executor: Executor, how: dict[str, Any], value: list[Any]
) -> None:
    outcome = await run(executor, "greet", **how)

    assert outcome.value == value


async def test_valves_need_no_user(executor: Executor) -> None:
    outcome = await run(executor, "alone", settings={"greeting": "Hi"}, user_settings={"days": 0})

    assert outcome.value == "Hi"


@pytest.mark.parametrize(
    ("how", "reported"),
    [
        ({"settings": {"key": "bad s3cret"}}, "Valves rejects the settings: key (value error)"),
        ({"user_settings": {"days": 0}}, "UserValves rejects the settings: days (greater"),
    ],
)
async def test_settings_that_the_class_refuses_end_the_call(
    executor: Executor, how: dict[str, Any], reported: str
) -> None:
    outcome = await run(executor, "greet", **how)

    assert code(outcome) == (Status.FAILED, "bad_settings")
    assert outcome.error
    assert outcome.error.message.startswith("the settings of greet cannot be used: ")
    assert reported in outcome.error.message
    assert "s3cret" not in repr(outcome)


async def test_a_secret_is_in_the_context_of_its_call_alone(executor: Executor) -> None:
    for number in range(4):  # the later ones by a warm worker
        secret = {"KEY": f"s3cret-{number}"}
        mine = await run(executor, "secrets", FUNCTIONS, secrets=secret)
        other = await run(executor, "secrets", FUNCTIONS)

        assert mine.value[:2] == [secret, 1]
        assert "s3cret" not in repr(mine.value[2:])
        assert other.value[:2] == [{}, 1]
        assert "s3cret" not in repr(other.value)


async def test_what_is_kept_of_a_call_shows_no_secret() -> None:
    spec = read(FUNCTIONS, "given.py").tools[0]
    values = {"KEY": "s3cret"}
    invocation = Invocation(
        ResolvedTool(spec, dict), {}, secrets=values, settings=values, user_settings=values
    )

    assert "s3cret" not in repr(invocation)
