"""The HTTP server of a Kiln, from the socket to a graceful shutdown, and its thread pool.

It combines the application, the middleware and the connection limits. On shutdown it refuses
new requests, waits for calls in progress, then cancels them. It does not create API keys or
terminate TLS.
"""

import asyncio
import os
import resource
import signal
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from typing import Any, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from toolkiln.errors import InputError
from toolkiln.kiln import Kiln
from toolkiln.security.authentication import Authenticator, is_loopback
from toolkiln.surfaces.http.app import App
from toolkiln.surfaces.http.connections import BoundedHttpProtocol
from toolkiln.surfaces.http.health import LimitedServer, Readiness, SystemEndpoints
from toolkiln.surfaces.http.metrics import Metrics
from toolkiln.surfaces.http.middleware import CALLER
from toolkiln.surfaces.http.routes import ROUTES
from toolkiln.surfaces.mcp.endpoint import McpEndpoint
from toolkiln.surfaces.tracing import Tracing, exporter, is_traced
from toolkiln.surfaces.web.app import PATH, Login, WebApp

_KEEP_ALIVE_SECONDS = 30
_STREAM_GRACE_SECONDS = 1
"""Time for event streams to end after all calls have."""
_DRAIN_POLL_SECONDS = 0.05
_MAX_DESCRIPTORS = 1 << 14
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def open_listener(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        InputError: the address does not exist or cannot be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(
            f"unknown address {host!r}: {error.strerror}", hint="use an address such as 127.0.0.1"
        ) from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise InputError(
            f"cannot listen on {host} port {port}: {error.strerror}",
            hint="choose another port, or 0 for any free port",
        ) from None
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def refuse_without_keys(kiln: Kiln) -> None:
    """Refuse to serve other machines without an API key.

    Raises:
        InputError: there is no valid key.
    """
    host = kiln.settings.host
    if is_loopback(host) or kiln.security.keys.any_valid():  # loopback has the sign-in link
        return
    raise InputError(
        f"serving on {host} needs an API key, because other machines can reach it",
        hint="create one with `toolkiln keys create NAME --user USER`, or serve on 127.0.0.1",
    )


class HttpServer(LimitedServer):
    """The server of one Kiln, in the Kiln's event loop."""

    def __init__(self, kiln: Kiln, notify: Callable[[str], None]) -> None:
        """`notify` gets messages for the operator."""
        settings = kiln.settings
        authenticator = self.authenticator = Authenticator(kiln.security, settings)
        self._url = ""
        self._kiln = kiln
        self._notify = notify
        self._metrics = Metrics()
        self._readiness = Readiness(kiln)
        endpoints = SystemEndpoints(ROUTES, authenticator, self._readiness, self._metrics)
        self._mcp = McpEndpoint(kiln, authenticator)
        mounts: dict[str, ASGIApp] = {
            **dict.fromkeys(endpoints.paths, endpoints),
            "/mcp": self._mcp,
            **dict.fromkeys(("/", PATH), WebApp(Login(authenticator, self._on_sign_in))),
        }
        app = App(kiln, authenticator, ROUTES, mounts)
        self._tracing = Tracing(exporter(settings)) if is_traced(settings) else None
        max_connections = _max_connections()
        # A third for requests, a third for streams, a third for health checks and idle clients.
        max_requests = min(settings.concurrent_requests, max(max_connections // 3, 1))
        self._stopping: asyncio.Task[None] | None = None
        limits = {
            "seconds": settings.request_seconds,
            "max_connections": max_connections,
            "idle": {},
        }
        super().__init__(
            kiln,
            authenticator,
            app if self._tracing is None else _trace_requests(app, self._tracing),
            self._metrics,
            max_requests,
            settings.origins,
            http=type("Connection", (BoundedHttpProtocol,), limits),
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_STREAM_GRACE_SECONDS,
        )

    def sign_in_url(self, url: str) -> str | None:
        """Return the one-time sign-in link for the local user; None if there is none."""
        start_up = self.authenticator.start_up
        return None if start_up is None else f"{url}{PATH}/login?token={start_up.text}"

    def _on_sign_in(self) -> None:
        """Show the next sign-in link: each link works once."""
        if self._url:
            self._notify(f"signed in; the next sign-in link: {self.sign_in_url(self._url)}")

    async def run_on(self, listener: socket.socket) -> None:
        """Serve until `stop` is called."""
        self._url = url_of(listener)
        asyncio.get_running_loop().set_default_executor(CallerThreads())
        async with AsyncExitStack() as stack:
            stack.callback(self._metrics.watch(self._kiln))
            stack.callback(self._kiln.services.runs.subscribe_to(self._kiln.engine.events))
            if self._tracing is not None:
                await stack.enter_async_context(self._tracing.running(self._kiln))
            await stack.enter_async_context(self._kiln.services.changes.running())
            await stack.enter_async_context(self._mcp.running())
            try:
                await self.serve([listener])
            finally:
                if self._stopping is not None:
                    self._stopping.cancel()
                await self._cancel_requests()

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM while the block runs."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Shut down gracefully; the second call cancels requests in progress."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._drain())
            return
        self.should_exit = self.force_exit = True
        for number in _SIGNALS:  # the next signal kills the process
            asyncio.get_running_loop().remove_signal_handler(number)

    async def _drain(self) -> None:
        self.app.is_draining = self._readiness.is_draining = True
        seconds = self._kiln.settings.drain_seconds
        if count := self._in_progress():
            self._notify(
                f"stopping: waiting up to {seconds} s for {count} in progress; "
                "repeat to stop immediately"
            )
        try:
            async with asyncio.timeout(seconds):
                while self._in_progress() and not self.force_exit:
                    await asyncio.sleep(_DRAIN_POLL_SECONDS)
        except TimeoutError:
            self._notify(f"stopping: {self._in_progress()} cancelled")
        self.should_exit = True

    def _in_progress(self) -> int:
        """Return the number of calls, or of requests without streams, which never end."""
        return max(self._metrics.calls_in_flight, self.app.active - self.app.streams)

    async def _cancel_requests(self) -> None:
        tasks = set(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _trace_requests(app: ASGIApp, tracing: Tracing) -> ASGIApp:
    """Return an application whose requests continue the trace that their headers name."""

    async def traced(scope: Scope, receive: Receive, send: Send) -> None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        with tracing.continue_trace(headers):
            await app(scope, receive, send)

    return traced


def _max_connections() -> int:
    """Raise the limit of file descriptors if possible, and return half of it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft = target
    return max(64, (_MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft) // 2)


T = TypeVar("T")

_MAX_THREADS = min(32, (os.cpu_count() or 1) + 6)
_MAX_PER_CALLER = _MAX_THREADS - 2
"""As many as asyncio's default executor has in total."""


class CallerThreads(ThreadPoolExecutor):
    """A thread pool that serves callers in turn."""

    def __init__(
        self, max_workers: int = _MAX_THREADS, max_per_caller: int = _MAX_PER_CALLER
    ) -> None:
        super().__init__(max_workers, "toolkiln-server")
        self._max_running = max_workers
        self._max_per_caller = max_per_caller
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._queues: dict[str, deque[_Work]] = {}
        """Queued work by caller, in the order of their turns."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Queue a function for the current caller."""
        future: Future[T] = Future()
        work = _Work(CALLER.get(), future, lambda: fn(*args, **kwargs))
        with self._lock:
            self._queues.setdefault(work.caller, deque()).append(work)
        self._start()
        return future

    def _start(self) -> None:
        """Start as much queued work as there are free threads."""
        while (work := self._next()) is not None:
            try:
                super().submit(self._run, work)
            except RuntimeError:  # the pool was shut down
                self._end(work.caller)
                work.future.cancel()
                work.future.set_running_or_notify_cancel()

    def _next(self) -> "_Work | None":
        with self._lock:
            if self._running.total() >= self._max_running:
                return None
            callers = (name for name in self._queues if self._running[name] < self._max_per_caller)
            if (caller := next(callers, None)) is None:
                return None
            self._running[caller] += 1
            queue = self._queues.pop(caller)
            work = queue.popleft()
            if queue:  # behind the other callers
                self._queues[caller] = queue
            return work

    def _run(self, work: "_Work") -> None:
        try:
            if work.future.set_running_or_notify_cancel():
                work.run()
        finally:
            self._end(work.caller)
            self._start()

    def _end(self, caller: str) -> None:
        with self._lock:
            self._running[caller] -= 1
            if not self._running[caller]:
                del self._running[caller]


class _Work:
    def __init__(self, caller: str, future: "Future[Any]", function: Callable[[], Any]) -> None:
        self.caller = caller
        self.future = future
        self._function = function

    def run(self) -> None:
        try:
            result = self._function()
        except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
            self.future.set_exception(error)
        else:
            self.future.set_result(result)
