"""The one door to execution: every surface, nested call and worker goes through it.

`Gateway.call` is the whole way of a call, in order: resolve, check, allow, execute,
classify, limit, record. It never raises for what a caller or a tool does; each call ends
in exactly one Result. What runs a call is an executor's business.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from toolkiln.errors import InputError, ToolkilnError, UnknownTool
from toolkiln.execution.bounds import bounds_of
from toolkiln.execution.environments import Environments
from toolkiln.execution.executor import (
    Admitted,
    Bounds,
    Executor,
    Invocation,
    Outcome,
)
from toolkiln.execution.memory import Memory
from toolkiln.execution.network import granted
from toolkiln.execution.output import limited
from toolkiln.execution.policy import refusal
from toolkiln.execution.workspaces import Workspaces
from toolkiln.model import Call, Caller, CallError, Event, Result, Status, Timing, Truncation
from toolkiln.schema import Problems, check

_log = logging.getLogger(__name__)
_DEEPEST = 8
"""Calls within calls."""
_REMEMBERED = 1024
_MOST_NESTED = 200
"""Calls that one call may make."""


def _unobserved(event: Event) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Parts:
    """What the gateway puts together."""

    resolve: Callable[[str, str | None], Admitted]
    """A tool by name and, if given, digest. Raises InputError."""
    inline: Executor
    sandbox: Executor
    """For tools that come from files."""
    environments: Environments
    workspaces: Workspaces
    memory: Memory
    maxima: Bounds
    requirements: Callable[[Admitted], Iterable[str]]
    """What a tool's environment holds. Raises InputError."""


