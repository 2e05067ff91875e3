"""Attacks by plain sockets: an endpoint leads only to its granted host and port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

import pytest
import pytest_asyncio

from sandbox.network.loopback import server
from tables import each_row
from toolkiln.kiln import Kiln
from toolkiln.sandbox.network.addresses import Address

from .conftest import TRYING, kiln_with_network, skip_without

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOOLS = '''
"""Ways past an endpoint."""

import errno
import os
import socket
import struct

from trying import tried

from toolkiln import tool


@tool(network=["granted.example:@PORT@", "low.example"], timeout=120)
def scan(addresses: list[str]) -> list:
    """Try every port of some addresses; tell which accept."""
    proxy = int(os.environ["http_proxy"].rpartition(":")[2])
    found = []
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        there = socket.socket(family)
        for port in range(1, 65536):
            code = there.connect_ex((address, port))
            if code == errno.ECONNREFUSED:
                continue  # the socket can be used again, which is faster than a new one
            # Unless it happened to get this very port, and reached itself.
            if code == errno.ECONNRESET or (
                code == 0 and there.getsockname()[:2] != (address, port)
            ):
                found.append([address, "proxy" if port == proxy else port])
            there.close()
            there = socket.socket(family)
    return found


@tool(network=["granted.example:@PORT@", "low.example"])
def say(address: str, port: int, text: str) -> str:
    """Say anything to an address."""
    try:
        with socket.create_connection((address, port), 5) as there:
            there.sendall(text.encode())
            there.shutdown(socket.SHUT_WR)
            return there.makefile("rb").read().decode()
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)


@tool(network=["granted.example:@PORT@", "low.example"])
def change_names() -> dict[str, str]:
    """Make a name lead elsewhere."""
    def replace():
        open("/tmp/hosts", "w").write("127.1.0.1 other.example")
        os.rename("/tmp/hosts", "/etc/hosts")

    return {
        "append": tried(lambda: open("/etc/hosts", "a").close()),
        "chmod": tried(lambda: os.chmod("/etc/hosts", 0o666)),
        "unlink": tried(lambda: os.unlink("/etc/hosts")),
        "replace": tried(replace),
        "resolver": tried(lambda: open("/etc/resolv.conf", "w").close()),
        "switch": tried(lambda: open("/etc/nsswitch.conf", "w").close()),
    }


@tool(network=["granted.example:@PORT@", "low.example"])
def take_the_place(port: int) -> list[str]:
    """Listen where the endpoints listen."""
    def listen(address, port, *options):
        with socket.socket() as own:
            for option in options:
                own.setsockopt(socket.SOL_SOCKET, option, 1)
            own.bind((address, port))
            own.listen()

    reuse = socket.SO_REUSEADDR, socket.SO_REUSEPORT
    return [
        tried(lambda: listen("127.1.0.1", port)),
        tried(lambda: listen("127.1.0.1", port, *reuse)),
        tried(lambda: listen("0.0.0.0", port, *reuse)),
        tried(lambda: listen("127.1.0.2", 443, *reuse)),
        tried(lambda: listen("127.1.0.3", 443)),
    ]


@tool(network=["granted.example:@PORT@", "low.example"])
def rights() -> dict[str, str]:
    """Tell what is left of the rights that listening needed."""
    lines = open("/proc/self/status").read().splitlines()
    told = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
    names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Uid")
    return {name: told[name] for name in names}


@tool(network=["granted.example:@PORT@", "low.example"])
def sockets() -> list[int]:
    """Tell which descriptors are listening sockets."""
    found = []
    for number in range(256):
        try:
            with socket.socket(fileno=os.dup(number)) as one:
                if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found.append(number)
        except OSError:
            pass
    return found


@tool(network=["granted.example:@PORT@", "low.example"])
def crowd(count: int) -> list[str]:
    """Open many connections, half of them silent; talk on all that are left."""
    held, said = [], []
    for _ in range(count):
        there = socket.socket()
        there.settimeout(10)
        there.connect_ex(("127.1.0.1", @PORT@))
        held.append(there)
    for there in held:
        try:
            there.sendall(b"hello")
            there.shutdown(socket.SHUT_WR)
            said.append(there.makefile("rb").read().decode())
        except OSError as error:
            said.append(errno.errorcode.get(error.errno, type(error).__name__))
    return said


@tool(network=["granted.example:@PORT@", "low.example"])
def abort(count: int) -> None:
    """Open connections and reset them at once."""
    for _ in range(count):
        with socket.socket() as there:
            there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            there.connect_ex(("127.1.0.1", @PORT@))
'''


@dataclass
class Attacked:
    """A service with two granted hosts, one of them with nothing behind it."""

    kiln: Kiln
    port: int
    heard: list[bytes] = field(default_factory=list)
    looked_up: list[tuple[str, int]] = field(default_factory=list)
    at_once: list[int] = field(default_factory=list)
    """How many connections the host had, whenever one arrived."""

    async def value(self, tool: str, /, **arguments: Any) -> Any:
        result = await self.kiln.call(tool, arguments)
        assert result.error is None, result.error
        return result.value


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["A", "B"])
async def attacked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    heard: list[bytes] = []
    looked_up: list[tuple[str, int]] = []
    at_once: list[int] = []
    now_open: set[asyncio.StreamWriter] = set()

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        now_open.add(writer)
        at_once.append(len(now_open))
        try:
            data = b""
            with suppress(OSError):
                data = await reader.read()
            heard.append(data)
            writer.write(data)
            await writer.drain()
        finally:
            now_open.discard(writer)

    async def resolve(host: str, port: int) -> list[Address]:
        looked_up.append((host, port))
        return [ip_address("127.0.0.1" if host == "granted.example" else "169.254.169.254")]

    async with server(record) as port:
        sources = {"attack.py": TOOLS.replace("@PORT@", str(port)), "trying.py": TRYING}
        async with kiln_with_network(
            folder,
            request.param,
            sources,
            [f"granted.example:{port}", "low.example"],
            resolve=resolve,
            private_networks=("127.0.0.1/32",),
            limits={"timeout": 120},
        ) as kiln:
            await skip_without(kiln, request.param, "sockets")
            yield Attacked(kiln, port, heard, looked_up, at_once)


async def test_endpoints_and_the_proxy_are_all_that_accepts(attacked: Attacked) -> None:
    addresses = ["127.0.0.1", "127.1.0.1", "127.1.0.2", "127.1.0.3", "::1"]

    found = await attacked.value("scan", addresses=addresses)

    assert len(found) == 4
    assert set(map(tuple, found)) == {
        ("127.0.0.1", "proxy"), ("127.1.0.1", attacked.port), ("127.1.0.2", 80), ("127.1.0.2", 443),
    }  # fmt: skip


@each_row(
    "address, answers",
    [
        *(
            (address, {"ECONNREFUSED", "EADDRNOTAVAIL", "ENETUNREACH"})
            for address in (
                "127.0.0.1", "0.0.0.0", "::1", "127.0.0.2", "127.1.0.3", "127.255.255.254",
            )
        ),
        *(
            (address, {"ENETUNREACH", "EADDRNOTAVAIL", "EINVAL"})
            for address in ("10.0.0.1", "169.254.169.254", "1.1.1.1", "fe80::1", "2600::")
        ),
    ],
)  # fmt: skip
async def test_the_port_of_an_endpoint_is_served_at_its_own_address_only(
    attacked: Attacked, address: str, answers: set[str]
) -> None:
    heard = len(attacked.heard)

    said = await attacked.value("say", address=address, port=attacked.port, text="hello")

    assert said in answers
    assert len(attacked.heard) == heard


async def test_the_mapped_address_of_an_endpoint_is_that_endpoint(attacked: Attacked) -> None:
    said = await attacked.value("say", address="::ffff:127.1.0.1", port=attacked.port, text="hello")

    assert said in ("hello", "ENETUNREACH")


async def test_proxy_requests_at_an_endpoint_go_to_its_host_unchanged(attacked: Attacked) -> None:
    text = "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: low.example\r\n\r\n"
    looked_up = len(attacked.looked_up)

    said = await attacked.value("say", address="127.1.0.1", port=attacked.port, text=text)

    assert said == text
    assert set(attacked.looked_up[looked_up:]) == {("granted.example", attacked.port)}


async def test_a_granted_name_that_resolves_to_a_private_address_is_refused(
    attacked: Attacked,
) -> None:
    result = await attacked.kiln.call("say", {"address": "low.example", "port": 443, "text": "x"})

    assert result.value == "ECONNRESET"


async def test_names_cannot_be_changed(attacked: Attacked) -> None:
    outcomes = await attacked.value("change_names")

    assert set(outcomes.values()) <= {"EACCES", "EROFS", "EPERM", "EBUSY", "EXDEV"}, outcomes


async def test_nothing_else_can_listen_in_the_place_of_an_endpoint(attacked: Attacked) -> None:
    outcomes = await attacked.value("take_the_place", port=attacked.port)

    assert outcomes[:4] == ["EADDRINUSE", "EADDRINUSE", "EADDRINUSE", "EACCES"]
    assert outcomes[4] == "EACCES"


async def test_no_right_is_left_that_listening_needed(attacked: Attacked) -> None:
    left = await attacked.value("rights")

    capabilities = {name: value for name, value in left.items() if name.startswith("Cap")}
    assert set(capabilities.values()) == {"0000000000000000"}
    assert (left["NoNewPrivs"], left["Seccomp"]) == ("1", "2")
    assert set(left["Uid"].split()) == {"1000"}


async def test_no_listener_stays_inside(attacked: Attacked) -> None:
    assert await attacked.value("sockets") == []


async def test_many_half_open_connections_are_bounded_and_do_not_harm_the_next_call(
    attacked: Attacked,
) -> None:
    said = await attacked.value("crowd", count=200)
    again = await attacked.value("say", address="127.1.0.1", port=attacked.port, text="again")

    assert 0 < said.count("hello") < 200
    assert max(attacked.at_once) <= 64
    assert set(said) <= {"hello", "ECONNRESET", "EPIPE", "ENOTCONN", ""}
    assert again == "again"


async def test_connections_that_are_reset_at_once_do_not_harm_the_next_call(
    attacked: Attacked,
) -> None:
    await attacked.value("abort", count=150)

    said = await attacked.value("say", address="127.1.0.1", port=attacked.port, text="again")

    assert said == "again"
