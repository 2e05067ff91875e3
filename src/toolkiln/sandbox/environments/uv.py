"""uv as a child process: resolves and installs packages, reports progress, explains failures.

uv gets its configuration only through arguments and the environment variables for the package
index; it reads no configuration file. It never builds packages and never starts an interpreter
that can see the installed ones: in a virtual environment, the interpreter that compiles bytecode
would run the packages' `.pth` files.

A disk quota limits the bytes and files that uv may unpack. The sizes recorded in a wheel are not
trusted: only files on disk count, in uv's cache, where it unpacks each wheel to a new folder
`.tmp…`, and in the environment. A run that exceeds the quota is killed, and the files it unpacked
are removed. Other runs may use the same cache: a folder belongs to the process that has files
open in it.
"""

import asyncio
import fcntl
import os
import re
import resource
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import uv

from toolkiln.errors import EnvironmentFailed
from toolkiln.sandbox.environments import folders

Report = Callable[[str, int | None, int | None], None]
"""Receives the stage, and how many of how many packages are done, if known."""

_PASSED = {
    *("PATH", "HOME", "TMPDIR", "NETRC", "XDG_CACHE_HOME", "XDG_DATA_HOME"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT"),
    *("UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"),
    *("UV_CACHE_DIR", "UV_OFFLINE", "UV_KEYRING_PROVIDER", "UV_CREDENTIALS_DIR"),
    *("UV_HTTP_TIMEOUT", "UV_HTTP_CONNECT_TIMEOUT", "UV_HTTP_RETRIES"),
    *("UV_CONCURRENT_DOWNLOADS", "UV_CONCURRENT_INSTALLS"),
    *("UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "UV_INSECURE_HOST"),
}
"""The only variables passed on: others could disable hashes or add requirements."""
_FROM_PIP = {
    "PIP_INDEX_URL": "UV_INDEX_URL",
    "PIP_EXTRA_INDEX_URL": "UV_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_CERT": "SSL_CERT_FILE",
}
_FIXED = {"NO_COLOR": "1", "UV_NO_WRAP": "1", "UV_PYTHON_DOWNLOADS": "never"}

_LAUNCH = """
import ctypes, os, resource, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
for kind, most in ((resource.RLIMIT_FSIZE, int(sys.argv[2])), (resource.RLIMIT_DATA, 2 << 30)):
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Executes uv, to be killed when the thread that started it ends (PR_SET_PDEATHSIG); exits if
the parent is already gone. The kernel limits the size of each file and the memory, for example
if a package's metadata unpacks to gigabytes; `Quota` limits the sum."""

_QUOTA_HINT = "require smaller packages, or raise the setting `{}`"
_SAMPLES = 20
_CHECK_INTERVAL = 0.05
_MAX_LOG = 64_000
_MAX_MESSAGE = 2_000
_NOISE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[^\S\n ]|[^\n -\U0010ffff]|[\x7f-\x9f]")
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@]+@")
_UNREACHABLE = (
    *("dns error", "tcp connect error", "network was disabled", "network is unreachable"),
    *("operation timed out", "connection refused", "connection reset"),
)
_TOO_LARGE = "(os error 27)"
_FULL_DISK = ("(os error 28)", "(os error 122)", _TOO_LARGE)


@dataclass(frozen=True, slots=True)
class Quota:
    """The maximum size of an environment."""

    bytes: int = 2 << 30
    files: int = 100_000
    """Folders count as files."""


@dataclass(slots=True)
class QuotaUsage:
    """The disk usage of one run of uv."""

    quota: Quota
    cache: Path
    target: Path | None
    """The environment's folder; None while requirements are resolved."""
    _before: set[str] = field(init=False)
    _unpacked: dict[str, tuple[int, int]] = field(init=False, default_factory=dict)
    """Bytes and files of each new folder in the cache, as last measured."""
    _own: set[str] = field(init=False, default_factory=set)
    _foreign: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._before = {path.name for path in self._folders()}

    def check(self, pid: int) -> None:
        """Measure what the uv process has written.

        Raises:
            EnvironmentFailed: the quota is exceeded.
        """
        self._own |= self._opened_by(pid)
        for folder in self._folders():
            if folder.name not in self._before | self._foreign:
                self._unpacked[folder.name] = self._measure(folder)
        if self._excess(self._unpacked.values()):
            with _stopped(pid):  # checking all processes takes as long as unpacking gigabytes
                self._foreign |= self._opened_by_others(pid) - self._own
                # A finished folder that was never seen open by this uv is either foreign or
                # already part of the environment.
                ours = self._own | {path.name for path in self._folders()} - self._foreign
                self._unpacked = {k: v for k, v in self._unpacked.items() if k in ours}
                if excess := self._excess(self._unpacked.values()):
                    raise excess
        if self.target and (excess := self._excess([self._measure(self.target)])):
            raise excess

    def clear(self) -> None:
        """Remove what uv, which has ended, left in its cache."""
        try:
            lock = os.open(self.cache / ".lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return
        try:
            # Every uv process takes this lock shared: if no other has it, all new folders are ours.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left = {path.name for path in self._folders()} - self._before
        except OSError:
            left = self._own
        finally:
            os.close(lock)
        for name in left:
            folders.remove(self.cache / name)

    def _opened_by(self, pid: int) -> set[str]:
        """Return the names of the new folders in which a process has open files."""
        found, prefix = set(), f"{self.cache.resolve()}/"
        try:
            for number in os.listdir(f"/proc/{pid}/fd"):
                path = os.readlink(f"/proc/{pid}/fd/{number}")
                name = path.removeprefix(prefix).partition("/")[0]
                if path.startswith(prefix) and name.startswith(".tmp"):
                    found.add(name)
        except OSError:  # the file was closed or the process ended
            pass
        return found

    def _opened_by_others(self, pid: int) -> set[str]:
        """Return the folders of other uv processes (sampled: small files are open briefly)."""
        found: set[str] = set()
        for _ in range(_SAMPLES):
            for comm in Path("/proc").glob("[0-9]*/comm"):
                try:
                    other = int(comm.parent.name)
                    if other != pid and comm.read_text() == "uv\n":
                        found |= self._opened_by(other)
                except OSError:
                    continue
            time.sleep(0.005)
        return found

    def _folders(self) -> list[Path]:
        return list(self.cache.glob(".tmp*"))

    def _measure(self, top: Path) -> tuple[int, int]:
        return folders.measure(top, self.quota.bytes, self.quota.files)

    def _excess(self, measured: Iterable[tuple[int, int]]) -> EnvironmentFailed | None:
        """Return an error if these bytes and files exceed the quota."""
        size, files = map(sum, zip((0, 0), *measured, strict=True))
        if size > self.quota.bytes:
            return too_large(self.quota)
        if files > self.quota.files:
            return EnvironmentFailed(
                f"the packages have more than {self.quota.files:,} files",
                hint=_QUOTA_HINT.format("environment_files"),
            )
        return None


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    """Stop a process while the block runs; it continues unless the block raises."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    yield
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def too_large(quota: Quota) -> EnvironmentFailed:
    """Return the error for packages that unpack to more bytes than the quota."""
    return EnvironmentFailed(
        f"the packages unpack to more than {quota.bytes:,} bytes",
        hint=_QUOTA_HINT.format("environment_bytes"),
    )


class Installer:
    """uv for the running interpreter, with the operator's environment variables."""

    def __init__(self, environ: Mapping[str, str], folder: Path, quota: Quota) -> None:
        self._folder = folder
        self._quota = quota
        self._environ = _uv_environ(environ, folder)
        self._cache = folder / self._environ["UV_CACHE_DIR"]
        no_index = environ.get("UV_NO_INDEX") or environ.get("PIP_NO_INDEX") or ""
        self._index = ["--no-index"] if no_index.lower() in ("1", "true", "yes", "on") else []

    async def resolve(
        self, requirements: tuple[str, ...], report: Report, *, newest: bool, before: str | None
    ) -> str:
        """Return the text of a lock.

        `newest` upgrades all packages; `before` ignores later uploads.

        Raises:
            EnvironmentFailed: the requirements conflict, or the index is unreachable.
        """
        report("resolving", None, None)
        arguments = ["compile", "--generate-hashes", "--no-header", "--no-annotate"]
        arguments += ["--upgrade"] if newest else []
        arguments += [f"--exclude-newer={before}"] if before else []
        return await self._run([*arguments, "-"], stdin="\n".join(requirements))

    async def install(
        self, lock: Path, target: Path, report: Report, total: int, held: int
    ) -> None:
        """Install the packages of a lock into a folder; uv inherits the descriptor `held`.

        Raises:
            EnvironmentFailed: a file is unavailable or differs from the lock, the packages
                exceed the quota, or the disk is full.
        """
        done = 0

        def on_line(line: str) -> None:
            nonlocal done
            if line.startswith(" Downloaded "):
                done += 1
                report("downloading", done, total)
            elif line.startswith("Prepared "):
                report("installing", 0, total)
            elif line.startswith("Installed "):
                report("compiling", None, None)

        report("downloading", 0, total)
        arguments = ["sync", "--require-hashes", "--link-mode=copy", "--compile-bytecode"]
        arguments += [f"--target={target}", str(lock)]
        await self._run(arguments, on_line=on_line, held=(held,), target=target)

    async def _run(
        self,
        arguments: list[str],
        *,
        stdin: str = "",
        on_line: Callable[[str], None] = lambda _: None,
        held: tuple[int, ...] = (),
        target: Path | None = None,
    ) -> str:
        usage = QuotaUsage(self._quota, self._cache, target)
        process = await self._start(arguments, held)
        watching = asyncio.create_task(_watch(process, usage))
        try:
            return await self._output(process, stdin, on_line, watching)
        finally:
            watching.cancel()
            if process.returncode is None:
                _kill(process)
                await process.wait()
            if process.returncode:
                await asyncio.shield(asyncio.to_thread(usage.clear))

    async def _start(self, arguments: list[str], held: tuple[int, ...]) -> Process:
        command, *options = arguments
        python = sys._base_executable  # type: ignore[attr-defined]
        options = ["--no-build", "--no-config", f"--python={python}", *self._index, *options]
        launch = (python, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), str(self._quota.bytes))
        try:
            return await asyncio.create_subprocess_exec(
                *launch,
                *(uv.find_uv_bin(), "pip", command, *options),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=self._environ,
                cwd=self._folder,
                start_new_session=True,
                pass_fds=held,
            )
        except OSError as error:
            message = f"cannot start uv: {error}"
            raise EnvironmentFailed(message, hint="reinstall toolkiln") from error

    async def _output(
        self,
        process: Process,
        stdin: str,
        on_line: Callable[[str], None],
        watching: "asyncio.Task[None]",
    ) -> str:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        output = asyncio.create_task(process.stdout.read())
        try:
            process.stdin.write(stdin.encode())
            process.stdin.close()
            log = await _read_lines(process.stderr, on_line)
            code = await process.wait()
            await watching  # raises if the quota was exceeded
            if code:
                is_ours = _TOO_LARGE in log and not _is_limited_below(self._quota.bytes)
                raise too_large(self._quota) if is_ours else _failure(log, code)
            return (await output).decode()
        finally:
            output.cancel()


def _is_limited_below(size: int) -> bool:
    return 0 <= resource.getrlimit(resource.RLIMIT_FSIZE)[1] < size


async def _watch(process: Process, usage: QuotaUsage) -> None:
    """Kill uv when it exceeds its quota; check once more after its end."""
    try:
        while process.returncode is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _CHECK_INTERVAL)
            await asyncio.to_thread(usage.check, process.pid)
    except EnvironmentFailed:
        _kill(process)
        raise


