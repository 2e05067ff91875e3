"""What guarding costs: an inline call with all of it against the same call with none.

The call needs no approval and no secret. "None" is the gateway's own way to resolve a
tool, check arguments, run and make a result; the difference is the session look-up, the
rules, the approval check and the audit, with the thread that writes it. And how long a
decision takes under 10,000 rules, against 10, in the shapes that operators write.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.inline import ARGUMENTS, price
from bench.timing import Figure, at_most, ratio
from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.execution.clearance import Clearance, Passage
from toolkiln.execution.guard import Trail
from toolkiln.execution.masking import Mask
from toolkiln.execution.rules import Rules, decide
from toolkiln.execution.tool_settings import Settled
from toolkiln.model import Call, Caller, Event, Result, Rule
from toolkiln.schema import Checked, check

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
    spec = Kiln(functions=[price]).tool("price")
    caller = Caller(user_id="user7", groups=frozenset({"group7", "staff"}))
    for shape, rules in _SHAPES.items():
        few, many = (Rules([rules(n) for n in range(count)]) for count in (_FEW, _MANY))
        measured = ratio(partial(decide, caller, spec, many), partial(decide, caller, spec, few))
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


async def _extra() -> float:
    with tempfile.TemporaryDirectory() as folder:
        rules: Sequence[dict[str, Any]] = [
            {"effect": "deny", "groups": ["guests"], "hints": ["destructive"]},
            {"effect": "allow", "users": ["*"]},
        ]
        settings = Settings(state=Path(folder), rules=tuple(rules), policy="deny")
        async with Kiln(functions=[price], settings=settings) as kiln:
            session = kiln.sessions.create("ann", groups=["staff"], seconds=3600).token
            result = await kiln.call("price", ARGUMENTS, session=session)
            assert result.value == {"total": 37.5, "currency": "EUR"}, result.error
            bare, gateway = _unguarded(kiln, session), kiln.engine.gateway
            best = [float("inf")] * 2
            for _ in range(_ROUNDS):
                started = time.process_time()
                for _ in range(_CALLS):
                    await gateway.call(Call(tool="price", arguments=ARGUMENTS, session=session))
                kiln.guarding.recorder.flush()  # else part of the work would not be counted
                between = time.process_time()
                for _ in range(_CALLS):
                    await bare()
                taken = between - started, time.process_time() - between
                best = [min(pair) for pair in zip(best, taken, strict=True)]
    return (best[0] - best[1]) / _CALLS * 1e6


def _unguarded(kiln: Kiln, session: str) -> Callable[[], Awaitable[Result]]:
    """The same call, of the gateway's own parts, past everything that guards it."""
    gateway, guarding = kiln.engine.gateway, kiln.guarding
    tool, caller = gateway._parts.resolve("price", None), guarding.caller(session)
    decision = guarding.guard.decide(caller, tool.spec)
    nothing = Clearance(Settled(), {})

    async def run() -> Result:
        call = Call(tool="price", arguments=ARGUMENTS, session=session)
        found = gateway._parts.resolve(call.tool, call.digest)
        checked = check(found.spec, call.arguments)
        assert isinstance(checked, Checked)
        passage = Passage(
            call, _unobserved, trail, Mask({}), caller, found, decision,
            checked.arguments, checked.notes,
        )  # fmt: skip
        return await gateway._result(passage, await gateway._execute(passage, nothing))

    trail = Trail(Call(tool="price", arguments=ARGUMENTS))
    return run


def _unobserved(_: Event) -> None:
    pass


if __name__ == "__main__":
    for figure in figures():
        print(*figure, sep="  ")
