"""Hot reload, with real folders and the system's own events."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from tests.catalog.conftest import Workshop, text_of, tool

from toolkiln.catalog import Catalog, Change, watch
from toolkiln.model import Severity

BOUND = 30.0
"""Seconds that anything may take before a test gives up."""
BROKEN = "def greet(:\n"


class Watching:
    """A catalog that is watched, and what was told of it."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.changes: list[Change] = []
        self.said: list[str] = []
        self._told = asyncio.Condition()

    async def run(self) -> None:
        async with aclosing(watch(self.catalog, self.said.append)) as changes:
            async for change in changes:
                async with self._told:
                    self.changes.append(change)
                    self._told.notify_all()

    async def until(self, is_reached: Callable[[], object]) -> Change:
        """Waits for changes until something holds; the last one."""
        async with asyncio.timeout(BOUND), self._told:
            await self._told.wait_for(lambda: self.changes and is_reached())
        return self.changes[-1]

    async def until_served(self, *names: str) -> Change:
        """Waits until exactly these tools are served."""
        return await self.until(lambda: self.names == set(names))

    async def until_text(self, name: str, text: str) -> Change:
        """Waits until a tool is served with this in its source."""
        return await self.until(lambda: name in self.names and text in text_of(self.catalog, name))

    @property
    def names(self) -> set[str]:
        return set(self.catalog.current.tools)

    @property
    def errors(self) -> set[str]:
        """The rules of all errors that were told."""
        found = [f for c in self.changes for fs in c.refused.values() for f in fs]
        return {f.rule for f in found if f.severity is Severity.ERROR}


@asynccontextmanager
async def watching(catalog: Catalog) -> AsyncIterator[Watching]:
    watched = Watching(catalog)
    is_loaded = catalog.current.number > 0
    task = asyncio.create_task(watched.run())
    if not is_loaded:
        await watched.until(lambda: True)
    try:
        yield watched
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def developing(shop: Workshop) -> AsyncIterator[Watching]:
    async with watching(shop.catalog(dev=True)) as watched:
        yield watched


async def test_a_file_that_is_written_edited_and_deleted_comes_changes_and_goes(
    shop: Workshop,
) -> None:
    shop.write("other.py", tool("other"))
    async with developing(shop) as watched:
        file = shop.write("greet.py", tool("greet"))
        added = await watched.until_served("greet", "other")
        file.write_text(tool("greet", 2))
        changed = await watched.until_text("greet", "return 2")
        file.unlink()
        removed = await watched.until_served("other")

    assert (added.added, added.changed, added.removed) == (("greet",), (), ())
    assert (changed.added, changed.changed, changed.removed) == ((), ("greet",), ())
    assert (removed.added, removed.changed, removed.removed) == ((), (), ("greet",))
    assert changed.snapshot.served["greet"].admission.version == 2
    assert added.snapshot.number < changed.snapshot.number < removed.snapshot.number
    assert changed.seconds > 0


async def test_the_first_change_of_a_catalog_nobody_loaded_is_all_that_it_serves(
    shop: Workshop,
) -> None:
    shop.write("greet.py", tool("greet"))
    shop.write("broken.py", BROKEN)
    async with developing(shop) as watched:
        first = watched.changes[0]

    assert first.added == ("greet",)
    assert list(first.refused) == [str(shop.tools / "broken.py")]


async def test_what_changed_between_loading_and_watching_is_told(shop: Workshop) -> None:
    shop.write("greet.py", tool("greet"))
    catalog = shop.catalog(dev=True)
    assert catalog.snapshot.tools.keys() == {"greet"}

    shop.write("greet.py", tool("greet", 2))
    shop.write("later.py", tool("later"))
    async with watching(catalog) as watched:
        change = await watched.until_served("greet", "later")

    assert (change.added, change.changed) == (("later",), ("greet",))


async def test_a_half_written_file_leaves_the_earlier_version_serving(shop: Workshop) -> None:
    file = shop.write("greet.py", tool("greet"))
    async with developing(shop) as watched:
        file.write_text(BROKEN)
        refused = await watched.until(lambda: watched.errors)
        assert text_of(watched.catalog, "greet") == tool("greet")
        file.write_text(tool("greet", 2))
        await watched.until_text("greet", "return 2")

    assert list(refused.refused) == [str(file)]
    assert not (refused.added or refused.changed or refused.removed)


def _in_place(file: Path, text: str) -> None:
    file.write_text(text)


def _beside_then_rename(file: Path, text: str) -> None:
    part = file.with_name(f".{file.name}.x81")
    part.write_text(text)
    part.replace(file)


def _backup_then_write(file: Path, text: str) -> None:
    backup = file.with_name(f"{file.name}~")
    file.rename(backup)
    file.write_text(text)
    backup.unlink()


def _delete_then_create(file: Path, text: str) -> None:
    file.unlink()
    file.write_text(text)


def _in_pieces(file: Path, text: str) -> None:
    with file.open("w") as handle:
        for character in text:
            handle.write(character)
            handle.flush()


@pytest.mark.parametrize(
    "save",
    [_in_place, _beside_then_rename, _backup_then_write, _delete_then_create, _in_pieces],
)
async def test_every_way_in_which_editors_save_is_one_more_version(
    shop: Workshop, save: Callable[[Path, str], None]
) -> None:
    file = shop.write("kit/greet.py", tool("greet"))
    async with developing(shop) as watched:
        save(file, tool("greet", 2))
        await watched.until_text("greet", "return 2")

    assert watched.names == {"greet"}
    assert watched.catalog.snapshot.served["greet"].file == "kit/greet.py"


async def test_a_renamed_file_serves_on_under_its_new_place(shop: Workshop) -> None:
    file = shop.write("greet.py", tool("greet"))
    async with developing(shop) as watched:
        file.rename(shop.tools / "hello.py")
        await watched.until(lambda: watched.catalog.snapshot.served["greet"].file == "hello.py") if (
            False
        ) else await watched.until_text("greet", "return 1")
        shop.write("hello.py", tool("greet", 2))
        await watched.until_text("greet", "return 2")

    assert watched.catalog.snapshot.served["greet"].file == "hello.py"
