"""The host's end of one call: frames in, replies out, output collected, all of it bounded.

Whoever is on the other end may send anything, at any speed, for ever. What a frame may
do follows from the socket that it came on; no name or number inside it is believed. The
end of a conversation is a frame that says so, or the end of the process.
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

from toolkiln.execution.asking import CANNOT_ASK
from toolkiln.execution.executor import Invocation, Outcome
from toolkiln.execution.outcomes import reply
from toolkiln.model import Event, SentFile, log_level
from toolkiln.runtime.wire import encode

_HEADER = 4
_READ = 1 << 16
_MAX_FRAME = 24 << 20
_MAX_FRAMES = 10_000
_MAX_RATE = 1_000
"""Frames for each second since the call began, and as many at once."""
_MAX_WEIGHT = 192 << 20
"""Bytes that all frames of a call may come to in our memory, roughly."""
_CONTAINER, _QUOTE = 64, 16
"""What a list or object and half a text weigh, however short they are written."""
_MAX_INJECTED = 200
_MAX_NOTE = 2000
_MAX_ERROR = 100_000
_KEPT_OUTPUT = 1 << 20
"""Bytes of stdout, and of stderr."""
_MAX_OUTPUT = 64 << 20
_MAX_FILES = 32 << 20
_MAX_NAME = 200
_MAX_DEPTH = 150
_FINAL = ("result", "tool_result", "error")

Frame = dict[str, Any]


class Conversation:
    """What is said during one call."""

    def __init__(self, invocation: Invocation, outcome: Outcome) -> None:
        self._invocation = invocation
        self._outcome = outcome
        self._loop = asyncio.get_running_loop()
        self.call, self.far_call = _pair()
        self._number = self.call.fileno()  # the loop names sockets at length, numbers it does not
        out, self.far_out = os.pipe()
        err, self.far_err = os.pipe()
        self._outputs = [
            _Output(out, "stdout", invocation.observe),
            _Output(err, "stderr", invocation.observe),
        ]
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._frames = 0
        self._weight = 0
        self._opened = 0.0
        self._file_bytes = 0
        self._nested: asyncio.Task[None] | None = None
        self.has_begun = False
        """Whether anything of the tool may have run."""
        self.load_seconds: float | None = None
        """What importing took, once it is known."""
        self.over: asyncio.Future[tuple[str, Any]] = self._loop.create_future()
        """How it ended: a `frame`, the other side `gone`, the protocol `broken`; or what
        others end it with."""

    @property
    def far_descriptors(self) -> tuple[int, int, int]:
        """What the process is to speak and print on."""
        return self.far_call.fileno(), self.far_out, self.far_err

    def end(self, kind: str, data: Any) -> None:
        """End the conversation, unless it is over."""
        if not self.over.done():
            self.over.set_result((kind, data))

    def complaint(self) -> str:
        """What the process printed before the tool could run."""
        return self._outputs[1].text().strip()[:1000] or "the sandbox cannot be set up"

    def open(self) -> None:
        """Listen; the far ends belong to the process and are closed here."""
        self.close_far_ends()
        self._opened = self._loop.time()
        self._loop.add_reader(self._number, self._on_call)
        for output in self._outputs:
            self._loop.add_reader(output.descriptor, self._on_output, output)

    def close_far_ends(self) -> None:
        """Give up our copies of what the process got."""
        self.far_call.close()
        for descriptor in (self.far_out, self.far_err):
            if descriptor >= 0:
                os.close(descriptor)
        self.far_out = self.far_err = -1

    def send(self, *frames: bytes) -> None:
        """Hand encoded frames over, as fast as the other side takes them."""
        idle = not self._outgoing
        for frame in frames:
            self._outgoing += frame
        if idle:
            self._flush()

    def close(self) -> None:
        """Stop listening, and take what is still in the pipes."""
        self._loop.remove_reader(self._number)
        for output in self._outputs:
            self._loop.remove_reader(output.descriptor)
        self._loop.remove_writer(self._number)
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
            self._loop.add_writer(self._number, self._flush)
            return
        except OSError:
            self._outgoing.clear()  # the end of the process says why
        self._loop.remove_writer(self._number)

    def _on_output(self, output: "_Output") -> None:
        if not output.read():
            self._loop.remove_reader(output.descriptor)
        if output.size > _MAX_OUTPUT:
            self._break(f"it printed more than {_MAX_OUTPUT:,} bytes")

    def _on_call(self) -> None:
        try:
            data = self.call.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._number)
            self.end("gone", None)
            return
        self._incoming += data
        while not self.over.done():
            frame = self._next_frame()
            if frame is None:
                return
            self._take(frame)

    def _next_frame(self) -> Frame | None:
        incoming = self._incoming
        if len(incoming) < _HEADER:
            return None
        size = int.from_bytes(incoming[:_HEADER], "big")
        if size > _MAX_FRAME:
            self._break(f"it sent a message of {size:,} bytes")
            return None
        if len(incoming) < _HEADER + size:
            return None
        body = bytes(incoming[_HEADER : _HEADER + size])
        del incoming[: _HEADER + size]
        self._frames += 1
        if self._frames > _MAX_FRAMES:
            self._break(f"it sent more than {_MAX_FRAMES:,} messages")
            return None
        if self._frames > _MAX_RATE * (1 + self._loop.time() - self._opened):
            self._break(f"it sent more than {_MAX_RATE:,} messages a second")
            return None
        self._weight += size + _CONTAINER * _containers(body) + _QUOTE * body.count(b'"')
        if self._weight > _MAX_WEIGHT:
            self._break(f"its messages take more than {_MAX_WEIGHT:,} bytes")
            return None
        try:
            return parse_frame(body)
        except (ValueError, RecursionError):
            self._break("it sent something that is not a message")
            return None

    def _take(self, frame: Frame) -> None:
        try:
            if frame["op"] in _FINAL:
                self.end("frame", _checked_final(frame))
            else:
                _HANDLERS[frame["op"]](self, frame)
        except (KeyError, TypeError, ValueError, OverflowError):
            self._break(f"it sent a message {frame['op'][:20]!r} that makes no sense")

    def _on_begun(self, _: Frame) -> None:
        self.has_begun = True

    def _on_loaded(self, frame: Frame) -> None:
        # The tool may lie, and calls wait that long for its worker: no more than we waited.
        waited = self._loop.time() - self._opened
        self.load_seconds = min(_number(frame["seconds"]) or 0.0, waited)

    def _on_progress(self, frame: Frame) -> None:
        done, total = _number(frame["done"]), _number(frame["total"])
        told = Event(kind="progress", text=str(frame["message"]), done=done, total=total)
        self._invocation.observe(told)

    def _on_log(self, frame: Frame) -> None:
        level = log_level(_number(frame["level"]) or 0)
        self._invocation.observe(Event(kind="log", text=str(frame["message"]), level=level))

    def _on_message(self, frame: Frame) -> None:
        self._outcome.messages.append(frame["value"])

    def _on_inject(self, frame: Frame) -> None:
        names = self._outcome.injected_tools
        names += [str(name)[:_MAX_NAME] for name in frame["names"][: _MAX_INJECTED + 1]]
        if len(names) > _MAX_INJECTED:
            self._break(f"it offered more than {_MAX_INJECTED} tools")

    def _on_file(self, frame: Frame) -> None:
        data = b64decode(frame["data"], validate=True)
        self._file_bytes += len(data)
        if self._file_bytes > _MAX_FILES:
            self._break(f"it handed over more than {_MAX_FILES:,} bytes of files")
            return
        name = PurePosixPath(str(frame["name"]).replace("\0", "")).name[:_MAX_NAME]
        self._outcome.files.append(SentFile(name=name if name.strip(".") else "file", data=data))

    def _on_nested_call(self, frame: Frame) -> None:
        tool, arguments = frame["tool"], frame["arguments"]
        if self._nested is not None and not self._nested.done():
            self._break("it made a second call before the first had an answer")
        elif self._outgoing:
            self._break("it makes calls and does not read the answers")
        elif isinstance(tool, str):
            self._nested = self._loop.create_task(self._call(tool, arguments))

    def _on_ask(self, frame: Frame) -> None:
        questions = frame["questions"]
        if self._nested is not None and not self._nested.done():
            self._break("it asked something before the last had an answer")
        elif self._outgoing:
            self._break("it asks and does not read the answers")
        else:
            self._nested = self._loop.create_task(self._ask(questions))

    async def _call(self, tool: str, arguments: Any) -> None:
        nested = self._invocation.nested
        if nested is None:
            self.send(encode_frame({"error": "calling other tools is not possible here"}))
            return
        self.send(encode_frame(reply(tool, await nested(tool, arguments))))

    async def _ask(self, questions: Any) -> None:
        asker = self._invocation.asker
        self.send(encode_frame(CANNOT_ASK if asker is None else await asker.reply(questions)))

    def _break(self, why: str) -> None:
        self.end("broken", why)


# Not kept by each conversation: it would refer to itself, and wait for the collector.
_HANDLERS: dict[str, Callable[[Conversation, Frame], None]] = {
    "begun": Conversation._on_begun,
    "loaded": Conversation._on_loaded,
    "progress": Conversation._on_progress,
    "log": Conversation._on_log,
    "message": Conversation._on_message,
    "inject": Conversation._on_inject,
    "file": Conversation._on_file,
    "call": Conversation._on_nested_call,
    "ask": Conversation._on_ask,
}


class _Output:
    """One stream of what a process prints: the first part kept, the rest counted."""

    def __init__(
        self, descriptor: int, name: Literal["stdout", "stderr"], observe: Callable[[Event], None]
    ) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.size = 0
        self._kept = bytearray()
        self._name = name
        self._observe = observe
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> bool:
        """Take what is there; False at the end."""
        try:
            data = os.read(self.descriptor, _READ)
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
                self._observe(Event(kind=self._name, text=text))
        return bool(data)

    def drain(self) -> None:
        """Take the rest without waiting, and close."""
        while self.size < _KEPT_OUTPUT:
            before = self.size
            if not self.read() or self.size == before:
                break
        os.close(self.descriptor)

    def text(self) -> str:
        """What was kept."""
        return self._kept.decode("utf-8", "replace")

    def notes(self) -> list[str]:
        """What was not."""
        lost = self.size - len(self._kept)
        return [f"{lost:,} bytes of {self._name} were left out"] if lost > 0 else []


def encode_frame(frame: Frame) -> bytes:
    """A frame as it travels: its length, then strict JSON."""
    body = encode(frame).encode()
    return len(body).to_bytes(_HEADER, "big") + body


def parse_frame(body: bytes) -> Frame:
    """A frame whose every value can be sent on as strict JSON.

    Raises:
        ValueError: it is none.
    """
    # Not as bytes: json would guess at their encoding, and let halves of characters pass.
    frame = json.loads(body.decode(), parse_constant=_refuse, parse_float=_finite)
    if not isinstance(frame, dict) or not isinstance(frame.get("op"), str):
        raise ValueError("not an object with an op")
    if b"\\u" in body:
        json.dumps(frame, ensure_ascii=False).encode()  # raises on half a character
    if _containers(body) > _MAX_DEPTH and _is_deep(frame):
        raise ValueError("nested too deeply")
    return frame


def _containers(body: bytes) -> int:
    """At most so many lists and objects are in a frame."""
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
            raise ValueError("streams of a ToolResult are text")
        bool(value["ok"])
    notes = frame.get("notes", [])
    if not isinstance(notes, list) or len(notes) > 100:
        raise ValueError("notes")
    if not all(isinstance(note, str) and len(note) <= _MAX_NOTE for note in notes):
        raise ValueError("notes are short texts")
    if frame["op"] == "error":
        bounded = {"type": str(frame.get("type"))[:100]}
        return {**frame, **bounded, "message": str(frame.get("message"))[:_MAX_ERROR]}
    return frame


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _pair() -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    near.setblocking(False)
    return near, far
