"""Sessions and buckets of each kind, Redis and the store, and time that passes when told to."""

import shutil
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
import redis

from toolkiln.fleet.address import open_redis, read_address
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.security_stores import RedisBuckets, RedisSessions
from toolkiln.fleet.supervisor import open_pipe
from toolkiln.model.identity import SessionRecord
from toolkiln.model.policy import Draw
from toolkiln.store.store import open_store

from . import servers
from .contract_tools import SETTINGS, SOURCE
from .queues import Desk, desk
from .servers import Proxy, Server
from .workers import tools_folder, worker


class SessionsLike(Protocol):
    def put(self, token_hash: str, session: SessionRecord, seconds: float) -> None: ...
    def get(
        self, token_hash: str, *, running: bool = False
    ) -> tuple[SessionRecord, float] | None: ...
    def renew(self, token_hash: str, seconds: float) -> bool: ...
    def end(self, token_hash: str) -> bool: ...
    def end_by_trace_id(self, trace_id: str) -> SessionRecord | None: ...
    def end_by_key(self, key_id: str) -> int: ...
    def alive(self, limit: int = 100) -> list[tuple[SessionRecord, float]]: ...


class BucketsLike(Protocol):
    def take(self, draws: Sequence[Draw]) -> float: ...


@dataclass(frozen=True)
class Guards:
    """What is tested, and how to let time pass for it; less than none sets the clock back."""

    place: str
    sessions: SessionsLike
    buckets: BucketsLike
    wait: Callable[[float], None]


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


@pytest.fixture(scope="module")
def contract_fleet(
    module_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of a fleet with one worker, which serves the contract's tools."""
    tools = tools_folder(tmp_path_factory.mktemp("worker"), SETTINGS, contract=SOURCE)
    with worker(module_server.url, tools):
        yield module_server.url


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


@pytest.fixture
def redis_guards(server: Server) -> Iterator[Guards]:
    with closing(open_redis(server.url)) as connection, closing(server.client()) as behind:
        yield Guards(
            server.url,
            RedisSessions(connection),
            RedisBuckets(connection),
            lambda seconds: age(behind, seconds),
        )


@pytest.fixture
def store_guards(tmp_path: Path) -> Iterator[Guards]:
    now = [1_000_000.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    place = str(tmp_path / "store.db")
    with closing(open_store(place, clock=lambda: now[0])) as store:
        yield Guards(place, store.sessions, store.buckets, wait)


@pytest.fixture(params=["redis", "store"])
def guards(request: pytest.FixtureRequest) -> Guards:
    """Each kind in turn."""
    found: Guards = request.getfixturevalue(f"{request.param}_guards")
    return found


@pytest.fixture
def sessions(guards: Guards) -> SessionsLike:
    return guards.sessions


@pytest.fixture
def buckets(guards: Guards) -> BucketsLike:
    return guards.buckets


def age(client: "redis.Redis", seconds: float) -> None:
    """Makes all there is older, which is the same to it as a clock that went on."""
    milliseconds = round(seconds * 1000)
    for key in client.scan_iter(count=1000):
        if client.type(key) == b"zset":
            for member, score in client.zscan_iter(key):
                client.zadd(key, {member: score - milliseconds})
        else:
            for field, unit in ((b"expires", 1), (b"made", 1000), (b"at", 1000)):
                if int(client.hget(key, field) or 0):
                    client.hincrby(key, field, -milliseconds * unit)
        client.pexpire(key, client.pttl(key) - milliseconds)
