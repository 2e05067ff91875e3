"""A model that follows a script, behind the wire formats that agent CLIs and SDKs speak.

It is no imitation of a model: `play` decides from the tools offered and the results so
far. Every conversation in which a tool was offered is kept, so that a test can read what
the client made of our tools.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """What the model does next: call a tool, or say something."""

    text: str = ""
    tool: str = ""
    arguments: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """One request of a client, as the model sees it."""

    tools: dict[str, Json]
    """What is offered, by the client's name for it: `description` and `schema`."""
    results: list[str]
    """What the tools called so far returned."""

    def named(self, ending: str) -> str:
        """The client's name for a tool of ours, or nothing."""
        return next((name for name in self.tools if name.endswith(ending)), "")


class Messages:
    """Anthropic's Messages."""

    paths = ("/v1/messages",)

    def turn(self, body: Json) -> Turn:
        """Read a request."""
        tools = {
            tool["name"]: {"description": tool["description"], "schema": tool["input_schema"]}
            for tool in body.get("tools", ())
            if "input_schema" in tool
        }
        blocks = [
            block
            for message in body["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
        ]
        results = [_text(b["content"]) for b in blocks if b["type"] == "tool_result"]
        return Turn(tools, results)

    def whole(self, step: Step, number: int) -> Json:
        """An answer that is not streamed."""
        if step.tool:
            block: Json = {"type": "tool_use", "id": f"toolu_{number}", "name": step.tool}
            block |= {"input": step.arguments}
        else:
            block = {"type": "text", "text": step.text}
        why = "tool_use" if step.tool else "end_turn"
        message: Json = {"id": f"msg_{number}", "type": "message", "role": "assistant"}
        message |= {"model": "scripted", "stop_reason": why, "stop_sequence": None}
        usage = {"input_tokens": 1, "output_tokens": 1}
        return message | {"content": [block], "usage": usage}

    def answer(self, step: Step, number: int) -> Iterator[tuple[str, Json]]:
        """The events of an answer."""
        message = self.whole(step, number)
        (block,) = message["content"]
        yield "message_start", {"message": message | {"content": [], "stop_reason": None}}
        if step.tool:
            text = json.dumps(step.arguments)
            delta = {"type": "input_json_delta", "partial_json": text}
            block |= {"input": {}}
        else:
            delta = {"type": "text_delta", "text": step.text}
            block |= {"text": ""}
        yield "content_block_start", {"index": 0, "content_block": block}
        yield "content_block_delta", {"index": 0, "delta": delta}
        yield "content_block_stop", {"index": 0}
        end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield "message_delta", {"delta": end, "usage": message["usage"]}
        yield "message_stop", {}


class Responses:
    """OpenAI's Responses."""

    paths = ("/v1/responses",)

    def turn(self, body: Json) -> Turn:
        """Read a request; a namespace of tools is joined to their names."""
        tools = {}
        for tool in body.get("tools", ()):
            if tool["type"] == "function":
                tools[tool["name"]] = _function(tool)
            elif tool["type"] == "namespace":
                for inner in tool["tools"]:
                    tools[f"{tool['name']}{_SEPARATOR}{inner['name']}"] = _function(inner)
        results = [
            _text(item["output"])
            for item in body["input"]
            if item.get("type") == "function_call_output"
        ]
        return Turn(tools, results)

    def whole(self, step: Step, number: int) -> Json:
        """An answer that is not streamed."""
        if step.tool:
            namespace, _, name = step.tool.rpartition(_SEPARATOR)
            item: Json = {"type": "function_call", "id": f"fc_{number}", "name": name}
            item |= {"call_id": f"call_{number}", "arguments": json.dumps(step.arguments)}
            item |= {"namespace": namespace} if namespace else {}
        else:
            said = {"type": "output_text", "text": step.text, "annotations": []}
            item = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
            item |= {"content": [said]}
        response = {"id": f"resp_{number}", "object": "response", "model": "scripted"}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        output = [item | {"status": "completed"}]
        return response | {"status": "completed", "output": output, "usage": usage}

    def answer(self, step: Step, number: int) -> Iterator[tuple[str, Json]]:
        """The events of an answer."""
        response = self.whole(step, number)
        (item,) = response["output"]
        begun = {key: response[key] for key in ("id", "object", "model")}
        yield "response.created", {"response": begun | {"status": "in_progress"}}
        yield "response.output_item.added", {"output_index": 0, "item": item}
        yield "response.output_item.done", {"output_index": 0, "item": item}
        yield "response.completed", {"response": response}


class Completions:
    """OpenAI's Chat Completions."""

    paths = ("/v1/chat/completions",)

    def turn(self, body: Json) -> Turn:
        """Read a request."""
        tools = {
            tool["function"]["name"]: _function(tool["function"]) for tool in body.get("tools", ())
        }
        results = [_text(m["content"]) for m in body["messages"] if m["role"] == "tool"]
        return Turn(tools, results)

    def whole(self, step: Step, number: int) -> Json:
        """An answer that is not streamed."""
        message: Json = {"role": "assistant", "content": step.text or None}
        if step.tool:
            function = {"name": step.tool, "arguments": json.dumps(step.arguments)}
            call = {"id": f"call_{number}", "type": "function", "function": function}
            message["tool_calls"] = [call]
        why = "tool_calls" if step.tool else "stop"
        choice = {"index": 0, "message": message, "finish_reason": why}
        chat = {"id": f"chat_{number}", "object": "chat.completion", "created": 0}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return chat | {"model": "scripted", "choices": [choice], "usage": usage}

    def answer(self, step: Step, number: int) -> Iterator[tuple[str, Json]]:
        """The events of an answer."""
        chat = self.whole(step, number)
        (choice,) = chat["choices"]
        delta = {key: value for key, value in choice["message"].items() if value is not None}
        if step.tool:
            delta["tool_calls"] = [{"index": 0, **call} for call in delta["tool_calls"]]
        chunk = {key: chat[key] for key in ("id", "created", "model")}
        chunk |= {"object": "chat.completion.chunk"}
        yield "", chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
        yield "", chunk | {"choices": [end], "usage": chat["usage"]}
        yield "[DONE]", {}


class Contents:
    """Gemini's generateContent, whose path says whether it is streamed."""

    paths = (":streamGenerateContent", ":generateContent")

    def turn(self, body: Json) -> Turn:
        """Read a request."""
        declared = [
            one for tool in body.get("tools", ()) for one in tool.get("functionDeclarations", ())
        ]
        tools = {
            one["name"]: {
                "description": one.get("description", ""),
                "schema": one.get("parametersJsonSchema", one.get("parameters")),
            }
            for one in declared
        }
        parts = [part for content in body["contents"] for part in content["parts"]]
        results = [
            json.dumps(part["functionResponse"]["response"], ensure_ascii=False)
            for part in parts
            if "functionResponse" in part
        ]
        return Turn(tools, results)

    def whole(self, step: Step, number: int) -> Json:
        """An answer that is not streamed."""
        if step.tool:
            part: Json = {"functionCall": {"name": step.tool, "args": step.arguments}}
        else:
            part = {"text": step.text}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        answer = {"candidates": [candidate | {"index": 0}], "usageMetadata": usage}
        return answer | {"modelVersion": "scripted", "responseId": f"r{number}"}

    def answer(self, step: Step, number: int) -> Iterator[tuple[str, Json]]:
        """The one event of an answer."""
        yield "", self.whole(step, number)


_SEPARATOR = "/"
_WIRES = (Messages(), Responses(), Completions(), Contents())


class Model:
    """The server's address, and the conversations that had tools in them."""

    def __init__(self, play: Callable[[Turn], Step]) -> None:
        self.turns: list[Turn] = []
        self.unknown: list[str] = []
        """What was asked for that no script answers."""
        self._play = play
        self._lock = threading.Lock()
        self.url = ""

    def next(self, turn: Turn) -> tuple[Step, int]:
        """What to answer, and a number for it; whoever offers no tools is only greeted."""
        with self._lock:
            if not turn.tools:
                return Step(text="Greetings"), 0
            self.turns.append(turn)
            return self._play(turn), len(self.turns)


@contextmanager
def serving(play: Callable[[Turn], Step]) -> Iterator[Model]:
    """Serve a scripted model on a free port of this machine."""
    model = Model(play)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
            path = self.path.partition("?")[0]
            wire = next((wire for wire in _WIRES if path.endswith(wire.paths)), None)
            if wire is None:
                model.unknown.append(self.path)
                return self._send(404, b"{}", "application/json")
            step, number = model.next(wire.turn(body))
            if not (body.get("stream") or path.endswith(":streamGenerateContent")):
                whole = json.dumps(wire.whole(step, number)).encode()
                return self._send(200, whole, "application/json")
            events = "".join(_event(name, data) for name, data in wire.answer(step, number))
            return self._send(200, events.encode(), "text/event-stream")

        def do_GET(self) -> None:
            model.unknown.append(self.path)
            self._send(404, b"{}", "application/json")

        do_HEAD = do_GET

        def _send(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Tests have no use for a log of requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    model.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _event(name: str, data: Json) -> str:
    if name == "[DONE]":
        return "data: [DONE]\n\n"
    if not name:
        return f"data: {json.dumps(data)}\n\n"
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n"


def _function(tool: Json) -> Json:
    return {"description": tool.get("description", ""), "schema": tool["parameters"]}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)
