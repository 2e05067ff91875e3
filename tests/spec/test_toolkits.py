"""Toolkit classes: `@tool_metadata`, `@method_metadata`, `@openapi_schema`."""

from pathlib import Path

from reading import findings, one, reading, rules

from tables import each_row
from toolkiln.model.source import Severity
from toolkiln.model.spec import Dialect, Toolkit
from toolkiln.spec.reader import read

FILES = '''
from agentpress.tool import Tool, ToolResult, method_metadata, openapi_schema, tool_metadata

@tool_metadata(
    display_name="Files",
    description="Works with files.",
    icon="folder",
    color="bg-blue-100",
    is_core=True,
    weight=20,
    visible=True,
)
class SandboxFilesTool(Tool):
    """Docs of the class."""

    def __init__(self, project_id: str): ...

    def helper(self, x: int): ...

    @method_metadata(display_name="Delete It", description="Deletes.", is_core=True, visible=False)
    @openapi_schema({
        "type": "function",
        "function": {
            "name": "delete_file",
            "description": "Delete a file.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string", "minLength": 1}},
                "required": ["path"],
            },
        },
    })
    async def delete_file(self, path: str) -> ToolResult:
        """Docs of the method."""

    @method_metadata()
    def read_file(self, path: str, limit: int = 10) -> str:
        """Read a file."""
'''


def test_marked_methods_are_tools_of_one_toolkit() -> None:
    delete, read = reading(FILES).tools

    assert delete.dialect is read.dialect is Dialect.TOOLKIT
    assert (delete.name, delete.entry) == ("delete_file", "SandboxFilesTool.delete_file")
    assert delete.toolkit == read.toolkit
    assert delete.toolkit == Toolkit(
        name="SandboxFilesTool",
        display_name="Files",
        description="Works with files.",
        icon="folder",
        color="bg-blue-100",
        is_core=True,
        weight=20,
        visible=True,
    )


def test_what_a_method_declares_is_its_own() -> None:
    delete, read = reading(FILES).tools

    assert (delete.display_name, delete.description) == ("Delete It", "Deletes.")
    assert (delete.is_core, delete.visible, delete.is_async) == (True, False, True)
    assert (read.display_name, read.description) == ("Read File", "Read a file.")
    assert (read.visible, read.is_async) == (True, False)


def test_a_schema_written_by_hand_is_taken_as_it_is() -> None:
    assert reading(FILES).tools[0].parameters == {
        "type": "object",
        "properties": {"path": {"type": "string", "minLength": 1}},
        "required": ["path"],
    }


def test_a_method_without_one_gets_a_schema_from_its_signature() -> None:
    assert reading(FILES).tools[1].parameters == {
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer", "default": 10}},
        "required": ["path"],
        "additionalProperties": False,
    }


@each_row(
    "schema",
    [
        '{"type": "function", "function": {"name": "f", "parameters": S}}',
        '{"name": "f", "parameters": S}',
        '{"name": "f", "input_schema": S}',
        '{"parameters": S}',
        "S",
        "SCHEMAS['f']",
    ],
)
def test_the_schema_is_found_in_every_wrapping(schema: str) -> None:
    source = f"""
    S = {{"type": "object", "properties": {{"x": {{"type": "integer"}}}}, "required": ["x"]}}
    SCHEMAS = {{"f": S}}
    class Kit:
        @openapi_schema({schema})
        def f(self, x): ...
    """

    assert one(source).parameters["properties"] == {"x": {"type": "integer"}}
    assert "unknown-value" not in rules(source)


@each_row("signature, about", [("self", "'x'"), ("self, x, y", "'y'"), ("self, z=1", "'x'")])
def test_a_schema_that_disagrees_with_the_method_is_a_finding(signature: str, about: str) -> None:
    source = f"""
    class Kit:
        @openapi_schema({{"type": "object", "properties": {{"x": {{}}}}, "required": ["x"]}})
        def f({signature}): ...
    """

    found = findings(source, "schema-mismatch")

    assert any(about in item.message for item in found)
    assert {(item.line, item.severity) for item in found} == {(3, Severity.ERROR)}


@each_row(
    "imports, kit, method",
    [
        ("from toolkiln.define import *", "tool_metadata", "method_metadata"),
        ("from a.b import tool_metadata, method_metadata", "tool_metadata", "method_metadata"),
        ("", "tool_metadata", "method_metadata"),
        ("import toolkiln as tk", "tk.tool_metadata", "tk.method_metadata"),
        ("from toolkiln import method_metadata as method", "tool_metadata", "method"),
    ],
)
def test_decorators_count_by_name_wherever_they_come_from(
    imports: str, kit: str, method: str
) -> None:
    source = f"""
{imports}
@{kit}(weight=3)
class Kit:
    @{method}(display_name="It")
    def f(self): ...
"""

    tool = one(source)

    assert (tool.display_name, tool.dialect) == ("It", Dialect.TOOLKIT)
    assert tool.toolkit is not None
    assert tool.toolkit.weight == 3


