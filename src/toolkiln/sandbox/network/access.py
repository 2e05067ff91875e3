"""Network access of a sandbox: receives its listeners and serves them through the proxy."""

import asyncio
import socket
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from toolkiln.errors import BackendError
from toolkiln.model.call import CallError
from toolkiln.model.network import HostRules
from toolkiln.sandbox.network.addresses import Endpoint
from toolkiln.sandbox.network.connection import ConnectionRecord
from toolkiln.sandbox.network.proxy import Resolve, serve

_MAX_NOTES = 5
_NOT_FOUND = "Name or service not known"


@dataclass(eq=False, slots=True)
class NetworkAccess:
    """The hosts that one sandbox can reach, and a record of each connection."""

    rules: HostRules = field(default_factory=HostRules)
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables that point HTTP clients to the proxy."""
    proxy_only: tuple[str, ...] = ()
    """Granted hosts with ports that plain sockets cannot reach."""
    records: list[ConnectionRecord] = field(default_factory=list)

    def notes(self, error: CallError | None) -> list[str]:
        """Return notes for the tool's author and the model; `error` is why the call failed."""
        refused = dict.fromkeys(
            f"network: {record.host or 'a connection'}: {record.reason}"
            for record in self.records
            if record.outcome not in ("allowed", "cut")
        )
        notes = list(refused)[:_MAX_NOTES]
        if error and (error.type == "gaierror" or _NOT_FOUND in error.message):
            names = ", ".join([rule.host for rule in self.rules.rules][:_MAX_NOTES])
            notes.append(
                f"network: only granted names resolve ({names}); "
                "names covered by a wildcard are reachable through the HTTP proxy"
            )
        if error and self.proxy_only:
            hosts = ", ".join(self.proxy_only[:_MAX_NOTES])
            notes.append(
                f"network: this sandbox reaches {hosts} only through the HTTP proxy, "
                "not by plain sockets; `toolkiln doctor` shows what it supports"
            )
        return notes


@dataclass(frozen=True, slots=True)
class Networks:
    """Connects sandboxes to granted hosts."""

    allow_private: tuple[str, ...] = ()
    """Private address ranges that granted names may resolve to."""
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
            BackendError: the process did not send its listeners.
        """
        planned = {(each.address, each.port): each for each in endpoints}
        received = await _receive_listeners(near, len(planned) + 1)
        listeners = {each.getsockname(): each for each in received}
        bound = {listeners.pop(name): planned[name] for name in planned if name in listeners}
        if len(listeners) != 1:
            raise BackendError("the sandbox has no network: it ended before it sent its listeners")
        ((address, listener),) = listeners.items()
        direct = {(each.host, each.port) for each in bound.values()}
        missing = [
            (rule.host, port)
            for rule in rules.rules
            for port in rule.ports
            if "*" not in rule.host and (rule.host, port) not in direct
        ]
        has_localhost = not any(host == "localhost" for host, _ in missing)
        access = NetworkAccess(
            rules=rules,
            variables=proxy_environment(address[1], bypass_localhost=has_localhost),
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


def proxy_environment(port: int, *, bypass_localhost: bool = True) -> dict[str, str]:
    """Return the variables that point HTTP clients to the proxy inside the sandbox.

    Both spellings: curl ignores an upper-case HTTP_PROXY, urllib ignores it under CGI, and
    other programs read nothing else. Loopback bypasses the proxy, for servers of the tool and
    for the endpoint of a granted `localhost`. Without that endpoint, pass
    `bypass_localhost=False`: then the proxy takes its place.
    """
    proxy = f"http://127.0.0.1:{port}"
    direct = "localhost,127.0.0.1" if bypass_localhost else "127.0.0.1"
    variables = {"http_proxy": proxy, "https_proxy": proxy, "no_proxy": direct}
    return variables | {name.upper(): value for name, value in variables.items()}


async def _receive_listeners(near: socket.socket, count: int) -> list[socket.socket]:
    """Receive the listeners that the sandbox sends before any code of the tool runs."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(near, readable.cancel)
    try:
        await asyncio.wait([readable])
    finally:
        loop.remove_reader(near)
    _, descriptors, flags, _ = socket.recv_fds(near, 1, count)
    listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    if flags & socket.MSG_CTRUNC:
        for listener in listeners:
            listener.close()
        raise BackendError(
            "the sandbox has no network: this process has too many open files",
            hint="raise the limit on open files (`ulimit -n`)",
        )
    return listeners
