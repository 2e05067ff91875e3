"""Errands done where the files are, on behalf of the holder of a session.

Each asks for the privilege that it takes, holds to the version that it is about where one
is said, and leaves its record by way of `catalog.Admissions`. Whether a source is any good
is for `authoring`.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from toolkiln.app import errands
from toolkiln.app.authoring import Authored, Draft
from toolkiln.app.errands import Errand, KeptVersion, Match, Standing, Written
from toolkiln.app.own import SessionToken
from toolkiln.app.proposals import Looked, Proposal, Proposals
from toolkiln.app.visibility import refuse_hidden
from toolkiln.catalog import Conflict, Outdated, refuse_outdated
from toolkiln.errors import InputError, UnknownTool
from toolkiln.model import Privilege, Refusal, Served, Sources, ToolSpec, Version

if TYPE_CHECKING:
    from toolkiln.app.kiln import Kiln

A = TypeVar("A")


class Caretaking:
    """The errands of one person, over one Kiln."""

    def __init__(self, kiln: "Kiln", session: SessionToken) -> None:
        self._kiln = kiln
        self._session = session
        self._proposals = Proposals(kiln, session)
        self._at_once: dict[type[Errand[Any]], Callable[[Any], Any]] = {
            errands.Look: self._look,
            errands.ListDisabled: self._list_disabled,
            errands.ListProposed: self._list_proposed,
            errands.Patch: self._patch,
            errands.SwitchToolkit: self._switch_toolkit,
            errands.Remove: self._remove,
            errands.ListVersions: self._list_versions,
            errands.ShowVersion: self._show_version,
            errands.RollBack: self._roll_back,
            errands.ShowSettings: self._show_settings,
            errands.SetTool: self._set_tool,
            errands.ListWaiting: self._list_waiting,
            errands.ShowWaiting: self._show_waiting,
            errands.Reject: self._reject,
        }

    async def do(self, errand: Errand[A]) -> A:
        """Do something, and tell what came of it.

        Raises:
            NotAllowed: it takes a privilege that they have not; this is recorded.
            InputError: there is no such tool or version, or it cannot be done to it.
            Outdated: another version is served than those that it may be about.
            Conflict: the file has changes that nobody admitted, or somebody else changed it.
        """
        told: object
        if isinstance(errand, errands.Author):
            told = await self._author(errand)
        elif isinstance(errand, errands.Write):
            told = await self._write(errand)
        elif isinstance(errand, errands.Admit):
            told = await self._admit(errand)
        else:
            told = await asyncio.to_thread(self._at_once[type(errand)], errand)
        return cast("A", told)

    def _look(self, errand: errands.Look) -> Standing:
        return self._standing(self._seen(errand.name))

    def _list_disabled(self, _: errands.ListDisabled) -> tuple[ToolSpec, ...]:
        self._require(Privilege.ADMIN, "switch")
        snapshot = self._kiln.snapshot
        off = sorted(snapshot.served.keys() - snapshot.tools.keys())
        return tuple(snapshot.served[name].read.tool(name) for name in off)

    def _list_proposed(self, _: errands.ListProposed) -> tuple[ToolSpec, ...]:
        self._require(Privilege.ADMIN, "admit")
        if self._kiln.path is None:
            return ()
        proposals = self._kiln.catalog.proposals().values()
        return tuple(spec for read in proposals for spec in read.reading.tools)

    async def _author(self, errand: errands.Author) -> Authored:
        told = errand.model_dump()
        return await self._kiln.author(Draft(**told), self._session)

    async def _write(self, errand: errands.Write) -> Written:
        target = await asyncio.to_thread(self._target, errand)
        if isinstance(target, Authored):
            return Written(authored=target, is_new=False)
        draft, is_new = target
        authored = await self._kiln.author(draft, self._session, is_review=True)
        return Written(authored=authored, is_new=is_new)

    def _target(self, errand: errands.Write) -> tuple[Draft, bool] | Authored:
        """Where a tool is written to, and whether it is a new one; or why nowhere."""
        name = errand.name
        try:
            served = self._kiln.catalog.snapshot.served.get(name)
        except InputError:  # nothing is served yet; writing the manifest reports why not
            served = None
        base = _about(name, served, errand.match)
        if errand.only_new and served is not None:
            raise Outdated(f"there is a tool named {name!r}", hint="choose another name")
        code, description = errand.source, errand.description
        if served is None:
            return Draft(code, name, description, base=base), True
        if not self._kiln.guarding.may_see(self._session)(served.read.tool(name)):
            taken = f"the name {name!r} is taken; choose another name"
            return Authored(success=False, error=taken, code="exists")
        folder, _, file = served.file.rpartition("/")
        return Draft(code, file.removesuffix(".py"), description, True, base, folder), False

    def _patch(self, errand: errands.Patch) -> Standing:
        admin = self._require(Privilege.ADMIN, "switch")
        refuse_hidden(self._kiln, errand.name, self._session)
        served = self._served(errand.name)
        digest = _about(errand.name, served, errand.match)
        if errand.granted is not None:
            self._grant(errand.name, served, digest)
        if errand.enabled is not None:
            refuse_outdated(errand.name, self._served(errand.name).read.digest, digest)
            self._kiln.admissions.switch(errand.name, errand.enabled, admin)
        return self._standing(self._seen(errand.name))

    def _grant(self, name: str, served: Served, digest: str | None) -> None:
        guarding, admissions = self._kiln.guarding, self._kiln.admissions
        candidate = admissions.candidate(served.file)
        if candidate.read.digest != candidate.base:
            raise Conflict(
                f"{served.file} has unadmitted changes",
                hint=f"admit and grant them with `toolkiln admit --grant {served.file}`, or grant "
                f"it in [grants.{name}] of toolkiln.toml",
            )
        refuse_outdated(name, candidate.base, digest)
        admissions.admit([candidate], guarding.decision(grant=True, session=self._session))

    def _switch_toolkit(self, errand: errands.SwitchToolkit) -> dict[str, bool]:
        admin = self._require(Privilege.ADMIN, "switch")
        refuse_hidden(self._kiln, errand.name, self._session)
        wanted = {"enabled": errand.enabled, "methods": errand.methods}
        self._kiln.admissions.switch(errand.name, wanted, admin)
        snapshot = self._kiln.catalog.snapshot
        specs = (served.read.tool(tool) for tool, served in snapshot.served.items())
        members = (s.name for s in specs if s.toolkit and s.toolkit.name == errand.name)
        return {name: name in snapshot.tools for name in members}

    def _remove(self, errand: errands.Remove) -> errands.RemovedTool:
        admin = self._require(Privilege.ADMIN, "remove")
        refuse_hidden(self._kiln, errand.name, self._session)
        digest = _about(errand.name, self._served(errand.name), errand.match)
        gone = self._kiln.admissions.remove(
            errand.name, admin, digest=digest, with_others=errand.with_others
        )
        return errands.RemovedTool(
            tools=gone.read.names,
            file=gone.file,
            digest=gone.read.digest,
            version=gone.version or 0,
        )

    def _list_versions(self, errand: errands.ListVersions) -> tuple[KeptVersion, ...]:
        self._refuse_unseen(errand.name)
        found = self._kiln.admissions.history(errand.name)
        return tuple(self._kept(errand.name, version) for version in found)

    def _show_version(self, errand: errands.ShowVersion) -> errands.VersionDetails:
        self._require(Privilege.WRITE_TOOLS, "source.show")
        self._refuse_unseen(errand.name)
        admissions = self._kiln.admissions
        served = self._kiln.catalog.snapshot.served.get(errand.name)
        if served and served.dev and errand.version == served.read.digest:
            return _unadmitted(served)
        version = admissions.version(errand.name, errand.version)
        diff = None
        if errand.since is not None:
            diff = admissions.diff(errand.name, errand.since, str(version.number))
        kept = self._kept(errand.name, version).model_dump()
        texts = _texts(admissions.sources(version))
        return errands.VersionDetails(**kept, sources=texts, diff=diff)

    def _roll_back(self, errand: errands.RollBack) -> KeptVersion:
        self._require(Privilege.ADMIN, "rollback")
        name, admissions = errand.name, self._kiln.admissions
        refuse_hidden(self._kiln, name, self._session)
        digest = _about(name, self._kiln.catalog.snapshot.served.get(name), errand.match)
        found = admissions.version(name, errand.version)
        if not errand.discard and (file := admissions.unsaved(name, found)):
            raise Conflict(
                f"{file.name} has changes that nobody admitted", hint="say that they may go"
            )
        decision = self._kiln.guarding.decision(session=self._session)
        version = admissions.rollback(name, errand.version, decision, digest=digest)
        return self._kept(name, version)

    def _show_settings(self, errand: errands.ShowSettings) -> errands.ToolSettings:
        spec = self._seen(errand.name)
        if errand.user != self._kiln.guarding.caller(self._session).who:
            self._require(Privilege.ADMIN, "settings")
        return self._settings(spec, errand.user)

    def _set_tool(self, errand: errands.SetTool) -> errands.ToolSettings:
        spec, removed = self._seen(errand.name), frozenset(errand.unset)
        self._kiln.guarding.set_tool(
            spec, errand.values, removed=removed, user=errand.user, session=self._session
        )
        return self._settings(spec, errand.user)

    def _settings(self, spec: ToolSpec, user: str) -> errands.ToolSettings:
        settings = self._kiln.guarding.tool_settings
        served = self._kiln.snapshot.served.get(spec.name)
        withheld = "a person with ADMIN has to admit this version, which a caller wrote"
        is_withheld = served is not None and not served.is_reviewed
        return errands.ToolSettings(
            tool=spec.name,
            user=user or None,
            parameters=settings.schema(spec, user),
            values=settings.shown(spec, user),
            missing=withheld if is_withheld else settings.missing(spec, user),
        )

    def _list_waiting(self, errand: errands.ListWaiting) -> tuple[str, ...]:
        return tuple(self._proposals.waiting(only_proposed=errand.only_proposed))

    def _show_waiting(self, errand: errands.ShowWaiting) -> tuple[errands.ProposedFile, ...]:
        self._require(Privilege.ADMIN, "proposals.list")
        return tuple(map(_shown, self._proposals.shown(errand.files)))

    async def _admit(self, errand: errands.Admit) -> Authored:
        looked = Looked(errand.file, errand.digest, errand.base)
        return await self._proposals.admit(looked, grant=errand.grant, reason=errand.reason)

    def _reject(self, errand: errands.Reject) -> bool:
        looked = Looked(errand.file, errand.digest, errand.base)
        return self._proposals.reject(looked, reason=errand.reason)

    def _require(self, privilege: Privilege, what: str) -> str:
        """Who they are, if they have a privilege."""
        return self._kiln.guarding.require(self._session, privilege, what).who

    def _is_admin(self) -> bool:
        return Privilege.ADMIN in self._kiln.guarding.caller(self._session).privileges

    def _seen(self, name: str) -> ToolSpec:
        """A tool that they may run; with ADMIN also one that is switched off."""
        kiln = self._kiln
        try:
            spec = kiln.tool(name)
        except InputError as error:
            if not self._is_admin():
                raise UnknownTool(name, kiln.visible(self._session)) from None
            if error.code != "disabled":
                raise
            return kiln.snapshot.served[name].read.tool(name)
        if not kiln.guarding.may_see(self._session)(spec):
            raise UnknownTool(name, kiln.visible(self._session))
        return spec

    def _refuse_unseen(self, name: str) -> None:
        """People with ADMIN also look back at tools that are not served any more."""
        try:
            self._seen(name)
        except InputError:
            if not self._is_admin():
                raise

    def _standing(self, spec: ToolSpec) -> Standing:
        snapshot = self._kiln.snapshot
        served = snapshot.served.get(spec.name)
        if served is None or served.read.digest != spec.digest:
            return Standing(spec=spec)
        return Standing(
            spec=spec,
            enabled=spec.name in snapshot.tools,
            file=served.file,
            version=served.version,
            dev=served.dev,
            granted=self._kiln.grant(spec.name),
            reviewed=served.is_reviewed,
        )

    def _served(self, name: str) -> Served:
        """The version of a tool that is admitted, switched on or off."""
        served = self._kiln.catalog.snapshot.served
        if name not in served:
            raise UnknownTool(name, served)
        return served[name]

    def _kept(self, name: str, version: Version) -> KeptVersion:
        served = self._kiln.catalog.snapshot.served.get(name)
        return KeptVersion(
            version=version.number,
            digest=version.digest,
            action=version.action,
            by=version.by,
            at=version.at,
            tools=version.tools,
            note=version.note,
            served=served is not None and served.version == version.number,
        )


def _about(name: str, served: Served | None, match: Match) -> str | None:
    """The digest of the version that an errand is about, if it says any."""
    if match is None:
        return None
    current = served.read.digest if served else None
    if current is None or not {"*", current} & {*match}:
        there = f"{name} is at version {current}" if current else f"there is no tool {name!r}"
        raise Outdated(there, hint="look at it as it is, then try again")
    return current


def _unadmitted(served: Served) -> errands.VersionDetails:
    """A version that `dev` serves without an admission."""
    return errands.VersionDetails(
        version=0,
        digest=served.read.digest,
        action="dev",
        by="",
        at="",
        tools=served.read.names,
        note="",
        served=True,
        sources=_texts(served.sources),
        diff=None,
    )


def _texts(sources: Sources) -> dict[str, str]:
    return {file: _shown_source(file, data) for file, data in sources.items()}


def _shown(found: Proposal) -> errands.ProposedFile:
    candidate, proposed = found.assessment.candidate, found.proposed
    return errands.ProposedFile(
        file=candidate.file,
        state=found.state,
        names=candidate.read.names,
        digest=candidate.read.digest,
        base=candidate.base,
        source=_text(candidate.read.sources),
        base_source=_text(found.base) if found.base else None,
        diff=found.assessment.diff,
        by=proposed.by if proposed else None,
        at=_moment(proposed) if proposed else None,
        findings=tuple(found.assessment.findings),
        rights=found.assessment.rights,
        grants=found.grants,
        inherits=found.inherits,
        base_reviewed=found.base_reviewed,
    )


def _shown_source(file: str, data: bytes) -> str:
    """A file of a version as text; of a data file that is not text, its size."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        is_code = file.endswith(".py")
        return data.decode("utf-8", "replace") if is_code else f"<{len(data):,} bytes, not text>"


def _text(sources: Sources) -> str:
    return next(iter(sources.values()), b"").decode("utf-8", "replace")


def _moment(proposed: Refusal) -> float:
    return datetime.fromisoformat(proposed.at).timestamp()
