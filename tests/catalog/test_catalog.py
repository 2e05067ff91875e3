"""What is served from a folder: admitted versions and no others, whatever is on disk."""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from toolkiln.catalog.admission import Admissions
from toolkiln.catalog.catalog import Catalog
from toolkiln.catalog.manifest import MANIFEST, ManifestError
from toolkiln.errors import InputError
from toolkiln.model.admission import AdmissionDecision
from toolkiln.model.catalog import FileState

from .conftest import SOON, Workshop, states, text_of, tool


def edit(catalog: Catalog, path: Path, source: str) -> None:
    path.write_text(source)
    catalog.refresh([path])


def test_only_admitted_files_are_served(shop: Workshop) -> None:
    shop.write("a.py", tool("a"))
    shop.write("b.py", tool("b"))
    shop.admit("a.py")

    catalog = shop.catalog()

    assert list(catalog.snapshot.tools) == ["a"]
    assert states(catalog) == {"a.py": FileState.ADMITTED, "b.py": FileState.NEW}


@pytest.mark.parametrize(
    ("file", "change"),
    [
        *(("a.py", text) for text in (tool("a", 2), tool("renamed"), "def a(:\n", "", "x = 1\n")),
        ("_shared.py", "VALUE = 2\n"),
    ],
)
def test_changed_file_is_served_in_its_admitted_version(
    shop: Workshop, file: str, change: str
) -> None:
    shop.write("_shared.py", "VALUE = 1\n")
    shop.add("a.py", "import _shared\n" + tool("a"))
    path = shop.tools / file
    before = path.read_text()
    running = shop.catalog()
    first = running.snapshot

    edit(running, path, change)

    for catalog in (running, shop.catalog()):
        assert list(catalog.snapshot.tools) == ["a"]
        assert catalog.snapshot.tools == first.tools
        assert catalog.snapshot.served["a"].sources == first.served["a"].sources
        assert states(catalog) == {"a.py": FileState.CHANGED}

    edit(running, path, before)

    assert states(running) == {"a.py": FileState.ADMITTED}


def test_deleted_file_is_not_served_until_it_is_back(shop: Workshop) -> None:
    path = shop.add("a.py")
    shop.add("b.py")
    running = shop.catalog()
    before = running.snapshot

    path.unlink()
    running.refresh([path])

    assert list(running.snapshot.tools) == ["b"]
    assert shop.served() == {"b": "b.py"}
    assert states(running)["a.py"] is FileState.MISSING
    assert set(before.tools) == {"a", "b"}

    edit(running, path, tool("a"))
    back = set(running.snapshot.tools)
    for file in ("a.py", "b.py"):
        (shop.tools / file).unlink()

    assert back == {"a", "b"}
    assert shop.served() == {}
    assert set(shop.states().values()) == {FileState.MISSING}


@pytest.mark.parametrize("store", [None, b"rubbish" * 999, b""], ids=["gone", "rubbish", "empty"])
def test_version_that_is_not_kept_is_a_finding_and_others_are_served(
    shop: Workshop, store: bytes | None
) -> None:
    path = shop.add("a.py")
    shop.add("b.py")
    shop.close()
    shutil.rmtree(shop.state)
    if store is not None:
        shop.state.mkdir()
        (shop.state / "store.db").write_bytes(store)
    path.write_text(tool("a", 2))

    catalog = shop.catalog()

    (finding,) = catalog.snapshot.findings
    assert list(catalog.snapshot.tools) == ["b"]
    assert (finding.rule, finding.path) == ("version-not-kept", str(path))
    assert "toolkiln admit" in finding.fix

    edit(catalog, path, tool("a"))

    assert set(catalog.snapshot.tools) == {"a", "b"}
    assert catalog.snapshot.findings == ()


def test_running_catalog_needs_no_store_for_what_it_serves(shop: Workshop) -> None:
    path = shop.add("a.py")
    running = shop.catalog()
    assert running.snapshot.tools
    shop.close()
    shutil.rmtree(shop.state)

    edit(running, path, tool("a", 2))

    assert text_of(running, "a") == tool("a")
    assert running.snapshot.findings == ()


