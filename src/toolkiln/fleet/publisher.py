"""A worker's side of the catalog: what it serves, put where callers and other workers find it.

Documents (entries, files) are named by their content and kept for a day after somebody
last vouched for them, so that a version which was replaced can still be run. Which of
several publishers' tools is served is decided by `publish.lua`: the tools of one stay when
another's change, and of two versions in one pool the one that was published last counts.
What this publisher cannot verify it does not replace: a worker with another key would take
the tools of all others away from their callers. The callers' side is `catalog`.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha1
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from toolkiln.fleet import entries, keys
from toolkiln.fleet.identity import FleetKeys
from toolkiln.model import Grant, Served, Snapshot
from toolkiln.store import StoreError

if TYPE_CHECKING:
    from toolkiln.fleet.resp import Pipe

REFRESH_SECONDS = 60.0
"""How often a publisher has to say that it is there: after 300 s its pool goes on without."""
_KEPT = 24 * 3600 * 1000
"""Milliseconds that documents are kept after somebody vouched for them."""
_VOUCH_SECONDS = 3600.0
_AT_ONCE = 500
_BYTES_AT_ONCE = 4 << 20
_TRIES = 5

T = TypeVar("T")


class ForeignCatalog(StoreError):
    """The published catalog was written with other keys than this worker's."""


