"""Decisions about files: admit, propose, reject, roll back, remove, enable and disable.

A decision names the exact version that was reviewed, and is written to the manifest and the
history in one transaction. Whether a version works (does it import, do its examples pass) is
checked before, by `admission_pipeline`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from toolkiln.catalog.catalog import Catalog, utc_now
from toolkiln.catalog.diff import (
    RequestedPermissions,
    new_findings,
    requested_permissions,
    unified,
)
from toolkiln.catalog.folder import read_sources
from toolkiln.catalog.manifest import (
    Installation,
    Manifest,
    overruled_note,
    overruled_records,
)
from toolkiln.catalog.snapshots import with_enabled
from toolkiln.errors import (
    EditConflict,
    InputError,
    NotAllowed,
    NotFound,
    RemovesOtherTools,
    UnknownTool,
    refuse_outdated,
)
from toolkiln.model.admission import AdmissionDecision
from toolkiln.model.call import Grant
from toolkiln.model.catalog import (
    Admission,
    DecisionRecord,
    FileState,
    FileVersion,
    ServedVersion,
    Snapshot,
    Sources,
    Version,
)
from toolkiln.model.source import Finding, Reading
from toolkiln.model.spec import ToolSpec
from toolkiln.spec.checks.file_checks import KnownTools

_SHORTEST_DIGEST = 6


@dataclass(frozen=True)
class CandidateVersion:
    """A version that waits for a decision, as it was reviewed."""

    file: str
    read: FileVersion
    base: str | None = None
    """Digest of the version that was admitted at that time."""
    replaces: bytes | None = None
    """Content of the file at that time, if this version has yet to be written."""
    is_written: bool = True
    """Whether the file on disk has this version already."""
    probed: Sequence[Finding] = ()
    """Findings of the probe, including errors that a comment overrules."""
    refused: Mapping[str, str] | None = None
    """Tools that are not served, with the reason; None if the version was not probed."""

    @property
    def overruled(self) -> list[Finding]:
        """Errors that comments overrule."""
        return [f for f in (*self.read.reading.findings, *self.probed) if f.overruled]


@dataclass(frozen=True)
class Assessment:
    """What a person should know before a decision."""

    diff: str
    """Changes since the admitted version."""
    findings: Sequence[Finding]
    """Findings that the admitted version did not have."""
    rights: tuple[RequestedPermissions, ...]
    """Permissions requested beyond the admitted version."""


class Act(Protocol):
    """Records a decision while it is carried out."""

    def __call__(self, what: str, by: str, /, **about: str) -> AbstractContextManager[None]:
        """Raises ToolkilnError if it cannot be recorded; then it is not carried out."""
        ...


def _unrecorded(_what: str, _by: str, /, **_about: str) -> AbstractContextManager[None]:
    return nullcontext()


class Admissions:
    """The decisions about one catalog."""

    def __init__(self, catalog: Catalog, act: Act = _unrecorded) -> None:
        """`act` wraps every decision to record it."""
        self.catalog = catalog
        self._act = act
        self._known: tuple[Snapshot | None, KnownTools] = (None, KnownTools({}))

    def candidate(self, file: str) -> CandidateVersion:
        """Return the version of a file on disk.

        Raises:
            InputError: it does not exist, or is not read for tools.
        """
        read = self.catalog.folder.read(file)
        if read is None:
            raise InputError(f"there is no file {str(self.catalog.root / file)!r}")
        if not self.catalog.folder.includes(file):
            raise InputError(
                f"{self.catalog.root / file} is a private file or a test, and not read for tools",
                hint="give it another name",
            )
        return CandidateVersion(file, read, self._admitted_digest(file))

    def proposal(self, file: str) -> CandidateVersion | None:
        """Return the proposed version of a file, which is written to disk on admission."""
        read = self.catalog.proposal(file)
        if read is None:
            return None
        on_disk = self.catalog.folder.read(file)
        if on_disk is not None and on_disk.digest == read.digest:
            return self.candidate(file)
        return self.unwritten(file, read)

    def unwritten(self, file: str, read: FileVersion) -> CandidateVersion:
        """Return a version that would replace the current content of a file."""
        target = self.catalog.root / file
        replaces = target.read_bytes() if target.is_file() else None
        return CandidateVersion(file, read, self._admitted_digest(file), replaces, is_written=False)

    def refuse_overwriting(self, candidate: CandidateVersion) -> None:
        """Refuse to write a proposal over changes on disk that are in no version.

        Raises:
            EditConflict: there are such changes.
        """
        if candidate.is_written or candidate.replaces is None:
            return
        read = self.catalog.folder.read(candidate.file)
        if read is None or read.digest in (candidate.base, candidate.read.digest):
            return
        if not self.catalog.is_archived(candidate.file, read):
            raise EditConflict(
                f"{candidate.file} has unadmitted changes, which the proposal would replace",
                hint="admit or undo them first, or reject the proposal",
            )

    def assess(self, candidate: CandidateVersion) -> Assessment:
        """Compare a candidate with the admitted version.

        An unreviewed version does not count: what its author wrote would be missing from the diff.
        """
        base = candidate.base
        if base is not None and (entry := self.catalog.manifest.files.get(candidate.file)):
            base = base if entry.is_reviewed else None
        sources = self.catalog.version_sources(base, candidate.file) if base else None
        old = self._read(sources, candidate.file) if sources else None
        new = candidate.read
        confusable = self._known_tools().findings(new.reading, candidate.file)
        return Assessment(
            unified(sources or {}, new.sources),
            new_findings(old, new.reading) + confusable,
            requested_permissions(old, new.reading),
        )

    def _read(self, sources: Sources, file: str) -> Reading:
        return read_sources(sources, self.catalog.root / file, self.catalog.folder.packages)

    def _known_tools(self) -> KnownTools:
        snapshot = self.catalog.current
        if self._known[0] is not snapshot:
            files = {name: served.file for name, served in snapshot.served.items()}
            self._known = snapshot, KnownTools(files)
        return self._known[1]

    def admit(
        self,
        candidates: Sequence[CandidateVersion],
        decision: AdmissionDecision,
        *,
        reset: bool = False,
    ) -> list[Version]:
        """Admit versions. With `reset` an unusable manifest is replaced.

        Raises:
            EditConflict: one of the files was changed or decided in the meantime.
        """
        from toolkiln.model.catalog import Arrival, VersionContent

        for candidate in candidates:
            if not candidate.read.sources:
                raise InputError(f"{candidate.file} declares no tool that could be served")
        versions: list[Version] = []
        contents = [
            VersionContent(
                file=candidate.file,
                reading=candidate.read.reading,
                sources=candidate.read.sources,
                note=overruled_note(candidate.overruled),
                refused=frozenset(self._refused(candidate)),
            )
            for candidate in candidates
        ]
        at = utc_now()
        arrival = Arrival(action=decision.action, by=decision.by, at=at, note=decision.note)

        def edit(manifest: Manifest) -> Manifest:
            for candidate in candidates:
                self._refuse_if_changed(candidate, manifest)
            versions.extend(self.catalog.archive.add_many(manifest.catalog, contents, arrival))
            admitted = {
                candidate.file: _admission(
                    candidate, version, manifest.files.get(candidate.file), decision, at
                ).model_copy(update={"refused": self._refused(candidate)})
                for candidate, version in zip(candidates, versions, strict=True)
            }
            decided = {file: entry.sha256 for file, entry in admitted.items()}
            return manifest.with_files({**manifest.files, **admitted}, decided=decided)

        with ExitStack() as acts:
            for candidate in candidates:
                about = _about(candidate, decision.note)
                acts.enter_context(self._act(decision.action, decision.by, **about))
                _refuse_unsandboxed(candidate, decision)
                if decision.grant:
                    acts.enter_context(self._act("grant", decision.by, **_about_grants(candidate)))
            self.catalog.update(edit, _installation(candidates), reset=reset)
        return versions

    def _refused(self, candidate: CandidateVersion) -> dict[str, str]:
        """Return the tools of a candidate that are not served; without a probe, those of before."""
        if candidate.refused is not None:
            return dict(candidate.refused)
        entry = self._admitted(candidate.file)
        return entry.refused if entry and entry.sha256 == candidate.read.digest else {}

    def propose(self, candidate: CandidateVersion, by: str, quota: int) -> None:
        """Store a version for a person to decide about. It is neither served nor written to disk.

        Raises:
            EditConflict: the admitted version changed, another caller's proposal is pending, or
                this version was rejected.
            ProposalQuota: this caller has `quota` pending proposals.
        """
        from toolkiln.model.catalog import VersionContent  # SQLAlchemy is slow to load

        read = candidate.read
        content = VersionContent(file=candidate.file, reading=read.reading, sources=read.sources)

        def edit(manifest: Manifest) -> Manifest:
            self._refuse_if_changed(candidate, manifest)
            manifest.refuse_proposal(candidate.file, by, quota)
            if manifest.state_of(candidate.file, read.digest) is FileState.REJECTED:
                raise EditConflict(
                    "a person rejected this version", hint="change it, then try again"
                )
            self.catalog.archive.add_content(content)
            entry = DecisionRecord(sha256=read.digest, by=by, at=utc_now())
            return manifest.model_copy(
                update={"proposed": {**manifest.proposed, candidate.file: entry}}
            )

        with self._act("propose", by, **_about(candidate)):
            self.catalog.update(edit)

    def reject(
        self, file: str, by: str, *, reviewed: CandidateVersion | None = None, note: str = ""
    ) -> bool:
        """Reject a version: `reviewed`, or else the proposal, or else the file on disk.

        An earlier version stays. Returns whether a version of the file is still served.

        Raises:
            EditConflict: the version was decided in the meantime.
        """
        read = reviewed.read if reviewed else self._undecided(file)
        digest = read.digest if read else None
        is_served = False

        def edit(manifest: Manifest) -> Manifest:
            nonlocal is_served
            if reviewed is not None:
                self._refuse_if_changed(reviewed, manifest)
            entry = manifest.files.get(file)
            if entry is None and digest is None:
                raise InputError(f"there is no file {file!r}, and none was admitted")
            is_served = entry is not None and digest not in (None, entry.sha256)
            files = {k: v for k, v in manifest.files.items() if is_served or k != file}
            rejected = digest or (entry.sha256 if entry else "")
            manifest = manifest.with_files(files, decided={file: rejected})
            if digest is None:
                return manifest
            refusal = DecisionRecord(sha256=digest, by=by, at=utc_now())
            return manifest.model_copy(update={"rejected": {**manifest.rejected, file: refusal}})

        detail = f"{file}: {note}" if note else file
        with self._act("reject", by, detail=detail, digest=digest or ""):
            self.catalog.update(edit)
        return is_served

    def history(self, tool: str) -> list[Version]:
        """Return the admitted versions of a tool's file, newest first.

        Raises:
            UnknownTool: no version of the tool was ever admitted.
        """
        archive, catalog = self.catalog.archive, self.catalog.manifest.catalog
        served = self.catalog.snapshot.served.get(tool)
        if served:
            return archive.history(catalog, served.file)
        found = archive.history_of_tool(catalog, tool)
        if not found:
            raise UnknownTool(tool, self.catalog.snapshot.served)
        return archive.history(catalog, found[0].file)

    def version(self, tool: str, wanted: str) -> Version:
        """Return one version of a tool, by number (`2`, `v2`) or the start of its digest.

        Raises:
            NotFound: no version matches, or several do.
        """
        versions = self.history(tool)
        number = re.fullmatch(r"v?([0-9]{1,9})", wanted)
        if number and (found := [v for v in versions if v.number == int(number[1])]):
            return found[0]
        if len(wanted) >= _SHORTEST_DIGEST:
            found = [v for v in versions if v.digest.startswith(wanted.lower())]
            if len({v.digest for v in found}) == 1:
                return found[0]
        known = ", ".join(str(version.number) for version in versions[:10])
        hint = f"there are {known}" if known else "no version of it was admitted"
        raise NotFound(f"{tool} has no version {wanted!r}", hint=hint)

    def sources(self, version: Version) -> Sources:
        """Return the files of a version.

        Raises:
            InputError: they are missing from the store, or damaged.
        """
        sources = self.catalog.version_sources(version.digest, version.file)
        if sources is None:
            raise InputError(
                f"the source of version {version.number} is not in the store, or damaged",
                hint="restore the store from a backup",
            )
        return sources

    def diff(self, tool: str, old: str, new: str) -> str:
        """Return the changes between two versions of a tool's file and helpers."""
        before, after = self.version(tool, old), self.version(tool, new)
        return unified(self.sources(before), self.sources(after))

    def unsaved(self, tool: str, version: Version) -> Path | None:
        """Return the file of a version if its current content is in no version of the tool."""
        read = self.catalog.folder.read(version.file)
        archived = {each.digest for each in self.history(tool)}
        is_unsaved = read is not None and read.digest not in archived
        return self.catalog.root / version.file if is_unsaved else None

    def rollback(
        self, tool: str, wanted: str, decision: AdmissionDecision, *, digest: str | None = None
    ) -> Version:
        """Serve an earlier version again, and write its file back.

        Helpers on disk do not change, since other tools may use them.

        Raises:
            InputError: the version does not exist, is not in the store, or is served already.
            StaleVersion: another version than `digest` is served.
            EditConflict: the file changed in the meantime.
        """
        version = self.version(tool, wanted)
        sources = self.sources(version)
        reading = self._read(sources, version.file)
        candidate = self.unwritten(version.file, FileVersion(reading, sources))
        reason = f"it was refused in version {version.number}"
        refused = {name: reason for name in candidate.read.names if name not in version.tools}
        candidate = replace(candidate, refused=refused)
        served = self.catalog.served_digest(version.file)
        refuse_outdated(tool, served, digest)
        if served == version.digest:
            raise InputError(f"{tool} is at version {version.number} already")
        note = f"back to version {version.number}"
        decision = replace(decision, grant=False, note=note, action="rollback")
        return self.admit([candidate], decision)[0]

    def switch(self, name: str, wanted: bool | Mapping[str, Any], by: str = "operator") -> None:
        """Enable or disable a tool, a toolkit or some of its methods.

        `wanted` is true or false, or `{"enabled": …, "methods": {name: …}}` for a toolkit.

        Raises:
            InputError: there is no such tool or toolkit, or it is a core one.
        """
        specs = [
            spec
            for owner, served in self.catalog.snapshot.served.items()
            for spec in served.reading.tools
            if spec.name == owner
        ]
        with self._act("switch", by, tool=name, detail=f"enabled: {wanted}"):
            self.catalog.update(lambda manifest: with_enabled(manifest, specs, name, wanted))

    def remove(
        self, tool: str, by: str, *, digest: str | None = None, with_others: bool = False
    ) -> ServedVersion:
        """Remove a tool's file from the catalog and from disk; `rollback` restores it.

        Raises:
            UnknownTool: no file serves the tool.
            StaleVersion: another version than `digest` is served.
            RemovesOtherTools: the file has other tools, without `with_others`.
            EditConflict: the file has unadmitted changes, or changed in the meantime.
            InputError: it is a core tool, others import its file, or it could not be restored.
        """
        snapshot = self.catalog.snapshot
        served = snapshot.served.get(tool)
        if served is None:
            raise UnknownTool(tool, snapshot.served)
        _refuse_unremovable(served, tool, digest, with_others=with_others)
        data = self._replaceable_content(served)
        candidate = CandidateVersion(served.file, served.read, served.read.digest, data, False)

        def edit(manifest: Manifest) -> Manifest:
            self._refuse_if_changed(candidate, manifest)
            files = {key: entry for key, entry in manifest.files.items() if key != served.file}
            return manifest.with_files(files, decided={served.file: served.read.digest})

        with self._act("remove", by, **_about(candidate)):
            self.catalog.update(edit, Installation(served.file, None))
        return served

    def _replaceable_content(self, served: ServedVersion) -> bytes | None:
        """Return the content of a served file, if removing it loses no version."""
        catalog, file = self.catalog, served.file
        if catalog.root / file == catalog.folder.place:
            raise InputError(
                f"{catalog.root / file} is all that is served", hint="remove the file itself"
            )
        if users := sorted(catalog.folder.users(file)):
            raise InputError(
                f"{', '.join(users)} imports {file}", hint="change or remove that first"
            )
        if catalog.version_sources(served.read.digest, file) is None:
            raise InputError(
                f"the version of {file} is not in the store, so it could not be restored",
                hint="admit it again, or restore the store from a backup",
            )
        read = catalog.folder.read(file)
        if read is None:
            return None
        if not read.sources or not catalog.is_archived(file, read):
            raise EditConflict(
                f"{file} has unadmitted changes", hint="admit them, or undo them, then remove it"
            )
        return next(iter(read.sources.values()))

    def _undecided(self, file: str) -> FileVersion | None:
        try:
            proposal = self.catalog.proposal(file)
        except InputError:  # there is no manifest, so nothing is proposed
            proposal = None
        return proposal or self.catalog.folder.read(file)

    def _admitted_digest(self, file: str) -> str | None:
        entry = self._admitted(file)
        return entry.sha256 if entry else None

    def _admitted(self, file: str) -> Admission | None:
        try:
            return self.catalog.manifest.files.get(file)
        except InputError:  # nothing is served, so nothing is admitted
            return None

    def _refuse_if_changed(self, candidate: CandidateVersion, manifest: Manifest) -> None:
        entry = manifest.files.get(candidate.file)
        changed = (entry.sha256 if entry else None) != candidate.base
        if not candidate.is_written:
            target = self.catalog.root / candidate.file
            changed |= (target.read_bytes() if target.exists() else None) != candidate.replaces
        if changed:
            raise EditConflict(
                f"{candidate.file} changed in the meantime",
                hint="look at the current file, then try again",
            )


