"""The example tools: they pass the strict check, work as their docstrings say, and compile."""

import doctest
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from toolkiln import Kiln
from toolkiln.app import PROVIDERS, check
from toolkiln.model import Dialect, Severity

FOLDER = Path(__file__).parent.parent / "examples"
FILES = sorted((FOLDER / "tools").glob("[!_]*.py"))
KILN = Kiln(FOLDER / "tools")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_example_passes_the_strict_check(file: Path) -> None:
    reports = list(check([file]))

    found = [finding for report in reports for finding in report.reading.findings]
    assert [f for f in found if f.severity is not Severity.INFO] == []
    assert all(report.reading.tools for report in reports)


def test_examples_have_no_findings_between_files() -> None:
    reports = check([FOLDER / "tools"])

    assert {report.worst for report in reports} <= {None, Severity.INFO}


def test_flawed_example_shows_an_error_and_warnings_with_fixes() -> None:
    (report,) = check([FOLDER / "flawed.py"])

    findings = report.reading.findings
    assert {Severity.ERROR, Severity.WARNING} <= {finding.severity for finding in findings}
    assert all(finding.fix and finding.line for finding in findings)


def test_examples_cover_every_dialect() -> None:
    assert {spec.dialect for spec in KILN.tools.values()} == set(Dialect)


def test_examples_show_what_a_tool_can_declare() -> None:
    specs = KILN.tools.values()

    assert any(spec.is_async for spec in specs)
    assert any(spec.requirements for spec in specs)
    assert any(spec.rights.network for spec in specs)
    assert any(spec.rights.needs_approval for spec in specs)
    assert any(spec.settings for spec in specs)
    assert any("context" in spec.injected.values() for spec in specs)
    assert any(reading.helpers for reading in KILN.readings)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_examples_in_docstrings_are_true(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = imported(file, monkeypatch)

    result = doctest.testmod(module)

    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", sorted(KILN.tools))
def test_example_compiles_for_every_provider(name: str, provider: str) -> None:
    compiled = KILN.compiled(name, provider)

    assert compiled.errors == ()
    assert name in str(compiled.payload)


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
