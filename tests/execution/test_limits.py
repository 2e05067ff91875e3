"""Limits: each one has its own code; authors ask, operators cap. And how processes die."""

import asyncio
from typing import Any

import pytest

from toolkiln.execution.executor import MAXIMA, Bounds, bounds_of
from toolkiln.kiln import Kiln
from toolkiln.model.call import Status
from toolkiln.model.spec import Limits

from .observers import code

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOOLS = {
    "greedy.py": '''
        """Tools that want too much."""
        import os, time
        from toolkiln import ToolError, tool

        MEGABYTE = 1 << 20

        @tool(timeout=0.4)
        def sleep_long() -> None:
            print("going to sleep")
            time.sleep(60)

        @tool(memory="64MB")
        def fill_memory() -> int:
            return len(bytearray(400 * MEGABYTE))

        @tool(memory="64MB")
        def fill_memory_quietly() -> str:
            kept = []
            try:
                while True:
                    kept.append(bytearray(8 * MEGABYTE))
            except MemoryError:
                kept.clear()
                return "caught"

        @tool(cpu=0.5, timeout=20)
        def burn() -> None:
            while True:
                pass

        @tool(processes=4)
        def fork_much() -> None:
            for _ in range(20):
                if os.fork() == 0:
                    time.sleep(30)

        @tool
        def find_nothing_to_read() -> bytes:
            reader, _ = os.pipe()
            os.set_blocking(reader, False)
            return os.read(reader, 1)

        @tool(disk="1MB")
        def write_much() -> None:
            with open("/tmp/big", "wb") as file:
                for _ in range(64):
                    file.write(bytes(MEGABYTE))

        @tool(memory="300MB", disk="80MB", processes=40, timeout=45, cpu=7)
        def tell_limits() -> dict:
            return _limits()

        @tool
        def tell_usual_limits() -> dict:
            return _limits()

        def _limits() -> dict:
            import resource
            size = os.statvfs("/tmp")
            return {
                "disk": size.f_blocks * size.f_frsize,
                "cpu": resource.getrlimit(resource.RLIMIT_CPU)[0],
            }
    ''',
    "dying.py": '''
        """In a template, where the tool is not the first process."""
        import pydantic
        import os, signal
        from toolkiln import tool

        @tool
        def die_warm(how: str) -> int:
            if how:
                os.kill(os.getpid(), signal.Signals[how])
            return os.getpid()
    ''',
}


@pytest.mark.parametrize(
    ("name", "ended", "excerpt"),
    [
        ("sleep_long", (Status.TIMEOUT, "timeout"), "0.4 s"),
        ("fill_memory", (Status.KILLED, "memory_limit"), "memory"),
        ("burn", (Status.KILLED, "cpu_limit"), "0.5 s of processor time"),
        ("fork_much", (Status.KILLED, "processes_limit"), "4 processes"),
        ("write_much", (Status.KILLED, "disk_limit"), "of files"),
    ],
)
async def test_limit_that_was_hit_is_named(
    kiln: Kiln, name: str, ended: tuple[Status, str], excerpt: str
) -> None:
    result = await kiln.call(name, {})

    assert code(result) == ended
    assert excerpt in result.text
    assert "hint: " in result.text
    assert "@tool(" in result.text


async def test_tool_that_copes_with_a_limit_has_not_failed(kiln: Kiln) -> None:
    result = await kiln.call("fill_memory_quietly", {})

    assert result.value == "caught" or (result.error and result.error.code == "memory_limit")


async def test_pipe_without_data_is_no_limit(kiln: Kiln) -> None:
    result = await kiln.call("find_nothing_to_read", {})

    assert code(result) == (Status.FAILED, "exception")
    assert "BlockingIOError" in result.text


async def test_callers_patience_shortens_the_timeout_and_output_is_kept(kiln: Kiln) -> None:
    result = await kiln.call("sleep_long", {}, timeout=0.3)

    assert result.status is Status.TIMEOUT
    assert "0.3 s" in result.text
    assert result.stdout == "going to sleep\n"


async def test_declared_limits_apply_inside(kiln: Kiln) -> None:
    asked = (await kiln.call("tell_limits", {})).value
    usual = (await kiln.call("tell_usual_limits", {})).value

    assert asked["disk"] == 80 << 20
    assert usual["disk"] == 64 << 20
    assert 7 <= asked["cpu"] <= 8
    assert 30 <= usual["cpu"] <= 31


async def test_operator_caps_what_tools_ask_for(make_kiln: Any) -> None:
    async with make_kiln(TOOLS, limits={"disk": 1 << 20, "cpu": 2}) as kiln:
        reported = (await kiln.call("tell_limits", {})).value

    assert reported["disk"] == 1 << 20
    assert 2 <= reported["cpu"] <= 3


async def test_bounds_are_the_smaller_of_wish_and_maximum() -> None:
    usual = bounds_of(Limits(), MAXIMA, None)
    wished = bounds_of(Limits(timeout=50, memory=1, cpu=2, processes=3, disk=4), MAXIMA, None)
    capped = bounds_of(Limits(timeout=1e9, memory=1 << 60), MAXIMA, None)
    hurried = bounds_of(Limits(timeout=1e9), MAXIMA, 2.0)

    assert usual == Bounds(timeout=30, memory=512 << 20, cpu=30, processes=32, disk=64 << 20)
    assert wished == Bounds(timeout=50, memory=1, cpu=2, processes=3, disk=4)
    assert (capped.timeout, capped.memory) == (MAXIMA.timeout, MAXIMA.memory)
    assert (hurried.timeout, hurried.cpu) == (2.0, MAXIMA.cpu)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
async def test_signal_has_a_code_of_its_own(kiln: Kiln, how: str) -> None:
    async with asyncio.timeout(20):
        while (await kiln.call("die_warm", {"how": ""})).value == 1:
            pass  # not in a template yet

    result = await kiln.call("die_warm", {"how": how})

    assert code(result) == (Status.FAILED, "signalled")
    assert how in result.text
    assert (await kiln.call("die_warm", {"how": ""})).status is Status.OK
