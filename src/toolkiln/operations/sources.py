"""Source operations: read or run source text that is in no catalog.

Nothing is stored: no file, no version, no admission. A source has no helper modules and no
grants: neither hosts nor secrets, neither a workspace nor the settings of a tool with the same
name. Otherwise its calls are like all others.
"""

import asyncio
from collections.abc import Callable, Coroutine, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from toolkiln.catalog.reports import repairs_for, report
from toolkiln.docs.pages import page
from toolkiln.errors import InputError, NotAllowed, UnknownTool
from toolkiln.execution.call_events import EventCallback
from toolkiln.model.base import JsonSchema, Value
from toolkiln.model.call import Call, CallError, Event, Result
from toolkiln.model.identity import Caller, Privilege
from toolkiln.model.source import FileReport, Finding, Repair, Severity
from toolkiln.model.spec import BUILTIN_NAMES, Hints, Permissions, SchemaHealth, ToolSpec
from toolkiln.model.tool import ProviderForm, ResolvedTool
from toolkiln.operations.calls import Seconds, ToolName
from toolkiln.operations.library import provider_form
from toolkiln.operations.operation import OperationContext, operation
from toolkiln.schema.providers import Provider
from toolkiln.security.security import admits_own_tools, authoring_refusal, missing_privilege
from toolkiln.security.sessions import LOCAL_OPERATOR, SessionToken
from toolkiln.spec.reader import read
from toolkiln.spec.syntax import MAX_BYTES

if TYPE_CHECKING:
    from toolkiln.operations.services import Services

_NO_PATH = "<source>"
"""A path without helper modules beside it."""
_FILE = "source.py"

Source = Annotated[str, Field(min_length=1, max_length=1 << 20)]
PreparedRun = Callable[[Callable[[Event], None] | None], Coroutine[Any, Any, Result]]
"""Runs a prepared source once; an observer gets the events."""


@dataclass(frozen=True)
class SourceCall:
    """One run of a source."""

    source: str
    arguments: object = None
    tool: str | None = None
    """Which of its tools; None if it has only one."""
    timeout: float | None = None
    call_id: str | None = None
    """An id chosen by the caller, which finds the result later."""
    is_remembered: bool = False
    """Whether the result is stored elsewhere."""
    surface: str = "python"
    session: SessionToken = LOCAL_OPERATOR


class RunSource(Value, strict=True):
    """A source, and how to call it."""

    source: Source
    """A Python file that declares a tool."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    tool: ToolName | None = None
    """Which of its tools, if there are several."""
    timeout: Seconds | None = None
    """Maximum seconds to wait; the tool's own limit applies too."""


class ReadSource(Value):
    """A source to read."""

    source: Source
    provider: Provider | None = None
    """Includes the tools in the form of this provider."""


class SourceTool(Value):
    """A tool that a source declares."""

    name: str
    description: str
    parameters: JsonSchema
    returns: JsonSchema | None
    documentation: str
    page: str
    """Its documentation page, as Markdown."""
    dialect: str
    """How the tool is declared."""
    hints: Hints
    rights: Permissions
    """The permissions that it requests."""
    requirements: tuple[str, ...]
    health: SchemaHealth
    """How well providers can enforce its parameters."""
    line: int
    is_taken: bool
    """Whether the caller can see a tool with this name already."""
    form: ProviderForm | None
    """The tool in the form of the requested provider."""


class SourceFinding(Finding):
    """A finding, and text that fixes it."""

    repair: Repair | None
    """Null: the fix needs more than an insertion, or a decision."""


class Permission(Value):
    """Whether a caller may do something; if not, why, and what to do next."""

    allowed: bool
    reason: str | None = None
    hint: str | None = None


class Prospects(Value):
    """What a caller may do with a source."""

    saving: Permission
    is_proposal: bool
    """Whether a person has to admit the saved source before it can be called."""
    running: Permission
    """Whether the caller may run it without saving it."""
    refused_rules: tuple[str, ...]
    """Rules whose findings prevent saving, besides errors."""


class SourceReport(Value):
    """The tools and findings of a source."""

    digest: str
    tools: tuple[SourceTool, ...]
    findings: tuple[SourceFinding, ...]
    prospects: Prospects
    """What the caller may do with it."""


@operation("sources.read", privilege=Privilege.WRITE_TOOLS, act="source.read", read_only=True)
async def report_source(context: OperationContext, request: ReadSource) -> SourceReport:
    """Return the tools and findings of a source; nothing of it is run."""
    services = context.services
    caller = await asyncio.to_thread(lambda: context.caller)

    def create_report() -> SourceReport:
        packages = services.catalog.folder.packages if services.path else frozenset()
        file = read_source(request.source, packages)
        findings = zip(file.reading.findings, repairs_for(request.source, file), strict=True)
        taken = BUILTIN_NAMES | _served_names(context)
        return SourceReport(
            digest=file.reading.digest,
            tools=tuple(
                _source_tool(
                    spec,
                    health=file.health[spec.name],
                    is_taken=spec.name in taken,
                    form=provider_form(spec, request.provider) if request.provider else None,
                )
                for spec in file.reading.tools
            ),
            findings=tuple(
                SourceFinding(**dict(finding), repair=repair) for finding, repair in findings
            ),
            prospects=prospects(services, caller),
        )

    return await services.reading_pool.run(caller.who, create_report)


