"""All six dialects run in the sandbox, with their helpers; errors name the right line."""

import asyncio
from typing import Any

import pytest

from tables import each_row
from toolkiln.kiln import Kiln
from toolkiln.model.call import Event, Status
from toolkiln.model.spec import Dialect

from .observers import local_session

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = {
    "plain.py": """
        import os
        import random_names_of_ours as names
        from shapes import area
        from shapes.round import circle
        from . import _private
        from ._private import SECRET as VALUE

        TEMPLATE = os.urandom(4).hex()

        def use_helpers(radius: float) -> list:
            assert names is not None and _private.SECRET == VALUE
            return [names.first(), area(2), circle(radius), VALUE, names.back()]

        def fail_in_helper() -> None:
            names.fail()  # OWN LINE

        def find_other_files() -> list[str]:
            return sorted(os.listdir(os.path.dirname(__file__)))
    """,
    "random_names_of_ours.py": """
        def first() -> str:
            return "first"

        def back() -> str:
            import plain
            return plain.VALUE

        def fail() -> None:
            raise KeyError("inside")
    """,
    "shapes/__init__.py": """
        from .square import area
    """,
    "shapes/square.py": """
        def area(side: float) -> float:
            return side * side
    """,
    "shapes/round.py": """
        from .square import area
        def circle(radius: float) -> float:
            return 3 * area(radius)
    """,
    "_private.py": 'SECRET = "kept"\n',
    "decorated.py": """
        from toolkiln import tool

        @tool(name="renamed", description="Say a word twice.")
        def say(word: str) -> str:
            return word * 2
    """,
    "base.py": """
        from typing import Any
        from toolkiln import BaseTool, Context, ToolError, ToolResult

        class Shell(BaseTool):
            name = "shell"
            description = "Run a command."
            parameters = {
                "type": "object",
                "properties": {"command": {"type": "string"}},
                "required": ["command"],
            }

            def __init__(self):
                self.calls = 0

            def validate_args(self, args):
                if "rm" in args["command"]:
                    return False, "rm is not allowed"
                return True, ""

            def execute(self, args: dict[str, Any]) -> ToolResult:
                self.calls += 1
                if args["command"] == "false":
                    return ToolResult(False, "partial", "it failed", {"code": 1})
                return ToolResult(True, f"ran {args['command']} {self.calls}", "warned")

        class Later(BaseTool):
            name = "later"
            description = "Answer later."
            parameters = {"type": "object", "properties": {"word": {"type": "string"}}}

            async def validate_args(self, args):
                return args.get("word") != "no", "no is no word"

            async def execute(self, args):
                import asyncio
                await asyncio.sleep(0)
                return ToolResult(ok=True, stdout=args["word"])

        class Keywords(BaseTool):
            name = "keywords"
            description = "Take keywords."
            parameters = {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            }

            def execute(self, **kwargs):
                return ToolResult(ok=True, stdout=str(sorted(kwargs.items())))

        class Refuser(BaseTool):
            name = "refuser"
            description = "Refuse."
            parameters = {"type": "object", "properties": {}}

            def validate_args(self, args):
                return False

            def execute(self, args):
                raise AssertionError("it ran")
    """,
    "kit.py": """
        import os
        from toolkiln import Context, method_metadata, tool_metadata

        @tool_metadata(display_name="Counter", description="Counts.")
        class Counter:
            def __init__(self):
                self.count = 0
                self.token = os.urandom(8).hex()

            @method_metadata(description="Count.")
            def count_up(self, by: int = 1) -> list:
                self.count += by
                return [self.count, self.token]

            @method_metadata(description="Use the context.")
            async def who(self, ctx: Context) -> str:
                return ctx.user_id

        @tool_metadata(display_name="Kept", description="Keeps.", instance="template")
        class Kept:
            def __init__(self):
                import pydantic
                self.token = os.urandom(8).hex()
                self.made_in = os.getpid()

            def __len__(self):
                return 0

            @method_metadata(description="Tell the token.")
            def token_of(self) -> list:
                return [self.token, self.made_in, os.getpid()]
    """,
    "webui.py": '''
        """
        title: Web
        description: For Open WebUI.
        """
        from pydantic import BaseModel, Field

        class Tools:
            class Valves(BaseModel):
                unit: str = Field("metric", description="The unit.")

            def __init__(self):
                self.valves = self.Valves()

            async def weather(self, city: str, __user__: dict = {}, __event_emitter__=None) -> str:
                """
                Tell the weather.
                :param city: The city.
                """
                await __event_emitter__({"type": "status", "data": {"description": city}})
                return f"{city} {self.valves.unit} {__user__['id']}"

            @staticmethod
            def fixed(number: int) -> int:
                return number

            @classmethod
            def made(cls, number: int) -> str:
                return f"{cls.__name__} {number}"
    ''',
    "constants.py": """
        TOOL_NAME = "lookup"
        TOOL_DESCRIPTION = "Look something up."
        TOOL_PARAMETERS = {
            "type": "object",
            "properties": {"key": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["key"],
        }

        def run(key, count=1, ctx=None):
            ctx.log("looked up")
            return {"key": key, "count": count, "user": ctx.user_id}
    """,
    "broken_import.py": """
        import no_such_package_anywhere

        def never() -> None: ...
    """,
    "broken_body.py": """
        import sys
        print("importing")
        VALUE = {}["secret key"]  # IMPORT LINE

        def never_either() -> None: ...
    """,
    "leaves_early.py": """
        raise SystemExit(5)

        def never_at_all() -> None: ...
    """,
}


