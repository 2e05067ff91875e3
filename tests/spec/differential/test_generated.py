"""Generated modules, read statically and derived by pydantic: a thousand in one run.

The counts scale with the hypothesis profile; `conftest` registers a thorough one.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, note, reject

from properties import examples
from toolkiln.spec.reader import read

from . import normal, oracle
from .generate import modules, signatures

# Writing a module takes many draws; slow to hypothesis is a few milliseconds here.
_UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing beside the tool."""
    return tmp_path_factory.mktemp("tools")


@examples(2000, suppress_health_check=_UNHURRIED)
@given(source=modules())
@example(source="from typing import Any\n\ndef anything() -> Any: ...\n")
def test_schemas_of_a_generated_module_equal_pydantics(source: str, folder: Path) -> None:
    _compare(source, folder)


@examples(1000, suppress_health_check=_UNHURRIED)
@given(source=signatures())
def test_schemas_of_a_generated_signature_equal_pydantics(source: str, folder: Path) -> None:
    _compare(source, folder)


def _compare(source: str, folder: Path) -> None:
    note(f"the module:\n\n{source}")
    try:
        expected = oracle.ask(source)
    except oracle.RefusedError:
        reject()
    assume(not any(item.refusal for item in expected))

    tools = {tool.name: tool for tool in read(source, folder / "tool.py").tools}

    assert sorted(tools) == sorted(item.name for item in expected)
    for item in expected:
        tool = tools[item.name]
        assert normal.text(tool.parameters) == normal.text(item.parameters)
        assert normal.text(tool.returns) == normal.text(item.returns)
