"""Gathers what is asked in one turn of the loop, so that it can be asked for all at once."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Answered = Callable[[Sequence[Answer] | Exception], None]
"""Called once, with an answer to each item, or with what went wrong."""
Done = Callable[[Answer | Exception], None]
"""Called once, with the answer to one item, or with what went wrong. It must not raise."""


class Batch(Generic[Item, Answer]):
    """One question for many, each of whom gets its own answer.

    What comes while a question is open is asked for together after it: the more there is to
    do, the more is done at once, and a single item never waits. A portion of them does not
    wait either, so that whoever answers is at work while more come.
    """

    def __init__(
        self, ask: Callable[[Sequence[Item], Answered[Answer]], None], portion: int = 32
    ) -> None:
        """`ask` gets up to so many items and calls back: a task would cost a turn of the loop."""
        self._ask = ask
        self._portion = portion
        self._items: list[tuple[Item, Done[Answer]]] = []
        self._open = 0

    async def add(self, item: Item) -> Answer:
        """The answer to one item; it raises what the question came to."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.put(item, partial(_settle, answer))
        return await answer

    def put(self, item: Item, done: "Done[Answer]", *, last: bool = False) -> None:
        """As `add`, for those who wait for no task: `done` gets the answer, or the exception.

        `last`: no other is expected in this turn of the loop, so there is nothing to wait for.
        """
        self._items.append((item, done))
        if len(self._items) == self._portion or (last and not self._open):
            self._ask_next()
        elif len(self._items) == 1 and not self._open:
            asyncio.get_running_loop().call_soon(self._ask_next)

    def _ask_next(self) -> None:
        items, self._items = self._items[: self._portion], self._items[self._portion :]
        if not items:
            return
        self._open += 1

        def answered(answers: Sequence[Answer] | Exception) -> None:
            self._open -= 1
            if isinstance(answers, Exception):
                for _, done in items:
                    done(answers)
                # Where each question waits for a server that is away, none waits for another.
                while self._items:
                    self._ask_next()
                return
            for (_, done), answer in zip(items, answers, strict=True):
                done(answer)
            if not self._open:
                self._ask_next()

        self._ask([item for item, _ in items], answered)


def _settle(waiting: "asyncio.Future[Answer]", answer: Answer | Exception) -> None:
    # Whoever asked may have been cancelled; the answer comes all the same.
    if waiting.done():
        return
    if isinstance(answer, Exception):
        waiting.set_exception(answer)
    else:
        waiting.set_result(answer)
