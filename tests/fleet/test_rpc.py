"""Operations of a front in a fleet of several pools, and of pools without workers."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from toolkiln.config import Settings
from toolkiln.errors import BackendError, UnknownTool
from toolkiln.fleet.publisher import Publisher
from toolkiln.fleet.rpc import OLD_PREFIX, PREFIX
from toolkiln.kiln import Kiln
from toolkiln.model.base import Value
from toolkiln.model.call import Grant, Status
from toolkiln.operations import tool_files, tools, versions
from toolkiln.operations.operation import Operation

from .servers import Server
from .test_catalog import put
from .test_rolling import served
from .workers import admit, asking, code_of, tools_folder, until, worker

pytestmark = pytest.mark.asyncio(loop_scope="module")
SOON = 60.0
SOURCE = '''
def {name}() -> str:
    """Tell its name."""
    return "{name}"
'''


NOTE = '''
from toolkiln import tool


@tool(workspace="write")
def note() -> str:
    """Write a note."""
    return "noted"
'''


@dataclass
class Fleet:
    """Two pools, each with a worker and a folder of its own."""

    server: Server
    folders: dict[str, Path]


@pytest.fixture(scope="module")
def fleet(module_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folders = {pool: tmp_path_factory.mktemp(pool) / "tools" for pool in ("default", "other")}
    for pool, folder in folders.items():
        grants = f'[grants.note_of_{pool}]\nworkspace = "write"\n'
        names = [f"first_of_{pool}", f"second_of_{pool}"]
        sources = {name: SOURCE.format(name=name) for name in names}
        note = NOTE.replace("note()", f"note_of_{pool}()")
        tools_folder(folder.parent, grants, note=note, **sources)
        admit(folder, "note.py", *(f"{name}.py" for name in names))
    url = module_server.url
    with (
        worker(url, folders["default"]),
        worker(url, folders["other"], "--pool", "other"),
    ):
        yield Fleet(module_server, folders)


@pytest_asyncio.fixture(loop_scope="module")
async def front(fleet: Fleet, tmp_path: Path) -> AsyncIterator[Kiln]:
    async with Kiln.connect(fleet.server.url, settings=Settings(state=tmp_path)) as kiln:
        yield kiln


async def test_an_operation_goes_to_the_pool_of_its_tool(front: Kiln, fleet: Fleet) -> None:
    run = front.run_operation
    name = "first_of_other"

    off = await run(tools.change_tool, tools.ChangeTool(name=name, enabled=False))
    is_listed = name in front.services.registry.specs
    disabled = await run(tools.list_disabled, tools.ListUnserved())
    on = await run(tools.change_tool, tools.ChangeTool(name=name, enabled=True))
    gone = await run(tools.remove_tool, tools.RemoveTool(name=name))
    back = await run(versions.rollback, versions.Rollback(name=name, version=str(gone.version)))
    with pytest.raises(UnknownTool):
        await run(versions.list_versions, tools.ToolName(name="first_of_none"))

    assert (off.enabled, is_listed, on.enabled) == (False, False, True)
    assert [spec.name for spec in disabled] == [name]
    assert back.digest == gone.digest
    assert (fleet.folders["other"] / f"{name}.py").is_file()
    assert (await front.call(name)).value == name


async def test_a_new_tool_is_written_by_the_default_pool(front: Kiln, fleet: Fleet) -> None:
    order = tool_files.WriteSource(name="fresh", source=SOURCE.format(name="fresh"))

    written = await front.run_operation(tool_files.write_source, order)

    assert (written.authored.success, written.is_new) == (True, True)
    assert (fleet.folders["default"] / "fresh.py").is_file()
    assert (await front.call("fresh")).value == "fresh"


async def test_workers_of_one_folder_see_the_changes_of_each_other(
    front: Kiln, fleet: Fleet
) -> None:
    run = front.run_operation
    name, source = "shared", SOURCE.format(name="shared")
    better = source.replace('return "shared"', 'return "better"')

    with worker(fleet.server.url, fleet.folders["default"]):
        for _ in range(2):
            made = await run(
                tool_files.write_source,
                tool_files.WriteSource(name=name, source=source, only_new=True),
            )
            digest = made.authored.digest
            again = await run(
                tool_files.write_source,
                tool_files.WriteSource(name=name, source=better, match=(digest,)),
            )
            off = await run(tools.change_tool, tools.ChangeTool(name=name, enabled=False))
            on = await run(
                tools.change_tool,
                tools.ChangeTool(name=name, enabled=True, match=(off.spec.digest,)),
            )
            called = await front.call(name)
            back = await run(versions.rollback, versions.Rollback(name=name, version=digest))
            gone = await run(tools.remove_tool, tools.RemoveTool(name=name, match=(back.digest,)))

            assert (made.is_new, again.authored.success, on.enabled) == (True, True, True)
            assert (called.value, gone.digest) == ("better", digest)


async def test_a_version_that_a_writer_published_has_no_grants_in_the_fleet(
    front: Kiln, fleet: Fleet
) -> None:
    run = front.run_operation
    name = "note_of_other"
    source = (fleet.folders["other"] / "note.py").read_text().replace("noted", "stolen")
    bob = front.security.sessions.create("bob", privileges=["WRITE_TOOLS"]).token
    before = await front.call(name)

    written = await run(
        tool_files.write_source, tool_files.WriteSource(name=name, source=source), bob
    )
    refused = await front.call(name)
    shown = await run(tools.tool_state, tools.ToolName(name=name))
    await run(tools.change_tool, tools.ChangeTool(name=name, granted=True))

    assert before.value == "noted"
    assert written.authored.success, written.authored.error
    assert code_of(refused) == "not_granted"
    assert (shown.reviewed, front.services.registry.grant(name)) == (
        False,
        Grant(workspace="write"),
    )
    assert (await front.call(name)).value == "stolen"


@pytest.mark.parametrize(
    ("prefix", "operation"), [(PREFIX, "tools.remove"), (OLD_PREFIX, "remove")]
)
async def test_operations_are_not_tools(
    front: Kiln, fleet: Fleet, prefix: str, operation: str
) -> None:
    name, remove = "first_of_default", f"{prefix}{operation}"
    run = prefix + ("sources.run" if prefix == PREFIX else "run")

    called = await front.call(remove, {"name": name})
    async with asking(fleet.server) as ann:
        refused = await ann.call(remove, {"name": name})
        unknown = await ann.call(f"{run}.nothing", {})
        unfit = await ann.call(remove, {"names": [name]})
        no_source = await ann.call(run, {"nothing": 1})

    assert (called.status, code_of(called)) == (Status.INVALID, "unknown_tool")
    assert (refused.status, code_of(refused)) == (Status.DENIED, "not_allowed")
    assert [code_of(unknown), code_of(unfit), code_of(no_source)] == [
        "bad_input",
        "bad_input",
        "poison",
    ]
    assert name in front.services.registry.specs


async def test_concurrent_calls_wait_until_their_session_is_shared(
    front: Kiln, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions, shared = front.security.sessions, list[str]()
    share, came, may_go = sessions.share, threading.Event(), threading.Event()

    def share_slowly(token: str, seconds: float) -> None:
        shared.append(token)
        came.set()
        assert may_go.wait(SOON)
        share(token, seconds)

    monkeypatch.setattr(sessions, "share", share_slowly)
    ann = sessions.create("ann").token
    calls = [asyncio.create_task(front.call("first_of_default")) for _ in range(3)]
    await asyncio.to_thread(came.wait, SOON)
    known = await front.call("first_of_default", session=ann)  # which needs no sharing
    is_early = [call.done() for call in calls]
    may_go.set()
    results = await asyncio.wait_for(asyncio.gather(*calls), SOON)

    assert known.status is Status.OK
    assert is_early == [False] * 3
    assert [result.status for result in results] == [Status.OK] * 3
    assert len(shared) == 1


async def test_an_operation_that_no_worker_runs_fails(front: Kiln, fleet: Fleet) -> None:
    run = front.run_operation
    unheard: list[tuple[Operation[Any, Any], Value]] = [
        (versions.list_versions, tools.ToolName(name="greet")),
        (tools.change_tool, tools.ChangeTool(name="greet", enabled=False)),
    ]

    async with asking(fleet.server) as asker:
        gone = Publisher(asker.pipe, asker.key, "gone", "whose workers have died")
        await put(gone, served("one"))
        await asyncio.to_thread(until, lambda: "greet" in front.services.registry.specs)
        for operation, request in unheard:
            with pytest.raises(BackendError, match="no worker of the pool 'gone'") as raised:
                await run(replace(operation, timeout=0.3), request)
            assert "toolkiln fleet status" in (raised.value.hint or "")
        standing = await run(tools.tool_state, tools.ToolName(name="greet"))
        elsewhere = await run(versions.list_versions, tools.ToolName(name="second_of_default"))
        await gone.withdraw()
        await asyncio.to_thread(until, lambda: "greet" not in front.services.registry.specs)

    assert standing.enabled
    assert len(elsewhere) == 1
