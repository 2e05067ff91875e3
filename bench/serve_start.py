"""How long a client waits for the tools of a server that it starts: `toolkiln mcp` and FastMCP.

From the start of the process to the answer to `tools/list`, over stdio, by the clock, at the
best of several starts, taking turns. Toolkiln has a folder of 1,000 admitted files, FastMCP ten
functions of the same text. The list of Toolkiln holds what its clients get: above the setting
`mcp_tools` the tools that find the others.
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench import peers
from bench.timing import Figure
from bench.wire import LEGACY, MODERN, Pipes, WrongAnswer, message

_OURS, _THEIRS = 1_000, 10
_STARTS = 8
_TOOL = '''
def convert_{number}(amount: float, currency: str, times: int = 1) -> dict[str, float]:
    """Convert an amount of money, in the way number {number}.

    Args:
        amount: For one piece.
        currency: The code of the currency, such as EUR.
        times: How many pieces.
    """
    return {{currency: amount * times}}
'''
_FASTMCP = """\
from fastmcp import FastMCP

server = FastMCP("bench")
{tools}
if __name__ == "__main__":
    server.run(transport="stdio", show_banner=False, log_level="CRITICAL")
"""


class _Server(NamedTuple):
    """Something that a client starts."""

    command: list[str]
    folder: Path
    environ: dict[str, str]
    listed: Callable[[int], bool]
    """Whether a list has as many tools as it should."""


def figures() -> Iterator[Figure]:
    """The start of both, in both eras, and with all tools listed; after `peers.install`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, theirs = _toolkiln(folder, listing=40), _fastmcp(folder)
        shutil.rmtree(folder / "state" / "readings")  # what admitting them left
        first = _start(ours, LEGACY)
        whole = _toolkiln(folder, listing=_OURS)
        for era, called in ((MODERN, "modern"), (LEGACY, "legacy")):
            mine, all_listed, peer = _best([ours, whole, theirs], era)
            yield Figure(
                f"start of `toolkiln mcp` with {_OURS:,} tools / FastMCP with {_THEIRS}, {called}",
                f"{mine / peer:.2f} × ({mine * 1e3:.0f} / {peer * 1e3:.0f} ms)",
                "≤ 1 ×",
                mine <= peer,
            )
            yield Figure(
                f"the same with all {_OURS:,} listed, {called}",
                f"{all_listed / peer:.2f} × ({all_listed * 1e3:.0f} ms)",
                "",
                True,
            )
        yield Figure(
            f"the same, when none of the {_OURS:,} files was read before",
            f"{first * 1e3:,.0f} ms",
            "",
            True,
        )


def _best(servers: list[_Server], era: str) -> list[float]:
    best = [float("inf")] * len(servers)
    for _ in range(_STARTS):
        for index, server in enumerate(servers):
            best[index] = min(best[index], _start(server, era))
    return best


def _start(server: _Server, era: str) -> float:
    """The seconds to the end of the list."""
    started = time.perf_counter()
    process = subprocess.Popen(
        server.command,
        cwd=server.folder,
        env=server.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        pipes, found, params = Pipes(process, era), 0, dict[str, Any]()
        while True:
            page = pipes.ask(message("tools/list", era, params))
            found += len(page["tools"])
            if page.get("nextCursor") is None:
                break
            params = {"cursor": page["nextCursor"]}
        taken = time.perf_counter() - started
    finally:
        process.kill()
        process.communicate()
    if not server.listed(found):
        raise WrongAnswer(f"{server.command[0]} listed {found} tools")
    return taken


def _toolkiln(folder: Path, *, listing: int) -> _Server:
    tools = folder / "tools"
    command = str(peers.PYTHON.with_name("toolkiln"))
    environ = {"TOOLKILN_STATE": str(folder / "state"), "TOOLKILN_MCP_TOOLS": str(listing)}
    if not tools.exists():
        tools.mkdir()
        for number in range(_OURS):
            Path(tools, f"convert_{number}.py").write_text(_TOOL.format(number=number), "utf-8")
        admit = [command, "admit", "--yes", "--no-probe", "--tools", "tools"]
        subprocess.run(admit, cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
    is_right = (lambda n: n >= _OURS) if listing >= _OURS else (lambda n: 0 < n <= listing)
    return _Server([command, "mcp", "--tools", "tools"], folder, environ, is_right)


def _fastmcp(folder: Path) -> _Server:
    program = folder / "peer.py"
    tools = "\n".join(f"\n@server.tool{_TOOL.format(number=number)}" for number in range(_THEIRS))
    program.write_text(_FASTMCP.format(tools=tools), "utf-8")
    return _Server([str(peers.PYTHON), str(program)], folder, {}, lambda n: n == _THEIRS)


if __name__ == "__main__":
    peers.install()
    for figure in figures():
        print(*figure, sep=" | ", flush=True)