def test_files_of_any_name_are_admitted_changed_and_rolled_back(shop: Workshop) -> None:
    names = ["with space.py", "größe.py", "雪.py", "a\nb.py", "quo'te\".py", "n" * 252 + ".py",
             "\N{SNOWMAN}" * 84 + ".py", "-x.py", "a;rm -rf.py", "%41.py",
             "sub dir/deep/ü.py"]  # fmt: skip
    files = {f"t{number}": name for number, name in enumerate(names)}
    for value in (1, 2):
        for tool_name, file in files.items():
            shop.write(file, tool(tool_name, value))
        shop.admit(*names)
    admissions = shop.admissions()

    for tool_name in files:
        admissions.rollback(tool_name, "1", AdmissionDecision("ann"))

    catalog = shop.catalog()
    assert shop.served() == files
    for tool_name, file in files.items():
        assert (shop.tools / file).read_text() == text_of(catalog, tool_name) == tool(tool_name)


@pytest.mark.parametrize("dev", [False, True])
def test_file_whose_name_is_no_text_hinders_no_other(shop: Workshop, dev: bool) -> None:
    shop.add("a.py")
    Path(os.fsdecode(os.fsencode(shop.tools) + b"/b\xff.py")).write_text(tool("b"))

    catalog = shop.catalog(dev=dev)

    assert list(catalog.snapshot.tools) == ["a"]
    assert [status.model_dump_json() for status in catalog.statuses()]


def test_one_file_is_a_catalog(shop: Workshop) -> None:
    path = shop.add("a.py")
    shop.add("b.py")

    catalog = shop.catalog(path)

    assert list(catalog.snapshot.tools) == ["a"]
    assert states(catalog) == {"a.py": FileState.ADMITTED}

    shop.write("b.py", tool("b", 2))
    catalog.refresh([shop.tools / "b.py"])
    catalog.refresh([shop.tools / MANIFEST])

    assert list(catalog.snapshot.tools) == ["a"]
    assert shop.served() == {"a": "a.py", "b": "b.py"}


def test_one_private_file_by_its_name_is_a_catalog(shop: Workshop) -> None:
    path = shop.write("_a.py", tool("a"))
    shop.admit("_a.py", place=path)
    catalog = shop.catalog(path)
    served = set(catalog.snapshot.tools)

    edit(catalog, path, tool("a", 2))

    assert served == set(catalog.snapshot.tools) == {"a"}


@pytest.mark.parametrize("dev", [False, True])
def test_missing_place_is_bad_input(shop: Workshop, dev: bool) -> None:
    with pytest.raises(InputError, match="there is no file or folder"):
        _ = shop.catalog(shop.tools / "none", dev=dev).snapshot


