"""Operations over the fleet: requested at a front, run by a worker.

They travel as calls do (sealed, for a session, at most once unless they only read), under
names that no tool can have: they are not listed, and rules about tools do not apply to them.
The worker checks privileges as for a local request, and its audit log has the record.
`RemoteOperations` is the end of the front, `OperationServer` that of the worker.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from toolkiln.catalog.manifest import MANIFEST
from toolkiln.errors import (
    BackendError,
    InputError,
    NotAllowed,
    NotFound,
    ToolkilnError,
    UnknownTool,
)
from toolkiln.fleet.dispatcher import FleetDispatcher
from toolkiln.fleet.steps import End
from toolkiln.fleet.wire import Envelope, Malformed, Observe, unpack
from toolkiln.model.call import Call, CallError, Result, Status
from toolkiln.operations import find_worker_operation
from toolkiln.operations.operation import Operation
from toolkiln.operations.services import Services
from toolkiln.operations.sources import PreparedRun, SourceCall
from toolkiln.security.sessions import NoSession

PREFIX = "operation:"
"""Prefix of the names under which operations travel."""
OLD_PREFIX = "errand:"
"""The same in the previous release; workers of both releases accept it."""
_OLD_NAMES = {
    "tools.state": "look",
    "tools.list_disabled": "list-disabled",
    "tools.list_proposed": "list-proposed",
    "tools.write_file": "author",
    "tools.write_source": "write",
    "tools.change": "patch",
    "toolkits.change": "switch-toolkit",
    "tools.remove": "remove",
    "versions.list": "list-versions",
    "versions.get": "show-version",
    "versions.rollback": "roll-back",
    "tool_settings.get": "show-settings",
    "tool_settings.update": "set-tool",
    "proposals.files": "list-waiting",
    "proposals.get": "show-waiting",
    "proposals.admit": "admit",
    "proposals.reject": "reject",
    "sources.run": "run",
}
"""Names of operations in the previous release. Fronts send them for one more release, so that
workers can be upgraded after them."""
_BY_OLD_NAME = {old: new for new, old in _OLD_NAMES.items()}
_SOURCE = "sources.run"
_WRITES = ("tools.write_file", "tools.write_source")
"""Operations that create files: the first pool runs them."""
_SAME_RELEASE = "run the same version of Toolkiln on workers and fronts"
_UNKNOWN_HINT = "is one running? see `toolkiln fleet status`; check what changed before you retry"
_log = logging.getLogger(__name__)
I = TypeVar("I")  # noqa: E741 - the input of an operation
O = TypeVar("O")  # noqa: E741 - its output


def wire_name(operation: str) -> str:
    """Return the name under which an operation travels."""
    return OLD_PREFIX + _OLD_NAMES[operation]


def operation_name(name: str) -> str | None:
    """Return the operation that travels under a name; None if it is the name of a tool."""
    if name.startswith(PREFIX):
        return name.removeprefix(PREFIX)
    old = name.removeprefix(OLD_PREFIX)
    return None if old == name else _BY_OLD_NAME.get(old, old)


class RemoteOperations:
    """Runs operations at the workers of a fleet."""

    def __init__(self, dispatcher: FleetDispatcher, surface: str) -> None:
        """`surface` is the origin of the requests in the audit log."""
        self._dispatcher = dispatcher
        self._surface = surface

    async def run(self, operation: Operation[I, O], request: I, token: str | None) -> O:
        """Run an operation at a worker of the pool that has the tool.

        A tool that no pool publishes may be disabled or removed: pools are asked in turn. A
        request that names no tool goes to all of them.

        Raises:
            BackendError: no worker ran it, or it is unknown whether one did.
        """
        name = getattr(request, "name", "")
        pools = self._pools(operation, name)
        if operation.read_only and not name:
            parts = [await self._send(operation, request, pool, token) for pool in pools]
            return cast("O", tuple(item for part in parts for item in cast("Any", part)))
        for pool in pools[:-1]:
            with suppress(UnknownTool, NotFound):
                return await self._send(operation, request, pool, token)
        return await self._send(operation, request, pools[-1], token)

    def run_source(self, request: SourceCall, token: str | None) -> PreparedRun:
        """Return a function that runs a tool of a source at a worker, and raises its errors."""
        name = wire_name(_SOURCE)
        call = Call(
            tool=name,
            arguments={
                "source": request.source,
                "arguments": request.arguments,
                "tool": request.tool,
            },
            session=token,
            surface=request.surface,
            timeout=request.timeout,
        )
        if request.call_id is not None:
            call = call.model_copy(update={"id": request.call_id, "remember": True})

        async def run(observe: Observe | None) -> Result:
            result = await self._dispatcher.send(call, self._dispatcher.pools()[0], observe)
            if result.tool != name:
                return result
            _raise_refusal(result)
            return result.model_copy(update={"tool": request.tool or "source"})

        return run

    def _pools(self, operation: Operation[Any, Any], tool: str) -> list[str]:
        if pool := self._dispatcher.pool_of(tool):
            return [pool]
        pools = self._dispatcher.pools()
        return pools[:1] if operation.name in _WRITES else pools

    async def _send(
        self, operation: Operation[I, O], request: I, pool: str, token: str | None
    ) -> O:
        call = Call(
            tool=wire_name(operation.name),
            # A worker of an earlier release refuses fields that it does not know: send no defaults.
            arguments=TypeAdapter(operation.input).dump_python(
                request, mode="json", exclude_defaults=True
            ),
            session=token,
            surface=self._surface,
            timeout=operation.timeout,
        )
        result = await self._dispatcher.send(call, pool, is_repeatable=operation.read_only)
        if result.error is not None:
            _raise_refusal(result)
            raise _failure(result.error, pool)
        if not operation.read_only:
            await self._dispatcher.refresh()
        try:
            return cast("O", TypeAdapter(operation.output).validate_python(result.value))
        except ValidationError as error:
            message = f"the reply of a worker cannot be read: {error.errors()[0]['msg']}"
            raise BackendError(message, hint=_SAME_RELEASE) from None


class OperationServer:
    """Runs operations of a fleet at a worker."""

    def __init__(self, services: Services, publish: Callable[[], Awaitable[object]]) -> None:
        """`publish` announces changes to the fleet."""
        self._services = services
        self._publish = publish

    async def run(
        self, envelope: Envelope, token: str | None, left: float | None, observe: Observe | None
    ) -> Result | End:
        """Run an operation, and return its result or why it did not run."""
        name = operation_name(envelope.tool)
        try:
            with self._services.security.recording.through(envelope.surface):
                if name == _SOURCE:
                    return await self._run_source(envelope, token, left, observe)
                async with asyncio.timeout(left):
                    value = await self._run(name, envelope, token)
        except Malformed:
            return End("poison")
        except TimeoutError:
            return End("timeout")
        except ToolkilnError as error:
            return _refusal(envelope, error)
        return Result(call_id=envelope.id, tool=envelope.tool, status=Status.OK, value=value)

    async def _run(self, name: str | None, envelope: Envelope, token: str | None) -> Any:
        operation = None if name is None else find_worker_operation(name)
        if operation is None:
            raise InputError(f"this worker does not know {envelope.tool}", hint="upgrade it")
        request = _request(operation, envelope)
        await asyncio.to_thread(self.refresh)
        result = await self._services.run(operation, request, token)
        if not operation.read_only:
            try:
                await self._publish()
            except ToolkilnError as error:  # the change is made, and will be published
                _log.warning("changes cannot be published yet: %s", error.message)
        # A front of an earlier release refuses fields that it does not know: send no defaults.
        return TypeAdapter(operation.output).dump_python(result, mode="json", exclude_defaults=True)

    def refresh(self) -> None:
        """Read changes that other workers of the same folder have just made."""
        if self._services.path is not None:
            catalog = self._services.catalog
            catalog.refresh([catalog.root / MANIFEST])

    async def _run_source(
        self, envelope: Envelope, token: str | None, left: float | None, observe: Observe | None
    ) -> Result:
        arguments = unpack(envelope.arguments)
        try:
            request = SourceCall(
                **arguments,
                timeout=left,
                call_id=envelope.id,
                is_remembered=True,
                surface=envelope.surface,
                session=token,
            )
        except TypeError:
            raise Malformed("the request to run a source is malformed") from None
        return await (await self._services.prepare_source(request))(observe)


def _request(operation: Operation[Any, Any], envelope: Envelope) -> Any:
    try:
        return TypeAdapter(operation.input).validate_python(unpack(envelope.arguments))
    except ValidationError as error:
        message = f"this worker cannot read {envelope.tool}: {error.errors()[0]['msg']}"
        raise InputError(message, hint=_SAME_RELEASE) from None


def _refusal(envelope: Envelope, error: ToolkilnError) -> Result:
    """Return the result of an operation that was refused; its `type` marks it as such."""
    is_denied = isinstance(error, NotAllowed | NoSession)
    refused = CallError(
        code=error.code, message=error.message, hint=error.hint, type=type(error).__name__
    )
    status = Status.DENIED if is_denied else Status.INVALID
    return Result(call_id=envelope.id, tool=envelope.tool, status=status, error=refused)


def _raise_refusal(result: Result) -> None:
    """Raise the error that a worker raised."""
    refused = result.error
    if refused is None or refused.type is None:
        return
    kinds = {kind.code: kind for kind in _below(ToolkilnError)}
    kind = kinds.get(refused.code, BackendError)
    error = kind.__new__(kind)  # the message is complete: skip constructors that compose it
    ToolkilnError.__init__(error, refused.message, hint=refused.hint)
    raise error


def _below(kind: type[ToolkilnError]) -> list[type[ToolkilnError]]:
    return [kind, *(below for sub in kind.__subclasses__() for below in _below(sub))]


def _failure(error: CallError, pool: str) -> ToolkilnError:
    """Return the error of an operation that no worker is known to have run."""
    if error.code == NoSession.code:
        return NoSession(error.message, hint=error.hint)
    message = f"no worker of the pool {pool!r} is known to have done this: {error.message}"
    return BackendError(message, hint=error.hint or _UNKNOWN_HINT)
