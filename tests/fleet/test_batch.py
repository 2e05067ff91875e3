"""One question for many."""

import asyncio
from collections.abc import Sequence

import pytest

from toolkiln.fleet.connection import Batch, BatchDone


class Asked:
    """Keeps questions until the test answers them."""

    def __init__(self) -> None:
        self.batch: Batch[int, str] = Batch(self._ask, size=3)
        self.questions: list[tuple[list[int], BatchDone[str]]] = []

    def _ask(self, items: Sequence[int], done: BatchDone[str]) -> None:
        self.questions.append((list(items), done))

    async def add(self, *items: int) -> "list[asyncio.Task[str]]":
        tasks = [asyncio.create_task(self.batch.add(item)) for item in items]
        for _ in range(2):
            await asyncio.sleep(0)
        return tasks

    @property
    def items(self) -> list[list[int]]:
        return [items for items, _ in self.questions]

    def answer(self, number: int) -> None:
        items, done = self.questions[number]
        done([str(item) for item in items])


async def test_what_is_asked_in_one_turn_is_one_question() -> None:
    asked = Asked()

    tasks = await asked.add(1, 2)
    asked.answer(0)

    assert asked.items == [[1, 2]]
    assert await asyncio.gather(*tasks) == ["1", "2"]


async def test_what_comes_meanwhile_is_the_next_question() -> None:
    asked = Asked()

    tasks = [*await asked.add(1), *await asked.add(2), *await asked.add(3)]
    before = list(asked.items)
    asked.answer(0)
    asked.answer(1)

    assert before == [[1]]
    assert asked.items == [[1], [2, 3]]
    assert await asyncio.gather(*tasks) == ["1", "2", "3"]
    assert len(await asked.add(4)) == 1
    assert asked.items[-1] == [4]


async def test_a_portion_waits_for_no_answer() -> None:
    asked = Asked()

    tasks = [*await asked.add(1), *await asked.add(2, 3, 4, 5)]
    before = list(asked.items)
    asked.answer(0)
    while_one_is_open = list(asked.items)
    asked.answer(1)
    asked.answer(2)

    assert before == while_one_is_open == [[1], [2, 3, 4]]
    assert asked.items == [[1], [2, 3, 4], [5]]
    assert await asyncio.gather(*tasks) == ["1", "2", "3", "4", "5"]


async def test_the_last_of_a_turn_is_asked_for_at_once_with_those_before_it() -> None:
    asked, answers = Asked(), list[str | Exception]()

    asked.batch.put(1, answers.append)
    asked.batch.put(2, answers.append, last=True)
    at_once = list(asked.items)
    asked.batch.put(3, answers.append, last=True)
    while_open = list(asked.items)
    asked.answer(0)
    asked.answer(1)

    assert at_once == while_open == [[1, 2]]
    assert asked.items == [[1, 2], [3]]
    assert answers == ["1", "2", "3"]


async def test_a_failure_is_for_those_who_asked_and_nobody_waits_behind_it() -> None:
    asked = Asked()

    first = await asked.add(1)
    rest = await asked.add(2, 3, 4, 5)
    asked.questions[0][1](ValueError("gone"))
    after = list(asked.items)
    asked.answer(2)
    asked.answer(1)

    with pytest.raises(ValueError, match="gone"):
        await first[0]
    assert after == [[1], [2, 3, 4], [5]]
    assert await asyncio.gather(*rest) == ["2", "3", "4", "5"]
    await asked.add(6)
    assert asked.items[-1] == [6]


async def test_whoever_gives_up_does_not_disturb_the_others() -> None:
    asked = Asked()

    one, two = await asked.add(1, 2)
    one.cancel()
    await asyncio.sleep(0)
    asked.answer(0)

    assert await two == "2"
    assert one.cancelled()
