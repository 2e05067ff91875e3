"""CallEngine: what runs calls in one event loop, from gateway to sandbox."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict

from toolkiln.catalog.registry import ToolRegistry
from toolkiln.config import Settings
from toolkiln.errors import InputError, ToolkilnError, UnknownTool
from toolkiln.execution.call_events import CallEvents, EventCallback
from toolkiln.execution.executor import MAXIMA, Bounds, Dispatcher
from toolkiln.execution.gateway import Gateway, GatewayParts
from toolkiln.execution.idempotency import CallResults, CallStore
from toolkiln.execution.inline import InlineExecutor
from toolkiln.execution.probe import run_examples, run_probe
from toolkiln.execution.questions import Ask, QuestionChannel
from toolkiln.execution.tasks import TaskService
from toolkiln.model.call import Call, Event, Result, Status, Task
from toolkiln.model.catalog import FileVersion
from toolkiln.model.identity import Caller, Privilege
from toolkiln.model.question import QuestionKind
from toolkiln.model.source import Finding
from toolkiln.model.tool import ResolvedTool
from toolkiln.sandbox.bubblewrap import sandbox_user
from toolkiln.sandbox.environments.environments import Environment, Environments, LockCandidate
from toolkiln.sandbox.environments.lockfile import normalise, read_requirements_file
from toolkiln.sandbox.environments.uv import Quota, Report
from toolkiln.sandbox.network.access import Networks
from toolkiln.sandbox.network.proxy import Resolve
from toolkiln.sandbox.sandbox import Sandbox
from toolkiln.sandbox.workspaces import Workspaces
from toolkiln.security.guard import Guard
from toolkiln.security.sessions import SessionToken

_NOT_SERVED = ("not_admitted", "disabled")
_REVEALING = {
    Status.DENIED: ("not_allowed",),
    Status.INVALID: (*_NOT_SERVED, "bad_input"),  # the last: the digest names another version
}
"""Codes of calls that did not run, by status, which reveal that a tool exists."""


def reveals_tool(result: Result) -> bool:
    """Return whether the result of a call that did not run reveals that the tool exists."""
    return result.error is not None and result.error.code in _REVEALING.get(result.status, ())


class CallOptions(TypedDict, total=False):
    """The options of `Kiln.call`."""

    call_id: str | None
    """Makes the call run once: repeating it returns the first Result."""
    session: SessionToken
    """The token of the session whose caller makes the call; by default the local operator.
    None has no caller, and is denied."""
    digest: str | None
    """The version that must run; another one is refused."""
    timeout: float | None
    """Maximum seconds to wait; the tool's own limit applies too."""
    request: dict[str, Any] | None
    """What the caller says about the call, as `ctx.request`; nothing verifies it."""
    called: str
    """The name that the caller used. With it, a tool that rules hide from the caller is
    reported as unknown, as surfaces do; by default a program learns the reason."""
    surface: str
    """The origin of the call in the audit log; by default that of the Kiln."""
    prompt: str | None
    """The prompt that the tool answers; search learns from it, if the operator enabled that."""
    detached: bool
    """Whether a call with a `call_id` continues if the awaiting task is cancelled."""
    wait_seconds: float | None
    """With `background="auto"`: seconds after which a running call becomes a Task; by default
    ten. With `math.inf` only a call that waits for a person or asks its caller does."""
    observe: Callable[[Event], None]
    """Gets progress, log lines, output and requests for approval while the call runs."""
    ask: Ask
    """Answers the questions of the tool; without it tools cannot ask. Raises Unanswered."""
    asks: Collection[QuestionKind]
    """The kinds of questions that `ask` answers; by default all."""


