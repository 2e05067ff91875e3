"""The state of the installation: sandbox, environments, fleet."""

from collections.abc import Iterator
from dataclasses import dataclass

from toolkiln.model.base import Value


class EnvironmentInfo(Value):
    """Packages that are installed for tools."""

    key: str
    packages: dict[str, str]
    """The version of each package."""
    size: int
    """Bytes."""
    built: float
    """Unix time."""
    last_used: float
    """Unix time."""
    requirements: tuple[tuple[str, ...], ...]
    """The sets of requirements that resolve to it."""


@dataclass(frozen=True, slots=True)
class WorkspaceInfo:
    """A workspace in a listing."""

    session: str
    bytes: int
    files: int
    changed: float
    """Unix time."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export."""

    files: int
    """The number of files copied."""
    left_out: tuple[str, ...]
    """Paths that were skipped, with reasons, printable."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the sandbox, and whether it is active."""

    name: str
    stands: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of testing one sandbox mode."""

    mode: str
    works: bool
    reason: str
    """Why it does not work, or a description of the mode."""
    hint: str = ""
    """How to make the mode work."""
    layers: tuple[Layer, ...] = ()
    visible: tuple[str, ...] = ()
    """Parts of the host that the canary could see in this mode."""


class Diagnosis(Value):
    """Diagnosis of the sandbox."""

    facts: dict[str, str]
    trials: tuple[Trial, ...]
    mode: str | None
    """The mode that calls run in; null if none works."""

    def lines(self) -> Iterator[str]:
        """Yield the diagnosis as lines of text."""
        for name, value in self.facts.items():
            yield f"{name:<12} {value}"
        for trial in self.trials:
            yield ""
            state = "in use" if trial.mode == self.mode else "works" if trial.works else "no"
            yield f"mode {trial.mode}: {state}: {trial.reason}"
            if trial.hint:
                yield f"  hint: {trial.hint}"
            for layer in trial.layers:
                yield f"  {'ok' if layer.stands else 'MISSING':<8} {layer.name:<18} {layer.detail}"
            for item in trial.visible:
                yield f"  {'visible':<8} {item}"
        if self.mode is None:
            yield ""
            yield "no sandbox: calls are rejected; see docs/sandbox.md"


class WorkerStatus(Value):
    """One worker, as it describes itself every few seconds."""

    name: str
    pool: str
    state: str
    """`running`, or `draining` if it takes no more calls."""
    running: int
    """Its current calls."""
    slots: int
    version: str
    host: str
    pid: int
    seconds: float
    """Since it started."""


@dataclass(frozen=True)
class RefusedWorker:
    """A worker that did not start because its keys differ from those of the fleet."""

    host: str
    pool: str
    seconds: float
    """Since then."""
    why: str


class PoolStatus(Value):
    """The calls of one pool."""

    name: str
    waiting: int
    oldest: float
    """Seconds that the first call has been waiting."""
    running: int
    """Calls at workers, including workers that died."""
    dead: int
    """Dead letters."""


class FleetStatus(Value):
    """The current state of a fleet."""

    server: str
    version: str
    """Of Redis."""
    memory: int
    """Bytes that Redis uses."""
    tools: int
    warnings: tuple[str, ...]
    pools: tuple[PoolStatus, ...]
    workers: tuple[WorkerStatus, ...]


class FleetReport(FleetStatus):
    """The current state of a fleet, with workers that did not start."""

    refused: tuple[RefusedWorker, ...] = ()


@dataclass(frozen=True)
class DeadLetter:
    """A call that was given up."""

    id: str
    pool: str
    seconds: float
    """Since then."""
    tool: str
    """Empty if the call cannot be read."""
    call_id: str
    tries: int
    why: str
