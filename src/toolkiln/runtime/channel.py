"""The inner end of a call's socket: frames of JSON, each behind its length.

Everything that is needed later is bound when this module is imported, before any code
of a tool is, so that a tool that replaces `json.dumps` or `socket.recv` harms itself only.
What a frame may do is decided on the outer end, by the socket that it came on.
"""

from __future__ import annotations

from _thread import allocate_lock

from toolkiln.runtime.wire import Socket, decode, encode, receive_descriptors

TYPE_CHECKING = False  # `typing` is slow to import, and this starts with every sandbox
if TYPE_CHECKING:
    from typing import Any

    Frame = dict[str, Any]

MAX_INCOMING = 64 << 20
"""Bytes of a frame from outside; that side keeps to less."""

_HEADER = 4
_to_bytes = int.to_bytes
_from_bytes = int.from_bytes


class Channel:
    """A stream of frames in both directions; sending is safe from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._socket = Socket(fileno=descriptor)
        self._send = self._socket.sendall
        self._receive_into = self._socket.recv_into
        self._lock = allocate_lock()
        self._asking = allocate_lock()

    def send(self, frame: Frame) -> None:
        """Hand over one frame, whole.

        Raises:
            ValueError: it is not strict JSON.
        """
        body = encode(frame).encode()
        with self._lock:
            self._send(_to_bytes(len(body), _HEADER, "big") + body)

    def receive(self) -> Frame:
        """The next frame.

        Raises:
            EOFError: the other side has gone.
        """
        size = _from_bytes(self._exactly(_HEADER), "big")
        if size > MAX_INCOMING:
            raise EOFError(f"a frame of {size:,} bytes")
        frame: Frame = decode(self._exactly(size).decode())
        return frame

    def ask(self, frame: Frame) -> Frame:
        """Send a frame and wait for its reply; one question at a time."""
        with self._asking:
            self.send(frame)
            return self.receive()

    def receive_descriptors(self, count: int) -> list[int]:
        """Descriptors that the other side passes on.

        Raises:
            EOFError: the other side has gone.
        """
        data, descriptors = receive_descriptors(self._socket, 1, count)
        if not data or len(descriptors) != count:
            raise EOFError("the host has closed the worker")
        return descriptors

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._receive_into(view)
            if not count:
                raise EOFError("the host has closed the call")
            view = view[count:]
        return data
