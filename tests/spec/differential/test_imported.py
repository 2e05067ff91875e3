"""The probe's comparison over the same modules: where reading is right, it has to be silent."""

import sys
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, settings

from tables import each_row
from toolkiln.define import Context
from toolkiln.execution.executor import ExecutionOutcome, Invocation
from toolkiln.execution.probe import run_probe
from toolkiln.model.base import JsonSchema
from toolkiln.model.tool import ResolvedTool
from toolkiln.runtime.probe import Probe
from toolkiln.spec.reader import read

from .cases import CASES, REFUSED, Case
from .generate import modules, signatures

MOST = 5
"""The differences that the probe reports of one tool."""

_UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


class InProcess:
    """Runs a probe right here; only for source that the tests wrote themselves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def run(self, invocation: Invocation) -> ExecutionOutcome:
        for name, data in invocation.tool.sources().items():
            (self._folder / name).write_bytes(data)
        context = Context()
        with _modules_as_they_were():
            program = Probe(str(self._folder / "program.py"))
            value = program.run(context, **invocation.arguments)
        return ExecutionOutcome(value=value, messages=context.sent_messages)

    async def close(self) -> None: ...


@contextmanager
def _modules_as_they_were() -> Iterator[None]:
    path, known = list(sys.path), set(sys.modules)
    # `List["Beta"]` is cached with what "Beta" meant in the module that wrote it first.
    for forget in typing._cleanups:  # type: ignore[attr-defined]
        forget()
    try:
        yield
    finally:
        sys.path[:] = path
        for name in {name for name in sys.modules if name.startswith(("_tool", "tool"))} - known:
            del sys.modules[name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the probed files lie."""
    return tmp_path_factory.mktemp("probed")


async def differences(source: str, folder: Path, **wrong: JsonSchema) -> list[str]:
    """What the probe says against schemas, some made wrong; nothing if the import fails."""
    tools = []
    for spec in read(source, folder / "tool.py").tools:
        properties = spec.parameters["properties"]
        given = {name: wrong.get(name, schema) for name, schema in properties.items()}
        parameters = {**spec.parameters, "properties": given}
        changed = spec.model_copy(update={"parameters": parameters})
        tools.append(ResolvedTool(changed, lambda: {"tool.py": source.encode()}))
    findings = await run_probe(InProcess(folder), tools, None)
    return [finding.message for finding in findings if finding.rule == "schema-differs"]


@pytest.mark.filterwarnings("ignore")
@each_row("case", [*CASES, *REFUSED], batches=16)
async def test_written_cases_agree(case: Case, folder: Path) -> None:
    assert await differences(case.source, folder) == []


@pytest.mark.filterwarnings("ignore")
@settings(suppress_health_check=_UNHURRIED)
@given(source=modules() | signatures())
async def test_generated_modules_agree(source: str, folder: Path) -> None:
    note(f"the module:\n\n{source}")

    assert await differences(source, folder) == []


@pytest.mark.filterwarnings("ignore")
async def test_written_cases_disagree_with_other_types(folder: Path) -> None:
    silent, compared = [], 0
    for case in CASES[::4]:
        (spec, *_) = read(case.source, folder / "tool.py").tools
        properties = spec.parameters["properties"].items()
        typed = [name for name, schema in properties if "type" in schema][:MOST]
        if "TYPE_CHECKING" not in case.source:
            compared += len(typed)
            wrong = {name: {"type": "other"} for name in typed}
            if len(await differences(case.source, folder, **wrong)) < len(typed):
                silent.append(case.name)

    assert compared > 100
    assert silent == []
