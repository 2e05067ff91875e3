"""Gathers what is asked in one turn of the loop, so that it can be asked for all at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batch(Generic[Item, Answer]):
    """One question for many, each of whom gets its own answer."""

    def __init__(
        self, ask: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], most: int = 128
    ) -> None:
        self._ask = ask
        self._most = most
        self._items: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._asking: set[asyncio.Task[None]] = set()

    async def add(self, item: Item) -> Answer:
        """The answer to one item; it raises what the question raised."""
        loop = asyncio.get_running_loop()
        if not self._items:
            loop.call_soon(self._flush)
        answer: asyncio.Future[Answer] = loop.create_future()
        self._items.append((item, answer))
        return await answer

    def _flush(self) -> None:
        items, self._items = self._items, []
        for start in range(0, len(items), self._most):
            task = asyncio.ensure_future(self._run(items[start : start + self._most]))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _run(self, items: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._ask([item for item, _ in items])
        except BaseException as error:  # noqa: BLE001 - each of those who wait gets it
            for _, waiting in items:
                if not waiting.done():
                    waiting.set_exception(error)
            return
        for (_, waiting), answer in zip(items, answers, strict=True):
            if not waiting.done():
                waiting.set_result(answer)
