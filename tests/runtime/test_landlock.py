import errno
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tables import each_row
from toolkiln.runtime import landlock, linux

from .children import USERS, error_of, in_child

SYSTEM = ("/usr", "/lib", "/lib64", "/bin")
ABI = landlock.abi()
both = pytest.mark.parametrize("ordinary", USERS)
pytestmark = pytest.mark.skipif(not ABI, reason="this kernel offers no Landlock")


def since(version: int) -> pytest.MarkDecorator:
    return pytest.mark.skipif(version > ABI, reason=f"Landlock {ABI} is older than {version}")


@pytest.fixture
def place() -> Iterator[Path]:
    """Folders that an ordinary user may write to as well, with a file in each."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path in (root, root / "read", root / "write", root / "outside"):
            path.mkdir(exist_ok=True)
            path.chmod(0o777)
            (path / "file").write_text("text", "utf-8")
            (path / "file").chmod(0o666)
        yield root


def restricted(
    place: Path, function: Callable[[], Any], *, ordinary: bool = False, **given: Any
) -> Any:
    """What a function returns in a child that may read `read` and write `write`."""

    def run() -> Any:
        linux.set_no_new_privs()
        linux.drop_capabilities()
        read, write = [str(place / "read")], [str(place / "write")]
        landlock.restrict(**{"read": read, "write": write, "network": False, **given})
        return function()

    return in_child(run, ordinary=ordinary)


def opened(path: Path, flags: int) -> int:
    return error_of(lambda: os.close(os.open(path, flags, 0o600)))


@both
def test_only_given_paths_can_be_read_and_listed(place: Path, ordinary: bool) -> None:
    def read() -> list[list[int]]:
        files = [place / name / "file" for name in ("read", "write", "outside")]
        folders = [place / "read", place, Path("/")]
        return [
            [opened(path, os.O_RDONLY) for path in (*files, Path("/etc/passwd"))],
            [opened(path, os.O_DIRECTORY) for path in folders],
        ]

    assert restricted(place, read, ordinary=ordinary) == [
        [0, 0, errno.EACCES, errno.EACCES],
        [0, errno.EACCES, errno.EACCES],
    ]


@both
def test_what_may_be_read_cannot_be_written(place: Path, ordinary: bool) -> None:
    def written() -> list[int]:
        folder = place / "read"
        return [
            opened(folder / "file", os.O_WRONLY),
            opened(folder / "new", os.O_WRONLY | os.O_CREAT),
            error_of((folder / "file").unlink),
            error_of((folder / "folder").mkdir),
            error_of(lambda: (folder / "link").symlink_to("file")),
            error_of(lambda: os.mkfifo(folder / "fifo")),
        ]

    assert restricted(place, written, ordinary=ordinary) == [errno.EACCES] * 6


@both
def test_what_may_be_written_is_free_but_for_devices(place: Path, ordinary: bool) -> None:
    def written() -> list[int]:
        folder = place / "write"
        return [
            opened(folder / "new", os.O_RDWR | os.O_CREAT | os.O_TRUNC),
            error_of((folder / "folder").mkdir),
            error_of(lambda: (folder / "link").symlink_to("file")),
            error_of(lambda: os.mkfifo(folder / "fifo")),
            error_of((folder / "new").unlink),
            error_of((folder / "folder").rmdir),
            int(error_of(lambda: os.mknod(folder / "null", 0o020666, os.makedev(1, 3))) != 0),
        ]

    assert restricted(place, written, ordinary=ordinary) == [0, 0, 0, 0, 0, 0, 1]


@both
def test_a_file_cannot_be_moved_or_linked_to_where_it_has_other_rights(
    place: Path, ordinary: bool
) -> None:
    def moved() -> list[int]:
        inside, read, outside = place / "write", place / "read", place / "outside"
        return [
            error_of(lambda: (inside / "file").rename(outside / "moved")),
            error_of(lambda: (inside / "file").rename(read / "moved")),
            error_of(lambda: (outside / "file").rename(inside / "moved")),
            error_of(lambda: os.link(read / "file", inside / "linked")),
        ]

    codes = restricted(place, moved, ordinary=ordinary)

    assert set(codes) <= {errno.EACCES, errno.EXDEV, errno.EPERM}


@since(2)
@both
def test_a_file_can_be_moved_between_folders_below_a_writable_one(
    place: Path, ordinary: bool
) -> None:
    def moved() -> int:
        (place / "write" / "deep").mkdir()
        return error_of(lambda: (place / "write" / "file").rename(place / "write/deep/file"))

    assert restricted(place, moved, ordinary=ordinary) == 0


@since(3)
def test_what_may_be_read_cannot_be_truncated(place: Path) -> None:
    assert restricted(place, lambda: error_of(lambda: os.truncate(place / "read/file", 0))) == (
        errno.EACCES
    )
    assert (place / "read/file").read_text("utf-8") == "text"


def test_a_link_gives_no_more_access_than_its_target(place: Path) -> None:
    (place / "read" / "out").symlink_to(place / "outside" / "file")
    (place / "write" / "out").symlink_to("/etc")

    def followed() -> list[int]:
        links = place / "read/out", place / "write/out/passwd"
        return [opened(link, os.O_RDONLY) for link in links]

    assert restricted(place, followed) == [errno.EACCES] * 2


@both
def test_programs_start_from_what_is_read_and_not_from_what_is_written(
    place: Path, ordinary: bool
) -> None:
    copy = place / "write" / "true"
    copy.write_bytes(Path("/bin/true").read_bytes())
    copy.chmod(0o755)

    def started() -> list[int]:
        return [run("/bin/true"), run(str(copy))]

    codes = restricted(place, started, ordinary=ordinary, read=SYSTEM)

    assert codes == [0, errno.EACCES]


def test_programs_start_only_from_the_given_paths(place: Path) -> None:
    copy = place / "read" / "true"
    copy.write_bytes(Path("/bin/true").read_bytes())
    copy.chmod(0o755)
    given: dict[str, Any] = {"read": [*SYSTEM, str(place / "read")], "execute": SYSTEM}

    assert restricted(place, lambda: [run("/bin/true"), run(str(copy))], **given) == [
        0,
        errno.EACCES,
    ]


def run(program: str) -> int:
    """0 or the error that starting the program ended in."""
    pid = os.fork()
    if pid == 0:
        os._exit(error_of(lambda: os.execv(program, [program])))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_single_files_and_devices_can_be_given_and_missing_paths_are_left_out(
    place: Path,
) -> None:
    paths = [str(place / "read" / "file"), "/no/such/path", str(place / "read/file/below")]
    given: dict[str, Any] = {"read": paths, "write": ["/dev/null"]}

    def used() -> list[int]:
        return [
            opened(place / "read" / "file", os.O_RDONLY),
            opened(Path("/dev/null"), os.O_RDWR),
            opened(place / "write" / "file", os.O_RDONLY),
            opened(place / "read", os.O_DIRECTORY),
        ]

    assert restricted(place, used, **given) == [0, 0, errno.EACCES, errno.EACCES]


def test_a_path_that_cannot_be_resolved_restricts_nothing_and_raises(place: Path) -> None:
    loop = place / "loop"
    loop.symlink_to(loop)

    with pytest.raises(OSError, match="Too many levels"):
        restricted(place, lambda: None, read=[str(loop)])


def test_children_and_later_restrictions_never_gain_rights(place: Path) -> None:
    def again() -> list[int]:
        landlock.restrict(read=["/"], write=["/"], network=True)
        read = opened(place / "outside" / "file", os.O_RDONLY)
        pid = os.fork()
        if pid == 0:
            os._exit(opened(place / "outside" / "file", os.O_RDONLY))
        return [read, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]

    assert restricted(place, again) == [errno.EACCES] * 2


def test_it_needs_no_new_privileges_first() -> None:
    def restrict() -> None:
        linux.drop_capabilities()
        landlock.restrict(read=["/"], write=[], network=False)

    with pytest.raises(OSError, match="landlock: restrict") as caught:
        in_child(restrict)

    assert caught.value.errno == errno.EPERM


def test_no_descriptor_is_left_open(place: Path) -> None:
    def counted() -> list[int]:
        first = os.dup(0)
        os.close(first)
        landlock.restrict(read=["/", "/no/such"], write=["/dev/null"], network=True)
        second = os.dup(0)
        return [first, second]

    first, second = restricted(place, counted)

    assert first == second


@since(4)
@pytest.mark.parametrize("network", [False, True])
def test_tcp_works_only_with_network(place: Path, network: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def reached() -> list[int]:
            with socket.socket() as client, socket.socket() as listener:
                connected = error_of(lambda: client.connect((b"127.0.0.1", port)))
                return [connected, error_of(lambda: listener.bind((b"127.0.0.1", 0)))]

        expected = 0 if network else errno.EACCES
        assert restricted(place, reached, network=network) == [expected] * 2


@since(6)
def test_processes_and_abstract_sockets_outside_cannot_be_reached(place: Path) -> None:
    name = f"\0toolkiln-test-{os.getpid()}-{place.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(name)
        parent = os.getpid()

        def reached() -> list[int]:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
                connected = error_of(lambda: client.connect(name))
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            os.kill(child, signal.SIGKILL)
            ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            return [connected, error_of(lambda: os.kill(parent, signal.SIGURG)), ended]

        found = restricted(place, reached, network=True)

    assert found == [errno.EPERM, errno.EPERM, -signal.SIGKILL]  # its own child it may kill


def test_the_applied_version_is_returned() -> None:
    def restrict() -> int:
        linux.set_no_new_privs()
        return landlock.restrict(read=["/"], write=[], network=False)

    assert in_child(restrict) == ABI


@each_row("version", range(1, 8))
def test_every_version_names_only_rights_that_it_knows(version: int) -> None:
    """The kernel refuses unknown ones with EINVAL, so a list that is too new restricts nothing."""
    newest = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16, 7: 16}[version]

    assert landlock._known_rights(version) == (1 << newest) - 1
