"""A service for each mode of the sandbox, under attack by the tools in `attacks/`."""

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from execution import conftest as execution_conftest
from sandbox.network.loopback import on_loopback
from toolkiln.config import Settings
from toolkiln.kiln import Kiln
from toolkiln.model.call import Result, Status
from toolkiln.model.identity import Caller
from toolkiln.sandbox.bubblewrap import PACKAGE, Interpreter, find_cgroup, interpreter
from toolkiln.sandbox.executor import SandboxExecutor
from toolkiln.sandbox.launchers import ProcessLauncher
from toolkiln.sandbox.network.access import Networks
from toolkiln.sandbox.network.proxy import Resolve

ATTACKS = Path(__file__).with_name("attacks")
TRYING = (ATTACKS / "trying.py").read_text("utf-8")
"""Helpers for tools of other modules."""
BOUND = 10.0
"""Seconds that anything may take before a test gives up."""
CONCURRENT = 6
"""Attacks side by side."""
SECRET = "the host's secret"
all_modes = pytest.mark.parametrize("service", ["A", "B", "C"], indirect=True)
one_mode = pytest.mark.parametrize("service", ["A"], indirect=True)
"""For what the host or the runtime decides alike in every mode."""
_NOBODY = Caller(workspace="default")


@dataclass(frozen=True)
class Service:
    """A Kiln under attack."""

    mode: str
    kiln: Kiln
    state: Path
    secret: Path
    """A file of the host that everybody there can read."""

    _sessions: dict[str, str] = field(default_factory=dict)

    def _session(self, caller: Caller) -> str:
        known = caller.model_dump_json()
        if known not in self._sessions:
            self._sessions[known] = self.kiln.security.sessions.local(caller)
        return self._sessions[known]

    async def attack(self, tool: str, /, caller: Caller = _NOBODY, **arguments: Any) -> Result:
        """Call a tool; whatever it does, there is one plain result, and the next call works."""
        result = await self.kiln.call(tool, arguments, session=self._session(caller))

        assert result.status not in (Status.UNAVAILABLE, Status.INVALID), result.error
        whole = result.model_dump(mode="json")
        json.dumps(whole, ensure_ascii=False, allow_nan=False).encode()
        after = await self.kiln.call("good", {"number": 1})
        assert (after.status, after.value) == (Status.OK, 2), after.error
        assert result.sandbox == self.mode
        return result

    async def codes(self, tool: str, /, cases: Iterable[dict[str, Any]]) -> list[str]:
        """How attacks side by side were ended."""
        slots = asyncio.Semaphore(CONCURRENT)

        async def one(arguments: dict[str, Any]) -> str:
            async with slots:
                result = await self.attack(tool, **arguments)
                return f"{result.status}: {result.error.code if result.error else None}"

        return await asyncio.gather(*map(one, cases))

    async def value(self, tool: str, /, **arguments: Any) -> Any:
        """The value of an attack that runs to its end."""
        result = await self.attack(tool, **arguments)

        assert result.status is Status.OK, result.error
        return result.value

    async def code(self, tool: str, /, **arguments: Any) -> str:
        """How an attack was ended: the status and the code of the error."""
        result = await self.attack(tool, **arguments)

        assert result.error is not None, result.value
        return f"{result.status}: {result.error.code}"


def settings(state: Path, mode: str, **further: Any) -> Settings:
    """Settings of an operator, with small workspaces."""
    return Settings(
        state=state,
        sandbox=mode,
        allow_reduced=True,
        show_exceptions=True,
        workspace_bytes=4 << 20,
        workspace_files=100,
        **further,
    )


@asynccontextmanager
async def kiln_with_network(
    folder: Path,
    mode: str,
    sources: Mapping[str, str],
    network: Sequence[str],
    *,
    resolve: Resolve = on_loopback,
    **options: Any,
) -> AsyncIterator[Kiln]:
    """A Kiln whose tools may reach these hosts, all of them on this machine."""
    execution_conftest.write(folder / "tools", sources)
    usual = {"grants": {"*": {"network": network}}, "private_networks": ("127.0.0.0/8",)}
    given = settings(folder / f"state-{mode}", mode, **{**usual, **options})
    async with Kiln(folder / "tools", settings=given, resolve_host=resolve, dev=True) as kiln:
        yield kiln


