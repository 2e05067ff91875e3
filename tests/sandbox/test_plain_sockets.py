"""Granted hosts by plain sockets: every library reaches them, with nothing to configure."""

import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from fleet.servers import free_port
from fleet.servers import running as redis_server
from sandbox.environments.index import installed_wheel, offline
from sandbox.network.loopback import echo, server
from store.servers import postgres_server
from tables import each_row
from toolkiln.kiln import Kiln
from toolkiln.model.call import Result
from toolkiln.sandbox.network.addresses import Address

from .conftest import kiln_with_network, skip_without
from .services import mail_server, self_signed, web

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOOLS = '''
"""Clients that use no proxy."""

import http.client
import smtplib
import socket
import ssl
import urllib.request

from toolkiln import tool

CA = """{ca}"""


@tool(network=["echo.internal:{echo}"])
def say(text: str) -> str:
    """Send a text and read it back."""
    with socket.create_connection(("echo.internal", {echo}), 10) as there:
        there.sendall(text.encode())
        there.shutdown(socket.SHUT_WR)
        return there.makefile("rb").read().decode()


@tool(network=["echo.internal:{echo}"])
def shout(size: int) -> int:
    """Send many bytes while reading them back."""
    import threading

    with socket.create_connection(("echo.internal", {echo}), 10) as there:

        def send():
            there.sendall(bytes(size))
            there.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=send)
        thread.start()
        read = len(there.makefile("rb").read())
        thread.join()
        return read


@tool(network=["secure.internal:{secure}", "impostor.internal:{impostor}"])
def fetch(host: str, port: int) -> str:
    """Fetch a page by HTTPS, and verify who answers."""
    context = ssl.create_default_context(cadata=CA)
    connection = http.client.HTTPSConnection(host, port, context=context, timeout=10)
    connection.request("GET", "/page")
    return connection.getresponse().read().decode()


@tool(network=["mail.internal:{mail}"])
def send_mail(text: str) -> int:
    """Send a mail."""
    with smtplib.SMTP("mail.internal", {mail}, timeout=10) as server:
        server.sendmail("a@mail.internal", ["b@mail.internal"], "Subject: x\\r\\n\\r\\n" + text)
        return server.noop()[0]


@tool(network=["localhost:{echo}", "localhost:{web}"])
def say_to_localhost(text: str) -> list[str]:
    """Talk to this machine by a plain socket and by a client that reads proxy variables."""
    with socket.create_connection(("localhost", {echo}), 10) as there:
        there.sendall(text.encode())
        there.shutdown(socket.SHUT_WR)
        heard = there.makefile("rb").read().decode()
    with urllib.request.urlopen("http://localhost:{web}/page", timeout=10) as answer:
        return [heard, answer.read().decode()]


@tool(network=["plain.internal"])
def connect_to_default_ports() -> list[str]:
    """Connect to the ports that a host without a port stands for."""
    return [_answer("plain.internal", port) for port in (80, 443)]


def _answer(host, port):
    with socket.create_connection((host, port), 10) as there:
        there.sendall(b"GET /page HTTP/1.1\\r\\n\\r\\n")
        return there.makefile("rb").read().decode().rpartition("\\r\\n")[2]


@tool(network=["echo.internal:{echo}", "*.wild.internal:{echo}"])
def look_up(host: str) -> list[str]:
    """Look a name up."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return ["gaierror", str(error.errno == socket.EAI_NONAME)]
    return [info[4][0] for info in found]


@tool(network=["absent.internal:{absent}", "*.wild.internal:{echo}"])
def reach(host: str) -> str:
    """Talk to a host that does not answer."""
    with socket.create_connection((host, {absent}), 10) as there:
        return there.recv(100).decode()


@tool(network=["echo.internal:{echo}", "localhost:{echo}", "*.wild.internal:{echo}"])
def read_hosts() -> str:
    """Read the names that resolve."""
    return open("/etc/hosts").read()


@tool
def read_hosts_offline() -> str:
    """Read the names that resolve without a network."""
    return open("/etc/hosts").read()
'''
DATABASES = '''
# /// script
# dependencies = ["psycopg=={psycopg}", "psycopg-binary=={psycopg}", "redis"]
# ///
"""Drivers that use no proxy."""

import psycopg
import redis

from toolkiln import tool


@tool(network=["db.internal:{postgres}"], memory="1GB")
def query(number: int) -> list:
    """Ask PostgreSQL."""
    where = "host=db.internal port={postgres} user=toolkiln dbname=postgres connect_timeout=10"
    with psycopg.connect(where) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (number int)")
        connection.execute("INSERT INTO numbers VALUES (%s)", [number])
        rows = connection.execute("SELECT number FROM numbers WHERE number = %s", [number])
        return [psycopg.pq.__impl__, *rows.fetchone()]


@tool(network=["cache.internal:{redis}"], memory="1GB")
def remember(key: str, value: str) -> list[str]:
    """Write to Redis and read it back."""
    cache = redis.Redis("cache.internal", {redis}, socket_timeout=10, decode_responses=True)
    cache.set(key, value)
    return [cache.get(key), cache.info("server")["redis_version"]]
'''


