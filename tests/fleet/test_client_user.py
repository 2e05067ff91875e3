"""The Redis user `client` of deploy/: calls as whom it has a token of, and nothing beyond."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from msgspec import Raw
from msgspec.structs import replace as with_fields
from redis.exceptions import NoPermissionError

from preloaded import command
from tables import each_row
from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.errors import NotAllowed
from toolkiln.fleet import keys, wire
from toolkiln.fleet.address import read_address
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.message_auth import fleet_keys, seal
from toolkiln.model.call import Result, Status, Task
from toolkiln.model.identity import SessionRecord
from toolkiln.security.sessions import token_hash
from toolkiln.store.codec import key_of

from . import servers
from .servers import Server
from .users import (
    FLEET_KEY,
    PUBLIC,
    be_ada,
    guarded_server,
    guarded_worker,
    looker,
    refusals,
    url,
)
from .workers import BOUND, Running, code_of, until

TOOLS = '''
from toolkiln import Context, Form, tool

@tool(read_only=True)
def echo(text: str) -> str:
    """Give a text back."""
    return text

@tool
def nap(seconds: float, ctx: Context) -> str:
    """Sleep."""
    import time
    ctx.report_progress(0, 1, "asleep")
    time.sleep(seconds)
    return "slept"

@tool(return_char_limit=1000)
def write_much(characters: int) -> str:
    """Write a long text."""
    return ("0123456789" * (characters // 10 + 1))[:characters]

@tool
def greet(ctx: Context) -> str:
    """Ask for a name."""
    return ctx.ask(Form("Who are you?", {"name": str}))["name"]

@tool(needs_approval=True)
def delete_all() -> str:
    """Delete everything."""
    return "deleted"
'''


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    if servers.version() < (7,):
        pytest.skip("no Redis 7: install Debian's `redis-server` package, or run `make redis`")
    with guarded_server("client", "mallory") as server:
        yield server


@pytest.fixture(scope="module")
def running(guarded: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    rates = '[rates.echo]\ncaller = "100000/hour"\n'
    with guarded_worker(guarded, tmp_path_factory.mktemp("client"), TOOLS, rates) as process:
        yield process


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state=tmp_path / "state", fleet_key=FLEET_KEY, worker_keys=(PUBLIC,))


@pytest.fixture
async def front(guarded: Server, running: Running, settings: Settings) -> AsyncIterator[Kiln]:
    """A Kiln that is trusted with identities."""
    trusted = replace(settings, state=settings.state / "front")
    async with Kiln.connect(url(guarded, "web"), settings=trusted) as kiln:
        yield kiln


@pytest.fixture
async def client(guarded: Server, running: Running, settings: Settings) -> AsyncIterator[Kiln]:
    """A Kiln that is not."""
    own = replace(settings, state=settings.state / "client")
    async with Kiln.connect(url(guarded, "client"), settings=own) as kiln:
        yield kiln


# What it can do


async def test_a_client_makes_calls_with_a_token_of_a_trusted_front(
    guarded: Server, front: Kiln, client: Kiln
) -> None:
    ann = front.security.sessions.create("ann").token
    refusals(guarded)

    listed = set(client.specs(ann))
    found = client.tools("openai", "give a text back", session=ann)
    plain = await client.call("echo", {"text": "hello"}, session=ann)
    again = [await client.call("echo", {"text": "x"}, session=ann, call_id="own") for _ in "ab"]
    large = await client.call("echo", {"text": "x" * 300_000}, session=ann)
    asked = await client.call("greet", session=ann, ask=be_ada)
    timed_out = await client.call("nap", {"seconds": 60}, session=ann, timeout=0.5)
    long = await client.call("write_much", {"characters": 5000}, session=ann)
    assert long.truncation is not None
    page = await client.tasks.read_output(str(long.truncation.handle), ann, offset=4990)
    many = await asyncio.gather(
        *(client.call("echo", {"text": str(n)}, session=ann) for n in range(50))
    )

    assert {"echo", "nap", "greet"} <= listed
    assert found
    assert (plain.value, plain.error) == ("hello", None)
    assert [(one.value, one.error) for one in again] == [("x", None)] * 2
    assert large.value == "x" * 300_000
    assert (asked.value, asked.error) == ("Ada", None)
    assert timed_out.status is Status.TIMEOUT
    assert page.text == "0123456789"
    assert [one.value for one in many] == [str(n) for n in range(50)]
    assert refused_commands(guarded) == []


async def test_a_client_awaits_and_cancels_calls_of_its_own(
    guarded: Server, front: Kiln, client: Kiln
) -> None:
    ann = front.security.sessions.create("ann").token
    refusals(guarded)

    begun = asyncio.Event()
    awaited = asyncio.create_task(
        client.call("nap", {"seconds": 60}, session=ann, observe=lambda _: begun.set())
    )
    await asyncio.wait_for(begun.wait(), BOUND)
    awaited.cancel()
    await asyncio.gather(awaited, return_exceptions=True)
    short = await client.call("nap", {"seconds": 0.2}, session=ann, background=True)
    long = await client.call("nap", {"seconds": 60}, session=ann, background=True)
    assert isinstance(short, Task)
    assert isinstance(long, Task)
    await client.tasks.cancel(long.id, ann)
    ends = [await client.tasks.wait(one.id, ann, timeout=BOUND) for one in (short, long)]
    listed = {task.id for task in await client.tasks.list(ann)}

    assert [one.result and one.result.status for one in ends] == [Status.OK, Status.CANCELLED]
    assert {short.id, long.id} <= listed
    assert refused_commands(guarded) == []
    await asyncio.to_thread(until, lambda: not pending(guarded))  # the first was stopped, too


async def test_a_call_that_no_worker_took_is_withdrawn_without_touching_the_queue(
    guarded: Server, front: Kiln, client: Kiln, running: Running
) -> None:
    ann = front.security.sessions.create("ann").token
    await client.call("echo", {"text": "x"}, session=ann)
    refusals(guarded)

    process = running.child()
    os.kill(process, signal.SIGSTOP)
    try:
        # One is given to the read that the worker has under way, the others wait.
        ends = [
            await client.call("echo", {"text": "x"}, session=ann, timeout=0.1) for _ in range(3)
        ]
    finally:
        os.kill(process, signal.SIGCONT)
    after = await client.call("echo", {"text": "y"}, session=ann)

    assert [one.status for one in ends] == [Status.TIMEOUT] * 3
    assert after.value == "y"
    assert refused_commands(guarded) == []
    await asyncio.to_thread(until, lambda: not pending(guarded))


def test_the_command_line_calls_with_a_token(
    guarded: Server, running: Running, tmp_path: Path
) -> None:
    made = toolkiln(guarded, tmp_path / "front", "web", "sessions", "create", "ann", "--json")
    token = json.loads(made.stdout)["token"]
    arguments = ["call", "echo", "text=hello", "--json"]

    with_token = toolkiln(guarded, tmp_path / "client", "client", *arguments, "--token", token)
    without = toolkiln(guarded, tmp_path / "client", "client", *arguments)

    assert json.loads(with_token.stdout)["value"] == "hello"
    assert without.returncode != 0
    assert "the Redis user 'client' may not create" in without.stdout + without.stderr


def toolkiln(
    server: Server, folder: Path, user: str, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    folder.mkdir(exist_ok=True)
    environ = {
        **os.environ,
        "TOOLKILN_STATE": str(folder / "state"),
        "TOOLKILN_FLEET": url(server, user),
        "TOOLKILN_FLEET_KEY": FLEET_KEY,
        "TOOLKILN_WORKER_KEYS": PUBLIC,
    }
    return subprocess.run(
        [command(), *arguments],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=BOUND, check=False,
    )  # fmt: skip


async def test_a_client_makes_and_lists_no_sessions(client: Kiln) -> None:
    result = await client.call("echo", {"text": "x"})

    assert result.status is Status.DENIED
    assert result.error is not None
    assert result.error.message == (
        "the Redis user 'client' may not create, change or list sessions"
    )
    assert "create a session at a trusted front" in (result.error.hint or "")
    for attempt in (lambda: client.security.sessions.create("ann"), client.security.sessions.alive):
        with pytest.raises(NotAllowed, match="may not create, change or list sessions"):
            attempt()


# Attacks: with the fleet's key, the token of mallory, and Redis commands of its own


async def test_the_raw_commands_of_an_attack_are_refused(guarded: Server, front: Kiln) -> None:
    victim = front.security.sessions.create("victim")
    hashed = token_hash(victim.token)
    task = asyncio.create_task(front.call("delete_all", session=victim.token, call_id="wish"))
    await asyncio.to_thread(until, lambda: front.security.approvals.waiting())
    (request,) = [one for one in front.security.approvals.waiting() if one.user == "victim"]
    caller = front.security.caller(victim.token)
    record = keys.record(key_of(caller, "wish"))
    stream = keys.calls("default")
    with closing(looker(guarded)) as behind:
        entries: Any = behind.xrange(stream)
        entry = entries[0][0]
        approvals = behind.zrange(keys.APPROVALS, 0, -1)
    approval = f"toolkiln:approval:{request.id}"
    assert request.id.encode() in approvals

    with closing(redis.Redis.from_url(url(guarded, "mallory"))) as mallory:
        for command in (
            # sessions: forge, list, end, extend
            ("HSET", keys.session(hashed), "session", "{}"),
            ("HSET", keys.session(token_hash("made up")), "session", "{}"),
            ("DEL", keys.session(hashed)),
            ("PEXPIRE", keys.session(hashed), 1),
            ("ZRANGE", keys.SESSIONS, 0, -1),
            ("ZADD", keys.SESSIONS, 1, "x"),
            ("HGETALL", keys.session(hashed)),
            ("SCAN", 0),
            ("KEYS", "*"),
            # approvals: approve, read, list
            ("HSET", approval, "state", "approved"),
            ("HGETALL", approval),
            ("ZRANGE", keys.APPROVALS, 0, -1),
            ("ZADD", keys.remembered("x"), 1, request.id),
            ("ZADD", keys.approvals_of_call("x"), 1, request.id),
            # the queue: read, remove, rewrite
            ("XRANGE", stream, "-", "+"),
            ("XREVRANGE", stream, "+", "-"),
            ("XREAD", "STREAMS", stream, "0"),
            ("XREADGROUP", "GROUP", keys.GROUP, "me", "STREAMS", stream, ">"),
            ("XCLAIM", stream, keys.GROUP, "me", 0, entry),
            ("XAUTOCLAIM", stream, keys.GROUP, "me", 0, "0"),
            ("XINFO", "STREAM", stream, "FULL"),
            ("XACK", stream, keys.GROUP, entry),
            ("XDEL", stream, entry),
            ("XTRIM", stream, "MAXLEN", 0),
            ("XSETID", stream, "9999999999999-0"),
            ("XGROUP", "CREATE", stream, "mine", "0"),
            ("XGROUP", "DESTROY", stream, keys.GROUP),
            ("DEL", stream),
            ("HSET", f"{stream}:lives", "run", "x"),
            ("XADD", keys.control("default"), "*", "ask", "drain", "of", ""),
            ("XREAD", "STREAMS", keys.asks("default"), "0"),
            # what another caller, of a front or of another client, has
            ("HSET", record, "reply", "forged"),
            ("HSET", record, "cancel", 1),
            ("HMGET", record, "reply"),
            ("DEL", record),
            ("HSET", record.replace(":call:", ":call:client:"), "reply", "forged"),
            ("HMGET", record.replace(":call:", ":claim:client:"), "reply"),
            ("GET", keys.body("x", "result")),
            ("SET", keys.body("x", "call"), "x"),
            ("SET", keys.body("client:x", "result"), "x"),
            ("SET", keys.question("0" * 32), "x"),
            ("GET", keys.answer("0" * 32)),
            ("ZREVRANGE", keys.claims_of("x"), 0, -1),
            ("XREAD", "STREAMS", "toolkiln:replies:web:x", "0"),
            ("XADD", "toolkiln:replies:client:x", "*", "replies", "x"),
            ("DEL", keys.bucket("x")),
            ("HSET", keys.bucket("x"), "tokens", 1000),
            # tools, workers, keys
            ("HSET", keys.CATALOG_NAMES, "echo", "x"),
            ("SET", keys.entry("x"), "x"),
            ("SET", keys.source("x"), "x"),
            ("XADD", keys.ANNOUNCEMENTS, "*", "kind", "config"),
            ("GET", keys.FLEET_KEY),
            ("SET", keys.FLEET_KEY, "x"),
            ("HSET", keys.worker("x"), "pool", "x"),
            ("XADD", keys.dead("default"), "*", "why", "x"),
            ("SADD", keys.POOLS, "x"),
            ("ZADD", keys.PUBLISHERS, 1, "x"),
            ("EVAL", "return redis.call('ZRANGE', KEYS[1], 0, -1)", 1, keys.SESSIONS),
            ("CONFIG", "GET", "*"),
            ("ACL", "LIST"),
            ("MONITOR",),
            ("SCRIPT", "FLUSH"),
            ("FLUSHALL",),
        ):
            with pytest.raises(NoPermissionError):
                mallory.execute_command(*command)  # type: ignore[no-untyped-call]

    assert not task.done()
    await asyncio.to_thread(front.security.approve, request.id)
    assert (await task).value == "deleted"


@each_row(
    "script",
    [
        "return redis.call('ZRANGE', 'toolkiln:sessions', 0, -1)",
        f"return redis.call('XRANGE', '{keys.calls('default')}', '-', '+')",
        "return redis.call('HSET', 'toolkiln:approval:x', 'state', 'approved')",
    ],
)
def test_a_script_gives_a_client_no_more_rights(guarded: Server, script: str) -> None:
    with closing(redis.Redis.from_url(url(guarded, "mallory"))) as mallory:
        try:
            loaded: Any = mallory.script_load(script)
        except NoPermissionError:
            return  # better still
        with pytest.raises(redis.ResponseError, match="user executing the script"):
            mallory.evalsha(loaded, 0)


async def test_a_call_in_the_name_of_another_or_of_an_unknown_session_does_not_run(
    guarded: Server, front: Kiln, running: Running
) -> None:
    mallory = token_hash(front.security.sessions.create("mallory").token)
    victim = front.security.caller(front.security.sessions.create("victim").token)
    unknown = await put_by_hand(guarded, "mallory", token_hash("no session of anybody"))
    first = await asyncio.to_thread(until, lambda: reply_of(guarded, unknown))
    other = await put_by_hand(guarded, "mallory", mallory, of=key_of(victim, "own"))
    second = await asyncio.to_thread(until, lambda: reply_of(guarded, other))

    assert first.status is Status.DENIED
    assert (code_of(first), code_of(second)) == ("no_session", "forged")


async def test_a_client_can_neither_cancel_nor_drain_what_is_not_its_own(
    guarded: Server, front: Kiln, running: Running
) -> None:
    victim = front.security.sessions.create("victim").token
    begun = asyncio.Event()
    call = front.call(
        "nap", {"seconds": 1}, session=victim, call_id="nap", observe=lambda _: begun.set()
    )
    napping = asyncio.create_task(call)
    await asyncio.wait_for(begun.wait(), BOUND)

    with closing(redis.Redis.from_url(url(guarded, "mallory"))) as mallory:
        asks = keys.asks("default")
        record = key_of(front.security.caller(victim), "nap")
        mallory.xadd(asks, {"ask": "cancel", "of": record})
        mallory.xadd(asks, {"ask": "drain", "of": ""})
        mallory.xadd(asks, {"ask": "drain", "of": running.name})
        mallory.xadd(asks, {"ask": "\xff" * 10_000, "of": "x"})
        mallory.xadd(asks, {"nonsense": "x"})
    napped = await napping
    after = await front.call("echo", {"text": "there"}, session=victim)

    assert (napped.value, after.value) == ("slept", "there")


async def test_a_record_cannot_make_a_worker_write_to_other_keys(
    guarded: Server, front: Kiln, running: Running
) -> None:
    mallory = front.security.sessions.create("mallory").token
    aims = [keys.SESSIONS, keys.CATALOG, keys.session(token_hash(mallory)), "toolkiln:made-up"]
    with closing(looker(guarded)) as behind:
        before = [behind.pttl(key) for key in aims]

    name = await put_by_hand(guarded, "mallory", token_hash(mallory), askers=" ".join(aims))
    await asyncio.to_thread(until, lambda: reply_of(guarded, name))

    with closing(looker(guarded)) as behind:
        after = [behind.pttl(key) for key in aims]
        made_up = behind.exists("toolkiln:made-up")
    assert all(now > then - 60_000 for now, then in zip(after, before, strict=True))
    assert not made_up


async def put_by_hand(
    server: Server, user: str, session: str, *, of: str | None = None, askers: str = ""
) -> str:
    """Put a call into the queue with the commands that a client has; the name of its record."""
    pipe = RedisPipe(read_address(url(server, user)))
    await pipe.open()
    key = await fleet_keys(pipe, Settings(fleet_key=FLEET_KEY))
    caller_key = of or "0" * 64
    if of is None:
        with closing(redis.Redis.from_url(url(server, user))) as raw:
            said = raw.hget(keys.session(session), "session")
        if isinstance(said, bytes):
            caller_key = key_of(SessionRecord.model_validate_json(said).caller, "own")
    name = f"{user}:{caller_key}"
    envelope = wire.Envelope(
        id="own", record=name, tool="echo", session=session, remember=True,
        arguments=Raw(wire.pack({"text": "mine"})),
    )  # fmt: skip
    envelope = with_fields(envelope, seal=seal(key, envelope))
    data, stream = wire.envelope_to_wire(envelope), keys.calls("default")
    fields = ("record", name, "call", data, "by", 0, "tries", 0)
    # The record first: a worker that took the entry without one would drop it.
    entry = b"%d-7" % (await now_ms(pipe) + 100)
    about = ("print", wire.fingerprint(envelope), "pool", stream, "entry", entry, "askers", askers)
    await pipe.command("DEL", keys.record(name))
    await pipe.command("HSET", keys.record(name), *about)
    await pipe.command("XADD", stream, entry, *fields)
    await pipe.close()
    return name


async def now_ms(pipe: RedisPipe) -> int:
    seconds, microseconds = await pipe.command("TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000


def reply_of(server: Server, name: str) -> Result | None:
    """How a call that was put in by hand ended."""
    with closing(looker(server)) as behind:
        data = behind.hget(keys.record(name), "reply")
    if not isinstance(data, bytes):
        return None
    reply = wire.reply_from_wire(data)
    if reply.kind == "end":
        return wire.end_result(reply.body.decode(), call_id="own", tool="echo")
    return wire.result_from_wire(reply.body)


def pending(server: Server) -> int:
    with closing(looker(server)) as behind:
        return int(behind.xlen(keys.calls("default")))


def refused_commands(server: Server) -> list[Any]:
    """What was refused to a client, but for the question whether it may see sessions."""
    return [one for one in refusals(server) if one != ("client", "command", "zrange")]
