"""Calls over Redis: a client and a worker of Toolkiln beside those of ready-made queues.

All use the same redis-server, one after another, round by round, each side in a process of its
own (`bench.queued` for the queues, in environments of their own). By the clock, each at its best.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import uv

from bench import broker, peers
from bench.broker import Broker, Commands
from bench.queued import IN_FLIGHT, QUEUES
from bench.timing import Figure

_ROOT = Path(__file__).parent.parent
_HOMES = _ROOT / ".venv" / "queues"
_ROUNDS = 3
_ALONE = 200
"""Calls one after another, in a turn."""
_TOGETHER = 1000
"""Calls with 64 of them under way, in a turn."""
_COUNTED = 1000


class Speed(NamedTuple):
    """Of one client and one worker, at their best."""

    median: float
    """Seconds of a call while no other is under way."""
    rate: float
    """Calls a second while 64 are."""
    commands: Commands
    """Of `_COUNTED` calls while 64 are under way."""


class Sides(NamedTuple):
    """How to start a worker and its client."""

    worker: list[str]
    client: list[str]


class Client:
    """A client's process, which makes calls when told to."""

    def __init__(self, process: "subprocess.Popen[str]", errors: IO[str]) -> None:
        self._process = process
        self._errors = errors

    def turn(self, calls: int, in_flight: int) -> tuple[float, float]:
        """The seconds that all the calls took, and the median of one.

        Raises:
            EOFError: the client failed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(calls, in_flight, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            said = self._errors.read().splitlines()
            raise EOFError(said[-1] if said else "the client ended")
        taken = json.loads(line)
        return taken["seconds"], taken["median"]


def measure(server: Broker, sides: Sides) -> Speed:
    """One round of one kind."""
    server.flush()
    with started(sides.worker), calling(sides.client) as client:
        client.turn(_ALONE, 1)
        _, median = client.turn(_ALONE, 1)
        client.turn(_TOGETHER, IN_FLIGHT)
        rate = max(_TOGETHER / client.turn(_TOGETHER, IN_FLIGHT)[0] for _ in range(2))
        with server.counting() as counted:
            client.turn(_COUNTED, IN_FLIGHT)
    return Speed(median, rate, counted[0])


@contextmanager
def started(command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker's process, killed at the end."""
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
    """A client's process, killed at the end."""
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


def figures() -> Iterator[Figure]:
    """What each queue does, in calls a second, in PINGs and in commands."""
    refused = _install()
    with broker.running() as server:
        pings, speeds, failed = [], dict[str, Speed](), dict[str, str]()
        for _ in range(_ROUNDS):
            for name in QUEUES.keys() - refused.keys() - failed.keys():
                pings.append(server.ping())
                try:
                    measured = measure(server, _sides(name, server.url()))
                except EOFError as error:
                    failed[name] = str(error)
                    continue
                speeds[name] = _better(speeds.get(name, measured), measured)
    ping = min(pings)
    yield Figure("PING", f"{ping * 1e6:.0f} µs", "", True)
    for name, reason in (refused | failed).items():
        yield Figure(f"calls over {name} (not measured)", peers.cell(reason), "", None)
    for name, speed in sorted(speeds.items(), key=lambda pair: -pair[1].rate):
        yield Figure(f"calls over Redis by {name} {_version(name)}", _line(speed, ping), "", True)


def _line(speed: Speed, ping: float) -> str:
    sent, in_scripts = (count / _COUNTED for count in speed.commands)
    return (
        f"{speed.rate:,.0f} calls/s at {IN_FLIGHT}, {speed.median / ping:.1f} PINGs at 1, "
        f"{sent:.1f} commands a call and {in_scripts:.1f} in scripts"
    )


def _better(one: Speed, other: Speed) -> Speed:
    return Speed(
        min(one.median, other.median),
        max(one.rate, other.rate),
        min(one.commands, other.commands),
    )


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
