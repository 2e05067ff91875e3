"""Files that a tool must not reach, and ways around that."""
# mypy: ignore-errors

import ctypes
import os
import socket

from trying import system_call, tried

from toolkiln import tool


@tool
def try_all(how: str, paths: list[str]) -> dict[str, str]:
    """Do the same with many paths."""
    actions = {"read": read_file, "write": write_file, "list": list_folder, "make": make_folder}
    return {path: {**actions, "open": _open_file}[how](path) for path in paths}


def _open_file(path: str) -> str:
    return tried(lambda: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)))


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return tried(lambda: open(path, "rb").read(64))


@tool
def list_folder(path: str) -> str:
    """List a folder."""
    return tried(lambda: os.listdir(path))


@tool
def write_file(path: str) -> str:
    """Write to a file, or make it."""
    return tried(lambda: open(path, "ab", buffering=0).write(b"x"))


@tool
def make_folder(path: str) -> str:
    """Make a folder."""
    return tried(lambda: os.mkdir(path))


@tool
def read_through_link(path: str) -> str:
    """Read a file through a link of one's own."""
    link = os.path.join(os.environ["TMPDIR"], "link")
    os.symlink(path, link)
    return tried(lambda: open(link, "rb").read(64))


@tool
def link_hard(path: str) -> str:
    """Give a file of others another name."""
    return tried(lambda: os.link(path, os.path.join(os.environ["TMPDIR"], "other")))


@tool
def make_set_user_program() -> str:
    """Leave a program that runs as its owner."""
    path = os.path.join(os.environ["TMPDIR"], "program")
    open(path, "wb").close()
    return tried(lambda: os.chmod(path, 0o4755))


@tool
def make_device() -> list[str]:
    """Make device nodes: the machine's memory, a disk."""
    folder = os.environ["TMPDIR"]
    return [
        tried(lambda: os.mknod(f"{folder}/mem", 0o020600, os.makedev(1, 1))),
        tried(lambda: os.mknod(f"{folder}/disk", 0o060600, os.makedev(8, 0))),
    ]


@tool
def change_mode(path: str) -> str:
    """Take a file away from its owner."""
    return tried(lambda: os.chmod(path, 0o777))


@tool
def change_time(path: str) -> str:
    """Make a file look old."""
    return tried(lambda: os.utime(path, (1, 1)))


@tool
def descriptors() -> dict[str, str]:
    """Every descriptor that is open."""
    found = {}
    for number in range(256):
        try:
            found[str(number)] = os.readlink(f"/proc/self/fd/{number}").partition(":")[0]
        except OSError:
            continue
    return found


@tool
def reopen_descriptors() -> list[str]:
    """Open what one has again, for more than one got; a socket cannot be."""
    return [
        tried(lambda: os.open("/proc/self/fd/0", os.O_WRONLY | os.O_TRUNC)),
        tried(lambda: os.open("/proc/self/fd/1", os.O_RDONLY)),
        tried(lambda: os.open("/proc/self/fd/3", os.O_RDWR)),
    ]


@tool
def environment() -> list[str]:
    """Variables of this process and of process 1."""
    names = set(os.environ)
    try:
        with open("/proc/1/environ", "rb") as told:
            names |= {item.partition(b"=")[0].decode() for item in told.read().split(b"\0")}
    except OSError:
        pass
    return sorted(names - {""})


@tool
def which_exist(paths: list[str]) -> list[str]:
    """What there is at all."""
    return [path for path in paths if os.path.lexists(path)]


@tool
def everything_below(path: str) -> list[str]:
    """All files below a folder."""
    return sorted(os.path.join(at, file) for at, _, files in os.walk(path) for file in files)


@tool
def other_processes() -> list[str]:
    """Look into every process there is, but this one."""
    seen = []
    for pid in (*range(1, 300), os.getppid()):
        if pid not in (0, os.getpid()):
            for name in ("mem", "environ", "fd/0", "root/etc/passwd", "cwd/.", "maps"):
                if tried(lambda: os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))) == "done":
                    seen.append(f"{pid}/{name}")
    return seen


@tool
def write_to_kernel() -> dict[str, str]:
    """Files by which root commands the kernel."""
    paths = ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches",
             "/proc/self/oom_score_adj", "/proc/1/oom_score_adj", "/proc/self/uid_map",
             "/proc/self/attr/current", "/proc/self/mem")  # fmt: skip
    return {path: tried(lambda: os.write(os.open(path, os.O_WRONLY), b"0")) for path in paths}


@tool
def receive_nothing() -> str:
    """Wait for descriptors on the call's socket that the host does not send."""
    host = socket.socket(fileno=os.dup(3))
    host.settimeout(0.1)
    try:
        return str(socket.recv_fds(host, 10, 4)[1])
    except OSError as error:
        return type(error).__name__


@tool
def uncover() -> dict[str, str]:
    """Take away the mounts that hide what others have."""
    numbers = {"x86_64": (165, 166, 155, 161), "aarch64": (40, 39, 41, 51)}
    mount, umount, pivot, chroot = numbers[os.uname().machine]
    text = ctypes.c_char_p
    return {
        "umount": system_call(umount, text(b"/kiln"), 2),
        "umount tmp": system_call(umount, text(b"/tmp"), 2),
        "remount": system_call(mount, text(b""), text(b"/tool"), text(b""), 0x1020, text(b"")),
        "bind": system_call(mount, text(b"/"), text(b"/tmp"), text(b""), 0x1000, text(b"")),
        "proc": system_call(mount, text(b"p"), text(b"/tmp"), text(b"proc"), 0, text(b"")),
        "pivot": system_call(pivot, text(b"/tmp"), text(b"/tmp")),
        "chroot": system_call(chroot, text(b"/tmp")),
    }
