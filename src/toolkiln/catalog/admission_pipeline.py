"""Authoring: from source text, or from a file on disk, to an admitted version.

One way for agents (`write_python_tool`), people (`toolkiln add`, `toolkiln admit`) and
programs. Everything that can say no comes first and touches nothing; the version is
written and admitted in one step that happens or does not; what follows is derived from
the admitted version and can be derived again. So if any step fails at any moment, the
earlier version serves on.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from toolkiln.catalog.admission import Admissions, CandidateVersion, refuse_proposal
from toolkiln.catalog.files import file_for, name_finding, with_companions
from toolkiln.catalog.manifest import MANIFEST, MissingManifest
from toolkiln.catalog.reading_pool import ReadingPool
from toolkiln.catalog.removal import refuse_outdated
from toolkiln.catalog.reports import report, with_docstrings
from toolkiln.docs.pages import page, page_name
from toolkiln.errors import InputError, ServerBusy, ToolkilnError
from toolkiln.model.admission import (
    AdmissionDecision,
    AdmissionResult,
    FindingSummary,
    Stage,
    StageOutcome,
    ToolDraft,
)
from toolkiln.model.catalog import FileVersion, Version
from toolkiln.model.source import Finding, Severity
from toolkiln.model.spec import ToolSpec
from toolkiln.spec.findings import overrule
from toolkiln.spec.reader import read
from toolkiln.spec.syntax import MAX_BYTES, decode

_MOST_FINDINGS = 20
_LONGEST = 400
_UNREADABLE = {"syntax-error", "not-python", "too-deep", "file-too-large", "too-complex"}
"""Rules of findings about text that could not be parsed."""


class _Stopped(Exception):
    """A stage said no."""

    def __init__(
        self, error: str, findings: Sequence[Finding] = (), *, code: str = "refused"
    ) -> None:
        super().__init__(error)
        self.error = error
        self.code = code
        self.findings = findings


@dataclass
class _Course:
    """How far a version has come."""

    observe: Callable[[Stage], None]
    outcomes: list[StageOutcome] = field(default_factory=list)
    stage: Stage = Stage.NAME
    warnings: list[Finding] = field(default_factory=list)

    def enter(self, stage: Stage) -> None:
        """Go on to the next stage."""
        self.stage = stage
        self.observe(stage)

    def passed(self, message: str = "", *, ok: bool = True) -> None:
        """The stage has ended, and the way goes on."""
        self.outcomes.append(StageOutcome(stage=self.stage, ok=ok, message=message))

    def stopped(self, stop: _Stopped) -> AdmissionResult:
        """The end of a version that a stage said no to."""
        self.outcomes.append(StageOutcome(stage=self.stage, ok=False))
        return AdmissionResult(
            success=False,
            error=stop.error[: 2 * _LONGEST],
            code=stop.code,
            validation_errors=_problems(stop.findings),
            warnings=_problems(self.warnings),
            stages=tuple(self.outcomes),
        )


def _unobserved(_: str) -> None:
    pass


class AdmissionPipeline:
    """The way into one catalog."""

    def __init__(
        self,
        admissions: Admissions,
        refuse: frozenset[str],
        probe: Callable[[FileVersion], Awaitable[list[Finding]]],
        index: Callable[[], Awaitable[str | None]],
        reading: ReadingPool | None = None,
    ) -> None:
        """`refuse` are rules that count like errors; `index` returns what search lacks."""
        self._catalog = admissions.catalog
        self._admissions = admissions
        self._refuse = refuse
        self._probe = probe
        self._index = index
        self._reading = reading or ReadingPool()

    async def write(
        self,
        draft: ToolDraft,
        decision: AdmissionDecision,
        *,
        quota: int | None = None,
        may_replace: Callable[[ToolSpec], bool] | None = None,
        observe: Callable[[Stage], None] = _unobserved,
    ) -> AdmissionResult:
        """Admit a tool, or say why not. With a `quota` it becomes a proposal instead.

        `may_replace` is whether the writer may see a tool of the file that is replaced; None: all.
        Packages that a proposal requires are not installed: it is probed when it is admitted.
        """
        course = _Course(observe)
        try:
            understood = partial(self._understood, draft, course, may_replace)
            candidate = await self._read(decision.by, understood)
            if quota is not None:
                await asyncio.to_thread(self._refuse_proposal, candidate, decision, quota)
            elif may_replace is not None:  # a proposal leaves the file on disk alone
                await asyncio.to_thread(self._refuse_losing, candidate)
            has_packages = any(spec.requirements for spec in candidate.read.reading.tools)
            probe = quota is None or not has_packages
            # A proposal is for a person to decide about, who sees what it overrules.
            overrules = quota is not None or decision.reviewed
            candidate = await self._vet(candidate, course, probe=probe, overrules=overrules)
            course.enter(Stage.WRITE)
            version = await asyncio.to_thread(self._written, candidate, decision, quota)
        except _Stopped as stop:
            return course.stopped(stop)
        course.passed("proposed" if version is None else f"version {version.number}")
        return await self._finished(candidate, version, course)

    async def admit(
        self,
        candidates: Sequence[CandidateVersion],
        decision: AdmissionDecision,
        *,
        probe: bool = True,
        afresh: bool = False,
        observe: Callable[[str], None] = _unobserved,
    ) -> dict[str, AdmissionResult]:
        """Admit files as they are on disk, those that pass; what became of each file."""
        results: dict[str, AdmissionResult] = {}
        passed: list[tuple[CandidateVersion, _Course]] = []
        for candidate in candidates:
            observe(candidate.file)
            course = _Course(_unobserved)
            try:
                overrules = decision.reviewed
                vetted = await self._vet(candidate, course, probe=probe, overrules=overrules)
                passed.append((vetted, course))
            except _Stopped as stop:
                results[candidate.file] = course.stopped(stop)
        on_disk = [candidate for candidate, _ in passed if candidate.is_written]
        versions: list[Version] = []
        if on_disk:
            versions = await asyncio.to_thread(
                self._admissions.admit, on_disk, decision, afresh=afresh
            )
        admitted = {version.file: version for version in versions}
        for candidate, course in passed:
            course.enter(Stage.WRITE)
            version = admitted.get(candidate.file) if candidate.is_written else None
            try:
                if version is None:  # a proposal: its file is written in its own transaction
                    version = await asyncio.to_thread(self._admit_proposal, candidate, decision)
            except _Stopped as stop:
                results[candidate.file] = course.stopped(stop)
                continue
            course.passed(f"version {version.number}")
            results[candidate.file] = await self._finished(candidate, version, course)
        return results

    def _admit_proposal(self, candidate: CandidateVersion, decision: AdmissionDecision) -> Version:
        try:
            self._admissions.refuse_overwriting(candidate)
            return self._admissions.admit([candidate], decision)[0]
        except (ToolkilnError, OSError) as error:
            raise _stop(error) from error

    async def _read(self, who: str, understood: Callable[[], CandidateVersion]) -> CandidateVersion:
        try:
            return await self._reading.run(who, understood)
        except ServerBusy as busy:
            raise _Stopped(f"{busy.message}: {busy.hint}", code=busy.code) from busy

    def _understood(
        self, draft: ToolDraft, course: _Course, may_replace: Callable[[ToolSpec], bool] | None
    ) -> CandidateVersion:
        course.enter(Stage.NAME)
        try:
            target = self._target(draft, may_replace)
        except (ToolkilnError, OSError) as error:
            raise _stop(error) from error
        odd_name = name_finding(target)
        course.warnings += [odd_name] if odd_name else []
        course.passed(target.name)
        course.enter(Stage.SYNTAX)
        data = _as_bytes(draft, target)
        reading = read(decode(data), target, data=data)
        unreadable = [f for f in reading.findings if f.rule in _UNREADABLE]
        if unreadable:
            raise _Stopped(unreadable[0].message, unreadable)
        course.passed()
        course.enter(Stage.READ)
        if not reading.tools:
            raise _Stopped("the code declares no tool", report(reading, {}).reading.findings)
        try:
            version = FileVersion(reading, with_companions(reading, data))
            candidate = self._admissions.written(self._key(target), version)
        except InputError as error:
            said = "its helper modules or data files changed meanwhile; try again"
            raise _Stopped(said) from error
        except OSError as error:
            raise _stop(error) from error
        _refuse_existing(target, draft, exists=candidate.replaces is not None)
        try:
            refuse_outdated(draft.name, self._catalog.served_digest(candidate.file), draft.base)
        except ToolkilnError as error:
            raise _stop(error) from error
        self._refuse_taken_names(candidate, may_replace)
        course.passed(", ".join(spec.name for spec in reading.tools))
        return candidate

    def _target(
        self, draft: ToolDraft, may_replace: Callable[[ToolSpec], bool] | None = None
    ) -> Path:
        """Return the file to write, by the current content of the folder."""
        root = self._catalog.root
        folder = root / draft.folder
        # A file behind a link, or above the folder, does not belong to the catalog.
        if folder.resolve() != Path(f"{root.resolve()}/{draft.folder}"):
            raise _Stopped(f"{draft.folder} is no folder of {root} itself")
        target = file_for(draft.name, folder)
        if not self._catalog.folder.is_ours(self._key(target)):
            raise _Stopped(f"only {self._catalog.folder.place} is served, and no folder")
        root.mkdir(parents=True, exist_ok=True)
        self._catalog.refresh([root / MANIFEST, target])
        if may_replace is not None:
            self._refuse_hidden(target, draft, may_replace)
        _refuse_existing(target, draft, exists=target.exists())
        return target

    def _refuse_hidden(
        self, target: Path, draft: ToolDraft, may_replace: Callable[[ToolSpec], bool]
    ) -> None:
        """Refuse to replace a file with a tool that the writer may not see.

        The answer does not say what is hidden.
        """
        file = self._key(target)
        served, read = self._catalog.served_version(file), self._catalog.folder.read(file)
        if served is None and read is None and not os.path.lexists(target):
            return
        reading = served.reading if served else read.reading if read else None
        if reading is None or not all(map(may_replace, reading.tools)):
            raise _Stopped(f"the name {draft.name!r} is taken; choose another name", code="exists")

    def _refuse_losing(self, candidate: CandidateVersion) -> None:
        """Refuse to replace changes on disk that are in no version."""
        file = candidate.file
        served, read = self._catalog.served_version(file), self._catalog.folder.read(file)
        if read is None or served is None or read.digest == served.read.digest:
            return
        kept = self._catalog.archive.history(self._catalog.manifest.catalog, file)
        if read.digest not in {version.digest for version in kept}:
            raise _Stopped(f"{file} has unadmitted changes; choose another name", code="conflict")

    def _key(self, target: Path) -> str:
        return target.relative_to(self._catalog.root).as_posix()

    def _refuse_taken_names(
        self, candidate: CandidateVersion, may_see: Callable[[ToolSpec], bool] | None
    ) -> None:
        try:
            served = self._catalog.snapshot.served
        except InputError:
            return  # nothing is served; a manifest that cannot be trusted refuses the writing
        owners = {
            name: s.file if may_see is None or may_see(s.read.tool(name)) else "another file"
            for name, s in served.items()
            if s.file != candidate.file and name in candidate.read.names
        }
        owners |= dict.fromkeys(self._catalog.options.reserved, "Toolkiln or this program")
        found = report(candidate.read.reading, owners).reading.findings
        taken = [finding for finding in found if finding.rule == "duplicate-name"]
        if taken:
            raise _Stopped(taken[0].message, taken)

    async def _vet(
        self, candidate: CandidateVersion, course: _Course, *, overrules: bool, probe: bool = True
    ) -> CandidateVersion:
        """Stop the version if something is wrong with it that counts.

        Overruled errors count unless `overrules`: a comment in a source is its author's word, and
        only a person who admits the version may take it.
        """
        course.enter(Stage.FINDINGS)
        findings = report(candidate.read.reading, {}).reading.findings
        if not candidate.read.reading.tools:
            raise _Stopped("the file declares no tool", findings)
        course.warnings += [f for f in findings if f.severity is Severity.WARNING]
        self._refuse_findings(findings, overrules=overrules)
        course.passed(f"warnings: {len(course.warnings)}" if course.warnings else "")
        if probe:
            course.enter(Stage.PROBE)
            try:
                found = overrule(await self._probe(candidate.read), _texts(candidate.read))
            except ToolkilnError as error:
                raise _stop(error) from error
            self._refuse_findings(found, overrules=overrules)
            course.warnings += found
            candidate = replace(candidate, probed=found)
            course.passed()
        course.enter(Stage.DOCS)
        for spec in candidate.read.reading.tools:
            page(spec)
        course.passed(", ".join(page_name(s.name) for s in candidate.read.reading.tools))
        return candidate

    def _refuse_findings(self, findings: Sequence[Finding], *, overrules: bool) -> None:
        bad = [
            f
            for f in findings
            if f.severity is Severity.ERROR
            or f.rule in self._refuse
            or (f.overruled and not overrules)
        ]
        if bad:
            count = "a problem" if len(bad) == 1 else f"{len(bad)} problems"
            raise _Stopped(f"the code has {count}: {bad[0].message}", bad)

    def _refuse_proposal(
        self, candidate: CandidateVersion, decision: AdmissionDecision, quota: int
    ) -> None:
        """Refuse what could not be proposed anyway, before it is tried out in the sandbox."""
        try:
            refuse_proposal(self._catalog.manifest, candidate.file, decision.by, quota)
        except MissingManifest:
            pass
        except ToolkilnError as error:
            raise _stop(error) from error

    def _written(
        self, candidate: CandidateVersion, decision: AdmissionDecision, quota: int | None
    ) -> Version | None:
        try:
            if quota is not None:
                self._admissions.propose(candidate, decision.by, quota)
                return None
            return self._admissions.admit([candidate], decision)[0]
        except (ToolkilnError, OSError) as error:
            raise _stop(error) from error

    async def _unindexed(self) -> str | None:
        """What search lacks with the version in it."""
        try:
            return await self._index()
        except Exception as error:  # noqa: BLE001 - the version is admitted even if search fails
            return f"search could not follow: {str(error)[:_LONGEST]}"

    async def _finished(
        self, candidate: CandidateVersion, version: Version | None, course: _Course
    ) -> AdmissionResult:
        names = tuple(spec.name for spec in candidate.read.reading.tools)
        missing: str | None = "nothing that is not served is searched for"
        served: tuple[str, ...] = ()
        if version is not None:
            course.enter(Stage.SNAPSHOT)
            snapshot = self._catalog.current
            served = tuple(
                name
                for name in names
                if name in snapshot.tools and snapshot.served[name].file == candidate.file
            )
            unserved = ", ".join(name for name in names if name not in served)
            problem = f"disabled, or its name is taken: {unserved}" if unserved else ""
            course.passed(problem or f"number {snapshot.number}", ok=not unserved)
            course.enter(Stage.SEARCH)
            missing = await self._unindexed()
            course.passed(missing or "")
        return AdmissionResult(
            success=True,
            filename=Path(candidate.file).name,
            filepath=str(self._catalog.root / candidate.file),
            functions_registered=served,
            reload_success=version is not None and served == names,
            embedding_success=missing is None,
            docs_generated=True,
            warnings=_problems(course.warnings),
            stages=tuple(course.outcomes),
            digest=candidate.read.reading.digest,
            version=version.number if version else None,
            proposed=version is None,
        )


def _refuse_existing(target: Path, draft: ToolDraft, *, exists: bool) -> None:
    if exists and not draft.overwrite:
        said = f"{target.name} exists already; overwrite=true replaces it"
        raise _Stopped(said, code="exists")


def _as_bytes(draft: ToolDraft, target: Path) -> bytes:
    """The file to be: with docstrings where they are missing, and what it says it is."""
    try:
        given = draft.code if isinstance(draft.code, str) else decode(draft.code)
        code = with_docstrings(given, draft.description, target)
        if code == given and isinstance(draft.code, bytes):
            data = draft.code
        else:
            data = code.encode()
            if decode(data) != re.sub(r"\r\n?", "\n", code.removeprefix("\ufeff")):
                raise _Stopped("the code names another encoding than UTF-8; take that line out")
    except (UnicodeError, SyntaxError, LookupError) as error:
        raise _Stopped(f"the code is not text: {error}") from error
    if len(data) > MAX_BYTES:
        raise _Stopped(f"the code has {len(data):,} bytes, and tools end at {MAX_BYTES:,}")
    return data


def _stop(error: ToolkilnError | OSError) -> _Stopped:
    if isinstance(error, ToolkilnError):
        said = f"{error.message} ({error.hint})" if error.hint else error.message
        return _Stopped(said, code=error.code)
    said = f"{error.filename or 'the disk'}: {error.strerror or error}"
    return _Stopped(said, code="backend_failed")


def _texts(version: FileVersion) -> dict[str, str]:
    """The text of a version's own file by its path, as findings of running it name it."""
    return {version.reading.path: decode(next(iter(version.sources.values())))}


def _problems(findings: Sequence[Finding]) -> tuple[FindingSummary, ...]:
    return tuple(
        FindingSummary(line=f.line, rule=f.rule, message=f.message[:_LONGEST], fix=f.fix[:_LONGEST])
        for f in findings[:_MOST_FINDINGS]
    )
