"""The admission pipeline: from source text, or a file on disk, to an admitted version.

Agents (`write_python_tool`), people (`toolkiln add`, `toolkiln admit`) and programs use the same
pipeline. All checks come first and change nothing. Then the version is written and admitted
atomically; documentation and search follow from the admitted version. If any stage fails, the
earlier version is still served.
"""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from toolkiln.catalog.admission import Admissions, CandidateVersion
from toolkiln.catalog.files import (
    file_for,
    name_finding,
    other_name_finding,
    with_companions,
)
from toolkiln.catalog.manifest import MANIFEST, MissingManifest
from toolkiln.catalog.reports import report, with_docstrings
from toolkiln.catalog.snapshots import refused_tool
from toolkiln.catalog.source_options import description_of, refuse_ignored, with_options
from toolkiln.docs.pages import page, page_name
from toolkiln.errors import InputError, ServerBusy, ToolkilnError, refuse_outdated
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

_MAX_FINDINGS = 20
_MAX_TEXT = 400
_UNREADABLE = {"syntax-error", "not-python", "too-deep", "file-too-large", "too-complex"}
"""Rules of findings about text that could not be parsed."""
_THREADS = 2
_MAX_SOURCES = 64
"""Sources being read or waiting."""
_MAX_PER_CALLER = 16
_SECONDS = 30
"""Deadline for reading a source, including the time in the queue."""

T = TypeVar("T")


class ReadingPool:
    """Threads that read callers' sources, with a bounded queue per caller and in total.

    `spec.work` limits the work for one source.
    """

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._by_caller: Counter[str] = Counter()

    async def run(self, who: str, work: Callable[[], T]) -> T:
        """Run work for one caller in a thread.

        Raises:
            ServerBusy: the queue is full, the caller has too many sources in it, or it timed out.
        """
        if self._by_caller[who] >= _MAX_PER_CALLER:
            raise ServerBusy(
                f"{_MAX_PER_CALLER} sources of {who} are being read already",
                hint="wait for one of them to finish, then try again",
            )
        if self._by_caller.total() >= _MAX_SOURCES:
            raise ServerBusy(
                "too many sources are waiting to be read", hint="try again in a moment"
            )
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="toolkiln-read")
        loop = asyncio.get_running_loop()
        self._by_caller[who] += 1
        running = self._threads.submit(work)

        def end() -> None:
            self._by_caller[who] -= 1
            if not self._by_caller[who]:
                del self._by_caller[who]

        def ended(_: "Future[Any]") -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(end)

        # Even after cancellation the thread is occupied until the work ends.
        running.add_done_callback(ended)
        try:
            async with asyncio.timeout(_SECONDS):
                return await asyncio.wrap_future(running)
        except TimeoutError:
            raise ServerBusy(
                f"reading the source took more than {_SECONDS} s",
                hint="try again in a moment, or split the file",
            ) from None


class _Stopped(Exception):
    """A stage rejected the version."""

    def __init__(
        self, error: str, findings: Sequence[Finding] = (), *, code: str = "refused"
    ) -> None:
        super().__init__(error)
        self.error = error
        self.code = code
        self.findings = findings


@contextmanager
def _stopping() -> Iterator[None]:
    """Let an error reject the version."""
    try:
        yield
    except ToolkilnError as error:
        reason = f"{error.message} ({error.hint})" if error.hint else error.message
        raise _Stopped(reason, code=error.code) from error
    except OSError as error:
        reason = f"{error.filename or 'the disk'}: {error.strerror or error}"
        raise _Stopped(reason, code="backend_failed") from error


@dataclass
class _Progress:
    """The stages that one version has passed."""

    observe: Callable[[Stage], None]
    outcomes: list[StageOutcome] = field(default_factory=list)
    stage: Stage = Stage.NAME
    warnings: list[Finding] = field(default_factory=list)

    def enter(self, stage: Stage) -> None:
        self.stage = stage
        self.observe(stage)

    def passed(self, message: str = "", *, ok: bool = True) -> None:
        self.outcomes.append(StageOutcome(stage=self.stage, ok=ok, message=message))

    def rejected(self, stop: _Stopped) -> AdmissionResult:
        """Return the result of a version that the current stage rejects."""
        self.passed(ok=False)
        return AdmissionResult(
            success=False,
            error=stop.error[: 2 * _MAX_TEXT],
            code=stop.code,
            validation_errors=_summaries(stop.findings),
            warnings=_summaries(self.warnings),
            stages=tuple(self.outcomes),
        )


