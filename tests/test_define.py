"""What authors import works when a tool file is simply imported, in a test of its own."""

import asyncio
import inspect
from pathlib import Path
from typing import Any, get_args

import pytest

from tables import each_row
from toolkiln import (
    BaseTool,
    Context,
    OutputKind,
    ToolError,
    ToolResult,
    define,
    method_metadata,
    openapi_schema,
    prompt,
    resource,
    tool,
    tool_metadata,
)
from toolkiln.model.spec import ToolSpec
from toolkiln.spec.dialects.functions import OPTIONS, PROMPT_OPTIONS


def double(x: int) -> int:
    """Double it."""
    return 2 * x


@each_row(
    "mark",
    [
        tool,
        tool(),
        tool(name="other"),
        tool(weight=3, network=["x.org"], read_only=True),
        prompt,
        prompt(name="other"),
        resource("numbers://{x}", mime_type="text/plain", timeout=3),
    ],
)
def test_a_mark_returns_the_function_itself(mark: Any) -> None:
    assert mark(double) is double
    assert double(3) == 6
    assert str(inspect.signature(double)) == "(x: int) -> int"
    assert (double.__name__, double.__doc__) == ("double", "Double it.")


def test_a_marked_coroutine_is_still_one() -> None:
    @tool(parallel=True)
    async def half(x: int) -> int:
        return x // 2

    assert inspect.iscoroutinefunction(half)
    assert asyncio.run(half(6)) == 3


def test_a_toolkit_works_as_the_class_it_is() -> None:
    @tool_metadata(display_name="Files", icon="folder", weight=3, visible=True)
    class Files:
        @method_metadata(display_name="Read", is_core=True)
        @openapi_schema({"type": "object", "properties": {}})
        def read(self) -> str:
            return "text"

        @openapi_schema({"name": "x"})
        async def write(self) -> str:
            return "done"

    assert Files().read() == "text"
    assert asyncio.run(Files().write()) == "done"
    assert inspect.isclass(Files)


def test_toolkit_metadata_may_be_given_by_position() -> None:
    @tool_metadata("Files", "Works with files.", "folder", "#fff", True, 7, True)
    class Files:
        @method_metadata("Read", "Reads.", True, False)
        def read(self) -> str:
            return "text"

    assert Files().read() == "text"


def test_marks_work_on_static_and_class_methods() -> None:
    class Kit:
        @staticmethod
        @method_metadata()
        def a() -> int:
            return 1

        @method_metadata()
        @classmethod
        def b(cls) -> int:
            return 2

    assert (Kit.a(), Kit.b()) == (1, 2)


def test_the_reader_knows_every_option_of_the_decorator() -> None:
    assert set(OPTIONS) == define.ToolOptions.__annotations__.keys()
    assert set(PROMPT_OPTIONS) == define.FunctionOptions.__annotations__.keys()


@pytest.mark.parametrize("mark", [tool, prompt, lambda **given: resource("x:y", **given)])
def test_a_mark_refuses_what_it_does_not_know(mark: Any) -> None:
    with pytest.raises(TypeError, match="colour"):
        mark(colour="red")


def test_output_kinds_are_those_of_the_model() -> None:
    annotation = ToolSpec.model_fields["output_kind"].annotation
    literals = {value for part in get_args(annotation) for value in get_args(part)}

    assert {kind.value for kind in OutputKind} == literals


class Echo(BaseTool):
    """Says it again."""

    name = "echo"
    description = "Echo."

    def execute(self, args: dict[str, Any]) -> ToolResult:
        return ToolResult(ok=True, stdout=args["text"])


def test_a_base_tool_can_be_called_by_hand() -> None:
    echo = Echo()

    assert echo.execute({"text": "a"}) == ToolResult(True, "a", "", {})
    assert echo.validate_args({}) == (True, "")
    assert echo.needs_permission({}) is False
    assert echo.get_detailed_description() == "Echo.\n\nSays it again."


def test_a_base_tool_may_use_properties() -> None:
    class Shout(BaseTool):
        @property
        def name(self) -> str:
            return "shout"

        @property
        def description(self) -> str:
            return "Shout."

        def execute(self, args: dict[str, Any]) -> ToolResult:
            return ToolResult(ok=True)

    shout = Shout()

    assert (shout.name, shout.description) == ("shout", "Shout.")
    assert shout.get_detailed_description().startswith("Shout.\n\n*No detailed")


def test_a_base_tool_without_execute_has_no_instances() -> None:
    class Half(BaseTool):
        name = "half"

    with pytest.raises(TypeError, match="execute"):
        Half()  # type: ignore[abstract]


def test_the_kinds_of_streams_follow_that_of_the_output() -> None:
    class Reader(Echo):
        output_semantic_type = OutputKind.KNOWLEDGE

    echo, reader = Echo(), Reader()

    assert echo.output_semantic_type == echo.stdout_semantic_type == OutputKind.STATUS
    assert reader.stdout_semantic_type == OutputKind.KNOWLEDGE
    assert reader.stderr_semantic_type == OutputKind.ERROR


def test_a_result_is_short_in_logs() -> None:
    results = [ToolResult(ok=True, stdout="x" * 1_000), ToolResult(ok=False, stderr="no")]

    assert [repr(result) for result in results] == [
        "ToolResult(✓, stdout_len=1000, stderr_len=0)",
        "ToolResult(✗, stdout_len=0, stderr_len=2)",
    ]


def test_two_results_share_nothing() -> None:
    ToolResult(ok=True).meta["x"] = 1

    assert ToolResult(ok=True).meta == {}


def test_a_context_made_by_hand_records_what_was_sent() -> None:
    context = Context()
    context.report_progress(1, 2, "half")
    context.send_file("a.txt")
    context.send_message({"text": "hi"})
    context.inject_tools("a", "b")
    context.log("a line")

    assert context.progress == [(1, 2, "half")]
    assert context.sent_files == [Path("a.txt")]
    assert context.sent_messages == [{"text": "hi"}]
    assert context.injected_tools == ["a", "b"]
    assert Context().injected_tools == []


def test_a_tool_error_says_whether_to_try_again() -> None:
    assert str(ToolError("No such city.")) == "No such city."
    assert ToolError("Busy.", retryable=True).retryable
    assert not ToolError("No.").retryable


def test_a_context_shows_no_secrets_and_no_settings() -> None:
    context = Context(secrets={"KEY": "s3cret"}, settings={"key": "s3cret"}, platform="discord")

    assert "s3cret" not in repr(context)
    assert "discord" in repr(context)


def test_approval_may_depend_on_a_function() -> None:
    def is_risky(args: dict[str, Any]) -> bool:
        return bool(args)

    @tool(needs_approval=is_risky)
    def act() -> None: ...

    assert act.__toolkiln_tool__["needs_approval"] is is_risky  # type: ignore[attr-defined]
