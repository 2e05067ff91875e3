"""The server: a Kiln behind a socket, from the first request to the last.

It puts the application, the gate and the connections together, and ends them well: told to
stop, it takes no new work, lets calls go on for a while, then cancels them. Requests and
answers are for the parts; keys and TLS are not made here.
"""

import asyncio
import logging
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from toolkiln.app import Entrance, Kiln, is_loopback
from toolkiln.errors import InputError
from toolkiln.surfaces.http.access import Access
from toolkiln.surfaces.http.api import OPERATIONS
from toolkiln.surfaces.http.app import App
from toolkiln.surfaces.http.beside import Beside, Readiness
from toolkiln.surfaces.http.connections import Connection
from toolkiln.surfaces.http.gate import Gate, Limits
from toolkiln.surfaces.http.metrics import Metrics
from toolkiln.surfaces.http.requests import caller_of
from toolkiln.surfaces.http.threads import CallerThreads
from toolkiln.surfaces.mcp.endpoint import Endpoint
from toolkiln.surfaces.tracing import Tracing, exporter, is_traced
from toolkiln.surfaces.web.app import PATH, Page
from toolkiln.surfaces.web.login import Login

_IDLE = 30
"""Seconds that a connection may be kept between two requests."""
_LAST_WORDS = 1
"""Seconds that streams get to end, once all calls have."""
_LOOK = 0.05
_MOST_FILES = 1 << 14
_BACKLOG = 2048
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def listening(host: str, port: int) -> socket.socket:
    """A socket that takes connections, which nobody answers yet.

    Raises:
        InputError: it cannot be had.
    """
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, number)
    except OSError as error:
        raise InputError(
            f"there is no address {host!r}: {error.strerror}", hint="such as 127.0.0.1 or ::1"
        ) from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(
            f"{host} port {port} cannot be used: {error.strerror}",
            hint="choose another port, or 0 for any that is free",
        ) from None
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def refuse_without_keys(kiln: Kiln) -> None:
    """Check that there is an API key, where nothing else can sign in.

    Raises:
        InputError: there is no valid key.
    """
    host = kiln.settings.host
    if is_loopback(host) or kiln.guarding.keys.any_valid():  # on loopback: the start-up link
        return
    raise InputError(
        f"there is no valid API key, and {host} needs one: other machines can reach it",
        hint="make one with `toolkiln keys create NAME --user USER`, or serve on 127.0.0.1",
    )


class Server(uvicorn.Server):
    """One server of one Kiln, in the event loop that the Kiln is used in."""

    def __init__(self, kiln: Kiln, say: Callable[[str], None]) -> None:
        """`say` gets what a person should know."""
        settings = kiln.settings
        entrance = self.entrance = Entrance(kiln.guarding, settings)
        self._url = ""
        self._kiln = kiln
        self._say = say
        self._metrics = Metrics()
        self._readiness = Readiness(kiln)
        beside = Beside(OPERATIONS, entrance, self._readiness, self._metrics)
        self._endpoint = Endpoint(kiln, entrance)
        mounts: dict[str, ASGIApp] = {
            **dict.fromkeys(beside.paths, beside),
            "/mcp": self._endpoint,
            **dict.fromkeys(("/", PATH), Page(Login(entrance, self._on_sign_in))),
        }
        app = App(kiln, entrance, OPERATIONS, mounts)
        self._tracing = Tracing(exporter(settings)) if is_traced(settings) else None
        most = _room_for_connections()
        # A third of the connections is left for health, and for clients that send nothing yet.
        places = min(settings.concurrent_requests, max(most // 3, 1))
        self._gate = Gate(
            app if self._tracing is None else _traced(app, self._tracing),
            Access(
                not entrance.authentication.may_allow_anonymous,
                frozenset(host.lower() for host in settings.hosts),
                frozenset(origin.lower().rstrip("/") for origin in settings.origins),
            ),
            Limits(settings.body_bytes, places, settings.request_seconds),
            self._metrics.count_request,
            lambda scope: caller_of(kiln, entrance, scope),
        )
        self._metrics.watch_requests(lambda: self._gate.active)
        self._stopping: asyncio.Task[None] | None = None
        bounds = {"seconds": settings.request_seconds, "most": most, "idle": {}}
        super().__init__(
            uvicorn.Config(
                self._gate,
                http=type("Connection", (Connection,), bounds),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level=logging.CRITICAL,  # the application logs what matters
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=_IDLE,
                timeout_graceful_shutdown=_LAST_WORDS,
            )
        )

    def sign_in_url(self, url: str) -> str | None:
        """The address that signs the local person in, once; None if there is no such address."""
        start_up = self.entrance.start_up
        return None if start_up is None else f"{url}{PATH}/login?token={start_up.text}"

    def _on_sign_in(self) -> None:
        """Print the next sign-in link, for another browser: each link works once."""
        if self._url:
            self._say(f"signed in; the next sign-in link: {self.sign_in_url(self._url)}")

    async def run_on(self, listener: socket.socket) -> None:
        """Serve until it is stopped."""
        self._url = url_of(listener)
        asyncio.get_running_loop().set_default_executor(CallerThreads())
        async with AsyncExitStack() as stack:
            stack.callback(self._metrics.watch(self._kiln))
            stack.enter_context(self._kiln.runs.watching(self._kiln.engine.gateway))
            if self._tracing is not None:
                await stack.enter_async_context(self._tracing.watching(self._kiln))
            await stack.enter_async_context(self._kiln.changes.running())
            await stack.enter_async_context(self._endpoint.running())
            try:
                await self.serve([listener])
            finally:
                if self._stopping is not None:
                    self._stopping.cancel()
                await self._end_requests()

    @contextmanager
    def heeding_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM stop it meanwhile."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Left to whoever runs it: they may have something to end before and after."""
        yield

    def stop(self) -> None:
        """Take no new work, let what runs end; asked again, cancel it."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._drain())
            return
        self.should_exit = self.force_exit = True
        for number in _SIGNALS:  # the next one needs no help from us
            asyncio.get_running_loop().remove_signal_handler(number)

    async def _drain(self) -> None:
        self._gate.is_draining = self._readiness.is_draining = True
        patience = self._kiln.settings.drain_seconds
        if left := self._left():
            self._say(f"stopping: {left} under way, at most {patience} s; again to stop at once")
        try:
            async with asyncio.timeout(patience):
                while self._left() and not self.force_exit:
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            self._say(f"stopping: {self._left()} cancelled")
        self.should_exit = True

    def _left(self) -> int:
        """What is worth waiting for: calls, and requests other than streams, which never end."""
        return max(self._metrics.calls_in_flight, self._gate.active - self._gate.streams)

    async def _end_requests(self) -> None:
        tasks = set(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _traced(app: ASGIApp, tracing: Tracing) -> ASGIApp:
    """An application whose requests are part of the traces that they name."""

    async def traced(scope: Scope, receive: Receive, send: Send) -> None:
        told = scope["headers"]
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in told}
        with tracing.within(headers):
            await app(scope, receive, send)

    return traced


def _room_for_connections() -> int:
    """Half of the descriptors that this process may have, for as many as it can get."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return max(64, (_MOST_FILES if soft == resource.RLIM_INFINITY else soft) // 2)
