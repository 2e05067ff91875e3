"""Suna's toolkits: files that import `core.agentpress.tool` are served and called as they are."""

import os
from pathlib import Path
from textwrap import dedent

import pytest

from execution.conftest import kiln_of
from sandbox.environments.index import offline, wheel
from toolkiln.kiln import Kiln
from toolkiln.model.call import Status
from toolkiln.operations.toolkits import ToolkitName, get_toolkit
from toolkiln.operations.tools import ToolQuery, list_tools

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER = '''
from core.agentpress.tool import Tool, ToolResult

class {0}Tool(Tool):
    def ask_{0}(self, fails: bool) -> ToolResult:
        """Tell which class this is.

        Args:
            fails: Whether it fails.
        """
        return ToolResult(not fails, "own" if not hasattr(self, "fail_response") else "stand-in")
'''
TOOLS = {
    "sb_notes_tool.py": '''
        import json
        from typing import List, Optional

        from core.agentpress.thread_manager import ThreadManager
        from core.agentpress.tool import (
            SchemaType, ToolResult, ToolSchema, method_metadata, openapi_schema, tool_metadata,
        )
        from core.sandbox.tool_base import SandboxToolsBase
        from core.services.supabase import DBConnection
        from core.utils.config import EnvMode, config
        from core.utils.logger import logger


        @tool_metadata(
            display_name="Notes",
            description="Keeps the notes of a project.",
            icon="NotebookPen",
            color="bg-blue-100 dark:bg-blue-800/50",
            weight=20,
            visible=True,
            usage_guide="""
                ### Notes
                Write a note before you read it.
            """,
        )
        class SandboxNotesTool(SandboxToolsBase):
            """Not shown: the decorator has a description."""

            def __init__(self, project_id: str, thread_manager: ThreadManager, limit: int = 2):
                super().__init__(project_id, thread_manager)
                self.limit = limit
                self.db = DBConnection()
                self.key = config.NOTES_KEY
                if config.ENV_MODE == EnvMode.LOCAL and self.key:
                    raise ValueError("never")
                logger.info("created", tool="notes")

            @openapi_schema({
                "type": "function",
                "function": {
                    "name": "write_note",
                    "description": "Write a note.",
                    "parameters": {
                        "type": "object",
                        "properties": {
                            "text": {"type": "string", "description": "The text."},
                            "agent_id": {"type": "string", "description": "Who writes."},
                        },
                        "required": ["text"],
                    },
                },
            })
            async def write_note(self, text: str, agent_id: Optional[str] = None) -> ToolResult:
                if len(text) > 9:
                    return self.fail_response(f"the note has {len(text)} letters")
                path = self.clean_path("/workspace/" + text)
                return self.success_response({"path": path, "by": agent_id, "ok": False})

            @method_metadata(display_name="Say", description="Repeats a text.", visible=False)
            @openapi_schema({"type": "function", "function": {
                "name": "say",
                "description": "Repeat.",
                "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
            }})
            async def say(self, text: str = "") -> ToolResult:
                logger.bind(call=1).warning("said %s", text, size=len(text))
                return self.success_response(text)

            @openapi_schema({"type": "function", "function": {
                "name": "refuse",
                "description": "Refuse.",
                "parameters": {"type": "object", "properties": {}},
            }})
            async def refuse(self) -> ToolResult:
                return self.fail_response("You do not have permission to read this project")

            @openapi_schema({"type": "function", "function": {
                "name": "use",
                "description": "Use a service of Suna.",
                "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
            }})
            async def use(self, what: str = "") -> ToolResult:
                try:
                    if what == "sandbox":
                        await self._ensure_sandbox()
                    elif what == "thread":
                        await self.thread_manager.db.client
                    elif what == "config":
                        return self.success_response(f"key {self.key}")
                    else:
                        return self.success_response(self.project_id + "/x")
                except Exception as error:
                    return self.fail_response(f"Error: {error}")
    ''',
    "bare_tool.py": '''
        from agentpress.tool import Tool, ToolResult, usage_example
        from sandbox.tool_base import SandboxToolsBase
        from services.supabase import DBConnection
        from utils.config import config
        from utils.logger import logger


        class Base(Tool):
            def shared(self) -> ToolResult:
                """Not a tool: the class is only a base of others."""


        class CounterTool(Base):
            """Counts things."""

            @usage_example("<count-words/>")
            async def count_words(self, text: str) -> ToolResult:
                """Count the words of a text.

                Args:
                    text: The text.
                """
                return self.success_response(len(text.split()))

            @property
            def size(self) -> int:
                return 1

            def success_response(self, data) -> ToolResult:
                return super().success_response(f"{data} words")

            def _hidden(self) -> None: ...
    ''',
    "core_tool.py": """
        from core.agentpress.tool import Tool, tool_metadata

        @tool_metadata(display_name="Basics", description="What every agent has.", is_core=True)
        class BasicsTool(Tool):
            def pause(self):
                '''Pause until the person writes again.'''
    """,
    "own/core/__init__.py": "",
    "own/core/agentpress/__init__.py": "",
    "own/core/agentpress/tool.py": """
        from dataclasses import dataclass

        @dataclass
        class ToolResult:
            success: bool
            output: object

        class Tool: ...
    """,
    "own/beside.py": USER.format("beside"),
}


