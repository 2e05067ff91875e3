"""A call inside the sandbox: bind arguments, run the tool, send exactly one result frame.

Error frames contain the full error; the host decides what the model may read.
"""

from __future__ import annotations

import _thread
import os
import sys

from toolkiln.frameworks.modules import RESULTS, TOOL_ERRORS
from toolkiln.runtime.loader import (
    ArgumentsRejected,
    BadSettings,
    EntryPoint,
    import_file,
    run_awaitable,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Any

    from toolkiln.runtime.wire import Channel, Frame

MAX_FILE = 16 << 20
MAX_STATE = 1 << 20
"""Characters of the JSON of a changed `agent_state`."""
_MAX_TEXT = 100_000
_MAX_MESSAGE, _MAX_LINE = 2_000, 200
_MAX_CAUSES, _MAX_CALLS = 5, 30
"""Chained exceptions in a traceback, and calls of each."""
_CAUSED = "\n\nThe above exception was the direct cause of the following exception:\n\n"
_DURING = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
_FIELDS, _SUNA_RESULT = "__dataclass_fields__", {"success", "output"}
_RESULT = ("ok", "stdout", "stderr", "meta")
_exit = os._exit  # bound before a tool can replace it
_start_thread = _thread.start_new_thread


def load(frame: Mapping[str, Any]) -> EntryPoint:
    """Import a tool and find its entry point; raises what the tool's code raises."""
    sys.path.append(os.path.dirname(frame["file"]))
    if site := frame.get("site"):
        from site import addsitedir

        addsitedir(site)  # runs code of `.pth` files, here without privileges
    sys.path.append(frame["base"])
    return EntryPoint(import_file(frame["file"]), frame)


def run(entry: EntryPoint, call: Mapping[str, Any], channel: Channel, file: str) -> Frame:
    """Run one call and return its result or error frame."""
    try:
        return _result(entry, call, channel)
    except BaseException as error:  # any error of the tool is a result
        return failure(error, file)


def finish(channel: Channel, frame: Frame) -> None:
    """Flush the output, send the result frame, and exit the process without cleanup."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except BaseException:  # noqa: S110 - the tool may have replaced the stream
            pass
    try:
        channel.send({**frame, **_usage()})
    except BaseException:  # the host closed the socket, or memory ran out
        _exit(121)
    _exit(0)


def _usage() -> Frame:
    """Measure this process and the children that it waited for."""
    import resource

    own, children = (resource.getrusage(who) for who in (0, -1))
    cpu = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    return {"cpu": round(cpu, 4), "memory": max(own.ru_maxrss, children.ru_maxrss) * 1024}


def _result(entry: EntryPoint, call: Mapping[str, Any], channel: Channel) -> Frame:
    # Before the tool runs, which may leave no descriptor to import with.
    import resource  # noqa: F401

    import toolkiln.runtime.serialise  # noqa: F401

    injected: dict[str, Any] = {}
    caller = call["caller"]
    if entry.injected:
        from toolkiln.runtime.context import add_state, injections

        settings = entry.typed_settings(caller["settings"])
        caller = {**caller, "settings": settings, "workdir": entry.workdir}
        injected = injections(entry.injected, caller, channel.send, channel.request)
    value = entry.bind(call["arguments"], injected, caller)()
    if hasattr(value, "__await__"):
        value = run_awaitable(value)
    if not sys.modules.keys().isdisjoint(("toolkiln.frameworks.reply", *RESULTS)):
        from toolkiln.frameworks import reply

        value = reply.delivered(value, lambda name, data: channel.send(file_frame(name, data)))
    if entry.is_open_webui and (page := _page(value)) is not None:
        message, value = page
        channel.send({"op": "message", "value": message})
    elif entry.is_resource and type(value) in (bytes, bytearray):
        channel.send(file_frame("content", value))
        value = None
    frame = result_frame(value)
    if injected:
        add_state(frame, caller["agent_state"], injected)
    return frame


def result_frame(value: Any) -> Frame:
    """Return the frame of a returned value."""
    from toolkiln.runtime.serialise import to_json

    frame: Frame = {"op": "result"}
    kind = type(value)
    if (fields := _tool_result_fields(value)) is not None:
        frame["op"], value = "tool_result", fields
    elif kind.__name__ == "ToolResult" and getattr(kind, _FIELDS, {}).keys() == _SUNA_RESULT:
        frame["ok"], value = bool(value.success), value.output
    result = to_json(value)
    return {**frame, "value": result.value, "notes": list(result.notes)}


def _tool_result_fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of a `ToolResult`, also an author's own; None for any other value."""
    if tuple(getattr(type(value), _FIELDS, ()))[:4] != _RESULT:
        return None
    return {
        "ok": bool(value.ok),
        "stdout": str(value.stdout),
        "stderr": str(value.stderr),
        "meta": value.meta,
    }


def _page(value: Any) -> tuple[Any, Any] | None:
    """Return the message for a page that a tool of Open WebUI returned, and the value beside it."""
    page, context = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    body = getattr(page, "body", None)
    if getattr(page, "media_type", None) != "text/html" or not isinstance(body, bytes):
        return None
    message = {"type": "embeds", "data": {"embeds": [body.decode("utf-8", "replace")]}}
    return message, "The person sees the page." if context is None else context


def file_frame(name: str, content: bytes) -> Frame:
    """Return the frame for bytes that a tool returned, which JSON cannot represent."""
    from binascii import b2a_base64

    if len(content) > MAX_FILE:
        from toolkiln.define import ToolError

        raise ToolError(f"the {name} is larger than {MAX_FILE >> 20} MB")
    data = b2a_base64(content, newline=False).decode("ascii")
    return {"op": "file", "name": name, "data": data}


def failure(error: BaseException, file: str) -> Frame:
    """Describe an exception as a frame, even if the tool has tampered with this process."""
    try:
        return _error_frame(error, file)
    except BaseException:  # the tool's code raised again
        return {"op": "error", "kind": "exception", "type": "Exception", "message": ""}


def _error_frame(error: BaseException, file: str) -> Frame:
    kind = "exception"
    define = sys.modules.get("toolkiln.define")
    binding = sys.modules.get("toolkiln.runtime.binder")
    frame: Frame = {"op": "error", "type": _truncate(type(error).__name__, 100)}
    if (define is not None and isinstance(error, define.ToolError)) or any(
        TOOL_ERRORS.get(cls.__module__.partition(".")[0]) == cls.__name__
        for cls in type(error).__mro__
    ):
        kind = "tool_error"
        frame["retryable"] = getattr(error, "retryable", False) is True
        frame["denied"] = define is not None and isinstance(error, define.ToolDenied)
    elif isinstance(error, ArgumentsRejected) or (
        binding and isinstance(error, binding.BindingError)
    ):
        kind = "refused"
    elif isinstance(error, BadSettings):
        kind = "bad_settings"
    elif isinstance(error, SystemExit):
        kind = "exited"
    elif isinstance(error, MemoryError):
        kind = "memory"
    elif isinstance(error, OSError):
        frame["errno"] = error.errno if isinstance(error.errno, int) else None
        if isinstance(error, BlockingIOError) and _can_start_thread():
            frame["errno"] = None  # an empty pipe, not the process limit
    frame["kind"] = kind
    frame["line"] = _line_number(error.__traceback__, file)
    frame["message"] = _message(error)
    if kind == "exception":
        frame["traceback"] = _traceback(error, file)
    return frame


def _can_start_thread() -> bool:
    try:
        _start_thread(int, ())
    except RuntimeError:
        return False
    return True


def _traceback(error: BaseException, file: str) -> str:
    """Format the traceback of an exception and its causes, limited to the tool's folder.

    Long messages are omitted, not truncated: the host could not mask half of a secret.
    """
    parts: list[str] = []
    current: BaseException | None = error
    link = ""
    try:
        while current is not None and len(parts) < _MAX_CAUSES:
            text = _message(current)
            message = f": {text}" if len(text) <= _MAX_MESSAGE else ": (a longer text)"
            name = _truncate(type(current).__name__, 100)
            calls = _calls(current.__traceback__, file)
            parts.append(f"{calls}{name}{message if text else ''}{link}")
            if current.__cause__ is not None:
                current, link = current.__cause__, _CAUSED
            else:
                hidden = current.__suppress_context__
                current, link = None if hidden else current.__context__, _DURING
    except BaseException:  # noqa: S110 - a hostile exception class: return what we have
        pass
    return "".join(reversed(parts))


def _calls(traceback: TracebackType | None, file: str) -> str:
    """Format the calls in the tool's files with their lines; only count the others."""
    folder = os.path.dirname(file) + os.sep
    calls: list[str] = []
    others = 0
    while traceback is not None:
        code, line = traceback.tb_frame.f_code, traceback.tb_lineno
        path, name = code.co_filename, code.co_name
        if path.startswith(folder) and "-packages" + os.sep not in path:
            if others and calls:
                calls.append(_calls_outside(others))
            others = 0
            location = f'  File "{_truncate(path[len(folder) :], 200)}", line {line}'
            calls.append(f"{location}, in {_truncate(name, 100)}\n{_source_line(path, line)}")
        else:
            others += 1
        traceback = traceback.tb_next
    if not calls:
        return ""
    if others:
        calls.append(_calls_outside(others))
    if len(calls) > _MAX_CALLS:
        half = _MAX_CALLS // 2
        calls[half:-half] = [f"  [{len(calls) - 2 * half} more calls]\n"]
    return "Traceback (most recent call last):\n" + "".join(calls)


def _calls_outside(count: int) -> str:
    return f"  [{count} call{'' if count == 1 else 's'} outside the tool's files]\n"


def _source_line(file: str, line: int) -> str:
    try:
        with open(file, "rb") as source:
            text = source.read().splitlines()[line - 1].decode("utf-8", "replace").strip()
    except (OSError, IndexError):
        return ""
    return f"    {text}\n" if 0 < len(text) <= _MAX_LINE else ""


def _line_number(traceback: TracebackType | None, file: str) -> int | None:
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == file:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def _message(error: BaseException) -> str:
    try:
        return _truncate(str(error), _MAX_TEXT)
    except BaseException:  # a hostile `__str__`
        return "(the error message cannot be shown)"


def _truncate(text: str, size: int) -> str:
    return str.__str__(text)[:size].encode("utf-8", "replace").decode()
