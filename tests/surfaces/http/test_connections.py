"""How an answer is written to its connection."""

import asyncio
from collections.abc import Callable

import pytest

from toolkiln.surfaces.http.connections import CoalescingTransport


class Wire(asyncio.Transport):
    """Remembers what was written to it, and that it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bytes | str] = []

    def write(self, data: "bytes | bytearray | memoryview[int]") -> None:
        self.seen.append(bytes(data))

    def close(self) -> None:
        self.seen.append("closed")


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (lambda to: (to.write(b"head "), to.write(b"body")), [b"head body"]),
        (lambda to: (to.write(b"head"), to.write(b"")), [b"head"]),
        (lambda to: (to.write(b"head"), to.close()), [b"head", "closed"]),
        (lambda to: (to.write(b"1 "), to.write(b"2 "), to.write(b"3")), [b"1 2 ", b"3"]),
        (lambda to: (to.write(b""), to.close()), ["closed"]),
    ],
)
async def test_what_is_written_at_once_leaves_by_one_write(
    answer: Callable[[CoalescingTransport], object], seen: list[bytes | str]
) -> None:
    wire = Wire()

    answer(CoalescingTransport(wire, asyncio.get_running_loop()))
    await asyncio.sleep(0)

    assert wire.seen == seen


async def test_nothing_waits_for_what_does_not_come() -> None:
    wire = Wire()
    gathered = CoalescingTransport(wire, asyncio.get_running_loop())

    for event in (b"head", b"first", b"second"):
        gathered.write(event)
        await asyncio.sleep(0)

    assert wire.seen == [b"head", b"first", b"second"]
