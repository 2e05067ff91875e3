"""Remote catalog: the tools of a fleet as callers see them, and versions for workers.

Forged or damaged entries are left out with a warning. `publisher` writes what this reads,
`published_tool` defines the format. Nothing here decides who may call a tool.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from toolkiln.catalog.folder import read_sources
from toolkiln.catalog.registry import ToolRegistry
from toolkiln.config import Settings
from toolkiln.errors import BackendError, StoreError, ToolkilnError
from toolkiln.fleet import keys, published_tool
from toolkiln.fleet.address import Address, read_address
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.message_auth import FleetKeys, fleet_keys
from toolkiln.fleet.published_tool import PublishedTool, read_entry
from toolkiln.fleet.publisher import Announcements
from toolkiln.model.call import Grant
from toolkiln.model.catalog import (
    CatalogChange,
    FileVersion,
    ServedVersion,
    Snapshot,
    Sources,
    Tools,
)
from toolkiln.model.spec import ToolSpec

if TYPE_CHECKING:
    from toolkiln.model.tool import ResolvedTool

_REFRESH_SECONDS = 15.0
"""How often a caller refreshes without an announcement."""
_FULL_REFRESH_SECONDS = 600.0
"""How often it reads all names, even without a new catalog number."""
_BATCH = 500
_MAX_NAMED = 5
_PAUSE = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteSnapshot(Snapshot):
    """The tools that a fleet serves at one moment, without sources."""

    entries: Mapping[str, PublishedTool] = field(default_factory=dict)
    permissions: Mapping[str, Any] | None = None
    """Settings by name, from the last worker that changed them; None if none has."""

    def pool(self, name: str) -> str:
        """Return the pool of a tool."""
        return self.entries[name].pool


class _Served(Mapping[str, ServedVersion]):
    """Tools by name, unpacked on first use; unreadable ones are left out."""

    def __init__(self, entries: Mapping[str, PublishedTool]) -> None:
        self._entries = entries

    def __getitem__(self, name: str) -> ServedVersion:
        content = self._entries[name].content
        if content is None:
            raise KeyError(name)
        return content.served

    def __iter__(self) -> Iterator[str]:
        return (name for name, entry in self._entries.items() if entry.content is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class CatalogReader:
    """Reader of the published catalog; keeps the last snapshot when Redis fails."""

    def __init__(
        self,
        pipe: "RedisPipe",
        key: FleetKeys,
        changed: Callable[[RemoteSnapshot], None] = lambda _: None,
    ) -> None:
        """`changed` is called with each new snapshot; it must not raise."""
        self.snapshot = RemoteSnapshot(0)
        """The same object until something changes."""
        self._pipe = pipe
        self._key = key
        self._changed = changed
        self._read = pipe.script("catalog")
        self._reading = asyncio.Lock()
        self._position = b"", 0
        """Epoch and number of the last catalog read."""
        self._ids: dict[str, str] = {}
        self._entries: dict[str, tuple[str, PublishedTool | None]] = {}
        """Entries by name, with their ids; None if forged or damaged."""
        self._ignored: dict[str, str] = {}
        """Names and ids of entries that were already reported as ignored."""
        self._next_full = 0.0

    @property
    def exists(self) -> bool:
        """Whether any worker had published to this Redis at the last refresh."""
        return self._position[1] > 0

    async def refresh(self) -> bool:
        """Read changes; returns whether there were any."""
        async with self._reading:
            epoch, last_number = self._position
            now = time.monotonic()
            is_full = now >= self._next_full
            # As arguments: the keys of a script must be writable, and callers may only read.
            read = [keys.CATALOG, keys.CATALOG_NAMES, keys.CATALOG_CHANGES]
            epoch, number, is_all, permissions, pairs = await self._read(
                [], [*read, epoch, 0 if is_full else last_number]
            )
            is_complete = len(self._entries) == len(self._ids)
            if not (is_all or pairs or permissions) and is_complete:
                return False
            texts = [_text(part) for part in pairs]
            found = dict(zip(texts[::2], texts[1::2], strict=True))
            ids = found if is_all else self._ids | found
            self._ids = {name: entry_id for name, entry_id in ids.items() if entry_id}
            await self._fetch_entries()
            self._position = epoch, number  # only after all entries are read
            if is_full:
                self._next_full = now + _FULL_REFRESH_SECONDS
            return self._update_snapshot(permissions)

    async def _fetch_entries(self) -> None:
        """Fetch new entries; missing ones are retried with the next refresh."""
        self._entries = {n: entry for n, entry in self._entries.items() if n in self._ids}
        outdated = [
            n for n, i in self._ids.items() if n not in self._entries or self._entries[n][0] != i
        ]
        ignored: dict[str, list[str]] = {}
        for start in range(0, len(outdated), _BATCH):
            names = outdated[start : start + _BATCH]
            blobs = await self._pipe.command("MGET", *(keys.entry(self._ids[n]) for n in names))
            for name, blob in zip(names, blobs, strict=True):
                entry_id, is_new = self._ids[name], self._ignored.get(name) != self._ids[name]
                found = "missing from Redis" if blob is None else read_entry(self._key, name, blob)
                if isinstance(found, str):
                    if is_new:
                        ignored.setdefault(found, []).append(name)
                    self._ignored[name] = entry_id
                if blob is None:
                    self._entries.pop(name, None)
                else:
                    self._entries[name] = (
                        entry_id,
                        found if isinstance(found, PublishedTool) else None,
                    )
        for why, tools in ignored.items():
            some = ", ".join(tools[:_MAX_NAMED]) + (" …" if len(tools) > _MAX_NAMED else "")
            _log.warning("ignoring %d published tools (%s): %s", len(tools), some, why)

    def _update_snapshot(self, permissions: bytes | None) -> bool:
        found = {name: entry for name, (_, entry) in self._entries.items() if entry is not None}
        current = self.snapshot.permissions
        if permissions is not None:
            answer = published_tool.read_permissions(self._key, permissions)
            if isinstance(answer, str):
                _log.warning("ignoring the published permissions: %s", answer)
            elif answer != current:
                current = answer
        if found == self.snapshot.entries and current is self.snapshot.permissions:
            return False
        served = _Served(found)
        self.snapshot = RemoteSnapshot(self._position[1], Tools(served), served, (), found, current)
        self._changed(self.snapshot)
        return True

    async def follow(self, listening: "RedisPipe") -> None:
        """Follow changes until cancelled; `listening` is a separate connection."""
        announcements, is_lost = Announcements(listening), False
        while True:
            try:
                await announcements.begin()  # first, so that no announcement is missed
                await self.refresh()
                await announcements.wait(_REFRESH_SECONDS)
                is_lost = False
            except StoreError as error:
                if not is_lost:
                    _log.warning("cannot refresh the fleet's tools: %s", error)
                is_lost = True
                await asyncio.sleep(_PAUSE)


async def fetch(pipe: "RedisPipe", key: FleetKeys, name: str, digest: str) -> ServedVersion | None:
    """Fetch a version of a tool with its sources and grant, to run it.

    None, with a warning if it is damaged or forged, if it is unavailable.
    """
    entry_id = await pipe.command("GET", keys.version(name, digest))
    blob = entry_id and await pipe.command("GET", keys.entry(_text(entry_id)))
    entry = read_entry(key, name, blob) if blob else None
    if isinstance(entry, str):
        _log.warning("ignoring version %s of %r: %s", digest[:12], name, entry)
        return None
    content = entry.content if entry and entry.digest == digest else None
    if content is None or not content.files:  # a function, which runs only in its own process
        return None
    found = await pipe.command("MGET", *map(keys.source, content.files.values()))
    sources = dict(zip(content.files, found, strict=True))
    if None in found:
        return None
    served = content.served
    # The digest covers the bytes, not the spec: read them again.
    reading = await asyncio.to_thread(read_sources, sources, Path(served.file))
    if reading.digest != digest or name not in {spec.name for spec in reading.tools}:
        _log.warning("the files of %r at %s are damaged", name, digest[:12])
        return None
    return replace(served, read=FileVersion(reading, sources))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


_THREAD_SECONDS = 15.0
"""Seconds to wait for the background thread."""
T = TypeVar("T")


class NoWorker(BackendError):
    """No worker has ever joined the fleet, so its tools are unknown."""

    code: ClassVar[str] = "no_worker"


class RemoteCatalog:
    """Catalog of a fleet, for any thread; a background thread follows changes."""

    def __init__(self, settings: Settings) -> None:
        """Parse the URL in `redis`; the thread starts on first use."""
        self.address = read_address(settings.redis)
        self._settings = settings
        self._start_lock = threading.Lock()
        self._thread: _CatalogThread | None = None
        self._listeners: dict[object, Callable[[RemoteSnapshot], None]] = {}
        self.reported: RemoteSnapshot | None = None
        """The last snapshot that `catalog_changes` reported; at first the first one read."""

    @property
    def snapshot(self) -> RemoteSnapshot:
        """The current tools; the same object until something changes.

        Raises:
            StoreError: the catalog could not be read yet.
        """
        return self._running_thread().reader.snapshot

    @property
    def no_worker(self) -> NoWorker | None:
        """The error for every tool while no worker has joined the fleet."""
        if self._running_thread().reader.exists:
            return None
        return NoWorker(
            f"no worker has joined the fleet at {self.address.name}",
            hint="start one on a machine with the tools: `toolkiln worker --redis URL`",
        )

    @property
    def key(self) -> FleetKeys:
        """The keys of the fleet."""
        return self._running_thread().key

    def listen(self, callback: Callable[[RemoteSnapshot], None]) -> Callable[[], None]:
        """Subscribe to snapshots, called in the background thread; returns the unsubscriber."""
        token = object()
        self._listeners[token] = callback

        def unsubscribe() -> None:
            self._listeners.pop(token, None)

        return unsubscribe

    async def refresh(self) -> None:
        """Read changes now."""
        thread = await asyncio.to_thread(self._running_thread)
        await asyncio.wrap_future(thread.submit(thread.reader.refresh()))

    def sources(self, name: str, digest: str) -> Sources:
        """Return the files of a version, to run it here."""
        thread = self._running_thread()
        try:
            served = thread.submit(fetch(thread.pipe, thread.key, name, digest)).result(
                _THREAD_SECONDS
            )
        except TimeoutError:
            served = None
        if served is None:
            hint = "is a worker of its pool running?"
            raise StoreError(f"the files of {name} are unavailable", hint=hint)
        return served.sources

    def close(self) -> None:
        """Stop the background thread."""
        with self._start_lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()

    def reset_after_fork(self) -> None:
        """Start anew in a forked process, which has neither the thread nor its connections."""
        self._inherited, self._thread = self._thread, None
        self._start_lock = threading.Lock()
        self._listeners = {}

    def _running_thread(self) -> "_CatalogThread":
        thread = self._thread
        if thread is None:
            with self._start_lock:
                thread = self._thread
                if thread is None:
                    thread = self._thread = self._start()
                    self.reported = self.reported or thread.reader.snapshot
        return thread

    def _start(self) -> "_CatalogThread":
        thread = _CatalogThread(self.address, self._settings, self._notify)
        try:
            thread.ready.result(_THREAD_SECONDS)
        except BaseException as error:  # the thread must not leak
            thread.stop()
            if isinstance(error, TimeoutError):
                raise StoreError(f"{self.address.name} does not respond") from None
            raise
        return thread

    def _notify(self, snapshot: RemoteSnapshot) -> None:
        for listener in list(self._listeners.values()):
            listener(snapshot)


class _CatalogThread:
    """Background thread with an event loop that follows the catalog."""

    def __init__(
        self, address: Address, settings: Settings, changed: Callable[[RemoteSnapshot], None]
    ) -> None:
        self.ready: Future[None] = Future()
        self.reader: CatalogReader
        self.key: FleetKeys
        self.pipe = RedisPipe(address)
        self._address = address
        self._settings = settings
        self._changed = changed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="toolkiln-fleet", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """End the thread."""
        with suppress(RuntimeError):  # the loop is closed
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
        pipe, listening = self.pipe, RedisPipe(self._address)
        try:
            try:
                await asyncio.gather(pipe.open(), listening.open())
                self.key = await fleet_keys(pipe, self._settings)
                self.reader = CatalogReader(pipe, self.key, self._changed)
                await self.reader.refresh()
            except ToolkilnError as error:
                self.ready.set_exception(error)
                return
            self.ready.set_result(None)
            await self.reader.follow(listening)
        finally:
            await asyncio.gather(pipe.close(), listening.close())


class RemoteToolRegistry(ToolRegistry):
    """Registry of a fleet's tools, functions of this process and built-in tools."""

    def __init__(self, catalog: RemoteCatalog, *arguments: Any) -> None:
        super().__init__(None, *arguments)
        self._remote = catalog

    @property
    def snapshot(self) -> RemoteSnapshot:
        """The tools that the fleet serves."""
        return self._remote.snapshot

    def grant(self, name: str) -> Grant:
        """Return the grant that workers publish for a tool."""
        return self.snapshot.served[name].grants.get(name, Grant())

    def _not_served(self, name: str) -> ToolkilnError:
        return self._remote.no_worker or super()._not_served(name)

    def _admitted(self, spec: ToolSpec, served: ServedVersion) -> "ResolvedTool":
        """Return a tool whose files come from the fleet if it runs here.

        Only this machine's settings grant it permissions on this machine.
        """
        from toolkiln.model.tool import ResolvedTool

        def sources() -> Sources:
            if not spec.pinned:
                raise StoreError(f"{spec.name} runs on workers only, and could not be sent to one")
            return self._remote.sources(spec.name, spec.digest)

        is_reviewed = served.is_reviewed
        grant = self._grant(spec.name, None) if is_reviewed else Grant()
        return ResolvedTool(spec, sources, grant, dev=served.dev, is_reviewed=is_reviewed)


async def catalog_changes(catalog: RemoteCatalog) -> AsyncGenerator[CatalogChange, None]:
    """Yield the changes of a fleet's catalog since it was first read."""
    loop = asyncio.get_running_loop()
    changed_event = asyncio.Event()

    def notify(_: RemoteSnapshot) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(changed_event.set)

    unsubscribe = catalog.listen(notify)
    try:
        found = await asyncio.to_thread(lambda: catalog.snapshot)
        while True:
            if catalog.reported is not None and found is not catalog.reported:
                previous, catalog.reported = catalog.reported, found
                yield _change(previous, found)
            await changed_event.wait()
            changed_event.clear()
            found = catalog.snapshot
    finally:
        unsubscribe()


def _change(before: RemoteSnapshot, after: RemoteSnapshot) -> CatalogChange:
    old = {name: entry.digest for name, entry in before.entries.items()}
    new = {name: entry.digest for name, entry in after.entries.items()}
    return CatalogChange(
        after,
        added=tuple(sorted(new.keys() - old.keys())),
        changed=tuple(sorted(n for n in new.keys() & old.keys() if new[n] != old[n])),
        removed=tuple(sorted(old.keys() - new.keys())),
    )
