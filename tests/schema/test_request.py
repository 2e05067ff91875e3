"""The tools of one request in the format of each provider, also with deferred tools."""

from typing import Any

import pytest

from tables import each_row
from toolkiln.errors import InputError
from toolkiln.schema.providers import compile_tool
from toolkiln.schema.providers.compilers import deferred_request_tools, request_tools
from toolkiln.schema.providers.profile import Compiled

from .specs import params, spec


def made(provider: str, name: str = "find", optional: int = 0) -> Compiled:
    """A compiled tool with so many optional parameters."""
    properties = {f"p{number}": {"type": "string"} for number in range(optional)}
    return compile_tool(spec({"type": "object", "properties": properties}, name=name), provider)


@each_row("provider", ["openai", "openai-responses-strict", "anthropic", "mcp"])
def test_tools_are_listed_side_by_side(provider: str) -> None:
    tools = [made(provider, "find"), made(provider, "keep")]

    assert request_tools(provider, tools) == [tool.payload for tool in tools]


def test_gemini_takes_all_declarations_in_one_element() -> None:
    tools = [made("gemini", "find"), made("gemini", "keep")]

    (element,) = request_tools("gemini", tools)

    assert [one["name"] for one in element["functionDeclarations"]] == ["find", "keep"]
    assert request_tools("gemini", []) == []


def test_anthropic_gets_no_more_strict_schemas_than_one_request_may_have() -> None:
    sizes = [20, 5, 4, 1]
    tools = [made("anthropic-strict", f"t{n}", size) for n, size in enumerate(sizes)]

    payloads: list[dict[str, Any]] = request_tools("anthropic-strict", tools)

    assert [tool.get("strict", False) for tool in payloads] == [True, False, True, False]
    assert [tool["input_schema"] for tool in payloads] == [t.payload["input_schema"] for t in tools]


def test_anthropic_gets_at_most_twenty_strict_tools() -> None:
    tools = [made("anthropic-strict", f"t{n}") for n in range(25)]

    payloads = request_tools("anthropic-strict", tools)

    assert sum("strict" in tool for tool in payloads) == 20


def requested(provider: str) -> list[dict[str, Any]]:
    parameters = params(("city",), city={"type": "string"})
    at_hand, to_be_found = spec(parameters, name="now"), spec(parameters, name="later")
    return deferred_request_tools(
        provider, [compile_tool(at_hand, provider)], [compile_tool(to_be_found, provider)]
    )


@each_row("provider", ["anthropic", "anthropic-strict"])
def test_anthropic_gets_its_search_and_marked_tools(provider: str) -> None:
    search, now, later = requested(provider)

    assert search["type"].startswith("tool_search_tool_")
    assert (now["name"], "defer_loading" in now) == ("now", False)
    assert (later["name"], later["defer_loading"]) == ("later", True)
    assert later["input_schema"]["required"] == ["city"]


@each_row("provider", ["openai", "openai-strict"])
def test_openai_gets_flat_functions_as_the_responses_api_wants_them(provider: str) -> None:
    search, now, later = requested(provider)

    assert search == {"type": "tool_search"}
    assert (now["type"], now["name"], "defer_loading" in now) == ("function", "now", False)
    assert (later["name"], later["defer_loading"]) == ("later", True)
    assert later["parameters"]["required"] == ["city"]
    assert "function" not in later


@each_row("provider", ["gemini", "mcp"])
def test_a_provider_without_deferred_tools_is_refused_with_an_alternative(provider: str) -> None:
    with pytest.raises(InputError) as refused:
        requested(provider)

    assert "search_tools" in (refused.value.hint or "")
