"""smolagents files: tools with `inputs` and `forward`, set up before their first call, `@tool`."""

from typing import Any

import pytest

from toolkiln.kiln import Kiln
from toolkiln.spec.reader import read

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = {
    "kitchen.py": '''
        from typing import Any, Optional

        from smolagents import CodeAgent, InferenceClientModel, Tool, tool


        class RecipeTool(Tool):
            name = "find_recipe"
            description = "Find a recipe for some ingredients."
            inputs = {
                "ingredients": {"type": "array", "description": "What there is."},
                "portions": {"type": "integer", "description": "How many eat.", "nullable": True},
                "photo": {"type": "image", "description": "A photo.", "nullable": True},
                "course": {
                    "type": ["string", "null"],
                    "description": "Which course.",
                    "nullable": True,
                },
            }
            output_type = "string"

            def __init__(self, book: str = "classics", **kwargs):
                super().__init__(**kwargs)
                self.book = book
                self.recipes = None

            def setup(self):
                self.recipes = {"egg": "omelette"}
                self.is_initialized = True

            def forward(
                self,
                ingredients: list,
                portions: Optional[int] = 2,
                photo: Any = None,
                course: Optional[str] = None,
            ) -> str:
                found = ", ".join(self.recipes.get(item, "?") for item in ingredients)
                return f"{found} for {portions} from {self.book}"


        class Timed(Tool):
            output_type = "integer"
            inputs = {"minutes": {"type": "integer", "description": "How long."}}

            def forward(self, minutes):
                return minutes * self.factor


        class BoilTool(Timed):
            """Boils eggs."""

            name = "boil"
            description = "Boil an egg."
            factor = 60


        @tool
        def weigh(ingredient: str, grams: float = 100) -> str:
            """Weigh an ingredient.

            Args:
                ingredient: What to weigh.
                grams: How much.
            """
            return f"{grams:g} g {ingredient}"


        @tool
        def cook(dish: str) -> str:
            """Have an agent cook.

            Args:
                dish: What to cook.
            """
            return CodeAgent(tools=[], model=InferenceClientModel()).run(dish)


        if __name__ == "__main__":
            CodeAgent(tools=[RecipeTool()], model=InferenceClientModel()).run("Dinner!")
    ''',
}

CALLS: list[tuple[str, dict[str, Any], Any]] = [
    ("find_recipe", {"ingredients": ["egg"]}, "omelette for 2 from classics"),
    ("find_recipe", {"ingredients": ["egg"], "portions": None}, "omelette for None from classics"),
    ("boil", {"minutes": 4}, 240),
    ("weigh", {"ingredient": "flour"}, "100 g flour"),
]


async def test_tools_run_unchanged(kiln: Kiln) -> None:
    for name, arguments, expected in CALLS:
        result = await kiln.call(name, arguments)

        assert result.value == expected, (name, result.error)


async def test_inputs_become_the_schema(kiln: Kiln) -> None:
    recipe, boil = kiln.tool("find_recipe"), kiln.tool("boil")

    assert recipe.parameters == {
        "type": "object",
        "properties": {
            "ingredients": {"type": "array", "description": "What there is."},
            "portions": {"type": ["integer", "null"], "description": "How many eat."},
            "photo": {"description": "A photo."},
            "course": {"type": ["string", "null"], "description": "Which course."},
        },
        "additionalProperties": False,
        "required": ["ingredients"],
    }
    assert (recipe.returns, boil.returns) == ({"type": "string"}, {"type": "integer"})
    assert (recipe.description, boil.description) == (
        "Find a recipe for some ingredients.",
        "Boil an egg.",
    )


async def test_a_tool_is_known_by_its_shape() -> None:
    source = """
from transformers import Tool

class Echo(Tool):
    name = "echo_text"
    inputs = {"text": {"type": "string", "description": "The text."}}

    def forward(self, text):
        '''Return a text.'''

class Shape(Tool):
    def forward(self, text):
        '''Not a tool: it has no inputs.'''
"""

    (tool,) = read(source, "<memory>").tools

    assert (tool.name, tool.entry) == ("echo_text", "Echo.forward")
    assert tool.description == "Return a text."


async def test_an_agent_is_not_available(kiln: Kiln) -> None:
    result = await kiln.call("cook", {"dish": "soup"})

    assert result.error is not None
    assert "smolagents.InferenceClientModel is not available" in result.error.message
