"""Endpoints outside `/v1`: health, readiness, metrics, OpenAPI, `/docs`; the health server."""

import asyncio
import json
import logging
import re
import socket
import time
from base64 import b64encode
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from toolkiln.errors import ToolkilnError
from toolkiln.kiln import Kiln
from toolkiln.security.authentication import Authenticator
from toolkiln.surfaces.http.adapter import Route, caller_key, session_of
from toolkiln.surfaces.http.app import App
from toolkiln.surfaces.http.metrics import Metrics
from toolkiln.surfaces.http.middleware import (
    AccessPolicy,
    RequestLimits,
    RequestLimitsMiddleware,
)
from toolkiln.surfaces.http.openapi import JSON, describe
from toolkiln.surfaces.http.responses import HttpProblem


@cache
def docs_page() -> Response:
    """Return the page at `/docs`."""
    text = (files(__package__) / "page.html").read_text("utf-8")
    policy = [
        "default-src 'none'",
        f"script-src {_hash(text, 'script')}",
        f"style-src {_hash(text, 'style')}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    headers = {
        "content-security-policy": "; ".join(policy),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
    return Response(text, headers=headers, media_type="text/html")


def _hash(text: str, element: str) -> str:
    match = re.search(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
    assert match is not None
    return f"'sha256-{b64encode(sha256(match[1].encode()).digest()).decode()}'"


_CHECK_INTERVAL_SECONDS = 1.0
_CHECK_TIMEOUT_SECONDS = 10.0
_NO_STORE = {"cache-control": "no-store"}
Checks = Mapping[str, Callable[[], Awaitable[object]]]


class Readiness:
    """Checks of the components that calls need."""

    def __init__(self, kiln: Kiln, checks: Checks | None = None) -> None:
        """`checks` are further checks by name; they raise ToolkilnError."""
        self._checks: Checks = {
            "catalog": lambda: asyncio.to_thread(lambda: kiln.services.registry.specs),
            "store": lambda: asyncio.to_thread(kiln.security.keys.list),
            **kiln.engine.checks,
            **(checks or {}),
        }
        self._lock = asyncio.Lock()
        self._states: dict[str, str] = {}
        self._checked_at = 0.0
        self.is_draining = False

    async def check(self) -> dict[str, str]:
        """Return the state of each component: `ok` or an error code."""
        async with self._lock:
            age = time.monotonic() - self._checked_at
            if not self._checked_at or age > _CHECK_INTERVAL_SECONDS:
                states = await asyncio.gather(*(_state(run()) for run in self._checks.values()))
                self._states = dict(zip(self._checks, states, strict=True))
                self._checked_at = time.monotonic()
        return {**self._states, "server": "draining" if self.is_draining else "ok"}


async def _state(check: Awaitable[object]) -> str:
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_SECONDS):
            await check
    except ToolkilnError as error:
        return error.code
    except TimeoutError:
        return "no_answer"
    return "ok"


class SystemEndpoints:
    """The ASGI application for endpoints outside `/v1`."""

    def __init__(
        self,
        routes: Sequence[Route],
        authenticator: Authenticator,
        readiness: Readiness,
        metrics: Metrics,
    ) -> None:
        is_optional = authenticator.authentication.may_allow_anonymous
        description = describe(routes, version=version("toolkiln"), is_local=is_optional)
        self._description = json.dumps(description, ensure_ascii=False).encode()
        self._authenticator = authenticator
        self._readiness = readiness
        self._metrics = metrics
        self._endpoints: Mapping[str, Callable[[Scope], Awaitable[Response]]] = {
            "/healthz": self._health,
            "/readyz": self._ready,
            "/metrics": self._prometheus,
            "/openapi.json": self._openapi,
            "/docs": self._docs,
        }

    @property
    def paths(self) -> Iterable[str]:
        """The paths to mount it at."""
        return self._endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request.

        Raises:
            HttpProblem, ToolkilnError: the request failed.
        """
        endpoint = self._endpoints.get(scope["path"])
        if endpoint is None:
            raise HttpProblem("not_found", "there is nothing at this path")
        if scope["method"] not in ("GET", "HEAD"):
            raise HttpProblem(
                "method_not_allowed",
                f"{scope['method'][:20]} is not allowed for this path",
                headers={"allow": "GET, HEAD"},
            )
        response = await endpoint(scope)
        await response(scope, receive, send)

    async def _health(self, _: Scope) -> Response:
        return Response(b'{"status":"ok"}', headers=_NO_STORE, media_type=JSON)

    async def _ready(self, _: Scope) -> Response:
        states = await self._readiness.check()
        is_ready = set(states.values()) == {"ok"}
        content = json.dumps({"ready": is_ready, "checks": states})
        return Response(content, 200 if is_ready else 503, _NO_STORE, JSON)

    async def _prometheus(self, scope: Scope) -> Response:
        await session_of(self._authenticator, scope)
        media_type = "text/plain; version=0.0.4; charset=utf-8"
        return Response(self._metrics.text(), headers=_NO_STORE, media_type=media_type)

    async def _openapi(self, _: Scope) -> Response:
        return Response(self._description, headers={"cache-control": "no-cache"}, media_type=JSON)

    async def _docs(self, _: Scope) -> Response:
        return docs_page()


_HEALTH_PATHS = ("/healthz", "/readyz", "/metrics")
_MAX_REQUESTS = 20


class LimitedServer(uvicorn.Server):
    """A server behind the middleware. Its owner handles signals."""

    def __init__(
        self,
        kiln: Kiln,
        authenticator: Authenticator,
        app: ASGIApp,
        metrics: Metrics,
        max_requests: int,
        origins: Iterable[str] = (),
        **config: Any,
    ) -> None:
        """`config` are further options of uvicorn."""
        settings = kiln.settings
        self.app = RequestLimitsMiddleware(
            app,
            AccessPolicy(
                not authenticator.authentication.may_allow_anonymous,
                frozenset(host.lower() for host in settings.hosts),
                frozenset(origin.lower().rstrip("/") for origin in origins),
            ),
            RequestLimits(settings.body_bytes, max_requests, settings.request_seconds),
            metrics.count_request,
            lambda scope: caller_key(kiln, authenticator, scope),
        )
        metrics.watch_requests(lambda: self.app.active)
        super().__init__(
            uvicorn.Config(
                self.app,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level=logging.CRITICAL,  # the application logs what matters
                access_log=False,
                proxy_headers=False,
                server_header=False,
                **config,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing."""
        yield


class HealthServer(LimitedServer):
    """The server of a worker's health, readiness and metrics."""

    def __init__(self, kiln: Kiln, checks: Checks) -> None:
        """`checks` are further readiness checks by name; they raise ToolkilnError."""
        authenticator = Authenticator(kiln.security, kiln.settings)
        self.metrics = Metrics()
        self.readiness = Readiness(kiln, checks)
        self._kiln = kiln
        endpoints = SystemEndpoints((), authenticator, self.readiness, self.metrics)
        super().__init__(
            kiln,
            authenticator,
            App(kiln, authenticator, (), dict.fromkeys(_HEALTH_PATHS, endpoints)),
            self.metrics,
            _MAX_REQUESTS,
            limit_concurrency=_MAX_REQUESTS,
            timeout_graceful_shutdown=1,
        )

    @asynccontextmanager
    async def running(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve while the block runs."""
        unsubscribe = self.metrics.watch(self._kiln)
        serving = asyncio.create_task(self.serve([listener]))
        try:
            yield
        finally:
            self.should_exit = True
            await serving
            unsubscribe()
