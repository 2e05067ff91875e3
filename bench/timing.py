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
    holds: bool


def ratio(work: Work, baseline: Work, *, rounds: int = 300, repeat: int = 5) -> float:
    """How many times the baseline's time the work takes, both at their best.

    Taking turns and keeping the best of each makes the ratio stand still on a busy machine.
    """
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for index, function in enumerate((work, baseline)):
            started = time.perf_counter()
            for _ in range(repeat):
                function()
            best[index] = min(best[index], time.perf_counter() - started)
    return best[0] / best[1]


def at_most(name: str, measured: float, bound: float) -> Figure:
    """A ratio that must not exceed its bound."""
    return Figure(name, f"{measured:.2f} ×", f"≤ {bound:g} ×", measured <= bound)