@dataclass
class Reached:
    """A service whose tools have clients that read no proxy variables."""

    kiln: Kiln
    ports: dict[str, int]
    mails: list[str]
    mode: str
    has_low_ports: bool
    """Whether there is something to reach at the default ports."""

    async def call(self, tool: str, /, **arguments: Any) -> Result:
        return await self.kiln.call(tool, arguments)

    async def value(self, tool: str, /, **arguments: Any) -> Any:
        result = await self.call(tool, **arguments)
        assert result.error is None, (result.error, result.notes)
        assert result.sandbox == self.mode
        return result.value


async def lead_here(host: str, port: int) -> list[Address]:
    """Names lead to this machine, one of them to an address where low ports are free."""
    return [ip_address(LOW_ADDRESS if host == "plain.internal" else "127.0.0.1")]


LOW_ADDRESS = f"127.77.{os.getpid() % 250}.{os.getpid() // 250 % 250 + 1}"


def low_ports_can_be_bound() -> bool:
    """Whether this process may serve port 80 itself, so that there is something to reach."""
    try:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((LOW_ADDRESS, 80))
    except OSError:
        return False
    return True


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["A", "B"])
async def reached(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Reached]:
    folder = tmp_path_factory.mktemp("plain")
    trusted, secure = self_signed(folder, "secure.internal")
    also_trusted, other = self_signed(folder, "other.internal")
    mails: list[str] = []
    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        ports = {
            "echo": await start(server(echo)),
            "web": await start(server(web)),
            "secure": await start(server(web, secure)),
            "impostor": await start(server(web, other)),
            "mail": await start(server(mail_server(mails))),
            "absent": free_port(),
        }
        has_low_ports = low_ports_can_be_bound()
        if has_low_ports:
            await start(server(web, address=LOW_ADDRESS, port=80))
            await start(server(web, address=LOW_ADDRESS, port=443))
        granted = ("echo", "secure", "impostor", "mail", "absent")
        hosts = [f"{name}.internal:{ports[name]}" for name in granted]
        hosts += [f"localhost:{ports['echo']}", f"localhost:{ports['web']}", "plain.internal"]
        hosts += [f"*.wild.internal:{ports['echo']}"]
        sources = {"clients.py": TOOLS.format(ca=trusted + also_trusted, **ports)}
        opened = kiln_with_network(folder, request.param, sources, hosts, resolve=lead_here)
        kiln = await start(opened)
        await skip_without(kiln, request.param, "read_hosts_offline")
        yield Reached(kiln, ports, mails, request.param, has_low_ports)


async def test_a_raw_socket_reaches_a_granted_host(reached: Reached) -> None:
    assert await reached.value("say", text="hello") == "hello"
    assert await reached.value("shout", size=5_000_000) == 5_000_000


async def test_tls_with_host_name_verification_works(reached: Reached) -> None:
    port = reached.ports["secure"]

    assert await reached.value("fetch", host="secure.internal", port=port) == "GET /page HTTP/1.1"


