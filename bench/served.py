"""The servers that `bench.serve` compares, each with the one function of `bench.inline`.

Run as `python -m bench.served SERVER WHERE`: one of `toolkiln`, `fastmcp` and `sdk`, over `stdio`
or over HTTP on the listening socket whose descriptor is given. All of them log nothing.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from bench.inline import price, scratch


def _toolkiln(listener: socket.socket | None) -> None:
    asyncio.run(_toolkiln_on(listener))


async def _toolkiln_on(listener: socket.socket | None) -> None:
    async with scratch() as kiln:
        if listener is not None:
            from toolkiln.surfaces.http.server import HttpServer

            await HttpServer(kiln, lambda _: None).run_on(listener)
            return
        from toolkiln.security.authentication import Authenticator
        from toolkiln.surfaces.mcp.server import McpServer
        from toolkiln.surfaces.mcp.stdio import stdio_streams

        service = McpServer(kiln, Authenticator(kiln.security, kiln.settings))
        async with stdio_streams() as (incoming, outgoing), service.running():
            options = service.server.create_initialization_options()
            await service.server.run(incoming, outgoing, options)


def _fastmcp(listener: socket.socket | None) -> None:
    server: Any = import_module("fastmcp").FastMCP("bench")
    server.tool(price)
    if listener is None:
        server.run(transport="stdio", show_banner=False, log_level="CRITICAL")
    else:
        _uvicorn(server.http_app(), listener)


def _sdk(listener: socket.socket | None) -> None:
    from mcp.server.mcpserver import MCPServer

    server: Any = MCPServer("bench", log_level="CRITICAL")
    server.tool()(price)
    if listener is None:
        server.run(transport="stdio")
    else:
        _uvicorn(server.streamable_http_app(), listener)


def _uvicorn(app: Any, listener: socket.socket) -> None:
    """As those servers start it, but without a log."""
    import uvicorn

    config = uvicorn.Config(app, log_config=None, log_level=logging.CRITICAL, access_log=False)
    asyncio.run(uvicorn.Server(config).serve([listener]))


SERVERS: dict[str, Callable[[socket.socket | None], None]] = {
    "toolkiln": _toolkiln,
    "fastmcp": _fastmcp,
    "sdk": _sdk,
}


if __name__ == "__main__":
    logging.disable()
    name, where = sys.argv[1:]
    SERVERS[name](None if where == "stdio" else socket.socket(fileno=int(where)))