def _refuse_unremovable(
    served: ServedVersion, tool: str, digest: str | None, *, with_others: bool
) -> None:
    if served.dev:
        raise EditConflict(
            f"{served.file} has unadmitted changes",
            hint="admit or undo them, then remove the tool",
        )
    refuse_outdated(tool, served.read.digest, digest)
    for spec in served.reading.tools:
        if spec.cannot_be_disabled:
            raise InputError(
                f"{spec.name} is a core tool and cannot be removed",
                hint="its author marked it with is_core=True",
            )
    others = [name for name in served.names if name != tool]
    if others and not with_others:
        raise RemovesOtherTools(
            f"{served.file} has other tools, which would be removed too: {', '.join(others)}",
            hint="confirm that they may be removed, or write the file without this tool",
        )


def _refuse_unsandboxed(candidate: CandidateVersion, decision: AdmissionDecision) -> None:
    loose = [spec.name for spec in candidate.read.reading.tools if not spec.rights.sandbox]
    if loose and not decision.unsandboxed:
        raise NotAllowed(
            f"{loose[0]} runs outside the sandbox, and {decision.by} may not admit that",
            hint="requires the privilege UNSANDBOXED_EXEC",
        )


def _installation(candidates: Iterable[CandidateVersion]) -> Installation | None:
    for candidate in candidates:
        if not candidate.is_written:
            data = next(iter(candidate.read.sources.values()))
            return Installation(candidate.file, data)
    return None


