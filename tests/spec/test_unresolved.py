"""Types and defaults that cannot be known: left open and reported, never guessed."""

from reading import findings, one, properties, reading, rules

from tables import each_row
from toolkiln.model.source import Severity


@each_row(
    "imports, annotation",
    [
        ("import numpy as np", "np.ndarray"),
        ("from pandas import DataFrame", "DataFrame"),
        ("from pandas import DataFrame", "'DataFrame'"),
        ("from pandas import DataFrame", "DataFrame | None"),
        ("from pandas import DataFrame", "int | DataFrame"),
        ("from pandas import DataFrame", "list[DataFrame]"),
        ("from pandas import DataFrame", "dict[str, DataFrame]"),
        ("from pandas import DataFrame\nfrom typing import Annotated", "Annotated[DataFrame, 3]"),
        ("from pandas import DataFrame\nfrom typing import Optional", "Optional[DataFrame]"),
        ("from pandas import DataFrame\nF = DataFrame", "F"),
        ("from pandas import DataFrame\nclass F(DataFrame): ...", "F"),
        ("from sqlmodel import SQLModel\nclass F(SQLModel):\n    x: int", "F"),
        ("import attrs\n@attrs.define\nclass F:\n    x: int", "F"),
        ("class F: ...", "F | int"),
        ("from typing import Iterator", "Iterator[int]"),
        ("from nowhere import *", "Something"),
        ("", "Undefined"),
        ("", "'not valid ('"),
        ("", "3"),
        ("", "make()"),
        ("F = make()", "F"),
        ("from typing import Generic, TypeVar\nfrom x import B\nclass F(B[int]): ...", "F"),
    ],
)
def test_a_type_from_elsewhere_leaves_the_parameter_open_and_is_reported(
    imports: str, annotation: str
) -> None:
    source = f"{imports}\ndef f(a: int, x: {annotation}, b: str): ..."

    assert properties(source) == {"a": {"type": "integer"}, "x": {}, "b": {"type": "string"}}
    (found,) = findings(source, "unresolved-type")
    assert found.severity is Severity.WARNING
    assert found.tool == "f"
    assert found.fix
    assert found.line == source.count("\n", 0, source.index("def f")) + 1
    assert one(source).parameters["required"] == ["a", "x", "b"]


PLAIN = "class F:\n    def __init__(self, x: int): ..."


@each_row(
    "imports, annotation",
    [
        ("from typing import Callable", "Callable"),
        ("from collections.abc import Callable", "Callable[[int], str] | None"),
        ("from typing import Callable", "list[Callable]"),
        ("", "callable"),
        ("import threading", "threading.Lock"),
        ("from typing import Annotated\nimport sqlite3", "Annotated[sqlite3.Connection, 3]"),
        (PLAIN, "F"),
        (PLAIN, "dict[str, 'F']"),
        (f"from typing import Optional\n{PLAIN}", "Optional[F]"),
    ],
)
def test_a_parameter_that_no_model_can_pass_is_an_error_or_has_its_default(
    imports: str, annotation: str
) -> None:
    docstring = '"""Do it.\n\n    Args:\n        a: One.\n        x: Another.\n    """'
    source = f"{imports}\ndef f(a: int, x: {annotation}):\n    {docstring}\n"
    schema = {"x": {"type": "string"}}
    by_hand = f"TOOL_NAME = 'f'\nTOOL_PARAMETERS = {{'type': 'object', 'properties': {schema}}}\n"

    (error,) = findings(source, "unpassable-type")
    beside = reading(source + "def g(a: int): ...")
    (hidden,) = findings(source.replace("):", " = None):"), "hidden-parameter")

    assert (error.severity, error.tool) == (Severity.ERROR, "f")
    assert error.message.startswith("parameter 'x': a model cannot pass '")
    assert [spec.name for spec in beside.tools] == ["g"]
    assert next(f.severity for f in beside.findings if f.tool == "f") is Severity.WARNING
    assert hidden.severity is Severity.INFO
    optional = one(source.replace("):", " = None):"))
    assert optional.parameters["properties"].keys() == {"a"}
    assert [parameter.name for parameter in optional.documentation.parameters] == ["a"]
    assert reading(f"{imports}\n{by_hand}def run(x: {annotation}): ...").tools[0].name == "f"
    assert "unpassable-type" not in rules(f"{imports}\n{by_hand}def run(x: {annotation}): ...")


