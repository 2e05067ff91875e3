"""Limits: each one has its own code; authors ask, operators cap. And how processes die."""

import asyncio
from typing import Any

import pytest

from toolkiln.execution.executor import MAXIMA, Bounds, bounds_of
from toolkiln.kiln import Kiln
from toolkiln.model.call import Status
from toolkiln.model.spec import Limits

TOOLS = {
    "greedy.py": '''
        """Tools that want too much."""
        import os, subprocess, sys, threading, time
        from toolkiln import ToolError, tool

        MEGABYTE = 1 << 20

        @tool(timeout=0.4)
        def sleep_long() -> None:
            """Sleep."""
            print("going to sleep")
            time.sleep(60)

        @tool(timeout=0.4)
        def sleep_stubbornly() -> None:
            """Sleep, and listen to nobody."""
            import signal
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU):
                signal.signal(number, signal.SIG_IGN)
            if os.fork() == 0:
                os.setsid()
            while True:
                time.sleep(1)

        @tool(memory="64MB")
        def fill_memory() -> int:
            """Fill the memory."""
            return len(bytearray(400 * MEGABYTE))

        @tool(memory="64MB")
        def fill_memory_quietly() -> str:
            """Fill the memory and catch the error."""
            kept = []
            try:
                while True:
                    kept.append(bytearray(8 * MEGABYTE))
            except MemoryError:
                kept.clear()
                return "caught"

        @tool(cpu=0.5, timeout=20)
        def burn() -> None:
            """Compute for ever."""
            while True:
                pass

        @tool(processes=4)
        def fork_much() -> None:
            """Start processes."""
            for _ in range(20):
                if os.fork() == 0:
                    time.sleep(30)

        @tool(processes=4)
        def thread_much() -> None:
            """Start threads."""
            for _ in range(40):
                threading.Thread(target=time.sleep, args=(30,), daemon=True).start()

        @tool(processes=4)
        def start_much() -> None:
            """Start programs."""
            for _ in range(20):
                subprocess.Popen(["/usr/bin/sleep", "30"])

        @tool
        def find_nothing_to_read() -> bytes:
            """Read from an empty pipe without waiting."""
            reader, _ = os.pipe()
            os.set_blocking(reader, False)
            return os.read(reader, 1)

        @tool(disk="1MB")
        def write_much() -> None:
            """Write one big file."""
            with open("/tmp/big", "wb") as file:
                for _ in range(64):
                    file.write(bytes(MEGABYTE))

        @tool(disk="1MB")
        def write_many() -> None:
            """Write many files."""
            for number in range(64):
                with open(f"/tmp/{number}", "wb") as file:
                    file.write(bytes(MEGABYTE // 8))

        @tool(memory="300MB", disk="80MB", processes=40, timeout=45, cpu=7)
        def tell_limits() -> dict:
            """Tell the limits."""
            return _limits()

        @tool
        def tell_usual_limits() -> dict:
            """Tell the limits that are there without asking."""
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
        """Tools that die."""
        import ctypes, os, signal, sys
        from toolkiln import tool

        @tool
        def die(how: str) -> None:
            """End the process in some way."""
            print("last words", flush=True)
            print("last complaint", file=sys.stderr, flush=True)
            if how == "exit":
                sys.exit(3)
            if how == "hard exit":
                os._exit(3)
            if how == "quiet exit":
                os._exit(0)
            if how == "segfault":
                ctypes.string_at(0)
            if how == "abort":
                os.abort()
            if how == "signal":
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "kill everything":
                os.kill(-1, signal.SIGKILL)
                os.kill(0, signal.SIGKILL)
            if how == "close":
                os.closerange(0, 100)

        @tool
        def live() -> str:
            """Do nothing wrong."""
            return "alive"
    ''',
    "warm_dying.py": '''
        """The same in a template, where the tool is not the first process."""
        import pydantic
        import os, signal
        from toolkiln import tool

        @tool
        def die_warm(how: str) -> int:
            """End the process by a signal."""
            if how == "signal":
                os.kill(os.getpid(), signal.SIGTERM)
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            return os.getpid()
    ''',
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("name", "status", "code", "excerpt"),
    [
        ("sleep_long", Status.TIMEOUT, "timeout", "0.4 s"),
        ("sleep_stubbornly", Status.TIMEOUT, "timeout", "0.4 s"),
        ("fill_memory", Status.KILLED, "memory_limit", "memory"),
        ("burn", Status.KILLED, "cpu_limit", "0.5 s of processor time"),
        ("fork_much", Status.KILLED, "processes_limit", "4 processes"),
        ("thread_much", Status.KILLED, "processes_limit", "4 processes"),
        ("start_much", Status.KILLED, "processes_limit", "4 processes"),
        ("write_much", Status.KILLED, "disk_limit", "of files"),
        ("write_many", Status.KILLED, "disk_limit", "of files"),
    ],
)
async def test_limit_that_was_hit_is_named(
    kiln: Kiln, name: str, status: Status, code: str, excerpt: str
) -> None:
    result = await kiln.call(name, {})

    assert result.error
    assert (result.status, result.error.code) == (status, code)
    assert excerpt in result.error.message
    assert "@tool(" in (result.error.hint or "")


