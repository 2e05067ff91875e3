"""Operations that write tools: source text becomes a file, and a version or a proposal.

What is wrong with a source is for `catalog`'s pipeline.
"""

from typing import Annotated

from pydantic import Field

from toolkiln.errors import AdmissionRefused, InputError, StaleVersion
from toolkiln.model.admission import AdmissionResult, FindingSummary, SourceOptions, ToolDraft
from toolkiln.model.base import Value
from toolkiln.model.call import CallError
from toolkiln.operations.operation import OperationContext, operation
from toolkiln.operations.policy import visible_to
from toolkiln.operations.tools import Match, matching_digest

_SECONDS = 330.0
"""How long writing a tool may take, with its probe."""
SourceText = Annotated[str, Field(min_length=1, max_length=1 << 20)]


class WriteFile(SourceOptions):
    """A file of tools to write, named after the file."""

    name: str
    code: str
    description: str = ""
    overwrite: bool = False
    base: str | None = None
    folder: str = ""


class WriteSource(SourceOptions):
    """A tool to write under its name, into the file that has it."""

    name: str
    source: SourceText
    """A Python file that declares the tool, and possibly others."""
    description: Annotated[str, Field(max_length=100_000)] = ""
    """Becomes the docstring of functions, and of a file with `TOOL_…` constants, without one."""
    only_new: bool = False
    """Whether an existing tool must not be replaced."""
    match: Match = None


class WrittenSource(Value):
    """The result of writing a tool by its name."""

    authored: AdmissionResult
    is_new: bool
    """Whether there was no tool of that name."""


class WrittenTool(Value):
    """The result of writing a tool."""

    name: str
    tools: tuple[str, ...]
    """The tools of its file that are served."""
    digest: str
    version: int | None
    """Null if a person has to admit it first."""
    proposed: bool
    """Whether a person has to admit it before it can be called."""
    warnings: tuple[FindingSummary, ...]
    """Findings that do not block the admission."""
    notes: tuple[str, ...]
    """Steps that failed without blocking the admission: it is disabled, or not indexed."""
    is_new: Annotated[bool, Field(exclude=True)] = False
    """Whether there was no tool of that name."""


@operation("tools.write", timeout=_SECONDS)
async def write_tool(context: OperationContext, request: WriteSource) -> WrittenTool:
    """Write a tool, or another version of it.

    Raises:
        AdmissionRefused: it does not pass.
    """
    security = context.services.security
    allowed = await security.may_author(context.session)
    if not isinstance(allowed, CallError):  # otherwise the operation below reports the refusal
        await context.services.reading_pool.run(
            context.caller.who, lambda: _refuse_undeclared(request.name, request.source)
        )
    written = await context.run(write_source, request)
    result = written.authored
    require_admission(result)
    return WrittenTool(
        name=request.name,
        tools=result.functions_registered,
        digest=result.digest,
        version=result.version,
        proposed=result.proposed,
        warnings=result.warnings,
        notes=failed_steps(result),
        is_new=written.is_new,
    )


def _refuse_undeclared(name: str, source: str) -> None:
    from toolkiln.operations.sources import read_source

    declared = [spec.name for spec in read_source(source).reading.tools]
    if declared and name not in declared:
        raise AdmissionRefused(
            f"the source declares no tool named {name!r}",
            hint=f"it declares {', '.join(declared[:5])}",
        )


def require_admission(result: AdmissionResult, source: str = "body.source") -> None:
    """Raise an error if a version did not pass; `source` is where its lines are.

    Raises:
        AdmissionRefused: it did not.
    """
    if not result.success:
        findings = [(f.line, f"{f.rule}: {f.message}; {f.fix}") for f in result.validation_errors]
        raise AdmissionRefused(result.error, reason=result.code, source=source, findings=findings)


def failed_steps(result: AdmissionResult) -> tuple[str, ...]:
    """Return the steps after an admission that failed, in words."""
    return tuple(f"{step.stage}: {step.message}" for step in result.stages if not step.ok)


@operation("tools.write_file", timeout=_SECONDS, routing="worker")
async def write_file(context: OperationContext, request: WriteFile) -> AdmissionResult:
    """Write a file of tools: it is admitted, or becomes a proposal."""
    options = _options(request)
    fields = request.model_dump(exclude={*SourceOptions.model_fields})
    return await write(context, ToolDraft(**fields, tool=request.name, options=options))


@operation("tools.write_source", timeout=_SECONDS, routing="worker")
async def write_source(context: OperationContext, request: WriteSource) -> WrittenSource:
    """Write a tool by its name; a caller with ADMIN also reviews it."""
    from asyncio import to_thread

    target = await to_thread(_target, context, request)
    if isinstance(target, AdmissionResult):
        return WrittenSource(authored=target, is_new=False)
    draft, is_new = target
    return WrittenSource(authored=await write(context, draft, is_review=True), is_new=is_new)


async def write(
    context: OperationContext, draft: ToolDraft, *, is_review: bool = False
) -> AdmissionResult:
    """Write a tool for a caller: it is admitted, or becomes a proposal.

    With `is_review` a caller with ADMIN also reviews the version, which then inherits the
    grants and settings of the one it replaces.
    """
    services, session = context.services, context.session
    allowed = await services.security.may_author(session, is_review=is_review)
    if isinstance(allowed, CallError):
        message = f"{allowed.message}: {allowed.hint}"
        return AdmissionResult(success=False, error=message, code=allowed.code)
    quota = None if allowed.admits else services.current_settings.proposals_per_caller
    may_replace = visible_to(services, session)
    return await services.pipeline.write(
        draft, allowed.decision, quota=quota, may_replace=may_replace
    )


def _target(
    context: OperationContext, request: WriteSource
) -> tuple[ToolDraft, bool] | AdmissionResult:
    """Return the file to write and whether the tool is new, or why it cannot be written."""
    name, catalog = request.name, context.services.catalog
    try:
        served = catalog.snapshot.served.get(name)
    except InputError:  # nothing is served yet; writing the manifest reports why
        served = None
    base = matching_digest(name, served, request.match)
    if request.only_new and served is not None:
        raise StaleVersion(f"there is a tool named {name!r}", hint="choose another name")
    code, description = request.source, request.description
    if served is None:
        return ToolDraft(code, name, description, base=base, options=_options(request)), True
    if not context.services.security.may_see(context.session)(served.read.tool(name)):
        taken = f"the name {name!r} is taken; choose another name"
        return AdmissionResult(success=False, error=taken, code="exists")
    folder, _, file = served.file.rpartition("/")
    draft = ToolDraft(
        code, file.removesuffix(".py"), description, True, base, folder, options=_options(request)
    )
    return draft, False


def _options(request: SourceOptions) -> SourceOptions:
    return SourceOptions(**{name: getattr(request, name) for name in SourceOptions.model_fields})
