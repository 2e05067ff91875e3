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
_LONGEST_MESSAGE, _LONGEST_LINE = 2_000, 200
_MOST_CAUSES, _MOST_CALLS = 5, 30
"""Of a traceback: exceptions that led to others, and calls of each."""
_CAUSED = "\n\nThe above exception was the direct cause of the following exception:\n\n"
_DURING = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
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
    if kind == "exception":
        frame["traceback"] = traceback_of(error, file)
    return frame


def _can_start() -> bool:
    """Whether there is room for another thread, and so for a process."""
    try:
        _start_thread(int, ())
    except RuntimeError:
        return False
    return True


def traceback_of(error: BaseException, file: str) -> str:
    """The traceback of an exception and its causes, within the folder of the tool's file.

    Long texts are left out, not cut: half of a secret could not be masked outside.
    """
    parts: list[str] = []
    raised: BaseException | None = error
    following = ""
    try:
        while raised is not None and len(parts) < _MOST_CAUSES:
            text = _message(raised)
            said = f": {text}" if len(text) <= _LONGEST_MESSAGE else ": (a longer text)"
            name = _bounded(type(raised).__name__, 100)
            calls = _calls(raised.__traceback__, file)
            parts.append(f"{calls}{name}{said if text else ''}{following}")
            if raised.__cause__ is not None:
                raised, following = raised.__cause__, _CAUSED
            else:
                hidden = raised.__suppress_context__
                raised, following = None if hidden else raised.__context__, _DURING
    except BaseException:  # noqa: S110 - a hostile class of exceptions: what there is must do
        pass
    return "".join(reversed(parts))


def _calls(traceback: TracebackType | None, file: str) -> str:
    """The calls of one traceback: the tool's own with their lines, the others counted."""
    folder = os.path.dirname(file) + os.sep
    calls: list[str] = []
    others = 0
    while traceback is not None:
        code, line = traceback.tb_frame.f_code, traceback.tb_lineno
        path, name = code.co_filename, code.co_name
        if path.startswith(folder) and "-packages" + os.sep not in path:
            if others and calls:
                calls.append(_outside(others))
            others = 0
            place = f'  File "{_bounded(path[len(folder) :], 200)}", line {line}'
            calls.append(f"{place}, in {_bounded(name, 100)}\n{_source(path, line)}")
        else:
            others += 1
        traceback = traceback.tb_next
    if not calls:
        return ""
    if others:
        calls.append(_outside(others))
    if len(calls) > _MOST_CALLS:
        half = _MOST_CALLS // 2
        calls[half:-half] = [f"  [{len(calls) - 2 * half} more calls]\n"]
    return "Traceback (most recent call last):\n" + "".join(calls)


def _outside(count: int) -> str:
    return f"  [{count} call{'' if count == 1 else 's'} outside the tool's files]\n"


def _source(file: str, line: int) -> str:
    try:
        with open(file, "rb") as opened:
            text = opened.read().splitlines()[line - 1].decode("utf-8", "replace").strip()
    except (OSError, IndexError):
        return ""
    return f"    {text}\n" if 0 < len(text) <= _LONGEST_LINE else ""


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
