"""Files that wait for a person to admit them, and the answer, on behalf of a session.

As `toolkiln admit` and `toolkiln reject` do it, for who looks at them from elsewhere: an
answer names the version that was looked at and the one it was compared with, and where
either is another by then, nothing is decided. Writing proposals is `authoring`'s business.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolkiln.app.own import SessionToken
from toolkiln.app.rights import InheritedRights, inherited
from toolkiln.app.visibility import no_proposal, refuse_hidden_file
from toolkiln.catalog import (
    MANIFEST,
    Assessment,
    Candidate,
    Outdated,
    RightsAsked,
    refuse_outdated,
)
from toolkiln.errors import InputError, NotFound
from toolkiln.model import FileState, FileStatus, Privilege, Refusal, Severity, Sources

if TYPE_CHECKING:
    from toolkiln.app.authoring import Authored
    from toolkiln.app.kiln import Kiln

_UNDECIDED = frozenset({FileState.NEW, FileState.CHANGED, FileState.PROPOSED})


@dataclass(frozen=True)
class Proposal:
    """A file that waits, with what a person should know before deciding."""

    state: FileState
    assessment: Assessment
    """Against the version that is served."""
    grants: tuple[RightsAsked, ...]
    """All that it asks for, which granting is about."""
    base: Sources
    """The version that is served; empty if none is, or it is not kept."""
    proposed: Refusal | None
    """By whom and when, if somebody proposed it by a tool or the API."""
    inherits: tuple[InheritedRights, ...] = ()
    """The grants and settings that it has once it is admitted, without granting anything."""
    base_reviewed: bool | None = None
    """Whether a person reviewed the version that is served; None if none is."""


@dataclass(frozen=True)
class Looked:
    """What somebody looked at before they answered."""

    file: str
    digest: str
    base: str | None
    """The version that was served, by its digest."""


class Proposals:
    """What one person sees and decides."""

    def __init__(self, kiln: "Kiln", session: SessionToken) -> None:
        self._kiln = kiln
        self._session = session

    def waiting(self, *, only_proposed: bool = False) -> list[str]:
        """The files that wait, or just those that somebody proposed, by their names.

        The latter takes no look at the whole folder.

        Raises:
            NotAllowed: they have no ADMIN.
            ManifestError: what was decided so far cannot be trusted.
        """
        self._kiln.guarding.require(self._session, Privilege.ADMIN, "proposals.list")
        if self._kiln.path is None:
            return []
        self._refuse_unusable_manifest()
        proposed = list(self._kiln.catalog.proposals())
        # In `dev` files on disk are served as they are edited: they wait for nobody.
        if only_proposed or self._kiln.settings.dev:
            return proposed
        try:
            found = self._kiln.catalog.statuses()
        except InputError:
            return proposed  # there is no folder yet, or nothing in it
        files = [one.file for one in found if one.state in _UNDECIDED and _may_declare_tools(one)]
        return sorted({*files, *proposed})

    def shown(self, files: Sequence[str]) -> list[Proposal]:
        """Describe proposals and undecided files, without those decided upon meanwhile.

        A file may have both: a proposal, and another change on disk.
        """
        proposals = []
        for file in files:
            with suppress(NotFound):
                proposals += [self._shown(candidate) for candidate in self._candidates(file)]
        return proposals

    async def admit(self, looked: Looked, *, grant: bool = False, reason: str = "") -> "Authored":
        """Let a file be served exactly as it was looked at, if it passes.

        Raises:
            NotAllowed: they have no ADMIN, or may not admit what runs outside the sandbox.
            NotFound: there is no such file.
            Outdated: the file, or what is served, is another version by now, or was decided.
            Conflict: somebody else decides about it at this moment.
        """
        from asyncio import to_thread

        guarding = self._kiln.guarding
        guarding.require(self._session, Privilege.ADMIN, "admit")
        candidate = await to_thread(self._looked_at, looked)
        decision = replace(guarding.decision(grant=grant, session=self._session), note=reason)
        told = await self._kiln.authoring.admit([candidate], decision)
        return told[candidate.file]

    def reject(self, looked: Looked, *, reason: str = "") -> bool:
        """Decide that a file is not to be served as it was looked at.

        Returns whether an earlier version is served on.

        Raises:
            NotAllowed: they have no ADMIN.
            NotFound, Outdated, Conflict: as for `admit`.
        """
        admin = self._kiln.guarding.require(self._session, Privilege.ADMIN, "reject")
        candidate = self._looked_at(looked)
        return self._kiln.admissions.reject(
            candidate.file, admin.who, looked_at=candidate, note=reason
        )

    def _looked_at(self, looked: Looked) -> Candidate:
        self._refuse_unusable_manifest()
        candidates = self._candidates(looked.file)
        same = [one for one in candidates if one.read.digest == looked.digest]
        candidate = (same or candidates)[0]
        refuse_outdated(looked.file, candidate.read.digest, looked.digest)
        if candidate.base != looked.base or self._state(candidate) not in _UNDECIDED:
            raise Outdated(
                f"somebody decided about {looked.file} meanwhile",
                hint="look at it as it is, then try again",
            )
        return candidate

    def _candidates(self, file: str) -> list[Candidate]:
        """The proposal for a file, and what is on disk if it waits too, or else alone."""
        refuse_hidden_file(self._kiln, file, self._session)
        catalog, admissions = self._kiln.catalog, self._kiln.admissions
        found: list[Candidate] = []
        if self._has_manifest and (proposal := admissions.proposal(file)):
            found.append(proposal)
        try:
            if catalog.disk.key(catalog.root / file) == file:  # no way out of the folder
                on_disk = admissions.candidate(file)
                is_waiting = not self._kiln.settings.dev and self._state(on_disk) in _UNDECIDED
                is_other = all(on_disk.read.digest != one.read.digest for one in found)
                found += [on_disk] if not found or (is_waiting and is_other) else []
        except (InputError, ValueError, OSError):  # also: no name that a file can have
            pass
        if not found:
            raise no_proposal(file)
        return found

    def _shown(self, candidate: Candidate) -> Proposal:
        admissions, file = self._kiln.admissions, candidate.file
        base = entry = None
        if candidate.base is not None:
            base = self._kiln.catalog.version_sources(candidate.base, file)
            entry = self._kiln.catalog.manifest.files.get(file)
        state = self._state(candidate)
        is_proposed = state is FileState.PROPOSED
        return Proposal(
            state,
            admissions.assess(candidate),
            admissions.assess(replace(candidate, base=None)).rights,
            base or {},
            self._kiln.catalog.manifest.proposed[file] if is_proposed else None,
            inherited(self._kiln, candidate),
            entry.is_reviewed if entry else None,
        )

    def _state(self, candidate: Candidate) -> FileState:
        if not self._has_manifest:
            return FileState.NEW
        return self._kiln.catalog.manifest.state_of(candidate.file, candidate.read.digest)

    def _refuse_unusable_manifest(self) -> None:
        if self._has_manifest:
            _ = self._kiln.catalog.manifest

    @property
    def _has_manifest(self) -> bool:
        """Whether anything was ever decided here."""
        return os.path.lexists(self._kiln.catalog.root / MANIFEST)


def _may_declare_tools(item: FileStatus) -> bool:
    is_wrong = any(finding.severity is Severity.ERROR for finding in item.findings)
    return bool(item.tools or item.admission or is_wrong)
