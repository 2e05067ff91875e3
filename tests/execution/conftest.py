"""Kilns over tool files that a test module spells out, and real processes beside them."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import pytest_asyncio

from toolkiln.config import Settings
from toolkiln.kiln import Kiln

MakeKiln = Callable[..., Kiln]
CallElsewhere = Callable[..., "subprocess.Popen[str]"]
CALL_ELSEWHERE = """
    import asyncio, json, os, sys
    from pathlib import Path
    from toolkiln.config import Settings
    from toolkiln.kiln import Kiln

    async def main(tools, state, name, arguments, call_id, background):
        grants = {name: {"workspace": "write"}}
        settings = Settings(state=Path(state), grants=grants, environ=dict(os.environ))
        options = {"call_id": call_id, "background": json.loads(background)}
        async with Kiln(Path(tools), settings=settings, dev=True) as kiln:
            await kiln.call(name, json.loads(arguments), **options)
            await kiln.tasks.wait(call_id)

    asyncio.run(main(*sys.argv[1:]))
"""


def write(folder: Path, sources: Mapping[str, str]) -> None:
    """Write tool files, their indentation taken off."""
    for name, source in sources.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(source), "utf-8")


def kiln_of(folder: Path, sources: Mapping[str, str], **options: Any) -> Kiln:
    """A Kiln over these files; what is not about tools is a setting."""
    write(folder / "tools", sources)
    beside = {name: options.pop(name) for name in ("functions", "resolve_host") if name in options}
    given = {"state": folder / "state", "environ": dict(os.environ), **options}
    tools = folder / "tools" if sources else None
    return Kiln(tools, settings=Settings(**given), **beside, dev=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kiln(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Kiln]:
    """One Kiln for a module: its TOOLS by file name, its SETTINGS, its FUNCTIONS."""
    module = request.module
    options = dict(getattr(module, "SETTINGS", {}), functions=getattr(module, "FUNCTIONS", ()))
    async with kiln_of(tmp_path_factory.mktemp("kiln"), module.TOOLS, **options) as kiln:
        yield kiln


@pytest.fixture
def make_kiln(tmp_path: Path) -> MakeKiln:
    """Makes Kilns in one folder, so that a second one finds the state of the first."""
    return lambda sources, **options: kiln_of(tmp_path, sources, **options)


@pytest.fixture
def start_python() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts a program beside the tests; dead at the end, and with it all that it started."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str | Path) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", dedent(code), *map(str, arguments)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def call_elsewhere(start_python: CallElsewhere) -> CallElsewhere:
    """Calls a tool in another process, over the tools and the state of a Kiln."""

    def call(
        kiln: Kiln, name: str, arguments: object, call_id: str, *, background: bool = False
    ) -> "subprocess.Popen[str]":
        assert kiln.services.path
        options = (name, json.dumps(arguments), call_id, json.dumps(background))
        return start_python(CALL_ELSEWHERE, kiln.services.path, kiln.settings.state, *options)

    return call
