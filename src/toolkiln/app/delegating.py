"""Errands in a fleet: asked for at a front, done by a worker.

They travel as calls do (sealed, for a session, at most once unless they only read), under
names that no tool can have: they are offered to nobody, and rules about tools are not about
them. The worker decides who may have what done, as if it had been asked at home, and its
audit has the record. `Delegating` is the front's end, `Attending` the worker's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from toolkiln.app.errands import ERRANDS, Author, Errand, Write
from toolkiln.app.forwarding import Forwarding
from toolkiln.app.kiln import Kiln
from toolkiln.app.sources import Run, SourceCall
from toolkiln.catalog import MANIFEST
from toolkiln.errors import (
    BackendError,
    InputError,
    NotAllowed,
    NotFound,
    ToolkilnError,
    UnknownTool,
)
from toolkiln.execution import NoSession
from toolkiln.fleet import End, Envelope, Malformed, unpack
from toolkiln.model import Call, CallError, Event, Result, Status, unobserved

PREFIX = "errand:"
"""How the names begin under which errands travel."""
_RUN = PREFIX + "run"
_log = logging.getLogger(__name__)
A = TypeVar("A")
Observe = Callable[[Event], None]


class Delegating:
    """Has the workers of a fleet do errands."""

    def __init__(self, forwarding: Forwarding, surface: str) -> None:
        """`surface` is what the audit says that they came through."""
        self._forwarding = forwarding
        self._surface = surface

    async def tend(self, errand: Errand[A], token: str | None) -> A:
        """As `Caretaking.do`, by a worker of the pool that has the tool.

        One that nobody publishes may be switched off or removed: pools are asked in turn. What
        is about no tool in particular is asked of all.

        Raises:
            BackendError: no worker did it, or nobody knows whether one did.
        """
        pools = self._pools(errand)
        if errand.is_reading and not errand.name:
            parts = [await self._asked(errand, pool, token) for pool in pools]
            return cast("A", tuple(one for part in parts for one in cast("Any", part)))
        for pool in pools[:-1]:
            with suppress(UnknownTool, NotFound):
                return await self._asked(errand, pool, token)
        return await self._asked(errand, pools[-1], token)

    def run(self, wanted: SourceCall, token: str | None) -> Run:
        """What has a worker run a tool of a source; it raises what preparing that raises."""
        given = {"source": wanted.source, "arguments": wanted.arguments, "tool": wanted.tool}
        call = Call(
            tool=_RUN,
            arguments=given,
            session=token,
            surface=wanted.surface,
            timeout=wanted.timeout,
        )
        if wanted.call_id is not None:
            call = call.model_copy(update={"id": wanted.call_id, "remember": True})

        async def run(observe: Observe) -> Result:
            pool = self._forwarding.pools()[0]
            result = await self._forwarding.send(call, pool, observe)
            if result.tool != _RUN:
                return result
            _raise_refusal(result)
            return result.model_copy(update={"tool": wanted.tool or "source"})

        return run

    def _pools(self, errand: Errand[Any]) -> list[str]:
        if pool := self._forwarding.pool_of(errand.name):
            return [pool]
        pools = self._forwarding.pools()
        return pools[:1] if isinstance(errand, Author | Write) else pools

    async def _asked(self, errand: Errand[A], pool: str, token: str | None) -> A:
        call = Call(
            tool=PREFIX + errand.kind,
            arguments=errand.model_dump(mode="json"),
            session=token,
            surface=self._surface,
            timeout=errand.seconds,
        )
        result = await self._forwarding.send(call, pool, is_repeatable=errand.is_reading)
        if result.error is not None:
            _raise_refusal(result)
            raise _failure(result.error, pool)
        if not errand.is_reading:
            await self._forwarding.look_again()
        try:
            return cast("A", TypeAdapter(errand.answer).validate_python(result.value))
        except ValidationError as error:
            said = "a worker's answer cannot be read"
            hint = "let workers and fronts have the same version of Toolkiln"
            raise BackendError(f"{said}: {error.errors()[0]['msg']}", hint=hint) from None


class Attending:
    """Does errands of a fleet at a worker."""

    def __init__(self, kiln: Kiln, publish: Callable[[], Awaitable[object]]) -> None:
        """`publish` lets the fleet know at once what has changed."""
        self._kiln = kiln
        self._publish = publish

    async def attend(
        self, envelope: Envelope, token: str | None, left: float | None, observe: Observe | None
    ) -> Result | End:
        """Do an errand, and tell what came of it, or why nothing did."""
        try:
            with self._kiln.guarding.recording.through(envelope.surface):
                if envelope.tool == _RUN:
                    return await self._run(envelope, token, left, observe or unobserved)
                async with asyncio.timeout(left):
                    value = await self._done(envelope, token)
        except Malformed:
            return End("poison")
        except TimeoutError:
            return End("timeout")
        except ToolkilnError as error:
            return _refusal(envelope, error)
        return Result(call_id=envelope.id, tool=envelope.tool, status=Status.OK, value=value)

    async def _done(self, envelope: Envelope, token: str | None) -> Any:
        kind = ERRANDS.get(envelope.tool.removeprefix(PREFIX))
        if kind is None:
            raise InputError(f"this worker knows nothing of {envelope.tool}", hint="upgrade it")
        errand = _read(kind, envelope)
        await asyncio.to_thread(self.look_again)
        told = await self._kiln.tend(errand, token)
        if not errand.is_reading:
            try:
                await self._publish()
            except ToolkilnError as error:  # it is done all the same, and will be published
                _log.warning("what was changed cannot be published yet: %s", error.message)
        # A front of an earlier release refuses fields that it does not know: send no defaults.
        return TypeAdapter(errand.answer).dump_python(told, mode="json", exclude_defaults=True)

    def look_again(self) -> None:
        """See what other workers of the same folder have just done about it."""
        if self._kiln.path is not None:
            catalog = self._kiln.catalog
            catalog.refresh([catalog.root / MANIFEST])

    async def _run(
        self, envelope: Envelope, token: str | None, left: float | None, observe: Observe
    ) -> Result:
        given = unpack(envelope.arguments)
        try:
            wanted = SourceCall(
                **given,
                timeout=left,
                call_id=envelope.id,
                is_remembered=True,
                surface=envelope.surface,
                session=token,
            )
        except TypeError:
            raise Malformed("a source to be run is not what it should be") from None
        return await (await self._kiln.prepare_source(wanted))(observe)


def _read(kind: type[Errand[Any]], envelope: Envelope) -> Errand[Any]:
    try:
        return kind.model_validate(unpack(envelope.arguments))
    except ValidationError as error:
        said = f"this worker cannot read {envelope.tool}: {error.errors()[0]['msg']}"
        hint = "let workers and fronts have the same version of Toolkiln"
        raise InputError(said, hint=hint) from None


def _refusal(envelope: Envelope, error: ToolkilnError) -> Result:
    """What a worker says instead of doing an errand; `type` tells it from how a call ended."""
    is_denied = isinstance(error, NotAllowed | NoSession)
    said = CallError(
        code=error.code, message=error.message, hint=error.hint, type=type(error).__name__
    )
    status = Status.DENIED if is_denied else Status.INVALID
    return Result(call_id=envelope.id, tool=envelope.tool, status=status, error=said)


def _raise_refusal(result: Result) -> None:
    """Raise here what a worker raised."""
    told = result.error
    if told is None or told.type is None:
        return
    kinds = {kind.code: kind for kind in _below(ToolkilnError)}
    kind = kinds.get(told.code, BackendError)
    error = kind.__new__(kind)  # those that make their words up have them already
    ToolkilnError.__init__(error, told.message, hint=told.hint)
    raise error


def _below(kind: type[ToolkilnError]) -> list[type[ToolkilnError]]:
    return [kind, *(below for sub in kind.__subclasses__() for below in _below(sub))]


def _failure(told: CallError, pool: str) -> ToolkilnError:
    """What became of an errand on its way."""
    if told.code == NoSession.code:
        return NoSession(told.message, hint=told.hint)
    said = f"no worker of the pool {pool!r} is known to have done this: {told.message}"
    hint = told.hint or "is one running? see `toolkiln fleet status`; look before you try again"
    return BackendError(said, hint=hint)
