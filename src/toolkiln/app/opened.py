"""What is opened with `with` or `async with`, in programs with an event loop or without.

A program without one gets a loop of its own, with the first thing that needs it: reading
and listing tools does not.
"""

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Opened(ABC):
    """Something that has to be closed."""

    _runner: "asyncio.Runner | None" = None

    @abstractmethod
    async def close(self) -> None:
        """End everything that was started."""

    @abstractmethod
    def let_go(self) -> None:
        """Close what needs no event loop for that."""

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something to its end, in a program without an event loop."""
        if self._runner is None:
            from asyncio import Runner

            self._runner = Runner()
        return self._runner.run(work)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._runner is not None:
            self._runner.run(self.close())
            self._runner.close()
            self._runner = None
        self.let_go()
