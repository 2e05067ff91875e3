"""The parameters that Open WebUI fills in, such as `__user__`, created from a call's context.

Events of a tool become progress, log lines, files and messages of the call; its questions
become forms. A call has no chat and no HTTP request: what belongs to those is empty.
"""

from __future__ import annotations

from toolkiln.define import Form, ToolError
from toolkiln.frameworks.unavailable import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from toolkiln.define import Context

_LEVELS = {"debug": 10, "info": 20, "success": 20, "warning": 30, "error": 40}
_MEDIA_TYPES = {"jpeg": "jpg", "mpeg": "mp3", "plain": "txt", "svg+xml": "svg"}
"""Subtypes of media types that are no suffix of files."""

user: dict[str, Any] = {}
"""The user of the running call."""
_contexts: list[Context] = []
"""The context of the running call."""


class NoRequest(Unavailable):
    """The HTTP request, which a call does not have; false, because tools test for it."""

    def __init__(self) -> None:
        super().__init__("__request__", "a call has no HTTP request of Open WebUI")

    def __bool__(self) -> bool:
        return False


def parameters(names: set[str], caller: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Return the values of some parameters; those that are unknown keep their default."""
    request = caller.get("request") or {}
    _contexts[:] = [context]
    _set_user(caller, request)
    chat = request.get("chat_id") or caller.get("channel_id") or ""
    message = request.get("message_id") or ""
    agent = caller.get("agent_id") or ""
    model: dict[str, Any] = {
        "id": agent,
        "name": agent,
        "info": {"id": agent, "meta": {}, "params": {}},
    }
    metadata = {
        "user_id": user["id"],
        "chat_id": chat,
        "message_id": message,
        "session_id": "",
        "files": [],
        "tool_ids": [],
        "model": model,
        "features": {},
        "variables": {},
    }
    values: dict[str, Any] = {
        "__user__": user,
        "__event_emitter__": EventEmitter(context).emit,
        "__event_call__": EventCall(context).ask,
        "__request__": NoRequest(),
        "__metadata__": metadata,
        "__model__": model,
        "__messages__": [],
        "__files__": [],
        "__tools__": {},
        "__chat_id__": chat,
        "__message_id__": message,
        "__session_id__": "",
        "__id__": caller.get("tool", ""),
    }
    return {name: values[name] for name in names if name in values}


def _set_user(caller: Mapping[str, Any], request: Mapping[str, Any]) -> None:
    identity = caller.get("user_id")
    user.clear()
    user.update(
        id=identity,
        name=request.get("user_name") or identity,
        email=request.get("user_email") or "",
        role="user",
    )


class EventEmitter:
    """Open WebUI's `__event_emitter__`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._steps = 0

    async def emit(self, event: Any) -> None:
        """Report an event: as progress, as a log line, as files, otherwise as a message."""
        kind = event.get("type") if isinstance(event, dict) else None
        data = event.get("data") if isinstance(event, dict) else None
        if not isinstance(data, dict):
            self._context.send_message(event)
        elif kind == "status":
            self._steps += 1
            total = self._steps if data.get("done") else None
            self._context.report_progress(self._steps, total, str(data.get("description") or ""))
        elif kind == "notification":
            level = _LEVELS.get(str(data.get("type")), 20)
            self._context.log(str(data.get("content", "")), level)
        elif kind in ("files", "chat:message:files") and self._send_files(data):
            return
        else:
            self._context.send_message(event)

    def _send_files(self, data: dict[str, Any]) -> bool:
        """Send the files that the event contains; others are addresses of Open WebUI."""
        files = data.get("files")
        items = files if isinstance(files, list) else []
        contents = [_content(item) for item in items]
        for number, (item, content) in enumerate(zip(items, contents, strict=True), 1):
            if content is not None:
                media_type, body = content
                suffix = media_type.rpartition("/")[2]
                suffix = _MEDIA_TYPES.get(suffix, suffix)
                name = str(item.get("name") or f"{item.get('type', 'file')}-{number}.{suffix}")
                send_bytes(name, body)
        return bool(contents) and None not in contents


def send_bytes(name: str, body: bytes) -> None:
    """Send bytes to the caller of the running call as a file."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        file = Path(folder) / (Path(name).name or "file")
        file.write_bytes(body)
        _contexts[0].send_file(file)


def _content(item: Any) -> tuple[str, bytes] | None:
    """Return the media type and the bytes of a `data:` URL."""
    from binascii import Error, a2b_base64

    url = item.get("url") if isinstance(item, dict) else None
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    head, _, body = url[5:].partition(",")
    if not head.endswith(";base64"):
        return None
    try:
        return head.partition(";")[0], a2b_base64(body)
    except Error:
        return None


class EventCall:
    """Open WebUI's `__event_call__`, which asks the person."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def ask(self, event: Any) -> Any:
        """Ask for a confirmation or a text and return it, or False if the person refuses.

        Raises:
            NotAnswered: the caller cannot be asked.
        """
        kind, data = event["type"], event.get("data") or {}
        lines = [str(data[key]) for key in ("title", "message") if data.get(key)]
        text = "\n\n".join(lines) or "Continue?"
        if kind == "confirmation":
            return bool(self._context.ask(Form(text, {})))
        if kind == "input":
            field: dict[str, Any] = {"type": "string", "title": str(data.get("placeholder", ""))}
            if data.get("value"):
                field["default"] = str(data["value"])
            filled = self._context.ask(Form(text, {"value": field}, required=["value"]))
            return filled["value"] if filled else False
        raise ToolError(
            f"the event {str(kind)[:100]!r} of __event_call__ is not available in the sandbox: "
            "it can ask for a confirmation or an input"
        )
