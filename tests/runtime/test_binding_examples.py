"""The example tools take the arguments that their schemas name."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tables import each_row
from toolkiln import Kiln
from toolkiln.model.spec import Dialect, ToolSpec
from toolkiln.runtime.binder import Binder

FOLDER = Path(__file__).parents[2] / "examples" / "tools"
SPECS = dict(Kiln(FOLDER, dev=True).specs(role=None))


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
