"""Taking tools out of a catalog: what may go, what is never lost, death at every step."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from toolkiln.catalog.admission import Admissions
from toolkiln.errors import EditConflict, InputError, RemovesOtherTools, StaleVersion, UnknownTool
from toolkiln.model.admission import AdmissionDecision

from .conftest import Workshop, tool
from .test_transaction import killed

# Python 3.12 warns of forks beside threads; the children do nothing that could wait for one.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


class TestWhatGoes:
    def test_file_and_manifest_entry_go_together(self, shop: Workshop) -> None:
        shop.add("one.py")
        shop.add("two.py")

        gone = shop.admissions().remove("one", "ann")

        assert (gone.file, gone.read.names) == ("one.py", ("one",))
        assert shop.served() == {"two": "two.py"}
        assert not (shop.tools / "one.py").exists()
        assert shop.leftovers() == []

    def test_the_last_tool_goes_and_rollback_brings_it_back_as_it_was(self, shop: Workshop) -> None:
        file = shop.add("deep/one.py")
        before = file.read_bytes()
        known = shop.admissions()

        known.remove("one", "ann")
        left, folder = dict(known.catalog.snapshot.tools), list(file.parent.iterdir())
        version = known.rollback("one", "1", AdmissionDecision("ann"))

        assert (left, folder) == ({}, [])
        assert (version.number, version.action) == (2, "rollback")
        assert file.read_bytes() == before
        assert shop.served() == {"one": "deep/one.py"}

    def test_a_file_that_is_at_an_earlier_version_may_go(self, shop: Workshop) -> None:
        shop.add("one.py", tool("one", 1))
        shop.add("one.py", tool("one", 2))
        shop.write("one.py", tool("one", 1))

        shop.admissions().remove("one", "ann")

        assert not (shop.tools / "one.py").exists()

    def test_others_of_the_same_file_go_only_on_request(self, shop: Workshop) -> None:
        shop.add("both.py", tool("one") + tool("two"))

        with pytest.raises(RemovesOtherTools, match="two"):
            shop.admissions().remove("one", "ann")
        still = shop.served()
        gone = shop.admissions().remove("one", "ann", with_others=True)

        assert still == {"one": "both.py", "two": "both.py"}
        assert gone.read.names == ("one", "two")

    def test_a_removal_is_recorded_around_what_it_does(self, shop: Workshop) -> None:
        shop.add("one.py")
        recorded: list[object] = []

        @contextmanager
        def act(what: str, by: str, /, **about: str) -> Iterator[None]:
            recorded.append((what, by, about["tool"], (shop.tools / "one.py").exists()))
            yield
            recorded.append((shop.tools / "one.py").exists())

        Admissions(shop.catalog(), act).remove("one", "ann")

        assert recorded == [("remove", "ann", "one", True), False]


class TestWhatStays:
    def test_what_no_file_serves_is_unknown(self, shop: Workshop) -> None:
        shop.add("one.py")

        with pytest.raises(UnknownTool):
            shop.admissions().remove("on", "ann")

    def test_a_version_that_is_not_the_reviewed_one_stays(self, shop: Workshop) -> None:
        shop.write("one.py", tool("one"))
        (version,) = shop.admit("one.py")

        with pytest.raises(StaleVersion):
            shop.admissions().remove("one", "ann", digest="0" * 64)
        shop.admissions().remove("one", "ann", digest=version.digest)

        assert not (shop.tools / "one.py").exists()

    @pytest.mark.parametrize("dev", [False, True])
    def test_unadmitted_changes_are_not_lost(self, shop: Workshop, dev: bool) -> None:
        shop.add("one.py")
        changed = shop.write("one.py", tool("one", 2))

        with pytest.raises(EditConflict, match="unadmitted changes"):
            shop.admissions(dev=dev).remove("one", "ann")

        assert changed.read_text() == tool("one", 2)

    def test_an_edit_between_the_check_and_the_removal_is_not_lost(
        self, shop: Workshop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = shop.add("one.py")
        known = shop.admissions()
        update = known.catalog.update

        def late(*given: object, **named: object) -> None:
            file.write_text(tool("one", 2))
            update(*given, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(known.catalog, "update", late)

        with pytest.raises(EditConflict, match="changed in the meantime"):
            known.remove("one", "ann")

        assert file.read_text() == tool("one", 2)

    def test_a_file_that_others_import_stays(self, shop: Workshop) -> None:
        shop.add("base.py", "from toolkiln import tool\n@tool\n" + tool("base").lstrip())
        shop.add("user.py", "import base\n" + tool("user"))

        with pytest.raises(InputError, match=r"user\.py imports base\.py"):
            shop.admissions().remove("base", "ann")

    def test_a_core_tool_stays(self, shop: Workshop) -> None:
        core = "from toolkiln import tool\n@tool(is_core=True)\n" + tool("core").lstrip()
        shop.add("core.py", core)

        with pytest.raises(InputError, match="core tool"):
            shop.admissions().remove("core", "ann")

    def test_what_could_not_be_brought_back_stays(self, shop: Workshop) -> None:
        file = shop.add("one.py")
        shop.close()
        (shop.state / "store.db").unlink()

        with pytest.raises(InputError, match="not in the store"):
            shop.admissions().remove("one", "ann")

        assert file.exists()

    def test_a_single_file_that_is_all_stays(self, shop: Workshop) -> None:
        file = shop.add("one.py")

        with pytest.raises(InputError, match="all that is served"):
            Admissions(shop.catalog(file)).remove("one", "ann")


def test_a_catalog_that_starts_after_a_death_serves_the_tool_or_has_removed_it(
    shop: Workshop, tmp_path: Path
) -> None:
    shop.add("one.py")
    shop.add("two.py")
    before = shutil.copytree(shop.tools, tmp_path / "before")
    shop.close()
    found = set()
    for at in range(1, 60, 3):
        shutil.rmtree(shop.tools)
        shutil.copytree(before, shop.tools)

        def work() -> None:
            shop.admissions().remove("one", "ann")

        is_over = not killed(at, work)
        served, exists = shop.served(), (shop.tools / "one.py").exists()
        shop.close()
        assert ("one" in served) is exists
        assert served["two"] == "two.py"
        found.add(exists)
        if is_over:
            break

    assert found == {True, False}
