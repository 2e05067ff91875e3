"""From an envelope to a result: what a worker's Kiln does with a call of the fleet.

The seal says that somebody of the fleet sent it, the session who that is, the digest which
version they saw. A version that is not served here is fetched and run as it was published;
where it is not to be had the caller is told that what it knows is stale. Everything else is
the gateway's business, as for every call.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from toolkiln.app.delegating import PREFIX, Attending
from toolkiln.app.engine import Engine
from toolkiln.app.guarding import Guarding
from toolkiln.app.offer import Disabled
from toolkiln.app.progress import Progress
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.execution import Gateway
from toolkiln.fleet import (
    End,
    Envelope,
    FleetKeys,
    Malformed,
    Questions,
    is_genuine,
    unpack,
)
from toolkiln.model import Call, Caller, Event, Result, Served, unobserved
from toolkiln.store import PATIENCE, StoreError, key_of, while_unreachable

Fetch = Callable[[str, str], Awaitable[Served | None]]
"""A version by the tool's name and the digest; None if there is none."""
_MOST_VERSIONS = 100
_MOST_ALIASES = 10_000
_MOST_LIMITS = 10_000
_log = logging.getLogger(__name__)


class Performer:
    """Performs the calls that a fleet has for one Kiln."""

    def __init__(
        self,
        engine: Engine,
        guarding: Guarding,
        key: FleetKeys,
        fetch: Fetch,
        note: Callable[[str, str], object],
        questions: Questions,
        attending: Attending,
    ) -> None:
        """`key` is the fleet's; `note` keeps what a call of some record said last.

        `attending` does what is no call of a tool.
        """
        self._engine = engine
        self._guard = guarding.guard
        self._alias = guarding.sessions.alias
        self._key = key
        self._fetch = fetch
        self._note = note
        self._questions = questions
        self._attending = attending
        self._tokens: dict[str, str] = {}
        """By the hash of a session's own token: one that stands for it here."""
        self._limits: dict[tuple[str, str], float] = {}
        self._doors: dict[tuple[str, str], Gateway] = {}
        """By name and digest: the ways to versions that are not served here."""

    async def perform(
        self, envelope: Envelope, left: float | None, observe: Callable[[Event], None] | None
    ) -> Result | End:
        """Run a call, with the seconds that are left for it."""
        if not is_genuine(self._key, envelope):
            return End("forged")
        token, began = self._token(envelope.session), time.monotonic()
        caller = self._guard.known_identity(token)
        if caller is None:
            caller = await self._caller(token, PATIENCE if left is None else left)
            if left is not None:
                left = max(0.001, left - (time.monotonic() - began))
        # The record that the result will be kept under has to be the caller's own.
        own = envelope.record.rpartition(":")[2]  # behind the name of a client's Redis user
        if caller is not None and own != key_of(caller, envelope.id):
            return End("forged")
        if envelope.tool.startswith(PREFIX):
            return await self._attending.attend(envelope, token, left, observe)
        gateway = self._engine.gateway
        if envelope.digest is not None:
            is_here = self._is_here(envelope.tool, envelope.digest)
            if is_here is None:  # unless another worker of this folder has just switched it on
                await asyncio.to_thread(self._attending.look_again)
            elif not is_here:
                found = await self._door(envelope.tool, envelope.digest)
                if found is None:
                    return End("stale")
                gateway = found
        try:
            arguments = unpack(envelope.arguments)
        except Malformed:
            return End("poison")
        call = Call(
            tool=envelope.tool,
            arguments=arguments,
            id=envelope.id,
            session=token,
            digest=envelope.digest,
            timeout=left,
            surface=envelope.surface,
        )
        asking = self._questions.of(envelope)
        if not envelope.remember:
            return await gateway.call(call, observe or unobserved, asking)
        progress = Progress(partial(self._note, envelope.record), observe or unobserved)
        try:
            return await gateway.call(call, progress, asking)
        finally:
            progress.stop()

    def limit(self, envelope: Envelope) -> float:
        """The most seconds that a call may take."""
        if envelope.digest is None:
            return self._engine.longest(envelope.tool)
        version = envelope.tool, envelope.digest
        limit = self._limits.get(version)
        if limit is None:
            if len(self._limits) >= _MOST_LIMITS:
                self._limits.clear()
            limit = self._limits[version] = self._engine.longest(envelope.tool)
        return limit

    def _token(self, hashed: str | None) -> str | None:
        if hashed is None:
            return None
        token = self._tokens.get(hashed)
        if token is None:
            if len(self._tokens) >= _MOST_ALIASES:
                self._tokens.clear()
            token = self._tokens[hashed] = self._alias(hashed)
        return token

    async def _caller(self, token: str | None, patience: float) -> Caller | None:
        """Return the caller behind a session; waits this many seconds for Redis to come back."""
        try:
            return await while_unreachable(lambda: self._guard.caller(token), patience)
        except ToolkilnError:  # the gateway says why, and records it
            return None

    def _is_here(self, name: str, digest: str) -> bool | None:
        """Whether a version is served here; None: it is switched off, so nobody may run any."""
        try:
            self._engine.resolve(name, digest)
        except Disabled:
            return None
        except InputError:
            return False
        return True

    async def _door(self, name: str, digest: str) -> Gateway | None:
        """A way to a version that others have published; None if it is not to be had."""
        door = self._doors.get((name, digest))
        if door is None:
            try:
                served = await self._fetch(name, digest)
            except StoreError as error:
                _log.warning("%s at %s cannot be fetched: %s", name, digest[:12], error.message)
                return None
            if served is None:
                return None
            door = self._engine.gateway.beside(self._engine.version(name, served))
            if served.is_reviewed:  # otherwise a person may admit it at any time
                if len(self._doors) >= _MOST_VERSIONS:
                    self._doors.pop(next(iter(self._doors)))
                self._doors[name, digest] = door
        return door
