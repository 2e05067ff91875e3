"""Keys of a fleet: seals, signatures, and processes that have others, or another version."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import replace as replace_settings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from tables import each_row
from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.errors import ConfigError, UnknownTool
from toolkiln.fleet import keys, wire
from toolkiln.fleet.client import FleetClient
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.delivery import Ending
from toolkiln.fleet.message_auth import (
    FleetKeys,
    Signer,
    Verifier,
    fleet_keys,
    generate_worker_keys,
    has_valid_seal,
    seal,
    seal_bytes,
    unseal_bytes,
)
from toolkiln.fleet.publisher import ForeignCatalog, Publisher
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.remote_catalog import CatalogReader
from toolkiln.fleet.wire import Envelope, envelope_from_wire, envelope_to_wire, pack, unpack
from toolkiln.fleet.worker_process import check_worker_keys
from toolkiln.model.call import Grant, Result, Status
from toolkiln.operations import proposals, tool_files, tools, versions

from .queues import call_of, calling, desk, echoed
from .servers import Server
from .workers import BOUND, Running, running_program, tools_folder, worker

KEY = FleetKeys(b"k" * 32)
CALL = Envelope(id="c1", record="r1", tool="pay", arguments=Raw(pack({"to": "ann"})))
OTHERWISE: dict[str, Any] = {
    "id": "c2",
    "record": "r2",
    "tool": "hello",
    "digest": "d",
    "arguments": Raw(pack({"to": "eve"})),
    "session": "s",
    "surface": "mcp",
    "timeout_ms": 1,
    "repeatable": True,
    "remember": True,
    "events": True,
    "reply_to": "x",
    "pool": "gpu",
    "traceparent": "p",
    "depth": 1,
    "asks": ("form",),
    "request": Raw(pack({"room": 1})),
}


def test_a_sealed_call_is_genuine_after_its_journey() -> None:
    sent = replace(CALL, seal=seal(KEY, CALL))

    assert has_valid_seal(KEY, envelope_from_wire(envelope_to_wire(sent)))
    older = pack(unpack(envelope_to_wire(sent))[:-1])  # from a process that knows no requests
    assert has_valid_seal(KEY, envelope_from_wire(older))
    assert not has_valid_seal(FleetKeys(b"another key"), sent)
    assert not has_valid_seal(KEY, CALL)


def test_every_field_is_tried() -> None:
    assert {*OTHERWISE, "seal"} == set(Envelope.__struct_fields__)


@each_row("field", OTHERWISE)
def test_a_call_that_was_changed_on_its_way_is_forged(field: str) -> None:
    changed = replace(CALL, seal=seal(KEY, CALL), **{field: OTHERWISE[field]})

    assert not has_valid_seal(KEY, changed)


@given(data=st.binary(), purpose=st.text(max_size=20), other=st.text(max_size=20))
def test_data_comes_back_for_its_purpose_only(data: bytes, purpose: str, other: str) -> None:
    blob = seal_bytes(KEY, purpose, data)

    assert unseal_bytes(KEY, purpose, blob) == data
    assert (unseal_bytes(KEY, other, blob) is None) == (other != purpose)
    assert unseal_bytes(FleetKeys(b"another key"), purpose, blob) is None


@given(blob=st.binary(max_size=100))
def test_no_bytes_break_the_check(blob: bytes) -> None:
    assert unseal_bytes(KEY, "entry", blob) is None


async def test_of_many_that_start_at_once_all_have_one_key(server: Server, pipe: RedisPipe) -> None:
    found = await asyncio.gather(*(fleet_keys(pipe, Settings()) for _ in range(20)))

    assert len(set(found)) == 1
    assert len(found[0].sealing) == 32
    assert await fleet_keys(pipe, Settings()) == found[0]


async def test_a_key_that_is_set_is_not_in_redis(server: Server, pipe: RedisPipe) -> None:
    one = await fleet_keys(pipe, Settings(fleet_key="horse battery"))
    other = await fleet_keys(pipe, Settings(fleet_key="staple"))

    assert one != other
    assert await fleet_keys(pipe, Settings(fleet_key="horse battery")) == one
    with closing(server.client()) as client:
        assert not client.exists(keys.FLEET_KEY)


ROOT = Path(__file__).parents[2]
PREVIOUS = "23403dd"
"""The version before this one, as a commit."""
ADD = '''
from toolkiln import tool

@tool(read_only=True)
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right

@tool
def fail() -> str:
    """Fail."""
    raise ValueError("no")
'''
OTHER = ADD.replace("Add two numbers", "Steal two numbers")
PRIVATE, PUBLIC = generate_worker_keys()
KEYS = FleetKeys(b"k" * 32, signer=Signer(PRIVATE), trusted=Verifier([PUBLIC]))
SIGNED = f'worker_key = "{PRIVATE}"\nworker_keys = ["{PUBLIC}"]\n'


def project(folder: Path, settings: str, source: str = ADD) -> Path:
    """A folder of tools with these settings."""
    return tools_folder(folder, settings, some=source)


async def command(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `toolkiln` in a folder."""
    environ = {**os.environ, "TOOLKILN_STATE": str(folder / "state")}
    return await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "toolkiln.surfaces.cli", *arguments],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=BOUND, check=False,
    )  # fmt: skip


