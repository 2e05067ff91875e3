"""Catalog operations: the tools of a folder or fleet at a glance, and the files behind them.

Only `catalog.get` works in front of a fleet; the others are for the folder of this machine.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from toolkiln.appearance import paint
from toolkiln.catalog.imports import Importer, ImportOptions, ImportRules
from toolkiln.catalog.manifest import ManifestError
from toolkiln.catalog.reports import check
from toolkiln.catalog.snapshots import refused_tools
from toolkiln.errors import BackendError, InputError
from toolkiln.model.admission import ToolDraft
from toolkiln.model.base import Value
from toolkiln.model.catalog import FileState, FileStatus
from toolkiln.model.identity import Privilege
from toolkiln.model.imports import ImportReport
from toolkiln.model.source import FileReport, Finding, Severity
from toolkiln.model.spec import Toolkit, ToolSpec
from toolkiln.model.tool import CardPermissions, ServingState, ToolCard
from toolkiln.operations import tools
from toolkiln.operations.operation import Nothing, OperationContext, operation
from toolkiln.operations.policy import inherited, refuse_hidden, refuse_hidden_file
from toolkiln.operations.proposals import (
    FileAdmission,
    check_manifest,
    may_declare_tools,
    usage_notes,
)
from toolkiln.schema.providers.compilers import health

if TYPE_CHECKING:
    from toolkiln.operations.services import Services

_LONGEST_SUMMARY = 200


class ToolkitCard(Value):
    """A toolkit on the catalog page."""

    name: str
    title: str
    """For people."""
    description: str
    icon: str | None
    color: str | None
    """As a CSS color."""
    weight: int
    is_core: bool
    """Whether none of its tools can be disabled."""
    enabled: bool
    """Whether any of its tools is served."""


class CatalogView(Value):
    """The whole catalog, by weight, then name."""

    toolkits: tuple[ToolkitCard, ...]
    tools: tuple[ToolCard, ...]
    hidden: int
    """How many of the tools are hidden from people by default."""


class ToolInventory(Value):
    """The tools that a caller may run, and what is not served."""

    tools: tuple[ToolSpec, ...]
    """By weight, then name; if nothing is served, those of the files on disk."""
    dev: frozenset[str] = frozenset()
    """Names of tools that `dev` serves without an admission."""
    unserved: tuple[str, str | None] | None = None
    """Why nothing is served, and a hint."""
    denied: int = 0
    """How many tools the rules hide."""
    disabled: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Problems of the manifest."""
    unserved_files: int = 0
    """How many files are not served as they are on disk."""
    unreadable: tuple[Finding, ...] = ()
    """The first error of each file that declares no tool because of it."""


class CatalogStatus(Value):
    """The files of the folder, and their admissions."""

    files: tuple[FileStatus, ...]
    inherits: dict[str, str]
    """Grants and settings that a file has once a person admits it, in words, by file."""
    findings: tuple[Finding, ...] = ()
    problem: tuple[str, str | None] | None = None
    """Why the manifest cannot be used, and a hint."""


class CheckFiles(Value):
    """Names files and folders to check."""

    paths: tuple[Path, ...]


class AddFile(Value):
    """Adds a copy of a file to the folder, and admits it."""

    file: Path
    name: str | None = None
    """By default that of the file."""
    description: str = ""
    """Becomes the docstring of functions, and of a file with `TOOL_…` constants, without one."""
    overwrite: bool = False


class ImportFiles(Value):
    """Imports foreign files and folders."""

    paths: tuple[Path, ...]
    into: str = ""
    """A folder below the tools folder."""
    overwrite: bool = False
    add_requirements: bool = False
    """Whether the copies list the packages that they import."""
    dry_run: bool = False


class SwitchTool(Value):
    """Enables or disables a tool, a toolkit, or a method as `Toolkit.method`."""

    name: str
    enabled: bool


@operation("catalog.list", read_only=True)
def list_catalog(context: OperationContext, _: Nothing) -> ToolInventory:
    """Return the tools that the caller may run; with ADMIN also what is not served."""
    services, registry = context.services, context.services.registry
    sees_files = services.path is not None and context.is_admin
    try:
        specs = tuple(services.visible(context.session, None).values())
    except ManifestError as error:
        if not sees_files:
            raise
        return ToolInventory(
            tools=tuple(
                sorted(
                    tools.specs_on_disk(services).values(),
                    key=lambda spec: (spec.weight, spec.name),
                )
            ),
            unserved=(error.message, error.hint),
            unreadable=tuple(_unreadable(services, services.catalog.statuses())),
        )
    inventory = ToolInventory(
        tools=specs,
        dev=frozenset(spec.name for spec in specs if registry.is_dev(spec.name)),
        denied=len(registry.specs) - len(specs),
    )
    if not sees_files:
        return inventory
    snapshot, statuses = services.catalog.snapshot, list(services.catalog.statuses())
    if not snapshot.served:
        tools.specs_on_disk(services)  # raises if there is nothing to admit
    update = {
        "disabled": tuple(sorted(snapshot.served.keys() - snapshot.tools.keys())),
        "findings": tuple(f for f in snapshot.findings if f.rule == "manifest-unusable"),
        "unserved_files": sum(_is_unserved(services, status) for status in statuses),
        "unreadable": tuple(_unreadable(services, statuses)),
    }
    return inventory.model_copy(update=update)


