"""A server with the tools that the checks call by name, and the programs that call them."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = Path(__file__).parent / "tools"
COMMAND = Path(sys.executable).with_name("toolkiln")
BOUND = 120.0
"""Seconds that anything may take before a test gives up."""
SETTINGS = """state = "state"
dev = true
drain_seconds = 1

# The person at the client is the one who runs these checks.
[[rules]]
effect = "ask"
tools = ["test_streaming_*", "test_input_required_*_state"]
approve_own = true
"""


@dataclass(frozen=True)
class Programs:
    """What npm installed."""

    folder: Path

    def environ(self, home: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
        """Variables of a process that has Node 22 and a home of its own."""
        ours = ("TOOLKILN_", "XDG_", "npm_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "CLAUDE")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        node = next(self.folder.glob("node_modules/node-*/bin"))
        path = f"{node}{os.pathsep}{clean.get('PATH', '')}"
        return {**clean, "PATH": path, "HOME": str(home), "NO_COLOR": "1", **(variables or {})}

    def run(
        self,
        home: Path,
        name: str,
        *arguments: str | Path,
        variables: Mapping[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run one of them, by its name or by where its binary lies, in a folder."""
        places = sorted(
            (self.folder / "node_modules").glob(name if "/" in name else f".bin/{name}")
        )
        if not places:
            pytest.skip(f"{name} is not installed: `make conformance` does that")
        return subprocess.run(
            [places[0], *arguments],
            cwd=home,
            env=self.environ(home, variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOUND,
        )


@pytest.fixture(scope="session")
def programs() -> Programs:
    """The programs of `package.json`; without them there is nothing to check."""
    folder = Path(sys.prefix) / "npm"
    if not any(folder.glob("node_modules/node-*/bin/node")):
        pytest.skip("npm has installed nothing: `make conformance` does that")
    return Programs(folder)


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tools and settings that serve them as they are."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(TOOLS, folder / "tools", ignore=shutil.ignore_patterns("_*"))
    (folder / "toolkiln.toml").write_text(SETTINGS)
    return folder


@pytest.fixture(scope="session")
def url(project: Path, programs: Programs) -> Iterator[str]:
    """Where a server speaks MCP, to clients that are the local agent without a credential."""
    with subprocess.Popen(
        [sys.executable, Path(__file__).with_name("as_agent.py")],
        cwd=project,
        env=programs.environ(project),
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stderr is not None
            found = (re.search(r"http://\S+/mcp", line) for line in server.stderr)
            yield next(match[0] for match in found if match)
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
