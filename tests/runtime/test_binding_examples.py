"""The example tools, bound with the arguments that the gateway lets through."""

import importlib.util
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tables import each_row
from toolkiln import Kiln
from toolkiln.model.spec import Dialect, ToolSpec
from toolkiln.runtime.binder import Binder
from toolkiln.schema.arguments import Checked, check

FOLDER = Path(__file__).parents[2] / "examples" / "tools"
SPECS = dict(Kiln(FOLDER, dev=True).specs(role=None))
CONTEXT = object()


def imported(spec: ToolSpec, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    file = FOLDER / Path(spec.path).name
    monkeypatch.syspath_prepend(str(FOLDER))
    name = f"bound_example_{file.stem}"
    found = importlib.util.spec_from_file_location(name, file)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, name, module)
    found.loader.exec_module(module)
    return module


def bound(name: str, arguments: dict[str, Any], module: ModuleType) -> dict[str, Any]:
    spec = SPECS[name]
    checked = check(spec, arguments)
    assert isinstance(checked, Checked), checked
    owner, _, function = spec.entry.rpartition(".")
    holder = getattr(module, owner)() if owner else module
    binder = Binder(getattr(holder, function), injected=spec.injected)
    positional, keywords = binder.bind(checked.arguments, {"context": CONTEXT})
    assert positional == ()
    return keywords


def test_an_amount_in_a_currency_is_bound_to_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = imported(SPECS["convert_currency"], monkeypatch)
    sent = {"amount": 10.5, "source": "EUR", "target": "USD", "on": "2024-05-01"}

    keywords = bound("convert_currency", sent, module)

    assert keywords["amount"] == Decimal("10.5")
    assert type(keywords["amount"]) is Decimal
    assert keywords["on"] == date(2024, 5, 1)
    assert keywords["ctx"] is CONTEXT


def test_a_schedule_starts_at_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    module = imported(SPECS["explain_cron"], monkeypatch)

    keywords = bound("explain_cron", {"expression": "0 0 * * *", "after": "2024-01-01"}, module)

    assert keywords == {"expression": "0 0 * * *", "after": datetime(2024, 1, 1)}


def test_working_days_take_a_date_and_a_calendar(monkeypatch: pytest.MonkeyPatch) -> None:
    module = imported(SPECS["add_working_days"], monkeypatch)
    calendar = list(module.Calendar)[-1]
    sent = {"start": "2024-01-01", "days": 3.0, "calendar": calendar.value}

    keywords = bound("add_working_days", sent, module)

    assert keywords == {"start": date(2024, 1, 1), "days": 3, "calendar": calendar}
    assert type(keywords["days"]) is int


@each_row(
    "spec",
    [spec for spec in SPECS.values() if spec.dialect is not Dialect.BASE_TOOL],  # one dict,
)
def test_every_example_takes_each_argument_that_its_schema_names(
    spec: ToolSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = imported(spec, monkeypatch)
    owner, _, function = spec.entry.rpartition(".")
    holder = getattr(module, owner)() if owner else module

    binder = Binder(getattr(holder, function), injected=spec.injected)

    named = {slot.argument for slot in binder._slots}
    assert named == spec.parameters["properties"].keys()
