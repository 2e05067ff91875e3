"""`@tool`, bare and with arguments, under any name it was imported by."""

from operator import attrgetter
from typing import Any

from reading import findings, names, one, reading, rules

from tables import each_row
from toolkiln.model.source import Severity
from toolkiln.model.spec import Capability, Dialect, Hints


def declared(options: str) -> Any:
    """The tool that `@tool(options)` declares."""
    return one(f'from toolkiln import tool, OutputKind\n@tool({options})\ndef f():\n    "Do it."')


@each_row(
    "mark",
    [
        "from toolkiln import tool\n@tool",
        "from toolkiln import tool\n@tool()",
        "from toolkiln.define import tool\n@tool",
        "from toolkiln import tool as t\n@t",
        "from toolkiln import tool as t\n@t(weight=100)",
        "import toolkiln\n@toolkiln.tool",
        "import toolkiln as tk\n@tk.tool()",
        "import toolkiln.define\n@toolkiln.define.tool",
        "from smolagents import tool\n@tool",
        "from langchain_core.tools import tool\n@tool",
        "from fastmcp import FastMCP\nmcp = FastMCP('x')\n@mcp.tool()",
        "from nowhere import *\n@tool",
        "try:\n    from toolkiln import tool\nexcept ImportError:\n    tool = None\n@tool",
        "def tool(f): return f\n@tool",
        "@tool",
        "@cached\n@tool",
        "@tool\n@cached(ttl=3)",
    ],
)
def test_a_decorator_counts_by_its_name(mark: str) -> None:
    tool = one(f"{mark}\ndef f(x: int): ...\ndef other(): ...")

    assert (tool.dialect, tool.name) == (Dialect.DECORATED, "f")


def test_marked_functions_of_any_name_are_tools_and_nothing_else() -> None:
    source = "@tool\ndef b(): ...\ndef x(): ...\n@tool()\ndef main(): ...\n@tool\ndef __a(): ..."

    assert names(source) == ["b", "main", "__a"]


def test_bare_and_called_forms_say_the_same() -> None:
    bare, called = (one(f"{mark}\ndef f(x: int): ...") for mark in ("@tool", "@tool()"))

    assert bare.model_dump(exclude={"digest"}) == called.model_dump(exclude={"digest"})


@each_row(
    "options, field, value",
    [
        ("name='other'", "name", "other"),
        ("description='Said outright.'", "description", "Said outright."),
        ("display_name='Shown So'", "display_name", "Shown So"),
        ("icon='folder-open'", "icon", "folder-open"),
        ("color='#ff0000'", "color", "#ff0000"),
        ("weight=5", "weight", 5),
        ("weight=-5", "weight", -5),
        ("is_core=True", "is_core", True),
        ("visible=False", "visible", False),
        ("parallel=True", "parallel", True),
        ("isolation='call'", "isolation", "call"),
        ("pinned=True", "pinned", True),
        ("output_kind='file_view'", "output_kind", "file_view"),
        ("output_kind=OutputKind.FILE_VIEW", "output_kind", "file_view"),
        ("usages=['how much is it']", "usages", ("how much is it",)),
        ("requirements=['httpx>=0.27']", "requirements", ("httpx>=0.27",)),
        ("requirements=('httpx',)", "requirements", ("httpx",)),
        ("read_only=True", "hints", Hints(read_only=True)),
        ("destructive=False", "hints", Hints(destructive=False)),
        ("idempotent=True, open_world=False", "hints", Hints(idempotent=True, open_world=False)),
        ("timeout=2.5", "limits.timeout", 2.5),
        ("timeout=3", "limits.timeout", 3),
        ("memory='256MB'", "limits.memory", 256 * 2**20),
        ("memory=1024", "limits.memory", 1024),
        ("cpu=0.5", "limits.cpu", 0.5),
        ("processes=4", "limits.processes", 4),
        ("disk='1 GiB'", "limits.disk", 2**30),
        ("return_char_limit=1", "limits.return_char_limit", 1),
        ("return_char_limit=1_000_000", "limits.return_char_limit", 1_000_000),
        ("weight=1", "limits.return_char_limit", 50_000),
        ("weight=1", "limits.timeout", None),
        ("network=['api.example.com']", "rights.network", ("api.example.com",)),
        ("requires_secrets=['API_KEY']", "rights.secrets", ("API_KEY",)),
        ("capabilities=['files']", "rights.capabilities", (Capability.FILES,)),
        ("workspace='read'", "rights.workspace", "read"),
        ("sandbox=False", "rights.sandbox", False),
        ("needs_approval=True", "rights.needs_approval", True),
        ("weight=1", "rights.sandbox", True),
        ("weight=1", "rights.network", ()),
    ],
)
def test_what_is_declared_is_in_the_spec(options: str, field: str, value: object) -> None:
    assert attrgetter(field)(declared(options)) == value


