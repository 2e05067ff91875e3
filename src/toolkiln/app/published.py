"""The tools of a fleet, as a Kiln has them that runs none of them: specs without their code.

A thread of its own follows what workers publish, with an event loop and connections of its
own: programs without a loop, and loops that are busy, see the same tools as all others. What
was read last stays when Redis is gone.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from toolkiln.app.offer import Offer
from toolkiln.catalog import Change
from toolkiln.config import Settings
from toolkiln.errors import BackendError, ToolkilnError
from toolkiln.fleet import (
    FleetKeys,
    KeySettings,
    Listing,
    Pipe,
    Published,
    fleet_keys,
    read_address,
)
from toolkiln.model import Grant, Served, Sources, ToolSpec
from toolkiln.store import StoreError

if TYPE_CHECKING:
    from toolkiln.execution import Admitted

_PATIENCE = 15.0
"""Seconds for what the thread is asked."""
T = TypeVar("T")


class NoWorker(BackendError):
    """No worker has ever joined the fleet, so nothing is known of its tools."""

    code: ClassVar[str] = "no_worker"


def key_settings(settings: Settings) -> KeySettings:
    """Return the settings that a fleet's keys are read from."""
    return KeySettings(
        settings.fleet_key,
        settings.fleet_key_fallback,
        settings.worker_key,
        settings.worker_keys,
    )


class PublishedTools:
    """What a fleet serves; any thread may ask."""

    def __init__(self, url: str, key: KeySettings) -> None:
        """`key` is the fleet's as it is set; empty: Redis has it.

        Raises:
            StoreError: the URL cannot be read.
        """
        self.address = read_address(url)
        self._given_key = key
        self._starting = threading.Lock()
        self._following: _Following | None = None
        self._listeners: dict[object, Callable[[Listing], None]] = {}
        self.told: Listing | None = None
        """What those who watch know of; at first what was read first."""

    @property
    def snapshot(self) -> Listing:
        """What is served at this moment; the same object as long as nothing changes.

        Raises:
            StoreError: nothing could be read yet.
        """
        return self._started().published.snapshot

    @property
    def no_worker(self) -> NoWorker | None:
        """The error that answers for every tool while no worker has joined the fleet.

        Raises:
            StoreError: nothing could be read yet.
        """
        if self._started().published.exists:
            return None
        return NoWorker(
            f"no worker has joined the fleet at {self.address.name}",
            hint="start one where the tools are: `toolkiln worker --redis URL`",
        )

    @property
    def key(self) -> FleetKeys:
        """The key of the fleet.

        Raises:
            StoreError: it could not be read yet.
        """
        return self._started().key

    def listen(self, callback: Callable[[Listing], None]) -> Callable[[], None]:
        """Have a function called with each listing, in our thread; what is returned ends that."""
        token = object()
        self._listeners[token] = callback

        def forget() -> None:
            self._listeners.pop(token, None)

        return forget

    async def refresh(self) -> None:
        """Look at what is published at once.

        Raises:
            StoreError: Redis failed.
        """
        following = await asyncio.to_thread(self._started)
        await asyncio.wrap_future(following.ask(following.published.refresh()))

    def sources(self, name: str, digest: str) -> Sources:
        """The files of a version, to be run here.

        Raises:
            StoreError: they are not to be had.
        """
        following = self._started()
        try:
            served = following.ask(following.published.fetch(name, digest)).result(_PATIENCE)
        except TimeoutError:
            served = None
        if served is None:
            hint = "is a worker of its pool running?"
            raise StoreError(f"the files of {name} cannot be had", hint=hint)
        return served.sources

    def close(self) -> None:
        """Follow no longer."""
        with self._starting:
            following, self._following = self._following, None
        if following is not None:
            following.stop()

    def begin_in_child(self) -> None:
        """Start afresh in a forked process, which has neither the thread nor its connections."""
        self._inherited, self._following = self._following, None
        self._starting = threading.Lock()
        self._listeners = {}

    def _started(self) -> "_Following":
        following = self._following
        if following is None:
            with self._starting:
                following = self._following
                if following is None:
                    following = self._following = self._start()
                    self.told = self.told or following.published.snapshot
        return following

    def _start(self) -> "_Following":
        following = _Following(self.address, self._given_key, self._tell)
        try:
            following.ready.result(_PATIENCE)
        except BaseException as error:  # whatever it is, the thread must not go on
            following.stop()
            if isinstance(error, TimeoutError):
                raise StoreError(f"{self.address.name} does not answer") from None
            raise
        return following

    def _tell(self, listing: Listing) -> None:
        for listener in list(self._listeners.values()):
            listener(listing)


