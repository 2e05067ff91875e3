"""`toolkiln serve`, for clients that cannot send a credential: they are the local agent.

The checks call tools and answer approvals as the agent over stdio does; anonymous callers may
do less, and that is not what is checked here.
"""

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send

from toolkiln.surfaces.cli.opening import open_kiln
from toolkiln.surfaces.cli.serving import tell_urls
from toolkiln.surfaces.cli.terminal import talk
from toolkiln.surfaces.http.server import Server, listening, url_of


async def _serve() -> None:
    async with open_kiln(surface="http") as kiln:
        server = Server(kiln, talk)
        shown = (b"authorization", b"Bearer " + server.entrance.agent().encode())
        gate: Any = server.config.app

        async def as_agent(scope: Scope, receive: Receive, send: Send) -> None:
            if not any(name == b"authorization" for name, _ in scope["headers"]):
                scope = {**scope, "headers": [*scope["headers"], shown]}
            await gate(scope, receive, send)

        server.config.app = as_agent
        with listening("127.0.0.1", 0) as listener, server.heeding_signals():
            tell_urls(server, url_of(listener))
            await server.run_on(listener)


if __name__ == "__main__":
    asyncio.run(_serve())
