"""Hot reload, with real folders and the system's own events."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Set
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from toolkiln.catalog.admission import Admissions
from toolkiln.catalog.catalog import Catalog
from toolkiln.catalog.manifest import MANIFEST, ManifestError
from toolkiln.catalog.watch import watch
from toolkiln.config import Settings
from toolkiln.errors import InputError
from toolkiln.kiln import Kiln
from toolkiln.model.admission import AdmissionDecision
from toolkiln.model.catalog import CatalogChange
from toolkiln.model.source import Severity

from .conftest import Start, Workshop, text_of, tool

BOUND = 30.0
"""Seconds that anything may take before a test gives up."""
BROKEN = "def greet(:\n"


class Watching:
    """A catalog that is watched, and the changes it reports."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.changes: list[CatalogChange] = []
        self.messages: list[str] = []
        self._changed = asyncio.Condition()

    async def run(self) -> None:
        async with aclosing(watch(self.catalog, self.messages.append)) as changes:
            async for change in changes:
                async with self._changed:
                    self.changes.append(change)
                    self._changed.notify_all()

    async def until(self, is_reached: Callable[[], object]) -> CatalogChange:
        """Waits for changes until something holds; the last one."""
        async with asyncio.timeout(BOUND), self._changed:
            await self._changed.wait_for(lambda: self.changes and is_reached())
        return self.changes[-1]

    async def until_served(self, *names: str) -> CatalogChange:
        """Waits until exactly these tools are served."""
        return await self.until(lambda: self.names == set(names))

    async def until_text(self, name: str, text: str) -> CatalogChange:
        """Waits until a tool is served with this in its source."""
        return await self.until(lambda: name in self.names and text in text_of(self.catalog, name))

    @property
    def names(self) -> set[str]:
        return set(self.catalog.current.tools)

    @property
    def errors(self) -> set[str]:
        """The rules of all errors in the changes."""
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
    assert changed.snapshot.served["greet"].dev
    assert added.snapshot.number < changed.snapshot.number < removed.snapshot.number
    assert changed.seconds > 0


async def test_the_first_change_of_a_catalog_is_all_that_it_serves(shop: Workshop) -> None:
    shop.write("greet.py", tool("greet"))
    shop.write("broken.py", BROKEN)
    async with developing(shop) as watched:
        first = watched.changes[0]

    assert first.added == ("greet",)
    assert list(first.refused) == [str(shop.tools / "broken.py")]


async def test_the_first_change_comes_also_where_no_file_declares_a_tool(shop: Workshop) -> None:
    shop.write("notes.py", "x = 1\n")
    async with developing(shop) as watched:
        first = watched.changes[0]

    assert (first.added, first.refused, first.error) == ((), {}, None)


async def test_what_changed_between_loading_and_watching_is_changed(shop: Workshop) -> None:
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
    assert (refused.added, refused.changed, refused.removed) == ((), (), ())


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


async def test_renamed_files_and_folders_serve_on_and_are_watched_on(shop: Workshop) -> None:
    file = shop.write("kit/deep/hello.py", tool("greet"))
    async with developing(shop) as watched:
        file.rename(file.with_name("greet.py"))
        renamed = await watched.until(lambda: len(watched.changes) == 2)
        (shop.tools / "kit").rename(shop.tools / "box")
        served = watched.catalog
        await watched.until(lambda: served.current.served["greet"].file == "box/deep/greet.py")
        shop.write("box/deep/greet.py", tool("greet", 2))
        await watched.until_text("greet", "return 2")
        (shop.tools / "box").rename(shop.tools.parent / "elsewhere")
        await watched.until_served()

    assert renamed.changed == ("greet",)
    assert renamed.snapshot.served["greet"].file == "kit/deep/greet.py"


async def test_a_folder_that_appears_is_served_with_all_that_comes_into_it(shop: Workshop) -> None:
    shop.write("other.py", tool("other"))
    prepared = shop.tools.parent / "prepared"
    (prepared / "deep").mkdir(parents=True)
    (prepared / "deep" / "first.py").write_text(tool("first"))
    async with developing(shop) as watched:
        prepared.rename(shop.tools / "kit")
        await watched.until_served("other", "first")
        shop.write("kit/deep/deeper/second.py", tool("second"))
        await watched.until_served("other", "first", "second")
        shop.write("kit/deep/deeper/second.py", tool("second", 2))
        await watched.until_text("second", "return 2")


