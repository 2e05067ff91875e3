"""The tools of one request, as each provider wants them."""

from typing import Any

from tables import each_row
from toolkiln.model.spec import Dialect, ToolSpec
from toolkiln.schema.providers import compile_tool
from toolkiln.schema.providers.compilers import request_tools
from toolkiln.schema.providers.profile import Compiled


def made(provider: str, name: str = "find", optional: int = 0) -> Compiled:
    """A compiled tool with so many optional parameters."""
    properties = {f"p{number}": {"type": "string"} for number in range(optional)}
    spec = ToolSpec(
        name=name,
        description="Find.",
        parameters={"type": "object", "properties": properties},
        dialect=Dialect.FUNCTION,
        entry=name,
        display_name=name,
        digest="0" * 64,
        path="find.py",
        line=1,
    )
    return compile_tool(spec, provider)


@each_row("provider", ["openai", "openai-responses-strict", "anthropic", "mcp"])
def test_tools_are_listed_side_by_side(provider: str) -> None:
    tools = [made(provider, "find"), made(provider, "keep")]

    assert request_tools(provider, tools) == [tool.payload for tool in tools]


def test_gemini_takes_all_declarations_in_one_element() -> None:
    tools = [made("gemini", "find"), made("gemini", "keep")]

    (element,) = request_tools("gemini", tools)

    assert [one["name"] for one in element["functionDeclarations"]] == ["find", "keep"]
    assert request_tools("gemini", []) == []


def test_anthropic_is_asked_for_no_more_strictness_than_it_gives_in_one_request() -> None:
    sizes = [20, 5, 4, 1]
    tools = [made("anthropic-strict", f"t{n}", size) for n, size in enumerate(sizes)]

    told: list[dict[str, Any]] = request_tools("anthropic-strict", tools)

    assert [tool.get("strict", False) for tool in told] == [True, False, True, False]
    assert [tool["input_schema"] for tool in told] == [t.payload["input_schema"] for t in tools]


def test_anthropic_is_asked_to_hold_models_to_twenty_tools_at_most() -> None:
    tools = [made("anthropic-strict", f"t{n}") for n in range(25)]

    told = request_tools("anthropic-strict", tools)

    assert sum("strict" in tool for tool in told) == 20
