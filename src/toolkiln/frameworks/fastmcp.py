"""Stand-in for FastMCP: `fastmcp`, and the class of the same name in the package `mcp`.

A server only hands back the functions that it decorates; nothing is served. `Context` and
`Progress` pass on to the call's own context. The parts of a client, of authentication and of
other servers are unavailable.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from toolkiln.define import Context as CallContext
from toolkiln.define import Form, Roots, Sample, Sampled, ToolError
from toolkiln.frameworks.reply import File as _File
from toolkiln.frameworks.reply import Reply
from toolkiln.frameworks.unavailable import Unavailable

_LEVELS = {"debug": 10, "info": 20, "notice": 20, "warning": 30, "error": 40}
_SCALARS = (str, int, float, bool)

__all__ = ["Sampled", "ToolError"]


class FastMCP:
    """A server that gives back what it decorates."""

    def __init__(self, name: str | None = None, *_: Any, **__: Any) -> None:
        self.name = name or "FastMCP"

    def tool(self, name_or_function: Any = None, *_: Any, **__: Any) -> Any:
        """Return a function unchanged, or a decorator that does."""
        return name_or_function if callable(name_or_function) else lambda function: function

    prompt = resource = custom_route = add_tool = tool

    def run(self, *_: Any, **__: Any) -> None:
        """Serve nothing: calls come from Toolkiln."""

    async def run_async(self, *_: Any, **__: Any) -> None:
        """Serve nothing, as `run`."""

    run_stdio_async = run_sse_async = run_streamable_http_async = run_http_async = run_async

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unavailable(f"fastmcp.FastMCP.{name}")


MCPServer = FastMCP


def tool(name_or_function: Any = None, *_: Any, **__: Any) -> Any:
    """Return a function unchanged, or a decorator that does."""
    return FastMCP().tool(name_or_function)


prompt = resource = tool


class Context:
    """The context of a FastMCP tool, on top of the call's context."""

    def __init__(self, ctx: CallContext) -> None:
        self._ctx = ctx
        self._state: dict[str, Any] = {}
        self.client_id = ctx.agent_id
        self.request_id = self.session_id = ""

    def __class_getitem__(cls, _: Any) -> type:
        return cls

    async def log(self, first: Any, second: Any = None, **more: Any) -> None:
        """Log a message; the official SDK passes the level first, FastMCP the message."""
        level, message = more.get("level"), more.get("message")
        for text in (first, second):
            if text in _LEVELS and level is None:
                level = text
            elif text is not None:
                message = text
        self._ctx.log(str(message), _LEVELS.get(str(level), _LEVELS["info"]))

    async def debug(self, message: str, **_: Any) -> None:
        """Log a message for developers."""
        self._ctx.log(message, _LEVELS["debug"])

    async def info(self, message: str, **_: Any) -> None:
        """Log a message."""
        self._ctx.log(message)

    async def warning(self, message: str, **_: Any) -> None:
        """Log a warning."""
        self._ctx.log(message, _LEVELS["warning"])

    async def error(self, message: str, **_: Any) -> None:
        """Log an error."""
        self._ctx.log(message, _LEVELS["error"])

    async def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report the progress of the call."""
        self._ctx.report_progress(progress, total, message or "")

    async def elicit(
        self, message: str, response_type: Any = None, *, schema: Any = None, **_: Any
    ) -> Any:
        """Ask the person behind the caller; the type decides the fields of the form."""
        expected = response_type if schema is None else schema
        form_fields, convert = _form(expected)
        answer = self._ctx.ask(Form(message, form_fields))
        if answer:
            return AcceptedElicitation(convert(dict(answer.values)))
        return DeclinedElicitation() if answer.action == "decline" else CancelledElicitation()

    async def sample(
        self,
        messages: Any,
        *,
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        result_type: type = str,
        tools: Any = None,
        **_: Any,
    ) -> Sampled:
        """Ask the caller's model."""
        if result_type is not str or tools:
            Unavailable("fastmcp.Context.sample with result_type or tools")()
        listed = messages if isinstance(messages, list) else [messages]
        prompt: Any = [
            (getattr(item, "role", "user"), _text(getattr(item, "content", item)))
            for item in listed
        ]
        return self._ctx.ask(Sample(prompt, system_prompt or "", max_tokens or 1_000))

    async def list_roots(self) -> Any:
        """Return the working folders of the caller."""
        return list(self._ctx.ask(Roots()))

    async def set_state(self, key: str, value: Any, **_: Any) -> None:
        """Keep a value until the end of the call."""
        self._state[key] = value

    async def get_state(self, key: str) -> Any:
        """Return a value that this call has kept."""
        return self._state.get(key)

    async def delete_state(self, key: str) -> None:
        """Forget a value."""
        self._state.pop(key, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Unavailable(f"fastmcp.Context.{name}")


class Progress:
    """The progress of a FastMCP tool, on top of the call's context."""

    def __init__(self, ctx: CallContext | None = None) -> None:
        self._ctx = ctx
        self.current, self.total, self.message = 0.0, 1.0, ""

    async def set_total(self, total: float) -> None:
        """Set what the progress ends at."""
        self.total = total
        self._report()

    async def increment(self, amount: float = 1) -> None:
        """Advance."""
        self.current += amount
        self._report()

    async def set_message(self, message: str | None) -> None:
        """Describe what the tool is doing."""
        self.message = message or ""
        self._report()

    def _report(self) -> None:
        if self._ctx is not None:
            self._ctx.report_progress(self.current, self.total, self.message)


@dataclass
class AcceptedElicitation:
    """The person filled in the form."""

    data: Any
    action: Literal["accept"] = "accept"


@dataclass
class DeclinedElicitation:
    """The person refused."""

    action: Literal["decline"] = "decline"
    data: None = None


@dataclass
class CancelledElicitation:
    """The person closed the form."""

    action: Literal["cancel"] = "cancel"
    data: None = None


def _form(expected: Any) -> tuple[dict[str, Any], Any]:
    """Return the fields of a form for a type, and the conversion of its answers."""
    if expected is None:
        return {}, lambda values: values
    choices = list(expected) if isinstance(expected, list | tuple) else None
    if get_origin(expected) is Literal:
        choices = list(get_args(expected))
    if isinstance(expected, type) and issubclass(expected, enum.Enum):
        values = [member.value for member in expected]
        return {"value": {"type": "string", "enum": values}}, lambda v: expected(v["value"])
    if choices is not None:
        return {"value": {"type": "string", "enum": choices}}, lambda v: v["value"]
    if expected in _SCALARS:
        return {"value": expected}, lambda v: v["value"]
    if is_dataclass(expected) and isinstance(expected, type):
        hints = get_type_hints(expected)
        asked = {field.name: _field(hints[field.name]) for field in fields(expected)}
        return asked, lambda v: expected(**v)
    if hasattr(expected, "model_json_schema"):
        return expected.model_json_schema()["properties"], lambda v: expected(**v)
    raise ToolError(f"a form cannot ask for {getattr(expected, '__name__', expected)!r}")


def _field(hint: Any) -> Any:
    if get_origin(hint) is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    return hint if hint in _SCALARS else str


def _text(content: Any) -> str:
    return str(getattr(content, "text", content))


class _Media(_File):
    suffix = ""

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        format: str | None = None,  # noqa: A002 - the name that files pass
        name: str | None = None,
        **_: Any,
    ) -> None:
        source = Path(path) if path is not None else None
        content = data if source is None else source.read_bytes()
        default = f"{type(self).__name__.lower()}.{format or self.suffix}"
        super().__init__(name or (source.name if source else default), content or b"")


