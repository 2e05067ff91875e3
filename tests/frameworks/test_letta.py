"""Letta: functions with `agent_state`, whose changes come back in the result."""

from typing import Any

import pytest

from toolkiln.kiln import Kiln
from toolkiln.model.call import Result, Status

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
