"""The catalog of the fleet as callers have it, and versions of tools for workers that lack one.

Nothing is decided here about who may run what; permissions travel through, sealed like the
rest. What is forged or damaged is left out, with a warning. `publisher` puts in what this
takes out, `entries` says how it is written down.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkiln.catalog import read_sources
from toolkiln.fleet import entries, keys
from toolkiln.fleet.announcements import Announcements
from toolkiln.fleet.entries import Entry, read_entry
from toolkiln.fleet.identity import FleetKeys
from toolkiln.model import Read, Served, Snapshot, Tools
from toolkiln.store import StoreError

if TYPE_CHECKING:
    from toolkiln.fleet.resp import Pipe

_LOOK_SECONDS = 15.0
"""How often a caller looks without having been told to."""
_WHOLE_SECONDS = 600.0
"""How often it looks at all names, whatever the numbers say."""
_AT_ONCE = 500
_NAMED = 5
_PAUSE = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listing(Snapshot):
    """What the fleet serves at one moment, as a snapshot without sources."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    permissions: Mapping[str, Any] | None = None
    """Settings by name, as the last worker that changed them has them; None: nobody has yet."""

    def pool(self, name: str) -> str:
        """Whose workers run a tool of it."""
        return self.entries[name].pool


class _Served(Mapping[str, Served]):
    """Tools by name, each unpacked when it is first asked for; without those that cannot be."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries

    def __getitem__(self, name: str) -> Served:
        content = self._entries[name].content
        if content is None:
            raise KeyError(name)
        return content.served

    def __iter__(self) -> Iterator[str]:
        return (name for name, entry in self._entries.items() if entry.content is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Published:
    """The catalog as a caller has it: what was last read, whatever becomes of Redis."""

    def __init__(
        self,
        pipe: "Pipe",
        key: FleetKeys,
        changed: Callable[[Listing], None] = lambda _: None,
    ) -> None:
        """`changed` is told of each listing that differs from the one before; must not raise."""
        self.snapshot = Listing(0)
        """The same object as long as nothing changes."""
        self._pipe = pipe
        self._key = key
        self._changed = changed
        self._read = pipe.script("catalog")
        self._reading = asyncio.Lock()
        self._at = b"", 0
        """Whose number the last one was, and which."""
        self._ids: dict[str, str] = {}
        self._known: dict[str, tuple[str, Entry | None]] = {}
        """Entries by name, with their ids; None: forged or damaged."""
        self._missed: dict[str, str] = {}
        """Names and ids of which it was said that there is nothing."""
        self._next_whole = 0.0

    @property
    def exists(self) -> bool:
        """Whether any worker has published to this Redis, as of the last look."""
        return self._at[1] > 0

    async def refresh(self) -> bool:
        """Read what has changed; whether anything has.

        Raises:
            StoreError: Redis failed; the snapshot stays as it is.
        """
        async with self._reading:
            epoch, known = self._at
            now = time.monotonic()
            is_whole = now >= self._next_whole
            # As arguments: the keys of a script have to be writable, and callers may only read.
            read = [keys.CATALOG, keys.CATALOG_NAMES, keys.CATALOG_CHANGES]
            epoch, number, is_all, permissions, pairs = await self._read(
                [], [*read, epoch, 0 if is_whole else known]
            )
            is_complete = len(self._known) == len(self._ids)
            if not (is_all or pairs or permissions) and is_complete:
                return False
            texts = [_text(part) for part in pairs]
            found = dict(zip(texts[::2], texts[1::2], strict=True))
            ids = found if is_all else self._ids | found
            self._ids = {name: entry_id for name, entry_id in ids.items() if entry_id}
            await self._fetch_entries()
            self._at = epoch, number  # not before all of it is here
            if is_whole:
                self._next_whole = now + _WHOLE_SECONDS
            return self._renew(permissions)

    async def _fetch_entries(self) -> None:
        """Have the entries of all names; those that are not there are looked for again later."""
        self._known = {n: known for n, known in self._known.items() if n in self._ids}
        wanted = [n for n, i in self._ids.items() if n not in self._known or self._known[n][0] != i]
        ignored: dict[str, list[str]] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            names = wanted[start : start + _AT_ONCE]
            blobs = await self._pipe.command("MGET", *(keys.entry(self._ids[n]) for n in names))
            for name, blob in zip(names, blobs, strict=True):
                entry_id, is_news = self._ids[name], self._missed.get(name) != self._ids[name]
                found = "gone from Redis" if blob is None else read_entry(self._key, name, blob)
                if isinstance(found, str):
                    if is_news:
                        ignored.setdefault(found, []).append(name)
                    self._missed[name] = entry_id
                if blob is None:
                    self._known.pop(name, None)
                else:
                    self._known[name] = entry_id, found if isinstance(found, Entry) else None
        for why, which in ignored.items():
            some = ", ".join(which[:_NAMED]) + (" …" if len(which) > _NAMED else "")
            _log.warning("published tools are ignored (%d: %s): %s", len(which), some, why)

    def _renew(self, permissions: bytes | None) -> bool:
        """Make a listing of what is known, if it is another than the last."""
        found = {name: entry for name, (_, entry) in self._known.items() if entry is not None}
        permitted = self.snapshot.permissions
        if permissions is not None:
            told = entries.read_permissions(self._key, permissions)
            if isinstance(told, str):
                _log.warning("the published permissions are ignored: %s", told)
            elif told != permitted:
                permitted = told
        if found == self.snapshot.entries and permitted is self.snapshot.permissions:
            return False
        served = _Served(found)
        self.snapshot = Listing(self._at[1], Tools(served), served, (), found, permitted)
        self._changed(self.snapshot)
        return True

    async def follow(self, listening: "Pipe") -> None:
        """Keep up with what is published, for ever; `listening` is a connection of its own."""
        news, is_lost = Announcements(listening), False
        while True:
            try:
                await news.begin()  # first, so that nothing falls between the two
                await self.refresh()
                await news.wait(_LOOK_SECONDS)
                is_lost = False
            except StoreError as error:
                if not is_lost:
                    _log.warning("the fleet's tools stay as they were: %s", error)
                is_lost = True
                await asyncio.sleep(_PAUSE)

    async def fetch(self, name: str, digest: str) -> Served | None:
        """As the function `fetch`."""
        return await fetch(self._pipe, self._key, name, digest)


async def fetch(pipe: "Pipe", key: FleetKeys, name: str, digest: str) -> Served | None:
    """A version of a tool to be run, with its sources, as its bytes say, and its grant.

    None, with a warning where there is something wrong, if no genuine one is to be had.

    Raises:
        StoreError: Redis failed.
    """
    entry_id = await pipe.command("GET", keys.version(name, digest))
    blob = entry_id and await pipe.command("GET", keys.entry(_text(entry_id)))
    entry = read_entry(key, name, blob) if blob else None
    if isinstance(entry, str):
        _log.warning("version %s of %r is ignored: %s", digest[:12], name, entry)
        return None
    content = entry.content if entry and entry.digest == digest else None
    if content is None or not content.files:  # a function, which runs where it is and nowhere else
        return None
    found = await pipe.command("MGET", *map(keys.source, content.files.values()))
    sources = dict(zip(content.files, found, strict=True))
    if None in found:
        return None
    served = content.served
    # The digest says what the bytes are; whoever wrote the spec may have read them otherwise.
    reading = await asyncio.to_thread(read_sources, sources, Path(served.file))
    if reading.digest != digest or name not in {spec.name for spec in reading.tools}:
        _log.warning("the files of %r at %s are damaged: not run", name, digest[:12])
        return None
    return replace(served, read=Read(reading, sources))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
