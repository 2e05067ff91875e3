"""What operators see and do: how a fleet stands, who is asked to leave, what was given up.

Looks and asks; it runs no calls. What a worker does when it is asked is `worker`'s business.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkiln.errors import InputError, nearest_hint
from toolkiln.fleet import checks, keys, wire
from toolkiln.fleet.announcements import announce
from toolkiln.fleet.crew import Crew
from toolkiln.fleet.deliveries import Ask, read_delivery
from toolkiln.fleet.steps import LONG_MS
from toolkiln.fleet.wire import Envelope, Malformed
from toolkiln.store import StoreError

if TYPE_CHECKING:
    from toolkiln.fleet.resp import Pipe

_AT_ONCE = 1000
_MOST_LETTERS = 10_000
_LETTERS_AT_ONCE = 100
"""Each may have some megabytes, if somebody made it who is no worker."""
_MOST_SAID = 10_000
_WORKER = (b"pool", b"state", b"running", b"slots", b"version", b"host", b"pid", b"started")
_REFUSED = (b"host", b"pool", b"at", b"why")
_SEE_LETTERS = "see `toolkiln fleet dead-letters list`"


@dataclass(frozen=True)
class WorkerState:
    """One worker, as it describes itself every few seconds."""

    name: str
    pool: str
    state: str
    """`running`, or `draining` when it takes no more calls."""
    running: int
    """Calls that it holds."""
    slots: int
    version: str
    host: str
    pid: int
    seconds: float
    """Since it started, by its machine's clock and Redis's."""


@dataclass(frozen=True)
class RefusedWorker:
    """A worker that did not start, as its keys are not those of the fleet."""

    host: str
    pool: str
    seconds: float
    """Since then."""
    why: str


@dataclass(frozen=True)
class PoolState:
    """The calls of one pool."""

    name: str
    waiting: int
    oldest: float
    """Seconds for which the first of them waits."""
    running: int
    """Calls that workers hold, those of workers that died among them."""
    dead: int
    """Dead letters."""


@dataclass(frozen=True)
class FleetState:
    """All of it, at one moment."""

    server: str
    version: str
    memory: int
    """Bytes that Redis uses."""
    tools: int
    warnings: tuple[str, ...]
    pools: tuple[PoolState, ...]
    workers: tuple[WorkerState, ...]
    refused: tuple[RefusedWorker, ...] = ()


@dataclass(frozen=True)
class DeadLetter:
    """A call that was given up."""

    id: str
    pool: str
    seconds: float
    """Since then."""
    tool: str
    """Empty if the call cannot be read."""
    call_id: str
    tries: int
    why: str


class Operator:
    """Somebody who looks after a fleet."""

    def __init__(self, pipe: "Pipe") -> None:
        self._pipe = pipe
        self._retry = pipe.script("retry")

    async def state(self) -> FleetState:
        """How the fleet stands.

        Raises:
            StoreError: Redis failed.
        """
        info = checks.read_info(await self._pipe.command("INFO"))
        workers = await self.workers()
        pools = await asyncio.gather(*(self._pool(name) for name in await self._pools(workers)))
        peopled = {worker.pool for worker in workers}
        name = self._pipe.address.name
        return FleetState(
            server=name,
            version=info.get("redis_version", ""),
            memory=int(info.get("used_memory", "0")),
            tools=await self._pipe.command("HLEN", keys.CATALOG_NAMES),
            warnings=checks.complaints(info, name),
            pools=tuple(
                pool
                for pool in pools
                if pool.name in peopled or pool.waiting or pool.running or pool.dead
            ),
            workers=workers,
            refused=await self._refused(),
        )

    async def workers(self) -> tuple[WorkerState, ...]:
        """The workers that are there, by pool and name.

        Raises:
            StoreError: Redis failed.
        """
        beginning = keys.worker("")
        names = {name.removeprefix(beginning) for name in await self._keys(f"{beginning}*")}
        now = await self._now_ms()
        said = await asyncio.gather(*(self._said(keys.worker(name), _WORKER) for name in names))
        workers = [_worker(name, about, now) for name, about in zip(names, said, strict=True)]
        return tuple(sorted(workers, key=lambda worker: (worker.pool, worker.name)))

    async def clear_catalog(self) -> int:
        """Forget what is published; workers publish again within a minute. How many tools it was.

        Raises:
            StoreError: Redis failed.
        """
        count: int = await self._pipe.command("HLEN", keys.CATALOG_NAMES)
        tables = await self._keys(keys.PUBLISHER_TABLES)
        listed = keys.CATALOG, keys.CATALOG_NAMES, keys.CATALOG_CHANGES, keys.PUBLISHERS
        await self._pipe.command("DEL", *listed, *tables)
        await announce(self._pipe, "config")
        return count

    async def _refused(self) -> tuple[RefusedWorker, ...]:
        now = await self._now_ms()
        found = []
        for key in sorted(await self._keys(keys.REFUSED_WORKERS)):
            said = await self._said(key, _REFUSED)
            found.append(
                RefusedWorker(
                    host=_text(said.get(b"host", b"")),
                    pool=_text(said.get(b"pool", b"")),
                    seconds=max(0.0, now / 1000 - _number(said, b"at")),
                    why=_text(said.get(b"why", b"")),
                )
            )
        return tuple(found)

    async def _said(self, key: str, fields: Sequence[bytes]) -> dict[bytes, bytes]:
        """What a process says of itself; nothing if somebody put something else there."""
        try:
            values = await self._pipe.command("HMGET", key, *fields)
        except StoreError as error:
            if "WRONGTYPE" not in error.message:
                raise
            return {}
        return {
            name: value[:_MOST_SAID]
            for name, value in zip(fields, values, strict=True)
            if value is not None
        }

    async def _keys(self, pattern: str) -> set[str]:
        names, cursor = set[str](), b""
        while cursor != b"0":
            scan = ("SCAN", cursor or "0", "MATCH", pattern, "COUNT", _AT_ONCE)
            cursor, found = await self._pipe.command(*scan)
            names |= {_text(key) for key in found}
        return names

    async def drain(self, *, worker: str = "", pool: str = "") -> tuple[WorkerState, ...]:
        """Ask one worker, or all of a pool, to end what runs and leave; who was asked.

        Raises:
            InputError: there is no such worker.
            StoreError: Redis failed.
        """
        there = await self.workers()
        asked = tuple(one for one in there if worker in ("", one.name) and pool in ("", one.pool))
        if not asked:
            what = f"worker {worker!r}" if worker else f"worker in the pool {pool!r}"
            hint = nearest_hint(worker, [one.name for one in there]) if worker else None
            raise InputError(f"there is no {what}", hint=hint or "see `toolkiln fleet status`")
        for name in sorted({one.pool for one in asked}):
            await Crew(self._pipe, name).ask(Ask("drain", worker))
        return asked

    async def reload(self) -> int:
        """Ask all workers to read their settings and tools again; how many there are.

        Raises:
            StoreError: Redis failed.
        """
        await announce(self._pipe, "config")
        return len(await self.workers())

    async def dead_letters(self, pool: str = "") -> list[DeadLetter]:
        """The calls that were given up, newest first; of all pools, unless one is named.

        Raises:
            StoreError: Redis failed.
        """
        pools = [pool] if pool else await self._pools(await self.workers())
        now = await self._now_ms()
        found = []
        for name in pools:
            before, letters = "+", list[DeadLetter]()
            while len(letters) < _MOST_LETTERS:
                read = ("XREVRANGE", keys.dead(name), before, "-", "COUNT", _LETTERS_AT_ONCE)
                entries = await self._pipe.command(*read)
                letters += [_letter(_text(one), name, _pairs(said), now) for one, said in entries]
                if len(entries) < _LETTERS_AT_ONCE:
                    break
                before = f"({letters[-1].id}"
            found += letters
        return sorted(found, key=lambda letter: letter.seconds)

    async def retry(self, letter: DeadLetter) -> None:
        """Put a call in once more, as if it had never begun.

        Its caller was told of the end and is not told again; under an id of the caller's own
        the result is remembered.

        Raises:
            InputError: it is gone, runs again already, or was not kept whole.
            StoreError: Redis failed.
        """
        stream = keys.dead(letter.pool)
        entries = await self._pipe.command("XRANGE", stream, letter.id, letter.id)
        if not entries:
            raise InputError(f"there is no dead letter {letter.id}", hint=_SEE_LETTERS)
        try:
            # As a worker reads it: somebody may have put in what names another's record.
            delivery = await read_delivery(self._pipe, letter.id, _pairs(entries[0][1]))
            if delivery.stored:
                raise Malformed("it is not kept whole")
            envelope = delivery.envelope
        except Malformed:
            raise InputError(
                f"the dead letter {letter.id} cannot be tried again: its call cannot be read",
                hint="a large call is not kept whole; have it made again, and drop this one",
            ) from None
        print_ = wire.fingerprint(envelope) if envelope.remember else ""
        records = [keys.calls(letter.pool), stream, keys.record(envelope.record)]
        done = await self._retry(records, [keys.GROUP, letter.id, print_, 2 * LONG_MS])
        if not done:
            raise InputError(
                f"the call of the dead letter {letter.id} is under way again",
                hint="wait until it has ended",
            )

    async def drop(self, letters: Sequence[DeadLetter]) -> int:
        """Forget dead letters; how many there were.

        Raises:
            StoreError: Redis failed.
        """
        dropped = 0
        for letter in letters:
            dropped += await self._pipe.command("XDEL", keys.dead(letter.pool), letter.id)
        return dropped

    async def _pools(self, workers: Sequence[WorkerState]) -> list[str]:
        known = {_text(name) for name in await self._pipe.command("SMEMBERS", keys.POOLS)}
        return sorted({"default", *known, *(worker.pool for worker in workers)})

    async def _pool(self, name: str) -> PoolState:
        (waiting, running), oldest, dead = await asyncio.gather(
            Crew(self._pipe, name).depth(),
            self._oldest(name),
            self._pipe.command("XLEN", keys.dead(name)),
        )
        return PoolState(name, waiting, oldest if waiting else 0.0, running, dead)

    async def _oldest(self, pool: str) -> float:
        return await Crew(self._pipe, pool).oldest(await self._now_ms())

    async def _now_ms(self) -> int:
        seconds, microseconds = await self._pipe.command("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000


def _worker(name: str, said: Mapping[bytes, bytes], now_ms: int) -> WorkerState:
    return WorkerState(
        name=name,
        pool=_text(said.get(b"pool", b"")),
        state=_text(said.get(b"state", b"")),
        running=_number(said, b"running"),
        slots=_number(said, b"slots"),
        version=_text(said.get(b"version", b"")),
        host=_text(said.get(b"host", b"")),
        pid=_number(said, b"pid"),
        seconds=max(0.0, now_ms / 1000 - _number(said, b"started")),
    )


def _letter(entry: str, pool: str, said: Mapping[bytes, bytes], now_ms: int) -> DeadLetter:
    envelope: Envelope | None
    try:
        envelope = wire.envelope_from_wire(said.get(b"call", b""))
    except Malformed:
        envelope = None
    return DeadLetter(
        id=entry,
        pool=pool,
        seconds=max(0, now_ms - _at_ms(entry)) / 1000,
        tool=envelope.tool if envelope else "",
        call_id=envelope.id if envelope else "",
        tries=_number(said, b"tries"),
        why=_text(said.get(b"why", b"")),
    )


def _pairs(flat: Sequence[Any]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _at_ms(entry: str) -> int:
    """When an entry was made, by Redis's clock."""
    return int(entry.partition("-")[0])


def _number(said: Mapping[bytes, bytes], name: bytes) -> int:
    """What an entry says, or 0: whatever somebody wrote there, it can be looked at."""
    text = said.get(name, b"")
    return int(text) if text.isdigit() and len(text) < 19 else 0


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
