"""`@prompt` and `@resource`: functions that are no tools to a model."""

from reading import findings, names, one, reading, rules

from tables import each_row
from toolkiln.model.source import Reading
from toolkiln.model.spec import Dialect, Role

NOTE = '''
from toolkiln import resource
@resource({mark})
def note({parameters}):
    """A note of the year."""
'''


@each_row(
    "mark",
    [
        "from toolkiln import prompt\n@prompt",
        "from toolkiln import prompt\n@prompt()",
        "from toolkiln.define import prompt as p\n@p(display_name='Review')",
        "import toolkiln\n@toolkiln.prompt",
        "from fastmcp import FastMCP\nmcp = FastMCP('x')\n@mcp.prompt()",
    ],
)
def test_a_prompt_is_a_function_with_a_role(mark: str) -> None:
    spec = one(f"{mark}\ndef review(code: str): ...\ndef other(): ...")

    assert (spec.role, spec.name, spec.uri) == (Role.PROMPT, "review", None)
    assert spec.dialect is Dialect.DECORATED
    assert spec.parameters["required"] == ["code"]


def test_a_resource_has_an_address_and_a_kind() -> None:
    mark = 'HOME + "{year}", mime_type="text/plain"'
    spec = one('HOME = "notes://"\n' + NOTE.format(mark=mark, parameters="year: int"))

    found = (spec.role, spec.uri, spec.mime_type)
    assert found == (Role.RESOURCE, "notes://{year}", "text/plain")


def test_a_file_may_have_all_three() -> None:
    source = """
    from toolkiln import prompt, resource, tool
    @tool
    def a(): ...
    @prompt
    def b(): ...
    @resource("x:c")
    def c(): ...
    def d(): ...
    """

    assert {spec.name: spec.role for spec in reading(source).tools} == {
        "a": Role.TOOL, "b": Role.PROMPT, "c": Role.RESOURCE
    }  # fmt: skip


def test_a_function_of_two_roles_needs_two_names() -> None:
    both = "from toolkiln import prompt, tool\n@tool\n@prompt{}\ndef f(): ..."

    assert len(findings(both.format(""), "duplicate-name")) == 1
    assert names(both.format("(name='g')")) == ["f", "g"]


def test_a_method_is_neither_prompt_nor_resource() -> None:
    source = """
    from toolkiln import prompt, resource
    class Kit:
        @prompt
        def a(self): ...
        @resource("x:b")
        def b(self): ...
    """

    assert [one.tool for one in findings(source, "misplaced-mark")] == ["a", "b"]
    assert names(source) == []


@each_row(
    "mark, parameters, fits",
    [
        ("", "", False),
        ("mime_type='text/plain'", "", False),
        ("3", "", False),
        ("'today'", "", False),
        ("'notes://{year}'", "", False),
        ("'notes://{year}'", "month: int", False),
        ("'notes://today'", "year: int", False),
        ("'toolkiln://tools/x'", "", False),
        ("'notes://today'", "", True),
        ("'notes://{year}'", "year: int", True),
        ("'notes://{year}'", "year: int, month: int = 1", True),
        ("'notes://{year}'", "year: int, ctx: Context", True),
    ],
)
def test_a_uri_that_does_not_fit_is_an_error(mark: str, parameters: str, fits: bool) -> None:
    source = NOTE.format(mark=mark, parameters=parameters)

    assert rules(source) & {"bad-uri", "duplicate-uri"} == (set() if fits else {"bad-uri"})


def test_two_resources_of_one_address_are_an_error() -> None:
    once = "@resource('notes://today')\ndef {}(): ..."
    source = f"from toolkiln import resource\n{once.format('a')}\n{once.format('b')}"

    (found,) = findings(source, "duplicate-uri")

    assert found.tool == "b"


@each_row(
    "kind, is_reported",
    [
        *((kind, False) for kind in ("str", "int", "bool", "str | None", "Literal['a']", "Colour")),
        *((kind, True) for kind in ("list[str]", "dict[str, int]", "list[int] | None", "Point")),
    ],
)
def test_a_prompt_that_takes_json_is_reported(kind: str, is_reported: bool) -> None:
    source = f"""
    from dataclasses import dataclass
    from enum import Enum
    from typing import Literal
    from toolkiln import prompt

    class Colour(Enum):
        RED = "red"

    @dataclass
    class Point:
        x: int

    @prompt
    def f(x: {kind}): ...
    """

    assert ("prompt-argument" in rules(source)) is is_reported


@each_row("option", ["weight=3", "read_only=True", "usages=['x']", "uri='x:y'"])
def test_a_prompt_takes_no_option_that_says_nothing_of_it(option: str) -> None:
    source = f"from toolkiln import prompt\n@prompt({option})\ndef f(): ..."

    assert "unknown-option" in rules(source)


def test_what_was_stored_before_there_were_roles_is_a_tool() -> None:
    stored = reading("def f(x: int): ...").model_dump(mode="json")
    for key in ("role", "uri", "mime_type"):
        del stored["tools"][0][key]

    assert Reading.model_validate(stored).tools[0].role is Role.TOOL
