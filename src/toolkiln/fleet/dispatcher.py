"""Dispatcher of a front: sends calls to the workers of a fleet.

An envelope names the tool, its version, the arguments and the session; a worker decides everything
else. Pinned tools, functions of this process and read-only built-in tools run here.
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

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.execution.call_events import CallEvents, EventCallback, RunningCall
from toolkiln.execution.questions import QuestionChannel
from toolkiln.fleet.call_store import RedisCallStore
from toolkiln.fleet.client import FleetClient
from toolkiln.fleet.connection import RedisPipe, check_server
from toolkiln.fleet.remote_catalog import RemoteCatalog, RemoteSnapshot, RemoteToolRegistry
from toolkiln.fleet.wire import NO_REQUEST, Envelope, Observe, pack
from toolkiln.model.call import Call, Result
from toolkiln.model.identity import Caller
from toolkiln.model.question import QuestionKind
from toolkiln.model.spec import BUILTIN_NAMES, ToolSpec
from toolkiln.security.guard import Guard
from toolkiln.security.sessions import token_hash
from toolkiln.store.rules import REDIS_WAIT_SECONDS, retry_while_unreachable

_WRITE_TOOL = "write_python_tool"
"""The built-in tool that changes the catalog, which only workers can."""
_DEFAULT_POOL = "default"
_SHARED_SECONDS = 3600.0
"""How long a session of this process stays in Redis after its last use."""
_SHARE_AGAIN_SECONDS = _SHARED_SECONDS / 3
_MAX_TIMEOUT = 10**9
_KINDS: tuple[QuestionKind, ...] = get_args(QuestionKind)
_PUBLISH_SECONDS, _PAUSE = 5.0, 0.05
"""How long to wait for a written tool to be published, and the polling interval."""


class _Target(NamedTuple):
    """The version and pool that a call is sent to."""

    digest: str | None
    pool: str
    is_repeatable: bool


class _Route(NamedTuple):
    """A tool and where it runs."""

    spec: ToolSpec
    target: _Target


class _Outgoing(NamedTuple):
    """A call to send."""

    call: Call
    caller: Caller
    arguments: Raw
    observe: Observe | None
    channel: QuestionChannel | None = None
    request: Raw = NO_REQUEST


class FleetDispatcher:
    """Sends calls to the workers of a fleet; implements `execution.Dispatcher`."""

    def __init__(
        self,
        registry: RemoteToolRegistry,
        catalog: RemoteCatalog,
        guard: Guard,
        call_store: Callable[[], RedisCallStore],
        *,
        durable: bool,
    ) -> None:
        """`call_store` opens the store of calls by id; `durable` as in `FleetClient`."""
        self._registry = registry
        self._catalog = catalog
        self._guard = guard
        self._call_store = call_store
        self._durable = durable
        self._snapshot: RemoteSnapshot | None = None
        self._routes: dict[str, _Route] = {}
        self._client: FleetClient | None = None
        self._open_lock, self._share_lock = asyncio.Lock(), asyncio.Lock()
        self._shared: dict[str, float] = {}
        """Shared sessions of this process, with the time when to share them again."""

    def spec(self, call: Call) -> ToolSpec | None:
        """Return the tool of a call that a worker runs; None if this process runs or refuses it."""
        route = self._route(call.tool)
        if route is None or (call.digest is not None and call.digest != route.spec.digest):
            return None
        return route.spec

    async def call(
        self,
        running: RunningCall,
        spec: ToolSpec,
        channel: QuestionChannel | None,
    ) -> Result | None:
        """Run a call at a worker; None if its caller or arguments are invalid."""
        call, observe = running.call, running.emit if running.is_followed else None
        token, is_nested = call.session, call.depth > 0
        try:
            caller = self._guard.known_identity(token, running=is_nested)
            if caller is None:
                caller = await retry_while_unreachable(
                    lambda: self._guard.caller(token, running=is_nested), _wait_seconds(call)
                )
            arguments = Raw(pack(call.arguments))
            request = Raw(pack(call.request)) if call.request else NO_REQUEST
        except InputError:
            return None
        route = self._route(spec.name)
        if route is None:  # removed meanwhile
            return None
        outgoing = _Outgoing(call, caller, arguments, observe, channel, request)
        result = await self._send_shared(outgoing, route.target)
        if result.error is not None and result.error.code == "stale" and call.digest is None:
            await self._catalog.refresh()
            new_route = self._route(call.tool)
            if new_route is not None and new_route.target.digest != route.target.digest:
                return await self._send_shared(outgoing, new_route.target)
        if call.tool == _WRITE_TOOL and isinstance(result.value, dict):
            await self._wait_until_published(result.value)
        return result

    async def send(
        self,
        call: Call,
        pool: str,
        observe: Observe | None = None,
        *,
        is_repeatable: bool = False,
    ) -> Result:
        """Send a request that is not a tool call to a worker of a pool.

        Raises:
            NoSession: it has no valid session.
            InputError: its arguments cannot be sent.
        """
        caller = await retry_while_unreachable(
            lambda: self._guard.caller(call.session), _wait_seconds(call)
        )
        if observe is not None:
            observe = CallEvents().open(call, (EventCallback(observe),)).emit
        outgoing = _Outgoing(call, caller, Raw(pack(call.arguments)), observe)
        return await self._send_shared(outgoing, _Target(None, pool, is_repeatable))

    def pools(self) -> list[str]:
        """Return the pools with published tools, the default one first."""
        pools = {entry.pool for entry in self._catalog.snapshot.entries.values()} or {_DEFAULT_POOL}
        return sorted(pools, key=lambda pool: (pool != _DEFAULT_POOL, pool))

    def pool_of(self, name: str) -> str | None:
        """Return the pool of a tool; None if it is not published."""
        entry = self._catalog.snapshot.entries.get(name)
        return entry.pool if entry is not None else None

    async def refresh(self) -> None:
        """Reload the published catalog."""
        with suppress(ToolkilnError):  # the catalog follows changes anyway
            await self._catalog.refresh()

    async def _wait_until_published(self, result_value: Mapping[str, Any]) -> None:
        """Wait a few seconds until new tools can be called from here."""
        names, digest = result_value.get("functions_registered") or (), result_value.get("digest")
        until = time.monotonic() + _PUBLISH_SECONDS
        while time.monotonic() < until:
            with suppress(ToolkilnError):  # retried below
                await self._catalog.refresh()
            entries = self._catalog.snapshot.entries
            if all(name in entries and entries[name].digest == digest for name in names):
                return
            await asyncio.sleep(_PAUSE)

    async def adopt(self, call: Call, caller: Caller) -> bool:
        """Make a call that was sent without a caller-chosen id available by its id."""
        if self._client is None or self.spec(call) is None:
            return False
        call_store = self._call_store()
        await asyncio.to_thread(call_store.note, caller, call)
        await self._client.remember(call_store.key(caller, call.id))
        return True

    def detach(self) -> None:
        """Let calls with caller-chosen ids continue when this process stops waiting."""
        if self._client is not None:
            self._client.detach()

    async def ready(self) -> None:
        """Check that calls can be sent."""
        await (self._client or await self._open_client()).check()

    async def close(self) -> None:
        """Disconnect from the fleet."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _send_shared(self, outgoing: _Outgoing, target: _Target) -> Result:
        """Send a call. If Redis lost a session of this process, share it again and retry once."""
        call, token = outgoing.call, outgoing.call.session
        assert token is not None
        # Nothing is sent yet, so all of this can wait for Redis.
        seconds = _wait_seconds(call)
        client = self._client
        if client is None:
            client = await retry_while_unreachable(self._open_client, seconds)
        if call.remember:
            note = partial(asyncio.to_thread, self._call_store().note, outgoing.caller, call)
            await retry_while_unreachable(note, seconds)
        if not self._guard.sessions.is_local(token):
            return await self._send(client, outgoing, target)
        share = partial(self._share, token)
        shared_until = await retry_while_unreachable(share, seconds)
        result = await self._send(client, outgoing, target)
        if result.error is None or result.error.code != "no_session":
            return result
        # Concurrent calls of one session fail together: one shares it again, all retry.
        if self._shared.get(token) == shared_until:
            del self._shared[token]
        await retry_while_unreachable(share, seconds)
        return await self._send(client, outgoing, target)

    async def _send(self, client: FleetClient, outgoing: _Outgoing, target: _Target) -> Result:
        call, caller, arguments, observe, channel, request = outgoing
        token = call.session
        assert token is not None
        timeout = None
        if call.timeout is not None and call.timeout < _MAX_TIMEOUT:
            timeout = max(1, round(call.timeout * 1000))
        kinds = channel.kinds if channel is not None else ()
        envelope = Envelope(
            id=call.id,
            record=self._call_store().key(caller, call.id),
            tool=call.tool,
            digest=target.digest,
            arguments=arguments,
            session=token_hash(token),
            surface=call.surface,
            timeout_ms=timeout,
            repeatable=target.is_repeatable,
            remember=call.remember,
            # With a time limit too, to learn of approvals, which suspend it.
            events=observe is not None or timeout is not None,
            reply_to=client.reply_to,
            pool=target.pool,
            traceparent=_traceparent(),
            asks=None if channel is None else tuple(kind for kind in _KINDS if kind in kinds),
            request=request,
        )
        if channel is None:
            return await client.call(envelope, observe)
        with client.questions.register(envelope.record, channel.ask):
            return await client.call(envelope, observe)

    async def _share(self, token: str) -> float:
        """Store a session of this process in Redis for the workers; returns until when."""
        until = self._shared.get(token, 0.0)
        if time.monotonic() < until:
            return until
        # Concurrent calls wait too, or a worker would not find their session.
        async with self._share_lock:
            until = self._shared.get(token, 0.0)
            if time.monotonic() >= until:
                await asyncio.to_thread(self._guard.sessions.share, token, _SHARED_SECONDS)
                until = self._shared[token] = time.monotonic() + _SHARE_AGAIN_SECONDS
            return until

    async def _open_client(self) -> FleetClient:
        async with self._open_lock:
            if self._client is None:
                key = await asyncio.to_thread(lambda: self._catalog.key)
                call_store = await asyncio.to_thread(self._call_store)
                address = replace(self._catalog.address, namespace=call_store.namespace)
                pipe = RedisPipe(address)
                client = FleetClient(pipe, RedisPipe(address), key, durable=self._durable)
                try:
                    await client.open()
                    await check_server(pipe)
                except ToolkilnError:
                    await client.close()
                    raise
                self._client = client
        return self._client

    def _route(self, name: str) -> _Route | None:
        snapshot = self._catalog.snapshot
        if snapshot is not self._snapshot:
            self._snapshot, self._routes = snapshot, {}
        route = self._routes.get(name)
        if route is None and (route := self._find_route(snapshot, name)) is not None:
            self._routes[name] = route
        return route

    def _find_route(self, snapshot: RemoteSnapshot, name: str) -> _Route | None:
        if name == _WRITE_TOOL:
            target = _Target(None, self.pools()[0], is_repeatable=False)
            return _Route(self._registry.spec(name), target)
        if name in BUILTIN_NAMES or self._registry.is_function(name) or name not in snapshot.tools:
            return None
        spec = snapshot.tools[name]
        if spec.pinned:
            return None
        repeatable = bool(spec.hints.read_only or spec.hints.idempotent)
        return _Route(spec, _Target(spec.digest, snapshot.pool(name), repeatable))


def _wait_seconds(call: Call) -> float:
    """Return how many seconds a call waits for Redis before it is sent."""
    return REDIS_WAIT_SECONDS if call.timeout is None else min(call.timeout, REDIS_WAIT_SECONDS)


def _traceparent() -> str | None:
    """Return the current OpenTelemetry span for the envelope; None without one.

    Does not import the package: if a span exists, it is already imported.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
