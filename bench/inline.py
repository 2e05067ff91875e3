"""An inline call through the whole gateway against the bare function, validated by pydantic.

The difference is what Toolkiln costs. Frameworks are measured the same way where they are
installed (`bench.peers`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import validate_call

from bench.timing import Figure
from toolkiln import Kiln
from toolkiln.config import Settings

_MOST = 20.0
"""Microseconds."""
ARGUMENTS: dict[str, Any] = {"amount": 12.5, "currency": "EUR", "times": 3}


async def price(amount: float, currency: str, times: int = 1) -> dict[str, Any]:
    """Work out a price.

    Args:
        amount: For one piece.
        currency: Its code.
        times: How many pieces.
    """
    return {"total": amount * times, "currency": currency}


def figures() -> Iterator[Figure]:
    """The processor time that a call costs beyond the function itself."""
    extra = asyncio.run(_extra())
    yield Figure(
        "inline call / validated function", f"+{extra:.1f} µs", f"≤ +{_MOST:g} µs", extra <= _MOST
    )


async def _extra() -> float:
    bare = validate_call(price)
    async with scratch() as kiln:
        result = await kiln.call("price", ARGUMENTS)
        assert result.value == {"total": 37.5, "currency": "EUR"}
        through, alone = await microseconds(
            lambda: kiln.call("price", ARGUMENTS), lambda: bare(**ARGUMENTS)
        )
    return through - alone


@asynccontextmanager
async def scratch() -> AsyncIterator[Kiln]:
    """A Kiln with the one function, whose audit nobody will read."""
    with TemporaryDirectory() as folder:
        async with Kiln(functions=[price], settings=Settings(state=Path(folder))) as kiln:
            yield kiln


async def microseconds(*works: Callable[[], Awaitable[object]], rounds: int = 200) -> list[float]:
    """The processor time of one call of each, at its best, taking turns."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            started = time.process_time()
            for _ in range(50):
                await work()
            best[index] = min(best[index], (time.process_time() - started) / 50 * 1e6)
    return best


if __name__ == "__main__":
    for figure in figures():
        print(*figure, sep="  ")
