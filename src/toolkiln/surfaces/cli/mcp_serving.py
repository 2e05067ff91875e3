"""What `toolkiln mcp` does: one client, which started this process, over stdin and stdout.

stdout belongs to the protocol; whatever else is said goes to stderr. The credentials come
from the environment, as the protocol wants it.
"""

import asyncio
import gc
import signal
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from toolkiln.app import Entrance, Kiln, find_credential
from toolkiln.surfaces.cli.opening import open_kiln, open_session, run_in_main_thread
from toolkiln.surfaces.tracing import Tracing, exporter, is_traced


def serve(tools: Path | None, redis: str | None = None, *, dev: bool) -> int:
    """Serve until the client goes or somebody ends this process."""
    opened = open_kiln(tools, redis, dev=dev, surface="mcp")
    with opened as kiln, suppress(asyncio.CancelledError):
        run_in_main_thread(kiln, _serve(kiln))
    return 0


async def _serve(kiln: Kiln) -> None:
    from toolkiln.surfaces.mcp.service import Service
    from toolkiln.surfaces.mcp.stdio import standard_streams

    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    credential = find_credential(kiln.settings.environ)
    entrance = Entrance(kiln.guarding, kiln.settings)
    if credential is not None:
        open_session(entrance, credential)  # a wrong one is refused before anything is served
    service = Service(kiln, entrance, credential and credential.text)
    # What a start has made stays: it need not be gone through again and again.
    gc.freeze()
    gc.enable()
    async with AsyncExitStack() as stack:
        if is_traced(kiln.settings):
            tracing = Tracing(exporter(kiln.settings))
            await stack.enter_async_context(tracing.watching(kiln))
        incoming, outgoing = await stack.enter_async_context(standard_streams())
        await stack.enter_async_context(service.running())
        options = service.server.create_initialization_options()
        await service.server.run(incoming, outgoing, options)
