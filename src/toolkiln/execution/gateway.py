"""The one door to execution: every surface, nested call, background task and worker.

`Gateway.call` is the whole way of a call, in order: session, tool, rules, arguments,
rights, rate, approval, record, secrets, run, mask, limit, record. It never raises for what
a caller or a tool does; each call ends in exactly one Result and leaves a record. Who may
do what is the `guard`'s business, what runs a call an executor's.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from toolkiln.errors import InputError, NotAllowed, ToolkilnError, UnknownTool, nearest_hint
from toolkiln.execution.acting import SESSION
from toolkiln.execution.approval_function import wants_approval
from toolkiln.execution.asking import Asker, Asking
from toolkiln.execution.bounds import bounds_of
from toolkiln.execution.clearance import (
    PLAIN,
    Clearance,
    Passage,
    Refused,
    asks_nothing,
    cleared,
    not_allowed,
    rightful_secrets,
    unsendable,
)
from toolkiln.execution.clock import Clock
from toolkiln.execution.concealing import ConcealedEvents, conceal
from toolkiln.execution.elsewhere import Elsewhere
from toolkiln.execution.environments import Environments
from toolkiln.execution.executor import Admitted, Bounds, Executor, Invocation, Outcome
from toolkiln.execution.guard import NO_MASK, Guard, Trail
from toolkiln.execution.masking import Mask
from toolkiln.execution.memory import Memory
from toolkiln.execution.network import granted
from toolkiln.execution.observing import Observe, careful
from toolkiln.execution.output import limited
from toolkiln.execution.results import as_call_error, invalid, refused
from toolkiln.execution.secrets import resolved
from toolkiln.execution.sessions import NoSession
from toolkiln.execution.watching import Watch
from toolkiln.execution.workspaces import Workspaces
from toolkiln.model import (
    Call,
    Caller,
    CallError,
    Event,
    Result,
    Status,
    Timing,
    ToolSpec,
    Truncation,
    unobserved,
)
from toolkiln.schema import Problems, check, is_quick

_DEEPEST = 8
"""Calls within calls."""
_REMEMBERED = 1024
_MOST_NESTED = 200
"""Calls that one call may make."""

Ending = Callable[[ToolSpec | None, Result | None], None]
"""Told how a call ended: its tool, None if there is no such; its Result, None if cancelled."""
Listener = Callable[[Call], Ending]
"""Told of every call when it begins."""


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
    guard: Guard
    names: Callable[[Callable[[ToolSpec], bool]], list[str]]
    """The tools that a predicate on specs lets through, for hints."""
    told: Callable[[Result, Caller], Result]
    """A result as a caller may know it, who may not know of every tool."""
    elsewhere: Elsewhere | None = None


class Gateway:
    """Runs calls."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._guard = parts.guard
        self._usual: dict[int, tuple[Admitted, Bounds]] = {}
        self._listeners: tuple[Listener, ...] = ()
        self._watch: Watch | None = None
        self._unnamed: ToolSpec | None = None

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Have a function told of every call, nested ones too; what is returned ends that.

        It runs in the task of the call, must not wait and must not raise.
        """
        self._listeners = (*self._listeners, listener)

        def forget() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return forget

    def watch(self, watch: Watch | None) -> None:
        """Have one function watch every call from here on, nested ones too; None: no longer."""
        self._watch = watch

    def beside(self, tool: Admitted) -> "Gateway":
        """A door through which one more tool can be called, by its name, beside all others.

        Listeners hear of its calls, and not of the tool: its caller made it up, name and all.
        """
        others = self._parts.resolve

        def resolve(name: str, digest: str | None) -> Admitted:
            return tool if name == tool.spec.name else others(name, digest)

        made = Gateway(replace(self._parts, resolve=resolve))
        made._listeners, made._watch, made._unnamed = self._listeners, self._watch, tool.spec
        return made

    async def call(
        self, call: Call, observe: Observe = unobserved, asking: Asking | None = None
    ) -> Result:
        """Run one call to its one Result, for whoever its session says."""
        if call.depth or call.parent:  # only the gateway itself knows which call made another
            call = call.model_copy(update={"depth": 0, "parent": None})
        return await self._recorded(call, observe, NO_MASK, asking)

    async def call_many(self, calls: Sequence[Call], observe: Observe = unobserved) -> list[Result]:
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
        except ToolkilnError:
            return True  # it ends at once

    async def _recorded(
        self, call: Call, observe: Observe, outer_mask: Mask, asking: Asking | None
    ) -> Result:
        """Pass a call through, and record what came of it, whatever that is."""
        trail, recorder = Trail(call, outer_mask), self._guard.recorder
        endings = [listener(call) for listener in self._listeners]
        watched = None if self._watch is None else self._watch(trail)
        heard = observe if watched is None else watched.observing(observe)
        is_recorded = False
        result: Result | None = None
        try:
            elsewhere = self._parts.elsewhere
            if elsewhere is not None and (spec := elsewhere.spec(call)) is not None:
                trail.spec = spec
                if asking is not None and outer_mask:
                    asking = asking.masked(outer_mask)
                # What nobody but a book would hear of is not sent through a fleet.
                told = unobserved if observe is unobserved else heard
                result = await elsewhere.call(call, spec, told, asking)
                if result is not None:
                    return result
            if recorder.must_wait:
                await recorder.caught_up()
            recorder.begin(trail, trail.started)
            is_recorded = True
            result = await self._passed(call, heard, trail, outer_mask, asking)
            return result
        except Refused as end:
            result = refused(call, trail.at, end.status, end.error, end.tool)
            return result
        except NotAllowed as error:
            result = refused(call, trail.at, Status.DENIED, as_call_error(error))
            return result
        except ToolkilnError as error:  # what cannot be recorded, above all, does not happen
            result = refused(call, trail.at, Status.UNAVAILABLE, as_call_error(error))
            return result
        except asyncio.CancelledError:
            if watched is None or (why := watched.stopped()) is None:
                raise
            result = refused(call, trail.at, Status.CANCELLED, why)
            return result
        finally:
            if is_recorded or watched is not None:
                record = trail.ended(result)
                if is_recorded:
                    recorder.end(trail, record)
                if watched is not None:
                    watched.end(record, result)
            for ending in endings:
                ending(None if trail.spec is self._unnamed else trail.spec, result)

    async def _passed(
        self, call: Call, observe: Observe, trail: Trail, outer_mask: Mask, asking: Asking | None
    ) -> Result:
        caller = trail.caller = self._guard.known_caller(
            call.session, running=call.depth > 0
        ) or await self._caller(call)
        tool = self._resolve(call, caller)
        trail.resolved(tool)
        decision = self._guard.decide(caller, tool.spec)
        if decision.effect == "deny":
            raise Refused(Status.DENIED, not_allowed(call.tool, decision), tool)
        arguments = {} if call.arguments is None else call.arguments
        if is_quick(tool.spec, arguments):
            checked = check(tool.spec, arguments)
        else:
            checked = await asyncio.to_thread(check, tool.spec, arguments)
        if isinstance(checked, Problems):
            raise Refused(Status.INVALID, invalid(checked), tool)
        if tool.function is None and (unsent := unsendable(caller)):
            raise Refused(Status.INVALID, unsent, tool)
        passage = Passage(
            call, observe, trail, outer_mask, caller, tool, decision,
            checked.arguments, checked.notes, asking,
        )  # fmt: skip
        if observe is not unobserved:
            passage.observe = careful(observe, call.tool)
        if not call.remember:
            return await self._run(passage)
        return await self._once(passage)

    async def _once(self, passage: Passage) -> Result:
        """Run a call under an id that its caller may use again."""
        rightful_secrets(passage)  # a call without the rights to run takes no id
        latest = ""
        observe = passage.observe

        def watch(event: Event) -> None:
            nonlocal latest
            if event.kind == "progress":
                latest = event.described
            observe(event)

        async def run() -> Result:
            try:
                return await self._run(passage)
            except Refused as end:
                return refused(passage.call, passage.trail.at, end.status, end.error, end.tool)

        passage.observe = watch
        return await self._parts.memory.once(
            passage.call, passage.caller, (passage.tool.spec, passage.arguments), run,
            lambda: latest,
        )  # fmt: skip

    async def _caller(self, call: Call) -> Caller:
        try:
            return await self._guard.caller(call.session, running=call.depth > 0)
        except NoSession as error:
            raise Refused(Status.DENIED, as_call_error(error)) from None
        except ToolkilnError as error:
            raise Refused(Status.UNAVAILABLE, as_call_error(error)) from None

    def _resolve(self, call: Call, caller: Caller) -> Admitted:
        try:
            return self._parts.resolve(call.tool, call.digest)
        except UnknownTool as error:
            # The nearest names are those that this caller may know of.
            known = self._parts.names(lambda spec: self._guard.may_see(caller, spec))
            hidden = CallError(
                code=error.code, message=error.message, hint=nearest_hint(call.tool, known)
            )
            raise Refused(Status.INVALID, hidden) from None
        except InputError as error:
            raise Refused(Status.INVALID, as_call_error(error)) from None

    async def _run(self, passage: Passage) -> Result:
        tool = passage.tool
        try:
            clearance = PLAIN
            if not asks_nothing(self._guard, passage):
                clearance = await cleared(self._guard, passage, self._asks)
            outcome = await self._execute(passage, clearance)
        except ToolkilnError as error:
            raise Refused(Status.UNAVAILABLE, as_call_error(error), tool) from None
        except OSError as error:  # no descriptors, no memory: this process's, not the tool's
            failed = CallError(
                code="backend_failed", message=f"the platform failed: {error}", retryable=True
            )
            raise Refused(Status.UNAVAILABLE, failed, tool) from None
        return await self._result(passage, outcome)

    async def _asks(self, passage: Passage) -> bool:
        """Whether the tool's own function wants a person to be asked."""
        parts, tool, arguments = self._parts, passage.tool, passage.arguments
        if tool.function is not None:
            return await wants_approval(parts.inline, tool, arguments)
        async with parts.environments.use(parts.requirements(tool)) as environment:
            site = environment.site if environment else None
            return await wants_approval(
                parts.sandbox,
                tool,
                arguments,
                caller=passage.caller,
                site=site,
                is_nested=passage.call.depth > 0,
            )

    async def _execute(self, passage: Passage, clearance: Clearance) -> Outcome:
        tool, call, secrets = passage.tool, passage.call, clearance.secrets
        bounds = self._bounds(tool, call.timeout)
        invocation = Invocation(
            tool, passage.arguments, passage.caller, bounds, observe=passage.observe
        )
        invocation.reveal = self._guard.shows_exceptions(call, passage.caller, tool)
        mask, events = NO_MASK, None
        if secrets:
            mask = Mask(secrets)
            events = ConcealedEvents(mask, passage.observe)
            invocation.observe = events.observe
            invocation.arguments = resolved(passage.arguments, secrets)
            invocation.secrets = {name: secrets[name] for name in tool.spec.rights.secrets}
        if tool.spec.settings:
            invocation.settings = resolved(dict(clearance.settled.operator), secrets)
            invocation.user_settings = resolved(dict(clearance.settled.user), secrets)
        if tool.function is None or tool.spec.injected:
            known = passage.outer_mask.joined(mask) if mask else passage.outer_mask
            self._connect(invocation, passage, known)
        if tool.function is not None:
            before = SESSION.set(call.session)
            try:
                outcome = await self._parts.inline.run(invocation)
            finally:
                SESSION.reset(before)
                if invocation.asker is not None:
                    invocation.asker.stop()
        else:
            outcome = await self._sandboxed(passage, invocation)
        if events is not None:
            events.end(cut=outcome.is_cut)
            # A long output takes long to mask, and tools choose what they return.
            await asyncio.to_thread(conceal, outcome, mask)
        return outcome

    async def _sandboxed(self, passage: Passage, invocation: Invocation) -> Outcome:
        parts, tool, rights = self._parts, passage.tool, passage.tool.spec.rights
        if rights.workspace:
            invocation.workspace = await asyncio.to_thread(
                parts.workspaces.open,
                passage.caller.workspace,
                writable=rights.workspace == "write",
            )

        def report(stage: str, done: int | None, total: int | None) -> None:
            told = Event(kind="progress", text=f"environment: {stage}", done=done, total=total)
            invocation.observe(told)

        needed = parts.requirements(tool)
        async with parts.environments.use(needed, report) as environment:
            invocation.site = environment.site if environment else None
            invocation.network = granted(rights.network, tool.grant.network)
            invocation.is_nested = passage.call.depth > 0
            return await parts.sandbox.run(invocation)

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

    def _connect(self, invocation: Invocation, passage: Passage, mask: Mask) -> None:
        """Let the tool call others, and ask its caller if that is possible."""
        clock = invocation.clock = Clock(invocation.bounds.timeout)
        asking = passage.asking
        if asking is not None:
            seconds, note = self._guard.approvals.patience, passage.trail.note
            invocation.asker = Asker(asking, clock, mask, seconds, note)
            passage.asking = invocation.asker.within
        invocation.nested = self._nested(passage, clock, mask)

    def _nested(
        self, passage: Passage, clock: Clock, mask: Mask
    ) -> Callable[[str, Any], Awaitable[Result]]:
        """A door for the tool itself, with the caller's rights and what is left of the time."""
        call, made = passage.call, 0

        def observe(event: Event) -> None:
            if event.kind == "pending":  # a person can only answer what they are told of
                passage.observe(event)

        async def nested(tool: str, arguments: Any) -> Result:
            nonlocal made
            made += 1
            inner = Call(
                tool=tool,
                arguments=arguments,
                session=call.session,
                surface=call.surface,
                parent=call.id,
                depth=call.depth + 1,
                timeout=max(0.01, clock.left),
            )
            if inner.depth > _DEEPEST or made > _MOST_NESTED:
                bound = f"{_DEEPEST} deep" if inner.depth > _DEEPEST else f"{_MOST_NESTED} in all"
                error = CallError(code="nesting_limit", message=f"calls within calls: {bound}")
                trail = Trail(inner, mask)
                trail.caller = passage.caller
                result = refused(inner, trail.at, Status.DENIED, error)
                self._guard.recorder.end(trail, trail.ended(result))
                return result
            result = await self._recorded(inner, observe, mask, passage.asking)
            return self._parts.told(result, passage.caller)

        return nested

    async def _result(self, passage: Passage, outcome: Outcome) -> Result:
        call, spec, started = passage.call, passage.tool.spec, passage.trail.at
        shown = limited(outcome, spec)
        truncation = None
        all_notes = (*passage.notes, *outcome.notes)
        if shown.full is not None:
            full = passage.outer_mask.text(shown.full)
            handle, trouble = await self._parts.memory.keep(passage.caller, full)
            all_notes += trouble
            truncation = Truncation(shown=shown.shown, total=shown.total, handle=handle)
        return Result(
            call_id=call.id,
            tool=spec.name,
            digest=spec.digest,
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
            dev=passage.tool.dev,
            timing=Timing(
                started=started,
                duration=time.time() - started,
                cpu=outcome.cpu,
                memory=outcome.memory,
            ),
        )
