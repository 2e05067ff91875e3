"""An agent that looks for tools, calls them, and writes those that are missing.

    cd examples && ANTHROPIC_API_KEY=… python agent.py "Is 2027 a leap year? Use a tool."

What it writes is checked and tried out in the sandbox, and stays in `tools`. It acts with a
session of its own, so that the audit log separates its calls from yours, and may write tools but
neither approve anything nor leave the sandbox.
"""

import asyncio
import sys
from typing import Any

from anthropic import AsyncAnthropic

from toolkiln import Kiln

MODEL = "claude-sonnet-4-5"
TOOLS = ["search_tools", "describe_tool", "call_tool", "write_python_tool"]
SYSTEM = """You solve tasks with tools, not from memory. Look for a tool with search_tools, read
how to use it with describe_tool, and call it with call_tool. If there is none that fits, write one
with write_python_tool; then call it with call_tool."""


async def solve(task: str) -> str:
    """Talk to the model until it calls no more tools."""
    conversation: list[Any] = [{"role": "user", "content": task}]
    async with Kiln("tools", dev=True) as kiln, AsyncAnthropic() as client:
        session = kiln.security.sessions.create("agent", privileges=["WRITE_TOOLS"], seconds=3600)
        agent = session.token
        request: Any = {"model": MODEL, "max_tokens": 4096, "system": SYSTEM}
        request["tools"] = kiln.tools("anthropic-strict", names=TOOLS, session=agent)
        message = await client.messages.create(messages=conversation, **request)
        while answers := await kiln.handle(message, session=agent, tools=request["tools"]):
            conversation += [{"role": "assistant", "content": message.content}, *answers]
            message = await client.messages.create(messages=conversation, **request)
    return "".join(block.text for block in message.content if block.type == "text")


if __name__ == "__main__":
    print(asyncio.run(solve(" ".join(sys.argv[1:]) or "Is 2028 a leap year?")))
