"""Cost of the security checks: an inline call with all of them against one with none.

The call needs no approval and no secret. The unguarded call uses the gateway's own steps to
resolve the tool, check arguments, run and build the result; the difference is the session
lookup, the rules, the approval check and the audit, including its writer thread. Also: a
repeated decision under 10,000 rules against 10, and a first decision under 1,000 rules, for
the kinds of rules operators write.
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
from toolkiln.execution.call_events import RunningCall
from toolkiln.execution.preflight import CallInputs, PreparedCall
from toolkiln.model.call import Call, Result
from toolkiln.model.identity import Caller
from toolkiln.model.policy import Rule
from toolkiln.model.spec import ToolSpec
from toolkiln.schema.arguments import Checked, check
from toolkiln.security.rules import Rules
from toolkiln.security.tool_settings import CallSettings

_MOST = 25.0
"""Microseconds."""
_FEW, _MANY = 10, 10_000
_FIRST_RULES, _MOST_FIRST = 1_000, 1_000.0
"""Rules, and microseconds for a decision that is not cached."""
_ROUNDS, _CALLS = 20, 2_000


def figures() -> Iterator[Figure]:
    """Measure the processor time of the checks and of policy decisions."""
    extra = asyncio.run(_extra())
    yield Figure(
        "guarded inline call / unguarded", f"+{extra:.1f} µs", f"≤ +{_MOST:g} µs", extra <= _MOST
    )
    spec = Kiln(functions=[price]).tool("price")
    caller = Caller(user_id="user7", groups=frozenset({"group7", "staff"}))
    for shape, rules in _SHAPES.items():
        few, many = (Rules([rules(n) for n in range(count)]) for count in (_FEW, _MANY))
        measured = ratio(partial(many.decide, caller, spec), partial(few.decide, caller, spec))
        yield at_most(f"deciding by 10,000 rules / by 10: {shape}", measured, 2)
    slowest = max(_first_decision(rules, spec) for rules in _SHAPES.values())
    yield Figure(
        "first decision by 1,000 rules, slowest kind",
        f"{slowest:.0f} µs",
        f"≤ {_MOST_FIRST:g} µs",
        slowest <= _MOST_FIRST,
    )


def _first_decision(rule: Callable[[int], Rule], spec: ToolSpec) -> float:
    rules = Rules([rule(n) for n in range(_FIRST_RULES)])
    best = float("inf")
    for number in range(100):
        caller = Caller(user_id=f"first{number}", groups=frozenset({"group7", "staff"}))
        started = time.process_time()
        rules.decide(caller, spec)
        best = min(best, time.process_time() - started)
    return best * 1e6


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
            session = kiln.security.sessions.create("ann", groups=["staff"], seconds=3600).token
            result = await kiln.call("price", ARGUMENTS, session=session)
            assert result.value == {"total": 37.5, "currency": "EUR"}, result.error
            bare, gateway = _unguarded(kiln, session), kiln.engine.gateway
            best = [float("inf")] * 2
            for _ in range(_ROUNDS):
                started = time.process_time()
                for _ in range(_CALLS):
                    await gateway.call(Call(tool="price", arguments=ARGUMENTS, session=session))
                kiln.security.recorder.flush()  # else part of the work would not be counted
                between = time.process_time()
                for _ in range(_CALLS):
                    await bare()
                taken = between - started, time.process_time() - between
                best = [min(pair) for pair in zip(best, taken, strict=True)]
    return (best[0] - best[1]) / _CALLS * 1e6


def _unguarded(kiln: Kiln, session: str) -> Callable[[], Awaitable[Result]]:
    """Return the same call, made from the gateway's own steps without any security check."""
    gateway, security = kiln.engine.gateway, kiln.security
    tool, caller = gateway._parts.resolve("price", None), security.caller(session)
    decision = security.guard.decide(caller, tool.spec)
    nothing = CallInputs(CallSettings(), {})

    async def run() -> Result:
        call = Call(tool="price", arguments=ARGUMENTS, session=session)
        found = gateway._parts.resolve(call.tool, call.digest)
        checked = check(found.spec, call.arguments)
        assert isinstance(checked, Checked)
        prepared = PreparedCall(running, caller, found, decision, checked.arguments, checked.notes)
        return await gateway._result(prepared, await gateway._execute(prepared, nothing))

    running = RunningCall(Call(tool="price", arguments=ARGUMENTS))
    return run


if __name__ == "__main__":
    for figure in figures():
        print(*figure, sep="  ")