def _is_unserved(services: "Services", status: FileStatus) -> bool:
    if not status.tools or status.state is FileState.ADMITTED:
        return False
    is_undecided = status.state in (FileState.NEW, FileState.CHANGED)
    return not (is_undecided and all(map(services.registry.is_dev, status.tools)))


def _unreadable(services: "Services", statuses: Iterable[FileStatus]) -> Iterator[Finding]:
    for status in statuses:
        error = next((f for f in status.findings if f.severity is Severity.ERROR), None)
        if error and not status.tools:
            yield error.model_copy(update={"path": str(services.catalog.root / status.file)})


@operation("catalog.status", privilege=Privilege.ADMIN, act="proposals.list", read_only=True)
def get_status(context: OperationContext, _: Nothing) -> CatalogStatus:
    """Return the files of the folder that may declare tools, and their admissions."""
    services = context.services
    files = tuple(filter(may_declare_tools, services.catalog.statuses()))
    status = CatalogStatus(
        files=files, inherits={item.file: _inherits(services, item) for item in files}
    )
    try:
        findings = tuple(services.catalog.snapshot.findings)
    except ManifestError as error:
        return status.model_copy(update={"problem": (error.message, error.hint)})
    return status.model_copy(update={"findings": findings})


def _inherits(services: "Services", status: FileStatus) -> str:
    if status.state is FileState.PROPOSED:
        candidate = services.admissions.proposal(status.file)
    elif status.is_unreviewed and status.state is FileState.ADMITTED:
        candidate = services.admissions.candidate(status.file)
    else:
        return ""
    return "; ".join(map(str, inherited(services, candidate))) if candidate else ""


@operation("catalog.check", read_only=True)
def check_files(context: OperationContext, request: CheckFiles) -> Iterator[FileReport]:
    """Check files without running or admitting them; reports come one by one.

    They include the tools that were refused when the same version was admitted.
    """
    refusals = context.services.catalog.refusals()
    for report in check(request.paths):
        reading = report.reading
        entry = refusals.get(Path(reading.path))
        if entry is not None and entry.sha256 == reading.digest:
            more = refused_tools(entry.refused, reading)
            reading = reading.model_copy(update={"findings": (*reading.findings, *more)})
        yield report.model_copy(update={"reading": reading})


@operation("catalog.add", privilege=Privilege.ADMIN, act="admit", timeout=330.0)
async def add_file(context: OperationContext, request: AddFile) -> FileAdmission:
    """Add a file to the folder and admit it, as the operator's own decision."""
    from asyncio import to_thread

    services = context.services
    draft, file = await to_thread(_draft, context, request)
    result = await services.pipeline.write(
        draft,
        services.security.decision(session=context.session),
        observe=lambda stage: context.report(stage.value, None, None),
    )
    notes = await to_thread(usage_notes, services, result)
    return FileAdmission(file=file, result=result, notes=notes)


def _draft(context: OperationContext, request: AddFile) -> tuple[ToolDraft, str]:
    """Return the draft of a file, and where it goes in the folder."""
    root, name = context.services.catalog.root, request.name or request.file.stem
    try:
        code = request.file.read_bytes()
    except OSError as error:
        raise InputError(f"{request.file} cannot be read: {error.strerror}") from error
    target = root / f"{name.removesuffix('.py')}.py"
    if os.path.realpath(request.file) == os.path.realpath(target):
        raise InputError(
            f"{request.file} is already in the tools folder",
            hint=f"admit it with `toolkiln admit {request.file}`",
        )
    check_manifest(context.services)
    refuse_hidden_file(context.services, target.name, context.session)
    return ToolDraft(code, name, request.description, request.overwrite), target.name


@operation("catalog.import", privilege=Privilege.ADMIN, act="import")
def import_files(context: OperationContext, request: ImportFiles) -> ImportReport:
    """Copy foreign files to the folder, where they wait for an admission, and report on each."""
    from toolkiln.sandbox.environments.lockfile import read_requirements_file

    services = context.services
    check_manifest(services)
    options = ImportOptions(
        folder=request.into,
        overwrite=request.overwrite,
        add_requirements=request.add_requirements,
        dry_run=request.dry_run,
    )
    rules = ImportRules(
        read_requirements=read_requirements_file,
        refuse_file=lambda file: refuse_hidden_file(services, file, context.session),
    )
    return Importer(services.catalog, options, rules).run(request.paths, context.report)


