"""LangChain and CrewAI: classes with `_run`, decorated functions and tool objects, unchanged."""

from getpass import getuser
from typing import Any

import pytest

from toolkiln.kiln import Kiln

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = {
    "weather.py": '''
        from typing import Annotated, Any, Optional, Type

        from langchain_core.callbacks import CallbackManagerForToolRun
        from langchain_core.documents import Document
        from langchain_core.messages import ToolMessage
        from langchain_core.runnables import RunnableConfig
        from langchain_core.tools import (
            BaseTool, InjectedToolArg, StructuredTool, ToolException, tool,
        )
        from langgraph.prebuilt import InjectedState, InjectedStore
        from pydantic import BaseModel, Field, PrivateAttr, field_validator


        class ForecastInput(BaseModel):
            """Which forecast."""

            city: str = Field(description="The city.")
            days: int = Field(default=3, ge=1, le=7, description="How many days.")
            user: Annotated[str, InjectedToolArg] = "nobody"

            @field_validator("city")
            @classmethod
            def in_capitals(cls, value: str) -> str:
                return value.upper()


        class ForecastTool(BaseTool):
            """Forecast.

            Args:
                unit: The unit of all forecasts.
            """

            name: str = Field(default="forecast")
            description: str = "Forecast the weather of a city for some days."
            args_schema: Type[BaseModel] = ForecastInput
            unit: str = "C"
            _calls: int = PrivateAttr(default=0)

            def _run(
                self,
                city: str,
                days: int,
                user: str = "",
                run_manager: Optional[CallbackManagerForToolRun] = None,
            ) -> str:
                if city == "ATLANTIS":
                    raise ToolException("there is no such city")
                self._calls += 1
                return f"{city} {days} {self.unit} {user} {run_manager} {self._calls}"

            async def _arun(self, city: str) -> str:
                raise NotImplementedError("only synchronous")


        class StationsTool(BaseTool):
            name: str = "stations"
            description: str = "List the stations in a region."
            args_schema: dict = {
                "type": "object",
                "properties": {"region": {"type": "string", "description": "The region."}},
                "required": ["region"],
            }

            async def _arun(self, region: str) -> list[Document]:
                return [Document(page_content=region, metadata={"height": 12})]


        class Point(BaseModel):
            x: int
            y: int = 2


        class PointInput(BaseModel):
            point: Point


        @tool("distance-of-point", args_schema=PointInput, return_direct=True)
        def distance(point) -> int:
            """Return the distance of a point from the origin."""
            return point.x + point.y


        @tool(response_format="content_and_artifact")
        def report(topic: str) -> tuple[str, dict]:
            """Write a report.

            Args:
                topic: What it is about.
            """
            return f"about {topic}", {"pages": list(range(100))}


        @tool
        def remember(
            note: str,
            config: RunnableConfig,
            state: Annotated[dict, InjectedState],
            notes: Annotated[list, InjectedState("notes")],
            store: Annotated[Any, InjectedStore()],
        ) -> list:
            """Remember a note.

            Args:
                note: What to remember.
            """
            return [note, config["configurable"]["user_id"], state, notes]


        @tool
        async def search(query: str, store: Annotated[Any, InjectedStore()]) -> str:
            """Search the store.

            Args:
                query: What to look for.
            """
            return store.get(query)


        def multiply(a: int, b: int) -> int:
            """Multiply two numbers."""
            return a * b


        multiplier = StructuredTool.from_function(
            func=multiply, name="Multiply numbers", description="Multiply one number by another."
        )


        @tool
        def square(a: int) -> ToolMessage:
            """Square a number.

            Args:
                a: The number.
            """
            return ToolMessage(multiplier.invoke({"a": a, "b": a}), tool_call_id="1")
    ''',
    "crew.py": '''
        from crewai.tools import BaseTool, tool
        from pydantic import BaseModel, Field


        class CountInput(BaseModel):
            """Input of the counter."""

            text: str = Field(..., description="The text to count.")


        class CounterTool(BaseTool):
            name: str = "Letter & Word Counter"
            description: str = "Count the letters and words of a text."
            args_schema: type[BaseModel] = CountInput

            def __init__(self, **settings):
                super().__init__(**settings)
                self.description = self.description.strip()

            def _run(self, text: str) -> dict:
                return {"letters": len(text), "words": len(text.split())}


        @tool("Shout loudly")
        def shout(text: str) -> str:
            """Convert a text to capital letters, for emphasis."""
            return text.upper()
    ''',
}


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("forecast", {"city": "Rome"}, "ROME 3 C nobody None 1"),
        ("forecast", {"city": "Atlantis"}, "there is no such city"),
        ("forecast", {"city": "Rome", "days": 9}, "days: 9 is greater than 7"),
        ("forecast", {"city": "Rome", "user": "root"}, "ROME 3 C nobody None 1"),
        ("stations", {"region": "north"}, [("page_content", "north")]),
        ("distance-of-point", {"point": {"x": 1}}, 3),
        ("report", {"topic": "bees"}, "about bees"),
        ("remember", {"note": "n"}, ["n", getuser(), {}, None]),
        ("search", {"query": "q"}, "langgraph.store.get is not available in the sandbox"),
        ("multiply_numbers", {"a": 2, "b": 4}, 8),
        ("square", {"a": 3}, 9),
        ("letter_word_counter", {"text": "one two"}, {"letters": 7, "words": 2}),
        ("shout_loudly", {"text": "hi"}, "HI"),
    ],
)
async def test_a_call_gives_what_the_framework_gives_the_model(
    kiln: Kiln, name: str, arguments: dict[str, Any], expected: Any
) -> None:
    result = await kiln.call(name, arguments)

    if name == "stations":
        assert result.value == [{"page_content": "north", "metadata": {"height": 12}, "id": None}]
    elif result.error:
        assert str(expected) in result.error.message
    else:
        assert result.value == expected