def test_a_description_survives_an_unknown_type() -> None:
    source = 'def f(x: Frame):\n    """Do it.\n\n    Args:\n        x: The frame.\n    """'

    assert properties(source) == {"x": {"description": "The frame."}}


def test_an_unknown_type_in_a_model_leaves_no_wrong_schema() -> None:
    source = """
    from pandas import DataFrame
    from pydantic import BaseModel
    class M(BaseModel):
        a: int
        frame: DataFrame
    def f(m: M, b: int): ...
    """

    found = properties(source)

    assert found["b"] == {"type": "integer"}
    assert found["m"] == {} or one(source).parameters["$defs"]["M"]["properties"]["frame"] == {}
    assert "unresolved-type" in rules(source)


def test_a_parameter_of_an_unknown_type_keeps_a_default_that_is_known() -> None:
    source = "from x import T\ndef f(x: T = 3): ..."

    assert properties(source) == {"x": {"default": 3}}
    assert "required" not in one(source).parameters


def test_an_unknown_return_type_is_reported_and_gives_no_schema() -> None:
    source = "from pandas import DataFrame\ndef f() -> DataFrame: ..."

    assert one(source).returns is None
    assert [item.line for item in findings(source, "unresolved-type")] == [2]


@each_row(
    "default",
    [
        "make()", "os.environ['X']", "X", "datetime.now()", "[make()]", "{'a': make()}", "UNKNOWN",
        "lambda: 3", "[n for n in range(3)]", "object()", "a.b.c", "f'{make()}'", "not make()",
        "1 if make() else 2", "make", "...  if make() else 3", "1 / 0",
        "[1][5]", "{}['x']", "'a' + 1", "int('x')", "[*make()]", "2 ** -make()",
    ],
)  # fmt: skip
def test_an_unknown_default_makes_the_parameter_optional_and_is_reported(default: str) -> None:
    source = f"from nowhere import X, make\nimport os\ndef f(a: int, x: int = {default}): ..."

    tool = one(source)

    assert tool.parameters["properties"]["x"] == {"type": "integer"}
    assert tool.parameters["required"] == ["a"]
    (found,) = findings(source, "unknown-default")
    assert (found.line, found.tool) == (3, "f")
    assert found.fix


def test_unknown_things_are_reported_once_each() -> None:
    source = "from x import T\ndef f(a: T, b: T): ...\ndef g(c: T): ..."

    assert len(findings(source, "unresolved-type")) <= 3
    assert {item.tool for item in findings(source, "unresolved-type")} == {"f", "g"}


def test_a_constant_that_is_assigned_twice_is_not_known_for_sure() -> None:
    source = "import x\nN = 1\nif x.y:\n    N = 2\ndef f(n: int = N): ..."

    found = properties(source)["n"].get("default")

    assert found in (None, 2)


def test_a_default_that_a_call_changes_later_is_left_alone() -> None:
    assert reading("N = []\nN.append(3)\ndef f(n: list = N): ...").tools


@each_row(
    "source, line",
    [
        ("from x import S\nTOOL_NAME = 'f'\nTOOL_PARAMETERS = S()\ndef run(a: int): ...", 3),
        ("from x import S\nclass K:\n    @openapi_schema(S)\n    def f(self, a: int): ...", 3),
        ("class K(BaseTool):\n    parameters = make()\n    def execute(self, a: int): ...", 2),
    ],
)
def test_a_schema_known_only_at_run_time_is_reported_and_derived(source: str, line: int) -> None:
    assert [item.line for item in findings(source, "unknown-value")] == [line]
    assert properties(source) == {"a": {"type": "integer"}}