@pytest.fixture(scope="session")
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine can pass through."""
    folder = Path(tempfile.mkdtemp(prefix="attacked-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["A", "B"])
async def service(request: pytest.FixtureRequest, open_folder: Path) -> AsyncIterator[Service]:
    """The service in one mode; `params` of a test name others."""
    mode = request.param
    state = open_folder / mode
    secret = open_folder / f"secret-{mode}"
    secret.write_text(SECRET)
    grants = {"*": {"workspace": "write"}}
    async with Kiln(ATTACKS, settings=settings(state, mode, grants=grants), dev=True) as kiln:
        if mode == "C" and not is_reachable(interpreter()):
            await replace_interpreter(kiln, state)
        await skip_without(kiln, mode, number=1)
        yield Service(mode, kiln, state, secret)
        assert secret.read_text() == SECRET


def is_reachable(python: Interpreter) -> bool:
    """Whether an ordinary user can start it, or we are one."""
    folders = python.executable.parents
    return os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in folders)


def system_python() -> Interpreter | None:
    """A Python of the version that runs this, which every user can start."""
    found = Path(os.path.realpath("/usr/bin/python3"))
    same = found.name == f"python3.{sys.version_info.minor}"
    return Interpreter(found, Path("/usr")) if same and found.exists() else None


async def replace_interpreter(kiln: Kiln, state: Path) -> None:
    """Run mode C on a Python that every user can start."""
    python = system_python()
    if python is None:
        pytest.skip("mode C: no Python here can be started by an ordinary user")
    launcher = ProcessLauncher(python, state, find_cgroup())
    executor = SandboxExecutor(launcher, state, Networks())
    kiln.engine.sandboxes._executors[True] = executor


@pytest.fixture
def marker() -> str:
    """An argument by which `running` finds a process."""
    return f"3600.{secrets.randbelow(10**9):09}"


def running(marker: str) -> list[int]:
    """Processes of the whole machine with this argument."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            if marker.encode() in Path("/proc", pid, "cmdline").read_bytes().split(b"\0"):
                found.append(int(pid))
        except OSError:
            continue
    return found


async def all_gone(marker: str) -> None:
    """Wait until there is no such process."""
    async with asyncio.timeout(BOUND):
        while running(marker):
            await asyncio.sleep(0.02)


kiln = execution_conftest.kiln
make_kiln = execution_conftest.make_kiln
start_python = execution_conftest.start_python


USER = 64990
"""No account has this uid, and sandboxes that root starts run as another one."""


async def run_as_user(
    home: Path, script: str, *arguments: str, start: Iterable[str] = (), needs: Path = PACKAGE
) -> str:
    """What a script prints that an ordinary user runs, who owns the files in a folder."""
    python = system_python()
    packages = Path(sysconfig.get_path("purelib"))
    if python is None or not all(map(_is_open, (needs, packages, PACKAGE))):
        pytest.skip("an ordinary user can reach neither this checkout nor a Python for it")
    for path in (home, *home.iterdir()):
        os.chown(path, USER, USER)
    child = await asyncio.to_thread(
        subprocess.run,
        [*start, str(python.executable), "-c", script, *arguments],
        env={"PYTHONPATH": f"{PACKAGE.parent}:{packages}", "HOME": str(home), "PATH": "/usr/bin"},
        user=USER, group=USER, extra_groups=[], cwd="/", capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    return child.stdout


CALLS = """
import asyncio, json, sys
from ipaddress import ip_address
from pathlib import Path
from toolkiln.config import Settings
from toolkiln.kiln import Kiln

async def on_loopback(host, port):
    return [ip_address("127.0.0.1")]

async def main(tools, state, options, calls):
    given = Settings(state=Path(state), show_exceptions=True, **json.loads(options))
    async with Kiln(tools, settings=given, resolve_host=on_loopback, dev=True) as kiln:
        results = [await kiln.call(tool, arguments) for tool, arguments in json.loads(calls)]
    print(json.dumps([result.model_dump(mode="json") for result in results]))

asyncio.run(main(*sys.argv[1:]))
"""


async def call_as_user(
    home: Path,
    tools: Path,
    calls: list[tuple[str, dict[str, Any]]],
    *,
    start: Iterable[str] = (),
    **options: Any,
) -> list[dict[str, Any]]:
    """The results of calls that an ordinary user's service makes one after another."""
    arguments = [str(tools), str(home / "state"), json.dumps(options), json.dumps(calls)]
    printed = await run_as_user(home, CALLS, *arguments, start=start, needs=tools)
    results: list[dict[str, Any]] = json.loads(printed)
    return results


def _is_open(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


async def skip_without(kiln: Kiln, mode: str, tool: str = "good", **arguments: Any) -> None:
    """Skip if this machine lacks a mode, which must not be because of a layer that failed."""
    trial = await kiln.call(tool, arguments)
    if trial.status is Status.UNAVAILABLE:
        assert trial.error is not None
        assert "failed layers" not in trial.error.message
        pytest.skip(f"mode {mode}: {trial.error.message}")