class Gateway:
    """Runs calls."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._usual: dict[int, tuple[Admitted, Bounds]] = {}

    async def call(self, call: Call, observe: Callable[[Event], None] = _unobserved) -> Result:
        """Run one call to its one Result."""
        started = time.time()
        try:
            tool = self._parts.resolve(call.tool, call.digest)
        except InputError as error:
            return _refused(call, started, Status.INVALID, _as_call_error(error))
        checked = check(tool.spec, {} if call.arguments is None else call.arguments)
        if isinstance(checked, Problems):
            return _refused(call, started, Status.INVALID, _invalid(checked), tool)
        if tool.function is None and (unsendable := _unsendable(call.caller)):
            return _refused(call, started, Status.INVALID, unsendable, tool)
        denied = refusal(tool)
        if denied is not None:
            return _refused(call, started, Status.DENIED, denied, tool)

        latest = ""

        def watch(event: Event) -> None:
            nonlocal latest
            if event.kind == "progress":
                latest = event.described
            try:
                observe(event)
            except Exception:  # noqa: BLE001 - the observer's own fault; the call goes on
                _log.exception("an event of %s could not be observed", tool.spec.name)

        async def run() -> Result:
            try:
                outcome = await self._execute(call, tool, checked.arguments, watch)
            except ToolkilnError as error:
                return _refused(call, started, Status.UNAVAILABLE, _as_call_error(error), tool)
            except OSError as error:  # no descriptors, no memory: this process's, not the tool's
                failed = CallError(
                    code="backend_failed", message=f"the platform failed: {error}", retryable=True
                )
                return _refused(call, started, Status.UNAVAILABLE, failed, tool)
            return await self._result(call, tool, checked.notes, outcome, started)

        if not call.remember:
            return await run()
        return await self._parts.memory.once(
            call, tool.spec, checked.arguments, run, lambda: latest
        )

    async def call_many(
        self, calls: Sequence[Call], observe: Callable[[Event], None] = _unobserved
    ) -> list[Result]:
        """Run calls in order, neighbours that are parallel-safe together, the others alone."""
        results: list[Result] = []
        for together, group in groupby(calls, self._is_parallel):
            if together:
                results += await asyncio.gather(*(self.call(call, observe) for call in group))
            else:
                results += [await self.call(call, observe) for call in group]
        return results

    def _is_parallel(self, call: Call) -> bool:
        try:
            return self._parts.resolve(call.tool, call.digest).spec.parallel
        except InputError:
            return True  # it ends at once

    async def _execute(
        self,
        call: Call,
        tool: Admitted,
        arguments: dict[str, Any],
        observe: Callable[[Event], None],
    ) -> Outcome:
        parts, spec = self._parts, tool.spec
        bounds = self._bounds(tool, call.timeout)
        if tool.function is not None:
            invocation = Invocation(
                tool, arguments, call.caller, bounds,
                nested=self._nested(call, bounds) if spec.injected else None, observe=observe,
            )  # fmt: skip
            return await parts.inline.run(invocation)
        rights = spec.rights
        workspace = None
        if rights.workspace:
            workspace = await asyncio.to_thread(
                parts.workspaces.open, call.caller.session, writable=rights.workspace == "write"
            )

        def report(stage: str, done: int | None, total: int | None) -> None:
            observe(Event(kind="progress", text=f"environment: {stage}", done=done, total=total))

        needed = parts.requirements(tool)
        async with parts.environments.use(needed, report) as environment:
            return await parts.sandbox.run(
                Invocation(
                    tool,
                    arguments,
                    call.caller,
                    bounds,
                    site=environment.site if environment else None,
                    network=granted(rights.network, tool.grant.network),
                    workspace=workspace,
                    nested=self._nested(call, bounds),
                    is_nested=call.depth > 0,
                    observe=observe,
                )
            )

    def _bounds(self, tool: Admitted, patience: float | None) -> Bounds:
        if patience is not None:
            return bounds_of(tool.spec.limits, self._parts.maxima, patience)
        known = self._usual.get(id(tool))
        if known is None:
            if len(self._usual) >= _REMEMBERED:
                self._usual.clear()
            known = tool, bounds_of(tool.spec.limits, self._parts.maxima, None)
            self._usual[id(tool)] = known  # with the tool, so that no other gets its id
        return known[1]

    def _nested(self, call: Call, bounds: Bounds) -> Callable[[str, Any], Awaitable[Result]]:
        """A door for the tool itself, with the caller's rights and what is left of the time."""
        deadline = time.monotonic() + bounds.timeout
        made = 0

        async def nested(tool: str, arguments: Any) -> Result:
            nonlocal made
            made += 1
            inner = Call(
                tool=tool,
                arguments=arguments,
                caller=call.caller,
                parent=call.id,
                depth=call.depth + 1,
                timeout=max(0.01, deadline - time.monotonic()),
            )
            if inner.depth > _DEEPEST or made > _MOST_NESTED:
                bound = f"{_DEEPEST} deep" if inner.depth > _DEEPEST else f"{_MOST_NESTED} in all"
                error = CallError(code="nesting_limit", message=f"calls within calls: {bound}")
                return _refused(inner, time.time(), Status.DENIED, error)
            return await self.call(inner)

        return nested

    async def _result(
        self,
        call: Call,
        tool: Admitted,
        notes: tuple[str, ...],
        outcome: Outcome,
        started: float,
    ) -> Result:
        shown = limited(outcome, tool.spec)
        truncation = None
        all_notes = (*notes, *outcome.notes)
        if shown.full is not None:
            handle, trouble = await self._parts.memory.keep(call.caller, shown.full)
            all_notes += trouble
            truncation = Truncation(shown=shown.shown, total=shown.total, handle=handle)
        return Result(
            call_id=call.id,
            tool=tool.spec.name,
            digest=tool.spec.digest,
            status=outcome.status,
            value=outcome.value,
            text=shown.text,
            stdout=outcome.stdout,
            stderr=outcome.stderr,
            error=outcome.error,
            notes=all_notes,
            files=tuple(outcome.files),
            messages=tuple(outcome.messages),
            injected_tools=tuple(outcome.injected_tools),
            truncation=truncation,
            sandbox=outcome.sandbox,
            timing=Timing(
                started=started,
                duration=time.time() - started,
                cpu=outcome.cpu,
                memory=outcome.memory,
            ),
        )


def _refused(
    call: Call, started: float, status: Status, error: CallError, tool: Admitted | None = None
) -> Result:
    """A result of a call that did not run."""
    text = f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")
    return Result(
        call_id=call.id,
        tool=call.tool,
        digest=tool.spec.digest if tool else call.digest,
        status=status,
        error=error,
        text=text,
        timing=Timing(started=started, duration=time.time() - started),
    )


def _as_call_error(error: ToolkilnError) -> CallError:
    return CallError(
        code=error.code,
        message=error.message,
        hint=error.hint,
        retryable=not isinstance(error, InputError | UnknownTool),
    )


def _unsendable(caller: Caller) -> CallError | None:
    """Why what a tool may know of its caller cannot be told to a sandbox."""
    told = [caller.user_id, caller.agent_id, caller.agent_state]
    try:
        json.dumps(told, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return CallError(code="invalid_caller", message=f"the caller is not plain JSON: {error}")
    return None


def _invalid(problems: Problems) -> CallError:
    found = problems.problems
    lines = [problem.message for problem in found]
    hint = next((problem.hint for problem in found if getattr(problem, "hint", None)), None)
    return CallError(code="invalid_arguments", message="\n".join(lines), hint=hint)
