"""The example tools: they pass the strict check, do what their docstrings say, compile, and run.

Calls go to the sandbox, with the grants of `examples/toolkiln.toml`.
"""

import doctest
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Callable
from ipaddress import IPv4Address, IPv6Address
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio

from preloaded import command
from tables import each_row
from toolkiln import Kiln
from toolkiln.catalog.reports import check
from toolkiln.config import Settings, load
from toolkiln.kiln import PROVIDERS
from toolkiln.model.call import Event, Status
from toolkiln.model.source import Severity
from toolkiln.model.spec import Dialect
from toolkiln.schema.providers import compile_tool

FOLDER = Path(__file__).parent.parent / "examples"
FILES = sorted((FOLDER / "tools").glob("[!_]*.py"))
KILN = Kiln(FOLDER / "tools", dev=True)


def test_examples_pass_the_strict_check_together() -> None:
    reports = list(check([FOLDER / "tools"]))

    found = [finding for report in reports for finding in report.reading.findings]
    assert [f for f in found if f.severity is not Severity.INFO] == []
    assert {report.worst for report in reports} <= {None, Severity.INFO}
    assert {Path(report.reading.path).name for report in reports if report.reading.tools} >= {
        file.name for file in FILES
    }


def test_flawed_example_shows_an_error_and_warnings_with_fixes() -> None:
    (report,) = check([FOLDER / "flawed.py"])

    findings = report.reading.findings
    assert {Severity.ERROR, Severity.WARNING} <= {finding.severity for finding in findings}
    assert all(finding.fix and finding.line for finding in findings)


def test_examples_show_every_dialect_and_what_a_tool_can_declare() -> None:
    specs = KILN.specs(role=None).values()
    readings = [served.reading for served in KILN.catalog.snapshot.served.values()]

    assert {spec.dialect for spec in specs} == set(Dialect)
    assert any(spec.is_async for spec in specs)
    assert any(spec.requirements for spec in specs)
    assert any(spec.rights.network for spec in specs)
    assert any(spec.rights.needs_approval for spec in specs)
    assert any(spec.settings for spec in specs)
    assert any("context" in spec.injected.values() for spec in specs)
    assert any(reading.helpers for reading in readings)


