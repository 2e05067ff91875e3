"""The health server of a worker: whether it lives, whether it takes calls, what it measures.

The answers are those of `beside`, behind the same gate; there is nothing else here, and no
call comes in this way.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from toolkiln.app import Entrance, Kiln
from toolkiln.surfaces.http.access import Access
from toolkiln.surfaces.http.app import App
from toolkiln.surfaces.http.beside import Beside, Checks, Readiness
from toolkiln.surfaces.http.gate import Gate, Limits
from toolkiln.surfaces.http.metrics import Metrics
from toolkiln.surfaces.http.requests import caller_of

_PATHS = ("/healthz", "/readyz", "/metrics")
_MOST = 20
"""Requests at once: whoever asks for health asks seldom."""


class Health(uvicorn.Server):
    """The health server of one Kiln."""

    def __init__(self, kiln: Kiln, checks: Checks) -> None:
        """`checks` are asked beside the Kiln's own parts; they raise ToolkilnError."""
        settings = kiln.settings
        entrance = Entrance(kiln.guarding, settings)
        self.metrics = Metrics()
        self.readiness = Readiness(kiln, checks)
        self._kiln = kiln
        beside = Beside((), entrance, self.readiness, self.metrics)
        gate = Gate(
            App(kiln, entrance, (), dict.fromkeys(_PATHS, beside)),
            Access(
                not entrance.authentication.may_allow_anonymous,
                frozenset(host.lower() for host in settings.hosts),
            ),
            Limits(settings.body_bytes, _MOST, settings.request_seconds),
            self.metrics.count_request,
            lambda scope: caller_of(kiln, entrance, scope),
        )
        self.metrics.watch_requests(lambda: gate.active)
        super().__init__(
            uvicorn.Config(
                gate,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level=logging.CRITICAL,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=_MOST,
                timeout_graceful_shutdown=1,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Left to the worker."""
        yield

    @asynccontextmanager
    async def answering(self, listener: socket.socket) -> AsyncIterator[None]:
        """Answer as long as the block runs."""
        forget = self.metrics.watch(self._kiln)
        serving = asyncio.create_task(self.serve([listener]))
        try:
            yield
        finally:
            self.should_exit = True
            await serving
            forget()