def _unobserved(_: str) -> None:
    pass


class AdmissionPipeline:
    """Admits versions to one catalog."""

    def __init__(
        self,
        admissions: Admissions,
        refuse: frozenset[str],
        probe: Callable[[FileVersion], Awaitable[list[Finding]]],
        index: Callable[[], Awaitable[str | None]],
        reading: ReadingPool | None = None,
    ) -> None:
        """Rules in `refuse` count like errors; `index` returns why search is incomplete, if so."""
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
        """Admit a tool, or with a `quota` propose it.

        `may_replace` returns whether the writer may see a tool of the replaced file; None: all.
        Packages that a proposal requires are not installed: it is probed on admission.
        """
        progress = _Progress(observe)
        try:
            read = partial(self._read, draft, progress, may_replace)
            try:
                candidate = await self._reading.run(decision.by, read)
            except ServerBusy as busy:
                raise _Stopped(f"{busy.message}: {busy.hint}", code=busy.code) from busy
            if quota is not None:
                await asyncio.to_thread(self._refuse_proposal, candidate, decision, quota)
            elif may_replace is not None:  # a proposal leaves the file on disk alone
                await asyncio.to_thread(self._refuse_losing, candidate)
            has_packages = any(spec.requirements for spec in candidate.read.reading.tools)
            probe = quota is None or not has_packages
            # A proposal is for a person to decide about, who sees what it overrules.
            overrules = quota is not None or decision.reviewed
            candidate = await self._vet(candidate, progress, probe=probe, overrules=overrules)
            progress.enter(Stage.WRITE)
            version = await asyncio.to_thread(self._written, candidate, decision, quota)
        except _Stopped as stop:
            return progress.rejected(stop)
        progress.passed("proposed" if version is None else f"version {version.number}")
        return await self._finished(candidate, version, progress)

    async def admit(
        self,
        candidates: Sequence[CandidateVersion],
        decision: AdmissionDecision,
        *,
        probe: bool = True,
        reset: bool = False,
        observe: Callable[[str], None] = _unobserved,
    ) -> dict[str, AdmissionResult]:
        """Admit the candidates that pass. Returns the result for each file."""
        results: dict[str, AdmissionResult] = {}
        passed: list[tuple[CandidateVersion, _Progress]] = []
        for candidate in candidates:
            observe(candidate.file)
            progress = _Progress(_unobserved)
            try:
                overrules = decision.reviewed
                vetted = await self._vet(candidate, progress, probe=probe, overrules=overrules)
                passed.append((vetted, progress))
            except _Stopped as stop:
                results[candidate.file] = progress.rejected(stop)
        on_disk = [candidate for candidate, _ in passed if candidate.is_written]
        versions: list[Version] = []
        if on_disk:
            versions = await asyncio.to_thread(
                self._admissions.admit, on_disk, decision, reset=reset
            )
        admitted = {version.file: version for version in versions}
        for candidate, progress in passed:
            progress.enter(Stage.WRITE)
            version = admitted.get(candidate.file) if candidate.is_written else None
            try:
                if version is None:  # a proposal: its file is written in its own transaction
                    version = await asyncio.to_thread(self._admit_proposal, candidate, decision)
            except _Stopped as stop:
                results[candidate.file] = progress.rejected(stop)
                continue
            progress.passed(f"version {version.number}")
            results[candidate.file] = await self._finished(candidate, version, progress)
        return results

    def _admit_proposal(self, candidate: CandidateVersion, decision: AdmissionDecision) -> Version:
        with _stopping():
            self._admissions.refuse_overwriting(candidate)
            return self._admissions.admit([candidate], decision)[0]

    def _read(
        self, draft: ToolDraft, progress: _Progress, may_replace: Callable[[ToolSpec], bool] | None
    ) -> CandidateVersion:
        progress.enter(Stage.NAME)
        with _stopping():
            target = self._target(draft, may_replace)
        odd_name = name_finding(target)
        progress.warnings += [odd_name] if odd_name else []
        progress.passed(target.name)
        progress.enter(Stage.SYNTAX)
        data = _as_bytes(draft, target)
        packages = self._catalog.folder.packages
        reading = read(decode(data), target, data=data, packages=packages)
        unreadable = [f for f in reading.findings if f.rule in _UNREADABLE]
        if unreadable:
            raise _Stopped(unreadable[0].message, unreadable)
        progress.passed()
        progress.enter(Stage.READ)
        if not reading.tools:
            raise _Stopped("the code declares no tool", report(reading, {}).reading.findings)
        with _stopping():
            refuse_ignored(draft.options, reading.tools)
            try:
                sources = with_companions(reading, data)
            except InputError as error:
                reason = "its helper modules or data files changed meanwhile; try again"
                raise _Stopped(reason) from error
            candidate = self._admissions.unwritten(self._key(target), FileVersion(reading, sources))
        _refuse_existing(target, draft, exists=candidate.replaces is not None)
        with _stopping():
            refuse_outdated(draft.name, self._catalog.served_digest(candidate.file), draft.base)
        self._refuse_taken_names(candidate, may_replace)
        other_name = other_name_finding(draft.tool, reading.tools)
        progress.warnings += [other_name] if other_name else []
        progress.passed(", ".join(spec.name for spec in reading.tools))
        return candidate

    def _target(self, draft: ToolDraft, may_replace: Callable[[ToolSpec], bool] | None) -> Path:
        """Return the file to write, by the current content of the folder."""
        root = self._catalog.root
        folder = root / draft.folder
        # A file behind a link, or above the folder, does not belong to the catalog.
        if folder.resolve() != Path(f"{root.resolve()}/{draft.folder}"):
            raise _Stopped(f"{draft.folder} is no folder of {root} itself")
        target = file_for(draft.name, folder)
        if not self._catalog.folder.includes(self._key(target)):
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
        """Refuse to replace a file with a tool that the writer may not see, without naming it."""
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
        served, read = self._catalog.served_digest(file), self._catalog.folder.read(file)
        if read is None or served is None or read.digest == served:
            return
        if not self._catalog.is_archived(file, read):
            raise _Stopped(f"{file} has unadmitted changes; choose another name", code="conflict")

    def _key(self, target: Path) -> str:
        return target.relative_to(self._catalog.root).as_posix()

    def _refuse_taken_names(
        self, candidate: CandidateVersion, may_see: Callable[[ToolSpec], bool] | None
    ) -> None:
        try:
            served = self._catalog.snapshot.served
        except InputError:
            return  # nothing is served; an unusable manifest rejects the version later
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
        self,
        candidate: CandidateVersion,
        progress: _Progress,
        *,
        overrules: bool,
        probe: bool = True,
    ) -> CandidateVersion:
        """Check a version, and probe it in the sandbox.

        Overruled errors count unless `overrules`: the author wrote the comment that overrules
        them, and only a person who admits the version may accept it.
        """
        progress.enter(Stage.FINDINGS)
        findings = report(candidate.read.reading, {}).reading.findings
        if not candidate.read.reading.tools:
            raise _Stopped("the file declares no tool", findings)
        progress.warnings += [f for f in findings if f.severity is Severity.WARNING]
        self._refuse_findings(findings, overrules=overrules)
        progress.passed(f"warnings: {len(progress.warnings)}" if progress.warnings else "")
        if probe:
            progress.enter(Stage.PROBE)
            own = next(iter(candidate.read.sources.values()))
            texts = {candidate.read.reading.path: decode(own)}
            with _stopping():
                found = list(overrule(await self._probe(candidate.read), texts))
            refused = _refused_tools(candidate.read.names, found)
            found = [_as_refusal(f) if f.tool in refused else f for f in found]
            self._refuse_findings(found, overrules=overrules)
            progress.warnings += found
            candidate = replace(candidate, probed=found, refused=refused)
            progress.passed()
        progress.enter(Stage.DOCS)
        for spec in candidate.read.reading.tools:
            page(spec)
        progress.passed(", ".join(page_name(s.name) for s in candidate.read.reading.tools))
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
        """Refuse what could not be proposed anyway, before it is probed in the sandbox."""
        with _stopping(), suppress(MissingManifest):
            self._catalog.manifest.refuse_proposal(candidate.file, decision.by, quota)

    def _written(
        self, candidate: CandidateVersion, decision: AdmissionDecision, quota: int | None
    ) -> Version | None:
        with _stopping():
            if quota is not None:
                self._admissions.propose(candidate, decision.by, quota)
                return None
            return self._admissions.admit([candidate], decision)[0]

    async def _unindexed(self) -> str | None:
        try:
            return await self._index()
        except Exception as error:  # noqa: BLE001 - the version is admitted even if search fails
            return f"search could not follow: {str(error)[:_MAX_TEXT]}"

    async def _finished(
        self, candidate: CandidateVersion, version: Version | None, progress: _Progress
    ) -> AdmissionResult:
        names = tuple(n for n in candidate.read.names if n not in (candidate.refused or ()))
        missing: str | None = "nothing that is not served is searched for"
        served: tuple[str, ...] = ()
        if version is not None:
            progress.enter(Stage.SNAPSHOT)
            snapshot = self._catalog.current
            served = tuple(
                name
                for name in names
                if name in snapshot.tools and snapshot.served[name].file == candidate.file
            )
            unserved = ", ".join(name for name in names if name not in served)
            problem = f"disabled, or its name is taken: {unserved}" if unserved else ""
            progress.passed(problem or f"number {snapshot.number}", ok=not unserved)
            progress.enter(Stage.SEARCH)
            missing = await self._unindexed()
            progress.passed(missing or "")
        return AdmissionResult(
            success=True,
            filename=Path(candidate.file).name,
            filepath=str(self._catalog.root / candidate.file),
            functions_registered=served,
            reload_success=version is not None and served == names,
            embedding_success=missing is None,
            docs_generated=True,
            warnings=_summaries(progress.warnings),
            stages=tuple(progress.outcomes),
            digest=candidate.read.reading.digest,
            version=version.number if version else None,
            proposed=version is None,
        )


