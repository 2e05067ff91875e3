"""Calls served to clients: Toolkiln beside FastMCP and beside the MCP SDK's own server.

All three serve the function of `bench.inline`, each in a process of its own, and are called by
the same client (`bench.wire`), taking turns, in the environment of `bench.peers`. Toolkiln does
what it always does for a call: it asks the rules, counts, limits, and writes the record. How
long `toolkiln mcp` takes to start is `bench.serve_start`'s.
"""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench import peers, serve_start
from bench.inline import ARGUMENTS
from bench.served import SERVERS
from bench.timing import Figure
from bench.wire import (
    LEGACY,
    MODERN,
    Line,
    Pipes,
    WrongAnswer,
    call_of,
    mcp_request,
    over_http,
    posting,
)

_ROOT = Path(__file__).parent.parent
_UNDER_WAY = 8
"""Calls under way at once; over HTTP each on a connection of its own."""
_CALLS = 300
"""In one turn."""
_TURNS = 10
_WARM_UP = 200
_LEAST = 2.0
_NAMES = {"toolkiln": "Toolkiln", "fastmcp": "FastMCP", "sdk": "the SDK's server"}


class _Way(NamedTuple):
    """One way to call a tool."""

    name: str
    transport: str
    era: str
    is_plain: bool = False
    """Toolkiln is called by its own HTTP API, the others by MCP over HTTP."""


_WAYS = (
    _Way("MCP over stdio, modern", "stdio", MODERN),
    _Way("MCP over stdio, legacy", "stdio", LEGACY),
    _Way("MCP over HTTP, modern", "http", MODERN),
    _Way("MCP over HTTP, legacy", "http", LEGACY),
    _Way("`POST /v1/tools/NAME/call` / modern MCP over HTTP", "http", MODERN, is_plain=True),
)


class _Speed(NamedTuple):
    """Of one server, at its best."""

    by_clock: float
    """Calls a second, as a client sees it beside whatever else the machine does."""
    by_processor: float
    """Calls in a second of the server's processor time."""


def figures() -> Iterator[Figure]:
    """How many times the calls a second of the others Toolkiln answers, and how it starts."""
    try:
        refused = peers.install()
    except subprocess.CalledProcessError as error:
        yield Figure("serving (not installed)", peers.cell(error.stderr), "", None)
        return
    if "FastMCP" in refused:
        yield Figure("serving (not installed)", peers.cell(refused["FastMCP"]), "", None)
        return
    for way in _WAYS:
        try:
            speeds = _compare(way)
        except (WrongAnswer, OSError) as error:
            yield Figure(f"calls by {way.name} (not measured)", peers.cell(str(error)), "", None)
            continue
        yield from _ratios(way, speeds)
    yield from serve_start.figures()


def _ratios(way: _Way, speeds: dict[str, _Speed]) -> Iterator[Figure]:
    ours = speeds["toolkiln"]
    for peer in ("fastmcp", "sdk"):
        theirs = speeds[peer]
        times = ours.by_processor / theirs.by_processor
        has_bound = peer == "fastmcp"
        yield Figure(
            f"calls/s by {way.name}: Toolkiln / {_NAMES[peer]}",
            f"{times:.1f} × ({ours.by_processor:,.0f} / {theirs.by_processor:,.0f}; "
            f"by the clock {ours.by_clock:,.0f} / {theirs.by_clock:,.0f})",
            f"≥ {_LEAST:g} ×" if has_bound else "",
            times >= _LEAST if has_bound else True,
        )


def _compare(way: _Way) -> dict[str, _Speed]:
    best = dict.fromkeys(SERVERS, _Speed(0, 0))
    with ExitStack() as stack:
        served = {}
        for name in SERVERS:
            process, line = _served(stack, name, way)
            line.call(_WARM_UP)
            served[name] = process, line
        for _ in range(_TURNS):
            for name, (process, line) in served.items():
                measured = _measure(process, line)
                best[name] = _Speed(*map(max, best[name], measured))
    return best


def _measure(process: "subprocess.Popen[bytes]", line: Line) -> _Speed:
    # What clock_getcpuclockid would say: the processor time of all threads of a process.
    clock = (~process.pid << 3) | 2
    used, started = time.clock_gettime(clock), time.perf_counter()
    line.call(_CALLS)
    taken, used = time.perf_counter() - started, time.clock_gettime(clock) - used
    return _Speed(_CALLS / taken, _CALLS / used)


def _served(stack: ExitStack, name: str, way: _Way) -> "tuple[subprocess.Popen[bytes], Line]":
    call, right = call_of("price", ARGUMENTS, way.era), b'"total":37.5'
    if way.transport == "stdio":
        process = _started(name)
        stack.callback(_end, process)
        return process, Pipes(process, way.era).caller(call, right, _UNDER_WAY)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = _started(name, listener)
        stack.callback(_end, process)
        port = listener.getsockname()[1]
    if way.is_plain and name == "toolkiln":
        body = json.dumps({"arguments": ARGUMENTS}).encode()
        request = posting(port, "/v1/tools/price/call", body)
    else:
        request = mcp_request(port, call, "price", way.era)
    line = over_http(port, request, right, _UNDER_WAY)
    stack.callback(line.close)
    return process, line


def _started(name: str, listener: socket.socket | None = None) -> "subprocess.Popen[bytes]":
    given = [] if listener is None else [listener.fileno()]
    where = "stdio" if listener is None else str(listener.fileno())
    return subprocess.Popen(
        [peers.PYTHON, "-m", "bench.served", name, where],
        cwd=_ROOT,
        env={},
        stdin=subprocess.PIPE if listener is None else subprocess.DEVNULL,
        stdout=subprocess.PIPE if listener is None else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=given,
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


if __name__ == "__main__":
    for figure in figures():
        print(*figure, sep=" | ", flush=True)