class ToolVisibility:
    """Hides tools that a caller may not see: the response is the same as for an unknown tool."""

    def __init__(self, registry: ToolRegistry, guard: Guard) -> None:
        self._registry = registry
        self._guard = guard

    def is_seen(self, name: str, caller: Caller) -> bool:
        """Return whether a tool is served that a caller may see."""
        try:
            return self._guard.may_see(caller, self._registry.spec(name))
        except InputError:
            return False

    def filter_result(self, result: Result, caller: Caller, called: str | None = None) -> Result:
        """Return a result that reveals no hidden tool; `called` is the name the caller used."""
        if result.error is None or not reveals_tool(result) or self._may_learn(result, caller):
            return result
        name = called or result.tool
        known = self._registry.names(lambda spec: self._guard.may_see(caller, spec))
        unknown = UnknownTool(name, known)
        error = result.error.model_copy(
            update={"code": unknown.code, "message": unknown.message, "hint": unknown.hint}
        )
        text = f"error: {unknown.message}" + (f"\nhint: {unknown.hint}" if unknown.hint else "")
        fields = {"tool": name, "digest": None, "status": Status.INVALID, "text": text}
        return result.model_copy(update={**fields, "error": error})

    def _may_learn(self, result: Result, caller: Caller) -> bool:
        if result.error is not None and result.error.code in _NOT_SERVED:
            return Privilege.ADMIN in caller.privileges
        return self.is_seen(result.tool, caller)


def _question_channel(options: CallOptions) -> QuestionChannel | None:
    if "ask" not in options:
        return None
    ask = options["ask"]
    return QuestionChannel(ask, options["asks"]) if "asks" in options else QuestionChannel(ask)


def _maxima(settings: Settings) -> Bounds:
    given: dict[str, Any] = {
        name: value if name in ("timeout", "cpu") else int(value)
        for name, value in settings.limits.items()
    }
    return replace(MAXIMA, **given)


