"""What people decide about files: admit, propose, reject, roll back, remove, switch on and off.

A decision names the exact version that was looked at. Whether a version is any good (does
it import, do its examples pass) is found out before, by `app.authoring`; here decisions
are written down, in the manifest and in the history, all of one or nothing.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from toolkiln.catalog import manifest as overruled_errors
from toolkiln.catalog.catalog import Catalog, utc_now
from toolkiln.catalog.diff import (
    RequestedPermissions,
    new_findings,
    pending_change,
    requested_permissions,
    unified,
)
from toolkiln.catalog.folder import read_sources
from toolkiln.catalog.manifest import Manifest
from toolkiln.catalog.removal import refuse_outdated, removable, without
from toolkiln.catalog.snapshots import with_enabled
from toolkiln.catalog.transaction import EditConflict, Installation
from toolkiln.errors import InputError, NotAllowed, NotFound, UnknownTool
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


class ProposalQuota(InputError):
    """The caller has as many proposals waiting as one caller may have."""

    code: ClassVar[str] = "too_many_proposals"


@dataclass(frozen=True)
class CandidateVersion:
    """A version that waits for a decision, as the person saw it."""

    file: str
    read: FileVersion
    base: str | None = None
    """The version that was admitted then."""
    replaces: bytes | None = None
    """What the file held then, if this version has to be written first."""
    is_written: bool = True
    """Whether the file on disk already is this version."""
    probed: Sequence[Finding] = ()
    """What running it found and a comment overrules."""

    @property
    def overruled(self) -> list[Finding]:
        """Its errors that comments overrule."""
        return [f for f in (*self.read.reading.findings, *self.probed) if f.overruled]


@dataclass(frozen=True)
class Assessment:
    """What a person should know before deciding about a candidate."""

    candidate: CandidateVersion
    diff: str
    """Against the admitted version, or against nothing."""
    findings: Sequence[Finding] = field(default_factory=tuple)
    """Those that the admitted version did not have."""
    rights: tuple[RequestedPermissions, ...] = ()
    """What it asks for beyond the admitted version."""


class Act(Protocol):
    """Records a decision while it is carried out: what, by whom, about what."""

    def __call__(self, what: str, by: str, /, **about: str) -> AbstractContextManager[None]:
        """Raises ToolkilnError if it cannot be recorded; then it is not carried out."""
        ...


def _unrecorded(_what: str, _by: str, /, **_about: str) -> AbstractContextManager[None]:
    return nullcontext()


class Admissions:
    """The decisions about one catalog."""

    def __init__(self, catalog: Catalog, act: Act = _unrecorded) -> None:
        """`act` is wrapped around every decision, to record it."""
        self.catalog = self._catalog = catalog
        self._act = act
        self._known: tuple[Snapshot | None, KnownTools] = (None, KnownTools({}))

    def candidate(self, file: str) -> CandidateVersion:
        """Return the version of a file on disk.

        Raises:
            InputError: there is none.
        """
        read = self._catalog.folder.read(file)
        if read is None:
            raise InputError(f"there is no file {str(self._catalog.root / file)!r}")
        if not self._catalog.folder.is_ours(file):
            raise InputError(
                f"{self._catalog.root / file} is a private file or a test, and not read for tools",
                hint="give it another name",
            )
        return CandidateVersion(file, read, self._admitted_digest(file))

    def proposal(self, file: str) -> CandidateVersion | None:
        """The proposed version of a file, which is written to disk when it is admitted."""
        read = self._catalog.proposal(file)
        if read is None:
            return None
        on_disk = self._catalog.folder.read(file)
        if on_disk is not None and on_disk.digest == read.digest:
            return self.candidate(file)
        return self.written(file, read)

    def refuse_overwriting(self, candidate: CandidateVersion) -> None:
        """Refuse to write a proposal over changes on disk that are in no version.

        Raises:
            Conflict: there are such changes.
        """
        if candidate.is_written or candidate.replaces is None:
            return
        read = self._catalog.folder.read(candidate.file)
        if read is None or read.digest in (candidate.base, candidate.read.digest):
            return
        history = self._catalog.archive.history(self._catalog.manifest.catalog, candidate.file)
        if read.digest not in {version.digest for version in history}:
            raise EditConflict(
                f"{candidate.file} has unadmitted changes, which the proposal would replace",
                hint="admit or undo them first, or reject the proposal",
            )

    def written(self, file: str, read: FileVersion) -> CandidateVersion:
        """A version that is not on disk yet, to take the place of what is there."""
        place = self._catalog.root / file
        replaces = place.read_bytes() if place.is_file() else None
        return CandidateVersion(file, read, self._admitted_digest(file), replaces, is_written=False)

    def assess(self, candidate: CandidateVersion) -> Assessment:
        """The diff, the new findings and the rights asked for.

        A version that no person has reviewed is nothing to compare with: what its author wrote
        would be missing from the diff.
        """
        base = candidate.base
        if base is not None and (entry := self._catalog.manifest.files.get(candidate.file)):
            base = base if entry.is_reviewed else None
        old, sources = self._version(base, candidate.file)
        new = candidate.read
        between = self._known_tools().findings(new.reading, candidate.file)
        return Assessment(
            candidate,
            unified(sources, new.sources),
            new_findings(old, new.reading) + between,
            requested_permissions(old, new.reading),
        )

    def _known_tools(self) -> KnownTools:
        snapshot = self._catalog.current
        if self._known[0] is not snapshot:
            files = {name: served.file for name, served in snapshot.served.items()}
            self._known = snapshot, KnownTools(files)
        return self._known[1]

    def admit(
        self,
        candidates: Sequence[CandidateVersion],
        decision: AdmissionDecision,
        *,
        afresh: bool = False,
    ) -> list[Version]:
        """Let versions be served.

        Raises:
            EditConflict: one of the files was decided in the meantime.
        """
        from toolkiln.model.catalog import Arrival, VersionContent

        for candidate in candidates:
            if not candidate.read.sources:
                raise InputError(f"{candidate.file} declares no tool that could be served")
        kept: list[Version] = []
        contents = [
            VersionContent(
                file=c.file,
                reading=c.read.reading,
                sources=c.read.sources,
                note=overruled_errors.note(c.overruled),
            )
            for c in candidates
        ]
        at = utc_now()
        arrival = Arrival(action=decision.action, by=decision.by, at=at, note=decision.note)

        def edit(manifest: Manifest) -> Manifest:
            for candidate in candidates:
                self._refuse_if_changed(candidate, manifest)
            kept.extend(self._catalog.archive.add_many(manifest.catalog, contents, arrival))
            admitted: dict[str, Admission] = {}
            for candidate, version in zip(candidates, kept, strict=True):
                entry = manifest.files.get(candidate.file)
                admitted[candidate.file] = Admission(
                    sha256=version.digest,
                    version=version.number,
                    admitted_by=decision.by,
                    admitted_at=at,
                    since=entry.since if entry else at,
                    rights=_rights(candidate.read.reading, entry, decision),
                    reviewed=decision.reviewed or _is_still_reviewed(entry, version.digest),
                    overruled=overruled_errors.overruled_records(
                        candidate.overruled, candidate.read.reading, entry, decision.by
                    ),
                )
            decided = {file: entry.sha256 for file, entry in admitted.items()}
            return manifest.with_files({**manifest.files, **admitted}, decided=decided)

        with ExitStack() as acts:
            for candidate in candidates:
                about = _about(candidate, decision.note)
                acts.enter_context(self._act(decision.action, decision.by, **about))
                _refuse_unsandboxed(candidate, decision)
                if decision.grant and any(_asked(s) for s in candidate.read.reading.tools):
                    acts.enter_context(self._act("grant", decision.by, **_granted(candidate)))
            self._catalog.update(edit, _installation(candidates), afresh=afresh)
        return kept

    def propose(self, candidate: CandidateVersion, by: str, quota: int) -> None:
        """Keep a version for a person to decide about. It is neither served nor written to disk.

        Raises:
            Conflict: the admitted version changed, or another caller's proposal waits.
            InputError: `quota` proposals of this caller wait already.
        """
        from toolkiln.model.catalog import VersionContent  # SQLAlchemy is slow to load

        read = candidate.read
        content = VersionContent(file=candidate.file, reading=read.reading, sources=read.sources)

        def edit(manifest: Manifest) -> Manifest:
            self._refuse_if_changed(candidate, manifest)
            refuse_proposal(manifest, candidate.file, by, quota)
            if manifest.state_of(candidate.file, read.digest) is FileState.REJECTED:
                raise EditConflict(
                    "a person rejected this version", hint="change it, then try again"
                )
            self._catalog.archive.add_content(content)
            entry = DecisionRecord(sha256=read.digest, by=by, at=utc_now())
            return manifest.model_copy(
                update={"proposed": {**manifest.proposed, candidate.file: entry}}
            )

        with self._act("propose", by, **_about(candidate, "")):
            self._catalog.update(edit)

    def reject(
        self, file: str, by: str, *, looked_at: CandidateVersion | None = None, note: str = ""
    ) -> bool:
        """Decide that a version is not to be served: `looked_at`, a proposal, or what is on disk.

        An earlier version stays. Returns whether a version of the file is still served.

        Raises:
            EditConflict: the version was decided in the meantime.
        """
        read = looked_at.read if looked_at else self._undecided(file)
        digest = read.digest if read else None
        is_served = False

        def edit(manifest: Manifest) -> Manifest:
            nonlocal is_served
            if looked_at is not None:
                self._refuse_if_changed(looked_at, manifest)
            entry = manifest.files.get(file)
            if entry is None and digest is None:
                raise InputError(f"there is no file {file!r}, and none was admitted")
            is_served = entry is not None and digest not in (None, entry.sha256)
            files = {k: v for k, v in manifest.files.items() if is_served or k != file}
            gone = digest or (entry.sha256 if entry else "")
            manifest = manifest.with_files(files, decided={file: gone})
            if digest is None:
                return manifest
            refusal = DecisionRecord(sha256=digest, by=by, at=utc_now())
            return manifest.model_copy(update={"rejected": {**manifest.rejected, file: refusal}})

        detail = f"{file}: {note}" if note else file
        with self._act("reject", by, detail=detail, digest=digest or ""):
            self._catalog.update(edit)
        return is_served

    def history(self, tool: str) -> list[Version]:
        """The admitted versions of a tool's file, newest first.

        Raises:
            UnknownTool: there never was one of that name.
        """
        archive, catalog = self._catalog.archive, self._catalog.manifest.catalog
        served = self._catalog.snapshot.served.get(tool)
        if served:
            return archive.history(catalog, served.file)
        found = archive.history_of_tool(catalog, tool)
        if not found:
            raise UnknownTool(tool, self._catalog.snapshot.served)
        return archive.history(catalog, found[0].file)

    def version(self, tool: str, wanted: str) -> Version:
        """One version of a tool: by its number (`2`, `v2`) or the start of its digest.

        Raises:
            NotFound: there is none, or more than one.
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

    def diff(self, tool: str, old: str, new: str) -> str:
        """What changed between two versions of a tool's file and helpers."""
        before, after = self.version(tool, old), self.version(tool, new)
        return unified(self.sources(before), self.sources(after))

    def pending(self, tool: str) -> str:
        """The change of a tool's file that waits for admission, as `pending_change`."""
        return pending_change(self._catalog, tool)

    def unsaved(self, tool: str, version: Version) -> Path | None:
        """The file of a version, if what it holds at this moment is in no version."""
        read = self._catalog.folder.read(version.file)
        kept = {each.digest for each in self.history(tool)}
        return None if read is None or read.digest in kept else self._catalog.root / version.file

    def rollback(
        self, tool: str, wanted: str, decision: AdmissionDecision, *, digest: str | None = None
    ) -> Version:
        """Serve an earlier version again, and write its file back.

        Helpers on disk are left alone, since other tools may use them.

        Raises:
            InputError: there is no such version, or it is not kept.
            Outdated: another version than `digest` is served.
            EditConflict: the file changed in the meantime.
        """
        version = self.version(tool, wanted)
        sources = self.sources(version)
        reading = read_sources(sources, self._catalog.root / version.file)
        candidate = self.written(version.file, FileVersion(reading, sources))
        served = self._catalog.served_digest(version.file)
        refuse_outdated(tool, served, digest)
        if served == version.digest:
            raise InputError(f"{tool} is at version {version.number} already")
        note = f"back to version {version.number}"
        decision = replace(decision, grant=False, note=note, action="rollback")
        return self.admit([candidate], decision)[0]

    def switch(self, name: str, wanted: bool | Mapping[str, Any], by: str = "operator") -> None:
        """Offer a tool, a toolkit or some of its methods, or cease to.

        `wanted` is true or false, or `{"enabled": …, "methods": {name: …}}` for a toolkit.

        Raises:
            InputError: there is no such tool or toolkit, or it is a core one.
        """
        specs = [
            spec
            for owner, served in self._catalog.snapshot.served.items()
            for spec in served.reading.tools
            if spec.name == owner
        ]
        with self._act("switch", by, tool=name, detail=f"enabled: {wanted}"):
            self._catalog.update(lambda manifest: with_enabled(manifest, specs, name, wanted))

    def remove(
        self, tool: str, by: str, *, digest: str | None = None, with_others: bool = False
    ) -> ServedVersion:
        """Take a tool's file out of the catalog and off the disk; `rollback` brings it back.

        Raises:
            InputError: it cannot be removed; see `removal.removable`.
            EditConflict: the file changed in the meantime.
        """
        served, data = removable(self._catalog, tool, digest, with_others=with_others)
        candidate = CandidateVersion(served.file, served.read, served.read.digest, data, False)

        def edit(manifest: Manifest) -> Manifest:
            self._refuse_if_changed(candidate, manifest)
            return without(manifest, candidate.file)

        with self._act("remove", by, **_about(candidate, "")):
            self._catalog.update(edit, Installation(candidate.file, None))
        return served

    def _undecided(self, file: str) -> FileVersion | None:
        try:
            proposal = self._catalog.proposal(file)
        except InputError:  # there is no manifest, so nothing is proposed
            proposal = None
        return proposal or self._catalog.folder.read(file)

    def _admitted_digest(self, file: str) -> str | None:
        try:
            entry = self._catalog.manifest.files.get(file)
        except InputError:  # nothing is served, so nothing is admitted
            return None
        return entry.sha256 if entry else None

    def _version(self, digest: str | None, file: str) -> tuple[Reading | None, Sources]:
        if digest is None:
            return None, {}
        sources = self._catalog.version_sources(digest, file)
        if sources is None:
            return None, {}
        return read_sources(sources, self._catalog.root / file), sources

    def sources(self, version: Version) -> Sources:
        """The bytes of a version.

        Raises:
            InputError: they are not kept, or not whole.
        """
        sources = self._catalog.version_sources(version.digest, version.file)
        if sources is None:
            raise InputError(
                f"the source of version {version.number} is not in the store, or damaged",
                hint="restore the store from a backup",
            )
        return sources

    def _refuse_if_changed(self, candidate: CandidateVersion, manifest: Manifest) -> None:
        entry = manifest.files.get(candidate.file)
        changed = (entry.sha256 if entry else None) != candidate.base
        if not candidate.is_written:
            place = self._catalog.root / candidate.file
            changed |= (place.read_bytes() if place.exists() else None) != candidate.replaces
        if changed:
            raise EditConflict(
                f"{candidate.file} changed in the meantime",
                hint="look at the current file, then try again",
            )