@pytest.mark.asyncio(loop_scope="module")
async def test_output_before_a_timeout_is_kept(kiln: Kiln) -> None:
    assert (await kiln.call("sleep_long", {})).stdout == "going to sleep\n"


@pytest.mark.asyncio(loop_scope="module")
async def test_tool_that_copes_with_a_limit_has_not_failed(kiln: Kiln) -> None:
    result = await kiln.call("fill_memory_quietly", {})

    assert result.value == "caught" or (result.error and result.error.code == "memory_limit")


@pytest.mark.asyncio(loop_scope="module")
async def test_pipe_without_data_is_no_limit(kiln: Kiln) -> None:
    result = await kiln.call("find_nothing_to_read", {})

    assert result.error
    assert (result.status, result.error.code) == (Status.FAILED, "exception")
    assert result.error.type == "BlockingIOError"


@pytest.mark.asyncio(loop_scope="module")
async def test_callers_patience_shortens_the_timeout(kiln: Kiln) -> None:
    result = await kiln.call("burn", {}, timeout=0.2)

    assert result.status is Status.TIMEOUT
    assert "0.2 s" in result.text


@pytest.mark.asyncio(loop_scope="module")
async def test_declared_limits_hold_inside(kiln: Kiln) -> None:
    asked = (await kiln.call("tell_limits", {})).value
    usual = (await kiln.call("tell_usual_limits", {})).value

    assert asked["disk"] == 80 << 20
    assert usual["disk"] == 64 << 20
    assert 7 <= asked["cpu"] <= 8
    assert 30 <= usual["cpu"] <= 31


async def test_operator_caps_what_tools_ask_for(make_kiln: Any) -> None:
    async with make_kiln(TOOLS, limits={"disk": 1 << 20, "cpu": 2}) as kiln:
        reported = (await kiln.call("tell_limits", {})).value
    async with make_kiln(TOOLS, limits={"timeout": 0.3}) as kiln:
        late = await kiln.call("burn", {})

    assert reported["disk"] == 1 << 20
    assert 2 <= reported["cpu"] <= 3
    assert late.status is Status.TIMEOUT
    assert "0.3 s" in late.text


def test_bounds_are_the_smaller_of_wish_and_maximum() -> None:
    usual = bounds_of(Limits(), MAXIMA, None)
    wished = bounds_of(Limits(timeout=50, memory=1, cpu=2, processes=3, disk=4), MAXIMA, None)
    capped = bounds_of(Limits(timeout=1e9, memory=1 << 60), MAXIMA, 2.0)

    assert usual == Bounds(timeout=30, memory=512 << 20, cpu=30, processes=32, disk=64 << 20)
    assert wished == Bounds(timeout=50, memory=1, cpu=2, processes=3, disk=4)
    assert (capped.timeout, capped.memory, capped.cpu) == (2.0, MAXIMA.memory, MAXIMA.cpu)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("how", "code", "excerpt"),
    [
        ("exit", "exited", ""),
        ("hard exit", "exited", "status 3"),
        ("quiet exit", "no_result", "without a result"),
        ("segfault", "crashed", "SIGSEGV"),
        ("abort", "crashed", "SIG"),
    ],
)
async def test_way_in_which_a_process_ended_has_its_code(
    kiln: Kiln, how: str, code: str, excerpt: str
) -> None:
    result = await kiln.call("die", {"how": how})

    assert result.error
    assert (result.status, result.error.code) == (Status.FAILED, code)
    assert excerpt in result.error.message
    assert (result.stdout, result.stderr) == ("last words\n", "last complaint\n")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("how", ["signal", "kill", "kill everything", "close"])
async def test_tool_that_kills_all_it_can_reach_harms_itself_only(kiln: Kiln, how: str) -> None:
    result = await kiln.call("die", {"how": how}, timeout=5)

    assert result.status in (Status.OK, Status.FAILED)  # the first process takes no such signal
    assert (await kiln.call("live", {})).value == "alive"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("how", ["signal", "kill"])
async def test_signal_has_a_code_of_its_own(kiln: Kiln, how: str) -> None:
    async with asyncio.timeout(20):
        while (await kiln.call("die_warm", {"how": ""})).value == 1:
            pass  # not in a template yet

    result = await kiln.call("die_warm", {"how": how})

    assert result.error
    assert (result.status, result.error.code) == (Status.FAILED, "signalled")
    assert {"signal": "SIGTERM", "kill": "SIGKILL"}[how] in result.error.message
    assert (await kiln.call("die_warm", {"how": ""})).status is Status.OK
