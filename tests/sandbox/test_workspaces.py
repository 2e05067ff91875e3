"""Workspaces filled by hostile tools: names, trees, quotas, races."""

import asyncio
import os
import resource
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tables import each_row
from toolkiln.errors import BackendError, InputError
from toolkiln.execution.executor import Workspace
from toolkiln.sandbox.workspaces import Workspaces, over_quota, usage

SOON = 20.0
"""Seconds; far more than anything here takes."""
TOO_DEEP = 1200
"""Levels, for the longest path and for recursion in Python."""
SESSIONS = [
    "", ".", "..", "../../etc", "/etc/passwd", "con", "Con", "CON", "a/b", "a-b", "a b", "a\nb",
    "nul\0byte", "x" * 300, "x" * 301, "é", "e\u0301", "Zürich 🇨🇭", "\ud800", "-rf", ".gone-1", "İ",
]  # fmt: skip
BAD_NAMES = ["new\nline", os.fsdecode(b"\xff\xfe"), "-rf", " ", "\x1b[2J", "é", "x" * 255]


def make(root: Path, max_bytes: int = 1 << 20, max_files: int = 1000) -> Workspaces:
    return Workspaces(root / "spaces", max_bytes=max_bytes, max_files=max_files, owner=None)


def opened(workspaces: Workspaces, session: str = "s") -> Path:
    return workspaces.open(session, writable=True).folder


