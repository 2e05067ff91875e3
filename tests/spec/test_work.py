"""Sources that are written to be expensive: reading stays linear, and limits are reported.

Work is counted as calls of functions, so that no test depends on the speed of the machine.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tables import each_row
from toolkiln.catalog.reports import repairs_for, report
from toolkiln.model.source import FileReport
from toolkiln.spec.limits import MAX_FINDINGS, MAX_PARAMETERS, MAX_TOOLS, MAX_VALUES
from toolkiln.spec.reader import read

DOCUMENTED = '\n  """Do what its name says."""\n'

MOST_BYTES = 3_000_000


def tools(count: int) -> str:
    return "\n".join(f"def f{i}(a): pass" for i in range(count))


def parameters(count: int) -> str:
    return "def f(" + ",\n".join(f"a{i}" for i in range(count)) + f"):{DOCUMENTED}"


def values(count: int) -> str:
    listed = ", ".join(f'"v{i}"' for i in range(count))
    return f"from typing import Literal\ndef f(a: Literal[{listed}]):{DOCUMENTED}"


def members(count: int) -> str:
    listed = "\n".join(f'  V{i} = "v{i}"' for i in range(count))
    return f"from enum import Enum\nclass E(Enum):\n{listed}\ndef f(a: E):{DOCUMENTED}"


def alternatives(count: int) -> str:
    classes = "\n".join(f"@dataclass\nclass C{i}:\n  a: int" for i in range(count))
    union = " | ".join(f"C{i}" for i in range(min(count, 50)))
    taken = f"def f(a: {union}):{DOCUMENTED}"
    return f"from dataclasses import dataclass\n{classes}\n{taken}"


def ignore_comments(count: int) -> str:
    comments = "\n".join("# toolkiln: ignore[literal-secret]" for _ in range(count))
    return f"{comments}\ndef f(a: int):{DOCUMENTED}"


def mixins(count: int) -> str:
    classes = "\n".join(f"class C{i}:\n  a{i}: int" for i in range(count))
    bases = ", ".join(f"C{i}" for i in range(count))
    head = "from pydantic import BaseModel\n"
    return f"{head}{classes}\nclass C(BaseModel, {bases}): pass\ndef f(a: C):{DOCUMENTED}"


def shared_values(count: int) -> str:
    """Tools that all take the same long enumeration."""
    listed = ", ".join(map(str, range(count)))
    taken = "\n".join(f"def f{i}(a: L):{DOCUMENTED}" for i in range(count))
    return f"from typing import Literal\nL = Literal[{listed}]\n{taken}"


def shared_text(count: int) -> str:
    """Tools that all have the same long default."""
    text = "x" * 100 * count
    return f'X = "{text}"\n' + "\n".join(f"def f{i}(a: str = X):{DOCUMENTED}" for i in range(count))


def doubling_values(count: int) -> str:
    steps = "\n".join(f'P{i + 1} = {{"a": P{i}, "b": P{i}}}' for i in range(16))
    taken = "\n".join(f"def f{i}(a: dict = P16):{DOCUMENTED}" for i in range(count))
    return f'P0 = {{"a": 1}}\n{steps}\n{taken}'


def members_as_defaults(count: int) -> str:
    listed = "\n".join(f"  V{i} = {i}" for i in range(count))
    taken = "\n".join(f"def f{i}(a: int = E.V{i}):{DOCUMENTED}" for i in range(count))
    return f"from enum import Enum\nclass E(Enum):\n{listed}\n{taken}"


def statements(count: int) -> str:
    return "x\n" * count


def checked(source: str) -> FileReport:
    return report(read(source, "<source>"), {})


def size(source: str, found: FileReport) -> int:
    """The bytes of what an author gets to see."""
    repairs = [repair for repair in repairs_for(source, found) if repair is not None]
    return sum(
        len(one.model_dump_json())
        for one in (*found.reading.tools, *found.reading.findings, *repairs)
    )


def calls(source: str) -> int:
    """The calls of functions that reading a source takes, its repairs included."""
    count = 0

    def profile(_: FrameType, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        repairs_for(source, checked(source))
    finally:
        sys.setprofile(before)
    return count


@each_row(
    "make",
    [
        tools,
        parameters,
        values,
        members,
        members_as_defaults,
        alternatives,
        ignore_comments,
        mixins,
    ],
)
def test_twice_the_source_takes_no_more_than_about_twice_the_work(
    make: Callable[[int], str],
) -> None:
    calls(make(2))  # what is loaded with the first use

    assert calls(make(160)) < 2.5 * calls(make(80))


@each_row("make", [shared_values, shared_text, doubling_values])
def test_a_source_that_repeats_itself_is_read_up_to_a_limit(make: Callable[[int], str]) -> None:
    found = checked(make(400)).reading

    assert not found.tools
    assert "too-complex" in {finding.rule for finding in found.findings}


@pytest.mark.parametrize(
    ("make", "count", "rules"),
    [
        (tools, 5_000, {"too-many-tools", "too-many-findings"}),
        (parameters, 8_000, {"too-many-parameters"}),
        (values, 20_000, {"unresolved-type"}),
        (members, 10_000, {"unresolved-type"}),
        (ignore_comments, 5_000, {"too-many-findings"}),
        (statements, 400_000, {"file-too-large"}),
    ],
)
def test_what_exceeds_a_limit_is_left_out_and_reported(
    make: Callable[[int], str], count: int, rules: set[str]
) -> None:
    source = make(count)

    report = checked(source)

    found = report.reading
    assert rules <= {finding.rule for finding in found.findings}
    assert len(found.tools) <= MAX_TOOLS
    assert len(found.findings) <= MAX_FINDINGS + 1
    assert size(source, report) < MOST_BYTES


def test_sources_at_the_limits_are_read_whole() -> None:
    assert len(checked(tools(MAX_TOOLS)).reading.tools) == MAX_TOOLS
    one = checked(parameters(MAX_PARAMETERS)).reading.tools[0]
    assert len(one.parameters["properties"]) == MAX_PARAMETERS
    one = checked(values(MAX_VALUES)).reading.tools[0]
    assert len(one.parameters["properties"]["a"]["enum"]) == MAX_VALUES


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="f-strings are parsed with the rest")
def test_an_f_string_of_countless_expressions_is_refused_before_it_is_parsed() -> None:
    found = checked('x = f"' + "{a}" * 30_000 + '"').reading

    assert {finding.rule for finding in found.findings} >= {"file-too-large"}


def test_blank_lines_in_a_docstring_cost_no_more_than_words() -> None:
    blank = "system" + "\n" * 20_000 + "system x"

    found = checked(f'def f(a: int):\n  """Do it.\n\n  {blank}\n  """\n').reading

    assert [tool.name for tool in found.tools] == ["f"]