class _Following:
    """The thread that follows."""

    def __init__(self, address: Any, key: KeySettings, changed: Callable[[Listing], None]) -> None:
        self.ready: Future[None] = Future()
        self.published: Published
        self.key: FleetKeys
        self._address = address
        self._given_key = key
        self._changed = changed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="toolkiln-fleet", daemon=True)
        self._thread.start()

    def ask(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Have something done in the thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """End the thread."""
        with suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._follow())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    async def _follow(self) -> None:
        pipe, listening = Pipe(self._address), Pipe(self._address)
        try:
            try:
                await asyncio.gather(pipe.open(), listening.open())
                self.key = await fleet_keys(pipe, self._given_key)
                self.published = Published(pipe, self.key, self._changed)
                await self.published.refresh()
            except ToolkilnError as error:
                self.ready.set_exception(error)
                return
            self.ready.set_result(None)
            await self.published.follow(listening)
        finally:
            await asyncio.gather(pipe.close(), listening.close())


class FleetOffer(Offer):
    """The tools of a fleet beside functions of this process and Toolkiln's own."""

    def __init__(self, published: PublishedTools, *others: Any) -> None:
        super().__init__(None, *others)
        self._published = published

    @property
    def snapshot(self) -> Listing:
        """What the fleet serves.

        Raises:
            StoreError: nothing could be read yet.
        """
        return self._published.snapshot

    def grant(self, name: str) -> Grant:
        """What workers granted a tool of theirs, as they say."""
        return self.snapshot.served[name].grants.get(name, Grant())

    def _why_not(self, name: str) -> ToolkilnError:
        return self._published.no_worker or super()._why_not(name)

    def _admitted(self, spec: ToolSpec, served: Served) -> "Admitted":
        """A tool whose files come from the fleet, if it is to run here.

        What it may use on this machine, this machine's own settings grant and nothing else.
        """
        from toolkiln.execution import Admitted

        def sources() -> Sources:
            if not spec.pinned:
                raise StoreError(f"{spec.name} runs at a worker, and could not be sent there")
            return self._published.sources(spec.name, spec.digest)

        is_reviewed = served.is_reviewed
        grant = self._grant(spec.name, None) if is_reviewed else Grant()
        return Admitted(spec, sources, grant, dev=served.dev, is_reviewed=is_reviewed)


async def changes_of(published: PublishedTools) -> AsyncGenerator[Change, None]:
    """What changes in a fleet's catalog, since it was first read, as long as somebody asks."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()

    def tell(_: Listing) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(came.set)

    forget = published.listen(tell)
    try:
        found = await asyncio.to_thread(lambda: published.snapshot)
        while True:
            if published.told is not None and found is not published.told:
                known, published.told = published.told, found
                yield _change(known, found)
            await came.wait()
            came.clear()
            found = published.snapshot
    finally:
        forget()


def _change(before: Listing, after: Listing) -> Change:
    old = {name: entry.digest for name, entry in before.entries.items()}
    new = {name: entry.digest for name, entry in after.entries.items()}
    return Change(
        after,
        added=tuple(sorted(new.keys() - old.keys())),
        changed=tuple(sorted(n for n in new.keys() & old.keys() if new[n] != old[n])),
        removed=tuple(sorted(old.keys() - new.keys())),
    )
