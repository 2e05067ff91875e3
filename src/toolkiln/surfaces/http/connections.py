"""Connections that cannot be kept for nothing: bounds on what has not become a request yet.

uvicorn's protocol waits for ever for a client that sends nothing, keeps whatever headers
come, and for ever holds an answer that nobody takes. Here each of them ends. What whole
requests may cost is the gate's business.
"""

import asyncio
from http import HTTPStatus
from typing import ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from toolkiln.surfaces.http.problems import STATUSES, Refused

_MOST_HEAD = 64 << 10
"""Bytes of a request that may come before its headers are complete; the gate asks for less."""
_MOST_AHEAD = 16
"""Requests that may be sent before the first is answered."""
_SLACK = 1.0
"""Seconds that the gate gets to answer before a connection is cut."""


class Connection(HttpToolsProtocol):
    """One connection; subclassed with the bounds of a server."""

    seconds: ClassVar[float] = 30.0
    """That a request may take to come, and a client to take a piece of an answer."""
    most: ClassVar[int] = 500
    """Connections at once."""
    idle: ClassVar[dict["Connection", None]] = {}
    """Connections without a whole request that waits for its answer, the oldest first."""

    _cut: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _head = 0
    _has_begun = _has_head = False
    _is_whole = True
    _answering: tuple[RequestResponseCycle, ...] = ()
    """The requests that have no whole answer yet: clients may send several ahead."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            oldest = next(iter(self.idle), self)
            self.idle.pop(oldest, None)
            oldest.transport.abort()
            if oldest is self:
                return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self.idle.pop(self, None)
        self.resume_writing()
        for cycle in self._answering:  # uvicorn tells the last one only
            cycle.disconnected = cycle.disconnected or not cycle.response_complete
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_whole, self._has_begun = self._is_whole, False
        super().data_received(data)
        if self.transport.is_closing():
            return
        # The end of a body that the next request follows is no part of its headers.
        if not self._has_head and (was_whole or not self._has_begun):
            self._head += len(data)
            if self._head > _MOST_HEAD:
                self._refuse("headers_too_large", "the headers of a request are too large")
                return
        if len(self.pipeline) > _MOST_AHEAD:
            self.transport.abort()
        elif self._is_whole and self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
            self.idle.pop(self, None)
        elif self._cut is None:  # also for what is no part of a request, such as empty lines
            self._watch()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._has_begun, self._is_whole, self._has_head = True, False, False
        self._head = 0

    def on_headers_complete(self) -> None:
        self._has_head = True
        super().on_headers_complete()
        self.cycle.transport = cast("asyncio.Transport", Gathered(self.transport, self.loop))
        unanswered = (cycle for cycle in self._answering if not cycle.response_complete)
        self._answering = (*unanswered, self.cycle)

    def on_message_complete(self) -> None:
        self._is_whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is None or self.cycle.response_complete:
            self.idle[self] = None
        if self.transport.is_closing():  # but not before the client has taken the rest
            self._expect_reading()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - we say it ourselves
        self._refuse("bad_request", "this is not HTTP as it should be")

    def _expect_reading(self) -> None:
        if self._stall is None:
            self._stall = self.loop.call_later(self.seconds, self.transport.abort)

    def _watch(self) -> None:
        self.idle.setdefault(self)
        self._cut = self.loop.call_later(self.seconds + _SLACK, self._end)

    def _unwatch(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None

    def _end(self) -> None:
        """The time for a request is over."""
        if self._has_head or not self._head:
            self.transport.abort()
        else:
            self._refuse("too_slow", "the headers of a request did not come in time")

    def _refuse(self, code: str, detail: str) -> None:
        """Say what is wrong where there is no request to answer, and end the connection."""
        self._unwatch()
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle or not (self._is_whole or self.cycle.response_started):
            problem = Refused(code, detail).problem.model_dump_json()
            status = HTTPStatus(STATUSES[code])
            self.transport.write(
                f"HTTP/1.1 {status.value} {status.phrase}\r\n"
                "content-type: application/problem+json\r\n"
                f"content-length: {len(problem)}\r\nconnection: close\r\n\r\n{problem}".encode()
            )
        self.transport.close()
        self._expect_reading()


class Gathered:
    """What an answer is written to: its head leaves with what follows at once, by one write."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting = b""

    def write(self, data: bytes) -> None:
        if self._waiting or not data:
            self._flush(data)
        else:
            self._waiting = data
            self._loop.call_soon(self._flush)

    def _flush(self, data: bytes = b"") -> None:
        gathered, self._waiting = self._waiting + data, b""
        if gathered:
            self._transport.write(gathered)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()
