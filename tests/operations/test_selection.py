"""Which tools a model is shown, in programs with an event loop and without."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolkiln.config import Settings
from toolkiln.errors import InputError, UnknownTool
from toolkiln.kiln import PROVIDERS, Kiln
from toolkiln.operations.library import listed_tools
from toolkiln.security.sessions import LOCAL_OPERATOR

TOOL = '''
def convert_{name}(amount: float) -> float:
    """Convert an amount of {name}.

    Args:
        amount: How much.
    """
    return amount
'''
CORE = '''
from toolkiln import tool

@tool(is_core=True)
def tell_time() -> str:
    """Tell the time."""
    return "noon"
'''
FINDERS = ["search_tools", "describe_tool", "call_tool"]
Open = Callable[..., Kiln]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens Kilns over five tools, one of them a core one."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("euros", "miles", "pounds", "litres"):
        (folder / f"{name}.py").write_text(TOOL.format(name=name))
    (folder / "tell_time.py").write_text(CORE)
    kilns: list[Kiln] = []

    def make(**settings: Any) -> Kiln:
        given = Settings(state=tmp_path / "state", **settings)
        kilns.append(Kiln(folder, settings=given, dev=True))
        return kilns[-1]

    yield make
    for kiln in kilns:
        kiln.close_sync()


def names(tools: list[dict[str, Any]]) -> list[str]:
    """The tools of a request for Anthropic."""
    return [tool["name"] for tool in tools]


def test_of_many_tools_the_core_ones_are_shown_and_those_that_find_the_others(opened: Open) -> None:
    kiln = opened(mcp_tools=4)

    assert names(kiln.tools("anthropic")) == ["tell_time", *FINDERS]
    assert [spec.name for spec in listed_tools(kiln.services, LOCAL_OPERATOR)] == [
        "tell_time",
        *FINDERS,
    ]


def test_a_prompt_chooses_core_tools_and_those_that_fit(opened: Open) -> None:
    tools = opened(mcp_tools=1).tools("anthropic", "how many litres are in a barrel?", 2)

    assert names(tools) == ["tell_time", "convert_litres"]


def test_tools_are_chosen_by_name_with_those_of_toolkiln(opened: Open) -> None:
    tools = opened().tools("anthropic", names=["write_python_tool", "convert_miles"])

    assert names(tools) == ["write_python_tool", "convert_miles"]


def test_unknown_names_are_answered_with_the_nearest_that_the_caller_may_see(opened: Open) -> None:
    denied = ("convert_euros", "call_tool")
    kiln = opened(mcp_tools=3, rules=({"effect": "deny", "users": ("eve",), "tools": denied},))
    eve = kiln.security.sessions.create("eve").token

    with pytest.raises(InputError) as no_provider:
        kiln.tools("antropic")
    with pytest.raises(UnknownTool) as no_tool:
        kiln.tools("anthropic", names=["convert_mile"])
    with pytest.raises(UnknownTool) as hidden:
        kiln.tools("anthropic", names=["convert_euros"], session=eve)

    assert "'anthropic'" in str(no_provider.value.hint)
    assert "convert_miles" in str(no_tool.value.hint)
    assert "convert_euros" not in str(hidden.value.hint)
    shown = names(kiln.tools("anthropic", session=eve))
    assert shown == ["tell_time", "search_tools", "describe_tool"]


def test_every_provider_gets_all_of_a_few_tools(opened: Open) -> None:
    kiln = opened()

    for provider in PROVIDERS:
        shown = str(kiln.tools(provider))
        assert (shown.count("'convert_"), "tell_time" in shown) == (4, True), provider
    assert not {*FINDERS} & {*names(kiln.tools("anthropic"))}


def test_what_a_provider_would_refuse_is_left_out_and_logged(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    kiln = opened()
    source = CORE.replace("is_core=True", "name='12_oclock'")
    kiln.catalog.root.joinpath("late.py").write_text(source)

    with caplog.at_level(logging.WARNING):
        shown = str(kiln.tools("gemini"))

    assert ("12_oclock" in shown, "convert_miles" in shown) == (False, True)
    assert ["12_oclock is left out for gemini" in message for message in caplog.messages] == [True]
    assert "12_oclock" in names(kiln.tools("anthropic"))


OFFER = '''
from toolkiln import Context

def offer(ctx: Context) -> str:
    """Offer tools."""
    ctx.inject_tools("convert_miles", "tell_time", "secret", "search_tools", "nobody")
    ctx.inject_tools("convert_miles")
    return "offered"

def secret() -> str:
    """Be hidden."""
    return "no"
'''
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("openai-strict", {"type": "function", "function": {"name": "offer", "arguments": "{}"}}),
    ("openai-responses", {"type": "function_call", "name": "offer", "arguments": "{}"}),
    ("anthropic-strict", {"type": "tool_use", "name": "offer", "input": {}}),
    ("gemini", {"functionCall": {"name": "offer", "args": {}}}),
]


def test_tools_that_a_call_injects_are_sent_with_the_next_turn(opened: Open) -> None:
    with opened(rules=({"effect": "deny", "tools": ("secret",)},)) as kiln:
        kiln.catalog.root.joinpath("offer.py").write_text(OFFER)
        for provider, call in CALLS:
            tools = kiln.tools(provider, names=["offer", "tell_time"])
            own = {"type": "web_search"}
            tools.append(own)

            (answer,) = kiln.handle_sync({"id": "c", "call_id": "c", **call}, provider, tools=tools)
            kiln.handle_sync({"id": "c", "call_id": "c", **call}, provider, tools=tools)

            assert "offered" in str(answer)
            payloads = [p for tool in tools for p in tool.get("functionDeclarations", [tool])]
            shown = [p.get("function", p).get("name") for p in payloads]
            assert sorted(map(str, shown)) == [
                "None", "convert_miles", "offer", "search_tools", "tell_time",
            ], provider  # fmt: skip
            expected = kiln.tools(provider, names=["convert_miles"])
            assert str(expected).strip("[]") in str(tools) or provider == "gemini"
            assert len(tools) == (2 if provider == "gemini" else 5)


def test_a_program_without_a_loop_handles_messages(opened: Open) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "convert_miles", "input": {"amount": "many"}}

    with opened() as kiln:
        (answer,) = kiln.handle_sync({"role": "assistant", "content": [call]})

    (result,) = answer["content"]
    assert (result["tool_use_id"], result["is_error"]) == ("c1", True)
    assert "amount" in result["content"]