# Workers with other keys


async def test_a_worker_with_another_key_starts_only_after_the_catalog_is_cleared(
    server: Server, tmp_path: Path
) -> None:
    url = server.url
    tools = project(tmp_path / "other", f'fleet_key = "another"\n{SIGNED}', OTHER)
    trusting = Settings(state=tmp_path / "front", fleet_key="one", worker_keys=(PUBLIC,))

    async def add(settings: Settings) -> list[Any]:
        async with Kiln.connect(url, settings=settings) as kiln:
            result = await kiln.call("add", {"left": 40, "right": 2})
            return [result.value, kiln.services.registry.specs["add"].description]

    with worker(url, project(tmp_path / "one", f'fleet_key = "one"\n{SIGNED}')):
        refused = await command(tools.parent, "worker", "--redis", url, "--dev")
        seen = await command(tools.parent, "fleet", "status", "--redis", url)
        before = await add(trusting)
    clear = ("fleet", "clear-catalog", "--redis", url, "--yes", "--json")
    cleared = await command(tools.parent, *clear)
    with worker(url, tools):
        after = await add(replace_settings(trusting, fleet_key="another"))

    assert refused.returncode != 0
    assert "the published catalog is sealed with another fleet_key" in refused.stderr
    assert "give this worker the fleet_key" in refused.stderr
    assert "refused to start" in seen.stderr
    assert before == [42, "Add two numbers."]
    assert json.loads(cleared.stdout) == {"tools": 2}
    assert after == [42, "Steal two numbers."]


async def test_a_worker_without_a_key_does_not_replace_what_others_signed(
    server: Server, tmp_path: Path
) -> None:
    snapshot = Kiln(
        project(tmp_path, ""), settings=Settings(state=tmp_path / "state", dev=True)
    ).catalog.snapshot
    grants = dict.fromkeys(snapshot.tools, Grant())
    async with desk(server.url) as own:
        await Publisher(own.pipe, KEYS, "default", "one").publish(snapshot, grants, {})
        others = [KEYS._replace(signer=None, trusted=None), KEYS._replace(sealing=b"x" * 32)]
        for keys_of_other in others:
            other = Publisher(own.pipe, keys_of_other, "default", "two")
            with pytest.raises(ForeignCatalog):
                await other.publish(snapshot, grants, {})
        published = CatalogReader(own.pipe, KEYS)
        await published.refresh()

    assert set(published.snapshot.tools) == {"add", "fail"}


@pytest.mark.parametrize("key", [None, Signer(generate_worker_keys()[0])])
def test_a_worker_that_no_caller_would_believe_does_not_start(key: Signer | None) -> None:
    with pytest.raises(ConfigError, match="worker_keys"):
        check_worker_keys(KEYS._replace(signer=key))


# Replies that are signed for something else


@asynccontextmanager
async def answered(server: Server) -> AsyncIterator[tuple[FleetClient, Queue, Any]]:
    """A client that trusts one worker, that worker's queue, and the server from behind."""
    async with calling(server.url, KEYS) as client, desk(server.url, signer=KEYS.signer) as own:
        with closing(server.client()) as behind:
            yield client, own.queue, behind


async def test_a_reply_to_other_arguments_is_not_believed(server: Server) -> None:
    async with answered(server) as (client, queue, _):
        made = asyncio.create_task(client.call(call_of(client, 1)))
        [delivery] = await queue.read("worker", 1, 5000)
        changed = replace(delivery.envelope, arguments=Raw(wire.pack(666)))
        changed = replace(changed, seal=seal(KEYS, changed))
        body = echoed(replace(delivery, envelope=changed)).body
        reply = wire.CallReply(changed.record, "result", body)
        proof = wire.Proof(wire.reply_subject(changed), delivery.entry)
        await queue.send(client.reply_to, [replace(reply, proof=proof)])
        await queue.finish(echoed(delivery))
        result = await made

    assert result.value == 1