@each_row(
    "options",
    [
        "name=NAME", "name='ot' + 'her'", "name='ot' 'her'", "name=f'{NAME}'",
        "name=Names.OTHER", "name=Names.OTHER.value", "**COMMON", "'other'",
    ],
)  # fmt: skip
def test_options_may_be_constants_of_the_module(options: str) -> None:
    source = f"""
    from enum import StrEnum
    NAME = "other"
    COMMON = {{"name": "other"}}
    class Names(StrEnum):
        OTHER = "other"
    @tool({options})
    def f(): ...
    """

    assert one(source).name == "other"


@each_row("options", ["name=os.environ['N']", "**load()", "**{'name': make()}"])
def test_an_option_known_only_at_run_time_is_reported(options: str) -> None:
    source = f"import os\nfrom x import load, make\n@tool(\n    {options},\n)\ndef f(): ..."

    assert [(item.line, item.tool) for item in findings(source, "unknown-value")] == [(4, "f")]


@each_row(
    "options",
    [
        "weight='heavy'", "weight=True", "weight=1.5", "is_core='yes'", "visible=1",
        "timeout=0", "timeout=-1", "timeout='5s'", "timeout=1e999",
        "memory='lots'", "memory=0", "memory=True", "processes=0",
        "return_char_limit=0", "return_char_limit=1_000_001",
        "network='api.example.com'", "network=[1]", "capabilities=['flying']",
        "workspace='both'", "isolation='none'", "pinned='yes'", "output_kind='poem'",
        "name=3", "name=''", "description=3", "display_name=3",
        "requirements='httpx'", "parameters=[]", "parameters='{}'",
    ],
)  # fmt: skip
def test_an_option_of_the_wrong_kind_is_an_error_and_left_out(options: str) -> None:
    result = reading(f'from toolkiln import tool\n@tool({options})\ndef f():\n    "Do it."')

    errors = [item for item in result.findings if item.severity is Severity.ERROR]
    assert errors, "no error"
    assert all(item.fix and item.line in (2, 3) for item in errors)
    plain = one('@tool\ndef f():\n    "Do it."').model_dump(exclude={"digest", "line"})
    assert result.tools[0].model_dump(exclude={"digest", "line"}) == plain


def test_an_option_that_does_not_exist_is_an_error_that_names_it() -> None:
    found = findings("from toolkiln import tool\n@tool(wieght=3)\ndef f(): ...", "unknown-option")

    assert [(item.line, item.severity) for item in found] == [(2, Severity.ERROR)]
    assert "wieght" in found[0].message
    assert "weight" in found[0].fix


def test_options_of_another_library_are_not_reported() -> None:
    assert "unknown-option" not in rules(
        "from langchain.tools import tool\n@tool(return_direct=True)\ndef f(): ..."
    )


def test_a_schema_written_by_hand_goes_before_the_signature() -> None:
    tool = one(
        """
        SCHEMA = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 3}},
                  "required": ["x"]}
        @tool(parameters=SCHEMA)
        def f(x: int): ...
        """
    )

    assert tool.parameters == {
        "type": "object",
        "properties": {"x": {"type": "integer", "minimum": 3}},
        "required": ["x"],
    }


def test_settings_are_the_schema_of_the_class() -> None:
    tool = one(
        """
        from pydantic import BaseModel
        class Rates(BaseModel):
            url: str
            retries: int = 3
        @tool(settings=Rates)
        def f(): ...
        """
    )

    assert tool.settings["operator"]["properties"]["retries"]["default"] == 3
    assert tool.settings["operator"]["required"] == ["url"]


def test_settings_that_cannot_be_read_are_reported() -> None:
    assert {"unresolved-type", "unknown-value"} & rules(
        "from nowhere import Rates\n@tool(settings=Rates)\ndef f(): ..."
    )


def test_line_and_entry_are_those_of_the_function() -> None:
    tool = one("\n@tool(\n    name='other',\n)\nasync def f(): ...")

    assert (tool.line, tool.entry, tool.is_async) == (5, "f", True)
