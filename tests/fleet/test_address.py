"""From a URL to a server: what is understood, what fails and how, and no password in messages."""

import asyncio
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tables import each_row
from toolkiln.errors import StoreError, Unreachable
from toolkiln.fleet import address, connection
from toolkiln.fleet.address import Address, open_redis, read_address
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.security_stores import RedisBuckets, RedisSessions
from toolkiln.model.identity import Caller, SessionRecord
from toolkiln.model.policy import Draw, Rate

from . import servers
from .servers import Proxy, Server

DRAW = Draw("ann", Rate(50, 86_400))
SECRET = "s3cr3t/?%"
QUOTED = "s3cr3t%2F%3F%25"
RIGHTS = "+evalsha +script|load +@hash +@sortedset +del +pexpire +pexpireat +time"


@each_row(
    "url, address",
    [
        ("redis://h", Address("redis://h:6379/0", (("h", 6379),))),
        ("redis://h:1/2", Address("redis://h:1/2", (("h", 1),), database=2)),
        ("redis://[::1]:1", Address("redis://[::1]:1/0", (("::1", 1),))),
        (
            "redis://u%40:p%2F@h",
            Address("redis://h:6379/0", (("h", 6379),), username="u@", password="p/"),
        ),
        (
            "rediss://h?ssl_ca_certs=f",
            Address("rediss://h:6379/0", (("h", 6379),), tls=True, ssl_ca_certs="f"),
        ),
        ("unix://:p@/s%20?db=1", Address("unix:///s%20", path="/s ", database=1, password="p")),
        (
            "redis+sentinel://u:p@a,b:1/main/3",
            Address(
                "redis+sentinel://a:26379,b:1/main/3",
                (("a", 26379), ("b", 1)),
                service="main",
                database=3,
                username="u",
                password="p",
            ),
        ),
        (
            "rediss+sentinel://[::1]:1/main",
            Address("rediss+sentinel://[::1]:1/main/0", (("::1", 1),), service="main", tls=True),
        ),
    ],
)
def test_a_url_says_where_a_server_is(url: str, address: Address) -> None:
    assert read_address(url) == address


