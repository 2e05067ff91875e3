"""A server's clock that was set: nothing hangs on it but what it says of deadlines."""

from contextlib import closing
from pathlib import Path

from toolkiln.fleet import keys, wire
from toolkiln.model.call import Status

from ..mortals import mortal
from ..servers import Server
from ..workers import asking, performer
from .conftest import Connect
from .reckoning import runs, settled, soon

HOUR_MS = 3600_000


async def test_entries_from_a_clock_that_was_ahead_disturb_nothing(
    server: Server, tmp_path: Path
) -> None:
    with performer(server.url, tmp_path), closing(server.client()) as client:
        async with asking(server) as asker:
            await asker.call("double", {"number": 1})
            for stream in (keys.calls("default"), keys.replies(asker.reply_to)):
                ahead = client.time()[0] * 1000 + HOUR_MS
                client.execute_command("XSETID", stream, f"{ahead}-0")  # type: ignore[no-untyped-call]

            results = [
                await asker.call("nap", {"seconds": 0, "mark": str(n)}, timeout_ms=30_000)
                for n in range(3)
            ]

    assert {result.status for result in results} == {Status.OK}
    assert [len(runs(tmp_path, str(n))) for n in range(3)] == [1, 1, 1]
    await settled(server)


async def test_replies_of_a_server_whose_clock_is_behind_the_last_one_are_read(
    folder: Path, tmp_path: Path, connect: Connect
) -> None:
    with mortal(folder) as redis, performer(redis.server.url, tmp_path):
        async with connect(redis.server.url) as kiln:
            await kiln.call("double", {"number": 1})
            with closing(redis.server.client()) as client:
                [stream] = client.scan_iter(keys.replies("*"))
                ahead = client.time()[0] * 1000 + HOUR_MS
                client.xadd(stream, {"replies": wire.replies_to_wire([])}, id=f"{ahead}-0")
                # Read, and trimmed as all is that was.
                await soon(lambda: client.xlen(stream) == 0)
            redis.die()
            redis.rise()

            doubled = await kiln.call("double", {"number": 2})
            result = await kiln.call("nap", {"seconds": 0, "mark": "after"})

    assert (doubled.status, result.status) == (Status.OK, Status.OK)
    assert len(runs(tmp_path, "after")) == 1
