import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tables import each_row
from toolkiln.runtime import linux, seccomp

from .children import USERS, ChildDied, error_of, in_child

NAMESPACES = linux.CLONE_NEWUSER | linux.CLONE_NEWPID | linux.CLONE_NEWNS
both = pytest.mark.parametrize("ordinary", USERS)


def status(name: str) -> str:
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def in_namespaces(function: Callable[[], Any], flags: int = NAMESPACES, **options: bool) -> Any:
    """What a function returns in a cloned process, run there by a process with one thread."""

    def clone_and_wait() -> Any:
        reader, writer = os.pipe()
        if (pid := linux.clone(flags)) == 0:
            try:
                os.write(writer, repr(function()).encode())
            except BaseException as error:  # noqa: BLE001  # whatever it is, the parent says so
                os.write(writer, repr(error).encode())
            finally:
                os._exit(0)
        os.close(writer)
        said = b"".join(iter(lambda: os.read(reader, 4096), b"")).decode()
        return said, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    try:
        said, code = in_child(clone_and_wait, **options)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOSPC, errno.EINVAL):
            pytest.skip(f"this kernel refuses namespaces: {error}")
        raise
    return said if code == 0 else code


def test_clone_without_flags_is_a_fork() -> None:
    def fork() -> int:
        pid = linux.clone(0)
        if pid == 0:
            os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert in_child(fork) == 7


@both
def test_a_refused_clone_raises_and_leaves_the_interpreter_working(ordinary: bool) -> None:
    def refused() -> list[Any]:
        # A new mount namespace cannot share the file system's root.
        code = error_of(lambda: linux.clone(linux.CLONE_NEWNS | 0x200))
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        pid = os.fork()
        if pid == 0:
            os._exit(3)
        return [code, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]

    assert in_child(refused, ordinary=ordinary) == [errno.EINVAL, 3]


@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="looks into glibc")
@both
def test_a_lock_taken_in_a_cloned_child_is_owned_by_its_own_thread(ordinary: bool) -> None:
    def owner() -> list[int]:
        libc = ctypes.CDLL(None)
        # glibc's pthread_mutex_t begins with lock, count, owner.
        lock = (ctypes.c_int * 16)()
        libc.pthread_mutex_lock(lock)
        return [lock[2], threading.get_native_id()]

    assert in_namespaces(owner, ordinary=ordinary) == "[1, 1]"


