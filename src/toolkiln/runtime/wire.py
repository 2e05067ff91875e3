"""JSON, sockets and signals by the interpreter's own C parts.

`json`, `socket` and `signal` load regular expressions and enumerations that no sandbox
needs to start, and take longer than everything else that it does first. Only what they
are made of is used here; where the interpreter lacks it, `json` itself serves.
"""

from __future__ import annotations

from _socket import CMSG_LEN, SCM_RIGHTS, SOL_SOCKET
from _socket import socket as Socket  # noqa: N812

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["Socket", "decode", "encode", "receive_descriptors"]

SIGINT, SIGKILL, SIGPIPE, SIGTERM, SIGCHLD = 2, 9, 13, 15, 17


def receive_descriptors(source: Socket, size: int, most: int) -> tuple[bytes, list[int]]:
    """A message and the descriptors that were passed with it."""
    data, messages, _, _ = source.recvmsg(size, CMSG_LEN(most * 4))
    found: list[int] = []
    for level, kind, passed in messages:
        if level == SOL_SOCKET and kind == SCM_RIGHTS:
            whole = len(passed) - len(passed) % 4
            found += memoryview(passed)[:whole].cast("i").tolist()
    return data, found


def _refused(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not JSON")


class _Reading:
    """How the scanner reads, as `json.JSONDecoder` would have it."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


def _coders() -> tuple[Callable[[Any], str], Callable[[str], Any]]:
    from _json import encode_basestring, make_encoder, make_scanner

    write = make_encoder(None, _refused, encode_basestring, None, ": ", ", ", False, False, False)
    scan = make_scanner(_Reading)  # type: ignore[arg-type]

    def encode(value: Any) -> str:
        return "".join(write(value, 0))

    def decode(text: str) -> Any:
        try:
            return scan(text, 0)[0]
        except StopIteration:
            raise ValueError("not JSON") from None

    sample = {"a": [1, 2.5, "ü\n", None, True], "b": {}}
    if decode(encode(sample)) != sample:
        raise ImportError("the C parts of json have changed")
    return encode, decode


try:
    encode, decode = _coders()
except (ImportError, TypeError, ValueError):
    import json

    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode
    decode = json.JSONDecoder().decode