async def test_a_server_with_the_certificate_of_another_host_is_not_trusted(
    reached: Reached,
) -> None:
    port = reached.ports["impostor"]

    result = await reached.call("fetch", host="impostor.internal", port=port)

    assert result.error is not None
    assert "CERTIFICATE_VERIFY_FAILED" in result.error.message


async def test_smtplib_sends_a_mail(reached: Reached) -> None:
    assert await reached.value("send_mail", text=f"hello from {reached.mode}") == 250
    assert f"hello from {reached.mode}" in reached.mails[-1]


async def test_granted_localhost_works_with_and_without_proxy_variables(reached: Reached) -> None:
    said = await reached.value("say_to_localhost", text="hello")

    assert said == ["hello", "GET /page HTTP/1.1"]


async def test_the_default_ports_of_a_host_are_served(reached: Reached) -> None:
    if not reached.has_low_ports:
        pytest.skip("this user cannot serve ports below 1024, so there is nothing to reach")

    assert await reached.value("connect_to_default_ports") == ["GET /page HTTP/1.1"] * 2


async def test_a_host_that_does_not_answer_resets_the_connection_with_a_note(
    reached: Reached,
) -> None:
    result = await reached.call("reach", host="absent.internal")

    assert result.error is not None
    assert "ConnectionResetError" in result.error.message
    port = reached.ports["absent"]
    assert f"no connection to absent.internal:{port}" in " ".join(result.notes)


async def test_every_granted_name_has_a_loopback_address_of_its_own(reached: Reached) -> None:
    assert await reached.value("read_hosts") == "127.1.0.1 echo.internal\n127.0.0.1 localhost\n"
    assert await reached.value("look_up", host="echo.internal") == ["127.1.0.1"]
    assert await reached.value("look_up", host="ECHO.internal") == ["127.1.0.1"]
    assert await reached.value("read_hosts_offline") == ""


@each_row(
    "host", ["secure.internal", "localhost", "a.wild.internal", "sub.echo.internal", "sandbox"]
)
async def test_other_names_do_not_resolve(reached: Reached, host: str) -> None:
    assert await reached.value("look_up", host=host) == ["gaierror", "True"]


async def test_a_name_that_does_not_resolve_is_explained(reached: Reached) -> None:
    result = await reached.call("reach", host="secure.internal")

    assert result.error is not None
    assert result.error.type == "gaierror"
    assert result.notes == (
        "network: only granted names resolve (absent.internal, *.wild.internal); "
        "names covered by a wildcard are reachable through the HTTP proxy",
    )


async def test_psycopg_and_redis_work_unmodified(tmp_path: Path) -> None:
    links = tmp_path / "links"
    backport = ("async-timeout",) if sys.version_info < (3, 11, 3) else ()  # redis needs it
    for name in ("psycopg", "psycopg-binary", "typing-extensions", "redis", *backport):
        installed_wheel(links, name)
    environ = {**os.environ, **offline(tmp_path / "cache", links)}
    (tmp_path / "redis").mkdir()
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="toolkiln-pg-", dir="/tmp") as folder,
        postgres_server(folder, port=port) as url,
        redis_server(tmp_path / "redis") as cache,
    ):
        ports = {"postgres": port, "redis": cache.port}
        sources = {"databases.py": DATABASES.format(**ports, psycopg=psycopg.__version__)}
        network = [f"db.internal:{port}", f"cache.internal:{cache.port}"]
        for mode in ("A", "B"):
            async with kiln_with_network(tmp_path, mode, sources, network, environ=environ) as kiln:
                for number in range(3):
                    asked = await kiln.call("query", {"number": number})
                    kept = await kiln.call("remember", {"key": mode, "value": str(number)})

                    assert (asked.error, kept.error) == (None, None), (asked.notes, kept.notes)
                    assert asked.value == ["binary", number]
                    assert kept.value[0] == str(number)
        with psycopg.connect(url) as connection:
            rows = connection.execute("SELECT number FROM numbers").fetchall()
        assert sorted(rows) == [(0,), (0,), (1,), (1,), (2,), (2,)]
        with cache.client() as client:
            assert (client.get("A"), client.get("B")) == (b"2", b"2")