def refuse_proposal(manifest: Manifest, file: str, by: str, quota: int) -> None:
    """Refuse a proposal that would replace another caller's, or exceed the caller's quota.

    Raises:
        Conflict: another caller's proposal for this file waits.
        InputError: the caller has too many.
    """
    waiting = manifest.proposed.get(file)
    if waiting is not None and waiting.by != by:
        raise EditConflict(
            f"another caller's proposal for {file} waits for a decision",
            hint="choose another name, or wait until a person has decided about it",
        )
    count = sum(1 for key, entry in manifest.proposed.items() if entry.by == by and key != file)
    if count >= quota:
        raise ProposalQuota(
            f"{count} of your proposals wait for a decision, and {quota} are allowed",
            hint="wait until a person has decided about them; the setting is proposals_per_caller",
        )


def _installation(candidates: Iterable[CandidateVersion]) -> Installation | None:
    for candidate in candidates:
        if not candidate.is_written:
            data = next(iter(candidate.read.sources.values()))
            return Installation(candidate.file, data)
    return None


def _refuse_unsandboxed(candidate: CandidateVersion, decision: AdmissionDecision) -> None:
    loose = [spec.name for spec in candidate.read.reading.tools if not spec.rights.sandbox]
    if loose and not decision.unsandboxed:
        raise NotAllowed(
            f"{loose[0]} runs outside the sandbox, and {decision.by} may not admit that",
            hint="requires the privilege UNSANDBOXED_EXEC",
        )


