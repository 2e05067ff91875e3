"""FastMCP files of both packages: servers, tools inside functions, Context and Progress."""

from textwrap import dedent
from typing import Any

import pytest

from toolkiln.kiln import Kiln
from toolkiln.model.call import Event
from toolkiln.model.question import FormAnswer, FormQuestion, Question, SampleAnswer
from toolkiln.model.spec import Role
from toolkiln.spec.reader import read

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = {
    "library.py": '''
        """A server of a library."""

        import enum
        from dataclasses import dataclass
        from typing import Literal

        from fastmcp import Client, Context, FastMCP
        from fastmcp.dependencies import Depends, Progress
        from fastmcp.exceptions import ToolError
        from fastmcp.server.auth.providers.jwt import JWTVerifier
        from fastmcp.server.elicitation import AcceptedElicitation
        from fastmcp.tools.tool import ToolResult
        from fastmcp.utilities.types import Image
        from mcp.types import TextContent, ToolAnnotations

        mcp = FastMCP("Library", auth=JWTVerifier(public_key="key"))
        mcp.settings.port = 8010
        COPIES = {"Emma": 3}


        def shelves():
            return ["A", "B"]


        @mcp.tool(
            name="count_copies",
            title="Count the copies",
            annotations={"readOnlyHint": True, "openWorldHint": False},
            exclude_args=["clerk"],
            tags={"desk"},
        )
        async def copies(title: str, ctx: Context, clerk: str = "nobody") -> str:
            """Count the copies of a book."""
            await ctx.info(f"looking for {title}")
            await ctx.warning("it may be lent")
            await ctx.report_progress(1, 2, "half")
            await ctx.set_state("seen", title)
            return f"{COPIES[await ctx.get_state('seen')]} copies, counted by {clerk}"


        @mcp.tool(annotations=ToolAnnotations(title="Move it", destructiveHint=True))
        async def move(steps: int, progress: Progress = Progress()) -> str:
            """Move a shelf."""
            await progress.set_total(steps)
            for _ in range(steps):
                await progress.increment()
            return "moved"


        class Size(enum.Enum):
            SMALL = "small"
            LARGE = "large"


        @dataclass
        class Reader:
            name: str
            age: int
            card: Literal["day", "year"]


        @mcp.tool
        async def register(ctx: Context) -> list[str]:
            """Register a reader."""
            given = []
            for expected in (str, ["red", "green"], Size, Reader, None):
                match await ctx.elicit("Tell me", response_type=expected):
                    case AcceptedElicitation(data=data):
                        given.append(repr(data))
                    case refused:
                        given.append(refused.action)
            answer = await ctx.sample("Greet them", system_prompt="Be brief")
            return [*given, answer.text]


        @mcp.tool
        def cover(title: str) -> Image:
            """Draw a cover."""
            return Image(data=title.encode(), format="svg")


        @mcp.tool
        def look_up(title: str) -> ToolResult:
            """Look a book up."""
            return ToolResult(content="found", structured_content={"title": title}, meta={"ms": 1})


        @mcp.tool
        def texts() -> list[TextContent]:
            """Return two texts."""
            return [TextContent(type="text", text=text) for text in ("one", "two")]


        @mcp.tool
        def refuse() -> str:
            """Report an error."""
            raise ToolError("the library is closed")


        @mcp.tool
        def listed(shelves: list[str] = Depends(shelves)) -> int:
            """Count the shelves."""
            return len(shelves)


        @mcp.tool
        async def client(ctx: Context) -> str:
            """Ask another server."""
            return await ctx.read_resource("library://hours")


        def reserve(title: str) -> str:
            """Reserve a book."""
            return f"reserved {title}"


        def renew(title: str) -> str:
            """Renew a book."""
            return f"renewed {title}"


        mcp.add_tool(reserve)
        mcp.tool(name="renew_book", title="Renew it")(renew)


        @mcp.resource("library://hours", mime_type="text/plain")
        def hours() -> str:
            """Opening hours."""
            return "9 to 5"


        @mcp.prompt
        def recommend(taste: str) -> str:
            """Ask for a book."""
            return f"Recommend a book for {taste}"


        if __name__ == "__main__":
            mcp.run(transport="http")
    ''',
    "installed/fastmcp.py": """
        class FunctionTool:
            def __init__(self, fn):
                self.fn = fn

            def __call__(self, *arguments):
                raise TypeError("call it by its server")


        class FastMCP:
            def tool(self, function):
                return FunctionTool(function)


        class Image:
            def __init__(self, data):
                self.path, self.data, self._format = None, data, "gif"
    """,
    "installed/server.py": """
        from fastmcp import FastMCP, Image

        mcp = FastMCP()


        @mcp.tool
        async def answer(question: str) -> str:
            'Answer a question.'
            return f"{question} 42"


        @mcp.tool
        def sketch() -> list[Image]:
            'Draw a sketch.'
            return [Image(b"GIF"), "a sketch"]
    """,
    "factory.py": '''
        from mcp.server.fastmcp import Context, FastMCP
        from mcp.server.session import ServerSession


        def create_server(greeting: str = "hello") -> FastMCP:
            mcp = FastMCP("Greeter")

            @mcp.tool()
            async def greet(name: str, ctx: Context[ServerSession, None]) -> str:
                """Greet somebody.

                Args:
                    name: Who it is.
                """
                await ctx.log("info", f"greeting {name}")
                return f"{greeting} {name}"

            mcp.run()
            return mcp


        def register_tools(server: FastMCP) -> None:
            @server.tool(description="Say goodbye.")
            def leave(name: str) -> str:
                return f"bye {name}"


        async def main(server):
            @server.tool
            def pause() -> str:
                """Pause."""
                return "paused"

            raise OSError("no port to listen on")


        class Counter:
            def __init__(self):
                self.mcp = FastMCP("Counter")
                self.start = 40
                self._register()

            def _register(self):
                @self.mcp.tool()
                def count(step: int) -> int:
                    """Count on."""
                    return self.start + step


        def needs_more(server, database):
            @server.tool()
            def query(sql: str) -> str:
                """Query it."""
                return database.query(sql)
    ''',
}


