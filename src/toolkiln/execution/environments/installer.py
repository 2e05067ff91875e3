"""uv as a child process: resolving and installing, its progress and its failures in our words.

uv is told everything by arguments and by the variables that say how an index is reached;
no configuration file is read. It never builds a package, and never starts an interpreter
that could see what it installs: with a virtual environment, the interpreter that compiles
would run the `.pth` files of the packages. Where things are kept is not decided here.
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
from toolkiln.execution.environments.folders import FULL_DISK_HINT
from toolkiln.execution.environments.quota import Quota, Usage, too_large

Report = Callable[[str, int | None, int | None], None]
"""Told the stage, and how many packages of how many are through it where that is known."""

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
"""A list of what passes, because other variables switch off hashes or add requirements."""
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
"""Become uv, to be killed when the thread that started it ends (PR_SET_PDEATHSIG), however that
comes about; a parent that is gone already would send no signal. The kernel bounds each file and
the memory, for example where a package's metadata unpack to gigabytes; `quota` bounds the sum."""

_CHECKED_EVERY = 0.05
"""Seconds between two looks at what uv has written."""

_KEPT = 64_000
"""Characters of uv's talk that are looked at."""
_LONGEST = 2_000
"""Characters of an explanation."""
_NOISE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[^\S\n ]|[^\n -\U0010ffff]|[\x7f-\x9f]")
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@]+@")
_UNREACHABLE = (
    *("dns error", "tcp connect error", "network was disabled", "network is unreachable"),
    *("operation timed out", "connection refused", "connection reset"),
)
_TOO_LARGE = "(os error 27)"
_FULL_DISK = ("(os error 28)", "(os error 122)", _TOO_LARGE)


class Installer:
    """uv, for the interpreter that runs us, with the variables an operator set."""

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
        """The text of a lock; `newest` asks the index again, `before` leaves out later uploads.

        Raises:
            EnvironmentFailed: they cannot be had together, or no index was reached.
        """
        report("resolving", None, None)
        arguments = ["compile", "--generate-hashes", "--no-header", "--no-annotate"]
        arguments += ["--upgrade"] if newest else []
        arguments += [f"--exclude-newer={before}"] if before else []
        return await self._run([*arguments, "-"], stdin="\n".join(requirements))

    async def install(
        self, lock: Path, target: Path, report: Report, total: int, held: int
    ) -> None:
        """Put the files of a lock into a folder; `held` stays open as long as anyone writes.

        Raises:
            EnvironmentFailed: a file is not to be had, is not the one that was locked, the
                packages exceed the quota, or the disk is full.
        """
        done = 0

        def follow(line: str) -> None:
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
        await self._run(arguments, follow=follow, held=(held,), target=target)

    async def _run(
        self,
        arguments: list[str],
        *,
        stdin: str = "",
        follow: Callable[[str], None] = lambda _: None,
        held: tuple[int, ...] = (),
        target: Path | None = None,
    ) -> str:
        usage = Usage(self._quota, self._cache, target)
        process = await self._start(arguments, held)
        watching = asyncio.create_task(_watch(process, usage))
        try:
            return await self._output(process, stdin, follow, watching)
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
            message = f"uv cannot be started: {error}"
            raise EnvironmentFailed(message, hint="install toolkiln again") from error

    async def _output(
        self,
        process: Process,
        stdin: str,
        follow: Callable[[str], None],
        watching: "asyncio.Task[None]",
    ) -> str:
        """Return what uv prints; raise what it failed with."""
        assert process.stdin
        assert process.stdout
        assert process.stderr
        output = asyncio.create_task(process.stdout.read())
        try:
            process.stdin.write(stdin.encode())
            process.stdin.close()
            talk = await _read_lines(process.stderr, follow)
            code = await process.wait()
            await watching  # raises if the packages were too large
            if code:
                is_ours = _TOO_LARGE in talk and not _is_limited_below(self._quota.bytes)
                raise too_large(self._quota) if is_ours else _explained(talk, code)
            return (await output).decode()
        finally:
            output.cancel()


def _is_limited_below(size: int) -> bool:
    """Return whether this process may only write files that are smaller than that."""
    return 0 <= resource.getrlimit(resource.RLIMIT_FSIZE)[1] < size


async def _watch(process: Process, usage: Usage) -> None:
    """Kill uv when it exceeds its quota; look once more when it has ended."""
    try:
        while process.returncode is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _CHECKED_EVERY)
            await asyncio.to_thread(usage.check, process.pid)
    except EnvironmentFailed:
        _kill(process)
        raise


def _kill(process: Process) -> None:
    """End all of uv's session: it has workers that compile."""
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
    # Where uv would keep its cache by itself: the quota has to know the place.
    if home := passed.get("XDG_CACHE_HOME"):
        usual = Path(home, "uv")
    else:
        usual = Path(passed["HOME"], ".cache/uv") if passed.get("HOME") else folder / "cache"
    if not passed.get("UV_CACHE_DIR"):
        passed["UV_CACHE_DIR"] = str(usual)
    return passed | _FIXED


async def _read_lines(stream: asyncio.StreamReader, follow: Callable[[str], None]) -> str:
    """The end of what is said, each line handed on as it comes."""
    talk = line = ""
    while chunk := await stream.read(8192):
        *lines, line = (line + chunk.decode(errors="replace")).split("\n")
        for complete in lines:
            follow(complete)
            talk = f"{talk}{complete}\n"[-_KEPT:]
        line = line[-_KEPT:]
    return talk + line


def _explained(talk: str, code: int) -> EnvironmentFailed:
    """uv's failure: its own explanation, and what to do about it."""
    _, found, text = f"\n{talk}".partition("\nerror: ")
    if not found:
        end = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        last = _cleaned(talk)[-300:]
        return EnvironmentFailed(
            f"uv {end}{': ' if last else ''}{last}", hint="try again; is there enough memory?"
        )
    said, text = text.lower(), _cleaned(text)
    if any(sign in said for sign in _UNREACHABLE):
        message = "no package index can be reached; environments built earlier go on working"
        return EnvironmentFailed(f"{message}\n{text}", hint="check the network and the index")
    if any(sign in said for sign in _FULL_DISK):
        return EnvironmentFailed(f"the disk is full: {text}", hint=FULL_DISK_HINT)
    if "hash mismatch" in said:
        hint = "the index offers another file than was locked; if that is meant, upgrade"
    elif "building from source is disabled" in said or "no usable wheels" in said:
        text = f"source distributions are not built\n{text}"
        hint = "require a version that has a wheel for this Python and platform"
    elif "was not found in" in said:
        hint = "check the name of the package"
    elif "no solution found" in said:
        hint = "change what the tool or requirements.txt asks for"
    else:
        hint = "check the settings of the index and try again"
    return EnvironmentFailed(text, hint=hint)


def _cleaned(text: str) -> str:
    """Text from others, for a terminal: no control characters, credentials, endless length."""
    text = _CREDENTIALS.sub("", _NOISE.sub("", text))
    lines = [line.strip().removeprefix("cause: ") for line in text.split("\n")]
    text = "\n".join(line for line in lines if line)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