@pytest.mark.parametrize(
    ("tool", "arguments", "status", "outcome"),
    [
        ("write_note", {"text": "a"}, Status.OK, '{"path": "a", "by": null, "ok": false}'),
        ("write_note", {"text": "a", "agent_id": "b"}, Status.OK, '"by": "b"'),
        ("write_note", {"text": "0123456789"}, Status.FAILED, "the note has 10 letters"),
        ("say", {"text": '{"success": false, "error": "x"}'}, Status.OK, '"error": "x"'),
        ("refuse", {}, Status.DENIED, "You do not have permission"),
        ("use", {"what": "sandbox"}, Status.FAILED, "SandboxNotesTool.sandbox is not available"),
        ("use", {"what": "thread"}, Status.FAILED, "thread_manager.db.client is not available"),
        ("use", {"what": "config"}, Status.FAILED, "config.NOTES_KEY is not available"),
        ("use", {"what": "project"}, Status.FAILED, "SandboxNotesTool.project_id"),
        ("count_words", {"text": "two words"}, Status.OK, "2 words"),
    ],
)
async def test_a_toolkit_of_suna_runs_unchanged(
    kiln: Kiln, tool: str, arguments: dict[str, str], status: Status, outcome: str
) -> None:
    result = await kiln.call(tool, arguments)

    assert result.status is status, result
    assert outcome in (result.value if result.error is None else result.error.message)


async def test_a_toolkit_is_one_object_with_its_methods_as_declared(kiln: Kiln) -> None:
    kit = await kiln.run_operation(get_toolkit, ToolkitName(name="SandboxNotesTool"))
    shown = kit.model_dump(mode="json")
    methods = shown.pop("methods")

    assert shown == {
        "name": "SandboxNotesTool",
        "display_name": "Notes",
        "description": "Keeps the notes of a project.",
        "icon": "notebook-pen",
        "color": "bg-blue-100 dark:bg-blue-800/50",
        "is_core": False,
        "weight": 20,
        "visible": True,
        "usage_guide": "### Notes\nWrite a note before you read it.",
        "enabled": True,
    }
    assert [method["name"] for method in methods] == ["write_note", "say", "refuse", "use"]
    assert methods[0] == {
        "name": "write_note",
        "display_name": "Write Note",
        "description": "Write a note.",
        "is_core": False,
        "visible": True,
        "enabled": True,
    }
    assert (methods[1]["description"], methods[1]["visible"]) == ("Repeats a text.", False)
    assert "Write a note before you read it." in kiln.library.guide("write_note")


async def test_a_core_toolkit_is_in_lists_without_being_visible(kiln: Kiln) -> None:
    listed = await kiln.run_operation(list_tools, ToolQuery())
    kit = await kiln.run_operation(get_toolkit, ToolkitName(name="BasicsTool"))

    names = [tool.name for tool in listed.items]
    assert "pause" in names
    assert "count_words" not in names  # its toolkit is hidden, as in Suna
    assert (kit.visible, kit.is_core) == (True, True)


async def test_the_logger_of_suna_writes_to_the_errors_of_the_call(kiln: Kiln) -> None:
    result = await kiln.call("say", {"text": "hi"})

    assert result.stderr.splitlines() == [
        "info: created tool=notes",
        "warning: said hi call=1 size=2",
    ]


async def test_a_core_of_ones_own_wins_beside_the_file_and_installed(
    kiln: Kiln, tmp_path: Path
) -> None:
    names = ("core/__init__.py", "core/agentpress/__init__.py", "core/agentpress/tool.py")
    own = TOOLS["own/core/agentpress/tool.py"]
    wheel(tmp_path / "links", "core", "1.0", dict.fromkeys(names, "") | {names[-1]: dedent(own)})
    listed = "# requirements: core\n" + USER.format("installed")
    environ = {**os.environ, **offline(tmp_path / "cache", tmp_path / "links")}

    beside = [await kiln.call("ask_beside", {"fails": fails}) for fails in (False, True)]
    async with kiln_of(tmp_path, {"installed.py": listed}, environ=environ) as other:
        installed = await other.call("ask_installed", {"fails": False})

    assert [(call.status, call.value) for call in beside] == [
        (Status.OK, "own"), (Status.FAILED, "own"),
    ]  # fmt: skip
    assert (installed.value, installed.error) == ("own", None)
