"""Networks: a tool reaches only granted hosts, and without a grant none."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tables import each_row
from toolkiln.kiln import Kiln
from toolkiln.model.call import Event, Result, Status

from .conftest import BOUND, TRYING, kiln_with_network, skip_without

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOOLS = '''
"""Ways to the network."""

import os
import socket
import time
import urllib.error
import urllib.request

from trying import tried

from toolkiln import Context, tool


def _families():
    families = {"inet": (2, 1, 0), "inet6": (10, 1, 0), "unix": (1, 1, 0), "netlink": (16, 3, 0),
                "packet": (17, 3, 0), "vsock": (40, 1, 0), "alg": (38, 5, 0), "raw": (2, 3, 1),
                "bluetooth": (31, 1, 0), "can": (29, 3, 1), "xdp": (44, 3, 0), "tipc": (30, 1, 0),
                "old packet": (2, 10, 3), "sctp": (2, 5, 132), "mptcp": (2, 1, 262)}
    return {name: tried(lambda: socket.socket(*f).close()) for name, f in families.items()}


@tool
def families_without() -> dict[str, str]:
    """Open sockets of every kind."""
    return _families()


@tool
def pairs() -> list[str]:
    """Open pairs of sockets, one of which could be sent anywhere."""
    return [tried(lambda: socket.socketpair(1, kind)) for kind in (2, 3)]


@tool
def resolve_without(host: str) -> str:
    """Look a name up."""
    return tried(lambda: socket.getaddrinfo(host, 80))


@tool(network=["granted.example:PORT"])
def families_with() -> dict[str, str]:
    """Open sockets of every kind."""
    return _families()


@tool(network=["granted.example:PORT"])
def fetch(url: str) -> str:
    """Fetch a page as one should."""
    try:
        return str(urllib.request.urlopen(url, timeout=5).status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except OSError as error:
        return type(error).__name__


@tool(network=["granted.example:PORT"])
def ask_proxy(request: str) -> str:
    """Say anything to the proxy."""
    host, port = os.environ["http_proxy"].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 5) as proxy:
        proxy.sendall(request.encode())
        return proxy.recv(200).decode().partition("\\r\\n")[0]


@tool(network=["granted.example:PORT"])
def connect(host: str, port: int) -> str:
    """Connect past the proxy."""
    return tried(lambda: socket.create_connection((host, port), 2).close())


@tool(network=["granted.example:PORT"])
def connect_path(path: str) -> str:
    """Connect to a socket of the host by its path, or its abstract name."""
    with socket.socket(socket.AF_UNIX) as there:
        return tried(lambda: there.connect(path))


@tool(network=["granted.example:PORT"])
def own_proxy(context: Context) -> int:
    """Tell where one's proxy is, and keep it for a while."""
    port = int(os.environ["http_proxy"].rpartition(":")[2])
    context.log(str(port))
    time.sleep(1)
    return port


@tool(network=["granted.example:PORT", "other.example:PORT"])
def greedy() -> str:
    """Ask for more than was granted."""
    return "ran"


@tool(sandbox=False, network=["granted.example:PORT"])
def unsandboxed() -> str:
    """Run outside the sandbox."""
    return "ran"
'''
WARM = '''
"""A tool that is worth being kept warm."""

import time
import urllib.request

import pydantic

from toolkiln import tool

IMPORTED = time.time()


@tool(network=["*.wild.example:PORT"])
def fetch_warm(url: str, since: float) -> list[object]:
    """Fetch a page; tell whether this was imported before a moment."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return [answer.status, since > IMPORTED]
'''


@dataclass
class Networked:
    """A service with a granted host, and servers of the host that are not granted."""

    kiln: Kiln
    port: int
    path: Path
    abstract: str
    reached: list[bytes] = field(default_factory=list)
    """What the host's servers heard."""

    async def call(self, tool: str, /, **arguments: Any) -> Result:
        result = await self.kiln.call(tool, arguments)
        assert result.error is None or result.status is Status.DENIED, result.error
        return result

    async def value(self, tool: str, /, **arguments: Any) -> Any:
        return (await self.call(tool, **arguments)).value


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["A", "B"])
async def networked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Networked]:
    folder = tmp_path_factory.mktemp("net")
    reached: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            reached.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    web = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = web.sockets[0].getsockname()[1]
    path, abstract = folder / "host.sock", f"\0toolkiln-{folder.name}-{port}"
    by_path = await asyncio.start_unix_server(serve, path)
    path.chmod(0o777)
    by_name = await asyncio.start_unix_server(serve, abstract)
    sources = {"net.py": TOOLS, "warm.py": WARM, "trying.py": TRYING}
    ported = {name: source.replace("PORT", str(port)) for name, source in sources.items()}
    network = [f"granted.example:{port}", f"*.wild.example:{port}"]
    grants = {"*": {"network": network}, "unsandboxed": {"network": network, "sandbox": False}}
    opened = kiln_with_network(
        folder, request.param, ported, network, grants=grants, private_networks=("127.0.0.1/32",)
    )
    async with web, by_path, by_name, opened as kiln:
        await skip_without(kiln, request.param, "families_without")
        yield Networked(kiln, port, path, abstract, reached)


