"""Proposal operations: files that wait for a decision, and the decision.

A decision names the digest of the version that a person reviewed, and that of the served
version it was compared with. If either has changed, the decision is refused.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from toolkiln.catalog.admission import CandidateVersion
from toolkiln.catalog.diff import RequestedPermissions
from toolkiln.catalog.manifest import MANIFEST
from toolkiln.errors import InputError, NotFound, StaleVersion, refuse_outdated
from toolkiln.model.admission import AdmissionDecision, AdmissionResult, FindingSummary
from toolkiln.model.base import Value
from toolkiln.model.catalog import DecisionRecord, FileState, FileStatus, Sources
from toolkiln.model.identity import Privilege
from toolkiln.model.source import Finding, Severity
from toolkiln.operations.operation import (
    Count,
    OperationContext,
    PageQuery,
    decode_cursor,
    encode_cursor,
    operation,
)
from toolkiln.operations.policy import (
    InheritedRights,
    inherited,
    no_proposal,
    not_granted,
    refuse_hidden_file,
)
from toolkiln.operations.services import Services
from toolkiln.operations.tool_files import failed_steps, require_admission

_READING, _ADMITTING = 15.0, 330.0
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_UNDECIDED = frozenset({FileState.NEW, FileState.CHANGED, FileState.PROPOSED})


class Proposal(Value):
    """A file that waits for a decision, compared with the served version."""

    file: str
    """Relative to the tools folder."""
    state: FileState
    """`proposed` by a tool or the API; `new` or `changed` on disk."""
    names: tuple[str, ...]
    """The tools that it declares."""
    digest: str
    """Digest of the file and its helper modules; a decision names it."""
    base: str | None
    """Digest of the served version."""
    source: str
    base_source: str | None
    """Source of the served version."""
    diff: str
    """Over the file and its helper modules; characters that do not show are spelt out."""
    by: str | None
    """Who proposed it, if known."""
    at: float | None
    findings: tuple[Finding, ...]
    """Findings that the served version does not have, and all overruled ones; one of severity
    `error` blocks the admission."""
    rights: tuple[RequestedPermissions, ...]
    """Permissions that it requests beyond the served version."""
    grants: tuple[RequestedPermissions, ...]
    """All permissions that it requests; `grant` grants them."""
    inherits: tuple[InheritedRights, ...] = ()
    """The grants and settings that it has once it is admitted, without `grant`."""
    base_reviewed: bool | None = None
    """Whether a person reviewed the served version; if not, `diff` and `rights` compare with
    nothing. None: no version is served."""


class ProposalQuery(Value):
    """Selects the files that wait."""

    name: str = ""
    only_proposed: bool = False
    """Whether to leave out new and changed files, so that the folder is not scanned."""


class ProposalFiles(Value):
    """Names files."""

    name: str = ""
    files: tuple[str, ...]


class ProposalRef(Value):
    """Names a proposal exactly as a person looked at it."""

    name: str = ""
    file: Annotated[str, Field(min_length=1, max_length=4_096)]
    digest: Digest
    base: Digest | None
    """Digest of the version that was served."""
    reason: Annotated[str, Field(max_length=2_000)] = ""


class AdmitProposal(ProposalRef):
    """Admits a proposal."""

    grant: bool = False
    """Whether to grant all permissions that its tools request."""


class ProposalPageQuery(PageQuery):
    """Selects a page of the proposals, each with its source."""

    state: Literal["all", "proposed"] = "all"
    """All files that wait, or those proposed by a tool or the API, which is faster."""
    limit: Annotated[Count, Field(ge=1, le=50)] = 20


class ProposalPage(Value):
    """A page of the proposals, by file."""

    items: tuple[Proposal, ...]
    next_cursor: str | None
    total: int
    """How many files wait in all."""


class AdmittedFile(Value):
    """An admitted file."""

    file: str
    tools: tuple[str, ...]
    """The tools that are served."""
    digest: str
    version: int
    warnings: tuple[FindingSummary, ...]
    notes: tuple[str, ...]
    """Steps that failed without blocking the admission: it is disabled, or not indexed."""


class RejectedFile(Value):
    """A rejected file."""

    file: str
    digest: str
    served: bool
    """Whether an earlier version is still served."""


class CandidateQuery(Value):
    """Selects files to admit."""

    paths: tuple[Path, ...] = ()
    """Files in any state, and folders; empty: all files that wait for a decision."""
    reset: bool = False
    """Whether the manifest is replaced, so that admitted files of folders wait too."""
    compare: bool = True
    """Whether to compare them with the served versions."""


class AdmissionCandidate(Value):
    """A file that can be admitted."""

    file: str
    """Relative to the tools folder."""
    digest: str
    base: str | None
    """Digest of the served version."""
    is_blocked: bool
    """Whether an error in its source blocks the admission."""
    proposal: Proposal | None
    """The comparison with the served version, if requested."""


class AdmitFiles(Value):
    """Admits files in any state exactly as a person reviewed them."""

    files: tuple[ProposalRef, ...]
    grant: bool = False
    """Whether to grant all permissions that their tools request."""
    probe: bool = True
    """Whether to import them and run their examples first."""
    reset: bool = False
    """Whether to replace the manifest."""


class FileAdmission(Value):
    """The result of admitting one file."""

    file: str
    """Relative to the tools folder."""
    result: AdmissionResult
    notes: tuple[str, ...] = ()
    """Why its tools cannot be used yet: names that are taken, permissions that are missing."""


class RejectFile(Value):
    """Names a file to reject."""

    path: Path


@operation("proposals.list", read_only=True)
async def list_proposals(context: OperationContext, request: ProposalPageQuery) -> ProposalPage:
    """Return a page of the proposals; requires ADMIN."""
    query = ProposalQuery(only_proposed=request.state == "proposed")
    waiting = await context.run(list_files, query)
    files = sorted(waiting)
    start = 0
    if request.cursor is not None:
        (last,) = decode_cursor("proposals", request.cursor, str)
        start = sum(1 for file in files if file <= last)
    part = files[start : start + request.limit]
    is_last = start + request.limit >= len(files)
    found = await context.run(get_proposals, ProposalFiles(files=tuple(part)))
    return ProposalPage(
        items=tuple(sorted(found, key=lambda proposal: proposal.file)),
        next_cursor=None if is_last else encode_cursor("proposals", part[-1]),
        total=len(files),
    )


@operation("proposals.accept", timeout=_ADMITTING)
async def accept_proposal(context: OperationContext, request: AdmitProposal) -> AdmittedFile:
    """Admit a proposal, or raise AdmissionRefused; requires ADMIN."""
    result = await context.run(admit, request)
    require_admission(result, request.file)
    assert result.version is not None
    return AdmittedFile(
        file=request.file,
        tools=result.functions_registered,
        digest=result.digest,
        version=result.version,
        warnings=result.warnings,
        notes=failed_steps(result),
    )


@operation("proposals.decline")
async def decline_proposal(context: OperationContext, request: ProposalRef) -> RejectedFile:
    """Reject a proposal; requires ADMIN."""
    is_served = await context.run(reject, request)
    return RejectedFile(file=request.file, digest=request.digest, served=is_served)


@operation(
    "proposals.files",
    privilege=Privilege.ADMIN,
    act="proposals.list",
    read_only=True,
    timeout=_READING,
    routing="worker",
)
def list_files(context: OperationContext, request: ProposalQuery) -> tuple[str, ...]:
    """Return the files that wait for a decision."""
    services = context.services
    if services.path is None:
        return ()
    check_manifest(services)
    proposed = list(services.catalog.proposals())
    # With `dev`, files on disk are served while they are edited: they need no decision.
    if request.only_proposed or services.settings.dev:
        return tuple(proposed)
    try:
        found = services.catalog.statuses()
    except InputError:
        return tuple(proposed)  # there is no folder yet, or nothing in it
    files = [one.file for one in found if one.state in _UNDECIDED and may_declare_tools(one)]
    return tuple(sorted({*files, *proposed}))


@operation(
    "proposals.get",
    privilege=Privilege.ADMIN,
    act="proposals.list",
    read_only=True,
    timeout=_READING,
    routing="worker",
)
def get_proposals(context: OperationContext, request: ProposalFiles) -> tuple[Proposal, ...]:
    """Return the proposals of files, without those that were decided in the meantime.

    A file may have two: a proposal, and another change on disk.
    """
    return tuple(_proposals(context, request.files))


@operation(
    "proposals.admit",
    privilege=Privilege.ADMIN,
    act="admit",
    timeout=_ADMITTING,
    routing="worker",
)
async def admit(context: OperationContext, request: AdmitProposal) -> AdmissionResult:
    """Admit a proposal exactly as a person reviewed it, if it passes."""
    from asyncio import to_thread

    candidate = await to_thread(_candidate, context, request)
    decision = context.services.security.decision(grant=request.grant, session=context.session)
    results = await _admit(context, [candidate], replace(decision, note=request.reason))
    return results[candidate.file]


async def _admit(
    context: OperationContext,
    candidates: Sequence[CandidateVersion],
    decision: AdmissionDecision,
    *,
    probe: bool = True,
    reset: bool = False,
) -> dict[str, AdmissionResult]:
    """Admit versions that pass, and report progress; return the result of each file."""
    done = iter(range(len(candidates)))
    return await context.services.pipeline.admit(
        candidates,
        decision,
        probe=probe,
        reset=reset,
        observe=lambda file: context.report(file, next(done), len(candidates)),
    )


@operation("proposals.candidates", privilege=Privilege.ADMIN, act="admit", read_only=True)
def find_candidates(
    context: OperationContext, request: CandidateQuery
) -> tuple[AdmissionCandidate, ...]:
    """Return the files that are named, or all that wait for a decision."""
    services = context.services
    _refuse_missing(services, request.paths)
    if not request.reset:
        check_manifest(services)
    found = [_current(services, file, reset=request.reset) for file in _selected(services, request)]
    for candidate in found:
        refuse_hidden_file(services, candidate.file, context.session)
    return tuple(
        AdmissionCandidate(
            file=candidate.file,
            digest=candidate.read.digest,
            base=candidate.base,
            is_blocked=any(map(_is_error, candidate.read.reading.findings)),
            proposal=_proposal(services, candidate, reset=request.reset)
            if request.compare
            else None,
        )
        for candidate in found
    )


def _refuse_missing(services: Services, paths: Sequence[Path]) -> None:
    """Refuse files that are neither on disk nor proposed."""
    for path in paths:
        if os.path.exists(path):  # noqa: PTH110 - Path's method raises for names that are too long
            continue
        try:
            is_proposed = services.catalog.folder.key(path) in services.catalog.proposals()
        except (InputError, OSError, RuntimeError, ValueError):  # no manifest, no possible name
            is_proposed = False
        if not is_proposed:
            raise InputError(f"there is no file or folder {str(path)!r}")


def _selected(services: Services, request: CandidateQuery) -> list[str]:
    key = services.catalog.folder.key
    files = [key(path) for path in request.paths if not path.is_dir()]
    folders = [f"{key(path)}/".removeprefix("./") for path in request.paths if path.is_dir()]
    if folders or not request.paths:
        states = {*_UNDECIDED, FileState.ADMITTED} if request.reset else _UNDECIDED
        files += [
            status.file
            for status in services.catalog.statuses()
            if (status.state in states or status.is_unconfirmed)
            and may_declare_tools(status)
            and (not folders or status.file.startswith(tuple(folders)))
        ]
    return list(dict.fromkeys(files))


def _current(services: Services, file: str, *, reset: bool) -> CandidateVersion:
    """Return the version of a file to decide about: a change on disk, or else the proposal."""
    admissions, catalog = services.admissions, services.catalog
    if not reset and file in catalog.proposals() and (proposal := admissions.proposal(file)):
        read = catalog.folder.read(file)
        state = catalog.manifest.state_of(file, read.digest) if read else FileState.MISSING
        if state not in (FileState.NEW, FileState.CHANGED):
            return proposal
    return admissions.candidate(file)


@operation("proposals.admit_files", privilege=Privilege.ADMIN, act="admit", timeout=_ADMITTING)
async def admit_files(context: OperationContext, request: AdmitFiles) -> tuple[FileAdmission, ...]:
    """Admit files that pass, in one change of the manifest; proposals in one each."""
    from asyncio import to_thread

    services = context.services
    candidates = [
        await to_thread(_exact, context, ref, reset=request.reset) for ref in request.files
    ]
    decision = services.security.decision(grant=request.grant, session=context.session)
    results = await _admit(context, candidates, decision, probe=request.probe, reset=request.reset)

    def admissions() -> tuple[FileAdmission, ...]:
        return tuple(
            FileAdmission(file=file, result=result, notes=usage_notes(services, result))
            for file, result in results.items()
        )

    return await to_thread(admissions)


def _exact(context: OperationContext, ref: ProposalRef, *, reset: bool) -> CandidateVersion:
    """Return the version that a reference names, in any state."""
    services, file = context.services, ref.file
    refuse_hidden_file(services, file, context.session)
    found: list[CandidateVersion] = []
    if not reset and file in services.catalog.proposals():
        found += filter(None, [services.admissions.proposal(file)])
    try:
        found.append(services.admissions.candidate(file))
    except InputError:
        if not found:
            raise
    return _matching(found, ref)


def usage_notes(services: Services, result: AdmissionResult) -> tuple[str, ...]:
    """Return why the tools of an admitted file cannot be used yet."""
    if not result.success:
        return ()
    findings = services.catalog.snapshot.findings
    notes = [finding.message for finding in findings if finding.path == result.filepath]
    for name in result.functions_registered:
        if missing := "; ".join(not_granted(services, name)):
            grant = f"`toolkiln admit --grant {result.filepath}`"
            notes.append(f"{name} requests {missing}, which is not granted; {grant} grants it")
    return tuple(notes)


@operation("proposals.reject_file", privilege=Privilege.ADMIN, act="reject")
def reject_file(context: OperationContext, request: RejectFile) -> bool:
    """Reject the proposal for a file, or else the version on disk in any state.

    Return whether an earlier version is still served.
    """
    services = context.services
    file = services.catalog.folder.key(request.path)
    refuse_hidden_file(services, file, context.session)
    return services.admissions.reject(file, context.caller.who)


@operation("proposals.reject", privilege=Privilege.ADMIN, act="reject", routing="worker")
def reject(context: OperationContext, request: ProposalRef) -> bool:
    """Reject a proposal; return whether an earlier version is still served."""
    candidate = _candidate(context, request)
    return context.services.admissions.reject(
        candidate.file, context.caller.who, reviewed=candidate, note=request.reason
    )


def _candidate(context: OperationContext, request: ProposalRef) -> CandidateVersion:
    """Return the version that a decision names, if it still waits."""
    services = context.services
    check_manifest(services)
    candidate = _matching(_candidates(context, request.file), request)
    if _state(services, candidate) not in _UNDECIDED:
        raise _stale(request)
    return candidate


def _matching(candidates: Sequence[CandidateVersion], ref: ProposalRef) -> CandidateVersion:
    same = [one for one in candidates if one.read.digest == ref.digest]
    candidate = (same or candidates)[0]
    refuse_outdated(ref.file, candidate.read.digest, ref.digest)
    if candidate.base != ref.base:
        raise _stale(ref)
    return candidate


def _stale(ref: ProposalRef) -> StaleVersion:
    return StaleVersion(
        f"the proposal for {ref.file} is out of date",
        hint="look at the current version, then try again",
    )


def _candidates(context: OperationContext, file: str) -> list[CandidateVersion]:
    """Return the proposal for a file, and the file on disk if it waits too, or else alone."""
    services = context.services
    refuse_hidden_file(services, file, context.session)
    catalog, admissions = services.catalog, services.admissions
    found: list[CandidateVersion] = []
    if _has_manifest(services) and (proposal := admissions.proposal(file)):
        found.append(proposal)
    try:
        if catalog.folder.key(catalog.root / file) == file:  # not outside of the folder
            on_disk = admissions.candidate(file)
            is_waiting = not services.settings.dev and _state(services, on_disk) in _UNDECIDED
            is_other = all(on_disk.read.digest != one.read.digest for one in found)
            found += [on_disk] if not found or (is_waiting and is_other) else []
    except (InputError, ValueError, OSError):  # also: not a possible file name
        pass
    if not found:
        raise no_proposal(file)
    return found


def _proposals(context: OperationContext, files: tuple[str, ...]) -> Iterator[Proposal]:
    for file in files:
        with suppress(NotFound):
            yield from [_proposal(context.services, one) for one in _candidates(context, file)]


def _proposal(services: Services, candidate: CandidateVersion, *, reset: bool = False) -> Proposal:
    admissions, catalog, file = services.admissions, services.catalog, candidate.file
    base: Sources | None = None
    entry = None
    if candidate.base is not None and not reset:
        base = catalog.version_sources(candidate.base, file)
        entry = catalog.manifest.files.get(file)
    state = FileState.NEW if reset else _state(services, candidate)
    proposed = catalog.manifest.proposed[file] if state is FileState.PROPOSED else None
    assessment = admissions.assess(candidate)
    return Proposal(
        file=file,
        state=state,
        names=candidate.read.names,
        digest=candidate.read.digest,
        base=candidate.base,
        source=_text(candidate.read.sources),
        base_source=_text(base) if base else None,
        diff=assessment.diff,
        by=proposed.by if proposed else None,
        at=_timestamp(proposed) if proposed else None,
        findings=tuple(assessment.findings),
        rights=assessment.rights,
        grants=admissions.assess(replace(candidate, base=None)).rights,
        inherits=inherited(services, candidate),
        base_reviewed=entry.is_reviewed if entry else None,
    )


def _state(services: Services, candidate: CandidateVersion) -> FileState:
    if not _has_manifest(services):
        return FileState.NEW
    return services.catalog.manifest.state_of(candidate.file, candidate.read.digest)


def check_manifest(services: Services) -> None:
    """Raise ManifestError if earlier decisions cannot be trusted."""
    if _has_manifest(services):
        _ = services.catalog.manifest


def _has_manifest(services: Services) -> bool:
    return os.path.lexists(services.catalog.root / MANIFEST)


def may_declare_tools(status: FileStatus) -> bool:
    """Return whether a file declares tools, was admitted, or cannot be read."""
    return bool(status.tools or status.admission or any(map(_is_error, status.findings)))


def _is_error(finding: Finding) -> bool:
    return finding.severity is Severity.ERROR


def _text(sources: Sources) -> str:
    return next(iter(sources.values()), b"").decode("utf-8", "replace")


def _timestamp(record: DecisionRecord) -> float:
    return datetime.fromisoformat(record.at).timestamp()