def _served_names(context: OperationContext) -> Set[str]:
    try:
        return context.services.visible(context.session, None).keys()
    except InputError:  # a source can be read though nothing is served
        return set()


def _source_tool(spec: ToolSpec, **fields: Any) -> SourceTool:
    return SourceTool(
        name=spec.name,
        description=spec.description,
        parameters=spec.parameters,
        returns=spec.returns,
        documentation=spec.detailed_description(),
        page=page(spec),
        dialect=spec.dialect,
        hints=spec.hints,
        rights=spec.rights,
        requirements=spec.requirements,
        line=spec.line,
        **fields,
    )


def prospects(services: "Services", caller: Caller) -> Prospects:
    """Return what a caller may do with a source; nothing is recorded."""
    settings = services.security.live.current()
    may_call = services.security.guard.may_see(caller, services.registry.spec("write_python_tool"))
    saving = authoring_refusal(caller, settings.authoring, may_call=may_call)
    return Prospects(
        saving=_permission(saving),
        is_proposal=not admits_own_tools(caller, settings.authoring),
        running=_permission(saving or _running_refusal(services, caller)),
        refused_rules=tuple(settings.refuse),
    )


def _permission(refusal: CallError | None) -> Permission:
    if refusal is None:
        return Permission(allowed=True)
    return Permission(allowed=False, reason=refusal.message, hint=refusal.hint)


def read_source(source: str, packages: Set[str] = frozenset()) -> FileReport:
    """Read the tools of a source, with their health and all findings. Nothing of it is run.

    `packages` are those that the tools folder lists for all its files.
    """
    try:
        data = source.encode()
    except UnicodeEncodeError:
        raise InputError("the source has half a surrogate pair, which is not text") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"the source has {len(data):,} bytes; the limit is {MAX_BYTES:,}")
    return report(read(source, _NO_PATH, data=data, packages=packages), {})


async def prepare_source(services: "Services", request: SourceCall) -> PreparedRun:
    """Return what runs a tool of a source in the sandbox, once.

    Raises:
        NotAllowed: the caller may not write tools, or may only propose them.
        InputError: the source cannot be run, or has no such tool.
    """
    await _refuse_unless_author(services, request.session)
    caller = await services.caller(request.session)
    tool = await services.reading_pool.run(caller.who, lambda: _resolve(request))
    call = Call(
        tool=tool.spec.name,
        arguments=request.arguments,
        session=services.security.token(request.session),
        surface=request.surface,
        timeout=request.timeout,
    )
    if request.call_id is not None:
        update = {"id": request.call_id, "remember": not request.is_remembered}
        call = call.model_copy(update=update)
    fields: dict[str, Any] = {"tool": call.tool, "digest": tool.spec.digest, "call_id": call.id}

    def record() -> None:
        """Record, ahead of the call's own record, that no admitted version runs."""
        services.security.record("run_source", caller, **fields)

    await asyncio.to_thread(record)

    async def run(observe: Callable[[Event], None] | None) -> Result:
        observers = () if observe is None else (EventCallback(observe),)
        running = services.engine.gateway.with_tool(tool).call(call, observers)
        return await (services.engine.tasks.run_detached(running) if call.remember else running)

    return run


async def _refuse_unless_author(services: "Services", session: SessionToken) -> None:
    """Refuse callers whose tools would need an admission by another person."""
    allowed = await services.security.may_author(session)
    if isinstance(allowed, CallError):
        raise NotAllowed(allowed.message, hint=allowed.hint)
    caller = await services.caller(session)
    if refusal := _running_refusal(services, caller):
        denied = services.security.recording.denied
        await asyncio.to_thread(denied, "run_source", caller, refusal.message)
        raise NotAllowed(refusal.message, hint=refusal.hint)


def _running_refusal(services: "Services", caller: Caller) -> CallError | None:
    if Privilege.WRITE_TOOLS not in caller.privileges:
        return missing_privilege(caller, Privilege.WRITE_TOOLS, "run a source")
    is_proposing = services.security.live.current().authoring == "propose"
    if is_proposing and Privilege.ADMIN not in caller.privileges:
        return CallError(
            code=NotAllowed.code,
            message="a person has to admit a tool before it runs",
            hint="propose it as a tool; callers with ADMIN may run a source without admission",
        )
    return None


def _resolve(request: SourceCall) -> ResolvedTool:
    reading = read_source(request.source).reading
    # An ignore comment is for the person who admits a version; a source has none.
    wrong = [f for f in reading.findings if f.severity is Severity.ERROR or f.overruled]
    if wrong:
        raise InputError(
            f"the source cannot be run: line {wrong[0].line}: {wrong[0].message}",
            hint=wrong[0].fix,
        )
    tools = {spec.name: spec for spec in reading.tools}
    if not tools:
        raise InputError(
            "the source declares no tool", hint="write a public function with a docstring"
        )
    if request.tool is None and len(tools) > 1:
        raise InputError(
            f"the source declares several tools: {', '.join(tools)}", hint="name one of them"
        )
    spec = tools.get(request.tool) if request.tool is not None else next(iter(tools.values()))
    if spec is None:
        raise UnknownTool(str(request.tool), tools)
    # Settings belong to the admitted tool of that name, and with them secrets.
    alone = spec.model_copy(update={"path": _FILE, "settings": {}})
    data = request.source.encode()
    return ResolvedTool(alone, lambda: {_FILE: data}, is_source=True)