def test_place_may_be_spelled_in_any_way(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shop.add("a.py")
    path.write_text(tool("a", 2))
    link = shop.tools.with_name("link")
    link.symlink_to(shop.tools)
    monkeypatch.chdir(shop.tools.parent)
    places = [shop.tools, Path("tools"), Path("./tools/"), Path("tools/../tools"), link,
              Path("tools/a.py"), link / "a.py"]  # fmt: skip

    for place in places:
        catalog = shop.catalog(place)

        assert text_of(catalog, "a") == tool("a")
        assert states(catalog) == {"a.py": FileState.CHANGED}
        assert catalog.folder.key(path) == "a.py"
        assert catalog.folder.key(Path("tools/a.py")) == "a.py"
        assert catalog.folder.key(link / "a.py") == "a.py"

    monkeypatch.chdir(shop.tools)
    for place in (Path(), Path("a.py")):
        assert text_of(shop.catalog(place), "a") == tool("a")


def test_folder_that_was_moved_is_the_same_catalog(shop: Workshop) -> None:
    path = shop.add("a.py")
    path.write_text(tool("a", 2))

    shop.tools = shop.tools.rename(shop.tools.with_name("moved"))

    catalog = shop.catalog()
    assert text_of(catalog, "a") == tool("a")
    assert catalog.snapshot.tools["a"].path == str(shop.tools / "a.py")
    assert len(Admissions(catalog).history("a")) == 1


def test_linked_file_is_a_file_of_the_folder(shop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(tool("a"))
    (shop.tools / "a.py").symlink_to(tmp_path / "elsewhere.py")

    shop.admit(shop.catalog().folder.key(shop.tools / "a.py"))

    assert shop.served() == {"a": "a.py"}


def test_file_outside_the_folder_is_none_of_it(shop: Workshop, tmp_path: Path) -> None:
    outside = [tmp_path / "x.py", shop.tools / "../x.py", Path("/"), tmp_path / "toolsx/a.py"]

    for path in outside:
        with pytest.raises(InputError, match="is not in the tools folder"):
            shop.catalog().folder.key(path)


def test_readers_never_see_an_empty_catalog_while_it_changes(shop: Workshop) -> None:
    shop.add("a.py")
    catalog = shop.catalog()
    assert catalog.snapshot.tools
    is_over = threading.Event()

    def watch() -> set[bool]:
        seen = set()
        while not is_over.is_set():
            seen.add("a" in catalog.snapshot.tools)
        return seen

    with ThreadPoolExecutor(1) as pool:
        watched = pool.submit(watch)
        try:
            for value in range(20):
                path = shop.write("a.py", tool("a", value))
                catalog.refresh([path] if value % 2 else None)
        finally:
            is_over.set()
        assert watched.result(SOON) == {True}


def test_no_reader_gets_an_empty_snapshot_while_the_first_one_is_made(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("a.py")
    catalog = shop.catalog()
    real = catalog._snapshots.publish
    seen: list[list[str]] = []
    other = threading.Thread(target=lambda: seen.append(list(catalog.snapshot.tools)))

    def slow(*arguments: Any) -> None:
        other.start()
        other.join(0.2)  # it has to wait for us
        real(*arguments)

    monkeypatch.setattr(catalog._snapshots, "publish", slow)
    first = list(catalog.snapshot.tools)
    other.join(SOON)

    assert first == ["a"]
    assert seen == [["a"]]


class TestDev:
    """With `dev` what is on disk is served without an admission."""

    def test_readable_files_are_served_and_nothing_is_written(self, shop: Workshop) -> None:
        path = shop.write("a.py", tool("a"))
        shop.write("broken.py", "def b(:\n")
        shop.state.write_text("no folder, so no store")
        catalog = shop.catalog(dev=True)
        first = catalog.snapshot

        edit(catalog, path, tool("b"))

        assert list(first.tools) == ["a"]
        served = first.served["a"]
        assert (served.dev, served.version, served.admission) == (True, None, None)
        assert list(catalog.snapshot.tools) == ["b"]
        assert (first.findings, catalog.snapshot.findings) == ((), ())
        assert sorted(file.name for file in shop.tools.iterdir()) == ["a.py", "broken.py"]
        with pytest.raises(ManifestError):
            shop.served()

    def test_an_unchanged_admitted_file_is_served_as_admitted(self, shop: Workshop) -> None:
        path = shop.add("a.py")
        catalog = shop.catalog(dev=True)
        found = []

        for value in (1, 2, 1):
            edit(catalog, path, tool("a", value))
            served = catalog.snapshot.served["a"]
            found.append((served.dev, served.version))

        assert found == [(False, 1), (True, None), (False, 1)]

    @pytest.mark.parametrize("broken", ["def a(:\n", "", "x = 1\n"])
    def test_earlier_version_serves_on_while_the_file_is_broken(
        self, shop: Workshop, broken: str
    ) -> None:
        path = shop.add("a.py")
        catalog = shop.catalog(dev=True)
        edit(catalog, path, tool("a", 2))

        edit(catalog, path, broken)

        assert text_of(catalog, "a") == tool("a", 2)
        for one in (shop.catalog(dev=True), shop.catalog()):
            assert text_of(one, "a") == tool("a")

        edit(catalog, path, tool("a", 3))

        assert text_of(catalog, "a") == tool("a", 3)

    def test_an_earlier_version_that_is_rejected_serves_no_longer(self, shop: Workshop) -> None:
        path = shop.write("a.py", tool("a"))
        catalog = shop.catalog(dev=True)
        assert catalog.snapshot.tools
        reviewed = shop.admissions().candidate("a.py")
        edit(catalog, path, "def a(:\n")
        assert text_of(catalog, "a") == tool("a")

        shop.admissions().reject("a.py", "ann", reviewed=reviewed)
        catalog.refresh([shop.tools / MANIFEST])

        assert dict(catalog.snapshot.tools) == {}

    def test_permissions_that_were_granted_hold_for_that_version(self, shop: Workshop) -> None:
        path = shop.write("a.py", ASKING)
        unadmitted = shop.catalog(dev=True).snapshot.served["fetch"].grants
        shop.admit("a.py", grant=True)
        catalog = shop.catalog(dev=True)

        granted = catalog.snapshot.served["fetch"].grants
        edit(catalog, path, ASKING + "\n")

        assert unadmitted == {}
        assert granted["fetch"].network == ("example.org",)
        assert catalog.snapshot.served["fetch"].grants == {}

    def test_rejected_and_proposed_versions_are_not_served(self, shop: Workshop) -> None:
        path = shop.write("no.py", tool("no"))
        catalog = shop.catalog(dev=True)
        assert catalog.snapshot.tools
        shop.write("later.py", tool("later"))

        Admissions(catalog).reject("no.py", "ann")
        shop.propose("later.py")
        catalog.refresh()

        for one in (catalog, shop.catalog(dev=True)):
            assert dict(one.snapshot.tools) == {}
            assert states(one) == {"no.py": FileState.REJECTED, "later.py": FileState.PROPOSED}

        edit(catalog, path, tool("no", 2))

        assert list(catalog.snapshot.tools) == ["no"]

    @pytest.mark.parametrize("is_changed", [True, False])
    def test_admission_made_meanwhile_holds(self, shop: Workshop, is_changed: bool) -> None:
        path = shop.add("a.py")
        catalog = shop.catalog(dev=True)
        assert catalog.snapshot.tools
        edit(catalog, path, ASKING)
        assert catalog.snapshot.served["fetch"].dev

        path.write_text(ASKING + "#\n" * is_changed)
        shop.admit("a.py", grant=True)
        catalog.refresh([path, shop.tools / MANIFEST])

        for one in (catalog, shop.catalog()):
            served = one.snapshot.served["fetch"]
            assert (served.dev, served.version) == (False, 2)
            assert served.grants["fetch"].network == ("example.org",)

    @pytest.mark.parametrize("existed", [True, False])
    def test_proposal_made_meanwhile_holds(self, shop: Workshop, existed: bool) -> None:
        shop.write("b.py", tool("b"))
        path = shop.write("a.py", tool("a"))
        shop.admit("b.py", *(["a.py"] if existed else []))
        path.unlink(missing_ok=not existed)
        catalog = shop.catalog(dev=True)
        assert "b" in catalog.snapshot.tools

        path.write_text(tool("a", 2))
        shop.propose("a.py")
        catalog.refresh([path, shop.tools / MANIFEST])

        for one in (catalog, shop.catalog(), shop.catalog(dev=True)):
            assert states(one)["a.py"] is FileState.PROPOSED
            assert set(one.snapshot.tools) == ({"a", "b"} if existed else {"b"})
            assert not existed or text_of(one, "a") == tool("a")

    def test_a_proposal_over_an_unadmitted_file_leaves_what_dev_served(
        self, shop: Workshop
    ) -> None:
        path = shop.write("a.py", tool("a"))
        catalog = shop.catalog(dev=True)
        assert catalog.snapshot.tools
        path.write_text(tool("a", 2))
        shop.propose("a.py")

        catalog.refresh([path, shop.tools / MANIFEST])

        assert text_of(catalog, "a") == tool("a")
        assert dict(shop.catalog(dev=True).snapshot.tools) == {}

    @pytest.mark.parametrize("is_there", [True, False], ids=["empty", "missing"])
    def test_a_folder_without_files_has_no_proposals(self, shop: Workshop, is_there: bool) -> None:
        if not is_there:
            shop.tools.rmdir()
        for dev in (False, True):
            assert shop.catalog(dev=dev).proposals() == {}

    def test_a_proposal_for_an_empty_folder_waits(self, shop: Workshop) -> None:
        path = shop.write("a.py", tool("a"))
        shop.propose("a.py")
        path.unlink()

        for dev in (False, True):
            assert list(shop.catalog(dev=dev).proposals()) == ["a.py"]
            assert shop.states(dev=dev) == {"a.py": FileState.PROPOSED}

    def test_file_with_an_error_is_not_served(self, shop: Workshop) -> None:
        shop.write("a.py", tool("a"))
        path = shop.write("b.py", tool("b", doc="Answer \\ud800."))
        catalog = shop.catalog(dev=True)

        assert list(catalog.snapshot.tools) == ["a"]
        assert states(catalog)["b.py"] is FileState.NEW

        edit(catalog, path, tool("b"))

        assert list(catalog.snapshot.tools) == ["a", "b"]

    def test_a_manifest_that_is_deleted_leaves_everything_unadmitted(self, shop: Workshop) -> None:
        shop.add("a.py")
        catalog = shop.catalog(dev=True)
        assert not catalog.snapshot.served["a"].dev
        (shop.tools / MANIFEST).unlink()
        catalog.refresh([shop.tools / MANIFEST])

        edit(catalog, shop.tools / "b.py", tool("b"))

        assert {name: s.dev for name, s in catalog.snapshot.served.items()} == {
            "a": True,
            "b": True,
        }
        assert not (shop.tools / MANIFEST).exists()

    def test_a_decision_in_dev_is_about_one_file_and_no_other(self, shop: Workshop) -> None:
        shop.write("a.py", tool("a"))
        shop.write("b.py", tool("b"))
        catalog = shop.catalog(dev=True)
        assert set(catalog.snapshot.tools) == {"a", "b"}
        admissions = Admissions(catalog)

        admissions.admit([admissions.candidate("a.py")], AdmissionDecision("ann"))

        dev = {name: served.dev for name, served in catalog.snapshot.served.items()}
        assert dev == {"a": False, "b": True}
        assert shop.served() == {"a": "a.py"}

    def test_of_two_files_with_one_name_the_admitted_one_keeps_it(self, shop: Workshop) -> None:
        shop.add("b.py", tool("a", 2))
        shop.write("a.py", tool("a"))

        snapshot = shop.catalog(dev=True).snapshot

        assert (snapshot.served["a"].file, snapshot.served["a"].dev) == ("b.py", False)
        assert [finding.rule for finding in snapshot.findings] == ["duplicate-name"]

    def test_file_that_only_helps_is_no_tool_however_it_changes(self, shop: Workshop) -> None:
        shop.write("a.py", "import shared\n" + tool("a"))
        path = shop.write("shared.py", tool("helper"))
        catalog = shop.catalog(dev=True)
        before = set(catalog.snapshot.tools)

        edit(catalog, path, tool("helper", 2))

        assert before == set(catalog.snapshot.tools) == {"a"}

    def test_rolling_back_to_the_admitted_version_undoes_the_change_on_disk(
        self, shop: Workshop
    ) -> None:
        path = shop.add("a.py")
        path.write_text(tool("a", 2))
        catalog = shop.catalog(dev=True)

        Admissions(catalog).rollback("a", "1", AdmissionDecision("ann"))

        assert path.read_text() == tool("a")
        assert not catalog.snapshot.served["a"].dev


ASKING = '''
from toolkiln import tool

@tool(network=["example.org"])
def fetch() -> str:
    """Fetch."""
    return ""
'''


@pytest.fixture
def read_only(shop: Workshop) -> Iterator[Workshop]:
    """A folder that this process may not change."""
    shop.write("a.py", tool("a"))
    folder = str(shop.tools)
    if os.geteuid() != 0:
        shop.tools.chmod(0o500)
        yield shop
        shop.tools.chmod(0o700)
        return
    for options in (["--bind", folder], ["-o", "remount,ro,bind"]):
        if subprocess.run(["mount", *options, folder], capture_output=True).returncode:
            pytest.skip("no mounts here")
    yield shop
    subprocess.run(["umount", folder], check=True)


def test_folder_that_cannot_be_changed_is_served_in_dev(read_only: Workshop) -> None:
    catalog = read_only.catalog(dev=True)

    snapshot = catalog.snapshot

    assert (list(snapshot.tools), snapshot.findings) == (["a"], ())
    assert sorted(path.name for path in read_only.tools.iterdir()) == ["a.py"]
    catalog.refresh([read_only.tools / MANIFEST])
    catalog.refresh()
    assert list(catalog.snapshot.tools) == ["a"]