async def test_folders_made_file_by_file_lose_none(shop: Workshop) -> None:
    shop.write("other.py", tool("other"))
    async with developing(shop) as watched:
        for index in range(60):
            shop.write(f"a{index % 7}/b{index % 5}/c{index}/t{index}.py", tool(f"t{index}"))
        await watched.until_served("other", *(f"t{index}" for index in range(60)))


async def test_links_are_followed_to_files_but_not_to_folders(shop: Workshop) -> None:
    shop.write("kit/greet.py", tool("greet"))
    outside = shop.tools.parent / "outside"
    outside.mkdir()
    for name in ("far", "linked"):
        (outside / f"{name}.py").write_text(tool(name))
    (shop.tools / "kit" / "up").symlink_to(shop.tools)
    (shop.tools / "self").symlink_to("self")
    async with developing(shop) as watched:
        (shop.tools / "parent").symlink_to(shop.tools.parent)
        (shop.tools / "kit" / "beside").symlink_to(outside)
        (shop.tools / "nowhere.py").symlink_to("missing.py")
        (shop.tools / "circle.py").symlink_to("circle.py")
        (outside / "further.py").write_text(tool("further"))
        shop.write("last.py", tool("last"))
        await watched.until_served("greet", "last")
        link = shop.tools / "linked.py"
        link.symlink_to(outside / "linked.py")
        await watched.until_served("greet", "last", "linked")
        link.unlink()
        await watched.until_served("greet", "last")

    added = [change.added for change in watched.changes]
    assert added == [("greet",), ("last",), ("linked",), ()]


async def test_a_tools_folder_that_goes_is_served_again_when_it_returns(shop: Workshop) -> None:
    shop.write("kit/greet.py", tool("greet"))
    async with developing(shop) as watched:
        shop.tools.rename(shop.tools.parent / "away")
        gone = await watched.until(lambda: watched.changes[-1].error)
        (shop.tools.parent / "away").rename(shop.tools)
        await watched.until_served("greet")
        shop.write("kit/greet.py", tool("greet", 2))
        await watched.until_text("greet", "return 2")

    assert gone.snapshot.tools == {}
    assert "there is no file or folder" in str(gone.error)


async def test_a_tools_folder_that_is_a_link_follows_where_the_link_leads(shop: Workshop) -> None:
    first, second = shop.tools.parent / "first", shop.tools.parent / "second"
    for number, folder in enumerate((first, second)):
        folder.mkdir()
        (folder / "greet.py").write_text(tool("greet", number))
    link = shop.tools.parent / "link"
    link.symlink_to(first)
    async with watching(shop.catalog(link, dev=True)) as watched:
        swapped = link.with_name("swapped")
        swapped.symlink_to(second)
        swapped.replace(link)
        await watched.until_text("greet", "return 1")
        (second / "greet.py").write_text(tool("greet", 2))
        await watched.until_text("greet", "return 2")


async def test_a_tools_folder_may_be_named_from_where_we_are(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.tools.parent)
    shop.write("greet.py", tool("greet"))
    async with watching(shop.catalog(Path("tools"), dev=True)) as watched:
        shop.write("kit/late.py", tool("late"))
        change = await watched.until_served("greet", "late")

    assert change.snapshot.tools["late"].path == "tools/kit/late.py"


@pytest.mark.parametrize("is_there", [True, False], ids=["empty", "missing"])
async def test_a_folder_without_tools_waits_for_the_first(shop: Workshop, is_there: bool) -> None:
    if not is_there:
        shop.tools.rmdir()
    async with developing(shop) as watched:
        assert isinstance(watched.changes[0].error, InputError)
        shop.write("kit/greet.py", tool("greet"))
        change = await watched.until_served("greet")

    assert change.error is None


async def test_permissions_that_go_and_return_never_stop_a_tool(shop: Workshop) -> None:
    file = shop.write("kit/greet.py", tool("greet"))
    async with developing(shop) as watched:
        file.chmod(0)
        file.parent.chmod(0)
        shop.write("last.py", tool("last"))
        await watched.until_served("greet", "last")
        file.parent.chmod(0o755)
        file.chmod(0o644)
        file.write_text(tool("greet", 2))
        await watched.until_text("greet", "return 2")


