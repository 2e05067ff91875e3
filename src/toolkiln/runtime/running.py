"""One call inside the sandbox: bind, run, serialise, answer with exactly one frame.

What went wrong is told as it is; what of it the model may read is decided outside.
"""

from __future__ import annotations

import _thread
import os
import sys

from toolkiln.runtime.loading import Entry, Refused, awaited, import_file
from toolkiln.runtime.settings import BadSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Any

    from toolkiln.runtime.channel import Channel, Frame

LARGEST_FILE = 16 << 20
_MAX_TEXT = 100_000
_exit = os._exit  # bound before a tool can replace it
_start_thread = _thread.start_new_thread


def load(frame: Mapping[str, Any]) -> Entry:
    """Import a tool and find its entry.

    Raises:
        BaseException: whatever its code raises while it is imported.
    """
    sys.path.append(os.path.dirname(frame["file"]))
    if site := frame.get("site"):
        from site import addsitedir

        addsitedir(site)  # runs code of `.pth` files: here, where it has no rights
    sys.path.append(frame["base"])
    return Entry(import_file(frame["file"]), frame)


def answer(entry: Entry, call: Mapping[str, Any], channel: Channel, file: str) -> Frame:
    """Run one call; the frame says how it ended."""
    try:
        return _result(entry, call, channel)
    except BaseException as error:  # the tool's, whatever it is: it becomes the answer
        return failure(error, file)


def finish(channel: Channel, frame: Frame) -> None:
    """Send the answer after all output, and end the process without any clean-up."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except BaseException:  # noqa: S110 - the tool may have put anything there
            pass
    try:
        channel.send(frame)
    except BaseException:  # the host has gone, or memory has: there is nobody to tell
        _exit(121)
    _exit(0)


def _result(entry: Entry, call: Mapping[str, Any], channel: Channel) -> Frame:
    from toolkiln.runtime.serialise import plain

    given: dict[str, Any] = {}
    caller = call["caller"]
    if entry.injected:
        from toolkiln.runtime.context import injections

        settings = entry.typed_settings(caller["settings"])
        caller = {**caller, "settings": settings, "workdir": entry.workdir}
        given = injections(entry.injected, caller, channel.send, channel.ask)
    value = entry.prepared(call["arguments"], given, caller)()
    if hasattr(value, "__await__"):
        value = awaited(value)
    tool_result = streams(value)
    if tool_result is not None:
        value = tool_result
    elif entry.is_resource and (file := as_file(value)) is not None:
        channel.send(file)
        value = None
    told = plain(value)
    kind = "result" if tool_result is None else "tool_result"
    return {"op": kind, "value": told.value, "notes": list(told.notes)}


def streams(value: Any) -> dict[str, Any] | None:
    """What a `ToolResult` says; None for anything else."""
    define = sys.modules.get("toolkiln.define")
    if define is None or not isinstance(value, define.ToolResult):
        return None
    return {
        "ok": bool(value.ok),
        "stdout": str(value.stdout),
        "stderr": str(value.stderr),
        "meta": value.meta,
    }


def as_file(value: Any) -> Frame | None:
    """The bytes that a resource returned, as a file: a value of JSON has none."""
    if type(value) not in (bytes, bytearray):
        return None
    from binascii import b2a_base64

    if len(value) > LARGEST_FILE:
        from toolkiln.define import ToolError

        raise ToolError(f"the content is larger than {LARGEST_FILE >> 20} MB")
    data = b2a_base64(value, newline=False).decode("ascii")
    return {"op": "file", "name": "content", "data": data}


def failure(error: BaseException, file: str) -> Frame:
    """An exception as a frame, even if the tool has replaced what it is compared with."""
    try:
        return _described(error, file)
    except BaseException:  # the tool's fault, too
        return {"op": "error", "kind": "exception", "type": "Exception", "message": ""}


def _described(error: BaseException, file: str) -> Frame:
    """Its kind, its type, its text, the line of the tool's own file."""
    kind = "exception"
    define = sys.modules.get("toolkiln.define")
    binding = sys.modules.get("toolkiln.runtime.binding")
    frame: Frame = {"op": "error", "type": _bounded(type(error).__name__, 100)}
    if define is not None and isinstance(error, define.ToolError):
        kind = "tool_error"
        frame["retryable"] = getattr(error, "retryable", False) is True
    elif isinstance(error, Refused) or (binding and isinstance(error, binding.BindingError)):
        kind = "refused"
    elif isinstance(error, BadSettings):
        kind = "bad_settings"
    elif isinstance(error, SystemExit):
        kind = "exited"
    elif isinstance(error, MemoryError):
        kind = "memory"
    elif isinstance(error, OSError):
        frame["errno"] = error.errno if isinstance(error.errno, int) else None
        if isinstance(error, BlockingIOError) and _can_start():
            frame["errno"] = None  # a pipe without data, not a process too many
    frame["kind"] = kind
    frame["line"] = _line(error.__traceback__, file)
    frame["message"] = _message(error)
    return frame


def _can_start() -> bool:
    """Whether there is room for another thread, and so for a process."""
    try:
        _start_thread(int, ())
    except RuntimeError:
        return False
    return True


def _line(traceback: TracebackType | None, file: str) -> int | None:
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == file:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def _message(error: BaseException) -> str:
    try:
        return _bounded(str(error), _MAX_TEXT)
    except BaseException:  # a hostile `__str__`
        return "(the text of the error cannot be shown)"


def _bounded(text: str, size: int) -> str:
    return str.__str__(text)[:size].encode("utf-8", "replace").decode()