class Image(_Media):
    """An image that a tool returns."""

    suffix = "png"


class Audio(_Media):
    """A recording that a tool returns."""

    suffix = "wav"


class File(_Media):
    """A file that a tool returns."""

    suffix = "bin"


class ToolResult(Reply):
    """What a tool returns for the model and for programs."""

    def __init__(
        self, content: Any = None, structured_content: Any = None, meta: Any = None, **_: Any
    ) -> None:
        self.content, self.structured_content, self.meta = content, structured_content, meta
        self.reply_value = content if structured_content is None else structured_content


class Message(dict[str, Any]):
    """A message of a prompt."""

    def __init__(self, content: Any = "", role: str = "user", **_: Any) -> None:
        text = getattr(content, "text", content)
        super().__init__(role=role, content=text)
        self.role, self.content = role, content


UserMessage = Message


class AssistantMessage(Message):
    """A message of the model."""

    def __init__(self, content: Any = "", **_: Any) -> None:
        super().__init__(content, "assistant")


class Record:
    """A type of the protocol, with the fields that it is given."""

    def __init__(self, *_: Any, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class TextContent(Record, Reply):
    """A text in a result or message."""

    @property
    def reply_value(self) -> Any:
        """The text."""
        return self.text


ToolAnnotations = PromptMessage = SamplingMessage = Icon = Record


class FastMCPError(Exception):
    """Root of FastMCP's errors."""


class ResourceError(FastMCPError):
    """Raised by a resource."""


class PromptError(FastMCPError):
    """Raised by a prompt."""


class NotFoundError(FastMCPError):
    """Raised if something does not exist."""


class ValidationError(FastMCPError):
    """Raised for invalid values."""


def Depends(_: Any) -> Unavailable:  # noqa: N802 - the name that files import
    """Return a placeholder for what a dependency would give."""
    return Unavailable("fastmcp.dependencies.Depends")


def get_logger(name: str) -> Any:
    """Return a logger of the standard library."""
    import logging

    return logging.getLogger(name)
