"""Gathers what is asked in one turn of the loop, so that it can be asked for all at once."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Answered = Callable[[Sequence[Answer] | Exception], None]
"""Called once, with an answer to each item, or with what went wrong."""


class Batch(Generic[Item, Answer]):
    """One question for many, each of whom gets its own answer."""

    def __init__(
        self, ask: Callable[[Sequence[Item], Answered[Answer]], None], most: int = 128
    ) -> None:
        """`ask` gets up to so many items and calls back: a task would cost a turn of the loop."""
        self._ask = ask
        self._most = most
        self._items: list[tuple[Item, asyncio.Future[Answer]]] = []

    async def add(self, item: Item) -> Answer:
        """The answer to one item; it raises what the question came to."""
        loop = asyncio.get_running_loop()
        if not self._items:
            loop.call_soon(self._flush)
        answer: asyncio.Future[Answer] = loop.create_future()
        self._items.append((item, answer))
        return await answer

    def _flush(self) -> None:
        items, self._items = self._items, []
        for start in range(0, len(items), self._most):
            self._ask_for(items[start : start + self._most])

    def _ask_for(self, items: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        def answered(answers: Sequence[Answer] | Exception) -> None:
            if isinstance(answers, Exception):
                for _, waiting in items:
                    if not waiting.done():
                        waiting.set_exception(answers)
                return
            for (_, waiting), answer in zip(items, answers, strict=True):
                # Whoever asked may have been cancelled; the answer comes all the same.
                if not waiting.done():
                    waiting.set_result(answer)

        self._ask([item for item, _ in items], answered)
