"""Every hand-written case, read statically and derived by pydantic."""

from pathlib import Path

from tables import each_row
from toolkiln.spec.reader import read

from . import normal, oracle
from .cases import CASES, REFUSED, Case, signatures


@each_row("case", CASES, batches=16)
def test_static_schemas_equal_pydantics(case: Case, tmp_path: Path) -> None:
    expected = oracle.ask(case.source)

    reading = read(case.source, tmp_path / "tool.py")

    tools = {tool.name: tool for tool in reading.tools}
    rules = {finding.rule for finding in reading.findings}
    assert not rules & {"unknown-default", "unresolved-type"}
    assert sorted(tools) == sorted(item.name for item in expected)
    for item in expected:
        assert item.refusal == "", "a case needs an oracle; it belongs to REFUSED"
        tool = tools[item.name]
        assert normal.text(tool.parameters) == normal.text(item.parameters)
        assert normal.text(tool.returns) == normal.text(item.returns)


@each_row("case", signatures.KINDS)
def test_properties_have_the_order_of_the_signature(case: Case, tmp_path: Path) -> None:
    (expected,) = oracle.ask(case.source)
    unordered = oracle.variadic(case.source)

    (tool,) = read(case.source, tmp_path / "tool.py").tools

    properties = (expected.parameters or {})["properties"]
    ordered = [name for name in tool.parameters["properties"] if name not in unordered]
    assert ordered == [name for name in properties if name not in unordered]


@each_row("case", REFUSED)
def test_a_type_without_a_schema_is_reported_and_left_open(case: Case, tmp_path: Path) -> None:
    (expected,) = oracle.ask(case.source)

    reading = read(case.source, tmp_path / "tool.py")

    assert expected.parameters is None
    assert any(finding.rule == "unresolved-type" for finding in reading.findings)
    properties = reading.tools[0].parameters["properties"]
    assert "$ref" not in str(properties)
    assert properties["x1"].get("type") in (None, "array")


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in [*CASES, *REFUSED]]

    assert len(names) == len(set(names))
