"""The process's own stdin and stdout as the streams of one MCP connection: a line a message.

The SDK's transport hands each message through several threads; here the event loop reads
and writes by itself. While it serves, descriptor 0 is empty and descriptor 1 is stderr, so
that nothing a function prints gets into the conversation.
"""

import asyncio
import json
import os
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Self

import mcp_types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

LONGEST_LINE = 64 << 20
"""Bytes of one message; a longer one is dropped as it comes."""
_TOO_LONG = f"A message of more than {LONGEST_LINE >> 20} MB was dropped"


class _Closing:
    """What both streams need to be used with `async with`."""

    async def aclose(self) -> None:
        """There is nothing to close before the process ends."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class Outgoing(_Closing):
    """Messages for the client; `send` waits while it does not read."""

    def __init__(self, descriptor: int, writer: asyncio.StreamWriter | None) -> None:
        self._descriptor = descriptor
        self._writer = writer

    async def send(self, item: SessionMessage, /) -> None:
        """Write one."""
        message = item.message
        if isinstance(message, mcp_types.JSONRPCResponse):  # most of them, and large
            body = {"jsonrpc": "2.0", "id": message.id, "result": message.result}
            line = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        else:
            line = message.model_dump_json(by_alias=True, exclude_unset=True)
        data = line.encode("utf-8", "replace") + b"\n"
        if self._writer is None:
            os.write(self._descriptor, data)
            return
        self._writer.write(data)
        with suppress(ConnectionError):  # the client has gone, and its end of stdin says so
            await self._writer.drain()


class Incoming(_Closing):
    """Messages of the client; what is none is answered with an error here."""

    def __init__(self, lines: asyncio.StreamReader, outgoing: Outgoing) -> None:
        self._lines = lines
        self._outgoing = outgoing

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while (line := await self._line()) != b"":
            if line is None:
                await self._outgoing.send(_refusal(mcp_types.INVALID_REQUEST, _TOO_LONG))
            elif not line.isspace():
                try:
                    read = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValidationError as error:
                    await self._outgoing.send(_no_message(line, error))
                else:
                    return SessionMessage(read)
        raise StopAsyncIteration

    async def _line(self) -> bytes | None:
        """The next line, empty at the end; None for one that was too long to be kept."""
        is_dropped = False
        while True:
            try:
                line = await self._lines.readuntil()
            except asyncio.LimitOverrunError as error:
                is_dropped = True
                await self._lines.readexactly(error.consumed)
                continue
            except asyncio.IncompleteReadError as error:
                line = error.partial
            return None if is_dropped and line else line

    async def receive(self) -> SessionMessage | Exception:
        """The next one."""
        return await self.__anext__()


@asynccontextmanager
async def standard_streams() -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """The connection of a client that started this process."""
    loop = asyncio.get_running_loop()
    incoming, outgoing = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    lines = asyncio.StreamReader(limit=LONGEST_LINE)
    source = incoming if _can_wait(incoming) else _piped(incoming)
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(source, "rb", 0)
    )
    writer = None
    if _can_wait(outgoing):
        writing, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(outgoing, "wb", 0)
        )
        writer = asyncio.StreamWriter(writing, protocol, None, loop)
    try:
        to_client = Outgoing(outgoing, writer)
        yield Incoming(lines, to_client), to_client
    finally:
        reading.close()
        if writer is not None:
            with suppress(ConnectionError):
                await writer.drain()
            writer.close()


def _no_message(line: bytes, error: ValidationError) -> SessionMessage:
    """What is wrong with a line, for the request that it would have been, if it has an id."""
    if error.errors(include_url=False, include_input=False)[0]["type"] == "json_invalid":
        return _refusal(mcp_types.PARSE_ERROR, "Parse error: the line is not JSON")
    given = json.loads(line)
    number = given.get("id") if isinstance(given, dict) else None
    known = number if type(number) in (int, str) else None
    return _refusal(mcp_types.INVALID_REQUEST, "The line is no JSON-RPC message", known)


def _refusal(code: int, message: str, number: int | str | None = None) -> SessionMessage:
    error = mcp_types.ErrorData(code=code, message=message)
    return SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=number, error=error))


def _can_wait(descriptor: int) -> bool:
    """Whether the loop can wait for a descriptor: not for files and devices like /dev/null."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


def _piped(descriptor: int) -> int:
    """A pipe that a file is copied into: the loop cannot wait for files."""
    reading, writing = os.pipe()

    def copy() -> None:
        with suppress(BrokenPipeError):
            while data := os.read(descriptor, 1 << 16):
                os.write(writing, data)
        os.close(writing)

    threading.Thread(target=copy, daemon=True).start()
    return reading