def _about(candidate: CandidateVersion, note: str) -> dict[str, str]:
    names = ", ".join(candidate.read.names)
    note = "; ".join(filter(None, (note, overruled_errors.note(candidate.overruled))))
    detail = f"{candidate.file}: {note}" if note else candidate.file
    return {"tool": names, "digest": candidate.read.digest, "detail": detail}


def _granted(candidate: CandidateVersion) -> dict[str, str]:
    given = {
        s.name: _asked(s).model_dump(exclude_defaults=True) for s in candidate.read.reading.tools
    }
    return {**_about(candidate, ""), "detail": json.dumps(given, sort_keys=True)}


def _asked(spec: ToolSpec) -> Grant:
    """All that a tool asks for, as a grant."""
    asked = spec.rights
    return Grant(
        network=asked.network,
        workspace=asked.workspace,
        sandbox=asked.sandbox,
        secrets=asked.secrets,
    )


def _is_still_reviewed(entry: Admission | None, digest: str) -> bool:
    """Whether a person admitted exactly this version: writing it again changes nothing."""
    return entry is not None and entry.sha256 == digest and entry.is_reviewed


def _rights(
    reading: Reading, entry: Admission | None, decision: AdmissionDecision
) -> dict[str, Grant]:
    """Return the grants to record: all that the tools ask for, or what was granted before.

    A writer's version records them too, without effect (`Admission.is_reviewed`), so that a
    person who admits it, or rolls it back, need not grant them again.
    """
    before = entry.rights if entry else {}
    rights: dict[str, Grant] = {}
    for spec in reading.tools:
        given = _asked(spec) if decision.grant else before.get(spec.name, Grant())
        if given != Grant():
            rights[spec.name] = given
    return rights