def _refused_tools(names: Sequence[str], found: Sequence[Finding]) -> dict[str, str]:
    """Return the tools whose examples fail, unless that concerns all tools or too many."""
    failing = {f.tool: f.message for f in reversed(found) if f.tool and _is_failing_example(f)}
    # After that many findings it is unknown which other tools work.
    is_cut = len(found) >= _MAX_FINDINGS
    return {} if is_cut or failing.keys() >= set(names) else failing


def _is_failing_example(finding: Finding) -> bool:
    return finding.rule == "example-fails" and finding.severity is Severity.ERROR


def _as_refusal(finding: Finding) -> Finding:
    if not _is_failing_example(finding) or finding.tool is None:
        return finding
    return refused_tool(finding.tool, finding.message, finding.line, finding.path or "")


def _refuse_existing(target: Path, draft: ToolDraft, *, exists: bool) -> None:
    if exists and not draft.overwrite:
        reason = f"{target.name} exists already; overwrite=true replaces it"
        raise _Stopped(reason, code="exists")


def _as_bytes(draft: ToolDraft, target: Path) -> bytes:
    """Return the bytes to write, with docstrings where they are missing."""
    try:
        given = draft.code if isinstance(draft.code, str) else decode(draft.code)
        description = draft.description or description_of(draft.options)
        code = with_options(with_docstrings(given, description, target), draft.options)
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


def _summaries(findings: Sequence[Finding]) -> tuple[FindingSummary, ...]:
    return tuple(
        FindingSummary(
            line=f.line, rule=f.rule, message=f.message[:_MAX_TEXT], fix=f.fix[:_MAX_TEXT]
        )
        for f in findings[:_MAX_FINDINGS]
    )
