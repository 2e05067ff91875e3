"""What the runtime fills in stays out of the schema, in any position and any spelling."""

from pathlib import Path

from reading import files, one, properties, reading, rules

from tables import each_row

CONTEXT = "from toolkiln import Context\n"


@each_row(
    "signature",
    [
        "ctx: Context, x: int",
        "x: int, ctx: Context",
        "x: int, ctx: Context, y: str = 'a'",
        "ctx: Context, /, x: int",
        "x: int, *, ctx: Context",
        "x: int, *, ctx: Context, y: int = 3",
        "x: int, ctx: Context = None",
        "x: int, ctx: Context | None = None",
        "x: int, ctx: None | Context = None",
        "x: int, ctx: Optional[Context] = None",
        "x: int, ctx: typing.Optional[Context] = None",
        "x: int, ctx: Union[Context, None] = None",
        "x: int, ctx: Annotated[Context, 'the call']",
        "x: int, ctx: 'Context'",
        "x: int, ctx: 'Context | None' = None",
        "x: int, ctx: 'Optional[Context]' = None",
        "x: int, ctx: Optional['Context'] = None",
        "x: int, ctx=None",
        "x: int, ctx: dict = None",
        "x: int, ctx: Any = None",
        "x: int, ctx: 'Ctx | None' = None",
        "x: int, *, ctx",
        "ctx, x: int",
    ],
)
def test_the_context_is_hidden_in_any_position(signature: str) -> None:
    imports = f"import typing\nfrom typing import Annotated, Any, Optional, Union\n{CONTEXT}"
    tool = one(f"{imports}def f({signature}): ...")

    assert "ctx" not in tool.parameters["properties"]
    assert tool.parameters["required"] == ["x"]
    assert tool.injected == {"ctx": "context"}
    assert "$defs" not in tool.parameters


@each_row(
    "imports, annotation",
    [
        ("from toolkiln import Context", "Context"),
        ("from toolkiln import Context as C", "C"),
        ("from toolkiln import Context as C", "'C'"),
        ("from toolkiln import Context as C", "C | None"),
        ("from toolkiln.define import Context", "Context"),
        ("import toolkiln", "toolkiln.Context"),
        ("import toolkiln as tk", "tk.Context | None"),
        ("import toolkiln.define as d", "d.Context"),
        ("import toolkiln.define", "toolkiln.define.Context"),
        ("from toolkiln import define", "'define.Context'"),
        ("from elsewhere import Context", "Context"),
        ("from mcp.server import Context", "Context[S, None]"),
        ("from toolkiln import *", "Context"),
        ("from toolkiln import Context\nCtx = Context", "Ctx"),
        ("from toolkiln import Context\nCtx = Context | None", "Ctx"),
        ("from toolkiln import Context\nfrom typing import Optional\nC = Optional[Context]", "C"),
        ("from toolkiln import Context\ntype Ctx = Context", "Ctx"),
        (
            "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from toolkiln import Context",
            "Context",
        ),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
            "    from toolkiln import Context as C",
            "'C'",
        ),
        (
            "try:\n    from toolkiln import Context\nexcept ImportError:\n    Context = None",
            "Context",
        ),
    ],
)
def test_the_context_is_known_by_its_type_whatever_the_parameter_is_called(
    imports: str, annotation: str
) -> None:
    tool = one(f"{imports}\ndef f(x: int, env: {annotation} = None): ...")

    assert list(tool.parameters["properties"]) == ["x"]
    assert tool.injected == {"env": "context"}


@each_row("name", ["context", "ctx", "c"])
@each_row("annotation", ["Context", "Context | None", "'Context'"])
def test_a_class_of_the_file_called_context_is_an_ordinary_argument(
    name: str, annotation: str
) -> None:
    source = f"""
    from pydantic import BaseModel
    class Context(BaseModel):
        text: str
    def f({name}: {annotation}): ...
    """

    tool = one(source)

    assert name in tool.parameters["properties"]
    assert tool.injected == {}


def test_a_class_of_a_helper_called_context_is_an_ordinary_argument(tmp_path: Path) -> None:
    files(
        tmp_path,
        shapes="from dataclasses import dataclass\n@dataclass\nclass Context:\n    a: int",
    )
    source = "from shapes import Context\ndef f(where: Context): ..."

    assert list(properties(source, tmp_path / "f.py")) == ["where"]


