"""Answer a question with tools, through OpenAI's Chat Completions or what is compatible with it.

    cd examples && OPENAI_API_KEY=… python openai_chat.py "How far is a marathon in miles?"

OPENAI_BASE_URL leads to other servers: vLLM, Ollama, llama.cpp, OpenRouter.
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
    tools = kiln.tools("openai-strict", question)
    completion = client.chat.completions.create(model=MODEL, messages=conversation, tools=tools)
    while answers := kiln.handle_sync(completion, tools=tools):
        conversation += [completion.choices[0].message, *answers]
        completion = client.chat.completions.create(model=MODEL, messages=conversation, tools=tools)

print(completion.choices[0].message.content)
