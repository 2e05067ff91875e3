"""Entry point of every tool call, from all surfaces, nested calls, tasks and workers.

`Gateway.call` performs the steps of a call in order: session, tool, rules, arguments,
permissions, rate, approval, audit record, secrets, run, masking, output limit, audit record.
It never raises for what a caller or a tool does: each call ends in one Result and leaves an
audit record. `security.Guard` decides who may do what, an executor runs the tool.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from toolkiln.errors import InputError, NotAllowed, ToolkilnError, UnknownTool, nearest_hint
from toolkiln.execution.call_events import CallEvents, CallObserver, RunningCall
from toolkiln.execution.executor import (
    Bounds,
    Dispatcher,
    EnvironmentProvider,
    ExecutionOutcome,
    Executor,
    Invocation,
    WorkspaceProvider,
    bounds_of,
)
from toolkiln.execution.idempotency import CallResults
from toolkiln.execution.outcomes import (
    as_call_error,
    invalid_arguments,
    mask_outcome,
    refused_result,
)
from toolkiln.execution.output import model_text
from toolkiln.execution.preflight import (
    NO_INPUTS,
    CallInputs,
    CallRefused,
    PreparedCall,
    invalid_caller,
    invalid_request,
    needs_approval,
    needs_no_preflight,
    not_allowed,
    permitted_secrets,
    preflight,
)
from toolkiln.execution.questions import CallQuestions, CallTimer, QuestionChannel
from toolkiln.model.call import Call, CallError, Event, Result, Status, Timing, Truncation
from toolkiln.model.identity import Caller
from toolkiln.model.network import granted
from toolkiln.model.spec import ToolSpec
from toolkiln.model.tool import ResolvedTool
from toolkiln.schema.arguments import Problems, check, is_quick
from toolkiln.security.guard import NO_MASK, Guard
from toolkiln.security.masking import Mask
from toolkiln.security.secrets import resolve_references
from toolkiln.security.sessions import SESSION, NoSession

_MAX_DEPTH = 8
_MAX_NESTED = 200
"""Nested calls of one call."""
_MAX_BOUNDS = 1024
"""Tools whose bounds are cached."""


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """Collaborators of a gateway."""

    resolve: Callable[[str, str | None], ResolvedTool]
    """Returns a tool by name and optional digest. Raises InputError."""
    inline: Executor
    sandbox: Executor
    """For tools that come from files."""
    environments: EnvironmentProvider
    workspaces: WorkspaceProvider
    results: CallResults
    maxima: Bounds
    requirements: Callable[[ResolvedTool], Iterable[str]]
    """Returns the packages that a tool requires. Raises InputError."""
    guard: Guard
    names: Callable[[Callable[[ToolSpec], bool]], list[str]]
    """Returns the names of the tools that match a predicate, for hints."""
    filter_result: Callable[[Result, Caller], Result]
    """Removes what a caller may not know from a result: that a hidden tool exists."""
    events: CallEvents
    dispatcher: Dispatcher | None = None


class Gateway:
    """Checks, runs and records calls."""

    def __init__(self, parts: GatewayParts, hidden: ToolSpec | None = None) -> None:
        """`hidden` is a tool whose spec observers do not get."""
        self._parts = parts
        self._guard = parts.guard
        self.events = parts.events
        self._hidden = hidden
        self._default_bounds: dict[int, tuple[ResolvedTool, Bounds]] = {}

    def with_tool(self, tool: ResolvedTool) -> "Gateway":
        """Return a gateway that also runs this tool; observers do not get its spec."""
        others = self._parts.resolve

        def resolve(name: str, digest: str | None) -> ResolvedTool:
            return tool if name == tool.spec.name else others(name, digest)

        return Gateway(replace(self._parts, resolve=resolve), hidden=tool.spec)

    async def call(
        self,
        call: Call,
        observers: tuple[CallObserver, ...] = (),
        channel: QuestionChannel | None = None,
    ) -> Result:
        """Run one call on behalf of the caller of its session.

        `channel` puts the questions of the tool to the caller; without it tools cannot ask.
        """
        if call.depth or call.parent:  # set by the gateway alone
            call = call.model_copy(update={"depth": 0, "parent": None})
        return await self._run_recorded(self.events.open(call, observers), channel)

    async def call_many(self, calls: Sequence[Call]) -> list[Result]:
        """Run calls in order, adjacent parallel-safe ones concurrently."""
        results: list[Result] = []
        for is_parallel, group in groupby(calls, self._is_parallel):
            if is_parallel:
                results += await asyncio.gather(*map(self.call, group))
            else:
                results += [await self.call(call) for call in group]
        return results

    def _is_parallel(self, call: Call) -> bool:
        try:
            return self._parts.resolve(call.tool, call.digest).spec.parallel
        except ToolkilnError:
            return True  # the call is refused at once

    async def _run_recorded(self, running: RunningCall, channel: QuestionChannel | None) -> Result:
        """Run a call here or dispatch it, report it to observers and write its audit record."""
        call, recorder = running.call, self._guard.recorder
        is_recorded = False
        result: Result | None = None
        if running.subscriptions:
            running.start()
        try:
            dispatcher = self._parts.dispatcher
            if dispatcher is not None and (spec := dispatcher.spec(call)) is not None:
                running.spec, running.digest = spec, spec.digest
                if channel is not None and running.mask:
                    channel = channel.masked(running.mask)
                result = await dispatcher.call(running, spec, channel)
                if result is not None:
                    return result
            if recorder.must_flush:
                await asyncio.to_thread(recorder.flush)
            recorder.begin(running, running.audit_record)
            is_recorded = True
            result = await self._run_checked(running, channel)
            return result
        except CallRefused as end:
            result = refused_result(call, running.at, end.status, end.error, end.tool)
            return result
        except (NotAllowed, NoSession) as error:
            result = refused_result(call, running.at, Status.DENIED, as_call_error(error))
            return result
        except ToolkilnError as error:  # above all: a call that cannot be recorded does not run
            result = refused_result(call, running.at, Status.UNAVAILABLE, as_call_error(error))
            return result
        except asyncio.CancelledError:
            if (cancelled := running.cancellation()) is None:
                raise
            result = refused_result(call, running.at, Status.CANCELLED, cancelled)
            return result
        finally:
            if is_recorded or running.subscriptions:
                record = running.finish(result)
                if is_recorded:
                    recorder.end(running, record)
                if running.subscriptions:
                    running.end(result)

    async def _run_checked(self, running: RunningCall, channel: QuestionChannel | None) -> Result:
        call, is_nested = running.call, running.call.depth > 0
        caller = self._guard.known_caller(call.session, running=is_nested)
        if caller is None:
            caller = await self._guard.caller(call.session, running=is_nested)
        running.caller = caller
        tool = self._resolve(call, caller)
        running.digest = tool.spec.digest
        if tool.spec is not self._hidden:
            running.spec = tool.spec
        if tool.dev:
            running.note("dev")
        decision = self._guard.decide(caller, tool.spec)
        if decision.effect == "deny":
            raise CallRefused(Status.DENIED, not_allowed(call.tool, decision), tool)
        arguments = {} if call.arguments is None else call.arguments
        if is_quick(tool.spec, arguments):
            checked = check(tool.spec, arguments)
        else:
            checked = await asyncio.to_thread(check, tool.spec, arguments)
        if isinstance(checked, Problems):
            raise CallRefused(Status.INVALID, invalid_arguments(checked), tool)
        unsent = invalid_request(call.request) if call.request else None
        if unsent is None and tool.function is None:
            unsent = invalid_caller(caller)
        if unsent is not None:
            raise CallRefused(Status.INVALID, unsent, tool)
        prepared = PreparedCall(
            running, caller, tool, decision, checked.arguments, checked.notes, channel
        )
        if not call.remember:
            return await self._run_prepared(prepared)
        return await self._run_once(prepared)

    async def _run_once(self, prepared: PreparedCall) -> Result:
        """Run a call whose id the caller may repeat."""
        permitted_secrets(prepared)  # a call that may not run must not claim its id
        running = prepared.running

        async def run() -> Result:
            try:
                return await self._run_prepared(prepared)
            except CallRefused as end:
                return refused_result(running.call, running.at, end.status, end.error, end.tool)

        return await self._parts.results.once(
            running.call, prepared.caller, (prepared.tool.spec, prepared.arguments), run,
            lambda: running.progress,
        )  # fmt: skip

    def _resolve(self, call: Call, caller: Caller) -> ResolvedTool:
        try:
            return self._parts.resolve(call.tool, call.digest)
        except UnknownTool as error:
            # Suggest visible tools only.
            visible = self._parts.names(lambda spec: self._guard.may_see(caller, spec))
            unknown = CallError(
                code=error.code, message=error.message, hint=nearest_hint(call.tool, visible)
            )
            raise CallRefused(Status.INVALID, unknown) from None
        except InputError as error:
            raise CallRefused(Status.INVALID, as_call_error(error)) from None

    async def _run_prepared(self, prepared: PreparedCall) -> Result:
        tool = prepared.tool
        try:
            inputs = NO_INPUTS
            if not needs_no_preflight(self._guard, prepared):
                inputs = await preflight(self._guard, prepared, self._tool_needs_approval)
            outcome = await self._execute(prepared, inputs)
        except ToolkilnError as error:
            raise CallRefused(Status.UNAVAILABLE, as_call_error(error), tool) from None
        except OSError as error:  # this process ran out of descriptors or memory
            failed = CallError(
                code="backend_failed", message=f"the platform failed: {error}", retryable=True
            )
            raise CallRefused(Status.UNAVAILABLE, failed, tool) from None
        return await self._result(prepared, outcome)

    async def _tool_needs_approval(self, prepared: PreparedCall) -> bool:
        """Return whether the tool's `needs_approval` function requires an approval."""
        parts, tool, arguments = self._parts, prepared.tool, prepared.arguments
        if tool.function is not None:
            return await needs_approval(parts.inline, tool, arguments)
        async with parts.environments.use(parts.requirements(tool)) as environment:
            site = environment.site if environment else None
            return await needs_approval(
                parts.sandbox,
                tool,
                arguments,
                caller=prepared.caller,
                site=site,
                is_nested=prepared.running.call.depth > 0,
            )

    async def _execute(self, prepared: PreparedCall, inputs: CallInputs) -> ExecutionOutcome:
        tool, running, secrets = prepared.tool, prepared.running, inputs.secrets
        call = running.call
        bounds = self._bounds(tool, call.timeout)
        invocation = Invocation(
            tool, prepared.arguments, prepared.caller, bounds, emit=running.emit
        )
        invocation.request = call.request
        invocation.reveal = self._guard.shows_exceptions(call, prepared.caller, tool)
        mask = NO_MASK
        if secrets:
            mask = Mask(secrets)
            running.add_secrets(mask)
            invocation.arguments = resolve_references(prepared.arguments, secrets)
            invocation.secrets = {name: secrets[name] for name in tool.spec.rights.secrets}
        if tool.spec.settings:
            invocation.settings = resolve_references(dict(inputs.settled.operator), secrets)
            invocation.user_settings = resolve_references(dict(inputs.settled.user), secrets)
        if tool.function is None or tool.spec.injected:
            joined = running.mask.joined(mask) if mask else running.mask
            self._connect(invocation, prepared, joined)
        if tool.function is not None:
            before = SESSION.set(call.session)
            try:
                outcome = await self._parts.inline.run(invocation)
            finally:
                SESSION.reset(before)
                if invocation.questions is not None:
                    invocation.questions.stop()
        else:
            outcome = await self._sandboxed(prepared, invocation)
        if mask:
            running.flush(cut=outcome.is_cut)
            # Masking a long output takes long.
            await asyncio.to_thread(mask_outcome, outcome, mask)
        return outcome

    async def _sandboxed(self, prepared: PreparedCall, invocation: Invocation) -> ExecutionOutcome:
        parts, tool, rights = self._parts, prepared.tool, prepared.tool.spec.rights
        if rights.workspace:
            invocation.workspace = await asyncio.to_thread(
                parts.workspaces.open,
                prepared.caller.workspace,
                writable=rights.workspace == "write",
            )

        def report(stage: str, done: int | None, total: int | None) -> None:
            text = f"environment: {stage}"
            invocation.emit(Event(kind="progress", text=text, done=done, total=total))

        async with parts.environments.use(parts.requirements(tool), report) as environment:
            invocation.site = environment.site if environment else None
            invocation.network = granted(rights.network, tool.grant.network)
            invocation.is_nested = prepared.running.call.depth > 0
            return await parts.sandbox.run(invocation)

    def _bounds(self, tool: ResolvedTool, timeout: float | None) -> Bounds:
        if timeout is not None:
            return bounds_of(tool.spec.limits, self._parts.maxima, timeout)
        cached = self._default_bounds.get(id(tool))
        if cached is None:
            if len(self._default_bounds) >= _MAX_BOUNDS:
                self._default_bounds.clear()
            cached = tool, bounds_of(tool.spec.limits, self._parts.maxima, None)
            self._default_bounds[id(tool)] = cached  # keeps the tool, and with it the id, in use
        return cached[1]

    def _connect(self, invocation: Invocation, prepared: PreparedCall, mask: Mask) -> None:
        """Let the tool call other tools and, given a channel, ask its caller."""
        timer = invocation.timer = CallTimer(invocation.bounds.timeout)
        channel = prepared.channel
        if channel is not None:
            seconds, note = self._guard.approvals.patience, prepared.running.note
            invocation.questions = CallQuestions(channel, timer, mask, seconds, note)
            prepared.channel = invocation.questions.nested_channel
        invocation.nested = self._nested(prepared, timer, mask)

    def _nested(
        self, prepared: PreparedCall, timer: CallTimer, mask: Mask
    ) -> Callable[[str, Any], Awaitable[Result]]:
        """Return the function that runs nested calls, for the same caller and the time left."""
        call, count = prepared.running.call, 0

        async def nested(tool: str, arguments: Any) -> Result:
            nonlocal count
            count += 1
            inner = Call(
                tool=tool,
                arguments=arguments,
                session=call.session,
                request=call.request,
                surface=call.surface,
                parent=call.id,
                depth=call.depth + 1,
                timeout=max(0.01, timer.left),
            )
            if inner.depth > _MAX_DEPTH or count > _MAX_NESTED:
                limit = f"{_MAX_DEPTH} levels of" if inner.depth > _MAX_DEPTH else f"{_MAX_NESTED}"
                message = f"a call may make at most {limit} nested calls"
                error = CallError(code="nesting_limit", message=message)
                running = RunningCall(inner, mask)
                running.caller = prepared.caller
                result = refused_result(inner, running.at, Status.DENIED, error)
                self._guard.recorder.end(running, running.finish(result))
                return result
            running = self.events.open(inner, mask=mask, parent=prepared.running)
            result = await self._run_recorded(running, prepared.channel)
            return self._parts.filter_result(result, prepared.caller)

        return nested

    async def _result(self, prepared: PreparedCall, outcome: ExecutionOutcome) -> Result:
        call, spec, started = prepared.running.call, prepared.tool.spec, prepared.running.at
        output = model_text(outcome, spec)
        truncation = None
        notes = (*prepared.notes, *outcome.notes)
        if output.full is not None:
            full = prepared.running.mask.text(output.full)
            handle, problems = await self._parts.results.save_output(prepared.caller, full)
            notes += problems
            truncation = Truncation(shown=output.shown, total=output.total, handle=handle)
        return Result(
            call_id=call.id,
            tool=spec.name,
            digest=spec.digest,
            status=outcome.status,
            value=outcome.value,
            text=output.text,
            stdout=outcome.stdout,
            stderr=outcome.stderr,
            error=outcome.error,
            notes=notes,
            files=tuple(outcome.files),
            messages=tuple(outcome.messages),
            injected_tools=tuple(outcome.injected_tools),
            agent_state=outcome.agent_state,
            truncation=truncation,
            sandbox=outcome.sandbox,
            dev=prepared.tool.dev,
            timing=Timing(
                started=started,
                duration=time.time() - started,
                cpu=outcome.cpu,
                memory=outcome.memory,
            ),
        )