@each_row("file", FILES)
def test_examples_in_docstrings_are_true(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = imported(file, monkeypatch)

    result = doctest.testmod(module)

    assert result.attempted > 0
    assert result.failed == 0


@each_row("name, provider", product(sorted(KILN.specs(role=None)), PROVIDERS))
def test_example_compiles_for_every_provider(name: str, provider: str) -> None:
    compiled = compile_tool(KILN.tool(name), provider)

    assert compiled.errors == ()
    assert name in str(compiled.payload)


OFFERS = [
    {"label": "500 g", "price": "1.79", "quantity": 500, "measure": "g"},
    {"label": "2 kg", "price": 5.96, "quantity": 2, "measure": "kg"},
]
CALLS: dict[str, tuple[dict[str, Any], Callable[[Any], bool]]] = {
    "add_working_days": (
        {"start": "2026-04-02", "days": 1, "calendar": "target"},
        lambda value: value == "2026-04-07",
    ),
    "compare_unit_prices": (
        {"offers": OFFERS},
        lambda value: [offer[0] for offer in value] == ["2 kg", "500 g"],
    ),
    "compare_versions": ({"first": "1.10", "second": "1.9"}, lambda value: value == "newer"),
    "convert_currency": (
        {"amount": "9.5", "source": "EUR", "target": "EUR"},
        lambda value: float(value) == 9.5,
    ),
    "convert_units": (
        {"value": 26.2, "source": "mi", "target": "km", "digits": 2},
        lambda value: value == 42.16,
    ),
    "count_working_days": (
        {"start": "2026-12-21", "end": "2027-01-04", "calendar": "target"},
        lambda value: value == 8,
    ),
    "draw_lots": ({"choices": ["a", "b", "c"], "count": 2}, lambda value: value["ways"] == 3),
    "explain_cron": (
        {"expression": "30 9 * * mon-fri", "after": "2026-11-13T10:00:00", "count": 1},
        lambda value: value["next_runs"] == ["2026-11-16T09:30:00"],
    ),
    "extract_matches": (
        {"text": "One one", "pattern": "one", "flags": ["ignore_case"]},
        lambda value: [match["text"] for match in value] == ["One", "one"],
    ),
    "format_table": (
        {"rows": [{"a": 1, "b": "x, y"}], "style": "csv"},
        lambda value: value.splitlines() == ["a,b", '1,"x, y"'],
    ),
    "generate_password": ({"length": 12}, lambda value: len(value) == 12 and value.isalnum()),
    "generate_uuids": ({"count": 2, "version": 7}, lambda value: value == sorted(value)),
    "loan_schedule": (
        {
            "loan": {
                "principal": 1000, "annual_rate": 12, "months": 3, "first_payment": "2026-01-31",
            }
        },
        lambda value: [p["due"] for p in value["payments"]][1] == "2026-02-28",
    ),
    "matching_versions": (
        {"versions": ["1.1", "1.2", "1.10", "2.0"], "constraint": "~=1.2"},
        lambda value: value == ["1.10", "1.2"],
    ),
    "query_csv": (
        {"csv_text": "name,age\nAda,36\nAlan,41", "sql": "SELECT max(age) FROM data"},
        lambda value: value["rows"] == [[41]],
    ),
    "query_json": (
        {"document": {"users": [{"name": "Ada"}, {"name": "Alan"}]}, "path": "users[*].name"},
        lambda value: value == ["Ada", "Alan"],
    ),
    "readability": ({"text": "It reads. Nothing happens."}, lambda value: value["score"] > 0),
    "reading_time": ({"text": "word " * 460}, lambda value: value == "460 words, 2 min"),
    "rename_files": (
        {"pattern": "a", "replacement": "b"},
        lambda value: value["meta"] == {"files": 0},
    ),
    "text_diff": (
        {"before": "one\ntwo", "after": "one\n2", "context": 0},
        lambda value: value.splitlines()[-2:] == ["-two", "+2"],
    ),
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kiln]:
    """One Kiln for all calls, with a folder of wheels for the packages that they need."""
    folder = tmp_path_factory.mktemp("examples")
    async with Kiln(settings=load(FOLDER, environ(folder)), dev=True) as kiln:
        yield kiln


@pytest.mark.asyncio(loop_scope="module")
@each_row("name", sorted(KILN.specs(role=None)))
async def test_example_runs_in_the_sandbox(name: str, running: Kiln) -> None:
    arguments, holds = CALLS[name]

    result = await running.call(name, arguments)

    assert result.status is Status.OK, result.error
    assert result.sandbox in ("A", "B", "C")
    assert holds(result.value), result.value


@pytest.mark.asyncio(loop_scope="module")
async def test_currency_that_needs_the_network_fails_honestly_without_one(
    tmp_path: Path,
) -> None:
    asked: list[tuple[str, int]] = []

    async def nowhere(host: str, port: int) -> list[IPv4Address | IPv6Address]:
        asked.append((host, port))
        raise OSError(f"{host} cannot be looked up")

    kiln = Kiln(settings=load(FOLDER, environ(tmp_path)), resolve_host=nowhere, dev=True)
    async with kiln:
        result = await kiln.call(
            "convert_currency", {"amount": 10, "source": "EUR", "target": "USD"}
        )

    assert result.status is Status.FAILED
    assert result.error is not None
    assert (result.error.code, result.error.retryable) == ("tool_error", True)
    assert result.error.message == "api.frankfurter.dev does not answer"
    assert asked == [("api.frankfurter.dev", 443)]


@pytest.mark.asyncio(loop_scope="module")
async def test_examples_that_ask_for_a_right_are_denied_without_the_grant(tmp_path: Path) -> None:
    async with Kiln(FOLDER / "tools", settings=load(tmp_path, {}), dev=True) as kiln:
        for name in ("convert_currency", "rename_files"):
            result = await kiln.call(name, CALLS[name][0])

            assert result.status is Status.DENIED
            assert result.error is not None
            assert f"[grants.{name}]" in str(result.error.hint)


@pytest.mark.asyncio(loop_scope="module")
async def test_files_of_a_session_are_renamed_once_a_person_agrees(running: Kiln) -> None:
    workspace = running.engine.workspaces.open("default", writable=True)
    (workspace.folder / "IMG_7.JPG").write_bytes(b"")
    boss = running.security.sessions.create("boss", privileges=["APPROVE"]).token

    def agree(event: Event) -> None:
        if event.kind == "pending":
            running.security.approve(event.text, session=boss)

    result = await running.call(
        "rename_files",
        {"pattern": r"IMG_(\d)\.JPG", "replacement": r"\1.jpg", "apply": True},
        observe=agree,
    )

    assert result.status is Status.OK, result.error
    assert [file.name for file in workspace.folder.iterdir()] == ["7.jpg"]


@pytest.mark.asyncio(loop_scope="module")
async def test_everything_that_the_attack_tries_is_stopped(tmp_path: Path) -> None:
    async with Kiln(FOLDER / "attack.py", settings=Settings(state=tmp_path), dev=True) as kiln:
        result = await kiln.call("steal_secrets")

    assert result.status is Status.OK, result.error
    assert len(result.value) > 5
    assert {outcome.partition(":")[0] for outcome in result.value.values()} == {"stopped"}


def test_examples_are_called_from_the_command_line(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns(".toolkiln", "_manifest.json", "__pycache__")
    examples = shutil.copytree(FOLDER, tmp_path / "examples", ignore=ignored)
    variables = environ(tmp_path)

    def run(*words: str) -> str:
        done = subprocess.run(
            [command(), *words],
            cwd=examples, env=variables, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("admit", "--yes", "tools/convert_units.py", "tools/compare_versions.py")

    given = ["value=26.2", "source=mi", "target=km", "digits=2"]
    assert run("call", "convert_units", *given) == "42.16\n"
    assert run("call", "compare_versions", '{"first": "1.10", "second": "1.9"}') == "newer\n"


def environ(folder: Path) -> dict[str, str]:
    """Variables for a state of its own and an index that holds what the examples require."""
    wheels = folder / "wheels"
    wheels.mkdir()
    name = f"packaging-{importlib.metadata.version('packaging')}-py3-none-any.whl"
    with zipfile.ZipFile(wheels / name, "w") as archive:
        for file in importlib.metadata.files("packaging") or ():
            if file.suffix != ".pyc":
                archive.write(str(file.locate()), str(file))
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TOOLKILN_", "UV_", "PIP_"))}
    index = {"UV_FIND_LINKS": str(wheels), "UV_NO_INDEX": "1", "PIP_NO_INDEX": "1"}
    return clean | index | {"TOOLKILN_STATE": str(folder / "state")}


def imported(file: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The file as a module, with its helpers importable from beside it."""
    monkeypatch.syspath_prepend(str(file.parent))
    name = f"example_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pydantic look their module up by name.
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module