@operation("catalog.switch", privilege=Privilege.ADMIN, act="switch")
def switch_tool(context: OperationContext, request: SwitchTool) -> None:
    """Enable or disable a tool, a toolkit or one of its methods."""
    refuse_hidden(context.services, request.name, context.session)
    context.services.admissions.switch(request.name, request.enabled, context.caller.who)


@operation("catalog.get", read_only=True)
async def get_catalog(context: OperationContext, _: Nothing) -> CatalogView:
    """Return all tools and toolkits that the caller may see."""
    from asyncio import to_thread

    try:
        served = await to_thread(context.services.visible, context.session, None)
    except InputError as error:
        if error.code != InputError.code:
            raise
        return CatalogView(toolkits=(), tools=(), hidden=0)  # no folder yet, or no file in it
    disabled: tuple[ToolSpec, ...] = ()
    proposed: tuple[ToolSpec, ...] = ()
    if context.is_admin:
        with suppress(BackendError):  # a fleet without workers cannot know
            disabled = await context.run(tools.list_disabled, tools.ListUnserved())
            proposed = await context.run(tools.list_proposed, tools.ListUnserved())
    return await to_thread(_view, context, served, _by_name(disabled), _by_name(proposed))


def _by_name(specs: Iterable[ToolSpec]) -> dict[str, ToolSpec]:
    return {spec.name: spec for spec in specs}


def _view(
    context: OperationContext,
    served: Mapping[str, ToolSpec],
    disabled: Mapping[str, ToolSpec],
    proposed: Mapping[str, ToolSpec],
) -> CatalogView:
    states: dict[str, tuple[ToolSpec, ServingState]] = {
        **{name: (spec, "proposed") for name, spec in proposed.items()},
        **{name: (spec, "disabled") for name, spec in disabled.items()},
        **{name: (spec, "served") for name, spec in served.items()},
    }
    ordered = sorted(states.values(), key=lambda item: (item[0].weight, item[0].name))
    services = context.services
    cards = tuple(
        _in_state(
            services.derived(spec, _card),
            state=state,
            has_proposal=spec.name in proposed,
            dev=services.registry.is_dev(spec.name),
        )
        for spec, state in ordered
    )
    enabled = {card.toolkit for card in cards if card.state == "served"}
    toolkits = {spec.toolkit.name: spec.toolkit for spec, _ in ordered if spec.toolkit}
    by_weight = sorted(toolkits.values(), key=lambda toolkit: (toolkit.weight, toolkit.name))
    return CatalogView(
        toolkits=tuple(_toolkit(kit, is_enabled=kit.name in enabled) for kit in by_weight),
        tools=cards,
        hidden=sum(not card.is_shown for card in cards),
    )


def _in_state(card: ToolCard, **state: ServingState | bool) -> ToolCard:
    """Return a card with the fields that can change while the tool's version stays the same."""
    if all(getattr(card, name) == value for name, value in state.items()):
        return card
    return card.model_copy(update=state)


def _card(spec: ToolSpec) -> ToolCard:
    """Return the card of a served tool without a proposal."""
    kit, rights = spec.toolkit, spec.rights
    return ToolCard(
        name=spec.name,
        title=spec.display_name,
        toolkit=kit.name if kit else None,
        summary=_summary(spec.description),
        role=spec.role,
        icon=spec.icon,
        color=paint(spec.color) if spec.color else None,
        weight=spec.weight,
        is_core=spec.cannot_be_disabled,
        is_shown=spec.is_shown,
        read_only=bool(spec.hints.read_only),
        health=health(spec.parameters).level,
        rights=CardPermissions(
            network=rights.network,
            secrets=rights.secrets,
            workspace=rights.workspace,
            sandbox=rights.sandbox,
            needs_approval=rights.needs_approval,
        ),
        state="served",
        has_proposal=False,
        dev=False,
    )


def _summary(description: str) -> str:
    line = next((line for line in map(str.strip, description.splitlines()) if line), "")
    return line if len(line) <= _LONGEST_SUMMARY else f"{line[: _LONGEST_SUMMARY - 1]}…"


def _toolkit(kit: Toolkit, *, is_enabled: bool) -> ToolkitCard:
    return ToolkitCard(
        name=kit.name,
        title=kit.display_name,
        description=kit.description,
        icon=kit.icon,
        color=paint(kit.color) if kit.color else None,
        weight=kit.weight,
        is_core=kit.is_core,
        enabled=is_enabled,
    )