async def test_without_a_grant_there_are_no_sockets(networked: Networked) -> None:
    outcomes = await networked.value("families_without")

    assert set(outcomes.values()) == {"EAFNOSUPPORT"}
    assert await networked.value("resolve_without", host="localhost") != "done"


async def test_datagram_pairs_of_sockets_cannot_be_made(networked: Networked) -> None:
    assert set(await networked.value("pairs")) == {"EPERM"}


async def test_with_a_grant_there_are_ordinary_sockets_only(networked: Networked) -> None:
    outcomes = await networked.value("families_with")

    allowed = {name for name, said in outcomes.items() if said == "done"}
    assert allowed <= {"inet", "inet6", "unix"}


async def test_the_granted_host_is_reached(networked: Networked) -> None:
    heard = len(networked.reached)

    said = await networked.value("fetch", url=f"http://granted.example:{networked.port}/")

    assert said == "200"
    assert len(networked.reached) == heard + 1


async def test_a_wildcard_covers_hosts_for_a_warm_tool_too(networked: Networked) -> None:
    url = f"http://sub.wild.example:{networked.port}/"
    async with asyncio.timeout(BOUND):
        is_warm = False
        while not is_warm:
            status, is_warm = await networked.value("fetch_warm", url=url, since=time.time())
            assert status == 200


async def test_an_unsandboxed_tool_with_a_network_runs(networked: Networked) -> None:
    result = await networked.call("unsandboxed")

    assert (result.value, result.sandbox) == ("ran", "none")


@each_row(
    "host",
    [
        "other.example", "localhost", "127.0.0.1", "127.1", "0177.0.0.1", "2130706433", "0x7f.1",
        "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254", "granted.example.a.b",
        "sub.granted.example", "granted.example.", "xgranted.example", "gr\u0430nted.example",
    ],
)  # fmt: skip
async def test_no_other_host_is_reached(networked: Networked, host: str) -> None:
    heard = len(networked.reached)
    line = f"CONNECT {host}:{networked.port} HTTP/1.1\r\nHost: granted.example\r\n\r\n"

    asked = await networked.value("ask_proxy", request=line + "GET / HTTP/1.1\r\n\r\n")

    assert " 200" not in asked
    assert len(networked.reached) == heard


@each_row("port", [22, 80, 443])
async def test_no_other_port_is_reached(networked: Networked, port: int) -> None:
    said = await networked.value("fetch", url=f"http://granted.example:{port}/")

    assert said == "403"


async def test_what_is_refused_is_noted(networked: Networked) -> None:
    notes: set[str] = set()
    for _ in range(5):  # in a warm worker the note of a call may come too late for it
        result = await networked.call("fetch", url="http://other.example/")
        assert result.value == "403"
        notes.update(result.notes)

    assert any("other.example" in note for note in notes)
    granted = await networked.call("fetch", url=f"http://granted.example:{networked.port}/")
    assert granted.notes == ()


async def test_the_hosts_unix_sockets_cannot_be_reached(networked: Networked) -> None:
    heard = len(networked.reached)

    by_path = await networked.value("connect_path", path=str(networked.path))
    by_name = await networked.value("connect_path", path=networked.abstract)

    assert by_path in ("ENOENT", "EACCES")
    assert by_name in ("ECONNREFUSED", "EPERM")
    assert len(networked.reached) == heard


async def test_the_proxy_of_another_call_cannot_be_reached(networked: Networked) -> None:
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def observe(event: Event) -> None:
        if event.kind == "log" and re.fullmatch(r"\d+", event.text) and not told.done():
            told.set_result(int(event.text))

    other = asyncio.create_task(networked.kiln.call("own_proxy", {}, observe=observe))
    async with asyncio.timeout(BOUND):
        port = await told
    outcomes = [await networked.value("connect", host="127.0.0.1", port=port) for _ in range(3)]
    await other

    # A proxy of its own may happen to have the number.
    assert outcomes.count("ECONNREFUSED") >= 2


async def test_asking_for_more_than_granted_is_denied(networked: Networked) -> None:
    result = await networked.call("greedy")

    assert result.error is not None
    assert (result.status, result.error.code) == (Status.DENIED, "not_granted")
    network = f'["granted.example:{networked.port}", "other.example:{networked.port}"]'
    assert f"[grants.greedy] network = {network}" in str(result.error.hint)
