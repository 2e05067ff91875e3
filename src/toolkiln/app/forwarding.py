"""The way of calls to a fleet, for a Kiln in front of one.

What is sent says which tool in which version, with what, and for which session; all that is
decided about it is decided by a worker. Pinned tools, functions of this process and the tools
of Toolkiln that only read are not sent.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, get_args

from msgspec import Raw

from toolkiln.app.offer import BUILTIN_NAMES
from toolkiln.app.published import FleetOffer, PublishedTools
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.execution import Asking, Guard, careful, token_hash
from toolkiln.fleet import (
    Client,
    Envelope,
    Listing,
    Pipe,
    RedisRecords,
    check_server,
    pack,
)
from toolkiln.model import Call, Caller, Event, QuestionKind, Result, ToolSpec, unobserved
from toolkiln.store import PATIENCE, while_unreachable

_SENT_ALWAYS = "write_python_tool"
"""Of Toolkiln's own tools the one that changes the catalog, which workers have."""
_POOL = "default"
_OWN_SECONDS = 3600.0
"""How long workers know a session of this process's own after its last use."""
_SPARE = 3
"""It is told to them again when a third of that has passed."""
_LONGEST = 10**9
_KINDS: tuple[QuestionKind, ...] = get_args(QuestionKind)
_APPEARING, _PAUSE = 5.0, 0.05
"""Seconds within which a tool that was written is published, and between looks for it."""


class _Way(NamedTuple):
    """How something is sent."""

    digest: str | None
    pool: str
    is_repeatable: bool


class _Route(NamedTuple):
    """Where a tool runs."""

    spec: ToolSpec
    way: _Way


class _Sending(NamedTuple):
    """A call on its way, whichever that is."""

    call: Call
    caller: Caller
    arguments: Raw
    observe: Callable[[Event], None]
    asking: Asking | None = None


