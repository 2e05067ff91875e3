"""Requests with deferred tools, in the forms of the two providers that have them."""

from typing import Any

import pytest

from tables import each_row
from toolkiln.errors import InputError
from toolkiln.schema.providers import compile_tool
from toolkiln.schema.providers.compilers import deferred_request_tools

from .specs import params, spec


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
def test_a_provider_without_it_is_refused_with_the_other_way(provider: str) -> None:
    with pytest.raises(InputError) as refused:
        requested(provider)

    assert "search_tools" in (refused.value.hint or "")