@each_row(
    "parameter",
    [
        *("ctx: str", "ctx: int", "ctx: float", "ctx: bool", "ctx: list[str]", "ctx: str | None"),
        *("agent: str", "agent_ids: list[str]", "state: str"),
    ],
)
def test_plain_values_and_names_that_only_resemble_are_ordinary_arguments(parameter: str) -> None:
    assert list(properties(f"def f({parameter}): ...")) == [parameter.partition(":")[0]]


@each_row(
    "annotation",
    ["ContextManager", "RunContext", "MyContext", "'ContextVar'", "Literal['Context']"],
)
def test_a_type_that_only_sounds_like_context_is_not_injected(annotation: str) -> None:
    source = f"from nowhere import *\nfrom typing import Literal\ndef f(x: {annotation}): ..."

    assert one(source).injected == {}


@each_row("form", ["{}", "{}: 'AgentState'", "{}: Any = None", "{}: dict | None = None", "*, {}"])
def test_agent_state_is_injected_by_name(form: str) -> None:
    tool = one(f"from typing import Any\ndef f(x: int, {form.format('agent_state')}): ...")

    assert list(tool.parameters["properties"]) == ["x"]
    assert tool.parameters["required"] == ["x"]
    assert tool.injected == {"agent_state": "agent_state"}


def test_all_that_is_injected_may_come_together() -> None:
    tool = one(
        f"{CONTEXT}def f(agent_state, a: int, ctx: Context, *, agent_id=None, b: int = 1): ..."
    )

    assert list(tool.parameters["properties"]) == ["a", "b"]
    assert tool.injected == {
        "agent_state": "agent_state",
        "ctx": "context",
        "agent_id": "agent_id",
    }


def test_what_is_injected_needs_neither_type_nor_description() -> None:
    source = '''
    def f(x: int, ctx=None, agent_state=None, agent_id=None):
        """Do it well and good.

        Args:
            x: The number.
        """
    '''

    assert not rules(source) & {"missing-annotation", "undescribed-parameter", "unresolved-type"}


DIALECTS = {
    "decorated": f"{CONTEXT}@tool\ndef f(x: int, ctx: Context, agent_id=None): ...",
    "constants": f"{CONTEXT}TOOL_NAME = 'f'\ndef run(x: int, ctx: Context, agent_id=None): ...",
    "constants by hand": f"{CONTEXT}TOOL_NAME = 'f'\n"
    "TOOL_PARAMETERS = {'type': 'object', 'properties': {'x': {}}, 'required': ['x']}\n"
    "def run(x, ctx: Context, agent_id=None): ...",
    "toolkit": f"{CONTEXT}class K:\n    @method_metadata()\n"
    "    def f(self, x: int, ctx: Context, agent_id=None): ...",
    "toolkit by hand": f"{CONTEXT}class K:\n"
    "    @openapi_schema({'type': 'object', 'properties': {'x': {}}, 'required': ['x']})\n"
    "    def f(self, x, ctx: Context, agent_id=None): ...",
    "base tool": f"{CONTEXT}class K(BaseTool):\n"
    "    parameters = {'type': 'object', 'properties': {'x': {}}, 'required': ['x']}\n"
    "    def execute(self, args, ctx: Context, agent_id=None): ...",
    "open webui": f"{CONTEXT}class Tools:\n"
    "    def f(self, x: int, ctx: Context, agent_id=None): ...",
}


@each_row("dialect", DIALECTS)
def test_injection_is_the_same_in_every_dialect(dialect: str) -> None:
    tool = one(DIALECTS[dialect])

    assert list(tool.parameters["properties"]) == ["x"]
    assert tool.injected == {"ctx": "context", "agent_id": "agent_id"}
    assert "schema-mismatch" not in rules(DIALECTS[dialect])


def test_self_and_cls_are_hidden_in_methods() -> None:
    source = """
    class K:
        @method_metadata()
        def a(self, x: int): ...
        @classmethod
        @method_metadata()
        def b(cls, x: int): ...
        @method_metadata()
        @staticmethod
        def c(x: int): ...
        @method_metadata()
        def d(self, /, x: int): ...
        @method_metadata()
        def e(this, x: int): ...
    """

    assert [list(tool.parameters["properties"]) for tool in reading(source).tools] == [["x"]] * 5
    assert all(tool.injected == {} for tool in reading(source).tools)


def test_a_method_that_takes_only_variadic_arguments_loses_none() -> None:
    source = "class K:\n    @method_metadata()\n    def a(*args: int): ..."

    assert list(properties(source)) in (["args"], [])
