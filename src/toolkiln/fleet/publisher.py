"""Publisher: a worker's tools in Redis, and announcements of changes to the whole fleet.

Documents (entries, files) are addressed by content and kept for a day after the last refresh, so
that a replaced version can still run. `publish.lua` decides which publisher's tool is served: of
two versions in one pool, the one published last. A publisher does not replace entries that it
cannot verify, because a worker with another key would hide all tools from their callers.
"""

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha1
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from toolkiln.errors import StoreError, ToolkilnError
from toolkiln.fleet import keys, published_tool
from toolkiln.fleet.message_auth import FleetKeys
from toolkiln.model.call import Grant
from toolkiln.model.catalog import ServedVersion, Snapshot
from toolkiln.security.live_settings import PERMISSIONS

if TYPE_CHECKING:
    from toolkiln.fleet.connection import RedisPipe
    from toolkiln.operations.services import Services

REFRESH_SECONDS = 60.0
"""How often a publisher must refresh; its tools are dropped after 300 s."""
_DOCUMENT_MS = 24 * 3600 * 1000
"""Milliseconds that documents are kept after the last refresh."""
_DOCUMENT_REFRESH_SECONDS = 3600.0
_BATCH = 500
_BATCH_BYTES = 4 << 20
_ATTEMPTS = 5

T = TypeVar("T")


class ForeignCatalog(StoreError):
    """The published catalog was written with other keys than this worker's."""


