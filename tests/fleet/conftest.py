"""Redis servers, connections to them, and fleets that several modules use."""

import shutil
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from toolkiln.fleet.address import read_address
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.supervisor import open_pipe

from . import servers
from .contract_tools import SETTINGS, SOURCE
from .queues import Desk, desk
from .servers import Proxy, Server
from .workers import tools_folder, worker


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    """A server that lives as long as the session."""
    # Not pytest's own folder, whose path may be too long for a socket.
    folders = tempfile.TemporaryDirectory(prefix="toolkiln-redis-", dir="/tmp")
    with folders as folder, servers.running(Path(folder)) as server:
        yield server


@pytest.fixture
def server(shared_server: Server) -> Server:
    """A server with nothing on it."""
    with closing(shared_server.client()) as client:
        client.flushall()
    return shared_server


@pytest.fixture(scope="module")
def module_server(shared_server: Server) -> Server:
    """A server with nothing on it when the module starts."""
    with closing(shared_server.client()) as client:
        client.flushall()
    return shared_server


@pytest.fixture
def behind(server: Server) -> Iterator[Any]:
    """A client that looks into the server."""
    with closing(server.client()) as client:
        yield client


@pytest.fixture
async def pipe(server: Server) -> AsyncIterator[RedisPipe]:
    async with open_pipe(RedisPipe(read_address(server.url))) as opened:
        yield opened


@pytest.fixture
async def own(server: Server) -> AsyncIterator[Desk]:
    async with desk(server.url) as opened:
        yield opened


@pytest.fixture(scope="session")
def contract_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a fleet of its own with one worker, which serves the contract's tools."""
    tools = tools_folder(tmp_path_factory.mktemp("contract"), SETTINGS, contract=SOURCE)
    folders = tempfile.TemporaryDirectory(prefix="toolkiln-redis-", dir="/tmp")
    with folders as folder, servers.running(Path(folder)) as server, worker(server.url, tools):
        yield server.url


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for a server of the test's own, short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="toolkiln-redis-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def certificate(folder: Path) -> Path:
    """A certificate of 127.0.0.1, signed by itself, with its key in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    file = folder / "certificate.pem"
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(file), "-out", "-"]
    made = subprocess.run([openssl, "req", *options, *names], capture_output=True, check=True)
    with file.open("ab") as output:
        output.write(made.stdout)
    return file


@pytest.fixture
def tls_port(server: Server, certificate: Path) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with closing(Proxy(server, context)) as proxy:
        yield proxy.port