class CallEngine:
    """Gateway, sandbox, environments, workspaces and tasks of one event loop."""

    def __init__(
        self,
        registry: ToolRegistry,
        settings: Settings,
        tools: Path | None,
        resolve_host: Resolve | None,
        guard: Guard,
        call_store: Callable[[], CallStore],
        dispatcher: Dispatcher | None = None,
    ) -> None:
        """`dispatcher` runs the calls that do not run in this process or its sandbox."""
        self._registry = registry
        self.dispatcher = dispatcher
        self.resolve = registry.resolve
        self.version = registry.version
        self.published = registry.published
        self.functions = registry.functions
        self._guard = guard
        self._tools = tools
        self._maxima = _maxima(settings)
        state = settings.prepare_state()
        self.results = CallResults(call_store)
        self.environments = Environments(
            state / "envs",
            settings.environ,
            exclude_newer=settings.exclude_newer or None,
            quota=Quota(settings.environment_bytes, settings.environment_files),
        )
        self.workspaces = Workspaces(
            state / "workspaces",
            max_bytes=settings.workspace_bytes,
            max_files=settings.workspace_files,
            owner=sandbox_user(),
        )
        self.sandboxes = Sandbox(
            state,
            Networks(settings.private_networks, resolve_host),
            mode=settings.sandbox,
            allow_reduced=settings.allow_reduced,
        )
        self._inline = InlineExecutor()
        self.visibility = ToolVisibility(registry, guard)
        parts = GatewayParts(
            resolve=registry.resolve,
            inline=self._inline,
            sandbox=self.sandboxes,
            environments=self.environments,
            workspaces=self.workspaces,
            results=self.results,
            maxima=self._maxima,
            requirements=self.requirements,
            guard=guard,
            names=registry.names,
            filter_result=self.visibility.filter_result,
            events=CallEvents(),
            dispatcher=dispatcher,
        )
        self.gateway = Gateway(parts)
        self.events = self.gateway.events
        self.checks: Mapping[str, Callable[[], Awaitable[object]]] = (
            {"fleet": dispatcher.ready} if dispatcher else {"sandbox": self.sandboxes.ready}
        )
        """Readiness checks by name; each raises ToolkilnError if its part is not ready."""
        self.tasks = TaskService(self.gateway, self.results, dispatcher=dispatcher)

    async def call(
        self, call: Call, background: Literal["auto"] | bool, options: CallOptions
    ) -> Result | Task:
        """Run a call, in the background if the options say so."""
        observe, channel = options.get("observe"), _question_channel(options)
        observers = () if observe is None else (EventCallback(observe),)
        is_detached = call.remember and options.get("detached", False)
        result: Result | Task
        if not background and not is_detached:
            result = await self.gateway.call(call, observers, channel)
        else:
            result = await self._call_task(
                call, background, options, observers, channel, detached=is_detached
            )
        if "called" in options and isinstance(result, Result) and reveals_tool(result):
            caller = await self._guard.caller(call.session)
            return self.visibility.filter_result(result, caller, options["called"])
        return result

    async def _call_task(
        self,
        call: Call,
        background: Literal["auto"] | bool,
        options: CallOptions,
        observers: tuple[EventCallback, ...],
        channel: QuestionChannel | None,
        *,
        detached: bool,
    ) -> Result | Task:
        try:
            caller = await self._guard.caller(call.session)
        except ToolkilnError:  # the gateway refuses the call, and records it
            return await self.gateway.call(call, observers)
        if not background:
            return await self.tasks.call_detached(call, caller, observers, channel)
        return await self.tasks.call(
            call,
            caller,
            background,
            observers,
            detached=detached,
            channel=channel,
            wait_seconds=options.get("wait_seconds"),
        )

    async def call_many(self, calls: Sequence[Call], *, detached: bool = False) -> list[Result]:
        """Run calls in order; `detached` ones continue if the awaiting task is cancelled."""
        work = self.gateway.call_many(calls)
        return await (self.tasks.run_detached(work) if detached else work)

    def longest(self, name: str) -> float:
        """Return the maximum seconds of a call of a tool."""
        try:
            declared = self._registry.spec(name).limits.timeout
        except ToolkilnError:
            declared = None
        return self._maxima.timeout if declared is None else min(declared, self._maxima.timeout)

    def requirements(self, tool: ResolvedTool) -> Iterable[str]:
        """Return the requirements of a tool and of its folder.

        Raises:
            InputError: the folder's `requirements.txt` cannot be used.
        """
        if self._tools is None:
            return tool.spec.requirements
        folder = self._tools if self._tools.is_dir() else self._tools.parent
        return (*tool.spec.requirements, *read_requirements_file(folder / "requirements.txt"))

    async def probe(self, read: FileVersion) -> list[Finding]:
        """Return what is wrong with a version: import, schemas and examples, in the sandbox.

        Raises:
            InputError, EnvironmentFailed: what it requires cannot be installed.
            BackendError: the sandbox failed, not the version.
        """
        tools = [ResolvedTool(spec, lambda: read.sources) for spec in read.reading.tools]
        async with self.environments.use(self.requirements(tools[0])) as environment:
            site = environment.site if environment else None
            return await run_probe(self.sandboxes, tools, site, maxima=self._maxima)

    async def build_environment(self, name: str, report: Report) -> Environment | None:
        """Install the requirements of a tool ahead of its first call; None if it has none.

        Raises:
            InputError, EnvironmentFailed: it cannot be resolved or installed.
        """
        wanted = self.requirements(self._registry.resolve(name, None))
        return await self.environments.build(wanted, report)

    async def upgrade_environment(
        self, name: str, report: Report
    ) -> tuple[LockCandidate | None, str | None]:
        """Resolve newer packages for a tool, and adopt them if examples pass; else return why not.

        A lock belongs to a set of requirements: the examples of all tools with the same set run.

        Raises:
            InputError, EnvironmentFailed: they cannot be resolved or installed.
        """
        tool = self._registry.resolve(name, None)
        candidate = await self.environments.upgrade(self.requirements(tool), report)
        if candidate is None or not candidate.changes:
            return candidate, None
        wanted = normalise(self.requirements(tool))
        async with self.environments.trial(candidate) as environment:
            for other in self._registry.everything():
                if normalise(self.requirements(other)) != wanted or other.function is not None:
                    continue
                complaint = await run_examples(self.sandboxes, other, environment.site)
                if complaint is not None:
                    return candidate, f"{other.spec.name}: {complaint}"
        await self.environments.adopt(candidate)
        return candidate, None

    async def close(self) -> None:
        """End running calls and close all parts; background calls of a fleet continue."""
        if self.dispatcher is not None:
            self.dispatcher.detach()
        await self.tasks.close()
        await self.sandboxes.close()
        await self._inline.close()
        if self.dispatcher is not None:
            await self.dispatcher.close()

    def kill(self) -> None:
        """End all processes, from any thread, when the event loop has ended."""
        self.sandboxes.kill()
