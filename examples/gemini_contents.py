"""Answer a question with tools, through Gemini's generateContent.

cd examples && GEMINI_API_KEY=… python gemini_contents.py "How far is a marathon in miles?"
"""

import sys
from typing import Any

from google import genai

from toolkiln import Kiln

MODEL = "gemini-2.5-flash"
question = " ".join(sys.argv[1:]) or "How many kilometres are 26.2 miles?"
conversation: list[Any] = [{"role": "user", "parts": [{"text": question}]}]

with Kiln("tools", dev=True) as kiln, genai.Client() as client:  # without dev: what was admitted
    tools = kiln.tools("gemini", question)
    request: Any = {"model": MODEL, "config": {"tools": tools}}
    response = client.models.generate_content(contents=conversation, **request)
    while answers := kiln.handle_sync(response, tools=tools):
        conversation += [response.candidates[0].content, *answers]
        response = client.models.generate_content(contents=conversation, **request)

print(response.text)