@each_row(
    "url",
    [
        "",
        "localhost",
        "http://localhost",
        "redis+sentinel://localhost/main",
        "redis+sentinel://a,b",
        "redis+sentinel://a,b/",
        "redis+sentinel:///main",
        "redis+sentinel://a,,b/main",
        "redis+sentinel://a/main/x",
        "redis+sentinel://a/main?x=y",
        "redis+sentinel://a:99999/main",
        "unix+sentinel:///main",
        "redis://a,b/0",
        "redis://",
        "redis:///0",
        "redis://localhost/one",
        "redis://localhost/1/2",
        "redis://localhost:99999",
        "redis://localhost:port",
        "redis://localhost?socket_timeout=0",
        "redis://localhost?ssl_ca_certs=x",
        "rediss://localhost?ssl_cert_reqs=none",
        "redis://localhost?x",
        "redis://local\0host",
        "redis://\ud800",
        "redis://[::1",
        "redis://a..b",
        "redis://nowhere.invalid",
        "unix://",
        "unix://relative/path",
        "unix:///path?db=x",
        "unix:///no%00where",
        f"redis://:{SECRET}@localhost",
        "redis://:s3cr3t#@localhost",
        "redis://:s3cr3t@2@localhost",
        "redis://:12/s3cr3t@localhost",
        "redis://user:12?s3cr3t=1@localhost",
        "s3cr3t",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_redis(url)

    assert caught.value.hint
    assert "s3cr3t" not in str(caught.value) + caught.value.hint


def hello(version: str) -> list[bytes]:
    return [b"server", b"redis", b"version", version.encode(), b"mode", b"standalone"]


def test_an_old_server_is_refused() -> None:
    for version in ("5.0.14", "6.0.16", "6", ""):
        with pytest.raises(StoreError, match="too old"):
            read_address("redis://h").check(hello(version))
    for version in ("6.2.0", "7.4.1", "10.0.0", "7.2.rc1"):
        read_address("redis://h").check(hello(version))


def test_without_its_package_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)

    with pytest.raises(StoreError) as caught:
        open_redis("redis://localhost")

    assert caught.value.hint == "pip install 'toolkiln[redis]'"


def test_importing_the_package_loads_no_redis() -> None:
    code = "import toolkiln.fleet, sys; sys.exit('redis' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


# Servers that both clients refuse: the blocking one, and the one with a connection for many tasks


def refusals(url: str) -> list[StoreError]:
    """What both clients say of a server that they cannot use."""
    with pytest.raises(StoreError) as blocking:
        open_redis(url)
    with pytest.raises(StoreError) as piped:
        asyncio.run(RedisPipe(read_address(url)).open())
    return [blocking.value, piped.value]


def test_a_closed_port_is_an_error_with_a_hint() -> None:
    blocking, piped = refusals(f"redis://:{QUOTED}@127.0.0.1:{servers.free_port()}")

    assert "refused" in str(blocking)
    assert isinstance(piped, Unreachable)
    assert not piped.sent
    for error in (blocking, piped):
        assert error.hint == "check that the server is running and the URL is correct"


def test_a_wrong_password_is_an_error_that_does_not_quote_it(folder: Path, server: Server) -> None:
    with servers.running(folder, "--requirepass", SECRET) as locked:
        for credentials, hint in (
            ("", "put user and password into the URL"),
            (":s3cr3twrong@", "check user and password in the URL"),
            ("s3cr3tuser:s3cr3twrong@", "check user and password in the URL"),
        ):
            errors = refusals(f"redis://{credentials}127.0.0.1:{locked.port}")
            assert [error.hint for error in errors] == [hint, hint]
            assert "s3cr3twrong" not in f"{errors}"
            assert errors[0].__suppress_context__  # of redis-py, whose tracebacks have it
        url = f"redis://:{QUOTED}@127.0.0.1:{locked.port}"
        with closing(open_redis(url)) as opened:
            assert RedisBuckets(opened).take([DRAW]) == 0.0
            pipe = RedisPipe(read_address(url))
            assert "s3cr3t" not in repr(opened) + opened.name + repr(pipe) + repr(pipe.address)
    assert all(error.hint for error in refusals(f"redis://:{QUOTED}@127.0.0.1:{server.port}"))


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+OK\r\n" * 9, b""])
def test_a_server_of_another_kind_is_an_error(server: Server, says: bytes) -> None:
    class Other(Proxy):
        def _serve(self, client: socket.socket) -> None:
            with client:
                client.sendall(says)

    with closing(Other(server)) as other:
        assert all(error.hint for error in refusals(f"redis://127.0.0.1:{other.port}"))


def test_a_server_that_does_not_answer_is_an_error_not_a_hang(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "_READ_SECONDS", 0.1)
    monkeypatch.setattr(connection, "_CONNECT_SECONDS", 0.1)
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        errors = refusals(f"redis://127.0.0.1:{mute.getsockname()[1]}")
    unencrypted = refusals(f"rediss://127.0.0.1:{server.port}")

    assert all("Timeout" in str(error) for error in errors)
    assert all(error.hint for error in unencrypted)


def test_a_cluster_is_refused(folder: Path) -> None:
    # It also listens 10,000 ports further up.
    port = next(port for port in iter(servers.free_port, None) if port < 55_000)
    with servers.running(folder, "--cluster-enabled", "yes", port=port) as server:
        assert all("Cluster" in str(error) for error in refusals(server.url))


def test_a_certificate_that_is_unknown_or_of_another_host_is_refused(
    tls_port: int, certificate: Path
) -> None:
    known = f"ssl_ca_certs={certificate}"
    with closing(open_redis(f"rediss://127.0.0.1:{tls_port}?{known}")) as opened:
        assert RedisBuckets(opened).take([DRAW]) == 0.0
    for place in (f"127.0.0.1:{tls_port}", f"localhost:{tls_port}?{known}"):
        assert all("certificate" in str(error.hint) for error in refusals(f"rediss://{place}"))
    missing = refusals(f"rediss://127.0.0.1:{tls_port}?ssl_ca_certs=/no/where")
    assert all(error.hint for error in missing)


# The blocking client


@each_row("place, database", [("", 0), ("/", 0), ("/0", 0), ("/3", 3), ("?db=2", 2)])
def test_a_server_is_used_by_port_or_socket_and_database(
    server: Server, place: str, database: int
) -> None:
    url = f"unix://{server.socket}{place}" if "?" in place else server.url + place
    with closing(server.client(db=database)) as client:
        client.flushdb()
        with closing(open_redis(url)) as opened:
            RedisBuckets(opened).take([DRAW])

        assert client.dbsize() == 1


def left(server: Server) -> float:
    """The tokens that were left after the last attempt to take some."""
    with closing(server.client()) as client:
        return float(client.hget(client.keys("*bucket*")[0], "tokens") or "nan")


def test_a_user_with_few_rights_is_enough(server: Server) -> None:
    with closing(server.client()) as client:
        client.acl_setuser(
            "few", enabled=True, passwords="+pw", keys=["toolkiln:*"], commands=RIGHTS.split()
        )
        with closing(open_redis(f"redis://few:pw@127.0.0.1:{server.port}")) as opened:
            taken = RedisBuckets(opened).take([DRAW])
            sessions = RedisSessions(opened)
            sessions.put("h", SessionRecord(trace_id="t", caller=Caller(), key_id="k"), 300)
            alive, ended = sessions.alive(), sessions.end_by_key("k")
        client.acl_deluser("few")

    assert taken == 0.0
    assert len(alive) == ended == 1


def test_a_user_without_permissions_is_an_error(server: Server) -> None:
    with closing(server.client()) as client:
        client.acl_setuser(
            "none", enabled=True, passwords="+pw", keys=["other:*"], commands=["+@all"]
        )
        with (
            closing(open_redis(f"redis://none:pw@127.0.0.1:{server.port}")) as opened,
            pytest.raises(StoreError) as caught,
        ):
            RedisBuckets(opened).take([DRAW])
        client.acl_deluser("none")

    assert "allow the user to run scripts" in str(caught.value.hint)


def test_a_server_killed_in_the_middle_is_an_error_and_another_serves_at_once(
    folder: Path,
) -> None:
    with servers.running(folder) as first:
        opened = open_redis(first.url)
        buckets = RedisBuckets(opened)
        buckets.take([DRAW])
        first.process.kill()
        first.process.wait()
        with pytest.raises(StoreError) as caught:
            buckets.take([DRAW])
    with closing(opened), servers.running(folder, port=first.port):
        assert buckets.take([DRAW]) == 0.0

    assert caught.value.hint == "check that the server is running and the URL is correct"


def test_a_restart_between_two_commands_goes_unnoticed(folder: Path) -> None:
    with servers.running(folder) as first:
        opened = open_redis(first.url)
        buckets = RedisBuckets(opened)
        buckets.take([DRAW])
    with closing(opened), servers.running(folder, port=first.port):
        assert buckets.take([DRAW]) == 0.0


def test_calls_under_way_when_the_server_is_killed_all_end_in_an_error(folder: Path) -> None:
    def take_until_it_fails(buckets: RedisBuckets) -> None:
        while True:
            buckets.take([DRAW])

    with servers.running(folder) as server, closing(open_redis(server.url)) as opened:
        buckets = RedisBuckets(opened)
        with ThreadPoolExecutor(4) as pool:
            ends = [pool.submit(take_until_it_fails, buckets) for _ in range(4)]
            buckets.take([DRAW])
            server.process.kill()

            assert all(isinstance(end.exception(timeout=60), StoreError) for end in ends)


def test_a_script_whose_answer_is_lost_is_not_run_again(server: Server) -> None:
    with (
        closing(Proxy(server)) as proxy,
        closing(open_redis(f"redis://127.0.0.1:{proxy.port}")) as opened,
    ):
        buckets = RedisBuckets(opened)
        buckets.take([DRAW])
        proxy.lose_one = True
        with pytest.raises(StoreError):
            buckets.take([DRAW])

    assert left(server) == pytest.approx(48, abs=0.5)


def test_a_late_answer_reaches_no_other_command(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "_READ_SECONDS", 1.0)
    with (
        closing(Proxy(server)) as proxy,
        closing(open_redis(f"redis://127.0.0.1:{proxy.port}")) as opened,
    ):
        sessions = RedisSessions(opened)
        for user in ("ann", "ben"):
            sessions.put(user, SessionRecord(trace_id="t", caller=Caller(user_id=user)), 300)
        proxy.prompt.clear()
        with pytest.raises(StoreError):
            sessions.get("ann")
        proxy.prompt.set()
        found = sessions.get("ben")

    assert found
    assert found[0].caller.user_id == "ben"


def test_more_threads_than_connections_wait_their_turn(server: Server) -> None:
    with closing(open_redis(server.url)) as opened, ThreadPoolExecutor(60) as pool:
        buckets = RedisBuckets(opened)
        waits = list(pool.map(lambda _: buckets.take([DRAW]), range(300)))

    assert waits.count(0.0) == 50
