"""Toolkiln's own tools, called as an agent calls them."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from toolkiln import tool
from toolkiln.config import Settings
from toolkiln.errors import StoreError
from toolkiln.kiln import Kiln
from toolkiln.model.call import Status
from toolkiln.model.spec import BUILTIN_NAMES
from toolkiln.schema.providers.compilers import health
from toolkiln.store.version_archive import VersionArchive

from .conftest import FIRST, NAME, SECOND, Forge, answer, call_writer, write

SOON = 60.0
ECHO = '''
def echo(name: str, tool: str, arguments: list[str], ctx_id: int = 0) -> list[object]:
    """Give back what was given.

    Args:
        name: Any.
        tool: Any.
        arguments: Any.
        ctx_id: Any.
    """
    return [name, tool, arguments, ctx_id]
'''


@tool
def give(number: int) -> int:
    """Give a number back.

    Args:
        number: The number.
    """
    return number


async def ask(kiln: Kiln, called: str, /, **arguments: Any) -> Any:
    return answer(await kiln.call(called, arguments))


async def test_names_known_ahead_are_those_declared(forge: Forge) -> None:
    kiln = forge.kiln()

    declared = {name: kiln.tool(name) for name in BUILTIN_NAMES}

    assert {name: spec.name for name, spec in declared.items()} == {n: n for n in BUILTIN_NAMES}
    assert health(kiln.tool("write_python_tool").parameters).level != "invalid"


async def test_agent_finds_reads_about_and_calls_what_it_wrote(forge: Forge) -> None:
    kiln = forge.kiln()
    await call_writer(kiln, FIRST)

    found = await ask(kiln, "search_tools", query="how warm is it in Fahrenheit?")
    described = await ask(kiln, "describe_tool", name=NAME)
    passages = await ask(kiln, "rag_search", query="temperature in degrees Celsius", k=2)
    value = await ask(kiln, "call_tool", name=NAME, arguments={"celsius": 100})
    again = {"tool_code": SECOND, "tool_name": NAME, "overwrite": True}
    rewritten = await ask(kiln, "call_tool", name="write_python_tool", arguments=again)

    assert found["tools"][0]["name"] == NAME
    assert found["tools"][0]["description"].startswith("Convert a temperature")
    assert 0 < found["confidence"] <= 1
    assert described["parameters"]["required"] == ["celsius"]
    assert "**Parameters**" in described["guide"]
    assert "- Requests no permissions." in described["behaviour"]
    assert len(passages["passages"]) == 2
    first = passages["passages"][0]
    assert first.keys() == {"page", "heading", "citation", "text"}
    assert first["citation"].startswith(f"{NAME}.md#")
    assert value == 212.0
    assert (rewritten["success"], forge.served()) == (True, {NAME: SECOND})
    for reply in (found, described, passages):
        json.dumps(reply)
    for k in (-5, 0, 10**9):
        assert len((await ask(kiln, "search_tools", query="temperature", k=k))["tools"]) == 1
        pages = await ask(kiln, "rag_search", query="temperature", k=k)
        assert 1 <= len(pages["passages"]) <= 20


QUOTE = '''
TOOL_NAME = "quote"
TOOL_DESCRIPTION = "Quote the price of a vase."
TOOL_PARAMETERS = {
    "type": "object",
    "properties": {"mood": {"type": "string", "description": "The mood."}},
    "required": ["mood"],
}


def kiln_temperature(cone: int, raku: bool = False) -> float:
    """Return the temperature of a firing.

    Args:
        cone: The pyrometric cone, such as 6.
    """
    return 1222.0


def run(mood: str) -> str:
    """Quote a price.

    Args:
        mood: How one feels, such as melancholic.
    """
    return mood


def appraise(vase: str) -> str:
    return vase
'''


async def test_the_file_of_a_tool_is_documented_and_found(forge: Forge) -> None:
    kiln = forge.kiln()
    said = "Prices of vases with celadon glazes."
    await call_writer(kiln, QUOTE, "quote", description=said)
    page = kiln.library.page("quote")

    about_glazes = await ask(kiln, "rag_search", query="celadon glazes", k=1)
    about_cones = await ask(kiln, "rag_search", query="temperature of a firing, cone", k=1)

    assert forge.served()["quote"].startswith(f'\n"""{said}"""\n\nTOOL_NAME')
    assert f"## Module\n\n{said}" in page
    assert "kiln_temperature(cone: int, raku: bool=False) -> float" in page
    assert "- cone: The pyrometric cone, such as 6." in page
    assert "## Function appraise" in page
    assert "The mood.\n\n  How one feels, such as melancholic." in page
    assert "## Function run" not in page
    assert about_glazes["passages"][0]["citation"] == "quote.md#module"
    assert about_cones["passages"][0]["citation"] == "quote.md#function-kiln_temperature"


async def test_any_parameter_name_can_be_passed_through(forge: Forge) -> None:
    kiln = forge.kiln()
    await write(kiln, ECHO, "echo")
    given = {"name": "n", "tool": "t", "arguments": ["a"], "ctx_id": 7}

    assert await ask(kiln, "call_tool", name="echo", arguments=given) == ["n", "t", ["a"], 7]


async def test_call_of_what_is_not_served_says_why(forge: Forge) -> None:
    kiln = forge.kiln(authoring="propose")
    await write(kiln, FIRST)
    await write(kiln, ECHO, "echo")
    kiln.services.admissions.switch("echo", wanted=False)
    await call_writer(kiln, "def waiting() -> int:\n    'Wait.'\n    return 1\n", "waiting")

    messages = {}
    for name in ("unheard_of", "echo", "waiting", ""):
        result = await kiln.call("call_tool", {"name": name})
        assert result.status is Status.FAILED
        assert result.error is not None
        messages[name] = result.error.message
        described = await kiln.call("describe_tool", {"name": name})
        assert described.status is Status.FAILED
    invalid = await kiln.call("call_tool", {"name": NAME, "arguments": {"kelvin": 1}})

    assert "there is no tool named 'unheard_of'" in messages["unheard_of"]
    assert "disabled" in messages["echo"]
    assert "not admitted" in messages["waiting"]
    assert invalid.error is not None
    assert "celsius" in invalid.error.message


async def test_calls_within_calls_have_a_bound_and_never_wait_for_each_other(forge: Forge) -> None:
    settings = Settings(state=forge.state, environ=dict(os.environ))
    call: dict[str, Any] = {"name": "give", "arguments": {"number": 7}}
    deep: list[Status] = []
    async with Kiln(functions=[give], settings=settings) as kiln, asyncio.timeout(SOON):
        for _ in range(10):
            deep.append((await kiln.call("call_tool", call)).status)
            call = {"name": "call_tool", "arguments": call}
        nested = {"name": "call_tool", "arguments": {"name": "give", "arguments": {"number": 7}}}
        many = await asyncio.gather(*(kiln.call("call_tool", nested) for _ in range(100)))

    assert deep == [Status.OK] * 8 + [Status.DENIED] * 2
    assert {result.value for result in many} == {7}


async def test_writing_without_a_folder_says_so(tmp_path: Path) -> None:
    settings = Settings(state=tmp_path, environ=dict(os.environ))
    async with Kiln(functions=[give], settings=settings) as kiln:
        result = await kiln.call("write_python_tool", {"tool_code": FIRST, "tool_name": NAME})

    assert result.error is not None
    assert "no folder of tools" in result.error.message


async def test_nothing_is_found_under_a_manifest_that_was_tampered_with(forge: Forge) -> None:
    await write(forge.kiln(), FIRST)
    (forge.tools / "_manifest.json").write_text("{}")
    kiln = forge.kiln()

    for name, given in {"search_tools": {"query": "x"}, "rag_search": {"query": "x"}}.items():
        result = await kiln.call(name, given)
        assert result.error is not None
        assert "is damaged" in result.error.message


async def test_prompts_are_learnt_from_only_if_the_operator_agreed(
    forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(forge.kiln(), FIRST)
    given = {"name": NAME, "arguments": {"celsius": 100}, "prompt": "is it hot in Phoenix"}

    unasked = forge.kiln()
    await ask(unasked, "call_tool", **given)
    none = unasked.services.store.archive.usages(unasked.catalog.manifest.catalog)
    agreed = forge.kiln(learn_usages=True)
    await ask(agreed, "call_tool", **given)
    learnt = agreed.services.store.archive.usages(agreed.catalog.manifest.catalog)

    def fail(*_: Any) -> Any:
        raise StoreError("the store is out of reach")

    monkeypatch.setattr(VersionArchive, "add_usage", fail)
    assert none == {}
    assert learnt == {NAME: ("is it hot in Phoenix",)}
    assert await ask(agreed, "call_tool", **given) == 212.0
