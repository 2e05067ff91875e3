"""The `Context` of a running call: turns the tool's messages and questions into frames.

In the sandbox `send` and `request` use the call's socket, in inline calls they reach the gateway
directly. Tool authors see `define.Context`.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self, SupportsIndex

from toolkiln.define import (
    INFO,
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
from toolkiln.frameworks.agent_state import AgentState
from toolkiln.frameworks.tool_context import ToolContext
from toolkiln.runtime.call import MAX_FILE, MAX_STATE, file_frame
from toolkiln.runtime.serialise import to_json
from toolkiln.runtime.wire import encode

Frame = dict[str, Any]

_DATA_KEYS, _PATH_KEYS = ("data", "content", "bytes"), ("path", "file_path")
_NAME_KEYS = ("filename", "name", "file_name")
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


class Sent(list[Any]):
    """A list whose items reach the caller when they are added; removing them has no effect."""

    def __init__(self, send: Callable[[Iterable[Any]], None]) -> None:
        super().__init__()
        self._send = send

    def append(self, item: Any) -> None:
        """Send an item."""
        self.extend((item,))

    def insert(self, index: SupportsIndex, item: Any) -> None:
        """Send an item."""
        self[index:index] = (item,)

    def extend(self, items: Iterable[Any]) -> None:
        """Send items."""
        self[len(self) :] = items

    def __iadd__(self, items: Iterable[Any]) -> Self:  # type: ignore[misc]
        self.extend(items)
        return self

    def __setitem__(self, at: Any, value: Any) -> None:
        items = list(value) if isinstance(at, slice) else [value]
        if items:
            self._send(items)
        super().__setitem__(at, items if isinstance(at, slice) else value)

    def __reduce__(self) -> Any:
        return list, (list(self),)


class CallContext(ToolContext):
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
            agent_state=caller["agent_state"],
            secrets=caller.get("secrets") or {},
            settings=caller.get("settings") or {},
            workdir=Path(caller.get("workdir") or Path.cwd()),
            request=caller.get("request") or {},
        )
        self.sent_files = Sent(self._send_files)
        self.sent_messages = Sent(self._send_messages)
        self.injected_tools = Sent(self._inject_tools)
        self._send = send
        self._request = request
        self._asks = caller.get("asks") or ()

    def __setattr__(self, name: str, value: Any) -> None:
        sent = self.__dict__.get(name)
        if isinstance(sent, Sent):
            sent.extend([item for item in value if item not in sent] if value is not sent else ())
        else:
            super().__setattr__(name, value)

    def report_progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report progress to the caller."""
        frame = {"done": _number(done), "total": _number(total), "message": _text(message)}
        self._send({"op": "progress", **frame})

    def log(self, message: str, level: int = INFO) -> None:
        """Write a line to the caller's log."""
        self._send({"op": "log", "level": int(level), "message": _text(message)})

    def _send_files(self, items: Iterable[Any]) -> None:
        for item in items:
            name, data = self._file(item)
            self._send(file_frame(_text(name), data))

    def _file(self, item: Any) -> tuple[str, bytes]:
        """Return the name and content of a file: a path, or a dict with either."""
        path: Any = item
        if isinstance(item, Mapping):
            name = next((item[key] for key in _NAME_KEYS if item.get(key)), "")
            data = next((item[key] for key in _DATA_KEYS if item.get(key) is not None), None)
            if data is not None:
                return str(name) or "file", data.encode() if isinstance(data, str) else bytes(data)
            path = next((item[key] for key in _PATH_KEYS if item.get(key)), None)
        if not isinstance(path, str | Path):
            raise ToolError("a sent file is a path, or a dict with `path` or `data` and `filename`")
        file = self.workdir / path
        if file.stat().st_size > MAX_FILE:
            raise ToolError(f"{file.name} is larger than {MAX_FILE >> 20} MB")
        return file.name, file.read_bytes()

    def _send_messages(self, items: Iterable[Any]) -> None:
        for item in items:
            self._send({"op": "message", "value": to_json(item).value})

    def _inject_tools(self, names: Iterable[str]) -> None:
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
    state = AgentState(caller.get("agent_state") or {})
    caller = {**caller, "agent_state": state}
    for kind in injected.values():
        if kind == "context":
            values[kind] = CallContext(caller, send, request)
        elif kind == "agent_state":
            values[kind] = state
        elif kind == "agent_id":
            values[kind] = caller.get(kind)
        elif ":" in kind:
            values[kind] = finder.stand_in(kind)(CallContext(caller, send, request))
    if names := {kind for kind in injected.values() if kind.startswith("__")}:
        context = CallContext(caller, send, request)
        values |= finder.stand_in("open_webui.parameters:parameters")(names, caller, context)
    return values


def add_state(frame: Frame, before: Any, injected: Mapping[str, Any]) -> None:
    """Add the state of the agent to the result if the tool changed it, or a note on its loss."""
    state = injected.get("agent_state")
    if (context := injected.get("context")) is not None:
        state = context.agent_state
    if state is None:
        return
    after, before = to_json(state).value, to_json(before or {}).value
    text = encode(after)
    if text == encode(before):
        return
    if isinstance(after, dict) and len(text) <= MAX_STATE:
        frame["agent_state"] = after
        return
    limit = f"an object of at most {MAX_STATE:,} characters"
    frame["notes"].append(f"the agent's state is not {limit} any more, so its change is lost")


def _number(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    return number if number - number == 0 else None


def _text(value: Any) -> str:
    return str(value).encode("utf-8", "replace").decode()
