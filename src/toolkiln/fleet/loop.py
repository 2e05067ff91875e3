"""The event loop that fleet processes run on: uvloop's where it is installed, else asyncio's."""

import asyncio


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop; for `asyncio.Runner(loop_factory=…)`."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