async def ask(questions: tuple[Question, ...]) -> tuple[FormAnswer | SampleAnswer, ...]:
    """Answer as a person who is Ada and seven, and as a model that says hi."""
    (question,) = questions
    if not isinstance(question, FormQuestion):
        return (SampleAnswer(text="hi"),)
    filled = {
        name: field.enum[-1] if field.enum else {"string": "Ada", "integer": 7}[field.type]
        for name, field in question.fields.items()
    }
    return (FormAnswer(action="accept", content=filled),)


CALLS: list[tuple[str, dict[str, Any], Any]] = [
    ("count_copies", {"title": "Emma"}, "3 copies, counted by nobody"),
    ("move", {"steps": 2}, "moved"),
    ("register", {}, ["'Ada'", "'green'", "<Size.LARGE: 'large'>",
                      "Reader(name='Ada', age=7, card='year')", "{}", "hi"]),
    ("cover", {"title": "<svg/>"}, "image.svg"),
    ("look_up", {"title": "Emma"}, {"title": "Emma"}),
    ("texts", {}, ["one", "two"]),
    ("reserve", {"title": "Emma"}, "reserved Emma"),
    ("renew_book", {"title": "Emma"}, "renewed Emma"),
    ("sketch", {}, ["image.gif", "a sketch"]),
    ("answer", {"question": "why?"}, "why? 42"),
    ("greet", {"name": "Ada"}, "hello Ada"),
    ("leave", {"name": "Ada"}, "bye Ada"),
    ("pause", {}, "paused"),
    ("count", {"step": 2}, 42),
]  # fmt: skip


async def test_tools_run_unchanged(kiln: Kiln) -> None:
    for name, arguments, expected in CALLS:
        result = await kiln.call(name, arguments, ask=ask)

        assert result.value == expected, (name, result.error)
    (cover,) = (await kiln.call("cover", {"title": "<svg/>"})).files
    assert (cover.name, cover.data) == ("image.svg", b"<svg/>")


async def test_logs_and_progress_are_those_of_the_call(kiln: Kiln) -> None:
    events: list[Event] = []

    await kiln.call("count_copies", {"title": "Emma"}, observe=events.append)
    await kiln.call("move", {"steps": 2}, observe=events.append)

    seen = [(event.kind, event.text, event.level or event.done) for event in events]
    assert seen == [
        ("log", "looking for Emma", "info"),
        ("log", "it may be lent", "warning"),
        ("progress", "half", 1.0),
        ("progress", "", 0.0),
        ("progress", "", 1.0),
        ("progress", "", 2.0),
    ]


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("refuse", "the library is closed"),
        ("listed", "fastmcp.dependencies.Depends is not available"),
        ("client", "fastmcp.Context.read_resource is not available"),
    ],
)
async def test_what_cannot_be_done_is_named(kiln: Kiln, tool: str, message: str) -> None:
    result = await kiln.call(tool)

    assert result.error is not None
    assert message in result.error.message


async def test_declarations_are_read(kiln: Kiln) -> None:
    copies, move = kiln.tool("count_copies"), kiln.tool("move")
    assert list(copies.parameters["properties"]) == ["title"]
    assert copies.display_name == "Count the copies"
    assert (copies.hints.read_only, copies.hints.open_world) == (True, False)
    assert list(move.parameters["properties"]) == ["steps"]
    assert (move.display_name, move.hints.destructive) == ("Move it", True)
    assert list(kiln.tool("listed").parameters["properties"]) == []
    assert kiln.specs(role=Role.RESOURCE)["hours"].uri == "library://hours"
    assert list(kiln.specs(role=Role.PROMPT)) == ["recommend"]


async def test_a_tool_of_a_function_with_unknown_parameters_is_not_offered() -> None:
    reading = read(dedent(TOOLS["factory.py"]), "<memory>")

    (note,) = [finding for finding in reading.findings if finding.rule == "not-offered"]
    assert "'query' is not a tool: needs_more needs 'database'" in note.message
