"""Runner of fleet calls: from an envelope to a result, through the worker's gateway.

The seal proves that a process of the fleet sent the call, the session names its caller, and the
digest the version. A version that this worker does not serve is fetched from the remote catalog;
if that fails, the call ends as `stale`. The gateway decides everything else.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from toolkiln.catalog.registry import Disabled
from toolkiln.errors import InputError, StoreError, ToolkilnError
from toolkiln.execution.call_events import CallObserver, EventCallback, RunningCall
from toolkiln.execution.gateway import Gateway
from toolkiln.fleet.message_auth import FleetKeys, has_valid_seal
from toolkiln.fleet.questions import QuestionSender
from toolkiln.fleet.rpc import OperationServer, operation_name
from toolkiln.fleet.steps import End
from toolkiln.fleet.wire import Envelope, Malformed, Observe, unpack
from toolkiln.model.call import Call, Event, Result
from toolkiln.model.catalog import ServedVersion
from toolkiln.model.identity import Caller
from toolkiln.operations.engine import CallEngine
from toolkiln.security.redaction import line
from toolkiln.security.security import Security
from toolkiln.store.codec import key_of
from toolkiln.store.rules import REDIS_WAIT_SECONDS, retry_while_unreachable

_PROGRESS_SECONDS = 1.0


class Progress(CallObserver):
    """Observer that stores the progress of one call."""

    def __init__(self, save: Callable[[str], object]) -> None:
        """`save` may block, and raise ToolkilnError."""
        self._save = save
        self._latest: str | None = None
        self._task: asyncio.Task[None] | None = None

    def event(self, _: RunningCall, event: Event, /) -> None:
        """Store the progress soon."""
        if event.kind == "progress":
            self._latest = event.described
            if self._task is None:
                self._task = asyncio.create_task(self._save_latest())

    def ended(self, _: RunningCall, __: Result | None, /) -> None:
        """Stop storing progress."""
        if self._task is not None:
            self._task.cancel()

    async def _save_latest(self) -> None:
        while self._latest is not None:
            text, self._latest = self._latest, None
            with suppress(ToolkilnError):
                await asyncio.to_thread(self._save, text)
            await asyncio.sleep(_PROGRESS_SECONDS)
        self._task = None


class CallLog(CallObserver):
    """Observer that logs one line when a call has ended, a warning unless it ended well."""

    def ended(self, call: RunningCall, _: Result | None, /) -> None:
        """Log the outcome."""
        record = call.final_record
        assert record is not None
        level = logging.INFO if record.outcome == "ok" else logging.WARNING
        if CALL_LOG.isEnabledFor(level):
            tool, user = line(record.tool, _MAX_NAME), line(record.user, _MAX_NAME)
            milliseconds = round(1000 * (record.duration or 0.0))
            values = tool, user, record.outcome, milliseconds
            CALL_LOG.log(level, "call of %s by %s: %s in %d ms", *values)


Fetch = Callable[[str, str], Awaitable[ServedVersion | None]]
"""Fetches a version by tool name and digest; None if it is unavailable."""
_MAX_VERSIONS = 100
_MAX_ALIASES = 10_000
_MAX_LIMITS = 10_000
_MAX_NAME = 200
_log = logging.getLogger(__name__)
CALL_LOG = logging.getLogger("toolkiln.calls")
"""Logger of `CallLog`."""


class CallRunner:
    """Runs the calls that a fleet sends to one Kiln."""

    def __init__(
        self,
        engine: CallEngine,
        security: Security,
        key: FleetKeys,
        fetch: Fetch,
        save_progress: Callable[[str, str], object],
        questions: QuestionSender,
        operations: OperationServer,
    ) -> None:
        """`save_progress` stores a call's latest progress by record.

        `operations` handles envelopes that are not tool calls.
        """
        self._engine = engine
        self._guard = security.guard
        self._alias = security.sessions.alias
        self._key = key
        self._fetch = fetch
        self._save_progress = save_progress
        self._questions = questions
        self._operations = operations
        self._tokens: dict[str, str] = {}
        """Session aliases in this process, by token hash."""
        self._limits: dict[tuple[str, str], float] = {}
        self._gateways: dict[tuple[str, str], Gateway] = {}
        """Gateways to versions that are not served here, by name and digest."""

    async def run(
        self, envelope: Envelope, remaining: float | None, observe: Observe | None
    ) -> Result | End:
        """Run a call, given its remaining seconds."""
        if not has_valid_seal(self._key, envelope):
            return End("forged")
        token, began = self._token(envelope.session), time.monotonic()
        caller = self._guard.known_identity(token)
        if caller is None:
            caller = await self._caller(
                token, REDIS_WAIT_SECONDS if remaining is None else remaining
            )
            if remaining is not None:
                remaining = max(0.001, remaining - (time.monotonic() - began))
        # The record that stores the result must belong to the caller.
        key = envelope.record.rpartition(":")[2]  # after the name of a client's Redis user
        if caller is not None and key != key_of(caller, envelope.id):
            return End("forged")
        if operation_name(envelope.tool) is not None:
            return await self._operations.run(envelope, token, remaining, observe)
        gateway = self._engine.gateway
        if envelope.digest is not None:
            is_served = self._is_served(envelope.tool, envelope.digest)
            if is_served is None:  # another worker of this folder may have just enabled it
                await asyncio.to_thread(self._operations.refresh)
            elif not is_served:
                other = await self._gateway_for(envelope.tool, envelope.digest)
                if other is None:
                    return End("stale")
                gateway = other
        try:
            arguments, request = unpack(envelope.arguments), unpack(envelope.request)
            request = {} if request is None else request
            if not isinstance(request, dict):
                raise Malformed("the request of a call is an object")
        except Malformed:
            return End("poison")
        call = Call(
            tool=envelope.tool,
            arguments=arguments,
            id=envelope.id,
            session=token,
            request=request,
            digest=envelope.digest,
            timeout=remaining,
            surface=envelope.surface,
        )
        channel = self._questions.channel(envelope)
        observers: list[CallObserver] = []
        if observe is not None:
            observers.append(EventCallback(observe))
        if envelope.remember:
            observers.append(Progress(partial(self._save_progress, envelope.record)))
        return await gateway.call(call, tuple(observers), channel)

    def limit(self, envelope: Envelope) -> float:
        """Return the time limit of a call in seconds."""
        if envelope.digest is None:
            return self._engine.longest(envelope.tool)
        version = envelope.tool, envelope.digest
        limit = self._limits.get(version)
        if limit is None:
            if len(self._limits) >= _MAX_LIMITS:
                self._limits.clear()
            limit = self._limits[version] = self._engine.longest(envelope.tool)
        return limit

    def _token(self, token_hash: str | None) -> str | None:
        if token_hash is None:
            return None
        token = self._tokens.get(token_hash)
        if token is None:
            if len(self._tokens) >= _MAX_ALIASES:
                self._tokens.clear()
            token = self._tokens[token_hash] = self._alias(token_hash)
        return token

    async def _caller(self, token: str | None, seconds: float) -> Caller | None:
        """Return the caller of a session; waits this many seconds for Redis."""
        try:
            return await retry_while_unreachable(lambda: self._guard.caller(token), seconds)
        except ToolkilnError:  # the gateway reports and audits it
            return None

    def _is_served(self, name: str, digest: str) -> bool | None:
        """Return whether a version is served here; None if its tool is disabled."""
        try:
            self._engine.resolve(name, digest)
        except Disabled:
            return None
        except InputError:
            return False
        return True

    async def _gateway_for(self, name: str, digest: str) -> Gateway | None:
        """Return a gateway to a version that other workers published; None if there is none."""
        gateway = self._gateways.get((name, digest))
        if gateway is None:
            try:
                served = await self._fetch(name, digest)
            except StoreError as error:
                _log.warning("cannot fetch %s at %s: %s", name, digest[:12], error.message)
                return None
            if served is None:
                return None
            gateway = self._engine.gateway.with_tool(self._engine.version(name, served))
            if served.is_reviewed:  # a person may admit the others at any time
                if len(self._gateways) >= _MAX_VERSIONS:
                    self._gateways.pop(next(iter(self._gateways)))
                self._gateways[name, digest] = gateway
        return gateway
