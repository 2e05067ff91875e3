"""What a call may use: the tool's wishes, the operator's maxima, the caller's patience."""

from typing import TypeVar

from toolkiln.execution.executor import Bounds
from toolkiln.model import Limits

T = TypeVar("T", int, float)

MAXIMA = Bounds(timeout=600.0, memory=4 << 30, cpu=600.0, processes=256, disk=1 << 30)
"""What tools may ask for unless an operator says otherwise."""
_DEFAULTS = Bounds()


def bounds_of(limits: Limits, maxima: Bounds, patience: float | None) -> Bounds:
    """The smaller of what is asked for and what is allowed, for each kind."""
    timeout = min(_either(limits.timeout, _DEFAULTS.timeout), maxima.timeout)
    if patience is not None:
        timeout = min(timeout, patience)
    return Bounds(
        timeout=timeout,
        memory=min(_either(limits.memory, _DEFAULTS.memory), maxima.memory),
        cpu=min(_either(limits.cpu, _either(limits.timeout, _DEFAULTS.timeout)), maxima.cpu),
        processes=min(_either(limits.processes, _DEFAULTS.processes), maxima.processes),
        disk=min(_either(limits.disk, _DEFAULTS.disk), maxima.disk),
    )


def _either(wished: T | None, otherwise: T) -> T:
    return otherwise if wished is None else wished
