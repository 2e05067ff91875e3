"""Host end of a call: receives frames, sends replies, and collects output, all bounded.

The process at the other end is hostile: it may send anything at any rate. The socket that a
frame arrives on determines its call; ids inside a frame are not trusted. A channel ends with a
final frame or with the end of the process.
"""

import asyncio
import codecs
import json
import os
import socket
from base64 import b64decode
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, Literal

from toolkiln.execution.executor import ExecutionOutcome, Invocation
from toolkiln.model.call import Event, log_level
from toolkiln.runtime.call import MAX_STATE
from toolkiln.runtime.wire import encode

_HEADER = 4
_READ_SIZE = 1 << 16
_MAX_FRAME = 24 << 20
_MAX_FRAMES = 10_000
_MAX_RATE = 1_000
"""Frames per second since the start of the call, and maximum burst."""
_MAX_WEIGHT = 192 << 20
"""Approximate memory of all decoded frames of a call, in bytes."""
_CONTAINER, _QUOTE = 64, 16
"""The memory of an empty list or object, and half that of an empty text."""
_MAX_INJECTED = 200
_MAX_NOTE = 2000
_MAX_ERROR = 100_000
_KEPT_OUTPUT = 1 << 20
"""Bytes kept of stdout and of stderr each."""
_MAX_OUTPUT = 64 << 20
_MAX_FILES = 32 << 20
_MAX_NAME = 200
_MAX_DEPTH = 150
_MAX_USAGE = 1e15
"""Larger than any processor time or memory."""
_FINAL = ("result", "tool_result", "error")

Frame = dict[str, Any]


