"""What guarding costs: an inline call with all of it against the same call with none.

The call needs no approval and no secret. "None" is the same gateway whose guard knows one
caller, allows everything and forgets what happened; the difference is the session look-up,
the rules, the approval check and the audit, with the thread that writes it. And how long a
decision takes under 10,000 rules, against 10, in the shapes that operators write.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.inline import ARGUMENTS, price
from bench.timing import Figure, at_most, ratio
from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.execution.rules import Rules, decide
from toolkiln.model import AuditRecord, Caller, Decision, Rule, ToolSpec

_MOST = 25.0
"""Microseconds."""
_FEW, _MANY = 10, 10_000
_ROUNDS, _CALLS = 20, 2_000


def figures() -> Iterator[Figure]:
    """The processor time of guarding, and of deciding."""
    extra = asyncio.run(_extra())
    yield Figure(
        "guarded inline call / unguarded", f"+{extra:.1f} µs", f"≤ +{_MOST:g} µs", extra <= _MOST
    )
    spec = _spec()
    for shape, rules in _SHAPES.items():
        few, many = (Rules([rules(n) for n in range(count)]) for count in (_FEW, _MANY))
        caller = Caller(user_id="user7", groups=frozenset({"group7", "staff"}))
        measured = ratio(
            lambda rules=many: decide(caller, spec, rules),  # type: ignore[misc]
            lambda rules=few: decide(caller, spec, rules),  # type: ignore[misc]
            repeat=100,
        )
        yield at_most(f"deciding by 10,000 rules / by 10: {shape}", measured, 2)


_SHAPES: dict[str, Any] = {
    "users": lambda n: Rule(effect="deny", users=(f"user{n + 100}",)),
    "groups": lambda n: Rule(effect="deny", groups=(f"group{n + 100}",)),
    "tools": lambda n: Rule(effect="deny", tools=(f"tool_{n}",)),
    "beginnings of names": lambda n: Rule(effect="deny", tools=(f"team{n}_*",)),
    "users and hints": lambda n: Rule(
        effect="allow", users=(f"user{n + 100}",), hints=("read_only",)
    ),
}


class _Unguarded:
    """Stands in for the guard: everybody is one caller, everything is allowed and forgotten."""

    def __init__(self, kiln: Kiln) -> None:
        guard = kiln.guarding.guard
        self._caller = guard.caller_of(kiln.guarding.operator)
        self.settings, self.secrets = guard.settings, guard.secrets
        self.recorder = self
        self.rates = guard.rates

    def known_caller(self, token: str | None, *, running: bool = False) -> Caller:
        return self._caller

    def decide(self, caller: Caller, spec: ToolSpec) -> Decision:
        return _ALLOWED

    async def opened(self) -> None:
        return None

    def begin(self, key: object, started: object) -> None:
        return None

    def end(self, key: object, record: AuditRecord) -> None:
        return None


_ALLOWED = Decision("allow", "")


async def _extra() -> float:
    with tempfile.TemporaryDirectory() as folder:
        rules: Sequence[dict[str, Any]] = [
            {"effect": "deny", "groups": ["guests"], "hints": ["destructive"]},
            {"effect": "allow", "users": ["*"]},
        ]
        settings = Settings(state=Path(folder), rules=tuple(rules), policy="deny")
        async with (
            Kiln(functions=[price], settings=settings) as guarded,
            Kiln(functions=[price], settings=settings) as bare,
        ):
            session = guarded.sessions.create("ann", groups=["staff"], seconds=3600).token
            await bare.call("price", ARGUMENTS)
            bare.engine.gateway._guard = _Unguarded(bare)  # type: ignore[assignment]
            result = await guarded.call("price", ARGUMENTS, session=session)
            assert result.value == {"total": 37.5, "currency": "EUR"}, result.error
            best = [float("inf")] * 2
            for _ in range(_ROUNDS):
                started = time.process_time()
                for _ in range(_CALLS):
                    await guarded.call("price", ARGUMENTS, session=session)
                guarded.guarding.recorder.flush()  # else part of the work would not be counted
                between = time.process_time()
                for _ in range(_CALLS):
                    await bare.call("price", ARGUMENTS)
                taken = between - started, time.process_time() - between
                best = [min(pair) for pair in zip(best, taken, strict=True)]
    return (best[0] - best[1]) / _CALLS * 1e6


def _spec() -> ToolSpec:
    return Kiln(functions=[price]).tool("price")


if __name__ == "__main__":
    for figure in figures():
        print(*figure, sep="  ")
