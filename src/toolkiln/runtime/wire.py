"""Wire protocol between the host and the sandbox: length-prefixed JSON frames on a socket.

Uses the C modules behind `json`, `socket` and `signal`, because importing those would take
longer than the rest of a sandbox's startup. If the interpreter's C modules differ, `json` is the
fallback.
"""

from __future__ import annotations

from _socket import CMSG_LEN, SCM_RIGHTS, SOL_SOCKET
from _socket import socket as Socket  # noqa: N812
from _thread import allocate_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Frame = dict[str, Any]

__all__ = ["Channel", "Socket", "decode", "encode", "receive_descriptors"]

SIGINT, SIGKILL, SIGPIPE, SIGTERM, SIGCHLD = 2, 9, 13, 15, 17

TOO_MANY_PROCESSES, SETUP_FAILED = 118, 119
"""Exit codes: mode C counted too many processes; the sandbox could not be set up."""

MAX_INCOMING = 64 << 20
"""Maximum bytes of a frame from the host, which itself sends less."""

_HEADER = 4
_to_bytes = int.to_bytes
_from_bytes = int.from_bytes


def receive_descriptors(source: Socket, size: int, count: int) -> tuple[bytes, list[int]]:
    """Receive a message and up to `count` descriptors passed with it."""
    data, messages, _, _ = source.recvmsg(size, CMSG_LEN(count * 4))
    descriptors: list[int] = []
    for level, kind, passed in messages:
        if level == SOL_SOCKET and kind == SCM_RIGHTS:
            whole = len(passed) - len(passed) % 4
            descriptors += memoryview(passed)[:whole].cast("i").tolist()
    return data, descriptors


def _reject(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not JSON")


class _ScannerOptions:
    """The attributes of `json.JSONDecoder` that the C scanner reads."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


def _coders() -> tuple[Callable[[Any], str], Callable[[str], Any]]:
    from _json import encode_basestring, make_encoder, make_scanner

    write = make_encoder(None, _reject, encode_basestring, None, ": ", ", ", False, False, False)
    scan = make_scanner(_ScannerOptions)  # type: ignore[arg-type]

    def encode(value: Any) -> str:
        return "".join(write(value, 0))

    def decode(text: str) -> Any:
        try:
            return scan(text, 0)[0]
        except StopIteration:
            raise ValueError("not JSON") from None

    sample = {"a": [1, 2.5, "ü\n", None, True], "b": {}}
    if decode(encode(sample)) != sample:
        raise ImportError("the C module of json has changed")
    return encode, decode


try:
    encode, decode = _coders()
except (ImportError, TypeError, ValueError):
    import json

    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode
    decode = json.JSONDecoder().decode


class Channel:
    """The sandbox's end of a call: frames in both directions. Any thread may send."""

    def __init__(self, descriptor: int) -> None:
        self._socket = Socket(fileno=descriptor)
        self._send = self._socket.sendall
        self._receive_into = self._socket.recv_into
        self._send_lock = allocate_lock()
        self._request_lock = allocate_lock()

    def send(self, frame: Frame) -> None:
        """Send a frame; raises ValueError if it is not strict JSON."""
        body = encode(frame).encode()
        with self._send_lock:
            self._send(_to_bytes(len(body), _HEADER, "big") + body)

    def receive(self) -> Frame:
        """Receive the next frame; raises EOFError if the host closed the socket."""
        size = _from_bytes(self._read_exactly(_HEADER), "big")
        if size > MAX_INCOMING:
            raise EOFError(f"the host sent a frame of {size:,} bytes")
        frame: Frame = decode(self._read_exactly(size).decode())
        return frame

    def request(self, frame: Frame) -> Frame:
        """Send a frame and wait for the reply; one request at a time."""
        with self._request_lock:
            self.send(frame)
            return self.receive()

    def receive_descriptors(self, count: int) -> list[int]:
        """Receive descriptors; raises EOFError if the host closed the socket."""
        data, descriptors = receive_descriptors(self._socket, 1, count)
        if not data or len(descriptors) != count:
            raise EOFError("the host closed the worker")
        return descriptors

    def _read_exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._receive_into(view)
            if not count:
                raise EOFError("the host closed the call")
            view = view[count:]
        return data
