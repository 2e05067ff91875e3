"""The `Context` of a running call: turns the tool's messages and questions into frames.

In the sandbox `send` and `request` use the call's socket, in inline calls they reach the gateway
directly. Tool authors see `define.Context`.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolkiln.define import (
    INFO,
    Context,
    Filled,
    Form,
    NotAnswered,
    Question,
    Root,
    Roots,
    Sample,
    Sampled,
    ToolDenied,
    ToolError,
)
from toolkiln.frameworks import finder
from toolkiln.runtime.call import MAX_FILE
from toolkiln.runtime.serialise import to_json

Frame = dict[str, Any]

_KINDS: dict[type[Question[Any]], str] = {Form: "form", Sample: "sample", Roots: "roots"}
_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def _kind(question: type[Question[Any]]) -> str:
    kind = next((name for base, name in _KINDS.items() if issubclass(question, base)), None)
    if kind is None:
        raise TypeError(f"a question is a Form, a Sample or Roots, not {question.__name__}")
    return kind


def _question_frame(question: Question[Any]) -> Frame:
    frame: Frame = {"kind": _kind(type(question))}
    if isinstance(question, Form):
        fields = {name: _field(field) for name, field in question.fields.items()}
        required = question.required
        if required is None:
            required = [name for name, field in fields.items() if "default" not in field]
        frame |= {"message": question.message, "fields": fields, "required": list(required)}
    elif isinstance(question, Sample):
        prompt = question.prompt
        messages = [("user", prompt)] if isinstance(prompt, str) else prompt
        frame["messages"] = [{"role": role, "text": text} for role, text in messages]
        frame |= {"system": question.system, "max_tokens": question.max_tokens}
    frame["name"] = getattr(question, "name", "")
    result: Frame = to_json(frame).value
    return result


def _answer(question: Question[Any], frame: Frame) -> Any:
    if isinstance(question, Form):
        return Filled(frame["action"], frame["content"])
    if isinstance(question, Sample):
        return Sampled(**frame)
    return tuple(Root(**root) for root in frame["roots"])


def _field(declared: Any) -> dict[str, Any]:
    if not isinstance(declared, type):
        return dict(declared)
    if declared not in _TYPES:
        raise TypeError(
            f"a field is str, int, float, bool or a JSON Schema, not {declared.__name__}"
        )
    return {"type": _TYPES[declared]}


class CallContext(Context):
    """A context that sends frames to the host or the gateway."""

    def __init__(
        self,
        caller: Mapping[str, Any],
        send: Callable[[Frame], None],
        request: Callable[[Frame], Frame],
    ) -> None:
        super().__init__(
            user_id=caller.get("user_id"),
            platform=caller.get("platform"),
            guild_id=caller.get("guild_id"),
            channel_id=caller.get("channel_id"),
            agent_id=caller.get("agent_id"),
            agent_state=caller.get("agent_state") or {},
            secrets=caller.get("secrets") or {},
            settings=caller.get("settings") or {},
            workdir=Path(caller.get("workdir") or Path.cwd()),
        )
        self._send = send
        self._request = request
        self._asks = caller.get("asks") or ()

    def report_progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report progress to the caller."""
        frame = {"done": _number(done), "total": _number(total), "message": _text(message)}
        self._send({"op": "progress", **frame})

    def log(self, message: str, level: int = INFO) -> None:
        """Write a line to the caller's log."""
        self._send({"op": "log", "level": int(level), "message": _text(message)})

    def send_file(self, path: str | Path) -> None:
        """Send a file of the working directory to the caller."""
        file = self.workdir / path
        if file.stat().st_size > MAX_FILE:
            raise ToolError(f"{file.name} is larger than {MAX_FILE >> 20} MB")
        data = b64encode(file.read_bytes()).decode()
        self._send({"op": "file", "name": _text(file.name), "data": data})

    def send_message(self, message: Any) -> None:
        """Send a structured message to the caller."""
        self._send({"op": "message", "value": to_json(message).value})

    def inject_tools(self, *names: str) -> None:
        """Make more tools available to the agent for the rest of its conversation."""
        self._send({"op": "inject", "names": [_text(name) for name in names]})

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call another tool on the caller's behalf and return its result.

        Raises:
            ToolDenied: the caller may not make the other call, or it was refused.
            ToolError: the other call failed.
        """
        reply = self._request(
            {"op": "call", "tool": _text(tool), "arguments": to_json(arguments).value}
        )
        if "error" in reply:
            error = ToolDenied if reply.get("denied") else ToolError
            raise error(reply["error"], retryable=bool(reply.get("retryable")))
        return reply.get("value")

    def can_ask(self, kind: type[Question[Any]], /) -> bool:
        """Return whether the caller supports this kind of question."""
        return _kind(kind) in self._asks

    # The overloads are those of `Context`.
    def ask(self, *questions: Question[Any]) -> Any:
        """Ask the caller and wait for the answers.

        Raises:
            NotAnswered: the caller does not support the question or gave no valid answer.
        """
        if not questions:
            return ()
        reply = self._request({"op": "ask", "questions": [*map(_question_frame, questions)]})
        if "error" in reply:
            raise NotAnswered(reply["error"])
        answers = tuple(map(_answer, questions, reply["answers"]))
        return answers[0] if len(answers) == 1 else answers


def injections(
    injected: Mapping[str, str],
    caller: Mapping[str, Any],
    send: Callable[[Frame], None],
    request: Callable[[Frame], Frame],
) -> dict[str, Any]:
    """Return the values for a tool's injected parameters, by the kind of injection."""
    values: dict[str, Any] = {}
    for kind in injected.values():
        if kind == "context":
            values[kind] = CallContext(caller, send, request)
        elif kind in ("agent_state", "agent_id"):
            values[kind] = caller.get(kind)
        elif ":" in kind:
            values[kind] = finder.stand_in(kind)(CallContext(caller, send, request))
    if names := {kind for kind in injected.values() if kind.startswith("__")}:
        context = CallContext(caller, send, request)
        values |= finder.stand_in("open_webui.parameters:parameters")(names, caller, context)
    return values


def _number(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    return number if number - number == 0 else None


def _text(value: Any) -> str:
    return str(value).encode("utf-8", "replace").decode()
