"""Workers that stop, stall and come back, beyond what `test_worker_faults` has."""

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from toolkiln.fleet import keys
from toolkiln.model.call import Status

from ..servers import Server
from ..workers import asking, await_state, code_of, performer
from .reckoning import begun, runs, settled, soon

pytestmark = pytest.mark.faults

NONSENSE: list[dict[Any, Any]] = [
    {"nothing": "of use"},
    {"record": "r", "call": "", "by": "0", "tries": "0"},
    {"record": "r", "call": b"\xc1" * 40, "by": "0", "tries": "0"},
    {"record": "r", "call": b"\x91" * 100_000, "by": "0", "tries": "0"},
    {"record": "r", "call": b"\xdd\xff\xff\xff\xff", "by": "0", "tries": "0"},
    {"record": "r", "call": b"\xc4\x20" + bytes(32), "by": "0", "tries": "0"},
    {"record": "r\r\nXADD", "call": b"\x80", "by": "soon", "tries": "-1"},
    {"record": "r" * 5000, "call": b"\x80", "by": "9" * 400, "tries": "1e9"},
]


async def test_ends_of_a_worker_that_was_stopped_and_continued_do_not_count(
    server: Server, tmp_path: Path
) -> None:
    with performer(server.url, tmp_path) as first:
        async with asking(server) as asker:
            call = await asker.start("nap", {"seconds": 0.2, "mark": "once"})
            await begun(tmp_path, "once")
            first.process.send_signal(signal.SIGSTOP)
            await_state(first.process.pid, "T")
            with performer(server.url, tmp_path):
                lost = await asker.end_of(call)
            first.process.send_signal(signal.SIGCONT)
            # It ends, or tries to renew, what it had before it takes another one.
            after = await asker.call("nap", {"seconds": 0.5, "mark": "after"})

        assert code_of(lost) == "lost"
        assert after.value == f"slept by {first.process.pid}"
        assert len(asker.replies[call.record]) == 1
    assert len(runs(tmp_path, "once")) == 1
    await settled(server)


async def test_a_tool_that_holds_the_interpreter_keeps_its_lease(
    server: Server, tmp_path: Path
) -> None:
    with performer(server.url, tmp_path, lease=0.2), performer(server.url, tmp_path, lease=0.2):
        async with asking(server) as asker:
            given = {"count": 30_000_000, "mark": "held"}
            result = await asker.call("hold", given, repeatable=True)

    assert result.status is Status.OK
    assert len(runs(tmp_path, "held")) == 1
    await settled(server)


async def test_nonsense_in_the_queue_stops_no_worker(server: Server, tmp_path: Path) -> None:
    with performer(server.url, tmp_path) as running, closing(server.client()) as client:
        async with asking(server) as asker:
            for fields in NONSENSE:
                client.xadd(keys.calls("default"), fields)

            result = await asker.call("double", {"number": 4})
            await soon(lambda: client.xlen(keys.dead("default")) == len(NONSENSE))

        assert result.value == 8
        assert running.process.poll() is None
    await settled(server)


@pytest.mark.parametrize("count", [1_000_000, 50_000_000])
async def test_a_large_result_is_an_answer_like_any_other(
    server: Server, tmp_path: Path, count: int
) -> None:
    with performer(server.url, tmp_path):
        async with asking(server) as asker:
            result = await asker.call("give", {"count": count})
            after = await asker.call("double", {"number": 4})

    assert result.status in (Status.OK, Status.FAILED)
    assert after.value == 8
    await settled(server)
