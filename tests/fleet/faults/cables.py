"""A cable between processes and a server, which can be cut, go silent, or lose an answer."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Cable:
    """A port that leads to another one, for as long as it is whole.

    It has a thread of its own, so that it goes on whatever a test waits for.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        """Where connections lead that are made from now on."""
        self.port = 0
        self.made = 0
        """How many connections were tried."""
        self._is_cut = False
        self._lost, self._losses = b"", 0
        self._is_lost = threading.Event()
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._ready, self._done = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def open(self) -> None:
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """End every connection, and let none be made until it is mended."""
        self._is_cut = True
        for link in list(self._links):
            self._loop.call_soon_threadsafe(link.ended.set)

    def silence(self) -> None:
        """Swallow what the connections carry, as a network does that is gone, without a word.

        They stay so for good: only what is made after mending works.
        """
        self._is_cut = True
        for link in list(self._links):
            link.is_silent = True

    def mend(self) -> None:
        """Let connections be made again."""
        self._is_cut = False

    def lose_answer_to(self, words: bytes, times: int = 1) -> threading.Event:
        """Once something with these words was carried to the server, end that connection.

        The server gets it and answers; the answer gets lost. What is returned is set then.
        With `times`, the same happens to the next connections that carry these words.
        """
        self._is_lost = threading.Event()
        self._lost, self._losses = words, times
        return self._is_lost

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._done.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        with suppress(OSError):
            if not self._is_cut:
                behind, ahead = await asyncio.open_connection("127.0.0.1", self.target)
                await self._carry((reader, writer), (behind, ahead))
                await _closed(ahead)
        await _closed(writer)

    async def _carry(
        self,
        front: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        back: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        link = _Link()
        self._links.add(link)
        ways = [
            asyncio.create_task(self._there(link, front[0], back[1])),
            asyncio.create_task(_back(link, back[0], front[1])),
            asyncio.create_task(_until(link.ended)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        self._links.discard(link)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)

    async def _there(
        self, link: "_Link", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(1 << 16):
            if link.is_silent:
                continue
            if self._lost and self._lost in data:
                self._losses -= 1
                self._lost = self._lost if self._losses else b""
                link.is_losing = self._is_lost
            writer.write(data)
            await writer.drain()


class _Link:
    """One connection."""

    def __init__(self) -> None:
        self.is_silent = False
        self.is_losing: threading.Event | None = None
        self.ended = asyncio.Event()


async def _back(link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        if link.is_losing is not None:
            link.is_losing.set()
            return
        if not link.is_silent:
            writer.write(data)
            await writer.drain()


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


@contextmanager
def cable(target: int) -> Iterator[Cable]:
    """A cable to a port, whole at first."""
    laid = Cable(target)
    laid.open()
    try:
        yield laid
    finally:
        laid.close()
