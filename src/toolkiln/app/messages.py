"""Messages of models: the tool calls in them, and the messages that answer those.

One class for each wire form knows what a call looks like and how a result is sent back.
What SDKs return is read by attribute, plain dicts by key, and no SDK is imported; answers
are plain dicts, which all of them take. Streams are put together by the SDKs. `handling`
runs the calls.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from toolkiln.errors import InputError

Message = dict[str, Any]
"""What is appended to a conversation."""


class Sent(NamedTuple):
    """A call as a model sent it; nothing in it has been checked."""

    id: object
    """What the answer refers to; it means nothing beyond its conversation."""
    tool: object
    arguments: object
    """JSON text, or what that stands for."""


class Told(NamedTuple):
    """What a model is told of one call."""

    sent: Sent
    text: str
    is_error: bool


class Wire(ABC):
    """One form in which models send calls and take answers."""

    name: ClassVar[str]
    providers: ClassVar[tuple[str, ...]]
    """What tools are compiled for that come back in this form; the first unless told."""
    needs_ids: ClassVar[bool] = True

    @abstractmethod
    def parts(self, given: object) -> Sequence[object] | None:
        """The parts of a response, message or call; None if this is not its form."""

    @abstractmethod
    def call(self, part: object) -> Sent | None:
        """The call that a part is; None if it is something else."""

    @abstractmethod
    def messages(self, told: Sequence[Told]) -> list[Message]:
        """The answer to all calls of one message."""


class Responses(Wire):
    """OpenAI's Responses."""

    name = "OpenAI's Responses"
    providers = (
        "openai-responses-strict", "openai-responses", "openai-strict", "openai"
    )  # fmt: skip

    def parts(self, given: object) -> Sequence[object] | None:
        """Of a response, an item."""
        if field(given, "type") == "function_call":
            return [given]
        return _list(field(given, "output"))

    def call(self, part: object) -> Sent | None:
        """An item of the type `function_call`."""
        if field(part, "type") != "function_call":
            return None
        return Sent(field(part, "call_id"), field(part, "name"), field(part, "arguments"))

    def messages(self, told: Sequence[Told]) -> list[Message]:
        """An item for each call; that it failed is said in the text."""
        return [
            {"type": "function_call_output", "call_id": _id(one), "output": one.text}
            for one in told
        ]


class Completions(Wire):
    """OpenAI's Chat Completions, and what is compatible with it."""

    name = "OpenAI's Chat Completions"
    providers = ("openai-strict", "openai")

    def parts(self, given: object) -> Sequence[object] | None:
        """Of a completion (its first choice), a choice, a message, a call."""
        choices = _list(field(given, "choices"))
        if choices is not None:
            return self.parts(choices[0]) if choices else []
        if has(given, "message"):
            return self.parts(field(given, "message"))
        if has(given, "tool_calls"):
            return _list(field(given, "tool_calls")) or []
        return [given] if self.call(given) else None

    def call(self, part: object) -> Sent | None:
        """What has a `function`."""
        function = field(part, "function")
        if function is None:
            return None
        return Sent(field(part, "id"), field(function, "name"), field(function, "arguments"))

    def messages(self, told: Sequence[Told]) -> list[Message]:
        """A message for each call; that it failed is said in the text."""
        return [{"role": "tool", "tool_call_id": _id(one), "content": one.text} for one in told]


class Messages(Wire):
    """Anthropic's Messages."""

    name = "Anthropic's Messages"
    providers = ("anthropic-strict", "anthropic")

    def parts(self, given: object) -> Sequence[object] | None:
        """Of a message, a block."""
        if field(given, "type") == "tool_use":
            return [given]
        if field(given, "type") == "message" or field(given, "role") == "assistant":
            return _list(field(given, "content")) or []
        return None

    def call(self, part: object) -> Sent | None:
        """A block of the type `tool_use`."""
        if field(part, "type") != "tool_use":
            return None
        return Sent(field(part, "id"), field(part, "name"), field(part, "input"))

    def messages(self, told: Sequence[Told]) -> list[Message]:
        """One message with a block for each call, as Anthropic demands."""
        blocks = [
            {"type": "tool_result", "tool_use_id": _id(one), "content": one.text}
            | ({"is_error": True} if one.is_error else {})
            for one in told
        ]
        return [{"role": "user", "content": blocks}] if blocks else []


class Contents(Wire):
    """Gemini's generateContent, in the names of its SDK and of its wire."""

    name = "Gemini's generateContent"
    providers = ("gemini",)
    needs_ids = False

    def parts(self, given: object) -> Sequence[object] | None:
        """Of a response (its first candidate), a candidate, a content, a part, a call."""
        if has(given, "candidates"):
            candidates = _list(field(given, "candidates"))
            return self.parts(candidates[0]) if candidates else []
        if has(given, "parts"):
            return _list(field(given, "parts")) or []
        if has(given, "content"):
            content = field(given, "content")
            return [] if content is None else self.parts(content)
        return [given] if self.call(given) else None

    def call(self, part: object) -> Sent | None:
        """A part with a function call, or that alone."""
        call = field(part, "functionCall", "function_call")
        if call is None and has(part, "name") and has(part, "args"):
            call = part
        if call is None:
            return None
        arguments = field(call, "args")
        return Sent(field(call, "id"), field(call, "name"), {} if arguments is None else arguments)

    def messages(self, told: Sequence[Told]) -> list[Message]:
        """One content with a part for each call."""
        parts = []
        for one in told:
            response: Message = {"name": str(one.sent.tool or "")}
            response["response"] = {"error" if one.is_error else "output": one.text}
            parts.append({"functionResponse": response | ({"id": _id(one)} if _id(one) else {})})
        return [{"role": "user", "parts": parts}] if parts else []


WIRES: tuple[Wire, ...] = (Responses(), Completions(), Messages(), Contents())


def read(given: object) -> tuple[Wire, list[Sent]]:
    """The form that something has, and the calls in it, in their order.

    Raises:
        InputError: it has none of them.
    """
    listed = _list(given)
    for wire in WIRES:
        parts = wire.parts(given) if listed is None else listed
        calls = [call for part in parts or () if (call := wire.call(part)) is not None]
        if calls or (listed is None and parts is not None):
            return wire, calls
    if listed is not None and all(has(part, "type") or has(part, "text") for part in listed):
        return WIRES[0], []
    raise InputError(
        f"{type(given).__name__} holds no tool calls in a form that is known",
        hint="hand over what the SDK of OpenAI, Anthropic or Gemini returned, a message or a "
        "tool call of it, or the same as plain dicts",
    )


def has(item: object, name: str) -> bool:
    """Whether a dict or object has a field, be it empty."""
    return name in item if isinstance(item, Mapping) else hasattr(item, name)


def field(item: object, *names: str) -> Any:
    """The first field of a dict or object that is there and not None."""
    for name in names:
        value = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        if value is not None:
            return value
    return None


def _list(value: object) -> Sequence[object] | None:
    return value if isinstance(value, list | tuple) else None


def _id(told: Told) -> str:
    return told.sent.id if isinstance(told.sent.id, str) else ""
