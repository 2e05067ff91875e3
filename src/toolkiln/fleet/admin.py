"""Fleet administration: status, draining, reloading, dead letters."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from toolkiln.errors import InputError, StoreError, nearest_hint
from toolkiln.fleet import keys, wire
from toolkiln.fleet.address import read_address
from toolkiln.fleet.connection import RedisClock, RedisPipe, pairs, read_info, server_warnings
from toolkiln.fleet.delivery import ControlMessage, entry_order, read_delivery
from toolkiln.fleet.publisher import announce
from toolkiln.fleet.queue import PoolConsumers
from toolkiln.fleet.steps import LONG_MS
from toolkiln.fleet.supervisor import open_pipe
from toolkiln.fleet.wire import Envelope, Malformed
from toolkiln.model.system import DeadLetter, FleetReport, PoolStatus, RefusedWorker, WorkerStatus

_SCAN_COUNT = 1000
_MAX_LETTERS = 10_000
_LETTER_BATCH = 100
"""A letter that no worker wrote may have several megabytes."""
_MAX_FIELD = 10_000
_WORKER = (b"pool", b"state", b"running", b"slots", b"version", b"host", b"pid", b"started")
_REFUSED = (b"host", b"pool", b"at", b"why")
_LIST_HINT = "see `toolkiln fleet dead-letters list`"


class RedisFleetAdmin:
    """Administration of one fleet; implements `operations.services.FleetAdmin`."""

    def __init__(self, pipe: "RedisPipe") -> None:
        self._pipe = pipe
        self._clock = RedisClock(pipe)
        self._retry = pipe.script("retry")

    async def state(self) -> FleetReport:
        info = read_info(await self._pipe.command("INFO"))
        workers = await self.workers()
        pools = await asyncio.gather(*(self._pool(name) for name in await self._pools(workers)))
        staffed = {worker.pool for worker in workers}
        name = self._pipe.address.name
        return FleetReport(
            server=name,
            version=info.get("redis_version", ""),
            memory=int(info.get("used_memory", "0")),
            tools=await self._pipe.command("HLEN", keys.CATALOG_NAMES),
            warnings=server_warnings(info, name),
            pools=tuple(
                pool
                for pool in pools
                if pool.name in staffed or pool.waiting or pool.running or pool.dead
            ),
            workers=workers,
            refused=await self._refused(),
        )

    async def workers(self) -> tuple[WorkerStatus, ...]:
        """Return the live workers, by pool and name."""
        prefix = keys.worker("")
        names = {name.removeprefix(prefix) for name in await self._keys(f"{prefix}*")}
        now = await self._clock.now_ms()
        descriptions = await asyncio.gather(
            *(self._description(keys.worker(name), _WORKER) for name in names)
        )
        workers = [
            _worker(name, description, now)
            for name, description in zip(names, descriptions, strict=True)
        ]
        return tuple(sorted(workers, key=lambda worker: (worker.pool, worker.name)))

    async def clear_catalog(self) -> int:
        count: int = await self._pipe.command("HLEN", keys.CATALOG_NAMES)
        tables = await self._keys(keys.PUBLISHER_TABLES)
        catalog = keys.CATALOG, keys.CATALOG_NAMES, keys.CATALOG_CHANGES, keys.PUBLISHERS
        await self._pipe.command("DEL", *catalog, *tables)
        await announce(self._pipe, "config")
        return count

    async def _refused(self) -> tuple[RefusedWorker, ...]:
        now = await self._clock.now_ms()
        refused = []
        for key in sorted(await self._keys(keys.REFUSED_WORKERS)):
            description = await self._description(key, _REFUSED)
            refused.append(
                RefusedWorker(
                    host=_text(description.get(b"host", b"")),
                    pool=_text(description.get(b"pool", b"")),
                    seconds=max(0.0, now / 1000 - _number(description, b"at")),
                    why=_text(description.get(b"why", b"")),
                )
            )
        return tuple(refused)

    async def _description(self, key: str, fields: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the fields of a hash; empty if the key has another type."""
        try:
            values = await self._pipe.command("HMGET", key, *fields)
        except StoreError as error:
            if "WRONGTYPE" not in error.message:
                raise
            return {}
        return {
            name: value[:_MAX_FIELD]
            for name, value in zip(fields, values, strict=True)
            if value is not None
        }

    async def _keys(self, pattern: str) -> set[str]:
        names, cursor = set[str](), b""
        while cursor != b"0":
            scan = ("SCAN", cursor or "0", "MATCH", pattern, "COUNT", _SCAN_COUNT)
            cursor, found = await self._pipe.command(*scan)
            names |= {_text(key) for key in found}
        return names

    async def drain(self, *, worker: str = "", pool: str = "") -> tuple[WorkerStatus, ...]:
        live = await self.workers()
        selected = tuple(
            item for item in live if worker in ("", item.name) and pool in ("", item.pool)
        )
        if not selected:
            what = f"worker {worker!r}" if worker else f"worker in the pool {pool!r}"
            hint = nearest_hint(worker, [item.name for item in live]) if worker else None
            raise InputError(f"there is no {what}", hint=hint or "see `toolkiln fleet status`")
        for name in sorted({item.pool for item in selected}):
            await PoolConsumers(self._pipe, name).send_control(ControlMessage("drain", worker))
        return selected

    async def reload(self) -> int:
        await announce(self._pipe, "config")
        return len(await self.workers())

    async def dead_letters(self, pool: str = "") -> list[DeadLetter]:
        pools = [pool] if pool else await self._pools(await self.workers())
        now = await self._clock.now_ms()
        all_letters = []
        for name in pools:
            end, letters = "+", list[DeadLetter]()
            while len(letters) < _MAX_LETTERS:
                read = ("XREVRANGE", keys.dead(name), end, "-", "COUNT", _LETTER_BATCH)
                entries = await self._pipe.command(*read)
                letters += [
                    _letter(_text(entry), name, pairs(fields), now) for entry, fields in entries
                ]
                if len(entries) < _LETTER_BATCH:
                    break
                end = f"({letters[-1].id}"
            all_letters += letters
        return sorted(all_letters, key=lambda letter: letter.seconds)

    async def retry(self, letter: DeadLetter) -> None:
        stream = keys.dead(letter.pool)
        entries = await self._pipe.command("XRANGE", stream, letter.id, letter.id)
        if not entries:
            raise InputError(f"there is no dead letter {letter.id}", hint=_LIST_HINT)
        try:
            # Validate as a worker does: the entry may name the record of another call.
            delivery = await read_delivery(self._pipe, letter.id, pairs(entries[0][1]))
            if delivery.stored:
                raise Malformed("it is not stored completely")
            envelope = delivery.envelope
        except Malformed:
            raise InputError(
                f"the dead letter {letter.id} cannot be retried: its call cannot be read",
                hint="large calls are not stored completely; repeat the call and drop this letter",
            ) from None
        fingerprint = wire.fingerprint(envelope) if envelope.remember else ""
        touched = [keys.calls(letter.pool), stream, keys.record(envelope.record)]
        is_requeued = await self._retry(touched, [keys.GROUP, letter.id, fingerprint, 2 * LONG_MS])
        if not is_requeued:
            raise InputError(
                f"the call of the dead letter {letter.id} is running again",
                hint="wait until it has ended",
            )

    async def drop(self, letters: Sequence[DeadLetter]) -> int:
        dropped = 0
        for letter in letters:
            dropped += await self._pipe.command("XDEL", keys.dead(letter.pool), letter.id)
        return dropped

    async def _pools(self, workers: Sequence[WorkerStatus]) -> list[str]:
        names = {_text(name) for name in await self._pipe.command("SMEMBERS", keys.POOLS)}
        return sorted({"default", *names, *(worker.pool for worker in workers)})

    async def _pool(self, name: str) -> PoolStatus:
        consumers = PoolConsumers(self._pipe, name)
        (waiting, running), oldest, dead = await asyncio.gather(
            consumers.depth(),
            consumers.oldest(await self._clock.now_ms()),
            self._pipe.command("XLEN", keys.dead(name)),
        )
        return PoolStatus(
            name=name,
            waiting=waiting,
            oldest=oldest if waiting else 0.0,
            running=running,
            dead=dead,
        )


