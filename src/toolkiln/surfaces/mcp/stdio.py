"""The stdio transport: one MCP connection over stdin and stdout, one message per line.

The SDK's transport passes each message through several threads; here the event loop reads
and writes directly. While the connection is open, descriptor 0 is empty and descriptor 1 is
stderr, which keeps the output of functions out of the protocol.
"""

import asyncio
import json
import os
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self

import mcp_types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

MAX_LINE_BYTES = 64 << 20
"""Longer messages are discarded while they are read."""
_TOO_LONG = f"A message of more than {MAX_LINE_BYTES >> 20} MB was discarded"


class _StdioStream:
    async def aclose(self) -> None:
        """Do nothing: the streams stay open until the process ends."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class StdioWriter(_StdioStream):
    """Messages to the client; `send` waits while the client does not read."""

    def __init__(self, descriptor: int, writer: asyncio.StreamWriter | None) -> None:
        self._descriptor = descriptor
        self._writer = writer

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message."""
        message = item.message
        if isinstance(message, mcp_types.JSONRPCResponse):  # the most frequent and largest
            body = {"jsonrpc": "2.0", "id": message.id, "result": message.result}
            line = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        else:
            line = message.model_dump_json(by_alias=True, exclude_unset=True)
        data = line.encode("utf-8", "replace") + b"\n"
        if self._writer is None:
            os.write(self._descriptor, data)
            return
        self._writer.write(data)
        with suppress(ConnectionError):  # the client has gone; stdin ends too
            await self._writer.drain()


class StdioReader(_StdioStream):
    """Messages from the client; a line that is no message gets an error response here."""

    def __init__(self, lines: asyncio.StreamReader, writer: StdioWriter) -> None:
        self._lines = lines
        self._writer = writer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while (line := await self._line()) != b"":
            if line is None:
                await self._writer.send(_error(mcp_types.INVALID_REQUEST, _TOO_LONG))
            elif not line.isspace():
                try:
                    message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValidationError as error:
                    await self._writer.send(_invalid_line(line, error))
                else:
                    return SessionMessage(message)
        raise StopAsyncIteration

    async def _line(self) -> bytes | None:
        """Return the next line, empty at the end of the stream; None for one that is too long."""
        is_too_long = False
        while True:
            try:
                line = await self._lines.readuntil()
            except asyncio.LimitOverrunError as error:
                is_too_long = True
                await self._lines.readexactly(error.consumed)
                continue
            except asyncio.IncompleteReadError as error:
                line = error.partial
            return None if is_too_long and line else line

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        return await self.__anext__()


@asynccontextmanager
async def stdio_streams() -> AsyncIterator[tuple[StdioReader, StdioWriter]]:
    """Open the connection to the client that started this process."""
    loop = asyncio.get_running_loop()
    stdin, stdout = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as null:  # noqa: PTH123
        os.dup2(null.fileno(), 0)
    os.dup2(2, 1)
    lines = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    source = stdin if _is_pollable(stdin) else _copy_to_pipe(stdin)
    read_transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(source, "rb", 0)
    )
    writer = None
    if _is_pollable(stdout):
        write_transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(stdout, "wb", 0)
        )
        writer = asyncio.StreamWriter(write_transport, protocol, None, loop)
    try:
        messages = StdioWriter(stdout, writer)
        yield StdioReader(lines, messages), messages
    finally:
        read_transport.close()
        if writer is not None:
            with suppress(ConnectionError):
                await writer.drain()
            writer.close()


def _invalid_line(line: bytes, error: ValidationError) -> SessionMessage:
    """Return the error for a line that is no message, with its request id if it has one."""
    if error.errors(include_url=False, include_input=False)[0]["type"] == "json_invalid":
        return _error(mcp_types.PARSE_ERROR, "Parse error: the line is not JSON")
    value = json.loads(line)
    field = value.get("id") if isinstance(value, dict) else None
    request_id = field if type(field) in (int, str) else None
    return _error(mcp_types.INVALID_REQUEST, "The line is not a JSON-RPC message", request_id)


def _error(code: int, message: str, request_id: int | str | None = None) -> SessionMessage:
    error = mcp_types.ErrorData(code=code, message=message)
    return SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


def _is_pollable(descriptor: int) -> bool:
    """Return whether the event loop can wait for a descriptor: no files, no /dev/null."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


def _copy_to_pipe(descriptor: int) -> int:
    """Copy a file into a pipe and return the end to read: the event loop cannot wait for files."""
    read_end, write_end = os.pipe()

    def copy() -> None:
        with suppress(BrokenPipeError):
            while data := os.read(descriptor, 1 << 16):
                os.write(write_end, data)
        os.close(write_end)

    threading.Thread(target=copy, daemon=True).start()
    return read_end
