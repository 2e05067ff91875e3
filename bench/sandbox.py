"""The sandbox against what it replaces: a cold bwrap for each call, and a plain fork server.

Latencies are medians of sequential calls, all in one run, so that only ratios count.
"""

import asyncio
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from bench.timing import Figure, at_most
from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.sandbox.bubblewrap import Bind, Launch, common_binds, find_bwrap, interpreter, start

_CALLS = 200
_MANY = 10_000
_CONCURRENT = 16
_TOOLS = {
    "greet": '''
        def greet(name: str, times: int = 1) -> dict:
            """Greet somebody."""
            return {"text": f"Hello, {name}! " * times}
    ''',
    "order": '''
        from pydantic import BaseModel, Field

        class Line(BaseModel):
            name: str
            count: int = Field(ge=1)

        class Order(BaseModel):
            lines: list[Line]

        def order(order: Order) -> int:
            """Count what was ordered."""
            return sum(line.count for line in order.lines)
    ''',
    "table": '''
        # /// script
        # dependencies = ["pandas"]
        # ///
        import pandas as pd

        def table(rows: list[dict[str, float]]) -> dict[str, float]:
            """Sum up the columns of a table."""
            return pd.DataFrame(rows).sum().to_dict()
    ''',
}
_ARGUMENTS = {
    "greet": {"name": "Ada", "times": 3},
    "order": {"order": {"lines": [{"name": "tea", "count": 2}]}},
    "table": {"rows": [{"a": 1.0, "b": 2.0}, {"a": 3.0}]},
}
_COLD = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("greet", "/tool/greet.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(json.dumps(module.greet(**json.loads(sys.argv[1]))))
"""
_FORKING = """
import importlib.util, json, os, socket, struct, sys
control = socket.socket(fileno=int(sys.argv[1]))
os.close(1), os.close(2)
while True:
    data, fds, _, _ = socket.recv_fds(control, 65536, 1)
    if not data:
        os._exit(0)
    if os.fork() == 0:
        call = json.loads(data)
        spec = importlib.util.spec_from_file_location("greet", "/tool/greet.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        os.write(fds[0], json.dumps(module.greet(**call)).encode())
        os._exit(0)
    os.close(fds[0])
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""


def figures() -> Iterator[Figure]:
    """Every figure that issue 3 sets for the sandbox."""
    if find_bwrap() is None:
        yield Figure("sandbox", "no bwrap", "", None)
        return
    with tempfile.TemporaryDirectory(prefix="toolkiln-bench-") as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101 - the baselines run as another user, too
        tools = Path(folder, "tools")
        tools.mkdir()
        for name, text in _TOOLS.items():
            lines = text.splitlines()[1:]
            (tools / f"{name}.py").write_text("\n".join(line[8:] for line in lines))
        yield from asyncio.run(_measure(tools, Path(folder, "state")))


async def _measure(tools: Path, state: Path) -> list[Figure]:
    cold = statistics.median([_timed(lambda: _call_cold(tools)) for _ in range(30)])
    settings = Settings(state=state, sandbox="A", environ=dict(os.environ))
    first = []
    for _ in range(10):
        async with Kiln(tools, settings=settings, dev=True) as kiln:
            kiln.tool("greet")
            first.append(await _timed_call(kiln, "greet"))
    found: list[Figure] = []
    async with Kiln(tools, settings=settings, dev=True) as kiln:
        await kiln.call("greet", _ARGUMENTS["greet"])
        await asyncio.sleep(1)
        size = _proportional_memory()
        found.append(Figure("idle fork server", f"{size:.1f} MB", "≤ 15 MB", size <= 15))
        latency = {}
        for name in _TOOLS:
            await _warm_up(kiln, name)
            latency[name] = statistics.median(
                [await _timed_call(kiln, name) for _ in range(_CALLS)]
            )
        rate = await _rate(lambda: kiln.call("greet", _ARGUMENTS["greet"]))
    async with Kiln(tools, settings=settings, dev=True) as kiln:
        found.append(await _flat(kiln))
    faster = cold / latency["greet"]
    plain = await _forking_rate(tools)
    share = rate / plain
    found += [
        Figure("cold bwrap + Python / a call, mode A", f"{faster:.1f} ×", "≥ 8 ×", faster >= 8),
        Figure(
            f"calls/s at {_CONCURRENT} / plain fork server",
            f"{share:.2f} × ({rate:.0f} / {plain:.0f})",
            "≥ 0.67 ×",
            share >= 400 / 600,
        ),
        at_most("tool with pydantic / stdlib tool, warm", latency["order"] / latency["greet"], 3),
        at_most("tool with pandas / stdlib tool, warm", latency["table"] / latency["greet"], 3),
        at_most("first call after start / cold bwrap", statistics.median(first) / cold, 1.5),
        Figure(
            "milliseconds, for orientation",
            f"cold {cold * 1e3:.0f}, call {latency['greet'] * 1e3:.1f}, "
            f"pydantic {latency['order'] * 1e3:.1f}, pandas {latency['table'] * 1e3:.1f}",
            "",
            True,
        ),
    ]
    return found


async def _warm_up(kiln: Kiln, name: str) -> None:
    for _ in range(10):
        result = await kiln.call(name, _ARGUMENTS[name])
        assert result.status == "ok", result
        await asyncio.sleep(0.3)


async def _flat(kiln: Kiln) -> Figure:
    """What ten thousand calls leave behind in this process."""
    await _rate(lambda: kiln.call("greet", _ARGUMENTS["greet"]))
    await asyncio.sleep(1)
    before = _footprint()
    for _ in range(10):
        await _rate(lambda: kiln.call("greet", _ARGUMENTS["greet"]), _MANY // 10)
    await asyncio.sleep(1)
    after = _footprint()
    grown = (after[0] - before[0]) / 1e6
    told = f"{grown:+.1f} MB, descriptors {before[1]} → {after[1]}"
    told += f", processes {before[2]} → {after[2]}"
    holds = after[1:] == before[1:] and grown <= 5
    return Figure(f"after {_MANY:,} calls", told, "flat (≤ 5 MB)", holds)


def _footprint() -> tuple[int, int, int]:
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    processes = len(_descendants(os.getpid()))
    return resident, len(os.listdir("/proc/self/fd")), processes  # noqa: PTH208


def _proportional_memory() -> float:
    """Megabytes of the fork server's process, its shared pages shared out."""
    server = _descendants(os.getpid())[-1]
    for line in Path(f"/proc/{server}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise LookupError("no Pss")


def _descendants(pid: int) -> list[int]:
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, file.read_text().split()):
            found += [child, *_descendants(child)]
    return found


async def _timed_call(kiln: Kiln, name: str) -> float:
    started = time.perf_counter()
    result = await kiln.call(name, _ARGUMENTS[name])
    assert result.status == "ok", result
    return time.perf_counter() - started


async def _rate(call: Callable[[], Awaitable[object]], calls: int = 1000) -> float:
    gate = asyncio.Semaphore(_CONCURRENT)

    async def one() -> None:
        async with gate:
            await call()

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(calls)))
    return calls / (time.perf_counter() - started)


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _call_cold(tools: Path) -> None:
    """What a careful program does without us: bwrap, Python, the same call."""
    bwrap, python = find_bwrap(), interpreter()
    assert bwrap is not None
    command = [str(bwrap), "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--clearenv"]
    for path in ("/usr", "/lib", "/lib64", str(python.prefix)):
        command += ["--ro-bind", path, path]
    command += ["--ro-bind", str(tools), "/tool", "--proc", "/proc", "--dev", "/dev"]
    command += ["--tmpfs", "/tmp", "--chdir", "/", "--"]
    command += [str(python.executable), "-I", "-B", "-c", _COLD, json.dumps(_ARGUMENTS["greet"])]
    subprocess.run(command, check=True, stdout=subprocess.PIPE, env={})


async def _forking_rate(tools: Path) -> float:
    """A fork server in bwrap that forks for each call and does nothing else."""
    import socket

    bwrap, python = find_bwrap(), interpreter()
    assert bwrap is not None
    control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    binds = [*common_binds(python), Bind(tools, "/tool")]
    command = [*python.command, "-c", _FORKING, str(far.fileno())]
    running = start(bwrap, python, Launch(binds, command, (far.fileno(),)))
    far.close()
    loop = asyncio.get_running_loop()
    data = json.dumps(_ARGUMENTS["greet"]).encode()

    async def call() -> None:
        near, end = socket.socketpair()
        near.setblocking(False)
        socket.send_fds(control, [data], [end.fileno()])
        end.close()
        assert await loop.sock_recv(near, 65536)
        near.close()

    await call()
    rate = await _rate(call)
    control.close()
    running.kill()
    running.reap()
    running.read_errors()
    return rate


if __name__ == "__main__":
    for figure in figures():
        print(*figure, sep="  ")
