"""A folder that agents write tools into, Kilns over it, and what a fresh one would serve."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest_asyncio

from toolkiln.catalog.admission_pipeline import AdmissionPipeline
from toolkiln.config import Settings
from toolkiln.kiln import Kiln
from toolkiln.model.admission import AdmissionDecision, AdmissionResult, Stage, ToolDraft
from toolkiln.model.call import Result
from toolkiln.model.catalog import FileState, FileVersion
from toolkiln.model.source import Finding

FIRST = '''
def celsius_to_fahrenheit(celsius: float) -> float:
    """Convert a temperature from Celsius to Fahrenheit.

    Args:
        celsius: The temperature in degrees Celsius.

    Examples:
        >>> celsius_to_fahrenheit(100)
        212.0
    """
    return celsius * 9 / 5 + 32
'''
SECOND = FIRST.replace("* 9 / 5", "* 1.8")
NAME = "celsius_to_fahrenheit"
Probe = Callable[[FileVersion], Awaitable[list[Finding]]]


async def unprobed(_: FileVersion) -> list[Finding]:
    """A probe that finds nothing, where trying the code out is not what a test is about."""
    return []


class Forge:
    """A tools' folder, its state, and the Kilns over it."""

    def __init__(self, folder: Path) -> None:
        self.tools = folder / "tools"
        self.state = folder / "state"
        self._kilns: list[Kiln] = []

    def kiln(self, *, dev: bool = False, probes: bool = True, **settings: Any) -> Kiln:
        """A Kiln that knows nothing yet, as in a process that just started.

        Without probes it does not try out what is written, where a test is not about that.
        """
        given = {"state": self.state, "environ": dict(os.environ), **settings}
        kiln = Kiln(self.tools, settings=Settings(**given), dev=dev)
        if not probes:
            kiln.services.__dict__["pipeline"] = authoring(kiln)
        self._kilns.append(kiln)
        return kiln

    def put(self, file: str, source: str) -> Path:
        """Writes a file as a person does."""
        path = self.tools / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, "utf-8")
        return path

    def served(self, **settings: Any) -> dict[str, str]:
        """The source of each tool that a fresh Kiln would call, by name."""
        snapshot = self.kiln(**settings).catalog.snapshot
        return {
            name: next(iter(snapshot.served[name].sources.values())).decode()
            for name in snapshot.tools
        }

    def states(self) -> list[FileState]:
        """The state of each file, as a fresh Kiln has it."""
        return [status.state for status in self.kiln().catalog.statuses()]

    def files(self) -> dict[str, bytes]:
        """All that lies in the tools' folder, hidden files too, but for the manifest."""
        found = (path for path in self.tools.rglob("*") if path.is_file())
        return {
            str(path.relative_to(self.tools)): path.read_bytes()
            for path in found
            if path.name != "_manifest.json"
        }

    async def close(self) -> None:
        """Ends what Kilns started."""
        for kiln in self._kilns:
            await kiln.close()


@pytest_asyncio.fixture
async def forge(tmp_path: Path) -> AsyncIterator[Forge]:
    """A folder without tools."""
    forge = Forge(tmp_path)
    yield forge
    await forge.close()


async def write(
    kiln: Kiln,
    code: str | bytes,
    name: str = NAME,
    *,
    probe: Probe = unprobed,
    observe: Callable[[Stage], None] = lambda _: None,
    **draft: Any,
) -> AdmissionResult:
    """Write a tool; unless a test says otherwise, without trying it out."""
    way = authoring(kiln, probe)
    return await way.write(
        ToolDraft(code, name, **draft), AdmissionDecision("ann"), observe=observe
    )


def admit(kiln: Kiln, file: str, decision: AdmissionDecision | None = None) -> None:
    """Admit what is on disk, unless a test says otherwise as the operator does."""
    admissions = kiln.services.admissions
    admissions.admit([admissions.candidate(file)], decision or kiln.security.decision())


async def unindexed() -> None:
    """An index that is not updated, where search is not what a test is about."""


def authoring(
    kiln: Kiln, probe: Probe = unprobed, index: Callable[[], Awaitable[None]] = unindexed
) -> AdmissionPipeline:
    """The way into a Kiln's catalog, without trying code out or search."""
    return AdmissionPipeline(
        kiln.services.admissions, frozenset(kiln.settings.refuse), probe, index
    )


async def call_writer(kiln: Kiln, code: str, name: str = NAME, **more: Any) -> Any:
    """What `write_python_tool` replies to an agent."""
    given = {"tool_code": code, "tool_name": name, **more}
    return answer(await kiln.call("write_python_tool", given))


def answer(result: Result) -> Any:
    """What a call gave."""
    assert result.value is not None, result.error
    return result.value


def stop_at(wanted: Stage, stop: Callable[[], object]) -> Callable[[Stage], None]:
    """An observer that does something when a stage is entered."""

    def observe(stage: Stage) -> None:
        if stage is wanted:
            stop()

    return observe
