"""Letta: functions with `agent_state`, whose changes come back in the result."""

from typing import Any

import pytest

from toolkiln.catalog.source_options import with_options
from toolkiln.errors import AdmissionRefused
from toolkiln.kiln import Kiln
from toolkiln.model.admission import SourceOptions
from toolkiln.model.call import Result, Status
from toolkiln.operations.tool_files import WriteSource, WrittenTool, write_tool
from toolkiln.spec.reader import read
from toolkiln.spec.requirements import read_requirements

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = {
    "memory.py": '''
        from typing import Optional

        from letta.schemas.agent import AgentState


        def core_memory_note(agent_state: "AgentState", label: str, content: str) -> Optional[str]:
            """
            Append to a block of the core memory.

            Args:
                label (str): Section of the memory to be edited.
                content (str): Text to append.

            Returns:
                Optional[str]: The block after the change.
            """
            block = agent_state.memory.get_block(label)
            assert isinstance(agent_state, AgentState)
            assert agent_state["memory"]["blocks"][0] is agent_state.memory.blocks[0]
            new_value = str(block.value) + "\\n" + str(content)
            agent_state.memory.update_block_value(label=label, value=new_value)
            agent_state.memory.set_block({"label": "log", "value": content})
            agent_state.counts = {"notes": 1}
            agent_state.counts.notes += 1
            del agent_state.draft
            return agent_state.memory.get_block(label).value


        def read_name(agent_state: "AgentState", field: str = "name") -> str:
            """
            Read a field of the agent.

            Args:
                field (str): Name of the field.

            Returns:
                str: Its value.
            """
            agent_state.tags = list(agent_state.tags)
            return getattr(agent_state, field)


        def grow(agent_state: dict, size: int) -> int:
            """
            Keep a long text.

            Args:
                size (int): Its length.

            Returns:
                int: Its length.
            """
            agent_state["text"] = "x" * size
            return size
    '''
}
STATE: dict[str, Any] = {
    "name": "potter", "tags": ["clay"], "draft": "gone soon",
    "memory": {"blocks": [{"label": "human", "value": "Ann"}, {"label": "persona", "value": "I"}]},
}  # fmt: skip


async def call(kiln: Kiln, tool: str, arguments: dict[str, Any]) -> Result:
    session = kiln.security.sessions.create("ann", agent_state=STATE).token
    return await kiln.call(tool, arguments, session=session)


async def test_what_a_tool_changes_in_the_state_comes_back_for_the_caller_to_keep(
    kiln: Kiln,
) -> None:
    result = await call(kiln, "core_memory_note", {"label": "human", "content": "likes celadon"})

    assert result.value == "Ann\nlikes celadon", result.error
    assert result.agent_state == {
        "name": "potter",
        "tags": ["clay"],
        "memory": {
            "blocks": [
                {"label": "human", "value": "Ann\nlikes celadon"},
                {"label": "persona", "value": "I"},
                {"label": "log", "value": "likes celadon"},
            ]
        },
        "counts": {"notes": 2},
    }


async def test_a_state_that_is_as_before_does_not_come_back(kiln: Kiln) -> None:
    result = await call(kiln, "read_name", {})

    assert (result.value, result.agent_state) == ("potter", None), result.error


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_name", {"field": "absent"}),
        ("core_memory_note", {"label": "absent", "content": "x"}),
    ],
)
async def test_what_the_state_lacks_is_an_error_and_nothing_comes_back(
    kiln: Kiln, tool: str, arguments: dict[str, Any]
) -> None:
    result = await call(kiln, tool, arguments)

    assert (result.status, result.agent_state) == (Status.FAILED, None)


async def test_a_state_that_is_too_large_is_lost_with_a_note(kiln: Kiln) -> None:
    result = await call(kiln, "grow", {"size": 1 << 20})

    assert (result.value, result.agent_state) == (1 << 20, None), result.error
    assert any("1,048,576 characters" in note for note in result.notes)


MARKED = """
from toolkiln import tool


@tool(
    enable_parallel_execution=True,
    return_char_limit=900,
    pip_requirements=[{"name": "humanize", "version": "4.9.0"}, {"name": "idna"}, "httpx>=0.27"],
    metadata={"team": ("pottery", 1)},
)
def size(number: int) -> str:
    \"\"\"Return a size in words.

    Args:
        number: Number of bytes.
    \"\"\"
    import humanize

    return humanize.naturalsize(number)
"""