async def test_thousands_of_events_at_once_lose_none(shop: Workshop) -> None:
    shop.write("other.py", tool("other"))
    names = [f"t{index}" for index in range(1200)]
    async with developing(shop) as watched:
        for index, name in enumerate(names):
            shop.write(f"kit{index % 20}/{name}.py", tool(name))
        await watched.until_served("other", *names)
        for index, name in enumerate(names[:-1]):
            (shop.tools / f"kit{index % 20}" / f"{name}.py").unlink()
        await watched.until_served("other", names[-1])


async def test_events_that_the_system_dropped_are_made_up_for(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["toolkiln.catalog.watch"]
    wait = module._Notification.wait
    monkeypatch.setattr(module, "_MANY", 3)
    monkeypatch.setattr(module._Notification, "wait", lambda *args: set(sorted(wait(*args))[:3]))
    shop.write("other.py", tool("other"))
    names = [f"t{index}" for index in range(20)]
    async with developing(shop) as watched:
        for name in names:
            shop.write(f"{name}.py", tool(name))
        await watched.until_served("other", *names)


async def test_one_edit_among_many_files_reads_one_file_and_walks_no_folder(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(50):
        shop.write(f"kit{index % 5}/t{index}.py", tool(f"t{index}"))
    disk = sys.modules["toolkiln.catalog.folder"]
    read: list[Path] = []
    read_version = disk.read_version

    def recorded(file: Path, packages: Set[str]) -> object:
        read.append(file)
        return read_version(file, packages)

    async with developing(shop) as watched:
        monkeypatch.setattr(disk, "read_version", recorded)
        monkeypatch.setattr(os, "walk", lambda *_: pytest.fail("it walked"))
        file = shop.write("kit0/t0.py", tool("t0", 2))
        await watched.until_text("t0", "return 2")
        monkeypatch.undo()

    assert set(read) == {file}


USER = 'from lib import word\n\n\ndef greet() -> str:\n    """Greet."""\n    return word()\n'
HELPER = 'def word() -> str:\n    """Say."""\n    return {!r}\n'


def helper_of(catalog: Catalog, name: str = "lib.py") -> str:
    """The text of a helper as calls would see it."""
    served = catalog.current.served.get("greet")
    return served.sources.get(name, b"").decode() if served else ""


async def test_a_helper_that_goes_leaves_its_users_serving_until_it_returns(
    shop: Workshop,
) -> None:
    shop.write("greet.py", USER)
    helper = shop.write("lib.py", HELPER.format("one"))
    async with developing(shop) as watched:
        helper.rename(helper.with_suffix(".bak"))
        shop.write("last.py", tool("last"))
        await watched.until_served("greet", "last")
        helper.write_text(HELPER.format("two"))
        await watched.until(lambda: "two" in helper_of(watched.catalog))

    assert watched.names == {"greet", "last"}


@pytest.mark.parametrize("form", ["module", "package", "namespace", "existing folder"])
async def test_a_helper_that_appears_and_changes_makes_versions_of_its_users_and_no_tool(
    shop: Workshop, form: str
) -> None:
    source = USER.replace("from lib", "from lib.part") if form != "module" else USER
    shop.write("greet.py", source)
    if form == "existing folder":
        (shop.tools / "lib").mkdir()
    async with developing(shop) as watched:
        name = "lib.py" if form == "module" else "lib/part.py"
        if form == "package":
            shop.write("lib/__init__.py", "")
        shop.write(name, HELPER.format("one"))
        await watched.until(lambda: "one" in helper_of(watched.catalog, name))
        shop.write(name, HELPER.format("two"))
        change = await watched.until(lambda: "two" in helper_of(watched.catalog, name))

    assert change.changed == ("greet",)
    assert watched.names == {"greet"}


async def test_helpers_in_a_private_folder_are_watched_also_when_it_moves(shop: Workshop) -> None:
    shop.write("greet.py", USER.replace("from lib", "from _own.part"))
    shop.write("_own/part.py", HELPER.format("one"))
    shop.write("_next/part.py", HELPER.format("three"))
    async with developing(shop) as watched:
        shop.write("_own/part.py", HELPER.format("two"))
        await watched.until(lambda: "two" in helper_of(watched.catalog, "_own/part.py"))
        (shop.tools / "_own").rename(shop.tools / "_old")
        (shop.tools / "_next").rename(shop.tools / "_own")
        await watched.until(lambda: "three" in helper_of(watched.catalog, "_own/part.py"))


async def test_a_helper_that_no_file_imports_is_a_tool_file_until_one_does(shop: Workshop) -> None:
    shop.write("greet.py", USER)
    shop.write("lib.py", HELPER.format("one"))
    async with developing(shop) as watched:
        shop.write("greet.py", tool("greet"))
        await watched.until_served("greet", "word")
        shop.write("greet.py", USER)
        await watched.until_served("greet")


async def test_what_cannot_be_a_tool_is_not_changed(shop: Workshop) -> None:
    shop.write("greet.py", tool("greet"))
    async with developing(shop) as watched:
        shop.write("__pycache__/greet.cpython-311.pyc", "x")
        shop.write(".greet.py.swp", "x")
        shop.write(".#greet.py", BROKEN)
        shop.write("4913", "")
        shop.write("notes.md", "x")
        shop.write("test_greet.py", BROKEN)
        shop.write("tests/greet.py", BROKEN)
        shop.write("_private.py", BROKEN)
        shop.write("greet.py", tool("greet"))
        shop.write("last.py", tool("last"))
        await watched.until_served("greet", "last")

    assert [(change.added, change.refused) for change in watched.changes] == [
        (("greet",), {}),
        (("last",), {}),
    ]


async def test_a_name_that_is_no_text_does_not_end_the_watching(shop: Workshop) -> None:
    shop.write("greet.py", tool("greet"))
    async with developing(shop) as watched:
        Path(os.fsdecode(os.fsencode(shop.tools) + b"/\xff.txt")).touch()
        shop.write("greet.py", tool("greet", 2))
        await watched.until_text("greet", "return 2")
        shop.write("greet.py", tool("greet", 3))
        await watched.until_text("greet", "return 3")


async def test_two_files_with_one_name_are_reported_once(shop: Workshop) -> None:
    shop.write("greet.py", tool("greet"))
    async with developing(shop) as watched:
        second = shop.write("second.py", tool("greet", 2))
        change = await watched.until(lambda: watched.errors)
        shop.write("last.py", tool("last"))
        await watched.until_served("greet", "last")

    assert list(change.refused) == [str(second)]
    assert watched.errors == {"duplicate-name"}
    assert len(watched.changes) == 3


async def test_a_catalog_of_one_file_sees_that_file_and_its_helpers(shop: Workshop) -> None:
    file = shop.write("greet.py", USER.replace("from lib", "from own.part"))
    shop.write("own/part.py", HELPER.format("one"))
    shop.write("unread.py", tool("unread"))
    async with watching(shop.catalog(file, dev=True)) as watched:
        shop.write("unread.py", tool("unread", 2))
        shop.write("own/part.py", HELPER.format("two"))
        await watched.until(lambda: "two" in helper_of(watched.catalog, "own/part.py"))
        file.write_text(tool("greet", 2))
        await watched.until_text("greet", "return 2")

    assert watched.names == {"greet"}


async def test_only_what_another_process_or_this_one_admits_is_served(
    shop: Workshop, start_python: Start
) -> None:
    shop.add("greet.py")
    async with watching(shop.catalog()) as watched:
        shop.write("greet.py", tool("greet", 2))
        shop.write("late.py", tool("late"))
        admit = """
            import sys
            from pathlib import Path
            from toolkiln.catalog.admission import Admissions
            from toolkiln.catalog.catalog import Catalog
            from toolkiln.model.admission import AdmissionDecision
            from toolkiln.store.store import open_store
            store = open_store(Path(sys.argv[2]))
            admissions = Admissions(Catalog(Path(sys.argv[1]), lambda: store.archive))
            admissions.admit([admissions.candidate("late.py")], AdmissionDecision("bob"))
        """
        start_python(admit, shop.tools, shop.state / "store.db")
        late = await watched.until_served("greet", "late")
        shop.write("own.py", tool("own"))
        admissions = Admissions(watched.catalog)
        admissions.admit([admissions.candidate("own.py")], AdmissionDecision("ann"))
        own = await watched.until(lambda: len(watched.changes) == 3)

    assert (late.added, own.added) == (("late",), ("own",))
    assert text_of(watched.catalog, "greet") == tool("greet")


async def test_a_manifest_that_was_tampered_with_serves_nothing_until_it_is_mended(
    shop: Workshop,
) -> None:
    shop.add("greet.py")
    manifest = shop.tools / MANIFEST
    good = manifest.read_bytes()
    async with watching(shop.catalog()) as watched:
        manifest.write_bytes(good.replace(b'"ann"', b'"eve"'))
        bad = await watched.until(lambda: watched.changes[-1].error)
        shop.write("greet.py", tool("greet", 2))
        manifest.write_bytes(good)
        await watched.until_served("greet")

    assert isinstance(bad.error, ManifestError)
    assert (bad.removed, bad.snapshot.tools) == (("greet",), {})


async def test_a_manifest_that_goes_serves_nothing(shop: Workshop) -> None:
    shop.add("greet.py")
    async with watching(shop.catalog()) as watched:
        (shop.tools / MANIFEST).unlink()
        await watched.until(lambda: watched.changes[-1].error)

    assert watched.names == set()


async def test_in_dev_an_admission_elsewhere_is_a_change_of_the_tool(shop: Workshop) -> None:
    shop.write("greet.py", tool("greet"))
    async with developing(shop) as watched:
        shop.admit("greet.py")
        change = await watched.until(lambda: not watched.catalog.current.served["greet"].dev)

    assert (change.added, change.changed, change.removed) == ((), ("greet",), ())


def test_a_version_that_dev_serves_outlives_a_decision_about_another_file(shop: Workshop) -> None:
    shop.write("greet.py", tool("greet"))
    shop.write("other.py", tool("other"))
    shop.admit("greet.py")
    catalog = shop.catalog(dev=True)
    assert catalog.snapshot.tools.keys() == {"greet", "other"}

    file = shop.write("greet.py", tool("greet", 2))
    catalog.refresh([file])
    file.write_text(BROKEN)
    shop.admit("other.py")
    catalog.refresh([file, shop.tools / MANIFEST])

    assert text_of(catalog, "greet") == tool("greet", 2)
    assert catalog.manifest.files["other.py"].admitted_by == "ann"


def test_a_manifest_of_our_own_is_not_parsed_again(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write("greet.py", tool("greet"))
    catalog = shop.catalog()
    admissions = Admissions(catalog)
    admissions.admit([admissions.candidate("greet.py")], AdmissionDecision("ann"))
    manifest = sys.modules["toolkiln.catalog.manifest"]
    monkeypatch.setattr(manifest, "decode", lambda *_: pytest.fail("it was parsed"))

    catalog.refresh([shop.tools / MANIFEST])

    assert text_of(catalog, "greet") == tool("greet")


async def test_where_the_system_cannot_watch_folders_are_polled(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("OS file watch limit reached.")

    monkeypatch.setattr("watchfiles._rust_notify.RustNotify", refuse)
    monkeypatch.setattr(sys.modules["toolkiln.catalog.watch"], "_POLL", 0.05)
    file = shop.write("greet.py", tool("greet"))
    async with developing(shop) as watched:
        file.write_text(tool("greet", 2))
        await watched.until_text("greet", "return 2")
        shop.write("kit/deep/late.py", tool("late"))
        await watched.until_served("greet", "late")
        shop.write("kit/deep/late.py", tool("late", 2))
        await watched.until_text("late", "return 2")
        file.unlink()
        await watched.until_served("late")

    assert len(watched.messages) == 1
    assert "limit reached" in watched.messages[0]


async def test_a_kiln_is_watched_and_offers_what_was_saved(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "greet.py").write_text(tool("greet"))
    kiln = Kiln(tools, settings=Settings(state=tmp_path / "state"), dev=True)
    async with kiln, aclosing(kiln.services.watch(print)) as changes:
        first = await anext(changes)
        (tools / "greet.py").write_text(tool("greet", doc="Greet again."))
        second = await anext(changes)

        assert (first.added, second.changed) == (("greet",), ("greet",))
        assert kiln.services.registry.specs["greet"].description == "Greet again."


def test_functions_of_a_process_are_not_watched() -> None:
    with pytest.raises(InputError, match="no folder"):
        Kiln(functions=[tool]).services.watch(print)
