"""What this machine offers: every mode tried out, every layer looked at, in plain words."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from toolkiln.execution.sandbox.cgroups import find_cgroup
from toolkiln.execution.sandbox.launching import find_bwrap, sandbox_user
from toolkiln.execution.sandbox.layout import interpreter
from toolkiln.execution.sandbox.selection import MODES, Trial, attempt
from toolkiln.model import Value
from toolkiln.runtime import landlock


class Diagnosis(Value):
    """What was found."""

    facts: dict[str, str]
    trials: tuple[Trial, ...]
    mode: str | None
    """The mode that calls run in; None if there is none."""

    def lines(self) -> Iterator[str]:
        """The diagnosis for a person."""
        for name, value in self.facts.items():
            yield f"{name:<12} {value}"
        for trial in self.trials:
            yield ""
            mark = "in use" if trial.mode == self.mode else "works" if trial.works else "no"
            yield f"mode {trial.mode}: {mark}: {trial.reason}"
            if trial.hint:
                yield f"  hint: {trial.hint}"
            for layer in trial.layers:
                yield f"  {'ok' if layer.stands else 'MISSING':<8} {layer.name:<18} {layer.detail}"
            for what in trial.visible:
                yield f"  {'visible':<8} {what}"
        if self.mode is None:
            yield ""
            yield "no sandbox: calls are refused; see docs/sandbox.md"


async def diagnose(state: Path, *, wanted: str, allow_reduced: bool) -> Diagnosis:
    """Try every mode."""
    trials = tuple([await attempt(mode, state, with_network=True) for mode in MODES])
    allowed = [wanted] if wanted in MODES else ["A", "B", *(["C"] if allow_reduced else [])]
    mode = next((t.mode for t in trials if t.works and t.mode in allowed), None)
    return Diagnosis(facts=await _facts(), trials=trials, mode=mode)


async def _facts() -> dict[str, str]:
    cgroup, python = find_cgroup(), interpreter()
    await cgroup.close()
    version = landlock.abi()
    alone = "" if cgroup.version else "; memory is bounded for each process only"
    return {
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": str(python.executable),
        "user": _user(),
        "bwrap": str(find_bwrap() or "not found"),
        "landlock": f"version {version}" if version else "not offered by this kernel",
        "cgroups": f"{cgroup.why}{alone}",
    }


def _user() -> str:
    if os.geteuid() != 0:
        return f"uid {os.geteuid()}"
    if (user := sandbox_user()) is not None:
        return f"root; calls run as uid {user}"
    return "root of a user namespace that cannot become another user; calls run as the same user"
