"""Changing a folder all or nothing: death and failure at every step, races, forged journals."""

import errno
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tables import each_row
from toolkiln.catalog.admission import Admissions, CandidateVersion
from toolkiln.catalog.folder import read_version
from toolkiln.catalog.manifest import (
    MANIFEST,
    Installation,
    Manifest,
    ManifestFile,
    MissingManifest,
    commit,
    encode,
    lock_folder,
    needs_recovery,
    recover,
)
from toolkiln.errors import EditConflict, InputError
from toolkiln.model.admission import AdmissionDecision
from toolkiln.model.catalog import FileVersion

from .conftest import SOON, Start, Workshop, read_line, run_at_once, text_of, tool

# Python 3.12 warns of forks beside threads; the children do nothing that could wait for one.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")

BEFORE, AFTER = b"before = 1\n", b"after = 1\n"
MANIFESTS = encode(Manifest(catalog="before")), encode(Manifest(catalog="after"))
JOURNAL = ".toolkiln-journal.json"


def folder_with(tmp_path: Path, content: bytes | None) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / MANIFEST).write_bytes(MANIFESTS[0])
    if content is not None:
        (folder / "a.py").write_bytes(content)
    return folder


def state(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def interrupt(monkeypatch: pytest.MonkeyPatch, at: int, stop: Callable[[], None]) -> list[str]:
    """Calls `stop` before what is done to the disk for the n-th time; the steps that came."""
    steps: list[str] = []

    def watched(name: str, real: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            steps.append(name)
            if len(steps) == at:
                stop()
            return real(*arguments, **options)

        return step

    for name in ("open", "replace", "unlink", "chmod"):
        monkeypatch.setattr(Path, name, watched(name, getattr(Path, name)))
    monkeypatch.setattr(os, "fsync", watched("fsync", os.fsync))
    return steps


def forked(work: Callable[[], object]) -> int:
    """How a process that does this ends."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001  the child must not go on as a test
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed(at: int, work: Callable[[], object]) -> bool:
    """Whether a process that does this died at this step, by SIGKILL."""

    def until_then() -> None:
        interrupt(pytest.MonkeyPatch(), at, lambda: os.kill(os.getpid(), signal.SIGKILL))
        work()

    ended = forked(until_then)
    assert ended in (0, -signal.SIGKILL)
    return ended != 0


def install(folder: Path) -> None:
    commit(folder, MANIFESTS[1], Installation("a.py", AFTER))


def remove(folder: Path) -> None:
    commit(folder, MANIFESTS[1], Installation("a.py", None))


def deaths(template: Path, work: Callable[[Path], None]) -> Iterator[Path]:
    """A copy of the template for each step at which a process that changes it dies."""
    for at in range(1, 60):
        folder = shutil.copytree(template, template.with_name(str(at)))
        if not killed(at, lambda folder=folder: work(folder)):  # type: ignore[misc]
            return
        yield folder


def recovered(folder: Path) -> dict[str, bytes]:
    recover(folder)
    assert not needs_recovery(folder)
    return state(folder)


@pytest.mark.faults
@each_row("content", [None, BEFORE, AFTER])
def test_death_at_any_step_leaves_the_folder_as_before_or_after(
    tmp_path: Path, content: bytes | None
) -> None:
    template = folder_with(tmp_path, content)
    before, after = state(template), {"a.py": AFTER, MANIFEST: MANIFESTS[1]}

    seen = [recovered(folder) for folder in deaths(template, install)]

    assert len(seen) > 8
    assert all(found in (before, after) for found in seen)
    assert {found == after for found in seen} == {True, False}


def test_death_at_any_step_of_a_removal_leaves_file_and_entry_or_neither(tmp_path: Path) -> None:
    template = folder_with(tmp_path, BEFORE)
    before, after = state(template), {MANIFEST: MANIFESTS[1]}

    seen = [recovered(folder) for folder in deaths(template, remove)]

    assert len(seen) > 5
    assert all(found in (before, after) for found in seen)
    assert {found == after for found in seen} == {True, False}


@pytest.mark.faults
def test_death_during_recovery_is_recovered_from(tmp_path: Path) -> None:
    template = folder_with(tmp_path, BEFORE)
    ends = state(template), {"a.py": AFTER, MANIFEST: MANIFESTS[1]}
    for at in range(5, 14):
        torn = shutil.copytree(template, tmp_path / f"torn{at}")
        assert killed(at, lambda torn=torn: install(torn))  # type: ignore[misc]
        for again in range(1, 6):
            folder = shutil.copytree(torn, tmp_path / f"{at}-{again}")
            killed(again, lambda folder=folder: recover(folder))  # type: ignore[misc]
            recover(folder)

            assert state(folder) in ends


@each_row(
    "content, work, after, least",
    [
        (None, install, {"a.py": AFTER}, 8),
        (BEFORE, install, {"a.py": AFTER}, 8),
        (BEFORE, remove, {}, 5),
    ],
)
@each_row("failure", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_failure_at_any_step_leaves_the_folder_as_before_or_after(
    tmp_path: Path,
    content: bytes | None,
    work: Callable[[Path], None],
    after: dict[str, bytes],
    least: int,
    failure: BaseException,
) -> None:
    template = folder_with(tmp_path, content)
    ends = state(template), {**after, MANIFEST: MANIFESTS[1]}

    def fail() -> None:
        raise failure

    for at in range(1, 60):
        folder = shutil.copytree(template, tmp_path / str(at))
        with pytest.MonkeyPatch.context() as patch:
            steps = interrupt(patch, at, fail)
            with suppress(OSError, KeyboardInterrupt):
                work(folder)
        if len(steps) < at:
            break
        if needs_recovery(folder):  # tidying up itself failed
            recover(folder)

        assert state(folder) in ends
    assert at > least


def test_failure_before_the_manifest_is_written_undoes_everything_at_once(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, BEFORE)
    before = state(folder)
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).mkdir()

    with pytest.raises(IsADirectoryError):
        install(folder)

    (folder / MANIFEST).rmdir()
    assert state(folder) == {"a.py": before["a.py"]}


def test_file_is_installed_with_the_mode_of_the_one_before(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, BEFORE)
    (folder / "a.py").chmod(0o640)

    install(folder)

    assert (folder / "a.py").stat().st_mode & 0o777 == 0o640
    assert state(folder) == {"a.py": AFTER, MANIFEST: MANIFESTS[1]}


def test_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, None)
    (folder / "a.py").mkdir()

    with pytest.raises(InputError, match="is a folder"):
        install(folder)

    assert state(folder) == {MANIFEST: MANIFESTS[0]}


@each_row("work, least", [(install, 8), (remove, 4)])
def test_file_edited_between_death_and_recovery_is_left_alone(
    tmp_path: Path, work: Callable[[Path], None], least: int
) -> None:
    edited = 0
    for folder in deaths(folder_with(tmp_path, BEFORE), work):
        if (folder / "a.py").exists():
            (folder / "a.py").write_bytes(b"edited\n")
            edited += 1
            recover(folder)

            assert state(folder)["a.py"] == b"edited\n"
            assert len(state(folder)) == 2
    assert edited >= least


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@each_row(
    "file",
    ["../secret.py", "link/secret.py", "{outside}/secret.py", "", ".", "..", "sub", "x\0y.py",
     "mine.py", "missing/none.py", "n" * 300, "_manifest.json", ".toolkiln-journal.json"],
)  # fmt: skip
@each_row("is_committed", [True, False])
def test_forged_journal_touches_no_file_of_anybody(
    tmp_path: Path, file: str, is_committed: bool
) -> None:
    folder, outside = folder_with(tmp_path, BEFORE), tmp_path / "outside"
    outside.mkdir()
    for path in (tmp_path / "secret.py", outside / "secret.py", folder / "mine.py"):
        path.write_bytes(BEFORE)
    for place in (tmp_path, outside):  # what recovery would move, if it went there
        (place / f".toolkiln-{sha256(b'secret.py')[:16]}.part").write_bytes(BEFORE)
    (folder / "sub").mkdir()
    (folder / "link").symlink_to(outside)
    before = state(tmp_path)
    entry = {
        "file": file.format(outside=outside),
        "before": sha256(BEFORE),
        "after": sha256(BEFORE),
        "manifest": sha256(MANIFESTS[0]) if is_committed else "",
    }
    (folder / JOURNAL).write_text(json.dumps(entry))

    recover(folder)

    assert state(tmp_path) == before


@each_row(
    "journal",
    [b"", b"?", b"[]", b"7", b"{}", b"[" * 100_000, b"\xff", b'{"file": 5}',
     b'{"file": [], "before": 1, "after": {}, "manifest": []}',
     b'{"file": "a.py", "before": null, "after": "", "manifest": "", "more": 1}'],
)  # fmt: skip
def test_journal_that_makes_no_sense_is_thrown_away(tmp_path: Path, journal: bytes) -> None:
    folder = folder_with(tmp_path, BEFORE)
    before = state(folder)
    (folder / JOURNAL).write_bytes(journal)

    recover(folder)

    assert state(folder) == before


def test_second_writer_waits_no_longer_than_its_patience(tmp_path: Path) -> None:
    with (
        lock_folder(tmp_path),
        pytest.raises(EditConflict, match="another process"),
        lock_folder(tmp_path, patience=0),
    ):
        pass

    with lock_folder(tmp_path, patience=0):
        pass


def test_lock_of_a_dead_writer_is_free(tmp_path: Path, start_python: Start) -> None:
    holder = start_python(
        """
        import sys
        from pathlib import Path
        from toolkiln.catalog.manifest import lock_folder
        with lock_folder(Path(sys.argv[1])):
            print("held", flush=True)
            sys.stdin.read()
        """,
        tmp_path,
    )
    assert read_line(holder) == "held\n"
    with pytest.raises(EditConflict), lock_folder(tmp_path, patience=0):
        pass

    holder.kill()
    holder.wait(SOON)

    with lock_folder(tmp_path, patience=0):
        pass


def drafted(shop: Workshop, source: str) -> tuple[Admissions, CandidateVersion]:
    """A version of a.py that is about to be written."""
    admissions = Admissions(shop.catalog())
    return admissions, admissions.unwritten("a.py", fresh_read(shop, source))


def fresh_read(shop: Workshop, source: str) -> FileVersion:
    draft = shop.state / "draft" / "a.py"
    draft.parent.mkdir(parents=True, exist_ok=True)
    draft.write_text(source)
    return read_version(draft)


@pytest.mark.faults
@pytest.mark.parametrize("existed", [True, False])
def test_death_at_any_step_of_an_admission_leaves_one_whole_version(
    shop: Workshop, existed: bool
) -> None:
    if existed:
        shop.add("a.py", tool("old"))
    read = fresh_read(shop, tool("a", 2))
    shop.close()
    template = shutil.copytree(shop.tools, shop.state / "template")
    outcomes = []

    def write() -> None:
        admissions = Admissions(shop.catalog())
        admissions.admit([admissions.unwritten("a.py", read)], AdmissionDecision("ann"))

    for at in range(1, 80):
        shutil.rmtree(shop.tools)
        shutil.copytree(template, shop.tools)
        if not killed(at, write):
            break
        catalog = shop.catalog()
        names = []
        with suppress(MissingManifest):
            names = sorted(catalog.snapshot.tools)
        on_disk = shop.tools / "a.py"
        outcomes.append(names)
        assert shop.leftovers() == []
        assert on_disk.exists() == bool(names)
        assert not names or on_disk.read_text() == text_of(catalog, names[0])
        shop.close()

    assert all(names in ([["old"], ["a"]] if existed else [[], ["a"]]) for names in outcomes)
    assert ["a"] in outcomes


def test_of_two_threads_that_write_one_file_one_wins(shop: Workshop) -> None:
    shop.add("a.py")
    drafts = [drafted(shop, tool("a", number)) for number in (2, 3)]
    start = threading.Barrier(2)

    def write(draft: tuple[Admissions, CandidateVersion]) -> str:
        admissions, candidate = draft
        start.wait(SOON)
        try:
            admissions.admit([candidate], AdmissionDecision("ann"))
        except EditConflict as conflict:
            return conflict.code
        return "won"

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(write, drafts))

    assert sorted(ended) == ["conflict", "won"]
    winner = drafts[ended.index("won")][1]
    assert (shop.tools / "a.py").read_bytes() == winner.read.sources["a.py"]
    assert ManifestFile(shop.tools, "").read().files["a.py"].sha256 == winner.read.reading.digest


def test_of_two_processes_that_write_one_file_one_wins(shop: Workshop, start_python: Start) -> None:
    code = """
        import sys
        from pathlib import Path
        from toolkiln.catalog.admission import Admissions
        from toolkiln.catalog.catalog import Catalog
        from toolkiln.errors import EditConflict
        from toolkiln.model.admission import AdmissionDecision
        from toolkiln.catalog.folder import read_version
        from toolkiln.store.store import open_store
        tools, state, draft = map(Path, sys.argv[1:])
        store = open_store(state / "store.db")
        admissions = Admissions(Catalog(tools, lambda: store.archive))
        candidate = admissions.unwritten("a.py", read_version(draft))
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            admissions.admit([candidate], AdmissionDecision("ann"))
        except EditConflict as conflict:
            print(conflict.code)
        else:
            print("won")
    """
    writers = []
    for number in (2, 3):
        draft = shop.state / str(number) / "a.py"
        draft.parent.mkdir(parents=True)
        draft.write_text(tool("a", number))
        writers.append(start_python(code, shop.tools, shop.state, draft))

    said = [printed.strip() for printed in run_at_once(*writers)]

    assert sorted(said) == ["conflict", "won"]
    assert shop.served() == {"a": "a.py"}
    assert (shop.tools / "a.py").read_text() == tool("a", said.index("won") + 2)
    assert shop.leftovers() == []


def test_reader_always_sees_a_whole_manifest_while_writers_die(
    shop: Workshop, start_python: Start
) -> None:
    (shop.tools / MANIFEST).write_bytes(MANIFESTS[0])
    code = """
        import itertools, os, sys
        from pathlib import Path
        from toolkiln.catalog.manifest import Manifest, encode
        from toolkiln.catalog.manifest import commit, lock_folder
        print("writing", flush=True)
        for number in itertools.count():
            with lock_folder(Path(sys.argv[1])):
                manifest = Manifest(catalog=f"{os.getpid()} {number} " * 5_000)
                commit(Path(sys.argv[1]), encode(manifest))
    """
    seen: set[str] = set()
    for _ in range(4):
        writer = start_python(code, shop.tools)
        assert read_line(writer) == "writing\n"
        known = len(seen)
        until = time.monotonic() + SOON
        while len(seen) < known + 5 and time.monotonic() < until:
            seen.add(ManifestFile(shop.tools, "").read().catalog)
        writer.kill()
        writer.wait(SOON)

        shop.catalog(dev=False).refresh()

    assert len(seen) >= 20
    assert shop.leftovers() == []


def _no_space() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))


def test_full_disk_leaves_the_earlier_version(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, BEFORE)
    before = state(folder)
    code = """
        import sys
        from pathlib import Path
        from toolkiln.catalog.manifest import Installation, commit
        folder, manifest = Path(sys.argv[1]), (Path(sys.argv[1]) / "_manifest.json").read_bytes()
        for data, content in ((b"#" * 50_000, manifest), (b"#", b"#" * 50_000)):
            try:
                commit(folder, content, Installation("a.py", data))
            except OSError as error:
                print(error.errno)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(folder)],
        preexec_fn=_no_space,
        stdout=subprocess.PIPE,
        text=True,
    )

    assert ended.stdout.split() == [str(errno.EFBIG)] * 2
    assert state(folder) == before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few pages."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root may mount")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_disk_that_is_really_full_leaves_the_earlier_version(small_disk: Path) -> None:
    folder = folder_with(small_disk, BEFORE)
    before = state(folder)

    with pytest.raises(OSError, match="No space left"):
        commit(folder, MANIFESTS[1], Installation("a.py", b"#" * 100_000))

    assert state(folder) == before


def test_read_only_disk_is_served_and_not_changed(small_disk: Path, shop: Workshop) -> None:
    shop.tools.rmdir()
    shop.tools = small_disk / "tools"
    shop.tools.mkdir()
    shop.add("a.py")
    before = state(shop.tools)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    with pytest.raises(OSError, match="Read-only"):
        Admissions(shop.catalog()).switch("a", False)

    assert shop.served() == {"a": "a.py"}
    assert state(shop.tools) == before