def line_of(file: str, mark: str) -> int:
    return next(n for n, text in enumerate(TOOLS[file].splitlines(), 1) if mark in text)


async def test_every_dialect_is_here(kiln: Kiln) -> None:
    assert {spec.dialect for spec in kiln.services.registry.specs.values()} == set(Dialect)


@each_row(
    "name, arguments, value",
    [
        ("use_helpers", {"radius": 1}, ["first", 4.0, 3.0, "kept", "kept"]),
        ("find_other_files", {}, ["_private.py", "plain.py", "random_names_of_ours.py", "shapes"]),
        ("renamed", {"word": "ab"}, "abab"),
        ("who", {}, "ann"),
        ("fixed", {"number": 1}, 1),
        ("made", {"number": 1}, "Tools 1"),
        ("lookup", {"key": "k"}, {"key": "k", "count": 1, "user": "ann"}),
    ],
)
async def test_every_dialect_runs_with_its_helpers_and_context(
    kiln: Kiln, name: str, arguments: dict[str, Any], value: Any
) -> None:
    result = await kiln.call(name, arguments, session=local_session(kiln, user_id="ann"))

    assert (result.error, result.value) == (None, value)


async def test_error_in_a_helper_names_the_line_of_the_tool_itself(kiln: Kiln) -> None:
    result = await kiln.call("fail_in_helper", {})

    assert result.error
    assert (result.error.type, result.error.line) == ("KeyError", line_of("plain.py", "OWN LINE"))
    assert "inside" in result.error.message  # `dev` shows it


@each_row(
    "name, arguments, value, text",
    [
        ("shell", {"command": "ls"}, "ran ls 1", "ran ls 1\nstderr: warned"),
        ("later", {"word": "yes"}, "yes", "yes"),
        ("keywords", {"b": 2, "a": 1}, "[('a', 1), ('b', 2)]", "[('a', 1), ('b', 2)]"),
    ],
)
async def test_base_tool_gives_its_streams_and_may_be_async_or_take_keywords(
    kiln: Kiln, name: str, arguments: dict[str, Any], value: str, text: str
) -> None:
    result = await kiln.call(name, arguments)

    assert result.status is Status.OK
    assert (result.value["stdout"], result.text) == (value, text)


async def test_base_tool_that_is_not_ok_has_failed(kiln: Kiln) -> None:
    result = await kiln.call("shell", {"command": "false"})

    assert result.status is Status.FAILED
    assert result.error
    assert (result.error.code, result.error.message) == ("tool_error", "it failed")
    assert result.value["meta"] == {"code": 1}
    assert "partial" in result.text


@each_row(
    "name, arguments, excerpt",
    [
        ("shell", {"command": "rm -rf"}, "rm is not allowed"),
        ("later", {"word": "no"}, "no is no word"),
        ("refuser", {}, "the tool rejects these arguments"),
    ],
)
async def test_validate_args_that_refuses_makes_the_call_invalid(
    kiln: Kiln, name: str, arguments: dict[str, Any], excerpt: str
) -> None:
    result = await kiln.call(name, arguments)

    assert result.status is Status.INVALID
    assert result.error
    assert result.error.code == "invalid_arguments"
    assert excerpt in result.error.message
    assert result.stderr == ""


async def test_toolkit_has_a_fresh_instance_for_each_call(kiln: Kiln) -> None:
    results = [await kiln.call("count_up", {"by": 2}) for _ in range(3)]

    assert [result.value[0] for result in results] == [2, 2, 2]
    assert len({result.value[1] for result in results}) == 3


async def test_instance_of_a_template_serves_all_its_calls(kiln: Kiln) -> None:
    async with asyncio.timeout(20):
        while True:  # until a template is warm, in which calls are forks
            first = (await kiln.call("token_of", {})).value
            if first[1] != first[2]:
                break
    again = [(await kiln.call("token_of", {})).value for _ in range(3)]

    assert first[0] in {value[0] for value in again if value[1] != value[2]}


async def test_open_webui_tool_has_valves_user_and_emitter(kiln: Kiln) -> None:
    events: list[Event] = []
    session = local_session(kiln, user_id="ann")
    result = await kiln.call("weather", {"city": "Ulm"}, session=session, observe=events.append)

    assert result.error is None
    assert result.value == "Ulm metric ann"
    assert [event.text for event in events if event.kind == "progress"][-1] == "Ulm"


@each_row(
    "name, code, type_, excerpt",
    [
        ("never", "import_failed", "ModuleNotFoundError", "no_such_package_anywhere"),
        ("never_at_all", "exited", "SystemExit", ""),
    ],
)
async def test_import_that_fails_is_named(
    kiln: Kiln, name: str, code: str, type_: str, excerpt: str
) -> None:
    result = await kiln.call(name, {})

    assert result.status is Status.FAILED
    assert result.error
    assert (result.error.code, result.error.type) == (code, type_)
    assert excerpt in result.text


async def test_error_at_import_names_its_line_and_keeps_what_was_printed(kiln: Kiln) -> None:
    result = await kiln.call("never_either", {})

    assert result.error
    assert (result.error.code, result.error.type) == ("import_failed", "KeyError")
    assert result.error.line == line_of("broken_body.py", "IMPORT LINE")
    assert "secret key" in result.error.message  # `dev` shows it
    assert result.stdout == "importing\n"
    assert result.stderr == ""
