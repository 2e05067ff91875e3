"""Speaking to the host directly, past the runtime."""
# mypy: ignore-errors

import array
import json
import os
import socket
import time
from typing import Any

from trying import run_on

from toolkiln import Context, tool

HOST = 3


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(HOST, view) :]


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@tool(timeout=2)
def say_bytes(data: str, then: str = "wait") -> str:
    """Write to the call's socket; every character is a byte."""
    _write(data.encode("latin-1"))
    return _go_on(then)


@tool(timeout=2)
def say(body: str, then: str = "wait", times: int = 1) -> str:
    """Write frames; every character is a byte."""
    _write(_frame(body.encode("latin-1")) * times)
    return _go_on(then)


def _go_on(then: str) -> str:
    if then == "wait":
        time.sleep(60)
    elif then == "exit":
        os._exit(0)
    elif then != "return":
        run_on(then)
    return "returned"


@tool(timeout=10)
def say_much(kind: str) -> str:
    """Write frames that are small here and large there."""
    if kind == "deep":
        _write(_frame(b'{"op":"result","value":' + b"[" * 100_000 + b"]" * 100_000 + b"}"))
    elif kind == "objects":
        _write(_frame(b'{"op":"message","value":[' + b"{}," * 7_000_000 + b"{}]}"))
    elif kind == "messages":
        for _ in range(100):
            _write(_frame(b'{"op":"message","value":"' + b"x" * (20 << 20) + b'"}'))
    elif kind == "progress":
        frame = _frame(b'{"op":"progress","done":1,"total":2,"message":"x"}') * 1000
        for _ in range(1000):
            _write(frame)
    elif kind == "files":
        for _ in range(10):
            _write(_frame(b'{"op":"file","name":"x","data":"' + b"AAAA" * (3 << 20) + b'"}'))
    elif kind == "error":
        text = b"x" * (8 << 20)
        _write(_frame(b'{"op":"error","kind":"tool_error","type":"T","message":"' + text + b'"}'))
    elif kind == "notes":
        _write(_frame(b'{"op":"result","value":1,"notes":["' + b"x" * (8 << 20) + b'"]}'))
    elif kind == "state":
        _write(_frame(b'{"op":"result","value":1,"agent_state":{"x":"' + b"x" * (8 << 20) + b'"}}'))
    elif kind == "inject":
        _write(_frame(b'{"op":"inject","names":["' + b'x","' * 5_000_000 + b'x"]}'))
    time.sleep(60)
    return "never"


@tool(timeout=2)
def hang_up(then: str) -> str:
    """Close the socket and go on."""
    os.close(HOST)
    return _go_on(then)


@tool
def pass_descriptors(count: int) -> str:
    """Give the host descriptors that it did not ask for."""
    body = json.dumps({"op": "log", "level": 1, "message": "x"}).encode()
    sent = 0
    with socket.socket(fileno=os.dup(HOST)) as host:
        while sent < count:
            rights = array.array("i", [os.open("/dev/null", os.O_RDONLY) for _ in range(50)])
            try:
                host.sendmsg([_frame(body)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                sent += 1
            except OSError:  # too many on their way
                time.sleep(0.001)
            for descriptor in rights:
                os.close(descriptor)
    return "passed"


@tool(timeout=5)
def call_without_reading(tool: str) -> str:
    """Call tools and let the host keep the answers."""
    body = json.dumps({"op": "call", "tool": tool, "arguments": {"megabytes": 8}}).encode()
    while True:
        _write(_frame(body))
        time.sleep(0.5)


@tool(timeout=5)
def call_another(context: Context, tool: str, arguments: dict[str, Any]) -> Any:
    """Call another tool, as one should."""
    return context.call(tool, **arguments)


@tool(timeout=20)
def call_oneself(context: Context) -> Any:
    """Call oneself for ever."""
    return context.call("call_oneself")


@tool
def replace_everything() -> str:
    """Put traps where the runtime may step."""
    import builtins
    import sys

    def trap(*_: Any, **__: Any) -> Any:
        raise RuntimeError("trapped")

    for module in (json, socket, os, sys.modules["toolkiln.runtime.serialise"]):
        for name in ("dumps", "loads", "write", "sendall", "_exit", "socket", "plain"):
            if hasattr(module, name):
                setattr(module, name, trap)
    json.JSONEncoder.encode = json.JSONEncoder.iterencode = trap
    builtins.len = builtins.isinstance = builtins.getattr = trap
    sys.stdout = sys.stderr = None
    return "replaced"


@tool(network=["example.com"])
def ungranted() -> str:
    """Reach a host that is not granted."""
    return "reached"


@tool(sandbox=False)
def unsandboxed() -> str:
    """Run unsandboxed without permission."""
    return "ran"
