"""atloop: tools on its `BaseTool` run unchanged, and their documentation is the same everywhere."""

import asyncio

import pytest

from toolkiln.kiln import Kiln
from toolkiln.model.call import Event, Status

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = {
    "glossary.py": '''
        from typing import Any, Dict, Optional

        from atloop.runtime.sandbox_adapter import SandboxAdapter
        from atloop.tools.base import BaseTool, ToolResult
        from atloop.tools.output_semantic_type import OutputSemanticType


        class GlossaryTool(BaseTool):
            """
            Look up a term of the glossary.

            **⚠️ CRITICAL**: Terms are **case-sensitive**.

            **Use cases:**
            - Explaining a term to a newcomer
            """

            def __init__(self, sandbox: SandboxAdapter):
                self.sandbox = sandbox

            @property
            def name(self) -> str:
                return "glossary"

            @property
            def description(self) -> str:
                return "Look up what a term means."

            @property
            def output_semantic_type(self) -> OutputSemanticType:
                return OutputSemanticType.KNOWLEDGE_CONTENT

            def validate_args(self, args: Dict[str, Any]) -> tuple[bool, Optional[str]]:
                if not args["term"].strip():
                    return False, "Argument 'term' must not be empty"
                return True, None

            def needs_permission(self, args: Dict[str, Any]) -> bool:
                return args["term"] == "unpublished"

            def execute(self, args: Dict[str, Any]) -> ToolResult:
                """
                Look up the term.

                **Args:**
                    args: Tool arguments dictionary
                        - term (str, required): The term.
                        - times (int, optional): How often to repeat the meaning. Default: 1.

                **Examples:**
                    glossary(term="kiln")
                """
                if args["term"] == "help":
                    return ToolResult(True, self.get_detailed_description(), "", {})
                if args["term"] == "all":
                    return self.sandbox.exec_shell(command="cat glossary.txt")
                if args["term"] == "kinds":
                    kinds = self.output_semantic_type, self.stdout_semantic_type
                    text = " ".join(kind.name for kind in (*kinds, self.stderr_semantic_type))
                    return ToolResult(ok=True, stdout=text, stderr="", meta={})
                if args["term"] == "nothing":
                    return ToolResult(ok=False, stdout="", stderr="no " * 3_000, meta={})
                text = "meaning " * args.get("times", 1)
                return ToolResult(ok=True, stdout=text, stderr="", meta={"term": args["term"]})

    ''',
    "adapter.py": '''
        from toolkiln import tool
        from atloop.tools import BaseTool, ToolResult
        from atloop.tools.output_semantic_type import OutputSemanticType


        @tool
        def check() -> list[str]:
            """Return what the stand-in is."""
            class Half(BaseTool):
                name = description = "half"

            class Nameless(BaseTool):
                description = "It has no name."
                def execute(self, args): ...

            errors = []
            for broken in (Half, Nameless):
                try:
                    broken()
                except TypeError as error:
                    errors.append(str(error))
            return errors + [kind.name for kind in OutputSemanticType]

    ''',
    "beside/own.py": '''
        from base import BaseTool, ToolResult


        class OwnTool(BaseTool):
            """Return a result of the author's own class."""

            name = "own"

            def execute(self, args: dict) -> ToolResult:
                return ToolResult(ok=args["ok"], stdout="", stderr="nothing there", meta={})
    ''',
    "beside/base.py": """
        from dataclasses import dataclass


        class BaseTool: ...


        @dataclass
        class ToolResult:
            ok: bool
            stdout: str
            stderr: str
            meta: dict
    """,
}


async def test_a_base_tool_is_called_unmodified(kiln: Kiln) -> None:
    result = await kiln.call("glossary", {"term": "kiln", "times": 2})

    assert (result.status, result.value["stdout"]) == (Status.OK, "meaning meaning "), result.error
    assert result.value["meta"] == {"term": "kiln"}


async def test_the_documentation_is_the_same_text_everywhere(kiln: Kiln) -> None:
    spec = kiln.specs()["glossary"]

    in_the_tool = await kiln.call("glossary", {"term": "help"})
    described = await kiln.call("describe_tool", {"name": "glossary"})

    assert in_the_tool.value["stdout"] == (
        "Look up a term of the glossary.\n\n"
        "⚠️ **Important**: Terms are case-sensitive.\n\n"
        "**Use cases**\n- Explaining a term to a newcomer\n\n"
        "**Parameters**\n- term: The term.\n"
        "- times: How often to repeat the meaning. Default: 1.\n\n"
        '**Examples**\n```\nglossary(term="kiln")\n```'
    )
    assert described.value["guide"] == in_the_tool.value["stdout"]
    assert kiln.library.guide("glossary") == in_the_tool.value["stdout"]
    assert spec.detailed_description() == in_the_tool.value["stdout"]
    assert spec.parameters["properties"]["times"]["default"] == 1
    assert spec.parameters["required"] == ["term"]


async def test_needs_permission_decides_from_the_arguments(kiln: Kiln) -> None:
    waits = asyncio.Event()

    def observe(event: Event) -> None:
        if event.kind == "pending":
            waits.set()

    published = await kiln.call("glossary", {"term": "kiln"}, observe=observe)
    assert (published.status, waits.is_set()) == (Status.OK, False)

    call = asyncio.ensure_future(kiln.call("glossary", {"term": "unpublished"}, observe=observe))
    async with asyncio.timeout(30):
        await waits.wait()
    call.cancel()


async def test_validate_args_refuses_arguments(kiln: Kiln) -> None:
    result = await kiln.call("glossary", {"term": " "})

    assert result.error is not None
    assert result.error.message == "Argument 'term' must not be empty"


async def test_outputs_have_the_limits_of_their_kinds(kiln: Kiln) -> None:
    kinds = await kiln.call("glossary", {"term": "kinds"})
    long = await kiln.call("glossary", {"term": "kiln", "times": 8_000})
    failed = await kiln.call("glossary", {"term": "nothing"})

    assert kinds.value["stdout"] == "KNOWLEDGE_CONTENT KNOWLEDGE_CONTENT ERROR_MESSAGE"
    assert 59_000 < len(long.text) <= 60_000
    assert failed.status is Status.FAILED
    assert 7_500 < len(failed.text) <= 8_000


async def test_the_base_class_is_abstract_and_the_enum_complete(kiln: Kiln) -> None:
    half, nameless, *kinds = (await kiln.call("check")).value
    half, nameless = (error.replace("'", "") for error in (half, nameless))  # 3.12 quotes names

    assert half.endswith("abstract method execute")
    assert nameless.endswith("abstract method name")
    assert kinds == [
        "KNOWLEDGE_CONTENT", "FILE_CONTENT", "FILE_VIEW_RESULT", "EXECUTION_RESULT",
        "STATUS_MESSAGE", "ERROR_MESSAGE",
    ]  # fmt: skip


async def test_the_runtime_of_atloop_is_named_as_unavailable(kiln: Kiln) -> None:
    result = await kiln.call("glossary", {"term": "all"})

    assert result.error is not None
    assert "GlossaryTool.sandbox.exec_shell is not available in the s" in result.error.message


async def test_a_result_of_the_author_s_own_class_counts(kiln: Kiln) -> None:
    fine, failed = [await kiln.call("own", {"ok": ok}) for ok in (True, False)]

    assert (fine.status, fine.text) == (Status.OK, "stderr: nothing there")
    assert (failed.status, failed.text) == (Status.FAILED, "error: nothing there")
