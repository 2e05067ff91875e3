"""Network access of a sandbox: receives its listeners and serves them."""

import asyncio
import socket
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from toolkiln.errors import BackendError
from toolkiln.execution.network import (
    ConnectionRecord,
    Endpoint,
    HostRules,
    Resolve,
    proxy_environment,
    serve,
)
from toolkiln.model import CallError

_MOST_NOTES = 5
_NOT_FOUND = "Name or service not known"


@dataclass(eq=False, slots=True)
class NetworkAccess:
    """What one sandbox reaches, and a record of each connection."""

    rules: HostRules = field(default_factory=HostRules)
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables that point HTTP clients to the proxy."""
    proxy_only: tuple[str, ...] = ()
    """Granted hosts, with their port, that plain sockets cannot reach here."""
    records: list[ConnectionRecord] = field(default_factory=list)

    def notes(self, error: CallError | None) -> list[str]:
        """Return what the tool's author and the model should know after a call.

        Args:
            error: why the call failed, if it did.
        """
        refused = dict.fromkeys(
            f"network: {record.host or 'a connection'}: {record.reason}"
            for record in self.records
            if record.outcome not in ("allowed", "cut")
        )
        notes = list(refused)[:_MOST_NOTES]
        if error and (error.type == "gaierror" or _NOT_FOUND in error.message):
            names = ", ".join([rule.host for rule in self.rules.rules][:_MOST_NOTES])
            notes.append(
                f"network: only granted names resolve ({names}); "
                "those that a wildcard covers are reached through the HTTP proxy"
            )
        if error and self.proxy_only:
            hosts = ", ".join(self.proxy_only[:_MOST_NOTES])
            notes.append(
                f"network: this sandbox reaches {hosts} through the HTTP proxy only, "
                "not by plain sockets; `toolkiln doctor` shows what it supports"
            )
        return notes


@dataclass(frozen=True, slots=True)
class Networks:
    """How granted hosts are reached."""

    allow_private: tuple[str, ...] = ()
    """Ranges that are not public and may be reached all the same."""
    resolve: Resolve | None = None

    async def open(
        self,
        near: socket.socket,
        rules: HostRules,
        endpoints: Iterable[Endpoint],
        stack: AsyncExitStack,
    ) -> NetworkAccess:
        """Serve the process at the other end of a socket until the stack closes.

        Raises:
            BackendError: the process has not passed its listeners.
        """
        planned = {(each.address, each.port): each for each in endpoints}
        listeners = {each.getsockname(): each for each in await _passed(near, len(planned) + 1)}
        bound = {listeners.pop(name): planned[name] for name in planned if name in listeners}
        if len(listeners) != 1:
            raise BackendError("the sandbox has no network: it ended before it could listen")
        ((address, listener),) = listeners.items()
        direct = {(each.host, each.port) for each in bound.values()}
        missing = [
            (rule.host, port)
            for rule in rules.rules
            for port in rule.ports
            if "*" not in rule.host and (rule.host, port) not in direct
        ]
        is_local = not any(host == "localhost" for host, _ in missing)
        access = NetworkAccess(
            rules=rules,
            variables=proxy_environment(address[1], bypass_localhost=is_local),
            proxy_only=tuple(f"{host}:{port}" for host, port in missing),
        )
        served = serve(
            listener,
            rules,
            endpoints=bound,
            allow_private=self.allow_private,
            resolve=self.resolve,
            on_connection=access.records.append,
        )
        await stack.enter_async_context(served)
        return access


async def _passed(near: socket.socket, most: int) -> list[socket.socket]:
    """Receive the listeners that the sandbox passes before any code of the tool runs."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(near, readable.cancel)
    try:
        await asyncio.wait([readable])
    finally:
        loop.remove_reader(near)
    _, descriptors, flags, _ = socket.recv_fds(near, 1, most)
    listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    if flags & socket.MSG_CTRUNC:
        for listener in listeners:
            listener.close()
        raise BackendError(
            "the sandbox has no network: this process has too many open files",
            hint="raise its limit on open files (`ulimit -n`)",
        )
    return listeners
