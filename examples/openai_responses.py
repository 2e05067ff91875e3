"""Answer a question with tools, through OpenAI's Responses.

cd examples && OPENAI_API_KEY=… python openai_responses.py "How far is a marathon in miles?"
"""

import sys
from typing import Any

from openai import OpenAI

from toolkiln import Kiln

MODEL = "gpt-5"
question = " ".join(sys.argv[1:]) or "How many kilometres are 26.2 miles?"
conversation: list[Any] = [{"role": "user", "content": question}]
client = OpenAI()

with Kiln("tools", dev=True) as kiln:  # without dev: admitted versions only
    tools = kiln.tools("openai-responses-strict", question)
    response = client.responses.create(model=MODEL, input=conversation, tools=tools)
    while answers := kiln.handle_sync(response, tools=tools):
        conversation += [*response.output, *answers]
        response = client.responses.create(model=MODEL, input=conversation, tools=tools)

print(response.output_text)
