"""A server's clock that was set: nothing hangs on it but what it says of deadlines."""

from contextlib import closing
from pathlib import Path

from toolkiln.fleet import keys
from toolkiln.model.call import Status

from ..servers import Server
from ..workers import asking, performer
from .reckoning import runs, settled

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
