"""A client that costs little: requests made beforehand, answers counted by their ends.

It keeps several requests under way, each followed by the next as soon as it is answered, so
that a server is never idle and the client never the slower one. It understands of an answer
where it ends and whether it holds what it should, and no more.
"""

import json
import os
import select
import socket
from collections.abc import Callable, Iterable
from subprocess import Popen
from typing import Any, Protocol

MODERN, LEGACY = "2026-07-28", "2025-11-25"
_ID = b"@id@"
_PATIENCE = 60.0


class WrongAnswer(Exception):
    """A server did not do what it was asked."""


class Line(Protocol):
    """A connection to a server that calls the one tool."""

    def call(self, times: int) -> None:
        """Call it so many times.

        Raises:
            WrongAnswer: an answer does not hold what it should.
        """
        ...

    def close(self) -> None:
        """Let the server go."""
        ...


def message(
    method: str, era: str, params: dict[str, Any] | None = None, *, number: str | int = 0
) -> bytes:
    """A request of JSON-RPC in the form of an era."""
    given = dict(params or {})
    if era == MODERN:
        given["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        }
    asked = {"jsonrpc": "2.0", "id": number, "method": method, "params": given}
    return json.dumps(asked).encode()


def handshake() -> tuple[bytes, bytes]:
    """The two messages that open a connection of the legacy era."""
    client = {"name": "bench", "version": "1"}
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client}
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    return message("initialize", LEGACY, params, number="hello"), json.dumps(initialized).encode()


def _numbered(request: bytes) -> Callable[[int], bytes]:
    """Makes copies with a number each, which are all of the same length."""
    before, _, after = request.partition(b'"%s"' % _ID)
    return lambda number: b'%s"%08d"%s' % (before, number, after)


def call_of(tool: str, arguments: dict[str, Any], era: str) -> bytes:
    """The request for a call, whose number is still to come."""
    params = {"name": tool, "arguments": arguments}
    return message("tools/call", era, params, number=_ID.decode())


