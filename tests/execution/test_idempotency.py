"""A call with an id runs once: again, at once, after a restart, after a kill."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from toolkiln.errors import InputError
from toolkiln.kiln import Kiln
from toolkiln.model.call import Call, Status

from .conftest import CallElsewhere, MakeKiln
from .observers import SOON, change_calls, space, until

SOURCE = '''
"""Count how often it ran."""
import time
from pathlib import Path
from toolkiln import Context, ToolError, tool

SPACE = Path("/workspace")

@tool(workspace="write", parallel=True)
def count(ctx: Context, word: str = "", gate: str = "", fail: bool = False) -> str:
    with (SPACE / "runs").open("a") as runs:
        runs.write("x")
    ctx.report_progress(1, 2, f"at {gate}")
    for _ in range(3000):
        if not gate or (SPACE / gate).exists():
            break
        time.sleep(0.01)
    if fail:
        raise ToolError("no")
    return f"{word} {len((SPACE / 'runs').read_text())}"
'''


@pytest.fixture
def make(make_kiln: MakeKiln) -> Callable[[], Kiln]:
    """Makes Kilns with the counting tool, over the same state."""
    return lambda: make_kiln({"count.py": SOURCE}, grants={"*": {"workspace": "write"}})


@pytest_asyncio.fixture
async def counting(make: Callable[[], Kiln]) -> AsyncIterator[Kiln]:
    """A Kiln with the counting tool."""
    async with make() as kiln:
        yield kiln


def runs(kiln: Kiln) -> int:
    file = space(kiln) / "runs"
    return len(file.read_text()) if file.exists() else 0


async def test_batch_with_an_id_twice_runs_it_once(counting: Kiln) -> None:
    call = Call(tool="count", arguments={"word": "a"}, id="one", remember=True)

    results = await counting.call_many([call, call])

    assert results[0] == results[1]
    assert runs(counting) == 1


async def test_arguments_that_mean_the_same_are_the_same(counting: Kiln) -> None:
    first = await counting.call("count", {"word": "a", "fail": False}, call_id="one")
    again = await counting.call("count", {"fail": "false", "word": "a"}, call_id="one")

    assert again.value == first.value
    assert runs(counting) == 1


async def test_failures_of_the_tool_are_remembered(counting: Kiln) -> None:
    first = await counting.call("count", {"fail": True}, call_id="one")
    again = await counting.call("count", {"fail": True}, call_id="one")

    assert first.status is Status.FAILED
    assert again == first
    assert runs(counting) == 1


async def test_failure_of_the_platform_frees_the_id(counting: Kiln, tmp_path: Path) -> None:
    assert counting.services.registry.specs
    in_the_way = tmp_path / "state" / "versions"
    in_the_way.write_text("a file where a folder has to be")
    failed = await counting.call("count", {"word": "a"}, call_id="one")
    in_the_way.unlink()
    again = await counting.call("count", {"word": "a"}, call_id="one")

    assert failed.status is Status.UNAVAILABLE
    assert again.value == "a 1"


async def test_call_of_a_killed_process_runs_again_and_says_so(
    counting: Kiln, tmp_path: Path, call_elsewhere: CallElsewhere
) -> None:
    arguments = {"word": "a", "gate": "gate"}
    other = call_elsewhere(counting, "count", arguments, "one")
    await until(lambda: runs(counting) == 1)
    other.kill()
    other.wait()

    here = asyncio.create_task(counting.call("count", arguments, call_id="one"))
    await asyncio.sleep(0.1)
    assert runs(counting) == 1  # its lease has not run out
    (space(counting) / "gate").touch()
    change_calls(tmp_path / "state", "UPDATE {} SET leased_until = 1")
    async with asyncio.timeout(SOON):
        result = await here

    assert result.value == "a 2"
    assert any("interrupted" in note for note in result.notes)


async def test_cancelled_call_is_remembered_as_cancelled(counting: Kiln) -> None:
    arguments = {"word": "a", "gate": "gate"}
    calling = asyncio.create_task(counting.call("count", arguments, call_id="one"))
    await until(lambda: runs(counting) == 1)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling

    again = await counting.call("count", arguments, call_id="one")

    assert again.status is Status.CANCELLED
    assert runs(counting) == 1


async def test_a_repeated_call_waits_for_the_first_no_longer_than_its_timeout(
    counting: Kiln,
) -> None:
    arguments = {"word": "a", "gate": "gate"}
    first = asyncio.create_task(counting.call("count", arguments, call_id="one"))
    await until(lambda: runs(counting) == 1)

    async with asyncio.timeout(SOON):
        second = await counting.call("count", arguments, call_id="one", timeout=0.2)
    (space(counting) / "gate").touch()

    assert second.status is Status.TIMEOUT
    assert second.error
    assert second.error.retryable
    assert (await first).value == "a 1"


async def test_same_id_for_another_version_is_a_conflict(
    make: Callable[[], Kiln], tmp_path: Path
) -> None:
    async with make() as kiln:
        await kiln.call("count", {"word": "a"}, call_id="one")
    kiln = make()
    (tmp_path / "tools" / "count.py").write_text(f"{SOURCE}\n# edited\n")
    async with kiln:
        other = await kiln.call("count", {"word": "a"}, call_id="one")

        assert other.error
        assert other.error.code == "conflict"
        assert runs(kiln) == 1


async def test_result_is_not_lost_when_the_store_breaks_meanwhile(
    counting: Kiln, tmp_path: Path
) -> None:
    arguments = {"word": "a", "gate": "gate"}
    calling = asyncio.create_task(counting.call("count", arguments, call_id="one"))
    await until(lambda: runs(counting) == 1)
    change_calls(tmp_path / "state", "DROP TABLE {}")
    await asyncio.sleep(1.2)  # one look at the store, which comes once a second
    assert not calling.done()
    (space(counting) / "gate").touch()
    async with asyncio.timeout(SOON):
        result = await calling

    assert result.value == "a 1"
    assert any("not stored" in note for note in result.notes)


async def test_store_that_cannot_be_opened_is_unavailable(
    make: Callable[[], Kiln], tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "store.db").write_bytes(b"not a database" * 1000)
    async with make() as kiln:
        result = await kiln.call("count", {"word": "a"}, call_id="one")
        without = await kiln.call("count", {"word": "a"})

    assert result.status is Status.UNAVAILABLE
    assert result.error
    assert result.error.retryable
    assert without.value == "a 1"


async def test_id_that_is_too_long_is_refused(counting: Kiln) -> None:
    with pytest.raises(InputError, match="200"):
        await counting.call("count", {"word": "a"}, call_id="x" * 201)
