"""What two processes in front of one fleet see of each other's calls."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from toolkiln.config import Settings
from toolkiln.errors import NotFound
from toolkiln.kiln import Kiln
from toolkiln.model.call import Status, Task

pytestmark = pytest.mark.asyncio(loop_scope="module")
SOON = 60.0


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def fronts(
    contract_fleet: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Kiln, Kiln]]:
    one, other = (
        Kiln.connect(contract_fleet, settings=Settings(state=tmp_path_factory.mktemp(name)))
        for name in ("one", "other")
    )
    async with one, other:
        yield one, other


async def seen(kiln: Kiln, task: str, session: str, fits: Callable[[Task], bool]) -> Task:
    """A task when it is like this."""
    async with asyncio.timeout(SOON):
        while not fits(found := await kiln.tasks.get(task, session)):
            await asyncio.sleep(0.05)
    return found


async def test_what_one_began_the_other_follows_and_awaits(fronts: tuple[Kiln, Kiln]) -> None:
    one, other = fronts
    ann, bob = (one.security.sessions.create(name).token for name in ("ann", "bob"))
    task = await one.call("last", {"seconds": 1.5}, background=True, session=ann)
    assert isinstance(task, Task)
    on_the_way = await seen(other, task.id, ann, lambda found: bool(found.progress))
    listed = await other.tasks.list(ann)
    ended = await other.tasks.wait(task.id, ann, timeout=SOON)

    assert (on_the_way.state, on_the_way.progress) == ("running", "it runs (0)")
    assert (listed[0].id, listed[0].tool) == (task.id, "last")
    assert ended.result is not None
    assert ended.result.value == "lasted"
    with pytest.raises(NotFound):
        await other.tasks.get(task.id, bob)


async def test_what_one_began_the_other_cancels(fronts: tuple[Kiln, Kiln]) -> None:
    one, other = fronts
    ann = one.security.sessions.create("ann").token
    task = await one.call("last", {"seconds": 60}, background=True, session=ann)
    assert isinstance(task, Task)
    await other.tasks.cancel(task.id, ann)
    ended = await one.tasks.wait(task.id, ann, timeout=SOON)

    assert ended.result is not None
    assert ended.result.status is Status.CANCELLED


async def test_what_was_cut_for_one_the_other_reads_on(fronts: tuple[Kiln, Kiln]) -> None:
    one, other = fronts
    ann, bob = (one.security.sessions.create(name).token for name in ("ann", "bob"))
    result = await one.call("write_much", {"characters": 5000}, session=ann)
    assert result.truncation
    assert result.truncation.handle
    page = await other.tasks.read_output(result.truncation.handle, ann, offset=4995, limit=20)

    assert (page.text, page.total, page.next_offset) == ("56789", 5000, None)
    with pytest.raises(NotFound):
        await other.tasks.read_output(result.truncation.handle, bob)


async def test_what_waits_for_one_is_approved_at_the_other(fronts: tuple[Kiln, Kiln]) -> None:
    one, other = fronts
    ann = one.security.sessions.create("ann").token
    task = await one.call("delete_all", {"what": "mail"}, background="auto", session=ann)
    assert isinstance(task, Task)
    waiting = await other.tasks.get(task.id, ann)
    (request,) = other.security.approvals.waiting()
    other.security.approve(request.id, arguments={"what": "spam"})
    ended = await other.tasks.wait(task.id, ann, timeout=SOON)

    assert (task.state, waiting.state) == ("pending", "pending")
    assert (request.tool, request.arguments) == ("delete_all", {"what": "mail"})
    assert ended.result is not None
    assert ended.result.value == "deleted spam"


async def test_an_id_runs_once_whichever_is_asked(fronts: tuple[Kiln, Kiln]) -> None:
    one, other = fronts
    ann = one.security.sessions.create("ann").token
    results = await asyncio.gather(
        *(
            kiln.call("last", {"seconds": 0.2}, call_id="mine", session=ann)
            for kiln in (one, other, one, other)
        )
    )

    assert {result.value for result in results} == {"lasted"}
    assert len({result.timing.started for result in results}) == 1