def _about(candidate: CandidateVersion, note: str = "") -> dict[str, str]:
    names = ", ".join(candidate.read.names)
    note = "; ".join(filter(None, (note, overruled_note(candidate.overruled))))
    detail = f"{candidate.file}: {note}" if note else candidate.file
    return {"tool": names, "digest": candidate.read.digest, "detail": detail}


def _requested(spec: ToolSpec) -> Grant:
    """Return all permissions that a tool requests, as a grant."""
    return Grant(
        network=spec.rights.network,
        workspace=spec.rights.workspace,
        sandbox=spec.rights.sandbox,
        secrets=spec.rights.secrets,
    )


def _about_grants(candidate: CandidateVersion) -> dict[str, str]:
    requested = {
        spec.name: _requested(spec).model_dump(exclude_defaults=True)
        for spec in candidate.read.reading.tools
    }
    return {**_about(candidate), "detail": json.dumps(requested, sort_keys=True)}


def _admission(
    candidate: CandidateVersion,
    version: Version,
    before: Admission | None,
    decision: AdmissionDecision,
    at: str,
) -> Admission:
    """Return the entry of the manifest, which replaces `before`.

    It records all requested permissions, or those granted before. An unreviewed version records
    them without effect, so that the person who reviews it need not grant them again. A version
    that was reviewed stays so if it is written again.
    """
    rights: dict[str, Grant] = {}
    for spec in candidate.read.reading.tools:
        earlier = before.rights.get(spec.name) if before else None
        given = _requested(spec) if decision.grant else earlier
        if given and given != Grant():
            rights[spec.name] = given
    is_same = before is not None and before.sha256 == version.digest
    return Admission(
        sha256=version.digest,
        version=version.number,
        admitted_by=decision.by,
        admitted_at=at,
        since=before.since if before else at,
        rights=rights,
        reviewed=decision.reviewed or (before is not None and is_same and before.is_reviewed),
        overruled=overruled_records(
            candidate.overruled, candidate.read.reading, before, decision.by
        ),
    )
