"""One connection to Redis that many tasks share, over asyncio and hiredis.

Commands that are issued in one turn of the loop leave in one write, and answers come back
in order. It reconnects by itself, and tries nothing again that the server may have run:
whoever asked gets `Unreachable` and decides. A read that blocks holds up all that is behind
it, so those have a Pipe of their own. What a connection is made of is in `link`.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

from toolkiln.fleet.address import Address
from toolkiln.fleet.link import Done, Link, Lost, Part, connect
from toolkiln.store import StoreError, Unreachable

# How long a command waits for a connection that is being made again.
_PATIENCE_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0
# The server did not run it: it is a replica by now, or it is still reading its disk.
_NOT_RUN = ("READONLY", "LOADING", "MASTERDOWN")


class Pipe:
    """A connection to a server, which comes back after it was lost."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.connects = 0
        """How often it has connected: more than before means that it was lost meanwhile."""
        self._link: Link | None = None
        self._trouble: Exception = ConnectionError("not connected")
        self._connecting: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Pipe {self.address.name}>"

    async def open(self) -> None:
        """Connect.

        Raises:
            StoreError: the server cannot be reached or used.
        """
        try:
            self._use(await connect(self.address))
        # ValueError: a certificate that is no file, a host that is no name.
        except (OSError, ValueError) as error:
            raise self._unreachable(error, sent=False) from None

    async def command(self, *parts: Part, wait: float = 0.0) -> Any:
        """Run a command; bytes, integers, None and lists come back.

        `wait` are the seconds that the server may take because the command blocks.

        Raises:
            Unreachable: there is no connection, or it was lost before the answer came.
            StoreError: the server refused.
        """
        link = self._link or await self._reconnected()
        answer = await link.send(parts, wait)
        if isinstance(answer, Exception):
            raise self._failure(answer, link)
        return answer

    def script(self, name: str) -> "Script":
        """A script of the folder `lua`."""
        return Script(self, name)

    def submit(self, parts: Sequence[Part], done: Done) -> bool:
        """Send a command at once, for those who wait for no task; False if it cannot be."""
        link = self._link
        if link is None:
            return False

        def answered(answer: Any) -> None:
            done(self._failure(answer, link) if isinstance(answer, Exception) else answer)

        link.submit(parts, answered, now=True)
        return True

    async def close(self) -> None:
        """Let go of the server; what waits for an answer gets Unreachable."""
        self._closed = True
        self._trouble = ConnectionError("closed")
        if self._connecting:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting
        if self._link:
            await self._link.close()
        self._link = None

    def _use(self, link: Link) -> None:
        self._link = link
        self.connects += 1
        self._connected.set()
        link.on_lost = self._forget

    def _forget(self, link: Link, error: Exception) -> None:
        if self._link is not link or self._closed:
            return
        self._link, self._trouble = None, error
        self._connected.clear()
        self._connecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        pause = 0.0
        while self._link is None:
            await asyncio.sleep(pause)
            pause = min(max(_FIRST_PAUSE_SECONDS, 2 * pause), _LONGEST_PAUSE_SECONDS)
            try:
                self._use(await connect(self.address))
            except (OSError, ValueError, StoreError) as error:
                self._trouble = error

    async def _reconnected(self) -> Link:
        if self._connecting and not self._closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    await self._connected.wait()
        if self._link is None:
            raise self._unreachable(self._trouble, sent=False)
        return self._link

    def _unreachable(self, error: Exception, *, sent: bool) -> Unreachable:
        if isinstance(error, StoreError):
            return Unreachable(error.message, sent=sent, hint=error.hint)
        message, hint = self.address.failure(error)
        return Unreachable(message, sent=sent, hint=hint)

    def _failure(self, error: Exception, link: Link) -> StoreError:
        if isinstance(error, Lost):
            return self._unreachable(error, sent=error.sent)
        if any(word in str(error) for word in _NOT_RUN):
            # Whoever is the primary now is asked for with the next connection.
            link.abort(error)
            return self._unreachable(error, sent=False)
        message, hint = self.address.failure(error)
        return StoreError(message, hint=hint)


class Script:
    """Runs on the server, all of it or nothing, with keys and arguments."""

    def __init__(self, pipe: Pipe, name: str) -> None:
        self._pipe = pipe
        self._source, self._digest = _source(name)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, keys: Sequence[str], arguments: Sequence[Part]) -> Any:
        """The answer; it raises as `Pipe.command` does."""
        command = ("EVALSHA", self._digest, len(keys), *keys, *arguments)
        try:
            return await self._pipe.command(*command)
        except StoreError as error:
            if not _is_unknown(error):
                raise
        await self._pipe.command("SCRIPT", "LOAD", self._source)
        return await self._pipe.command(*command)

    def start(self, keys: Sequence[str], arguments: Sequence[Part], done: Done) -> None:
        """The same for a callback, which gets the answer or the StoreError."""

        def answered(answer: Any) -> None:
            if _is_unknown(answer):
                self._start_slowly(keys, arguments, done)
            else:
                done(answer)

        command = ("EVALSHA", self._digest, len(keys), *keys, *arguments)
        if not self._pipe.submit(command, answered):
            self._start_slowly(keys, arguments, done)

    def _start_slowly(self, keys: Sequence[str], arguments: Sequence[Part], done: Done) -> None:
        async def run() -> None:
            try:
                answer = await self(keys, arguments)
            except StoreError as error:
                answer = error
            done(answer)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_unknown(answer: Any) -> bool:
    return isinstance(answer, StoreError) and "NOSCRIPT" in answer.message


@cache
def _source(name: str) -> tuple[str, str]:
    source = files("toolkiln.fleet").joinpath("lua", f"{name}.lua").read_text("utf-8")
    # Not for safety: Redis names scripts so.
    return source, sha1(source.encode(), usedforsecurity=False).hexdigest()