class CallChannel:
    """The frames and the output of one call."""

    def __init__(self, invocation: Invocation, outcome: ExecutionOutcome) -> None:
        self._invocation = invocation
        self._outcome = outcome
        self._loop = asyncio.get_running_loop()
        self.call, self.far_call = socket.socketpair()
        self.call.setblocking(False)
        self._descriptor = self.call.fileno()  # the event loop formats sockets slowly
        out, self.far_out = os.pipe()
        err, self.far_err = os.pipe()
        self._outputs = [
            _Output(out, "stdout", invocation.emit),
            _Output(err, "stderr", invocation.emit),
        ]
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._frames = 0
        self._size = 0
        """Bytes of the current frame."""
        self._weight = 0
        self._opened = 0.0
        self._file_bytes = 0
        self._nested: asyncio.Task[None] | None = None
        self.has_begun = False
        """Whether code of the tool may have run."""
        self.load_seconds: float | None = None
        """The import time, once known."""
        self.over: asyncio.Future[tuple[str, Any]] = self._loop.create_future()
        """How it ended: with a final `frame`, a closed socket (`gone`), a protocol violation
        (`broken`), or the reason passed to `end`."""

    @property
    def far_descriptors(self) -> tuple[int, int, int]:
        """The socket, stdout and stderr of the process."""
        return self.far_call.fileno(), self.far_out, self.far_err

    def end(self, kind: str, data: Any) -> None:
        """End the channel unless it is over."""
        if not self.over.done():
            self.over.set_result((kind, data))

    def setup_error(self) -> str:
        """Return what the process printed before the tool could run."""
        return self._outputs[1].text().strip()[:1000] or "cannot set up the sandbox"

    def open(self) -> None:
        """Start receiving, and close our copies of the far ends."""
        self.close_far_ends()
        self._opened = self._loop.time()
        self._loop.add_reader(self._descriptor, self._on_call)
        for output in self._outputs:
            self._loop.add_reader(output.descriptor, self._on_output, output)

    def close_far_ends(self) -> None:
        """Close our copies of the process's descriptors."""
        self.far_call.close()
        for descriptor in (self.far_out, self.far_err):
            if descriptor >= 0:
                os.close(descriptor)
        self.far_out = self.far_err = -1

    def send(self, *frames: bytes) -> None:
        """Send encoded frames as fast as the process reads them."""
        idle = not self._outgoing
        for frame in frames:
            self._outgoing += frame
        if idle:
            self._flush()

    def close(self) -> None:
        """Stop receiving, and read what is left in the pipes."""
        self._loop.remove_reader(self._descriptor)
        for output in self._outputs:
            self._loop.remove_reader(output.descriptor)
        self._loop.remove_writer(self._descriptor)
        self.call.close()
        self.close_far_ends()
        if self._nested is not None:
            self._nested.cancel()
        for output in self._outputs:
            output.drain()
        stdout, stderr = self._outputs
        self._outcome.stdout, self._outcome.stderr = stdout.text(), stderr.text()
        lost = [note for output in self._outputs for note in output.notes()]
        self._outcome.notes += lost
        self._outcome.is_cut = bool(lost)

    def _flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self.call.send(self._outgoing)]
        except BlockingIOError:
            self._loop.add_writer(self._descriptor, self._flush)
            return
        except OSError:
            self._outgoing.clear()  # the process has ended, which is handled elsewhere
        self._loop.remove_writer(self._descriptor)

    def _on_output(self, output: "_Output") -> None:
        if not output.read():
            self._loop.remove_reader(output.descriptor)
        if output.size > _MAX_OUTPUT:
            self._break(f"the tool printed more than {_MAX_OUTPUT:,} bytes")

    def _on_call(self) -> None:
        try:
            data = self.call.recv(_READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._descriptor)
            self.end("gone", None)
            return
        self._incoming += data
        while not self.over.done():
            frame = self._next_frame()
            if frame is None:
                return
            self._handle(frame)

    def _next_frame(self) -> Frame | None:
        incoming = self._incoming
        if len(incoming) < _HEADER:
            return None
        size = int.from_bytes(incoming[:_HEADER], "big")
        if size > _MAX_FRAME:
            self._break(f"the tool sent a message of {size:,} bytes")
            return None
        if len(incoming) < _HEADER + size:
            return None
        body = bytes(incoming[_HEADER : _HEADER + size])
        del incoming[: _HEADER + size]
        self._frames += 1
        self._size = size
        if self._frames > _MAX_FRAMES:
            self._break(f"the tool sent more than {_MAX_FRAMES:,} messages")
            return None
        if self._frames > _MAX_RATE * (1 + self._loop.time() - self._opened):
            self._break(f"the tool sent more than {_MAX_RATE:,} messages per second")
            return None
        self._weight += size + _CONTAINER * _containers(body) + _QUOTE * body.count(b'"')
        if self._weight > _MAX_WEIGHT:
            self._break(f"the tool's messages take more than {_MAX_WEIGHT:,} bytes")
            return None
        try:
            return parse_frame(body)
        except (ValueError, RecursionError):
            self._break("the tool sent an unreadable message")
            return None

    def _handle(self, frame: Frame) -> None:
        try:
            if frame["op"] in _FINAL:
                self.end("frame", _checked_final(frame))
            else:
                _HANDLERS[frame["op"]](self, frame)
        except (KeyError, TypeError, ValueError, OverflowError):
            self._break(f"the tool sent an invalid message {frame['op'][:20]!r}")

    def _on_begun(self, _: Frame) -> None:
        self.has_begun = True

    def _on_loaded(self, frame: Frame) -> None:
        # The tool may lie; later calls wait for a worker that long, so cap it at the real time.
        waited = self._loop.time() - self._opened
        self.load_seconds = min(_to_float(frame["seconds"]) or 0.0, waited)

    def _on_progress(self, frame: Frame) -> None:
        done, total = _to_float(frame["done"]), _to_float(frame["total"])
        event = Event(kind="progress", text=str(frame["message"]), done=done, total=total)
        self._invocation.emit(event)

    def _on_log(self, frame: Frame) -> None:
        level = log_level(_to_float(frame["level"]) or 0)
        self._invocation.emit(Event(kind="log", text=str(frame["message"]), level=level))

    def _on_message(self, frame: Frame) -> None:
        self._outcome.add_message(frame["value"], self._size, self._invocation.emit)

    def _on_inject(self, frame: Frame) -> None:
        room = _MAX_INJECTED - len(self._outcome.injected_tools)
        if len(frame["names"]) > room:
            self._break(f"the tool injected more than {_MAX_INJECTED} tools")
        for name in frame["names"][:room]:
            self._outcome.add_tool(str(name)[:_MAX_NAME], self._invocation.emit)

    def _on_file(self, frame: Frame) -> None:
        data = b64decode(frame["data"], validate=True)
        self._file_bytes += len(data)
        if self._file_bytes > _MAX_FILES:
            self._break(f"the tool sent more than {_MAX_FILES:,} bytes of files")
            return
        name = PurePosixPath(str(frame["name"]).replace("\0", "")).name[:_MAX_NAME]
        name = name if name.strip(".") else "file"
        self._outcome.add_file(name, data, self._invocation.emit)

    def _on_nested_call(self, frame: Frame) -> None:
        tool, arguments = frame["tool"], frame["arguments"]
        if self._accepts_request() and isinstance(tool, str):
            self._nested = self._loop.create_task(self._call(tool, arguments))

    def _on_ask(self, frame: Frame) -> None:
        questions = frame["questions"]
        if self._accepts_request():
            self._nested = self._loop.create_task(self._ask(questions))

    def _accepts_request(self) -> bool:
        if self._nested is not None and not self._nested.done():
            self._break("the tool sent a request before the last one had a reply")
        elif self._outgoing:
            self._break("the tool sends requests and does not read the replies")
        return not self.over.done()

    async def _call(self, tool: str, arguments: Any) -> None:
        self.send(encode_frame(await self._invocation.reply_to_call(tool, arguments)))

    async def _ask(self, questions: Any) -> None:
        self.send(encode_frame(await self._invocation.reply_to_questions(questions)))

    def _break(self, reason: str) -> None:
        self.end("broken", reason)


