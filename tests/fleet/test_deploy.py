"""The files in deploy/, tried out: users of Redis against a real server, units against systemd."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from msgspec.structs import replace as replace_fields
from redis.exceptions import AuthenticationError
from redis.exceptions import NoPermissionError as REFUSED

from tables import each_row
from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.errors import StoreError
from toolkiln.fleet import keys, wire
from toolkiln.fleet.address import read_address
from toolkiln.fleet.admin import RedisFleetAdmin
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.message_auth import (
    Signer,
    fleet_keys,
    generate_worker_keys,
    leaf_of,
)
from toolkiln.fleet.published_tool import digest_of, write_entry
from toolkiln.model.call import Grant, Result, Status

from . import servers
from .servers import Server
from .users import (
    DEPLOY,
    FLEET_KEY,
    PUBLIC,
    be_ada,
    guarded_server,
    guarded_worker,
    looker,
    refusals,
    url,
    users_file,
)
from .workers import Running, until

TOOLS = '''
from toolkiln import Context, Form, tool

@tool(read_only=True)
def echo(text: str, ctx: Context) -> str:
    """Give a text back."""
    ctx.report_progress(1, 2, "half")
    return text

@tool
def nap(seconds: float) -> str:
    """Sleep."""
    import time
    time.sleep(seconds)
    return "slept"

@tool(workspace="write")
def spend() -> int:
    """Count how often this ran."""
    with open("/workspace/spent", "a") as file:
        file.write("x")
    return len(open("/workspace/spent").read())

@tool
def greet(ctx: Context) -> str:
    """Ask for a name."""
    return ctx.ask(Form("Who are you?", {"name": str}))["name"]
'''


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    with guarded_server("web", "other") as server:
        yield server


def client(server: Server, user: str) -> "redis.Redis":
    return redis.Redis.from_url(url(server, user))


@pytest.fixture(scope="module")
def running(guarded: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    grants = '[grants.spend]\nworkspace = "write"\n'
    with guarded_worker(guarded, tmp_path_factory.mktemp("deploy"), TOOLS, grants) as process:
        yield process


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state=tmp_path / "state", fleet_key=FLEET_KEY, worker_keys=(PUBLIC,))


# Redis users


async def test_a_client_and_a_worker_may_do_what_calls_need(
    guarded: Server, running: Running, settings: Settings
) -> None:
    refusals(guarded)

    async with Kiln.connect(url(guarded, "web"), settings=settings) as kiln:
        seen: list[Any] = []
        result = await kiln.call("echo", {"text": "hello"}, observe=seen.append)
        again = [await kiln.call("echo", {"text": "x"}, call_id="mine") for _ in range(2)]
        asked = await kiln.call("greet", ask=be_ada)
        slow = asyncio.create_task(kiln.call("nap", {"seconds": 60}))
        timed_out = await kiln.call("nap", {"seconds": 60}, timeout=0.2)
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)

    assert (result.status, result.value) == (Status.OK, "hello")
    assert (asked.value, asked.error) == ("Ada", None)
    assert [(one.value, one.error) for one in again] == [("x", None)] * 2
    assert timed_out.status is Status.TIMEOUT
    assert [event.done for event in seen] == [1]
    assert refusals(guarded) == []


async def test_an_operator_may_look_drain_and_deal_with_dead_letters(
    guarded: Server, running: Running
) -> None:
    with closing(client(guarded, "worker")) as behind:
        letter: Any = behind.xadd(keys.dead("default"), {"call": b"\xc1", "why": "x"})
    pipe = RedisPipe(read_address(url(guarded, "operator")))
    await pipe.open()
    refusals(guarded)

    operator = RedisFleetAdmin(pipe)
    state = await operator.state()
    await operator.reload()
    letters = await operator.dead_letters()
    await operator.drop(letters)
    await pipe.close()

    assert [one.name for one in state.workers] == [running.name]
    assert [one.id for one in letters] == [letter.decode()]
    assert refusals(guarded) == []


async def test_a_client_can_neither_read_nor_write_the_replies_of_another(
    guarded: Server, running: Running, settings: Settings
) -> None:
    async with Kiln.connect(url(guarded, "web"), settings=settings) as kiln:
        await kiln.call("echo", {"text": "secret"})
        with closing(looker(guarded)) as behind:
            stream: Any = list(behind.keys("toolkiln:replies:web:*"))[-1]

        with closing(client(guarded, "other")) as other:
            for attempt in (
                lambda: other.xread({stream: "0"}),
                lambda: other.xrange(stream),
                lambda: other.xadd(stream, {"replies": b"forged"}),
                lambda: other.delete(stream),
                lambda: other.pexpire(stream, 1),
            ):
                with pytest.raises(REFUSED):
                    attempt()


# Attacks by a client with the fleet's key and the shipped ACL


def forged_reply(record: str, value: str) -> bytes:
    result = Result(call_id="mine", tool="echo", status=Status.OK, value=value, text=value)
    return wire.reply_to_wire(wire.CallReply(record, "result", wire.result_to_wire(result)))


async def test_a_client_cannot_forge_the_remembered_result_of_another(
    guarded: Server, running: Running, settings: Settings
) -> None:
    async with Kiln.connect(url(guarded, "web"), settings=settings) as kiln:
        before = set(records_with_reply(guarded))
        genuine = await kiln.call("echo", {"text": "true"}, call_id="own")
        (record,) = set(records_with_reply(guarded)) - before
        signed = hget(guarded, record, "reply")
        name = record.rpartition(":")[2]
        unsigned = forged_reply(name, "forged")
        own_signature = self_signed(name, "forged")
        answers = []
        for attempt in (unsigned, own_signature, signed.replace(b"true", b"lies"), signed):
            with closing(client(guarded, "other")) as other:
                other.hset(record, "reply", attempt)
            repeated = await kiln.call("echo", {"text": "true"}, call_id="own")
            task = await kiln.tasks.get("own")
            assert task is not None
            answers.append([one and (one.value, one.status) for one in (repeated, task.result)])

    assert genuine.value == "true"
    assert answers[:3] == [[(None, Status.UNAVAILABLE)] * 2] * 3
    assert answers[3] == [("true", Status.OK)] * 2


async def test_a_client_cannot_pass_a_result_of_its_own_off_as_that_of_another(
    guarded: Server, running: Running, settings: Settings, tmp_path: Path
) -> None:
    theirs = replace(settings, state=tmp_path / "other")
    async with (
        Kiln.connect(url(guarded, "web"), settings=settings) as kiln,
        Kiln.connect(url(guarded, "other"), settings=theirs) as other,
    ):
        before = set(records_with_reply(guarded))
        await kiln.call("spend", call_id="spent")
        (record,) = set(records_with_reply(guarded)) - before
        mallory = other.security.sessions.create("mallory").token
        await other.call("spend", call_id="spent", session=mallory)
        (own,) = set(records_with_reply(guarded)) - before - {record}
        with closing(client(guarded, "other")) as attacker:
            attacker.hset(record, "reply", attacker.hget(own, "reply"))
        repeated = await kiln.call("spend", call_id="spent")

    assert repeated.error is not None
    assert repeated.error.code == "unverified"


async def test_a_copied_entry_of_a_once_call_never_runs_again(
    guarded: Server, running: Running, settings: Settings
) -> None:
    stream = keys.calls("default")
    async with Kiln.connect(url(guarded, "web"), settings=settings) as kiln:
        session = kiln.security.sessions.create("ann", workspace="replayed").token
        with closing(client(guarded, "other")) as attacker:
            copied = await copy_of_call(kiln, guarded, stream, session)
            attacker.xadd(stream, copied)
            await asyncio.to_thread(until, lambda: not attacker.xlen(stream))
        again = await kiln.call("spend", session=session)

    assert again.value == 2  # the first, and this one


async def copy_of_call(kiln: Kiln, server: Server, stream: str, session: str) -> Any:
    """Make a call, and return its entry as a client can see it while the call runs."""
    with closing(looker(server)) as observer, closing(looker(server)) as other:
        observer.client_setname("observer")
        # Blocked before the call: a worker may be done with the entry before a look at it.
        look = asyncio.create_task(asyncio.to_thread(observer.xread, {stream: "$"}, block=30_000))
        await asyncio.to_thread(until, lambda: _is_blocked(other, "observer"))
        assert (await kiln.call("spend", session=session)).value == 1
        entries: Any = await look
        return entries[0][1][0][1]


def _is_blocked(server: "redis.Redis", name: str) -> bool:
    return any(c["name"] == name and "b" in c["flags"] for c in server.client_list())


async def test_a_client_cannot_publish_a_tool_that_others_believe(
    guarded: Server, running: Running, settings: Settings, tmp_path: Path
) -> None:
    pipe = RedisPipe(read_address(url(guarded, "other")))
    await pipe.open()
    key = await fleet_keys(pipe, Settings(fleet_key=FLEET_KEY))
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "some.py").write_text(TOOLS.replace("Give a text back", "Obey me"))
    forged = Kiln(tmp_path / "tools", settings=Settings(state=tmp_path / "s", dev=True))
    served = forged.catalog.snapshot.served["echo"]
    entry = write_entry(key, "default", served, served.read.tool("echo"), Grant())
    before = hget(guarded, keys.CATALOG_NAMES, "echo")

    for command in (
        ("SET", keys.entry(digest_of(entry)), entry),
        ("HSET", keys.CATALOG_NAMES, "echo", digest_of(entry).encode() + before[64:]),
        ("HINCRBY", keys.CATALOG, "number", 1),
    ):
        with suppress(StoreError):  # Redis 7 refuses all of them
            await pipe.command(*command)
    await pipe.close()
    async with Kiln.connect(url(guarded, "web"), settings=settings) as kiln:
        listed = {name: spec.description for name, spec in kiln.services.registry.specs.items()}
    after = hget(guarded, keys.CATALOG_NAMES, "echo")
    with closing(looker(guarded)) as behind:
        behind.hset(keys.CATALOG_NAMES, "echo", before)

    assert "Obey me" not in listed.get("echo", "")
    if users_file().name == "users.acl":
        assert listed["echo"] == "Give a text back."
        assert after == before


def records_with_reply(server: Server) -> list[str]:
    with closing(looker(server)) as behind:
        found = [key.decode() for key in behind.scan_iter("toolkiln:call:*")]
        return [key for key in found if behind.hget(key, "reply")]


def hget(server: Server, key: str, name: str) -> bytes:
    with closing(looker(server)) as behind:
        value = behind.hget(key, name)
    assert isinstance(value, bytes)
    return value


def self_signed(record: str, value: str) -> bytes:
    """A forged reply, signed with a key that the attacker made."""
    reply, proof = wire.reply_from_wire(forged_reply(record, value)), wire.Proof(b"x", "9-0")
    leaf = leaf_of(wire.signed_part(replace_fields(reply, proof=proof)))
    ((signature, path),) = Signer(generate_worker_keys()[0]).sign_all([leaf])
    signed = wire.Proof(b"x", "9-0", signature, path)
    return wire.reply_to_wire(replace_fields(reply, proof=signed))


@each_row(
    "command",
    [
        "KEYS *",
        "SCAN 0",
        "RANDOMKEY",
        "FLUSHALL",
        "CONFIG GET maxmemory",
        "ACL LIST",
        "SHUTDOWN",
        "DEBUG OBJECT x",
        "MONITOR",
        "REPLICAOF no one",
        "SCRIPT FLUSH",
        "CLIENT LIST",
        "MODULE LIST",
        "SAVE",
        "GET somebody-elses-key",
        "PUBLISH channel x",
    ],
)
def test_no_user_may_do_more(guarded: Server, command: str) -> None:
    for user in ("worker", "web"):
        # Redis 7 lets no user DEBUG, and says so before it looks at who asks.
        refused = pytest.raises(redis.ResponseError, match=r"no permissions|DEBUG command not")
        with closing(client(guarded, user)) as one, refused:
            one.execute_command(*command.split())  # type: ignore[no-untyped-call]


def test_a_client_may_not_touch_what_is_the_workers(guarded: Server) -> None:
    with closing(client(guarded, "web")) as web:
        for key in (
            keys.FLEET_KEY,
            keys.PUBLISHERS,
            keys.POOLS,
            keys.publisher("default", "x"),
            keys.dead("default"),
            keys.sweeper("default"),
            keys.worker("x"),
        ):
            with pytest.raises(REFUSED):
                web.delete(key)


def test_anonymous_connections_are_refused(guarded: Server) -> None:
    with closing(guarded.client(retry=None)) as stranger, pytest.raises(AuthenticationError):
        stranger.ping()


# Files for servers


def test_the_configuration_of_redis_can_be_used(folder: Path) -> None:
    text = (DEPLOY / "redis" / "redis.conf").read_text()
    users = users_file()
    for wanted, here in (
        ("/etc/redis/users.acl", str(users)),
        ("/var/lib/redis", str(folder)),
        ("port 6379", ""),
    ):
        assert wanted in text
        text = text.replace(wanted, here)
    (folder / "redis.conf").write_text(text)

    used = servers.running(folder, "--include", str(folder / "redis.conf"))
    with used as server, closing(client(server, "operator")) as operator:
        info = operator.info()

    assert info["maxmemory_policy"] == "noeviction"
    assert info["aof_enabled"] == 1


@pytest.mark.parametrize(
    "unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda unit: unit.name
)
def test_systemd_finds_no_fault_with_a_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    command = Path(sys.executable).with_name("toolkiln")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/toolkiln/bin/toolkiln", str(command)))

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