def dig(folder: Path, levels: int, name: str = "deep", *, file: bool = True) -> None:
    """Folders in folders, deeper than any path can say."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=here)
        if file:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its content, every folder with None."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


@contextmanager
def meanwhile(change: Callable[[int], None]) -> Iterator[None]:
    """Change something again and again, from another thread, as long as the block runs."""
    over = threading.Event()

    def work() -> None:
        number = 0
        while not over.is_set():
            with suppress(OSError):
                change(number)
            number += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def few_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def watching(workspace: Workspace) -> Iterator["asyncio.Task[str]"]:
    task = asyncio.create_task(over_quota(workspace, interval=0.001))
    try:
        yield task
    finally:
        task.cancel()


# Names of sessions


def test_every_session_has_a_folder_of_its_own_below_the_root(tmp_path: Path) -> None:
    workspaces = make(tmp_path)

    folders = {session: opened(workspaces, session) for session in SESSIONS}

    names = {folder.parent.name for folder in folders.values()}
    assert len({name.casefold() for name in names}) == len(SESSIONS)
    assert all(len(name) < 100 and name.isascii() and name[0] != "." for name in names)
    assert {folder.parent.parent.resolve() for folder in folders.values()} == {tmp_path / "spaces"}
    assert {info.session for info in workspaces.list()} == set(SESSIONS)
    assert list(tmp_path.iterdir()) == [tmp_path / "spaces"]


def test_a_session_starts_with_no_file_and_finds_its_own_again(tmp_path: Path) -> None:
    folder = opened(make(tmp_path), "../../etc")
    before = list(folder.iterdir())
    folder.joinpath("note").write_text("kept")

    again = make(tmp_path).open("../../etc", writable=False)

    assert before == []
    assert again.folder.joinpath("note").read_text() == "kept"
    assert not again.writable


def test_a_folder_is_closed_to_others_even_after_a_tool_opened_it(tmp_path: Path) -> None:
    workspaces = make(tmp_path)
    for mode in (0o777, 0o000):
        opened(workspaces).chmod(mode)

        folder = opened(workspaces)

        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_root_gives_the_files_to_the_sandbox_and_keeps_the_rest(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "spaces", max_bytes=1, max_files=1, owner=64991)
    before = os.umask(0o077)
    try:
        folder = opened(workspaces)
    finally:
        os.umask(before)

    assert (folder.stat().st_uid, folder.stat().st_gid) == (64991, 64991)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for ours in (folder.parent, folder.parent.parent):
        assert ours.stat().st_uid == 0
        assert stat.S_IMODE(ours.stat().st_mode) == 0o710
        assert ours.stat().st_gid == 64991
    os.chown(folder, 0, 0)  # as if we had been killed in between
    assert opened(workspaces).stat().st_uid == 64991


def test_other_accounts_learn_neither_sessions_nor_files(tmp_path: Path) -> None:
    root = tmp_path / "spaces"
    root.mkdir(0o755)  # as earlier versions made it
    owner = 64991 if os.geteuid() == 0 else None
    folder = opened(Workspaces(root, max_bytes=1, max_files=1, owner=owner)).parent

    modes = [path.stat().st_mode for path in (root, folder, folder / "session", folder / "files")]

    assert [mode & stat.S_IRWXO for mode in modes] == [0, 0, 0, 0]
    assert [mode & (stat.S_IRGRP | stat.S_IWGRP) for mode in modes] == [0, 0, 0, 0]
    if owner:
        for path in (root, folder / "session", folder / "files"):
            listed = subprocess.run(["ls", path], user=64999, group=64999, extra_groups=())
            assert listed.returncode


def test_a_folder_that_is_being_put_together_is_not_there_yet(tmp_path: Path) -> None:
    workspaces = make(tmp_path)
    folder = opened(workspaces).parent
    folder.rename(folder.with_name(".new-0123"))

    assert workspaces.list() == []
    with pytest.raises(InputError):
        workspaces.clear("s")
    assert opened(workspaces).is_dir()


def test_foreign_files_and_folders_are_not_listed(tmp_path: Path) -> None:
    workspaces = make(tmp_path)
    assert workspaces.list() == []
    root = opened(workspaces).parent.parent
    root.joinpath("file").touch()
    root.joinpath("folder").mkdir()
    root.joinpath("other").mkdir()
    root.joinpath("other", "session").write_bytes(b"\xff")

    assert [info.session for info in workspaces.list()] == ["s"]


def test_a_root_that_cannot_be_made_is_the_fault_of_the_platform(tmp_path: Path) -> None:
    tmp_path.joinpath("spaces").touch()

    with pytest.raises(BackendError):
        opened(make(tmp_path))


@each_row("known", [True, False])
def test_an_unknown_session_is_refused_with_the_nearest_ones(tmp_path: Path, known: bool) -> None:
    workspaces = make(tmp_path)
    if known:
        opened(workspaces, "research")

    for action in (workspaces.clear, lambda name: workspaces.export(name, tmp_path / "out")):
        with pytest.raises(InputError) as caught:
            action("reserch")
        assert caught.value.hint == ("did you mean 'research'?" if known else None)
    assert not tmp_path.joinpath("out").exists()


# Measuring


def test_usage_counts_every_entry_and_follows_nothing(tmp_path: Path) -> None:
    folder = opened(make(tmp_path))
    folder.joinpath("file").write_bytes(b"x" * 10_000)
    folder.joinpath("file2").hardlink_to(folder / "file")
    folder.joinpath("folder").mkdir()
    folder.joinpath("folder", "loop").symlink_to("..")
    folder.joinpath("etc").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    for name in BAD_NAMES:
        folder.joinpath(name).touch()

    used = usage(folder)

    assert used.files == 6 + len(BAD_NAMES)
    assert 20_000 <= used.bytes < 80_000
    assert abs(used.changed - time.time()) < 3600


def test_a_file_with_holes_counts_with_its_size(tmp_path: Path) -> None:
    with tmp_path.joinpath("sparse").open("wb") as stream:
        stream.truncate(1 << 40)

    assert usage(tmp_path).bytes >= 1 << 40


def test_counting_stops_beyond_a_limit(tmp_path: Path) -> None:
    for number in range(50):
        tmp_path.joinpath(str(number)).write_bytes(b"x" * 100)

    assert usage(tmp_path, max_files=10).files == 11
    assert usage(tmp_path, max_bytes=1000).files <= 11


def test_a_deep_tree_is_measured_and_cleared_with_few_descriptors(tmp_path: Path) -> None:
    workspaces = make(tmp_path)
    folder = opened(workspaces)
    for name, levels in (("left", 1000), ("right", 100)):
        folder.joinpath(name).mkdir()
        dig(folder / name, levels)

    with few_descriptors():
        used = usage(folder)
        workspaces.clear("s")

    assert used.files == 2 + 2 * (1000 + 100)
    assert workspaces.list() == []


def test_a_folder_that_was_closed_is_measured_all_the_same(tmp_path: Path) -> None:
    for mode in (0o000, 0o400, 0o100):
        closed = tmp_path / f"{mode}"
        closed.mkdir()
        closed.joinpath("hidden").touch()
        closed.chmod(mode)

    assert usage(tmp_path).files == 6


def test_moving_folders_does_not_lead_out_of_the_tree(tmp_path: Path) -> None:
    tree_ = tmp_path / "tree"
    dig_at = tree_ / "a" / "b"
    dig_at.mkdir(parents=True)
    tree_.joinpath("c").mkdir()
    dig(dig_at, 100)
    tmp_path.joinpath("outside").mkdir()
    for number in range(1000):
        tmp_path.joinpath("outside", str(number)).touch()

    def move(number: int) -> None:
        places = [tree_ / "a" / "b", tree_ / "c" / "b"]
        places[number % 2].rename(places[1 - number % 2])

    with meanwhile(move):
        counts = [usage(tree_).files for _ in range(20)]

    # It can be seen nowhere or in both places.
    assert max(counts) <= 2 + 2 * 201


# Quotas


@each_row(
    "quota, fill, words",
    [
        (
            {"max_bytes": 100_000},
            lambda folder: folder.joinpath("file").write_bytes(b"x" * 200_000),
            "100,000 bytes",
        ),
        ({"max_files": 20}, lambda folder: dig(folder, 21, file=False), "20 files and folders"),
    ],
)
async def test_more_than_the_quota_is_noticed(
    tmp_path: Path, quota: dict[str, int], fill: Callable[[Path], object], words: str
) -> None:
    workspace = make(tmp_path, **quota).open("s", writable=True)

    with watching(workspace) as task:
        fill(workspace.folder)
        sentence = await asyncio.wait_for(task, SOON)

    assert sentence == f"the workspace contains more than {words}"


async def test_what_was_over_the_quota_already_may_shrink_but_not_grow(tmp_path: Path) -> None:
    folder = opened(make(tmp_path))
    for number in range(30):
        folder.joinpath(str(number)).write_bytes(b"x")
    workspace = make(tmp_path, max_files=10, max_bytes=10).open("s", writable=True)

    with watching(workspace) as task:
        folder.joinpath("0").unlink()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), 0.1)
        for name in ("0", "30"):
            folder.joinpath(name).touch()
        sentence = await asyncio.wait_for(task, SOON)

    assert sentence == "the workspace contains more than 30 files and folders"


async def test_a_workspace_within_its_quota_is_watched_until_cancelled(tmp_path: Path) -> None:
    workspaces = make(tmp_path)
    for writable in (True, False):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(over_quota(workspaces.open("s", writable=writable)), 0.05)


async def test_a_call_whose_workspace_is_cleared_is_ended(tmp_path: Path) -> None:
    workspaces = make(tmp_path)
    workspace = workspaces.open("s", writable=True)

    with watching(workspace) as task:
        await asyncio.sleep(0)
        workspaces.clear("s")
        sentence = await asyncio.wait_for(task, SOON)

    assert sentence == "the workspace was cleared during the call"


# Exports


def test_an_export_copies_files_and_folders_and_reports_the_rest(tmp_path: Path) -> None:
    workspaces = make(tmp_path)
    folder = opened(workspaces)
    folder.joinpath("sub", "empty").mkdir(parents=True)
    folder.joinpath("sub", "run.sh").write_text("echo")
    folder.joinpath("sub", "run.sh").chmod(0o4755)
    folder.joinpath("twin").hardlink_to(folder / "sub" / "run.sh")
    folder.joinpath("passwd").symlink_to("/etc/passwd")
    folder.joinpath("etc").symlink_to("/etc")
    folder.joinpath("sub", "loop").symlink_to("..")
    os.mkfifo(folder / "pipe\n")
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        os.chdir(folder)
        server.bind("socket")
        os.chdir(before)

    exported = workspaces.export("s", tmp_path / "new" / "out")

    assert tree(tmp_path / "new" / "out") == {
        "sub": None, "sub/empty": None, "sub/run.sh": b"echo", "twin": b"echo",
    }  # fmt: skip
    assert exported.files == 2
    assert sorted(exported.left_out) == [
        "'etc': a symbolic link",
        "'passwd': a symbolic link",
        "'pipe\\n': neither a file nor a folder",
        "'socket': neither a file nor a folder",
        "'sub/loop': a symbolic link",
    ]
    mode = tmp_path.joinpath("new", "out", "sub", "run.sh").stat().st_mode
    assert mode & stat.S_IXUSR
    assert not mode & stat.S_ISUID


def test_names_of_any_bytes_are_exported(tmp_path: Path) -> None:
    workspaces = make(tmp_path)
    for name in BAD_NAMES:
        folder = opened(workspaces) / name
        folder.mkdir()
        folder.joinpath(name).write_bytes(os.fsencode(name))

    exported = workspaces.export("s", tmp_path / "out")

    assert exported.files == len(BAD_NAMES)
    assert tree(tmp_path / "out") == tree(opened(workspaces))


def test_a_tree_too_deep_for_a_path_is_exported_up_to_the_path_limit(tmp_path: Path) -> None:
    workspaces = make(tmp_path, max_files=10_000)
    dig(opened(workspaces), TOO_DEEP)

    exported = workspaces.export("s", tmp_path / "out")

    assert 500 < exported.files < TOO_DEEP
    assert len(exported.left_out) <= 2
    assert "too long" in exported.left_out[0]
    exported.left_out[0].encode()
    workspaces.clear("s")


def test_an_export_takes_no_more_than_the_quota(tmp_path: Path) -> None:
    workspaces = make(tmp_path, max_bytes=1000, max_files=5)
    folder = opened(workspaces)
    with folder.joinpath("sparse").open("wb") as stream:
        stream.truncate(1 << 40)
    folder.joinpath("small").write_bytes(b"x" * 900)
    folder.joinpath("other").write_bytes(b"x" * 900)

    exported = workspaces.export("s", tmp_path / "out")

    assert exported.files == 1
    assert "'sparse': exceeds the quota" in exported.left_out
    for number in range(10):
        folder.joinpath(f"empty{number}").touch()
    exported = workspaces.export("s", tmp_path / "more")
    assert exported.files <= 5
    assert exported.left_out[-1] == "everything after the first 5 files and folders"


def test_an_export_goes_to_an_empty_place_outside(tmp_path: Path) -> None:
    workspaces = make(tmp_path)
    folder = opened(workspaces)
    folder.joinpath("file").touch()
    tmp_path.joinpath("full").mkdir()
    tmp_path.joinpath("full", "mine").touch()
    tmp_path.joinpath("empty").mkdir()

    for target in ("full", "full/mine", "full/mine/below", "spaces", "spaces/new", "x" * 300):
        with pytest.raises(InputError):
            workspaces.export("s", tmp_path / target)
    with pytest.raises(InputError):
        workspaces.export("s", folder / "copy")

    assert workspaces.export("s", tmp_path / "empty").files == 1
    assert list(folder.iterdir()) == [folder / "file"]
    assert list(tmp_path.joinpath("full").iterdir()) == [tmp_path / "full" / "mine"]


def test_links_that_replace_files_and_folders_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    secret.joinpath("file").write_text("secret")
    workspaces = make(tmp_path)
    folder = opened(workspaces)
    traps = [folder / f"{number}" for number in range(5)]
    for trap in traps:
        trap.mkdir()
        trap.joinpath("file").write_text("own")

    def swap(number: int) -> None:
        trap = traps[number % 5]
        inner = trap / "file"
        kind = number // 5 % 3
        if kind == 0:
            trap.rename(folder / "aside")
            trap.symlink_to(secret)
            trap.unlink()
            folder.joinpath("aside").rename(trap)
        elif kind == 1:
            inner.unlink()
            inner.symlink_to(secret / "file")
        else:
            inner.unlink()
            os.mkfifo(inner)
            inner.unlink()
            inner.write_text("own")

    copies = [tmp_path / f"out{number}" for number in range(40)]
    with meanwhile(swap):
        for copy in copies:
            workspaces.export("s", copy)

    contents = {content for copy in copies for content in tree(copy).values()}
    assert contents <= {None, b"own", b""}
    assert not any(path.is_symlink() for copy in copies for path in copy.rglob("*"))


def test_a_file_that_grows_without_end_is_copied_as_it_was(tmp_path: Path) -> None:
    workspaces = make(tmp_path, max_bytes=1 << 26)
    file = opened(workspaces) / "log"
    file.write_bytes(b"x" * 100_000)

    def grow(number: int) -> None:
        if file.stat().st_size < 1 << 25:
            with file.open("ab") as stream:
                stream.write(b"x" * 10_000)

    with meanwhile(grow):
        exported = workspaces.export("s", tmp_path / "out")

    assert exported.files == 1
    assert 100_000 <= tmp_path.joinpath("out", "log").stat().st_size <= file.stat().st_size


# Clearing


def test_clearing_removes_everything_and_follows_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.joinpath("file").write_text("stays")
    outside.chmod(0o755)
    workspaces = make(tmp_path)
    folder = opened(workspaces)
    dig(folder, TOO_DEEP)
    folder.joinpath("link").symlink_to(outside)
    folder.joinpath("sub").mkdir()
    folder.joinpath("sub", "link").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    for name in BAD_NAMES:
        folder.joinpath(name).mkdir()
    for mode in (0o000, 0o400, 0o100, 0o500):
        closed = folder / f"{mode}" / "closed"
        closed.mkdir(parents=True)
        closed.joinpath("file").touch()
        closed.chmod(mode)
        closed.parent.chmod(mode)
    folder.chmod(0o000)

    workspaces.clear("s")

    assert list(tmp_path.joinpath("spaces").iterdir()) == []
    assert outside.joinpath("file").read_text() == "stays"
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755
    assert list(opened(workspaces).iterdir()) == []


def test_clearing_one_session_leaves_the_others_alone(tmp_path: Path) -> None:
    workspaces = make(tmp_path)
    for session in ("a", "A"):
        opened(workspaces, session).joinpath("file").write_text(session)

    workspaces.clear("a")

    assert [info.session for info in workspaces.list()] == ["A"]
    assert opened(workspaces, "A").joinpath("file").read_text() == "A"


def test_what_a_killed_clear_left_goes_with_the_next_one(tmp_path: Path) -> None:
    workspaces = make(tmp_path)
    left = opened(workspaces, "killed").parent
    left.joinpath("files", "rest").touch()
    left.rename(left.with_name(".gone-0123"))
    opened(workspaces)

    assert [info.session for info in workspaces.list()] == ["s"]
    workspaces.clear("s")

    assert list(tmp_path.joinpath("spaces").iterdir()) == []


def test_links_swapped_in_while_clearing_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    outside.joinpath("folder").mkdir()
    outside.joinpath("file").touch()
    before = stat.S_IMODE(outside.stat().st_mode)
    workspaces = make(tmp_path)

    for _ in range(20):
        folder = opened(workspaces)
        for number in range(20):
            folder.joinpath(f"{number}", "below").mkdir(parents=True)
        inside = os.open(folder, os.O_RDONLY)

        def swap(number: int, inside: int = inside) -> None:
            name, aside = str(number % 20), f"aside{number % 20}"
            os.rename(name, aside, src_dir_fd=inside, dst_dir_fd=inside)
            os.symlink(outside, name, dir_fd=inside)

        with meanwhile(swap), suppress(BackendError):
            workspaces.clear("s")
        os.close(inside)

    assert sorted(path.name for path in outside.iterdir()) == ["file", "folder"]
    assert stat.S_IMODE(outside.stat().st_mode) == before


def test_two_may_open_and_clear_the_same_session_at_once(tmp_path: Path) -> None:
    workspaces = make(tmp_path)

    def clear(number: int) -> None:
        with suppress(InputError):
            workspaces.clear("s")

    with meanwhile(clear), meanwhile(clear):
        for _ in range(100):
            with suppress(OSError):  # cleared since
                opened(workspaces).joinpath("file").touch()

    with suppress(InputError):
        workspaces.clear("s")
    assert workspaces.list() == []
    assert list(tmp_path.joinpath("spaces").iterdir()) == []
