"""Ratios of two ways of doing something, measured turn by turn in one process."""

import time
from collections.abc import Callable
from typing import NamedTuple

Work = Callable[[], object]


class Figure(NamedTuple):
    """One line of the report: a measured ratio against the bound that an issue sets."""

    name: str
    measured: str
    bound: str
    holds: bool | None
    """None: it could not be measured."""


def ratio(
    work: Work,
    baseline: Work,
    *,
    rounds: int = 300,
    repeat: int = 5,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """How many times the baseline's time the work takes, both at their best.

    Taking turns, keeping the best of each and counting this process's own time make the
    ratio stand still on a busy machine.
    """
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for index, function in enumerate((work, baseline)):
            started = clock()
            for _ in range(repeat):
                function()
            taken = clock() - started
            if taken > 0:  # the clock of a virtual machine stands still at times
                best[index] = min(best[index], taken)
    return best[0] / best[1]


def at_most(name: str, measured: float, bound: float) -> Figure:
    """A ratio that must not exceed its bound."""
    return Figure(name, f"{measured:.2f} ×", f"≤ {bound:g} ×", measured <= bound)