class Forwarding:
    """Sends calls to the workers of a fleet; `execution.Elsewhere`."""

    def __init__(
        self,
        offer: FleetOffer,
        published: PublishedTools,
        guard: Guard,
        book: Callable[[], RedisRecords],
        *,
        durable: bool,
    ) -> None:
        """`book` opens what lets a call be found by its caller's id. `durable`: `Client`."""
        self._offer = offer
        self._published = published
        self._guard = guard
        self._book = book
        self._durable = durable
        self._listing: Listing | None = None
        self._routes: dict[str, _Route] = {}
        self._client: Client | None = None
        self._opening, self._sharing = asyncio.Lock(), asyncio.Lock()
        self._shared: dict[str, float] = {}
        """Sessions of this process's own, with the time when workers have to be told again."""

    def spec(self, call: Call) -> ToolSpec | None:
        """The tool of a call that a worker runs; None: it runs here, or is refused here.

        Raises:
            StoreError: nothing is known of the fleet yet.
        """
        route = self._route(call.tool)
        if route is None or (call.digest is not None and call.digest != route.spec.digest):
            return None
        return route.spec

    async def call(
        self,
        call: Call,
        spec: ToolSpec,
        observe: Callable[[Event], None],
        asking: Asking | None,
    ) -> Result | None:
        """The end of a call at a worker; None if it cannot be sent for what it says."""
        token, running = call.session, call.depth > 0
        try:
            caller = self._guard.known_identity(token, running=running)
            if caller is None:
                caller = await while_unreachable(
                    lambda: self._guard.caller(token, running=running), _patience(call)
                )
            arguments = Raw(pack(call.arguments))
        except InputError:
            return None
        route = self._route(spec.name)
        if route is None:  # taken out while we looked the caller up
            return None
        sending = _Sending(call, caller, arguments, observe, asking)
        result = await self._known(sending, route.way)
        if result.error is not None and result.error.code == "stale" and call.digest is None:
            await self._published.refresh()
            newer = self._route(call.tool)
            if newer is not None and newer.way.digest != route.way.digest:
                return await self._known(sending, newer.way)
        if call.tool == _SENT_ALWAYS and isinstance(result.value, dict):
            await self._see(result.value)
        return result

    async def send(
        self,
        call: Call,
        pool: str,
        observe: Callable[[Event], None] = unobserved,
        *,
        is_repeatable: bool = False,
    ) -> Result:
        """The end of something that is no call of a tool, at a worker of a pool.

        Raises:
            NoSession: nobody has asked for it.
            InputError: what it says cannot be sent.
        """
        caller = await while_unreachable(lambda: self._guard.caller(call.session), _patience(call))
        sending = _Sending(call, caller, Raw(pack(call.arguments)), observe)
        return await self._known(sending, _Way(None, pool, is_repeatable))

    def pools(self) -> list[str]:
        """The pools that have published tools, the usual one first; that one if there is none."""
        found = {entry.pool for entry in self._published.snapshot.entries.values()} or {_POOL}
        return sorted(found, key=lambda pool: (pool != _POOL, pool))

    def pool_of(self, name: str) -> str | None:
        """Whose workers run a tool; None if nobody has published it."""
        entry = self._published.snapshot.entries.get(name)
        return entry.pool if entry is not None else None

    async def look_again(self) -> None:
        """See what workers have just published."""
        with suppress(ToolkilnError):  # it is heard of later
            await self._published.refresh()

    async def _see(self, written: Mapping[str, Any]) -> None:
        """Wait a little until tools that were written can be called from here."""
        names, digest = written.get("functions_registered") or (), written.get("digest")
        until = time.monotonic() + _APPEARING
        while time.monotonic() < until:
            with suppress(ToolkilnError):  # they appear when Redis does
                await self._published.refresh()
            entries = self._published.snapshot.entries
            if all(name in entries and entries[name].digest == digest for name in names):
                return
            await asyncio.sleep(_PAUSE)

    async def adopt(self, call: Call, caller: Caller) -> bool:
        """Let a call be found by its id that was sent without one of its caller's.

        Raises:
            StoreError: Redis failed.
        """
        if self._client is None or self.spec(call) is None:
            return False
        book = self._book()
        await asyncio.to_thread(book.note, caller, call)
        await self._client.remember(book.key(caller, call.id))
        return True

    def detach(self) -> None:
        """Let calls with ids of their callers' go on when this process is done with them."""
        if self._client is not None:
            self._client.detach()

    async def ready(self) -> None:
        """See that calls can be sent.

        Raises:
            StoreError: they cannot.
        """
        await (self._client or await self._opened()).check()

    async def close(self) -> None:
        """Let go of the fleet."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _known(self, sending: _Sending, way: _Way) -> Result:
        """Send a call. If Redis lost a session of this process, share it again and retry once."""
        call, token = sending.call, sending.call.session
        assert token is not None
        # Nothing is sent yet: all of this can wait for a Redis that is away.
        patience = _patience(call)
        client = self._client
        if client is None:
            client = await while_unreachable(self._opened, patience)
        if call.remember:
            note = partial(asyncio.to_thread, self._book().note, sending.caller, call)
            await while_unreachable(note, patience)
        if not self._guard.sessions.is_local(token):
            return await self._sent(client, sending, way)
        share = partial(self._share, token)
        shared_until = await while_unreachable(share, patience)
        result = await self._sent(client, sending, way)
        if result.error is None or result.error.code != "no_session":
            return result
        # Concurrent calls of one session fail together: the first shares it again, all retry.
        if self._shared.get(token) == shared_until:
            del self._shared[token]
        await while_unreachable(share, patience)
        return await self._sent(client, sending, way)

    async def _sent(self, client: Client, sending: _Sending, way: _Way) -> Result:
        call, caller, arguments, observe, asking = sending
        token = call.session
        assert token is not None
        timeout = None
        if call.timeout is not None and call.timeout < _LONGEST:
            timeout = max(1, round(call.timeout * 1000))
        is_watched = observe is not unobserved
        envelope = Envelope(
            id=call.id,
            record=self._book().key(caller, call.id),
            tool=call.tool,
            digest=way.digest,
            arguments=arguments,
            session=token_hash(token),
            surface=call.surface,
            timeout_ms=timeout,
            repeatable=way.is_repeatable,
            remember=call.remember,
            # With a deadline, to know when a person is asked, who may take longer than that.
            events=is_watched or timeout is not None,
            reply_to=client.reply_to,
            pool=way.pool,
            traceparent=_traceparent(),
            asks=None if asking is None else tuple(kind for kind in _KINDS if kind in asking.kinds),
        )
        watch = careful(observe, call.tool) if is_watched else None
        if asking is None:
            return await client.call(envelope, watch)
        with client.answers.given_by(envelope.record, asking.ask):
            return await client.call(envelope, watch)

    async def _share(self, token: str) -> float:
        """Write a session of this process to Redis for the workers; until when that is enough.

        Raises:
            StoreError: Redis failed.
        """
        until = self._shared.get(token, 0.0)
        if time.monotonic() < until:
            return until
        # Concurrent calls wait for it too: a worker would not know their caller.
        async with self._sharing:
            until = self._shared.get(token, 0.0)
            if time.monotonic() >= until:
                await asyncio.to_thread(self._guard.sessions.share, token, _OWN_SECONDS)
                until = self._shared[token] = time.monotonic() + _OWN_SECONDS / _SPARE
            return until

    async def _opened(self) -> Client:
        async with self._opening:
            if self._client is None:
                key = await asyncio.to_thread(lambda: self._published.key)
                book = await asyncio.to_thread(self._book)
                address = replace(self._published.address, namespace=book.namespace)
                pipe = Pipe(address)
                client = Client(pipe, Pipe(address), key, durable=self._durable)
                try:
                    await client.open()
                    await check_server(pipe)
                except ToolkilnError:
                    await client.close()
                    raise
                self._client = client
        return self._client

    def _route(self, name: str) -> _Route | None:
        listing = self._published.snapshot
        if listing is not self._listing:
            self._listing, self._routes = listing, {}
        route = self._routes.get(name)
        if route is None and (route := self._found(listing, name)) is not None:
            self._routes[name] = route
        return route

    def _found(self, listing: Listing, name: str) -> _Route | None:
        if name == _SENT_ALWAYS:
            way = _Way(None, self.pools()[0], is_repeatable=False)
            return _Route(self._offer.spec(name), way)
        if name in BUILTIN_NAMES or self._offer.is_function(name) or name not in listing.tools:
            return None
        spec = listing.tools[name]
        if spec.pinned:
            return None
        repeatable = bool(spec.hints.read_only or spec.hints.idempotent)
        return _Route(spec, _Way(spec.digest, listing.pool(name), repeatable))


def _patience(call: Call) -> float:
    """Return how many seconds a call waits for Redis before anything is sent."""
    return PATIENCE if call.timeout is None else min(call.timeout, PATIENCE)


def _traceparent() -> str | None:
    """Return the current span of OpenTelemetry for the envelope; None without one.

    The package is not imported for this: where there is a span, it was imported already.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
