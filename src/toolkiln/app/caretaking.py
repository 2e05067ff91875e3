"""What people with ADMIN do about admitted tools, on behalf of a session.

Each act asks for the privilege, says which version it is about where that is given, and
leaves its record by way of `catalog.Admissions`. Writing tools is `authoring`'s business.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolkiln.app.own import SessionToken
from toolkiln.catalog import Conflict, refuse_outdated
from toolkiln.errors import UnknownTool
from toolkiln.model import Privilege, Served, ToolSpec, Version

if TYPE_CHECKING:
    from toolkiln.app.kiln import Kiln


class Caretaking:
    """The acts of one person."""

    def __init__(self, kiln: "Kiln", session: SessionToken) -> None:
        self._kiln = kiln
        self._session = session

    def switch(
        self, name: str, wanted: bool | Mapping[str, Any], *, digest: str | None = None
    ) -> None:
        """Offer a tool, a toolkit or some of its methods, or cease to; `digest` is the tool's.

        Raises:
            NotAllowed: they have no ADMIN.
            InputError: there is no such tool or toolkit, or it is a core one.
            Outdated: another version is served.
        """
        admin = self._kiln.guarding.require(self._session, Privilege.ADMIN, "switch")
        if digest is not None:
            refuse_outdated(name, self.served(name).read.digest, digest)
        self._kiln.admissions.switch(name, wanted, admin.who)

    def grant(self, name: str, *, digest: str | None = None) -> None:
        """Grant the tools of a file all that they ask for, in the version that is served.

        Raises:
            NotAllowed: they have no ADMIN, or not what it takes to grant that.
            Outdated: another version is served.
            Conflict: the file has changes that nobody admitted.
        """
        guarding, admissions = self._kiln.guarding, self._kiln.admissions
        guarding.require(self._session, Privilege.ADMIN, "grant")
        served = self.served(name)
        candidate = admissions.candidate(served.file)
        refuse_outdated(name, candidate.base, digest)
        if candidate.read.digest != candidate.base:
            raise Conflict(
                f"{served.file} has changes that nobody admitted",
                hint="admit them, or undo them, then grant it",
            )
        admissions.admit([candidate], guarding.decision(grant=True, session=self._session))

    def remove(self, name: str, *, digest: str | None = None, with_others: bool = False) -> Served:
        """Take a tool's file out of the catalog and off the disk; `rollback` brings it back.

        Raises:
            NotAllowed: they have no ADMIN.
            InputError: it cannot go, as `Admissions.remove` tells.
        """
        admin = self._kiln.guarding.require(self._session, Privilege.ADMIN, "remove")
        return self._kiln.admissions.remove(name, admin.who, digest=digest, with_others=with_others)

    def rollback(
        self, name: str, version: str, *, digest: str | None = None, discard: bool = False
    ) -> Version:
        """Serve an earlier version again; `discard` lets changes go that nobody admitted.

        Raises:
            NotAllowed: they have no ADMIN, or may not admit what runs outside the sandbox.
            InputError: there is no such version, or it is the one that is served.
            Conflict: the file has changes that nobody admitted.
        """
        guarding, admissions = self._kiln.guarding, self._kiln.admissions
        guarding.require(self._session, Privilege.ADMIN, "rollback")
        found = admissions.version(name, version)
        if not discard and (file := admissions.unsaved(name, found)):
            raise Conflict(
                f"{file.name} has changes that nobody admitted", hint="say that they may go"
            )
        decision = guarding.decision(session=self._session)
        return admissions.rollback(name, version, decision, digest=digest)

    def disabled(self) -> dict[str, ToolSpec]:
        """The tools that are admitted and switched off, by name.

        Raises:
            NotAllowed: they have no ADMIN.
        """
        self._kiln.guarding.require(self._session, Privilege.ADMIN, "switch")
        snapshot = self._kiln.catalog.snapshot
        off = sorted(snapshot.served.keys() - snapshot.tools.keys())
        return {name: snapshot.served[name].read.tool(name) for name in off}

    def proposed(self) -> dict[str, ToolSpec]:
        """The tools that were written and wait for a person to admit them, by name.

        Raises:
            NotAllowed: they have no ADMIN.
        """
        self._kiln.guarding.require(self._session, Privilege.ADMIN, "admit")
        catalog = self._kiln.catalog
        reads = [
            (catalog.disk.read(file), entry) for file, entry in catalog.manifest.proposed.items()
        ]
        return {
            spec.name: spec
            for read, entry in reads
            if read is not None and read.digest == entry.sha256
            for spec in read.reading.tools
        }

    def served(self, name: str) -> Served:
        """The version of a tool that is admitted, switched on or off.

        Raises:
            UnknownTool: no file of the catalog has it.
        """
        served = self._kiln.catalog.snapshot.served
        if name not in served:
            raise UnknownTool(name, served)
        return served[name]
