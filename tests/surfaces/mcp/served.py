"""A real server on a free port, in the event loop of the test."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from toolkiln.config import Settings
from toolkiln.kiln import Kiln
from toolkiln.security.authentication import Authenticator
from toolkiln.surfaces.http.app import App
from toolkiln.surfaces.http.server import open_listener, url_of
from toolkiln.surfaces.mcp.endpoint import McpEndpoint

from .functions import FUNCTIONS

BOUND = 30.0
"""Seconds that anything may take before a test gives up."""


@dataclass(frozen=True)
class Served:
    """A Kiln behind `/mcp`."""

    kiln: Kiln
    url: str


@asynccontextmanager
async def serving(
    state: Path,
    functions: Iterable[Callable[..., Any]] = FUNCTIONS,
    *,
    tools: Path | None = None,
    is_local: bool = True,
    **settings: Any,
) -> AsyncIterator[Served]:
    """Serve as long as the block runs.

    With `is_local` a request without a credential is that of the local agent, as over stdio.
    """
    settled = Settings(state=state, **settings)
    async with Kiln(tools, functions=functions, settings=settled, dev=True, surface="mcp") as kiln:
        entrance = Authenticator(kiln.security, kiln.settings)
        endpoint = McpEndpoint(kiln, entrance)
        app = App(kiln, entrance, (), {"/mcp": endpoint})
        listener = open_listener("127.0.0.1", 0)
        config = uvicorn.Config(
            _as_agent(app, entrance.agent()) if is_local else app,
            lifespan="off", log_config=None, ws="none", timeout_graceful_shutdown=1,
        )  # fmt: skip
        server = uvicorn.Server(config)
        async with endpoint.running():
            running = asyncio.create_task(server.serve([listener]))
            while not server.started:
                await asyncio.sleep(0.01)
            try:
                yield Served(kiln, f"{url_of(listener)}/mcp")
            finally:
                server.should_exit = True
                await running
                listener.close()


def _as_agent(app: ASGIApp, session: str) -> ASGIApp:
    """An application whose requests without a credential have that of a session."""
    shown = (b"authorization", b"Bearer " + session.encode())

    async def shown_or_given(scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["headers"]
        if not any(name == b"authorization" for name, _ in headers):
            scope = {**scope, "headers": [*headers, shown]}
        await app(scope, receive, send)

    return shown_or_given
