"""`toolkiln serve`, for clients that cannot send a credential: they are the local agent.

The checks call tools and answer approvals as the agent over stdio does; anonymous callers may
do less, and that is not what is checked here.
"""

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send

from toolkiln.surfaces.cli.serve import print_urls
from toolkiln.surfaces.cli.session import open_kiln
from toolkiln.surfaces.cli.terminal import talk
from toolkiln.surfaces.http.server import HttpServer, open_listener, url_of


async def _serve() -> None:
    async with open_kiln(surface="http") as kiln:
        server = HttpServer(kiln, talk)
        shown = (b"authorization", b"Bearer " + server.authenticator.agent().encode())
        gate: Any = server.config.app

        async def as_agent(scope: Scope, receive: Receive, send: Send) -> None:
            if not any(name == b"authorization" for name, _ in scope["headers"]):
                scope = {**scope, "headers": [*scope["headers"], shown]}
            await gate(scope, receive, send)

        server.config.app = as_agent
        with open_listener("127.0.0.1", 0) as listener, server.handle_signals():
            print_urls(server, url_of(listener))
            await server.run_on(listener)


if __name__ == "__main__":
    asyncio.run(_serve())
