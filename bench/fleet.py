"""Calls over Redis: a client and a worker of Toolkiln beside those of ready-made queues.

All use the same redis-server, one after another, round by round, each side in a process of its
own (`bench.queued`, `bench.fleet_sides`), the queues in environments of their own. What happens
to sandboxed calls, to memory and to calls whose worker dies is `bench.fleet_calls`' business.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import uv

from bench import broker, peers
from bench.broker import Broker, Commands
from bench.queued import IN_FLIGHT, QUEUES
from bench.timing import Figure

_ROOT = Path(__file__).parent.parent
_HOMES = _ROOT / ".venv" / "queues"
_OURS = "Toolkiln"
_ROUNDS = 3
_ALONE = 200
"""Calls one after another, in a turn."""
_TOGETHER = 1000
"""Calls with 64 of them under way, in a turn."""
_TURNS = 3
_TICKS = os.sysconf("SC_CLK_TCK")


class Speed(NamedTuple):
    """Of one client and one worker, at their best."""

    median: float
    """PINGs that a call takes while no other is under way."""
    rate: float
    """Calls a second while 64 are under way, by the clock."""
    possible: float
    """The same by the processor time of client, worker and Redis, were the machine idle."""
    commands: Commands
    """Of a turn with 64 under way."""


class Sides(NamedTuple):
    """How to start a worker and its client."""

    worker: list[str]
    client: list[str]
    calls: int = _TOGETHER


class Client:
    """A client's process, which makes calls when told to."""

    def __init__(self, process: "subprocess.Popen[str]", errors: IO[str]) -> None:
        self.process = process
        self._errors = errors

    def turn(self, calls: int, in_flight: int) -> tuple[float, float]:
        """The seconds that all the calls took, and the median of one.

        Raises:
            EOFError: the client failed.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(calls, in_flight, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            self._errors.seek(0)
            said = self._errors.read().splitlines()
            raise EOFError(said[-1] if said else "the client ended")
        taken = json.loads(line)
        return taken["seconds"], taken["median"]


@contextmanager
def started(command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker's process, ended at the end."""
    process = subprocess.Popen(
        command, cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def calling(command: list[str]) -> Iterator[Client]:
    """A client's process, ended at the end."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield Client(process, errors)
        finally:
            process.kill()
            process.communicate()


def our_client(url: str, name: str = "add_one") -> list[str]:
    """What starts a client that calls one of our tools."""
    return [sys.executable, "-m", "bench.fleet_sides", "client", url, name]


def figures() -> Iterator[Figure]:
    """How calls over Redis compare with those of ready-made queues."""
    refused = _install()
    with broker.running() as server:
        every = {_OURS: _our_sides(server.url())}
        every |= {name: _sides(name, server.url()) for name in QUEUES if name not in refused}
        speeds, failed = dict[str, Speed](), dict[str, str]()
        for _ in range(_ROUNDS):
            for name, sides in every.items():
                try:
                    measured = _measure(server, sides)
                except EOFError as error:
                    failed[name] = str(error)
                else:
                    speeds[name] = _better(speeds.get(name, measured), measured)
    if _OURS in speeds:
        yield from _bounds(speeds)
    for name, speed in sorted(speeds.items(), key=lambda pair: -pair[1].rate):
        version = "" if name == _OURS else f" {_version(name)}"
        yield Figure(f"calls over Redis: {name}{version}", _line(speed), "", True)
    for name, reason in (refused | failed).items():
        yield Figure(f"calls over Redis: {name} (not measured)", peers.cell(reason), "", None)


def _measure(server: Broker, sides: Sides) -> Speed:
    server.flush()
    with ExitStack() as stack:
        worker = stack.enter_context(started(sides.worker))
        client = stack.enter_context(calling(sides.client))
        client.turn(_ALONE, 1)
        # Beside each other, so that whatever slows one slows the other.
        median = min(client.turn(_ALONE, 1)[1] / server.ping() for _ in range(_TURNS))
        client.turn(sides.calls, IN_FLIGHT)
        processes = (worker.pid, client.process.pid, server.pid)
        rate = possible = 0.0
        for _ in range(_TURNS):
            before = [_processor(process) for process in processes]
            seconds, _ = client.turn(sides.calls, IN_FLIGHT)
            used = [_processor(p) - b for p, b in zip(processes, before, strict=True)]
            rate = max(rate, sides.calls / seconds)
            possible = max(possible, sides.calls / max(*used, sum(used) / 2))
        with server.counting() as counted:
            client.turn(_TOGETHER, IN_FLIGHT)
    return Speed(median, rate, possible, counted[0])


def _bounds(speeds: dict[str, Speed]) -> Iterator[Figure]:
    ours = speeds[_OURS]
    rates = f"{ours.rate:,.0f} by the clock, {ours.possible:,.0f} by processor time"
    yield Figure(f"calls/s over Redis, {IN_FLIGHT} under way", rates, "≥ 12,000", ours.rate >= 12e3)
    others = {name: speed for name, speed in speeds.items() if name != _OURS}
    if others:
        best = max(others, key=lambda name: others[name].rate)
        times = ours.rate / others[best].rate
        name = f"calls/s over Redis: Toolkiln / {best}, the fastest queue"
        yield Figure(name, f"{times:.1f} ×", "≥ 5 ×", times >= 5)
    yield Figure(
        "a call over Redis, alone / PING", f"{ours.median:.1f} ×", "≤ 6 ×", ours.median <= 6
    )
    sent = ours.commands.sent / _TOGETHER
    yield Figure(
        f"commands sent for a call, {IN_FLIGHT} under way", f"{sent:.2f}", "≤ 3", sent <= 3
    )


def _line(speed: Speed) -> str:
    sent, in_scripts = (count / _TOGETHER for count in speed.commands)
    possible = f" ({speed.possible:,.0f} by processor time)"
    return (
        f"{speed.rate:,.0f} calls/s{possible}, alone {speed.median:.1f} PINGs, "
        f"{sent:.1f} commands a call and {in_scripts:.1f} in scripts"
    )


def _better(one: Speed, other: Speed) -> Speed:
    return Speed(
        min(one.median, other.median),
        max(one.rate, other.rate),
        max(one.possible, other.possible),
        min(one.commands, other.commands),
    )


def _processor(process: int) -> float:
    """The seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _our_sides(url: str) -> Sides:
    worker = [sys.executable, "-m", "bench.fleet_sides", "worker", url]
    return Sides(worker, our_client(url), 10 * _TOGETHER)


def _sides(name: str, url: str) -> Sides:
    start = [str(_python(name)), "-m", "bench.queued", name]
    return Sides([*start, "worker", url], [*start, "client", url])


def _python(name: str) -> Path:
    return _HOMES / name / "bin" / "python"


def _install() -> dict[str, str]:
    """Make the environments; what uv said of each queue that has none."""
    refused = {}
    for name, queue in QUEUES.items():
        home = _HOMES / name
        try:
            _uv("venv", "--clear", "--python", sys.executable, str(home))
            _uv("pip", "install", "--python", str(_python(name)), *queue.packages)
        except subprocess.CalledProcessError as error:
            refused[name] = error.stderr
    return refused


def _version(name: str) -> str:
    package = QUEUES[name].packages[0].partition("[")[0]
    asking = f"import importlib.metadata as m; print(m.version({package!r}))"
    asked = subprocess.run([_python(name), "-c", asking], check=True, stdout=-1, text=True)
    return asked.stdout.strip()


def _uv(*arguments: str) -> None:
    subprocess.run(
        [uv.find_uv_bin(), "--quiet", "--color=never", *arguments],
        check=True,
        stderr=subprocess.PIPE,
        text=True,
    )


if __name__ == "__main__":
    for figure in figures():
        print(*figure, sep=" | ", flush=True)
