"""The files in deploy/, tried out: users of Redis against a real server, units against systemd."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import AuthenticationError
from redis.exceptions import NoPermissionError as REFUSED

from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.fleet import Operator, Pipe, keys, read_address
from toolkiln.model import FormAnswer, Question, Status

from . import servers
from .servers import Server
from .workers import Running, worker

DEPLOY = Path(__file__).parents[2] / "deploy"
FLEET_KEY = "a key of this test"
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

@tool
def greet(ctx: Context) -> str:
    """Ask for a name."""
    return ctx.ask(Form("Who are you?", {"name": str}))["name"]
'''


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server with the users of deploy/, another client like `web`, and one who looks on."""
    users = (DEPLOY / "redis" / "users.acl").read_text()
    (web,) = [line for line in users.splitlines() if line.startswith("user web ")]
    other = web.replace("user web ", "user other ").replace(":web:", ":other:")
    users += f"{other}\nuser looker on nopass ~* +@all\n"
    with tempfile.TemporaryDirectory(prefix="toolkiln-redis-", dir="/tmp") as name:
        file = Path(name, "users.acl")
        file.write_text(users)
        with servers.running(Path(name), "--aclfile", str(file)) as server:
            yield server


def url(server: Server, user: str) -> str:
    password = f"{'web' if user == 'other' else user}-password".upper()
    return f"redis://{user}:{password}@127.0.0.1:{server.port}"


def client(server: Server, user: str) -> "redis.Redis":
    return redis.Redis.from_url(url(server, user))


def refusals(server: Server) -> list[Any]:
    """What somebody tried and may not, since the last time."""
    with closing(server.client(username="looker", password="")) as looker:
        found: list[Any] = looker.acl_log()
        looker.acl_log_reset()
    told = [(entry["username"], entry["reason"], entry["object"]) for entry in found]
    # redis-py tells its version with CLIENT SETINFO, and a worker asks with its first read how
    # Redis syncs, which may be after it is ready; both take a no for an answer.
    return [one for one in told if one[1:] not in (("command", "client"), ("command", "config"))]


@pytest.fixture(scope="module")
def running(guarded: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("deploy")
    (folder / "tools").mkdir()
    (folder / "tools" / "some.py").write_text(TOOLS)
    (folder / "toolkiln.toml").write_text(f'fleet_key = "{FLEET_KEY}"\n')
    with worker(url(guarded, "worker"), folder / "tools") as process:
        yield process


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state=tmp_path / "state", fleet_key=FLEET_KEY)


async def be_ada(_: tuple[Question, ...]) -> list[FormAnswer]:
    return [FormAnswer(action="accept", content={"name": "Ada"})]


# Redis users


async def test_a_client_and_a_worker_may_do_what_calls_need(
    guarded: Server, running: Running, settings: Settings
) -> None:
    refusals(guarded)

    async with Kiln.connect(url(guarded, "web"), settings=settings) as kiln:
        told: list[Any] = []
        result = await kiln.call("echo", {"text": "hello"}, observe=told.append)
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
    assert [event.done for event in told] == [1]
    assert refusals(guarded) == []


async def test_an_operator_may_look_drain_and_deal_with_dead_letters(
    guarded: Server, running: Running
) -> None:
    with closing(client(guarded, "worker")) as behind:
        letter: Any = behind.xadd(keys.dead("default"), {"call": b"\xc1", "why": "x"})
    pipe = Pipe(read_address(url(guarded, "operator")))
    await pipe.open()
    refusals(guarded)

    operator = Operator(pipe)
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
        stream = streams_of_web(guarded)[-1]

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


def streams_of_web(server: Server) -> list[Any]:
    with closing(server.client(username="looker", password="")) as looker:
        return list(looker.keys("toolkiln:replies:web:*"))


@pytest.mark.parametrize("user", ["worker", "web"])
@pytest.mark.parametrize(
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
def test_nobody_may_do_more(guarded: Server, user: str, command: str) -> None:
    # Redis 7 lets nobody at all DEBUG, and says so before it looks at who asks.
    refused = pytest.raises(redis.ResponseError, match=r"no permissions|DEBUG command not")
    with closing(client(guarded, user)) as one, refused:
        one.execute_command(*command.split())  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "key",
    [
        keys.FLEET_KEY,
        keys.PUBLISHERS,
        keys.POOLS,
        keys.publisher("default", "x"),
        keys.dead("default"),
        keys.sweeper("default"),
        keys.worker("x"),
    ],
)
def test_a_client_may_not_touch_what_is_the_workers(guarded: Server, key: str) -> None:
    with closing(client(guarded, "web")) as web, pytest.raises(REFUSED):
        web.delete(key)


def test_without_a_user_nobody_gets_in(guarded: Server) -> None:
    with closing(guarded.client(retry=None)) as nobody, pytest.raises(AuthenticationError):
        nobody.ping()


# Files for servers


def test_the_configuration_of_redis_can_be_used(folder: Path) -> None:
    text = (DEPLOY / "redis" / "redis.conf").read_text()
    users = DEPLOY / "redis" / "users.acl"
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