class Publisher:
    """One publisher's part of the catalog.

    Its id is to be the same after a restart (a machine and a folder, not a process), so
    that what it had before is replaced. Processes that share one must serve the same.
    """

    def __init__(self, pipe: "Pipe", key: FleetKeys, pool: str, publisher_id: str) -> None:
        self._pipe = pipe
        self._key = key
        self._pool = pool
        self._own = keys.publisher(pool, publisher_id)
        self._publish = pipe.script("publish")
        self._keep = pipe.script("keep")
        self._publishing = asyncio.Lock()
        self._stamp = ""
        self._had: Mapping[str, str] = {}
        """Ids of entries by name, as Redis has them under this stamp."""
        self._tools: dict[str, _Tool] = {}
        """What the last publication was about."""
        self._permitted = b""
        self._state: tuple[Snapshot, Mapping[str, Grant], Mapping[str, Any]] | None = None
        self._vouched = -inf

    async def publish(
        self,
        snapshot: Snapshot,
        grants: Mapping[str, Grant],
        permissions: Mapping[str, Any],
    ) -> int:
        """Let the fleet have these tools of ours and no others; the number of the catalog.

        `grants` by tool, those of `snapshot.tools`; `permissions` are settings by name.
        Sends what has changed since the last time.

        Raises:
            ForeignCatalog: it would replace something that these keys cannot verify.
            StoreError: Redis failed; what was published before stays.
        """
        async with self._publishing:
            self._state = snapshot, grants, permissions
            return await self._bring_up()

    async def refresh(self) -> int:
        """Say that we are still there; due every `REFRESH_SECONDS`. The number of the catalog.

        If Redis has lost what was published, it is published again.

        Raises:
            StoreError: Redis failed.
        """
        async with self._publishing:
            number = await self._script("refresh", self._stamp) if self._stamp else None
            if number is None:
                self._stamp = ""
            if number is None or self._is_due:
                number = await self._bring_up()
            return int(number)

    async def withdraw(self) -> None:
        """Take our tools out of the catalog: this publisher is gone for good.

        Raises:
            StoreError: Redis failed.
        """
        async with self._publishing:
            await self._script("withdraw")
            self._stamp, self._had = "", {}

    @property
    def _is_due(self) -> bool:
        """Whether somebody has to vouch for the documents again."""
        return time.monotonic() >= self._vouched + _VOUCH_SECONDS

    async def _bring_up(self) -> int:
        """Make Redis have what we want it to."""
        if self._state is None:
            return 0
        snapshot, grants, permissions = self._state
        self._tools = tools = await asyncio.to_thread(self._identified, snapshot, grants)
        permitted = entries.write_permissions(self._key, permissions)
        for _ in range(_TRIES):
            if not self._stamp:
                await self._load()
            changed = [tool for tool in tools.values() if self._had.get(tool.name) != tool.id]
            seen, seen_permissions = await self._verified(changed)
            rows = [part for t in changed for part in (t.name, t.id, seen.get(t.name, ""))]
            rows += [part for name in self._had.keys() - tools.keys() for part in (name, "", "")]
            await self._deliver(changed)
            news = permitted if permitted != self._permitted else b""
            stamps = self._stamp, secrets.token_hex(8)
            told = await self._script("publish", *stamps, news, seen_permissions, *rows)
            if told is not None:
                self._stamp, self._permitted = told[1].decode(), permitted
                self._had = {name: tool.id for name, tool in tools.items()}
                return int(told[0])
            # Redis has lost it, or another process has published meanwhile.
            self._stamp, self._permitted = "", b""
        raise StoreError(
            "others publish in the name of this publisher all the time",
            hint="give each folder of tools a publisher of its own",
        )

    async def _verified(self, changed: "Sequence[_Tool]") -> tuple[dict[str, str], str]:
        """Return the ids of entries that publishing would replace, and a hash of the permissions.

        Raises:
            ForeignCatalog: this publisher's keys cannot verify one of them.
        """
        seen: dict[str, str] = {}
        beginning = self._own.rpartition(":")[0] + ":"  # other pools keep the names that they have
        for some in _batches(changed):
            found = await self._pipe.command("HMGET", keys.CATALOG_NAMES, *(t.name for t in some))
            for tool, value in zip(some, found, strict=True):
                served = _text(value or b"")
                if served[64:] == beginning and served[:64] != tool.id:
                    seen[tool.name] = served[:64]
        for names in _batches(list(seen)):
            blobs = await self._pipe.command("MGET", *(keys.entry(seen[name]) for name in names))
            for name, blob in zip(names, blobs, strict=True):
                if blob is not None:  # else it has expired
                    self._refuse_foreign(entries.read_entry(self._key, name, blob), blob)
        permissions = await self._pipe.command("HGET", keys.CATALOG, "permissions")
        if permissions is None:
            return seen, ""
        self._refuse_foreign(entries.read_permissions(self._key, permissions))
        return seen, sha1(permissions, usedforsecurity=False).hexdigest()

    def _refuse_foreign(self, read: object, entry: bytes = b"") -> None:
        """Raise ForeignCatalog if something published was written with other keys."""
        if read == entries.NOT_SEALED:
            problem, setting = "sealed with another fleet_key than this worker's", "fleet_key"
        elif read == entries.NOT_SIGNED:
            problem, setting = "not signed by a key in this worker's worker_keys", "worker_keys"
        elif self._key.signer is None and entries.is_signed(entry):
            problem, setting = "signed by its workers, and this worker has no key", "worker_key"
        else:
            return
        raise ForeignCatalog(
            f"the published catalog is {problem}",
            hint=f"give this worker the {setting} of the fleet's other workers; if those are gone "
            "for good, `toolkiln fleet clear-catalog` lets new workers publish",
        )

    def _identified(self, snapshot: Snapshot, grants: Mapping[str, Grant]) -> "dict[str, _Tool]":
        found: dict[str, _Tool] = {}
        for name in snapshot.tools:
            served, grant = snapshot.served[name], grants[name]
            tool = _Tool(name, served, grant, "")
            known = self._tools.get(name)
            is_same = known and known.about == tool.about
            found[name] = tool._replace(id=known.id if known and is_same else self._entry(tool).id)
        return found

    def _entry(self, tool: "_Tool") -> entries.Document:
        spec = tool.served.read.tool(tool.name)
        return entries.write_entry(self._key, self._pool, tool.served, spec, tool.grant)

    def _data(self, tool: "_Tool") -> bytes:
        return self._entry(tool).data

    async def _load(self) -> None:
        """Learn what Redis has of ours."""
        found = await self._pipe.command("HGETALL", self._own)
        own = dict(zip(found[::2], found[1::2], strict=True))
        self._stamp = own.pop(b"", b"").decode()
        if not self._stamp:
            self._vouched = -inf  # documents may be lost as well
        self._had = {_text(name): _text(value[:64]) for name, value in own.items()}

    async def _deliver(self, changed: "Sequence[_Tool]") -> None:
        """See that the documents of some tools are in Redis; from time to time of all."""
        is_due = self._is_due
        for some in _batches(list(self._tools.values()) if is_due else changed):
            documents = await asyncio.to_thread(self._documents, some)
            for names in _batches(list(documents)):
                missing = await self._keep(names, [_KEPT])
                await self._set({names[at - 1]: documents[names[at - 1]]() for at in missing})
            # Not named by their content: the same version may have another grant.
            await self._set({keys.version(t.name, t.served.read.digest): t.id for t in some})
        if is_due:
            self._vouched = time.monotonic()

    def _documents(self, tools: "Sequence[_Tool]") -> dict[str, Callable[[], bytes]]:
        found: dict[str, Callable[[], bytes]] = {}
        for tool in tools:
            found[keys.entry(tool.id)] = partial(self._data, tool)
            for data in tool.served.sources.values():
                found[keys.source(entries.digest_of(data))] = partial(bytes, data)
        return found

    async def _set(self, documents: Mapping[str, bytes | str]) -> None:
        sending, size = [], 0
        for key, data in documents.items():
            sending.append(self._pipe.command("SET", key, data, "PX", _KEPT))
            size += len(data)
            if size > _BYTES_AT_ONCE:
                await asyncio.gather(*sending)
                sending, size = [], 0
        await asyncio.gather(*sending)

    async def _script(self, act: str, *arguments: str | bytes) -> Any:
        touched = keys.CATALOG, keys.CATALOG_NAMES, keys.CATALOG_CHANGES, keys.PUBLISHERS
        return await self._publish([*touched, keys.ANNOUNCEMENTS, self._own], [act, *arguments])


class _Tool(NamedTuple):
    """A tool to be published."""

    name: str
    served: Served
    grant: Grant
    id: str

    @property
    def about(self) -> tuple[str, str, bool, bool, Grant]:
        """What its entry depends on."""
        served = self.served
        return served.read.digest, served.file, served.dev, served.is_reviewed, self.grant


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
