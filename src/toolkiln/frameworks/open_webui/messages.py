"""Stand-in for `open_webui.utils.misc`: its functions on the messages of a chat.

A message is a dict with `role` and `content`; the content is a text or a list of parts.
Its other functions are unavailable.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]


def get_content_from_message(message: Message) -> str | None:
    """Return the text of a message, without images and other parts."""
    content = message.get("content")
    if isinstance(content, list):
        return next((part["text"] for part in content if part.get("type") == "text"), None)
    return content


def get_messages_content(messages: list[Message]) -> str:
    """Return a chat as text, a line for each message that begins with its role."""
    lines = (f"{each['role'].upper()}: {get_content_from_message(each)}" for each in messages)
    return "\n".join(lines)


def get_last_user_message_item(messages: list[Message]) -> Message | None:
    """Return the last message of the person."""
    return _last(messages, "user")


def get_last_user_message(messages: list[Message]) -> str | None:
    """Return the text of the last message of the person."""
    return _text_of(_last(messages, "user"))


def get_last_assistant_message_item(messages: list[Message]) -> Message | None:
    """Return the last message of the model."""
    return _last(messages, "assistant")


def get_last_assistant_message(messages: list[Message]) -> str | None:
    """Return the text of the last message of the model."""
    return _text_of(_last(messages, "assistant"))


def get_system_message(messages: list[Message]) -> Message | None:
    """Return the first system message."""
    return next((each for each in messages if each["role"] == "system"), None)


def remove_system_message(messages: list[Message]) -> list[Message]:
    """Return the messages of the person and the model."""
    return [each for each in messages if each["role"] != "system"]


def pop_system_message(messages: list[Message]) -> tuple[Message | None, list[Message]]:
    """Return the first system message, and all other messages."""
    return get_system_message(messages), remove_system_message(messages)


def add_or_update_system_message(
    content: str,
    messages: list[Message],
    append: bool = False,
) -> list[Message]:
    """Add a text to the system message at the beginning of a chat, or add one."""
    if messages and messages[0].get("role") == "system":
        _add(messages[0], content, append=append)
    else:
        messages.insert(0, {"role": "system", "content": content})
    return messages


def add_or_update_user_message(
    content: str,
    messages: list[Message],
    append: bool = True,
) -> list[Message]:
    """Add a text to the message of the person at the end of a chat, or add one."""
    if messages and messages[-1].get("role") == "user":
        _add(messages[-1], content, append=append)
    else:
        messages.append({"role": "user", "content": content})
    return messages


def append_or_update_assistant_message(content: str, messages: list[Message]) -> list[Message]:
    """Add a text to the message of the model at the end of a chat, or add one."""
    if messages and messages[-1].get("role") == "assistant":
        _add(messages[-1], content, append=True)
    else:
        messages.append({"role": "assistant", "content": content})
    return messages


def _last(messages: list[Message], role: str) -> Message | None:
    return next((each for each in reversed(messages) if each["role"] == role), None)


def _text_of(message: Message | None) -> str | None:
    return None if message is None else get_content_from_message(message)


def _add(message: Message, text: str, *, append: bool) -> None:
    content = message["content"]
    if isinstance(content, list):
        part = next((part for part in content if part.get("type") == "text"), None)
        if part is None:
            content.append({"type": "text", "text": text})
        else:
            part["text"] = f"{part['text']}\n{text}" if append else f"{text}\n{part['text']}"
    else:
        message["content"] = f"{content}\n{text}" if append else f"{text}\n{content}"