async def test_the_reply_to_an_earlier_call_of_the_same_id_is_not_believed(server: Server) -> None:
    async with answered(server) as (client, queue, behind):
        sent = call_of(client, 1, remember=True)
        first = asyncio.create_task(client.call(sent))
        [delivery] = await queue.read("worker", 1, 5000)
        await queue.finish(echoed(delivery)._replace(is_open=True))  # the id can be used again
        await first
        earlier = behind.hget(keys.record(sent.record), "reply")
        again = asyncio.create_task(client.call(sent))
        [delivery] = await queue.read("worker", 1, 5000)
        behind.xadd(keys.replies(client.reply_to), {"replies": b"\x91" + earlier})
        await queue.finish(Ending(delivery, "end", b"timeout"))
        result = await again

    assert result.status is Status.TIMEOUT


async def test_large_results_and_events_are_believed_when_they_are_signed(server: Server) -> None:
    async with answered(server) as (client, queue, _):
        made = asyncio.create_task(client.call(call_of(client, 1)))
        [delivery] = await queue.read("worker", 1, 5000)
        big = Result(call_id="x", tool="echo", status=Status.OK, value="x" * 300_000)
        await queue.finish(Ending(delivery, "result", wire.result_to_wire(big)))
        result = await made

    assert result.value == big.value


# Keys


