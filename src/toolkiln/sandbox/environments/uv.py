"""uv as a child process: resolves and installs packages, reports progress, explains failures.

uv gets its configuration only through arguments and the environment variables for the package
index; it reads no configuration file. It never builds packages and never starts an interpreter
that can see the installed ones: in a virtual environment, the interpreter that compiles bytecode
would run the packages' `.pth` files.
"""

import asyncio
import os
import re
import resource
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import uv

from toolkiln.errors import EnvironmentFailed
from toolkiln.sandbox.environments.folders import FULL_DISK_HINT
from toolkiln.sandbox.environments.quota import Quota, QuotaUsage, too_large

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
if a package's metadata unpacks to gigabytes; `quota` limits the sum."""

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
    # uv's default location, because `quota` must know the cache.
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
        return EnvironmentFailed(f"the disk is full: {text}", hint=FULL_DISK_HINT)
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