# Not an attribute of each channel, which would create a reference cycle.
_HANDLERS: dict[str, Callable[[CallChannel, Frame], None]] = {
    "begun": CallChannel._on_begun,
    "loaded": CallChannel._on_loaded,
    "progress": CallChannel._on_progress,
    "log": CallChannel._on_log,
    "message": CallChannel._on_message,
    "inject": CallChannel._on_inject,
    "file": CallChannel._on_file,
    "call": CallChannel._on_nested_call,
    "ask": CallChannel._on_ask,
}


class _Output:
    """One output stream of a process: the first part is kept, the rest counted."""

    def __init__(
        self, descriptor: int, name: Literal["stdout", "stderr"], emit: Callable[[Event], None]
    ) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.size = 0
        self._kept = bytearray()
        self._name = name
        self._emit = emit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> bool:
        """Read what is available; False at the end."""
        try:
            data = os.read(self.descriptor, _READ_SIZE)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.size += len(data)
        room = _KEPT_OUTPUT - len(self._kept)
        if room > 0:
            self._kept += data[:room]
            text = self._decoder.decode(data[:room])
            if text:
                self._emit(Event(kind=self._name, text=text))
        return bool(data)

    def drain(self) -> None:
        """Read the rest without waiting, and close."""
        while self.size < _KEPT_OUTPUT:
            before = self.size
            if not self.read() or self.size == before:
                break
        os.close(self.descriptor)

    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")

    def notes(self) -> list[str]:
        lost = self.size - len(self._kept)
        return [f"{lost:,} bytes of {self._name} were omitted"] if lost > 0 else []


def encode_frame(frame: Frame) -> bytes:
    """Encode a frame: its length, then strict JSON."""
    body = encode(frame).encode()
    return len(body).to_bytes(_HEADER, "big") + body


def parse_frame(body: bytes) -> Frame:
    """Decode a frame and check that it is strict JSON; raises ValueError if it is not."""
    # Not as bytes: json would guess the encoding and accept lone surrogates.
    frame = json.loads(body.decode(), parse_constant=_refuse, parse_float=_finite)
    if not isinstance(frame, dict) or not isinstance(frame.get("op"), str):
        raise ValueError("not an object with `op`")
    if b"\\u" in body:
        json.dumps(frame, ensure_ascii=False).encode()  # raises on lone surrogates
    if _containers(body) > _MAX_DEPTH and _is_deep(frame):
        raise ValueError("nested too deeply")
    return frame


def _containers(body: bytes) -> int:
    """Return an upper bound of the number of lists and objects in a frame."""
    return body.count(b"[") + body.count(b"{")


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError("not a finite number")
    return number


def _checked_final(frame: Frame) -> Frame:
    if frame["op"] == "tool_result":
        value = frame["value"]
        if not all(isinstance(value[name], str) for name in ("stdout", "stderr")):
            raise ValueError("stdout and stderr of a ToolResult must be text")
        bool(value["ok"])
    notes = frame.get("notes", [])
    if not isinstance(notes, list) or len(notes) > 100:
        raise ValueError("notes must be a short list")
    if not all(isinstance(note, str) and len(note) <= _MAX_NOTE for note in notes):
        raise ValueError("notes must be short texts")
    frame = {**frame, "cpu": _usage(frame.get("cpu")), "memory": _usage(frame.get("memory"))}
    state = frame.get("agent_state")
    if state is not None and (not isinstance(state, dict) or len(encode(state)) > MAX_STATE):
        raise ValueError("the state of the agent must be an object within its limit")
    if frame["op"] == "error":
        bounded = {"type": str(frame.get("type"))[:100]}
        return {**frame, **bounded, "message": str(frame.get("message"))[:_MAX_ERROR]}
    return frame


def _usage(value: Any) -> float | None:
    number = _to_float(value)
    return number if number is not None and 0 <= number < _MAX_USAGE else None


def _to_float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