def _worker(name: str, fields: Mapping[bytes, bytes], now_ms: int) -> WorkerStatus:
    return WorkerStatus(
        name=name,
        pool=_text(fields.get(b"pool", b"")),
        state=_text(fields.get(b"state", b"")),
        running=_number(fields, b"running"),
        slots=_number(fields, b"slots"),
        version=_text(fields.get(b"version", b"")),
        host=_text(fields.get(b"host", b"")),
        pid=_number(fields, b"pid"),
        seconds=max(0.0, now_ms / 1000 - _number(fields, b"started")),
    )


def _letter(entry: str, pool: str, fields: Mapping[bytes, bytes], now_ms: int) -> DeadLetter:
    envelope: Envelope | None
    try:
        envelope = wire.envelope_from_wire(fields.get(b"call", b""))
    except Malformed:
        envelope = None
    return DeadLetter(
        id=entry,
        pool=pool,
        seconds=max(0, now_ms - entry_order(entry)[0]) / 1000,
        tool=envelope.tool if envelope else "",
        call_id=envelope.id if envelope else "",
        tries=_number(fields, b"tries"),
        why=_text(fields.get(b"why", b"")),
    )


def _number(fields: Mapping[bytes, bytes], name: bytes) -> int:
    """Return a number, or 0: other processes may have written anything."""
    text = fields.get(name, b"")
    return int(text) if text.isdigit() and len(text) < 19 else 0


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


@asynccontextmanager
async def open_fleet_admin(url: str) -> AsyncIterator[RedisFleetAdmin]:
    """Connect to the fleet at a Redis URL."""
    async with open_pipe(RedisPipe(read_address(url))) as pipe:
        yield RedisFleetAdmin(pipe)
