"""A fleet for those who look after it; what they see and do is `fleet.operating`'s business."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolkiln.app.supervising import opened
from toolkiln.fleet import Operator, Pipe, read_address


@asynccontextmanager
async def operating(url: str) -> AsyncIterator[Operator]:
    """The fleet at a Redis URL.

    Raises:
        StoreError: it cannot be reached.
    """
    async with opened(Pipe(read_address(url))) as pipe:
        yield Operator(pipe)
