"""One watcher, many listeners: who hears of what, and who waits for whom."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from operations.conftest import FIRST, NAME, SECOND, Forge, write
from tables import each_row
from toolkiln import config
from toolkiln.catalog.watch import Changes
from toolkiln.errors import InputError
from toolkiln.kiln import Kiln
from toolkiln.model.catalog import CatalogChange, Snapshot

SOON = 30.0


class Ears:
    """A listener that can be waited for."""

    def __init__(self) -> None:
        self.heard: list[CatalogChange] = []
        self._came = asyncio.Event()

    def __call__(self, change: CatalogChange) -> None:
        self.heard.append(change)
        self._came.set()

    async def until(self, fits: Callable[[CatalogChange], bool]) -> CatalogChange:
        async with asyncio.timeout(SOON):
            while True:
                for change in self.heard:
                    if fits(change):
                        return change
                self._came.clear()
                await self._came.wait()


def change(number: int, tools: str = "", **names: tuple[str, ...]) -> CatalogChange:
    """What became of a catalog that has tools of one letter each."""
    return CatalogChange(Snapshot(number, dict.fromkeys(tools)), **names)  # type: ignore[arg-type]


class Source:
    """Something to watch that a test decides about."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[CatalogChange | Exception] = asyncio.Queue()
        self.begun = 0
        self.ended = 0

    async def watch(self) -> AsyncGenerator[CatalogChange, None]:
        self.begun += 1
        try:
            while True:
                item = await self.queue.get()
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.ended += 1


def listened(source: Source, *listeners: Callable[[CatalogChange], None]) -> Changes:
    """Changes of a source that these listen to."""
    changes = Changes(source.watch)
    for listener in listeners:
        changes.listen(listener)
    return changes


def of_number(number: int) -> Callable[[CatalogChange], bool]:
    return lambda change: change.snapshot.number == number


async def test_all_listeners_hear_of_a_change_from_one_watcher() -> None:
    source, many = Source(), [Ears() for _ in range(50)]
    changes = listened(source, *many)

    async with changes.running():
        changes.start()
        source.queue.put_nowait(change(1, added=("a",)))
        for ears in many:
            await ears.until(lambda heard: heard.added == ("a",))

    assert (source.begun, source.ended) == (1, 1)


async def test_a_listener_that_was_ended_hears_nothing_more() -> None:
    source, gone, stays = Source(), Ears(), Ears()
    changes = Changes(source.watch)
    forget = changes.listen(gone)
    changes.listen(stays)

    async with changes.running():
        forget()
        forget()
        source.queue.put_nowait(change(1))
        await stays.until(lambda _: True)

    assert gone.heard == []


async def test_a_listener_that_fails_keeps_nothing_from_the_others() -> None:
    def fail(_: CatalogChange) -> None:
        raise RuntimeError("a listener's fault")

    source, ears = Source(), Ears()
    changes = listened(source, fail, ears)

    async with changes.running():
        source.queue.put_nowait(change(1))
        source.queue.put_nowait(change(2))
        await ears.until(of_number(2))

    assert len(ears.heard) == 2


@each_row(
    "missed, rest",
    [
        (
            [
                change(2, "abc", added=("c",), changed=("a",)),
                change(3, "ac", removed=("b",), changed=("c",)),
                change(4, "a", removed=("c",)),
            ],
            change(4, "a", changed=("a",), removed=("b",)),
        ),
        (
            [change(2, "b", removed=("a",)), change(3, "ab", added=("a",))],
            change(3, "ab", changed=("a",)),
        ),
    ],
)
async def test_a_slow_taker_gets_what_it_missed_as_one_and_holds_up_no_listener(
    missed: list[CatalogChange], rest: CatalogChange
) -> None:
    source, ears = Source(), Ears()
    changes = listened(source, ears)

    async with changes.running(), aclosing(changes.stream()) as slow:
        first = asyncio.ensure_future(anext(slow))
        await asyncio.sleep(0)
        source.queue.put_nowait(change(1, "ab", added=("a", "b")))
        taken = await asyncio.wait_for(first, SOON)
        for each in missed:
            source.queue.put_nowait(each)
        await ears.until(of_number(missed[-1].snapshot.number))
        found = await asyncio.wait_for(anext(slow), SOON)

    assert taken.snapshot.number == 1
    assert found == rest


async def test_watching_that_failed_or_ended_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkiln.catalog.watch._PAUSE", 0.0)
    source, ears = Source(), Ears()
    changes = listened(source, ears)

    async with changes.running():
        source.queue.put_nowait(OSError("the folder went"))
        source.queue.put_nowait(change(7))
        await ears.until(of_number(7))
    async with changes.running():
        source.queue.put_nowait(change(8))
        await ears.until(of_number(8))

    assert (source.begun, source.ended) == (3, 3)


async def test_without_files_there_is_nothing_to_watch() -> None:
    def watch() -> AsyncGenerator[CatalogChange, None]:
        raise InputError("functions only")

    changes = Changes(watch)

    async with changes.running():
        await asyncio.sleep(0)

    await changes.stop()


async def test_what_this_process_and_another_decide_is_heard(forge: Forge) -> None:
    forge.put("nothing.py", "")
    kiln, other, ears = forge.kiln(), forge.kiln(), Ears()
    kiln.services.changes.listen(ears)

    async with kiln.services.changes.running():
        await write(kiln, FIRST)
        await ears.until(lambda heard: NAME in heard.added)
        await write(other, SECOND, overwrite=True)
        await ears.until(lambda heard: NAME in heard.changed)
        await asyncio.to_thread(other.services.admissions.switch, NAME, False, "ann")
        await ears.until(lambda heard: NAME in heard.removed)


async def test_rules_that_change_are_a_change_without_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.catalog.watch._PAUSE", 0.05)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "convert.py").write_text(FIRST)
    file, ears = tmp_path / "toolkiln.toml", Ears()
    file.write_text('policy = "allow"\ndev = true\n')

    async with Kiln(tmp_path / "tools", settings=config.load(tmp_path, {})) as kiln:
        kiln.services.changes.listen(ears)
        kiln.services.changes.start()
        seen = await ears.until(lambda heard: NAME in heard.added)
        file.write_text('policy = "deny"\ndev = true\n')
        later = await ears.until(lambda heard: not heard.added)

        assert later == CatalogChange(seen.snapshot)
        assert kiln.specs() == {}