@both
def test_threads_and_forks_work_in_a_cloned_child_which_is_process_1(ordinary: bool) -> None:
    def busy() -> list[int]:
        done: list[int] = []
        threads = [threading.Thread(target=done.append, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pid = os.fork()
        if pid == 0:
            os._exit(0 if os.getppid() == 1 else 1)
        return [os.getpid(), sum(done), os.waitpid(pid, 0)[1]]

    assert in_namespaces(busy, ordinary=ordinary) == "[1, 28, 0]"


@both
def test_mounts_in_a_namespace_are_seen_there_only(ordinary: bool, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    place = str(tmp_path)

    def mounted() -> list[Any]:
        linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
        linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
        pids = sorted(path.name for path in Path("/proc").iterdir() if path.name.isdigit())
        linux.mount("tmpfs", "/tmp", "tmpfs", linux.MS_NOSUID, "size=64k,nr_inodes=4")
        blocks = os.statvfs("/tmp").f_files
        linux.umount2("/tmp", linux.MNT_DETACH)
        return [pids, blocks, error_of(lambda: linux.mount(place, "/no/such", None, linux.MS_BIND))]

    assert in_namespaces(mounted, ordinary=ordinary) == repr([["1"], 4, errno.ENOENT])


def test_a_failed_mount_names_its_target() -> None:
    with pytest.raises(OSError, match=r"mount /no/such: ") as caught:
        linux.mount("tmpfs", "/no/such", "tmpfs", 0)

    assert caught.value.errno in (errno.EPERM, errno.ENOENT)


def test_a_path_with_nul_is_refused_and_not_cut_short() -> None:
    with pytest.raises(ValueError, match="NUL"):
        linux.mount("tmpfs", "/tmp\0/safe", "tmpfs", 0)


@both
def test_loopback_is_down_in_a_network_namespace_until_it_is_switched_on(ordinary: bool) -> None:
    def flags() -> int:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
            request = fcntl.ioctl(plain, 0x8913, struct.pack("=16sH22x", b"lo", 0))
        return int(struct.unpack_from("=H", request, 16)[0] & 1)

    def switched() -> list[Any]:
        before = flags()
        linux.loopback_up()
        linux.loopback_up()
        with socket.socket() as server, socket.socket() as client:
            # Bytes: text would load a codec, from where an ordinary user may not read.
            server.bind((b"127.0.0.1", 0))
            server.listen()
            client.settimeout(30)
            client.connect((b"127.0.0.1", server.getsockname()[1]))
        return [before, flags()]

    assert in_namespaces(switched, NAMESPACES | linux.CLONE_NEWNET, ordinary=ordinary) == "[0, 1]"


@both
def test_dropped_capabilities_are_gone_from_every_set(ordinary: bool) -> None:
    def drop() -> list[Any]:
        before = linux.capabilities()
        linux.drop_bounding_set()
        linux.clear_ambient()
        linux.drop_capabilities()
        sets = {status(f"Cap{name}") for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")}
        return [before > 0, linux.capabilities(), sets, error_of(lambda: linux.unshare(1 << 30))]

    said = in_namespaces(drop, linux.CLONE_NEWUSER, ordinary=ordinary)

    assert said == repr([True, 0, {"0" * 16}, errno.EPERM])


def test_without_capabilities_dropping_the_bounding_set_raises() -> None:
    def drop() -> None:
        linux.drop_capabilities()
        linux.drop_bounding_set()

    with pytest.raises(OSError, match="bounding set") as caught:
        in_child(drop, ordinary=True)

    assert caught.value.errno == errno.EPERM


def test_capabilities_are_those_that_proc_shows() -> None:
    assert linux.capabilities() == int(status("CapEff"), 16)


@both
def test_prctl_settings_are_those_that_the_kernel_reports(ordinary: bool) -> None:
    def settings() -> list[Any]:
        linux.set_no_new_privs()
        linux.set_not_dumpable()
        linux.set_child_subreaper()
        linux.die_with_parent(signal.SIGKILL)
        libc = ctypes.CDLL(None)
        death, reaper = ctypes.c_int(), ctypes.c_int()
        libc.prctl(2, ctypes.byref(death), 0, 0, 0)
        libc.prctl(37, ctypes.byref(reaper), 0, 0, 0)
        return [status("NoNewPrivs"), libc.prctl(3, 0, 0, 0, 0), reaper.value, death.value]

    assert in_child(settings, ordinary=ordinary) == ["1", 0, 1, signal.SIGKILL]


def test_a_child_dies_with_its_parent() -> None:
    def orphan() -> int:
        linux.set_child_subreaper()
        ready, done = os.pipe(), os.pipe()
        if os.fork() == 0:
            if os.fork() == 0:
                linux.die_with_parent(signal.SIGKILL)
                os.write(ready[1], b"%d" % os.getpid())
                os.read(done[0], 1)
                os._exit(0)
            os.read(ready[0], 1)
            os._exit(0)
        ended = [os.waitstatus_to_exitcode(os.waitpid(-1, 0)[1]) for _ in range(2)]
        return sorted(ended)[0]

    assert in_child(orphan) == -signal.SIGKILL


@both
def test_limits_are_set_for_good_and_never_raised(ordinary: bool) -> None:
    def limited() -> list[Any]:
        linux.set_limits({"NOFILE": 50, "CORE": 0, "FSIZE": 4096})
        linux.set_limits({"NOFILE": 1 << 40, "FSIZE": 100})
        return [resource.getrlimit(r) for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)]

    assert in_child(limited, ordinary=ordinary) == [[50, 50], [100, 100]]


@each_row("value", [-1, -2, 1 << 63])
def test_a_limit_that_would_mean_none_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="limit CPU to"):
        linux.set_limits({"CPU": value})


@both
def test_a_filter_needs_no_new_privileges_first(ordinary: bool) -> None:
    program = seccomp.filter_program(allow_memfd=False)

    def apply() -> None:
        linux.drop_capabilities()
        linux.apply_seccomp(program)

    with pytest.raises(OSError, match="seccomp") as caught:
        in_child(apply, ordinary=ordinary)

    assert caught.value.errno == errno.EACCES


def test_a_filter_covers_threads_that_run_already() -> None:
    program = seccomp.filter_program(allow_memfd=False)

    def filtered() -> int:
        start, codes = threading.Event(), []

        def late() -> None:
            start.wait(60)
            codes.append(error_of(lambda: linux.unshare(0)))

        thread = threading.Thread(target=late)
        thread.start()
        linux.set_no_new_privs()
        linux.apply_seccomp(program)
        start.set()
        thread.join()
        return codes[0]

    assert in_child(filtered) == errno.EPERM


@each_row("program", [b"", b"\0" * 7, b"\x06" + b"\0" * 6 + b"\x80\xff"])
def test_a_filter_that_is_no_program_is_refused(program: bytes) -> None:
    def apply() -> None:
        linux.set_no_new_privs()
        linux.apply_seccomp(program)

    with pytest.raises((OSError, ChildDied)):
        in_child(apply)