def _kill(process: Process) -> None:
    """Kill uv's process group, which includes the workers that compile bytecode."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _uv_environ(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    passed = {
        name: value
        for name, value in environ.items()
        if name.upper() in _PASSED or name.startswith("UV_INDEX_")
    }
    for theirs, ours in _FROM_PIP.items():
        if value := environ.get(theirs):
            separator = "," if ours == "UV_FIND_LINKS" else " "
            passed.setdefault(ours, separator.join(value.split()))
    # uv's default location, because `QuotaUsage` must know the cache.
    if home := passed.get("XDG_CACHE_HOME"):
        usual = Path(home, "uv")
    else:
        usual = Path(passed["HOME"], ".cache/uv") if passed.get("HOME") else folder / "cache"
    if not passed.get("UV_CACHE_DIR"):
        passed["UV_CACHE_DIR"] = str(usual)
    return passed | _FIXED


async def _read_lines(stream: asyncio.StreamReader, on_line: Callable[[str], None]) -> str:
    """Pass on each line as it arrives; return the end of the log."""
    log = line = ""
    while chunk := await stream.read(8192):
        *lines, line = (line + chunk.decode(errors="replace")).split("\n")
        for complete in lines:
            on_line(complete)
            log = f"{log}{complete}\n"[-_MAX_LOG:]
        line = line[-_MAX_LOG:]
    return log + line


def _failure(log: str, code: int) -> EnvironmentFailed:
    _, found, text = f"\n{log}".partition("\nerror: ")
    if not found:
        end = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        last = _sanitise(log)[-300:]
        return EnvironmentFailed(
            f"uv {end}{': ' if last else ''}{last}", hint="try again, and check the free memory"
        )
    lower, text = text.lower(), _sanitise(text)
    if any(sign in lower for sign in _UNREACHABLE):
        message = "no package index is reachable; existing environments continue to work"
        return EnvironmentFailed(f"{message}\n{text}", hint="check the network and the index")
    if any(sign in lower for sign in _FULL_DISK):
        return EnvironmentFailed(f"the disk is full: {text}", hint=folders.FULL_DISK_HINT)
    if "hash mismatch" in lower:
        hint = "the index has a different file than the lock; if that is expected, upgrade"
    elif "building from source is disabled" in lower or "no usable wheels" in lower:
        text = f"source distributions are not built\n{text}"
        hint = "require a version with a wheel for this Python and platform"
    elif "was not found in" in lower:
        hint = "check the name of the package"
    elif "no solution found" in lower:
        hint = "change the requirements of the tool or in requirements.txt"
    else:
        hint = "check the index settings and try again"
    return EnvironmentFailed(text, hint=hint)


def _sanitise(text: str) -> str:
    """Remove control characters and credentials, and limit the length."""
    text = _CREDENTIALS.sub("", _NOISE.sub("", text))
    lines = [line.strip().removeprefix("cause: ") for line in text.split("\n")]
    text = "\n".join(line for line in lines if line)
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"
