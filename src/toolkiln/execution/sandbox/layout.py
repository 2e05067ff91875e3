"""What a sandbox sees of the host: the arguments that bwrap gets.

    /usr, the interpreter   read-only, as on the host
    /toolkiln               this package's runtime and, under base/, pydantic
    /tool, /env             the tool's version and its packages, read-only
    /workspace              the session's folder, if declared and granted
    /tmp, /dev/shm          empty, sized, gone after the call
    /etc/hosts              the granted hosts, at addresses inside the sandbox
    /kiln                   all versions, environments and workspaces, for the fork server;
                            covered before a call starts

Nothing else of /etc, /home, /run or /sys is there.
"""

import os
import py_compile
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_PUBLIC = ("/etc/ld.so.cache", "/etc/ssl/certs")
"""Public data that programs need: the loader's index, certificate authorities."""
NAME_SERVICES = "hosts: files\n"
"""nsswitch.conf: other names fail at once, without waiting for a name server."""
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",  # noqa: S108
    "TMPDIR": "/tmp",  # noqa: S108
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    # Threads of linear algebra would count as processes, and none survives a fork.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that tools run on: the one below any virtual environment."""

    executable: Path
    prefix: Path

    @property
    def command(self) -> list[str]:
        """Isolated, without site packages, without writing bytecode."""
        return [str(self.executable), "-I", "-S", "-B", "-X", "utf8"]


def interpreter() -> Interpreter:
    """The running interpreter's own base."""
    executable = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    return Interpreter(executable, Path(os.path.realpath(sys.base_prefix)))


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder or file of the host, and where the sandbox sees it."""

    source: Path
    target: str
    writable: bool = False


@cache
def _compile_runtime() -> None:
    """Compile what runs inside, which cannot write its bytecode itself."""
    files = [PACKAGE / "__init__.py", PACKAGE / "define.py", *(PACKAGE / "runtime").glob("*.py")]
    for file in files:
        with suppress(OSError):  # an installation that we may not write is compiled already
            if not _is_compiled(file):
                py_compile.compile(str(file), quiet=2)


def _is_compiled(file: Path) -> bool:
    """Whether there is bytecode that Python would accept for a file: of its time and size."""
    told = file.stat()
    stamp = struct.pack("<II", int(told.st_mtime) & 0xFFFFFFFF, told.st_size & 0xFFFFFFFF)
    try:
        header = Path(cache_from_source(str(file))).read_bytes()[:16]
    except FileNotFoundError:
        return False
    return header == MAGIC_NUMBER + bytes(4) + stamp


def common_binds(python: Interpreter) -> list[Bind]:
    """What every sandbox sees."""
    _compile_runtime()
    binds = [Bind(Path("/usr"), "/usr")]
    binds += [Bind(Path(path), path) for path in _PUBLIC if Path(path).exists()]
    if not python.prefix.is_relative_to("/usr"):
        binds.append(Bind(python.prefix, str(python.prefix)))
    for name in ("__init__.py", "define.py", "runtime", "__pycache__"):
        binds.append(Bind(PACKAGE / name, f"/toolkiln/toolkiln/{name}"))
    binds += [Bind(path, f"/toolkiln/base/{path.name}") for path in base_packages()]
    return binds


@cache
def base_packages() -> tuple[Path, ...]:
    """Pydantic and what it needs, which every tool may import without asking for it."""
    found: dict[str, Path] = {}
    names = ["pydantic"]
    for name in names:
        distribution = metadata.distribution(name)
        for file in distribution.files or ():
            top = file.parts[0]
            if not top.endswith(".dist-info") and top != ".." and top != "__pycache__":
                found[top] = Path(str(distribution.locate_file(top)))
        for line in distribution.requires or ():
            needed = line.split(";")[0].strip()
            plain = needed.split("=")[0].split("<")[0].split(">")[0].split("!")[0].strip()
            if "extra ==" not in line and plain not in names:
                names.append(plain)
    return tuple(found[top] for top in sorted(found))


def bwrap_arguments(
    binds: list[Bind], *, keep_capabilities: bool, files: Mapping[str, int], tmp_bytes: int
) -> list[str]:
    """The options of bwrap, without the command.

    With `keep_capabilities` the process inside can make namespaces for others, which is
    what the fork server does. bwrap reads the content of each of `files` from a descriptor.
    Process 1 is bwrap's, never a tool's: a process can undo its own dying with its parent,
    and kill -9 of bwrap would leave it behind.
    """
    arguments = ["--unshare-user", "--unshare-all", "--die-with-parent", "--new-session"]
    arguments += ["--clearenv", "--hostname", "sandbox", "--uid", "1000", "--gid", "1000"]
    arguments += ["--cap-drop", "ALL"]
    if keep_capabilities:
        for name in ("SYS_ADMIN", "SETPCAP", "NET_ADMIN"):
            arguments += ["--cap-add", f"CAP_{name}"]
    for bind in binds:
        arguments += ["--bind" if bind.writable else "--ro-bind", str(bind.source), bind.target]
    for path, descriptor in files.items():
        arguments += ["--file", str(descriptor), path]
    for name in _LINKS:
        if os.path.islink(f"/{name}"):
            arguments += ["--symlink", f"usr/{name}", f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            arguments += ["--ro-bind", f"/{name}", f"/{name}"]
    arguments += ["--proc", "/proc", "--dev", "/dev"]
    for folder in ("/dev/shm", "/tmp"):  # noqa: S108
        arguments += ["--size", str(tmp_bytes), "--tmpfs", folder]
    for folder in ("/tool", "/env", "/workspace", "/kiln"):
        if not any(bind.target == folder for bind in binds):
            arguments += ["--dir", folder]
    arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
    for name, value in _ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    return arguments


def program(name: str, folder: str = "/toolkiln") -> str:
    """The Python code that starts a program of `runtime`."""
    start = f"import sys; sys.path.insert(0, {folder!r})"
    return f"{start}; from toolkiln.runtime.{name} import main; main()"
