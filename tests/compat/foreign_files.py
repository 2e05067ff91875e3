"""A tool file for each framework, in the shape in which its authors write them."""

STARGAZER = {
    "dice_table.py": '''
        """Dice for the games that are played in a channel."""

        from __future__ import annotations

        import json
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from tool_context import ToolContext

        TOOL_NAME = "roll_dice"
        TOOL_DESCRIPTION = "Add up dice that a player of this channel has thrown on the table."
        TOOL_PARAMETERS = {
            "type": "object",
            "properties": {
                "pips": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "description": "The pips of each die.",
                },
            },
            "required": ["pips"],
        }


        async def run(pips: list[int], ctx: ToolContext | None = None) -> str:
            assert ctx is not None
            ctx.sent_files.append({"data": json.dumps(pips), "filename": "throw.json"})
            return f"{sum(pips)} for {ctx.user_id}"
    ''',
}
SUNA = {
    "reading_list_tool.py": '''
        from typing import Any, Dict, Optional

        from core.agentpress.thread_manager import ThreadManager
        from core.agentpress.tool import (
            Tool, ToolResult, method_metadata, openapi_schema, tool_metadata,
        )
        from core.utils.logger import logger


        @tool_metadata(
            display_name="Reading List",
            description="Keep a list of books to read",
            icon="BookOpen",
            color="bg-blue-100 dark:bg-blue-800/50",
            weight=120,
            visible=True,
        )
        class ReadingListTool(Tool):
            """Books that a person wants to read."""

            def __init__(self, project_id: str, thread_manager: ThreadManager):
                super().__init__()
                self.project_id = project_id
                self.thread_manager = thread_manager

            @method_metadata(display_name="Add Book", description="Add a book to the list")
            @openapi_schema({
                "type": "function",
                "function": {
                    "name": "add_book",
                    "description": "Add a book to the list of this project, with its length.",
                    "parameters": {
                        "type": "object",
                        "properties": {
                            "title": {"type": "string", "description": "The title of the book."},
                            "pages": {"type": "integer", "description": "How many pages it has."},
                        },
                        "required": ["title", "pages"],
                    },
                },
            })
            async def add_book(self, title: str, pages: int) -> ToolResult:
                logger.info(f"adding {title}")
                if pages < 1:
                    return self.fail_response("A book has at least one page")
                return self.success_response({"title": title, "pages": pages})
    ''',
    "bare_tool.py": '''
        from core.agentpress.tool import Tool, ToolResult


        class WordCountTool(Tool):
            """Counts what is in a text."""

            def count_words(self, text: str) -> ToolResult:
                """Count the words of a text that stand between blanks.

                Args:
                    text: The text.
                """
                return self.success_response(f"{len(text.split())} words")

            def _hidden(self) -> None: ...
    ''',
}
LETTA = {
    "note_topic.py": '''
        def note_topic(agent_state: "AgentState", topic: str) -> str:
            """Write a topic of the conversation into the agent's core memory.

            Args:
                topic (str): The topic.

            Returns:
                str: What the memory block contains afterwards.
            """
            block = agent_state.memory.get_block("topics")
            block.value = f"{block.value}, {topic}"
            return block.value
    ''',
}
ATLOOP = {
    "line_counter.py": '''
        from typing import Any, Dict, Optional, Tuple

        from atloop.tools.base import BaseTool, ToolResult
        from atloop.tools.output_semantic_type import OutputSemanticType


        class LineCounterTool(BaseTool):
            """
            Count the lines of a text.

            **CRITICAL**: A last line without a line end counts as well.

            **When to use:**
            - Before a long text is shown
            """

            @property
            def name(self) -> str:
                return "count_lines"

            @property
            def description(self) -> str:
                return "Count the lines of a text, the last one as well if it has no line end."

            @property
            def output_semantic_type(self) -> OutputSemanticType:
                return OutputSemanticType.STATUS_MESSAGE

            def validate_args(self, args: Dict[str, Any]) -> Tuple[bool, Optional[str]]:
                return ("text" in args), "Missing argument: text"

            def execute(self, args: Dict[str, Any]) -> ToolResult:
                """
                Count.

                Args:
                    text (str): The text.
                """
                lines = args["text"].splitlines()
                return ToolResult(ok=True, stdout=str(len(lines)), stderr="", meta={})
    ''',
}
OPEN_WEBUI = {
    "mood_diary.py": '''
        """
        title: Mood Diary
        author: someone
        author_url: https://example.com
        version: 0.1.0
        license: MIT
        """

        from typing import Awaitable, Callable, Optional

        from open_webui.models.users import Users
        from pydantic import BaseModel, Field


        class Tools:
            class Valves(BaseModel):
                greeting: str = Field(default="Noted", description="How an entry is confirmed.")

            class UserValves(BaseModel):
                signature: str = Field(default="", description="Stands below each entry.")

            def __init__(self):
                self.valves = self.Valves()
                self.citation = False

            async def write_entry(
                self,
                mood: str,
                __user__: Optional[dict] = None,
                __event_emitter__: Optional[Callable[[dict], Awaitable[None]]] = None,
            ) -> str:
                """
                Write down how the user feels today, in their own words.

                :param mood: The mood in a few words.
                :return: A confirmation.
                """
                if __event_emitter__:
                    await __event_emitter__(
                        {"type": "status", "data": {"description": "Writing", "done": False}}
                    )
                user = Users.get_user_by_id(__user__["id"])
                return f"{self.valves.greeting}: {mood} ({user.id})"
    ''',
}
AGNO = {
    "kitchen_tools.py": '''
        from typing import Any, List, Optional

        from agno.tools import Toolkit
        from agno.utils.log import log_debug, logger


        class KitchenTools(Toolkit):
            """Toolkit for measures of the kitchen.

            Args:
                enable_convert: Whether to offer the conversion.
            """

            def __init__(self, enable_convert: bool = True, **kwargs: Any):
                tools: List[Any] = []
                if enable_convert:
                    tools.append(self.cups_to_millilitres)
                super().__init__(name="kitchen_tools", tools=tools, **kwargs)

            def cups_to_millilitres(self, cups: float) -> str:
                """Convert a volume in cups, as in a recipe, to millilitres.

                Args:
                    cups (float): The volume in cups.

                Returns:
                    str: The volume in millilitres.
                """
                log_debug(f"converting {cups}")
                return f"{cups * 240:.0f} ml"
    ''',
}
LANGCHAIN = {
    "word_tools.py": '''
        from typing import Optional, Type

        from langchain_core.callbacks import CallbackManagerForToolRun
        from langchain_core.tools import BaseTool, ToolException, tool
        from pydantic import BaseModel, Field


        class ReverseInput(BaseModel):
            text: str = Field(description="The text to reverse.")


        class ReverseTool(BaseTool):
            name: str = "reverse_text"
            description: str = "Return a text with its characters in the opposite order."
            args_schema: Type[BaseModel] = ReverseInput

            def _run(
                self, text: str, run_manager: Optional[CallbackManagerForToolRun] = None
            ) -> str:
                if not text:
                    raise ToolException("the text is empty")
                return text[::-1]


        @tool
        def count_vowels(text: str) -> int:
            """Count the vowels of a text, which are a, e, i, o and u."""
            return sum(letter in "aeiou" for letter in text.lower())
    ''',
}
CREWAI = {
    "title_tool.py": '''
        from typing import Type

        from crewai.tools import BaseTool, tool
        from pydantic import BaseModel, Field


        class TitleInput(BaseModel):
            """Input of the tool."""

            heading: str = Field(..., description="The heading as it was written.")


        class TitleTool(BaseTool):
            name: str = "Title Writer"
            description: str = "Write a heading with a capital letter for each of its words."
            args_schema: Type[BaseModel] = TitleInput

            def _run(self, heading: str) -> str:
                return heading.title()


        @tool("Heading Length")
        def heading_length(heading: str) -> int:
            """Return how many characters a heading has, blanks included."""
            return len(heading)
    ''',
}
SMOLAGENTS = {
    "rhyme_tool.py": '''
        from smolagents import Tool, tool


        class RhymeTool(Tool):
            name = "find_ending"
            description = "Return the last letters of a word, with which its rhymes end as well."
            inputs = {
                "word": {"type": "string", "description": "The word."},
                "letters": {"type": "integer", "description": "How many.", "nullable": True},
            }
            output_type = "string"

            def setup(self):
                self.default = 3

            def forward(self, word: str, letters: int | None = None) -> str:
                return word[-(letters or self.default):]


        @tool
        def shout(word: str) -> str:
            """Return a word in capital letters, as if it were shouted.

            Args:
                word: The word.
            """
            return word.upper()
    ''',
}
FASTMCP = {
    "clock_server.py": '''
        from fastmcp import Context, FastMCP

        mcp = FastMCP("Clock")


        @mcp.tool
        async def add_minutes(time: str, minutes: int, ctx: Context) -> str:
            """Return the time of day some minutes after another one, such as 23:50."""
            await ctx.info(f"adding {minutes}")
            await ctx.report_progress(progress=1, total=1)
            hours, _, rest = time.partition(":")
            total = (int(hours) * 60 + int(rest) + minutes) % 1440
            return f"{total // 60:02}:{total % 60:02}"


        if __name__ == "__main__":
            mcp.run()
    ''',
}
