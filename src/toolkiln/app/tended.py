"""The ways of versions into the catalog of a Kiln: admitting and writing them.

What is asked for on behalf of a session beyond writing is in `errands`.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from toolkiln.app.opened import part
from toolkiln.app.own import OWN, SessionToken
from toolkiln.app.visibility import visible_to
from toolkiln.catalog import Admissions, Catalog
from toolkiln.config import Settings
from toolkiln.model import CallError, Finding, Read, ToolSpec

if TYPE_CHECKING:
    from toolkiln.app.authoring import Authored, Authoring, Draft
    from toolkiln.app.engine import Engine
    from toolkiln.app.guarding import Guarding
    from toolkiln.app.library import Library
    from toolkiln.app.reading_pool import ReadingPool


class Tended(ABC):
    """What lets versions into a catalog."""

    @property
    @abstractmethod
    def catalog(self) -> Catalog:
        """What is served from the tools' folder."""

    @property
    @abstractmethod
    def engine(self) -> "Engine":
        """What calls need."""

    @property
    @abstractmethod
    def guarding(self) -> "Guarding":
        """Who may run what."""

    @property
    @abstractmethod
    def library(self) -> "Library":
        """Search, and what is written about tools."""

    @property
    @abstractmethod
    def _now(self) -> Settings:
        """The settings of this moment."""

    @part
    def admissions(self) -> Admissions:
        """What people decide about files, and what became of it."""
        return Admissions(self.catalog, self.guarding.act)

    @part
    def reading(self) -> "ReadingPool":
        """The threads that read sources for callers."""
        from toolkiln.app.reading_pool import ReadingPool

        return ReadingPool()

    @part
    def authoring(self) -> "Authoring":
        """The way of new versions into the catalog."""
        from toolkiln.app.authoring import Authoring

        async def index() -> str | None:
            from asyncio import to_thread

            return await to_thread(self.library.refresh)

        def probe(read: Read) -> Awaitable[list[Finding]]:
            return self.engine.probe(read)  # in the event loop that writes a tool

        refuse = self._now.refuse
        return Authoring(self.admissions, frozenset(refuse), probe, index, self.reading)

    async def author(
        self, draft: "Draft", session: SessionToken = OWN, *, is_review: bool = False
    ) -> "Authored":
        """Write a tool for a caller: admitted, or as a proposal.

        With `is_review` a caller with ADMIN also reviews the version, which then inherits the
        grants and settings of the one it replaces.

        Raises:
            NoSession: nobody holds the session.
        """
        allowed = await self.guarding.may_author(session, is_review=is_review)
        if isinstance(allowed, CallError):
            from toolkiln.app.authoring import Authored

            said = f"{allowed.message}: {allowed.hint}"
            return Authored(success=False, error=said, code=allowed.code)
        quota = None if allowed.admits else self._now.proposals_per_caller
        may_replace = visible_to(self.guarding, lambda: self.catalog, session)
        return await self.authoring.write(
            draft, allowed.decision, quota=quota, may_replace=may_replace
        )

    def preview(self) -> dict[str, ToolSpec]:
        """What would be served if every file were admitted as it is on disk.

        Raises:
            InputError: there is no such folder, or no Python file in it.
        """
        reads = self.catalog.disk.everything().values()
        return {spec.name: spec for read in reads for spec in read.reading.tools}
