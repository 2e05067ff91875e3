"""Answer a question with tools, through Anthropic's Messages.

cd examples && ANTHROPIC_API_KEY=… python anthropic_messages.py "How far is a marathon?"
"""

import sys
from typing import Any

from anthropic import Anthropic

from toolkiln import Kiln

MODEL = "claude-sonnet-4-5"
question = " ".join(sys.argv[1:]) or "How many kilometres are 26.2 miles?"
conversation: list[Any] = [{"role": "user", "content": question}]
client = Anthropic()

with Kiln("tools", dev=True) as kiln:  # without dev: admitted versions only
    request: Any = {"model": MODEL, "max_tokens": 2048}
    request["tools"] = kiln.tools("anthropic-strict", question)
    message = client.messages.create(messages=conversation, **request)
    while answers := kiln.handle_sync(message, tools=request["tools"]):
        conversation += [{"role": "assistant", "content": message.content}, *answers]
        message = client.messages.create(messages=conversation, **request)

print(*(block.text for block in message.content if block.type == "text"))