def test_the_fallback_is_accepted_and_does_not_seal() -> None:
    old, new = FleetKeys(b"o" * 32), FleetKeys(b"n" * 32)
    between = FleetKeys(b"n" * 32, fallback=b"o" * 32)
    envelope = Envelope(id="x", record="x", tool="x")

    by_old = replace(envelope, seal=seal(old, envelope))
    by_both = replace(envelope, seal=seal(between, envelope))

    assert has_valid_seal(between, by_old)
    assert has_valid_seal(between, by_both)
    assert has_valid_seal(new, by_both)
    assert not has_valid_seal(old, by_both)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Signer(PUBLIC), "public key"),
        (lambda: Signer("ed25519-private:short"), "contains an invalid key"),
        (lambda: Verifier([PRIVATE]), "private key"),
        (lambda: Verifier([PUBLIC, "nonsense"]), "contains an invalid key"),
    ],
)
def test_what_is_not_the_right_key_is_refused_with_what_to_do(make: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        make()

    assert "toolkiln fleet keygen" in (refused.value.hint or "")


async def test_keys_are_rotated_without_a_call_that_fails(server: Server, tmp_path: Path) -> None:
    second, trusted = generate_worker_keys()
    both = f'worker_keys = ["{PUBLIC}", "{trusted}"]\n'
    before = f'fleet_key = "old"\nfleet_key_fallback = "new"\nworker_key = "{PRIVATE}"\n{both}'
    after = f'fleet_key = "new"\nfleet_key_fallback = "old"\nworker_key = "{second}"\n{both}'
    fronts = [
        Settings(state=tmp_path / "a", fleet_key="old", worker_keys=(PUBLIC, trusted)),
        Settings(state=tmp_path / "b", fleet_key="old", fleet_key_fallback="new",
                 worker_keys=(PUBLIC, trusted)),
        Settings(state=tmp_path / "c", fleet_key="new", fleet_key_fallback="old",
                 worker_keys=(PUBLIC, trusted)),
    ]  # fmt: skip

    async def add(settings: Settings) -> Any:
        async with Kiln.connect(server.url, settings=settings) as kiln:
            return (await kiln.call("add", {"left": 1, "right": 2})).value

    with worker(server.url, project(tmp_path / "one", before)) as first:
        values = [await add(fronts[0]), await add(fronts[1])]
        with worker(server.url, project(tmp_path / "two", after)):
            values += [await add(front) for front in fronts[1:]]  # either may answer
            await asyncio.to_thread(first.stop)
            values += [await add(front) for front in fronts[1:]]

    assert values == [3] * 6


# Two versions


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the version before this one."""
    packed = subprocess.run(
        ["git", "archive", PREVIOUS, "src"], cwd=ROOT, capture_output=True, check=False
    )
    if packed.returncode:
        pytest.skip(f"the history of the repository does not go back to {PREVIOUS}")
    folder = tmp_path_factory.mktemp("previous")
    subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
    return folder / "src"


@contextmanager
def old_worker(url: str, tools: Path, source: Path) -> Iterator[Running]:
    arguments = ["worker", "--redis", url, "--tools", str(tools), "--lease", "1"]
    program = f"import sys; sys.path.insert(0, {str(source)!r}); " + (
        "import os; os.environ['PYTHONPATH'] = sys.path[0]; "
        "import toolkiln; print(toolkiln.__file__, file=sys.stderr); "
        "from toolkiln.surfaces.cli import main; main()"
    )
    with running_program([sys.executable, "-c", program, *arguments], tools.parent) as found:
        yield found


TRIPLE = """def triple(number: int) -> int:
    "Triple a number."
    return number * 3
"""
OLD_FRONT = f"""
import json, sys
from pathlib import Path
from toolkiln import Kiln
from toolkiln.config import Settings
from toolkiln.app import errands
from toolkiln.errors import ToolkilnError

url, state = sys.argv[1:]
settings = Settings(state=Path(state), fleet_key="one")
with Kiln.connect(url, settings=settings) as kiln:
    def tend(errand):
        return kiln.run_sync(kiln.tend(errand))
    added = kiln.call_sync("add", {{"left": 1, "right": 2}})
    failed = [kiln.call_sync("fail", call_id="old").error.type for _ in range(2)]
    written = tend(errands.Write(name="triple", source={TRIPLE!r}, only_new=True))
    off = tend(errands.Patch(name="triple", enabled=False))
    on = tend(errands.Patch(name="triple", enabled=True))
    versions = tend(errands.ListVersions(name="triple"))
    shown = tend(errands.ShowVersion(name="triple", version="1"))
    waiting = tend(errands.ListWaiting())
    gone = tend(errands.Remove(name="triple", match=(on.spec.digest,)))
    try:
        tend(errands.ListVersions(name="nothing"))
        refused = ""
    except ToolkilnError as error:
        refused = error.code
print(json.dumps([
    added.value, failed,
    written.authored.success, off.enabled, on.enabled, [one.version for one in versions],
    list(shown.sources), list(waiting), list(gone.tools), refused,
]))
"""


async def new_front(url: str, state: Path) -> list[Any]:
    """What calls and operations of this version give; `OLD_FRONT` does the same."""
    async with Kiln.connect(url, settings=Settings(state=state, fleet_key="one")) as kiln:
        run = kiln.run_operation
        added = await kiln.call("add", {"left": 1, "right": 2})
        failed = [(await kiln.call("fail", call_id="known")).error for _ in range(2)]
        order = tool_files.WriteSource(name="triple", source=TRIPLE, only_new=True)
        written = await run(tool_files.write_source, order)
        off = await run(tools.change_tool, tools.ChangeTool(name="triple", enabled=False))
        on = await run(tools.change_tool, tools.ChangeTool(name="triple", enabled=True))
        history = await run(versions.list_versions, tools.ToolName(name="triple"))
        shown = await run(versions.get_version, versions.GetVersion(name="triple", version="1"))
        waiting = await run(proposals.list_files, proposals.ProposalQuery())
        removal = tools.RemoveTool(name="triple", match=(on.spec.digest,))
        gone = await run(tools.remove_tool, removal)
        with pytest.raises(UnknownTool):
            await run(versions.list_versions, tools.ToolName(name="nothing"))
    return [
        added.value, [error and error.type for error in failed],
        written.authored.success, off.enabled, on.enabled, [one.version for one in history],
        list(shown.sources), list(waiting), list(gone.tools), "unknown_tool",
    ]  # fmt: skip


async def test_fronts_and_workers_of_two_versions_work_together(
    server: Server, tmp_path: Path, previous: Path
) -> None:
    tools_folder = project(tmp_path, 'fleet_key = "one"\n')
    await command(tmp_path, "admit", "--yes")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def old_front() -> Any:
        done = subprocess.run(
            [sys.executable, "-c", OLD_FRONT, server.url, str(tmp_path / "old-front")],
            cwd=elsewhere, env={**os.environ, "PYTHONPATH": str(previous)},
            capture_output=True, text=True, timeout=BOUND, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    with old_worker(server.url, tools_folder, previous) as old:
        old.await_line(str(previous))
        by_old = await new_front(server.url, tmp_path / "front")
        (tmp_path / "toolkiln.toml").write_text(f'fleet_key = "one"\nworker_key = "{PRIVATE}"\n')
        with worker(server.url, tools_folder, dev=False) as new:
            await asyncio.to_thread(old.stop)
            by_new = await asyncio.to_thread(old_front)
            new.stop()

    called = [3, ["ValueError"] * 2]
    operated = [["triple.py"], [], ["triple"], "unknown_tool"]
    assert by_old == [*called, True, False, True, [1], *operated]
    assert by_new[:5] == [*called, True, False, True]
    assert by_new[5] in ([3, 2, 1], [1])
    assert by_new[6:] == [*operated]


def test_results_of_a_later_version_are_read_without_their_unknown_fields() -> None:
    later = {
        "call_id": "x", "tool": "add", "status": "failed", "mood": "calm",
        "error": {"code": "x", "message": "y", "colour": None},
    }  # fmt: skip

    result = wire.result_from_wire(wire.pack(later))

    assert result.status is Status.FAILED
    assert result.error is not None
    assert result.error.code == "x"