def test_metadata_may_be_given_by_position() -> None:
    source = """
    @tool_metadata("Files", "Works with files.", "folder", "#fff", True, 7, True)
    class Kit:
        @method_metadata("It", "Does it.", True, False)
        def f(self): ...
    """

    tool = one(source)

    assert tool.toolkit == Toolkit(
        name="Kit", display_name="Files", description="Works with files.", icon="folder",
        color="#fff", is_core=True, weight=7, visible=True,
    )  # fmt: skip
    assert (tool.display_name, tool.description) == ("It", "Does it.")
    assert (tool.is_core, tool.visible) == (True, False)


def test_two_toolkits_of_one_file_stay_apart() -> None:
    source = """
    @tool_metadata(weight=1)
    class One:
        @method_metadata()
        def a(self): ...
    @tool_metadata(weight=2)
    class Two:
        @method_metadata()
        def b(self): ...
    """

    assert [tool.toolkit.name for tool in reading(source).tools if tool.toolkit] == ["One", "Two"]


def test_methods_of_one_name_in_two_toolkits_are_an_error() -> None:
    source = """
    class One:
        @method_metadata()
        def a(self): ...
    class Two:
        @method_metadata()
        def a(self): ...
    """

    assert [(item.line, item.severity) for item in findings(source, "duplicate-name")] == [
        (7, Severity.ERROR)
    ]


def test_types_defined_inside_the_class_are_found() -> None:
    source = """
    from enum import Enum
    class Kit:
        class Mode(Enum):
            A = "a"
        @method_metadata()
        def f(self, mode: Mode): ...
    """

    assert one(source).parameters["$defs"]["Mode"]["enum"] == ["a"]


@each_row(
    "options",
    ["weight='3'", "weight=True", "is_core='yes'", "visible=1", "display_name=3", "description=4",
     "icon=5", "color=6"],
)  # fmt: skip
def test_toolkit_metadata_of_the_wrong_kind_is_an_error_and_left_out(options: str) -> None:
    result = reading(
        f"@tool_metadata({options})\nclass Kit:\n    @method_metadata()\n    def f(self): ..."
    )

    assert any(item.severity is Severity.ERROR and item.fix for item in result.findings)
    assert result.tools[0].toolkit == Toolkit(
        name="Kit", display_name="Kit", description="Kit functionality"
    )


@each_row(
    "imports, base, names",
    [
        ("from core.agentpress.tool import Tool", "Tool", ["count"]),
        ("import agentpress.tool as a", "a.Tool", ["count"]),
        ("from core.sandbox.tool_base import SandboxToolsBase as S", "S", ["count"]),
        ("from elsewhere import Tool", "Tool", []),
    ],
)
def test_a_subclass_of_sunas_tool_needs_no_decorators(
    imports: str, base: str, names: list[str]
) -> None:
    source = f"""
{imports}
class Shared({base}):
    def shared(self): ...
class Kit(Shared):
    def __init__(self, project_id: str): ...
    def count(self, text: str): ...
    def fail_response(self, msg: str): ...
    @property
    def size(self): ...
"""

    assert [tool.name for tool in reading(source).tools] == names


def test_a_core_tool_is_shown_whatever_is_visible() -> None:
    source = """
    @tool_metadata(is_core=K)
    class Kit:
        @method_metadata(is_core=M, visible=V)
        def f(self): ...
    """
    shown = {
        (kit, method, visible): one(
            source.replace("K", str(kit)).replace("M", str(method)).replace("V", str(visible))
        ).is_shown
        for kit in (True, False)
        for method in (True, False)
        for visible in (True, False)
    }

    assert [key for key, is_shown in shown.items() if not is_shown] == [
        (True, False, False), (False, False, True), (False, False, False),
    ]  # fmt: skip


def test_what_suna_has_or_installs_for_its_files_needs_no_list(tmp_path: Path) -> None:
    (tmp_path / "shared.py").write_text("import litellm\n")
    of_suna = "from {}agentpress.tool import Tool, openapi_schema\n"
    source = "import httpx, structlog, utils.logger\nclass Kit(Tool):\n    def f(self): ...\n"

    old, recent = (reading(of_suna.format(core) + source) for core in ("", "core."))
    other = reading("from elsewhere import Tool\n" + source)
    helped = read(of_suna.format("") + "from . import shared\n" + source, tmp_path / "kit.py")

    assert [tool.requirements for tool in old.tools] == [("httpx", "structlog")]
    assert [f.message for f in old.findings if f.rule == "unlisted-import"] == []
    assert [tool.requirements for tool in recent.tools] == [("httpx", "structlog")]
    assert [tool.requirements for tool in helped.tools] == [("httpx", "structlog", "litellm")]
    unlisted = " ".join(f.message for f in other.findings if f.rule == "unlisted-import")
    assert [name in unlisted for name in ("httpx", "structlog", "utils")] == [True] * 3