async def test_options_of_letta_are_those_of_a_tool() -> None:
    reading = read(MARKED, "<memory>")

    (spec,) = reading.tools
    assert [f.rule for f in reading.findings] == []
    assert (spec.parallel, spec.limits.return_char_limit) == (True, 900)
    assert spec.requirements == ("humanize==4.9.0", "idna", "httpx>=0.27")
    assert spec.metadata == {"team": ["pottery", 1]}


@pytest.mark.parametrize("value", ['{"x": "y" * 5_000}', '{"x": {1}}', '"text"'])
async def test_metadata_is_limited_json(value: str) -> None:
    reading = read(MARKED.replace('{"team": ("pottery", 1)}', value), "<memory>")

    assert "bad-option" in [f.rule for f in reading.findings]


SOURCE = """def roll(sides: int, **other: object) -> str:
    return "a long text about a die"
"""
SCHEMA: dict[str, Any] = {
    "name": "roll",
    "description": "Roll a die.",
    "parameters": {
        "type": "object",
        "properties": {
            "sides": {"type": "integer", "enum": [4, 6], "description": 'It\'s \\ "n" ü\u2028'},
            "request_heartbeat": {"type": "boolean"},
        },
        "required": ["sides", "request_heartbeat"],
    },
}
KEPT = {
    "type": "object",
    "properties": {"sides": SCHEMA["parameters"]["properties"]["sides"]},
    "required": ["sides"],
}
BESIDE: dict[str, Any] = {
    "json_schema": SCHEMA,
    "enable_parallel_execution": True,
    "return_char_limit": 6,
}


async def write(kiln: Kiln, source: str, **beside: Any) -> WrittenTool:
    request = WriteSource(name="roll", source=source, **beside)
    return await kiln.run_operation(write_tool, request)


@pytest.mark.parametrize(
    "head",
    [
        "",
        "#!/usr/bin/env python\r\n",
        "# /// script\n# dependencies = []\n# ///\n",
        "# /// script\n# [tool.toolkiln]\n# timeout = 5\n# ///\n",
    ],
)
async def test_options_beside_the_source_become_part_of_it(kiln: Kiln, head: str) -> None:
    source = head + (SOURCE.replace("\n", "\r\n") if "\r" in head else SOURCE)

    written = await write(kiln, source, **BESIDE)

    spec = kiln.tool("roll")
    assert spec.id == f"roll@{written.digest[:12]}"
    assert (spec.parameters, spec.parallel, spec.limits.return_char_limit) == (KEPT, True, 6)
    assert spec.limits.timeout == (5 if "timeout" in head else None)
    assert spec.description == "Roll a die."
    result = await kiln.call("roll", {"sides": 4})
    assert result.truncation is not None
    assert (await kiln.call("roll", {"sides": 5})).status is Status.INVALID


async def test_packages_beside_the_source_are_listed_in_it() -> None:
    items = [{"name": "humanize", "version": "4.9.0"}, 'idna>=3; python_version<"4"']
    options = SourceOptions.model_validate({"pip_requirements": items})

    code = with_options("import humanize\n", options)

    assert read_requirements(code, None).packages == (
        "humanize==4.9.0",
        'idna>=3; python_version < "4"',
    )


@pytest.mark.parametrize(
    ("beside", "problem"),
    [
        ({"json_schema": {**SCHEMA, "name": "other"}}, "json_schema is that of other"),
        ({"pip_requirements": ["not a requirement"]}, "not a requirement"),
        ({"enable_parallel_execution": False}, "declares parallel itself"),
        ({"return_char_limit": 7}, "declares return_char_limit itself"),
    ],
)
async def test_what_the_source_overrules_is_refused(
    kiln: Kiln, beside: dict[str, Any], problem: str
) -> None:
    mark = "from toolkiln import tool\n@tool(parallel=True, return_char_limit=6)\n"

    with pytest.raises(AdmissionRefused) as refused:
        await write(kiln, mark + SOURCE, **beside)

    assert problem in str(refused.value) + str(refused.value.findings)


@pytest.mark.parametrize("text", ["a\nimport os", "a\\", ""])
async def test_a_requirement_cannot_break_out_of_its_line(kiln: Kiln, text: str) -> None:
    arguments = {"tool_code": SOURCE, "tool_name": "roll", "pip_requirements": [text]}

    result = await kiln.call("write_python_tool", arguments)

    assert result.error is not None
    assert "name: String should match pattern" in result.error.message


async def test_an_agent_writes_options_beside_the_source(kiln: Kiln) -> None:
    arguments = {"tool_code": SOURCE, "tool_name": "roll", "overwrite": True, **BESIDE}

    result = await kiln.call("write_python_tool", arguments)

    assert result.value["functions_registered"] == ["roll"], result.text
    assert kiln.tool("roll").parameters == KEPT