class Pipes:
    """A server's stdin and stdout: a line a message."""

    def __init__(self, process: Popen[bytes], era: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._into, self._out = process.stdin.fileno(), process.stdout.fileno()
        self._rest = b""
        if era == LEGACY:
            hello, initialized = handshake()
            self.ask(hello)
            self._write(initialized)

    def ask(self, request: bytes) -> Any:
        """The result of one request."""
        self._write(request)
        while True:
            while b"\n" not in self._rest:
                self._rest += self._read()
            line, _, self._rest = self._rest.partition(b"\n")
            found = json.loads(line)
            if "result" in found:
                return found["result"]
            if "method" not in found:  # what it tells unasked is not looked at
                raise WrongAnswer(f"the server said {line[:500]!r}")

    def caller(self, request: bytes, right: bytes, under_way: int) -> "PipeLine":
        """What makes calls."""
        return PipeLine(self, _numbered(request), right, under_way)

    def _write(self, request: bytes) -> None:
        os.write(self._into, request + b"\n")

    def _read(self) -> bytes:
        ready, _, _ = select.select([self._out], [], [], _PATIENCE)
        data = os.read(self._out, 1 << 16) if ready else b""
        if not data:
            raise WrongAnswer("the server said nothing more")
        return data

    def close(self) -> None:
        """End the server, which has nobody to talk to any more."""
        self._process.kill()
        self._process.wait()


class PipeLine:
    """Calls over stdio."""

    def __init__(
        self, pipes: Pipes, numbered: Callable[[int], bytes], right: bytes, under_way: int
    ) -> None:
        self._pipes = pipes
        self._numbered = numbered
        self._right = right
        self._under_way = under_way
        self._sent = 0

    def call(self, times: int) -> None:
        """See Line."""
        asked = answered = good = 0
        while answered < times:
            while asked < times and asked - answered < self._under_way:
                self._sent += 1
                self._pipes._write(self._numbered(self._sent))
                asked += 1
            data = self._pipes._rest + self._pipes._read()
            lines, end, self._pipes._rest = data.rpartition(b"\n")
            if end:
                answered += lines.count(b"\n") + 1
                good += lines.count(self._right)
        if good != times:
            raise WrongAnswer(f"{times - good} of {times} answers are not right: {data[:500]!r}")

    def close(self) -> None:
        """See Line."""
        self._pipes.close()


class Sockets:
    """Keep-alive connections, each with one request at a time."""

    def __init__(
        self, port: int, numbered: Callable[[int], bytes], right: bytes, connections: int
    ) -> None:
        self._numbered = numbered
        self._right = right
        self._sent = 0
        self._poll = select.epoll()
        self._open: dict[int, socket.socket] = {}
        for _ in range(connections):
            connection = connected(port)
            self._open[connection.fileno()] = connection
            self._poll.register(connection, select.EPOLLIN)

    def call(self, times: int) -> None:
        """See Line."""
        asked = answered = 0
        come = dict.fromkeys(self._open, b"")
        for connection in list(self._open.values())[:times]:
            self._ask(connection)
            asked += 1
        while answered < times:
            ready = self._poll.poll(_PATIENCE)
            if not ready:
                raise WrongAnswer("the server said nothing more")
            for number, _ in ready:
                data = come[number] = come[number] + self._open[number].recv(1 << 16)
                if not is_whole(data):
                    continue
                if self._right not in data:
                    raise WrongAnswer(f"an answer is not right: {data[:1000]!r}")
                come[number] = b""
                answered += 1
                if asked < times:
                    self._ask(self._open[number])
                    asked += 1

    def _ask(self, connection: socket.socket) -> None:
        self._sent += 1
        connection.sendall(self._numbered(self._sent))

    def close(self) -> None:
        """See Line."""
        for connection in self._open.values():
            connection.close()
        self._poll.close()


def connected(port: int) -> socket.socket:
    """A connection to this machine's port."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def is_whole(data: bytes) -> bool:
    """Whether an HTTP answer has come to its end."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        if not data:
            raise WrongAnswer("the server hung up")
        return False
    head = head.lower()
    start = head.find(b"content-length:")
    if start < 0:
        return b"chunked" not in head or body.endswith(b"0\r\n\r\n")
    return len(body) >= int(head[start + 15 :].partition(b"\r\n")[0])


def posting(port: int, path: str, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """A whole HTTP request."""
    told = "".join(f"{name}: {value}\r\n" for name, value in headers)
    length = len(body) + (len(b"00000000") - len(_ID) if _ID in body else 0)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\n{told}Content-Length: {length}\r\n\r\n"
    )
    return head.encode() + body


def over_http(port: int, request: bytes, right: bytes, connections: int) -> Sockets:
    """Calls by one whole HTTP request, over and over."""
    return Sockets(port, _numbered(request) if _ID in request else lambda _: request, right,
                   connections)  # fmt: skip


def mcp_request(port: int, call: bytes, tool: str, era: str) -> bytes:
    """The HTTP request for a call over MCP; in the legacy era within a session that this opens."""
    if era == MODERN:
        version, method, name = "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"
        told = [(version, MODERN), (method, "tools/call"), (name, tool)]
        return posting(port, "/mcp", call, told)
    hello, initialized = handshake()
    head = _asked(port, posting(port, "/mcp", hello)).partition(b"\r\n\r\n")[0].decode().lower()
    session = head.partition("mcp-session-id:")[2].partition("\r\n")[0].strip()
    told = [("Mcp-Session-Id", session), ("MCP-Protocol-Version", LEGACY)]
    _asked(port, posting(port, "/mcp", initialized, told))
    return posting(port, "/mcp", call, told)


def _asked(port: int, request: bytes) -> bytes:
    with connected(port) as connection:
        connection.sendall(request)
        data = b""
        while not is_whole(data := data + connection.recv(1 << 16)):
            pass
        return data
