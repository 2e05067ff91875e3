"""Provider messages: the tool calls in a model's response, and the messages that reply.

One class per message format parses calls and builds replies. SDK objects are read by
attribute and plain dicts by key, without importing any SDK; replies are plain dicts, which
all SDKs accept. Streams have to be assembled by the SDK first.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from toolkiln.errors import InputError

Message = dict[str, Any]
"""A message to append to the conversation."""


class ToolCall(NamedTuple):
    """A tool call in a model's response, unvalidated."""

    id: object
    """Unique within the conversation; the reply repeats it."""
    tool: object
    arguments: object
    """JSON text or its value."""


class ToolReply(NamedTuple):
    """The result of one tool call, for the model."""

    call: ToolCall
    text: str
    is_error: bool


class MessageFormat(ABC):
    """A format in which a model sends tool calls and accepts replies."""

    name: ClassVar[str]
    providers: ClassVar[tuple[str, ...]]
    """Providers whose compiled tools are called in this format, the default first."""
    needs_ids: ClassVar[bool] = True

    @abstractmethod
    def parts(self, response: object) -> Sequence[object] | None:
        """Return the parts of a response, message or call; None if the format differs."""

    @abstractmethod
    def call(self, part: object) -> ToolCall | None:
        """Return the call in a part, if it is one."""

    @abstractmethod
    def messages(self, replies: Sequence[ToolReply]) -> list[Message]:
        """Build the reply to all calls of one message."""


class Responses(MessageFormat):
    """OpenAI's Responses API."""

    name = "OpenAI's Responses"
    providers = (
        "openai-responses-strict", "openai-responses", "openai-strict", "openai"
    )  # fmt: skip

    def parts(self, response: object) -> Sequence[object] | None:
        if field(response, "type") == "function_call":
            return [response]
        return _list(field(response, "output"))

    def call(self, part: object) -> ToolCall | None:
        if field(part, "type") != "function_call":
            return None
        return ToolCall(field(part, "call_id"), field(part, "name"), field(part, "arguments"))

    def messages(self, replies: Sequence[ToolReply]) -> list[Message]:
        return [
            {"type": "function_call_output", "call_id": _id(reply), "output": reply.text}
            for reply in replies
        ]


class Completions(MessageFormat):
    """OpenAI's Chat Completions API and compatible ones."""

    name = "OpenAI's Chat Completions"
    providers = ("openai-strict", "openai")

    def parts(self, response: object) -> Sequence[object] | None:
        choices = _list(field(response, "choices"))
        if choices is not None:
            return self.parts(choices[0]) if choices else []
        if has(response, "message"):
            return self.parts(field(response, "message"))
        if has(response, "tool_calls"):
            return _list(field(response, "tool_calls")) or []
        return [response] if self.call(response) else None

    def call(self, part: object) -> ToolCall | None:
        function = field(part, "function")
        if function is None:
            return None
        return ToolCall(field(part, "id"), field(function, "name"), field(function, "arguments"))

    def messages(self, replies: Sequence[ToolReply]) -> list[Message]:
        return [
            {"role": "tool", "tool_call_id": _id(reply), "content": reply.text} for reply in replies
        ]


class Messages(MessageFormat):
    """Anthropic's Messages API."""

    name = "Anthropic's Messages"
    providers = ("anthropic-strict", "anthropic")

    def parts(self, response: object) -> Sequence[object] | None:
        if field(response, "type") == "tool_use":
            return [response]
        if field(response, "type") == "message" or field(response, "role") == "assistant":
            return _list(field(response, "content")) or []
        return None

    def call(self, part: object) -> ToolCall | None:
        if field(part, "type") != "tool_use":
            return None
        return ToolCall(field(part, "id"), field(part, "name"), field(part, "input"))

    def messages(self, replies: Sequence[ToolReply]) -> list[Message]:
        blocks = [
            {"type": "tool_result", "tool_use_id": _id(reply), "content": reply.text}
            | ({"is_error": True} if reply.is_error else {})
            for reply in replies
        ]
        return [{"role": "user", "content": blocks}] if blocks else []


class Contents(MessageFormat):
    """Gemini's generateContent, with the field names of its SDK or of its JSON."""

    name = "Gemini's generateContent"
    providers = ("gemini",)
    needs_ids = False

    def parts(self, response: object) -> Sequence[object] | None:
        if has(response, "candidates"):
            candidates = _list(field(response, "candidates"))
            return self.parts(candidates[0]) if candidates else []
        if has(response, "parts"):
            return _list(field(response, "parts")) or []
        if has(response, "content"):
            content = field(response, "content")
            return [] if content is None else self.parts(content)
        return [response] if self.call(response) else None

    def call(self, part: object) -> ToolCall | None:
        call = field(part, "functionCall", "function_call")
        if call is None and has(part, "name") and has(part, "args"):
            call = part
        if call is None:
            return None
        arguments = field(call, "args")
        return ToolCall(
            field(call, "id"), field(call, "name"), {} if arguments is None else arguments
        )

    def messages(self, replies: Sequence[ToolReply]) -> list[Message]:
        parts = []
        for reply in replies:
            response: Message = {"name": str(reply.call.tool or "")}
            response["response"] = {"error" if reply.is_error else "output": reply.text}
            parts.append(
                {"functionResponse": response | ({"id": _id(reply)} if _id(reply) else {})}
            )
        return [{"role": "user", "parts": parts}] if parts else []


FORMATS: tuple[MessageFormat, ...] = (Responses(), Completions(), Messages(), Contents())


def read(response: object) -> tuple[MessageFormat, list[ToolCall]]:
    """Detect the format of a response and return it with the calls, in order.

    Raises:
        InputError: unknown format.
    """
    listed = _list(response)
    for message_format in FORMATS:
        parts = message_format.parts(response) if listed is None else listed
        calls = [call for part in parts or () if (call := message_format.call(part)) is not None]
        if calls or (listed is None and parts is not None):
            return message_format, calls
    if listed is not None and all(has(part, "type") or has(part, "text") for part in listed):
        return FORMATS[0], []
    raise InputError(
        f"{type(response).__name__} is not a known response format",
        hint="pass the response of the OpenAI, Anthropic or Gemini SDK, a message or tool call "
        "from it, or the same as plain dicts",
    )


def has(item: object, name: str) -> bool:
    """Return whether a dict or object has a field, even an empty one."""
    return name in item if isinstance(item, Mapping) else hasattr(item, name)


def field(item: object, *names: str) -> Any:
    """Return the first of these fields of a dict or object that is not None."""
    for name in names:
        value = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        if value is not None:
            return value
    return None


def _list(value: object) -> Sequence[object] | None:
    return value if isinstance(value, list | tuple) else None


def _id(reply: ToolReply) -> str:
    return reply.call.id if isinstance(reply.call.id, str) else ""