class Publisher:
    """One publisher's part of the catalog.

    The id must be the same after a restart (a machine and a folder, not a process), so that the
    previous tools are replaced. Processes with the same id must serve the same tools.
    """

    def __init__(self, pipe: "RedisPipe", key: FleetKeys, pool: str, publisher_id: str) -> None:
        self._pipe = pipe
        self._key = key
        self._pool = pool
        self._own = keys.publisher(pool, publisher_id)
        self._publish = pipe.script("publish")
        self._keep = pipe.script("keep")
        self._lock = asyncio.Lock()
        self._stamp = ""
        self._published: Mapping[str, str] = {}
        """Entry ids by name, as Redis has them under this stamp."""
        self._tools: dict[str, _Tool] = {}
        """The tools of the last publication."""
        self._permissions_blob = b""
        self._state: tuple[Snapshot, Mapping[str, Grant], Mapping[str, Any]] | None = None
        self._refreshed = -inf

    async def publish(
        self,
        snapshot: Snapshot,
        grants: Mapping[str, Grant],
        permissions: Mapping[str, Any],
    ) -> int:
        """Replace the publisher's tools; returns the number of the catalog.

        `grants` are by tool, for `snapshot.tools`; `permissions` are settings by name. Sends only
        changes.

        Raises:
            ForeignCatalog: it would replace entries that these keys cannot verify.
            StoreError: Redis failed; the previous tools stay published.
        """
        async with self._lock:
            self._state = snapshot, grants, permissions
            return await self._synchronise()

    async def refresh(self) -> int:
        """Confirm the tools, due every `REFRESH_SECONDS`; returns the number of the catalog.

        Publishes again if Redis has lost them.
        """
        async with self._lock:
            number = await self._script("refresh", self._stamp) if self._stamp else None
            if number is None:
                self._stamp = ""
            if number is None or self._is_refresh_due:
                number = await self._synchronise()
            return int(number)

    async def withdraw(self) -> None:
        """Remove the publisher's tools from the catalog."""
        async with self._lock:
            await self._script("withdraw")
            self._stamp, self._published = "", {}

    @property
    def _is_refresh_due(self) -> bool:
        return time.monotonic() >= self._refreshed + _DOCUMENT_REFRESH_SECONDS

    async def _synchronise(self) -> int:
        if self._state is None:
            return 0
        snapshot, grants, permissions = self._state
        self._tools = tools = await asyncio.to_thread(self._identify, snapshot, grants)
        packed_permissions = published_tool.write_permissions(self._key, permissions)
        for _ in range(_ATTEMPTS):
            if not self._stamp:
                await self._load()
            changed = [tool for tool in tools.values() if self._published.get(tool.name) != tool.id]
            replaced, permissions_hash = await self._verify(changed)
            rows = [part for t in changed for part in (t.name, t.id, replaced.get(t.name, ""))]
            rows += [
                part for name in self._published.keys() - tools.keys() for part in (name, "", "")
            ]
            await self._upload(changed)
            is_same = packed_permissions == self._permissions_blob
            new_permissions = b"" if is_same else packed_permissions
            stamps = self._stamp, secrets.token_hex(8)
            answer = await self._script(
                "publish", *stamps, new_permissions, permissions_hash, *rows
            )
            if answer is not None:
                self._stamp, self._permissions_blob = answer[1].decode(), packed_permissions
                self._published = {name: tool.id for name, tool in tools.items()}
                return int(answer[0])
            # Redis has lost the tools, or another process has published meanwhile.
            self._stamp, self._permissions_blob = "", b""
        raise StoreError(
            "other processes keep publishing under the id of this publisher",
            hint="make all processes of this tool folder serve the same tools",
        )

    async def _verify(self, changed: "Sequence[_Tool]") -> tuple[dict[str, str], str]:
        """Return the ids of entries to be replaced, and a hash of the permissions.

        Raises:
            ForeignCatalog: these keys cannot verify one of them.
        """
        replaced: dict[str, str] = {}
        prefix = self._own.rpartition(":")[0] + ":"  # other pools keep their names
        for batch in _batches(changed):
            values = await self._pipe.command("HMGET", keys.CATALOG_NAMES, *(t.name for t in batch))
            for tool, value in zip(batch, values, strict=True):
                served = _text(value or b"")
                if served[64:] == prefix and served[:64] != tool.id:
                    replaced[tool.name] = served[:64]
        for names in _batches(list(replaced)):
            blobs = await self._pipe.command(
                "MGET", *(keys.entry(replaced[name]) for name in names)
            )
            for name, blob in zip(names, blobs, strict=True):
                if blob is not None:  # not expired
                    self._refuse_foreign(published_tool.read_entry(self._key, name, blob), blob)
        permissions = await self._pipe.command("HGET", keys.CATALOG, "permissions")
        if permissions is None:
            return replaced, ""
        self._refuse_foreign(published_tool.read_permissions(self._key, permissions))
        return replaced, sha1(permissions, usedforsecurity=False).hexdigest()

    def _refuse_foreign(self, read: object, entry: bytes = b"") -> None:
        """Raise ForeignCatalog if a published document was written with other keys."""
        if read == published_tool.NOT_SEALED:
            problem, setting = "sealed with another fleet_key than this worker's", "fleet_key"
        elif read == published_tool.NOT_SIGNED:
            problem, setting = "not signed by a key in this worker's worker_keys", "worker_keys"
        elif self._key.signer is None and published_tool.is_signed(entry):
            problem, setting = "signed by its workers, but this worker has no key", "worker_key"
        else:
            return
        raise ForeignCatalog(
            f"the published catalog is {problem}",
            hint=f"give this worker the {setting} of the fleet's other workers; if those are gone "
            "permanently, `toolkiln fleet clear-catalog` lets new workers publish",
        )

    def _identify(self, snapshot: Snapshot, grants: Mapping[str, Grant]) -> "dict[str, _Tool]":
        tools: dict[str, _Tool] = {}
        for name in snapshot.tools:
            served, grant = snapshot.served[name], grants[name]
            tool = _Tool(name, served, grant, "")
            previous = self._tools.get(name)
            if previous is not None and previous.identity == tool.identity:
                tools[name] = previous
            else:
                tools[name] = tool._replace(id=published_tool.digest_of(self._entry(tool)))
        return tools

    def _entry(self, tool: "_Tool") -> bytes:
        spec = tool.served.read.tool(tool.name)
        return published_tool.write_entry(self._key, self._pool, tool.served, spec, tool.grant)

    async def _load(self) -> None:
        answer = await self._pipe.command("HGETALL", self._own)
        entries = dict(zip(answer[::2], answer[1::2], strict=True))
        self._stamp = entries.pop(b"", b"").decode()
        if not self._stamp:
            self._refreshed = -inf  # documents may be lost too
        self._published = {_text(name): _text(value[:64]) for name, value in entries.items()}

    async def _upload(self, changed: "Sequence[_Tool]") -> None:
        """Store the documents of changed tools; periodically those of all tools."""
        is_refresh = self._is_refresh_due
        for batch in _batches(list(self._tools.values()) if is_refresh else changed):
            documents = await asyncio.to_thread(self._documents, batch)
            for names in _batches(list(documents)):
                missing = await self._keep(names, [_DOCUMENT_MS])
                await self._set(
                    {names[index - 1]: documents[names[index - 1]]() for index in missing}
                )
            # Not addressed by content: the same version may have another grant.
            await self._set({keys.version(t.name, t.served.read.digest): t.id for t in batch})
        if is_refresh:
            self._refreshed = time.monotonic()

    def _documents(self, tools: "Sequence[_Tool]") -> dict[str, Callable[[], bytes]]:
        documents: dict[str, Callable[[], bytes]] = {}
        for tool in tools:
            documents[keys.entry(tool.id)] = partial(self._entry, tool)
            for data in tool.served.sources.values():
                documents[keys.source(published_tool.digest_of(data))] = partial(bytes, data)
        return documents

    async def _set(self, documents: Mapping[str, bytes | str]) -> None:
        commands, size = [], 0
        for key, data in documents.items():
            commands.append(self._pipe.command("SET", key, data, "PX", _DOCUMENT_MS))
            size += len(data)
            if size > _BATCH_BYTES:
                await asyncio.gather(*commands)
                commands, size = [], 0
        await asyncio.gather(*commands)

    async def _script(self, act: str, *arguments: str | bytes) -> Any:
        touched = keys.CATALOG, keys.CATALOG_NAMES, keys.CATALOG_CHANGES, keys.PUBLISHERS
        return await self._publish([*touched, keys.ANNOUNCEMENTS, self._own], [act, *arguments])


