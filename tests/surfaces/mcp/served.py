"""A real server on a free port, in the event loop of the test."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from toolkiln.app import Entrance, Kiln
from toolkiln.config import Settings
from toolkiln.surfaces.http.app import App
from toolkiln.surfaces.http.server import listening, url_of
from toolkiln.surfaces.mcp.endpoint import Endpoint

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
    """Serve as long as the block runs."""
    settled = Settings(state=state, **settings)
    async with Kiln(tools, functions=functions, settings=settled, dev=True, surface="mcp") as kiln:
        entrance = Entrance(kiln.guarding, is_local=is_local)
        endpoint = Endpoint(kiln, entrance)
        listener = listening("127.0.0.1", 0)
        config = uvicorn.Config(
            App(kiln, entrance, (), {"/mcp": endpoint}),
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
