"""Values and text that hurt whoever prints, stores or parses them."""
# mypy: ignore-errors

import os
import sys
from typing import Any

from toolkiln import tool

_HALF, _OTHER_HALF = chr(0xD800), chr(0xDFFF)


class Hostile:
    """Every way of looking at it raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __reduce__ = __repr__

    def __getattr__(self, name: str) -> Any:
        raise KeyboardInterrupt


class Unspeakable(Exception):
    """An error that cannot be told."""

    def __str__(self) -> str:
        raise SystemExit(3)


class Liar(str):
    """A text that claims to be another."""

    __slots__ = ()

    def __len__(self) -> int:
        return -1 & 0x7FFF

    def encode(self, *_: Any) -> bytes:
        return b"\xff\0"


def _cycle() -> Any:
    ring: list[Any] = [1]
    ring.append({"again": ring})
    return ring


@tool
def value_of(kind: str) -> Any:
    """Return something that is no JSON."""
    return {
        "nan": lambda: [float("nan"), float("inf"), -float("inf")],
        "surrogate": lambda: {_HALF: f"a{_OTHER_HALF}b"},
        "cycle": _cycle,
        "hostile": lambda: [Hostile()],
        "liar": lambda: Liar("text"),
        "bytes": lambda: b"\xff\0\x1b",
        "keys": lambda: {1: 1, None: 2, (1, 2): 3, float("nan"): 4},
        "escape": lambda: "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e",
        "nul": lambda: "a\0b",
        "generator": lambda: (n for n in iter(int, 1)),
        "type": lambda: type,
        "deep": lambda: _deep(5000),
    }[kind]()


def _deep(levels: int) -> Any:
    inner: Any = 1
    for _ in range(levels):
        inner = [inner]
    return inner


@tool
def print_bytes() -> int:
    """Print what is no text."""
    os.write(1, b"\xff\xfe\0\xed\xa0\x80\x1b[31m")
    os.write(2, b"\xc3")
    sys.stdout.write(_HALF)
    return 1


@tool
def raise_error(kind: str) -> Any:
    """End badly."""
    errors: dict[str, Any] = {
        "unspeakable": Unspeakable,
        "interrupt": KeyboardInterrupt,
        "base": BaseException,
        "exit": SystemExit,
        "generator": GeneratorExit,
        "surrogate": lambda: ValueError(f"{_HALF}\x1b[2J"),
        "long": lambda: ValueError("x" * (8 << 20)),
        "type": lambda: type(_HALF * 5000, (Exception,), {})(),
        "stop": StopIteration,
    }
    raise errors[kind]()


@tool
def leave_by(how: str) -> Any:
    """Leave without an answer."""
    print("last words", flush=True)
    print("last complaint", file=sys.stderr, flush=True)
    if how == "_exit":
        os._exit(0)
    if how == "status":
        os._exit(7)
    if how == "disguise":  # as a sandbox that could not be set up
        os.write(2, b"toolkiln: cannot set up the sandbox: " + b"x" * 100_000)
        os._exit(119)
    if how == "abort":
        os.abort()
    import ctypes

    return ctypes.string_at(1)
