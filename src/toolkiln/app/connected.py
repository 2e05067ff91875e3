"""A Kiln in front of a fleet: it presents the fleet's tools and has workers run them.

It differs from one over a folder in where its tools come from (`published`), where calls go
(`forwarding`), whose rules hold (the fleet's, as its workers publish them), and in that there
are no files here: what is done about them a worker does (`delegating`). No code of a tool is
loaded, but for pinned ones in a sandbox.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import asdict, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from toolkiln.app.forwarding import Forwarding
from toolkiln.app.kiln import Kiln
from toolkiln.app.live import FleetLive
from toolkiln.app.offer import BUILTIN_NAMES
from toolkiln.app.opened import part
from toolkiln.app.own import OWN, SessionToken
from toolkiln.app.published import (
    FleetOffer,
    NoWorker,
    PublishedTools,
    changes_of,
    key_settings,
)
from toolkiln.catalog import Catalog, Change
from toolkiln.config import Settings
from toolkiln.errors import InputError
from toolkiln.model import Privilege

if TYPE_CHECKING:
    from toolkiln.app.authoring import Authored, Draft
    from toolkiln.app.delegating import Delegating
    from toolkiln.app.engine import Engine
    from toolkiln.app.errands import Errand
    from toolkiln.app.guarding import Guarding
    from toolkiln.app.sources import Run, SourceCall

A = TypeVar("A")


class Connected(Kiln):
    """The tools of a fleet, and functions of this process."""

    def __init__(
        self,
        url: str,
        *,
        functions: Iterable[Callable[..., Any]] = (),
        settings: Settings | None = None,
        surface: str = "python",
    ) -> None:
        """Raises StoreError if the URL cannot be read."""
        shared = replace(settings or Settings(), redis=url, dev=False)
        super().__init__(functions=functions, settings=shared, surface=surface)
        self.path = None
        self._published = PublishedTools(url, key_settings(shared))

    @property
    def place(self) -> str:
        """Where the tools are, for people."""
        return self._published.address.name

    @property
    def no_worker(self) -> NoWorker | None:
        """The error that answers every call while no worker has joined the fleet."""
        return self._published.no_worker

    @property
    def catalog(self) -> Catalog:
        """There is none here.

        Raises:
            InputError: always.
        """
        raise InputError(
            "the files of these tools lie with the workers of the fleet",
            hint="do this in the folder of a worker",
        )

    def watch(
        self,
        say: Callable[[str], None] = lambda _: None,  # noqa: ARG002 - nothing to be said
    ) -> AsyncGenerator[Change, None]:
        """What changes in the catalog of the fleet, as long as somebody asks."""
        return changes_of(self._published)

    async def author(
        self,
        draft: "Draft",
        session: SessionToken = OWN,
        *,
        is_review: bool = False,  # noqa: ARG002 - a worker takes no front's word for a review
    ) -> "Authored":
        """Have a worker write a tool, as `Tended.author`, into the folder of its tools."""
        from toolkiln.app.errands import Author

        code = draft.code if isinstance(draft.code, str) else _text(draft.code)
        return await self.tend(Author(**{**asdict(draft), "code": code}), session)

    async def tend(self, errand: "Errand[A]", session: SessionToken = OWN) -> A:
        """Have a worker do it, unless it is about what is here.

        Raises:
            NoWorker: there has never been one.
        """
        if await asyncio.to_thread(self._is_for_us, errand, session):
            return await super().tend(errand, session)
        if (missing := await asyncio.to_thread(lambda: self.no_worker)) is not None:
            raise missing
        return await self._delegating.tend(errand, self.guarding.token(session))

    async def prepare_source(self, wanted: "SourceCall") -> "Run":
        """What has a worker run a tool of a source, once; all that is wrong is told by that."""
        run = self._delegating.run(wanted, self.guarding.token(wanted.session))
        if wanted.call_id is None:
            return run
        return lambda observe: self.engine.tasks.seen_out(run(observe))

    @part
    def guarding(self) -> "Guarding":
        """Who may run what here; workers decide for themselves what they run."""
        from toolkiln.app.guarding import Guarding

        live = FleetLive(self.settings, lambda: self._published.snapshot.permissions)
        return Guarding(self.settings, lambda: self.store, self.tool, self._surface, live)

    def _new_engine(self) -> "Engine":
        """What calls need that run here, and the way to the workers for all others."""
        from toolkiln.app.engine import Engine

        return Engine(
            self._offer,
            self.settings,
            None,
            self._resolve_host,
            self.guarding.guard,
            self.guarding.call_book,
            self._new_forwarding(),
        )

    async def __aenter__(self) -> "Connected":
        # The first look at the fleet, ahead of what cannot wait for it without blocking the loop.
        await asyncio.to_thread(lambda: self._published.snapshot)
        return self

    def let_go(self) -> None:
        """Close what needs no event loop for that."""
        super().let_go()
        self._published.close()

    def _begin_in_child(self) -> None:
        super()._begin_in_child()
        self._published.begin_in_child()

    def _new_forwarding(self) -> Forwarding:
        from toolkiln.fleet import RedisRecords

        @cache
        def book() -> RedisRecords:
            found = self.guarding.call_book()
            assert isinstance(found, RedisRecords)  # as Redis is set
            return found

        durable = self.settings.fleet_durable
        return Forwarding(self._offer, self._published, self.guarding.guard, book, durable=durable)

    @property
    def _delegating(self) -> "Delegating":
        from toolkiln.app.delegating import Delegating

        forwarding = self.engine.elsewhere
        assert isinstance(forwarding, Forwarding)
        return Delegating(forwarding, self._surface)

    def _is_for_us(self, errand: "Errand[Any]", session: SessionToken) -> bool:
        """Whether an errand is a look at what is published, or about settings kept here."""
        from toolkiln.app.errands import Look, SetTool, ShowSettings

        name, spec = errand.name, self.specs.get(errand.name)
        if isinstance(errand, Look):
            # Of what is not published, people with ADMIN are told whether it is switched off.
            is_known = name in BUILTIN_NAMES or spec is not None
            return is_known or Privilege.ADMIN not in self.guarding.caller(session).privileges
        if isinstance(errand, SetTool | ShowSettings):
            return spec is None or spec.pinned or self._offer.is_function(name)
        return False

    @part
    def _offer(self) -> FleetOffer:
        def home() -> object:
            from toolkiln.app.builtin import Builtin

            return Builtin(self)

        return FleetOffer(self._published, self._functions, lambda: self._now.grants, home)


def _text(code: bytes) -> str:
    try:
        return code.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"the code is not UTF-8: {error}") from None
