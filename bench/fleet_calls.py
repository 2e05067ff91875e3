"""What `toolkiln worker` makes of sandboxed calls, of Redis's memory, and of its own death."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import broker
from bench.broker import Broker
from bench.fleet import calling, our_client, started
from bench.queued import IN_FLIGHT
from bench.timing import Figure
from toolkiln import Kiln
from toolkiln.config import Settings

_TOOLS = '''
from toolkiln import Context, tool

@tool(read_only=True)
def add_one(number: int) -> int:
    """Add one to a number."""
    return number + 1

@tool(read_only=True)
def add_one_by_work(number: int) -> int:
    """Add one to a number, with ten milliseconds of work."""
    import time
    until = time.process_time() + 0.01
    while time.process_time() < until:
        pass
    return number + 1

@tool(idempotent=True)
def sleep(seconds: float, ctx: Context) -> str:
    """Sleep; it may be begun again."""
    import time
    ctx.report_progress(0, None, "begun")
    time.sleep(seconds)
    return "slept"
'''
_PAIRS = (("add_one_by_work", 1, 1.6), ("add_one", 1, None), ("add_one", 32, None))
"""What two workers are measured with: a tool, the slots of each worker, the bound."""
_SANDBOXED = 300
_TURNS = 3
_MANY = 100_000
_FORGOTTEN = 40
"""Seconds after which nothing is known of a call without an id of its caller's."""
_NAP = 6.0


def figures() -> Iterator[Figure]:
    """Two workers against one, 100,000 calls, a worker that is killed."""
    with tempfile.TemporaryDirectory() as folder:
        tools = Path(folder) / "tools"
        tools.mkdir()
        (tools / "some.py").write_text(_TOOLS)
        for tool, slots, bound in _PAIRS:
            with broker.running() as server:
                yield _two_workers(server, tools, tool, slots, bound)
        with broker.running() as server:
            yield _memory(server)
        for whole in (False, True):
            with broker.running() as server:
                yield asyncio.run(_killed(server, tools, whole=whole))


def _two_workers(server: Broker, tools: Path, tool: str, slots: int, bound: float | None) -> Figure:
    rates = [0.0, 0.0]
    with ExitStack() as stack:
        client = stack.enter_context(calling(our_client(server.url(), tool)))
        second: subprocess.Popen[bytes] | None = None
        stack.enter_context(_working(server, tools, slots))
        for _ in range(_TURNS):
            for count in (1, 2):
                with ExitStack() as turn:
                    if count == 2:
                        second = turn.enter_context(_working(server, tools, slots))
                    client.turn(_SANDBOXED // 3, IN_FLIGHT)
                    seconds, _ = client.turn(_SANDBOXED, IN_FLIGHT)
                    rates[count - 1] = max(rates[count - 1], _SANDBOXED / seconds)
                    if second is not None:
                        second.send_signal(signal.SIGTERM)
                        second.wait()
                        second = None
    times = rates[1] / rates[0]
    each = "one call at a time" if slots == 1 else f"{slots} slots"
    return Figure(
        f"sandboxed calls/s of {tool}: two workers / one, {each}",
        f"{times:.2f} × ({rates[1]:,.0f} / {rates[0]:,.0f})",
        f"≥ {bound:g} ×" if bound else "",
        times >= bound if bound else True,
    )


def _memory(server: Broker) -> Figure:
    worker = [sys.executable, "-m", "bench.fleet_sides", "worker", server.url()]
    with started(worker), calling(our_client(server.url())) as client:
        client.turn(_MANY // 20, IN_FLIGHT)
        time.sleep(_FORGOTTEN)
        before = server.memory()
        client.turn(_MANY, IN_FLIGHT)
        time.sleep(_FORGOTTEN)
        after = server.memory()
    return Figure(
        f"Redis's memory after {_MANY:,} calls",
        f"{before / 1e6:.2f} → {after / 1e6:.2f} MB",
        "flat (≤ 0.5 MB)",
        after - before <= 0.5e6,
    )


async def _killed(server: Broker, tools: Path, *, whole: bool) -> Figure:
    """How long after a kill in the middle of a call its result is there."""
    begun = asyncio.Event()
    with ExitStack() as stack:
        first = stack.enter_context(_working(server, tools, 4))
        settings = Settings(state=Path(stack.enter_context(tempfile.TemporaryDirectory())))
        async with Kiln.connect(server.url(), settings=settings) as kiln:
            calling_ = asyncio.create_task(
                kiln.call("sleep", {"seconds": _NAP}, observe=lambda _: begun.set())
            )
            await begun.wait()
            await asyncio.sleep(_NAP / 2)
            killed = time.perf_counter()
            if whole:
                first.kill()
                await asyncio.sleep(1)
                stack.enter_context(_working(server, tools, 4))
            else:
                children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text()
                os.kill(int(children.split()[0]), signal.SIGKILL)
            result = await calling_
            seconds = time.perf_counter() - killed
    assert result.value == "slept", result
    what = "the only worker killed, another started 1 s later" if whole else "its process killed"
    return Figure(
        f"a {_NAP:g} s call, {what}: result after", f"{seconds:.1f} s", "≤ 22 s", seconds <= 22
    )


@contextmanager
def _working(server: Broker, tools: Path, slots: int) -> Iterator["subprocess.Popen[bytes]"]:
    with tempfile.TemporaryDirectory() as state:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "toolkiln.surfaces.cli", "worker", "--dev",
                "--redis", server.url(), "--tools", str(tools), "--slots", str(slots),
            ],
            env={"TOOLKILN_STATE": state, "PATH": "/usr/bin:/bin"},
            stderr=subprocess.PIPE,
            cwd=tools.parent,
        )  # fmt: skip
        try:
            assert process.stderr is not None
            while not (line := process.stderr.readline()).startswith(b"ready"):
                assert line, "the worker ended"
            yield process
        finally:
            process.kill()
            process.wait()
            process.stderr and process.stderr.close()


if __name__ == "__main__":
    for figure in figures():
        print(*figure, sep=" | ", flush=True)