class _Tool(NamedTuple):
    """A tool to publish."""

    name: str
    served: ServedVersion
    grant: Grant
    id: str

    @property
    def identity(self) -> tuple[str, str, bool, bool, Grant]:
        """The values that its entry depends on."""
        served = self.served
        return served.read.digest, served.file, served.dev, served.is_reviewed, self.grant


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + _BATCH] for start in range(0, len(items), _BATCH))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


Announcement = Literal["catalog", "config"]
"""`catalog`: tools or permissions have changed. `config`: workers reload their settings."""


async def announce(pipe: "RedisPipe", kind: Announcement) -> None:
    """Notify every process of the fleet."""
    await pipe.command("XADD", keys.ANNOUNCEMENTS, "MAXLEN", "~", 100, "*", "kind", kind)


class Announcements:
    """Announcements since `begin`, on a connection of its own; missing one does no harm."""

    def __init__(self, pipe: "RedisPipe") -> None:
        self._pipe = pipe
        self._cursor: bytes | None = None

    async def begin(self) -> None:
        """Start listening; does nothing the second time."""
        if self._cursor is None:
            newest = await self._pipe.command("XREVRANGE", keys.ANNOUNCEMENTS, "+", "-", "COUNT", 1)
            self._cursor = newest[0][0] if newest else b"0-0"

    async def wait(self, seconds: float) -> set[str]:
        """Return the kinds announced since the last call; empty after a timeout."""
        await self.begin()
        assert self._cursor is not None
        block = ("BLOCK", round(seconds * 1000))
        found = await self._pipe.command(
            "XREAD", *block, "STREAMS", keys.ANNOUNCEMENTS, self._cursor, wait=seconds
        )
        if not found:
            return set()
        ((_, entries),) = found
        self._cursor = entries[-1][0]
        return {fields[1].decode("utf-8", "replace") for _, fields in entries if fields}


_PAUSE = 1.0
_RELOAD_SECONDS = 0.5
"""Seconds to wait until an announced settings file has been read again."""
_log = logging.getLogger(__name__)


class CatalogSync:
    """Keeps the published tools of one Kiln up to date."""

    def __init__(self, services: "Services", publisher: Publisher) -> None:
        self._services = services
        self._publisher = publisher
        self._is_scheduled = asyncio.Event()

    def schedule(self) -> None:
        """Publish changes soon."""
        self._is_scheduled.set()

    async def publish(self) -> int:
        """Publish the current tools; returns the number of the catalog."""
        snapshot, grants = await asyncio.to_thread(self._services.engine.published)
        return await self._publisher.publish(snapshot, grants, self._permissions())

    async def run(self, announcements: Announcements) -> None:
        """Publish after each change and refresh periodically, until cancelled."""
        unsubscribe = self._services.changes.listen(lambda _: self.schedule())
        announcements_task = asyncio.create_task(self._follow_announcements(announcements))
        due = time.monotonic() + REFRESH_SECONDS
        try:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._is_scheduled.wait(), due - time.monotonic())
                try:
                    if self._is_scheduled.is_set():
                        self._is_scheduled.clear()
                        await self.publish()
                    else:
                        await self._publisher.refresh()
                        due = time.monotonic() + REFRESH_SECONDS
                except ToolkilnError as error:
                    _log.warning("cannot publish the tools: %s", error.message)
                    await asyncio.sleep(_PAUSE)
                    self.schedule()
        finally:
            unsubscribe()
            announcements_task.cancel()
            await asyncio.gather(announcements_task, return_exceptions=True)

    async def _follow_announcements(self, announcements: Announcements) -> None:
        while True:
            try:
                kinds = await announcements.wait(REFRESH_SECONDS)
            except ToolkilnError:  # Redis may come back empty
                await asyncio.sleep(_PAUSE)
                self.schedule()
                continue
            if "config" in kinds:
                await asyncio.sleep(_RELOAD_SECONDS)
                self.schedule()

    def _permissions(self) -> dict[str, Any]:
        settings = self._services.security.live.current()
        return {name: getattr(settings, name) for name in PERMISSIONS}


def publisher_id(services: "Services") -> str:
    """Return the id that a Kiln publishes under: this machine, its folder, its functions.

    It is the same after a restart, and differs between programs with different functions.
    """
    folder = "" if services.path is None else str(services.path.absolute())
    functions = sorted(f"{spec.path}:{spec.name}" for spec in services.engine.functions())
    return "|".join((os.uname().nodename, folder, *functions))
