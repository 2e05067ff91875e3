"""Limits on connections: idle clients, slow or large headers, clients that do not read.

uvicorn's protocol waits without limit for a client that sends nothing, buffers headers of any
size, and waits without limit for a client to read a response. Limits on complete requests are
in `middleware`.
"""

import asyncio
from http import HTTPStatus
from typing import ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from toolkiln.surfaces.http.responses import STATUSES, HttpProblem

_MAX_HEADER_BYTES = 64 << 10
"""Bytes read before the headers are complete; the limit of the middleware is lower."""
_MAX_PIPELINED = 16
"""Requests that a client may send before the first response."""
_GRACE_SECONDS = 1.0
"""Time for the middleware to respond before the connection is aborted."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits; a server sets them in a subclass."""

    seconds: ClassVar[float] = 30.0
    """Maximum time to receive a request, and for the client to read a chunk of a response."""
    max_connections: ClassVar[int] = 500
    idle: ClassVar[dict["BoundedHttpProtocol", None]] = {}
    """Connections without a complete request in progress, oldest first."""

    _request_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _has_started = _has_headers = False
    _is_complete = True
    _cycles: tuple[RequestResponseCycle, ...] = ()
    """The requests without a complete response; there are several with pipelining."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            oldest = next(iter(self.idle), self)
            self.idle.pop(oldest, None)
            oldest.transport.abort()
            if oldest is self:
                return
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.idle.pop(self, None)
        self.resume_writing()
        for cycle in self._cycles:  # uvicorn notifies only the last one
            cycle.disconnected = cycle.disconnected or not cycle.response_complete
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_complete, self._has_started = self._is_complete, False
        super().data_received(data)
        if self.transport.is_closing():
            return
        # The end of a body before the next request does not count as its headers.
        if not self._has_headers and (was_complete or not self._has_started):
            self._header_bytes += len(data)
            if self._header_bytes > _MAX_HEADER_BYTES:
                self._refuse("headers_too_large", "the headers of the request are too large")
                return
        if len(self.pipeline) > _MAX_PIPELINED:
            self.transport.abort()
        elif self._is_complete and self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
            self.idle.pop(self, None)
        elif self._request_timer is None:  # also for data outside requests, such as empty lines
            self._start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._has_started, self._is_complete, self._has_headers = True, False, False
        self._header_bytes = 0

    def on_headers_complete(self) -> None:
        self._has_headers = True
        super().on_headers_complete()
        self.cycle.transport = cast(
            "asyncio.Transport", CoalescingTransport(self.transport, self.loop)
        )
        open_cycles = (cycle for cycle in self._cycles if not cycle.response_complete)
        self._cycles = (*open_cycles, self.cycle)

    def on_message_complete(self) -> None:
        self._is_complete = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is None or self.cycle.response_complete:
            self.idle[self] = None
        if self.transport.is_closing():  # after the client has read the rest
            self._expect_read()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_read()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - replaced by a problem
        self._refuse("bad_request", "the request is not valid HTTP")

    def _expect_read(self) -> None:
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(self.seconds, self.transport.abort)

    def _start_timer(self) -> None:
        self.idle.setdefault(self)
        self._request_timer = self.loop.call_later(self.seconds + _GRACE_SECONDS, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _on_timeout(self) -> None:
        if self._has_headers or not self._header_bytes:
            self.transport.abort()
        else:
            self._refuse("too_slow", "the headers of the request were not received in time")

    def _refuse(self, code: str, detail: str) -> None:
        """Send a problem if no response is due, and close the connection."""
        self._stop_timer()
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle or not (self._is_complete or self.cycle.response_started):
            problem = HttpProblem(code, detail).problem.model_dump_json()
            status = HTTPStatus(STATUSES[code])
            self.transport.write(
                f"HTTP/1.1 {status.value} {status.phrase}\r\n"
                "content-type: application/problem+json\r\n"
                f"content-length: {len(problem)}\r\nconnection: close\r\n\r\n{problem}".encode()
            )
        self.transport.close()
        self._expect_read()


class CoalescingTransport:
    """A transport that sends the headers and the start of the body with one write."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._buffer = b""

    def write(self, data: bytes) -> None:
        if self._buffer or not data:
            self._flush(data)
        else:
            self._buffer = data
            self._loop.call_soon(self._flush)

    def _flush(self, data: bytes = b"") -> None:
        data, self._buffer = self._buffer + data, b""
        if data:
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()
