"""Functions that the scenarios call by name: what results can hold."""

import struct
import wave
import zlib
from pathlib import Path

from toolkiln import Context, ToolError, prompt, resource, tool


@tool(read_only=True)
def test_simple_text() -> str:
    """Give a sentence, to see that text arrives as it is."""
    return "This is a simple text response for testing."


@tool(read_only=True)
def test_error_handling() -> str:
    """Fail in words of its own, to see that they arrive."""
    raise ToolError("This tool intentionally returns an error for testing")


@tool(capabilities=["files"])
def test_image_content(ctx: Context) -> None:
    """Hand over a picture of one pixel."""
    ctx.send_file(_picture())


@tool(capabilities=["files"])
def test_audio_content(ctx: Context) -> None:
    """Hand over a moment of silence."""
    with wave.open("silence.wav", "wb") as file:
        file.setparams((1, 1, 8000, 8, "NONE", ""))
        file.writeframes(bytes(8))
    ctx.send_file("silence.wav")


@tool(capabilities=["files"])
def test_embedded_resource(ctx: Context) -> None:
    """Hand over a file with a sentence in it, to see it embedded."""
    Path("resource.txt").write_text("This is an embedded resource content.")
    ctx.send_file("resource.txt")


@tool(capabilities=["files"])
def test_multiple_content_types(ctx: Context) -> str:
    """Return a sentence, a picture and a document."""
    Path("mixed.json").write_text('{"test":"data","value":123}')
    ctx.send_file(_picture())
    ctx.send_file("mixed.json")
    return "Multiple content types test:"


@tool(read_only=True)
def test_tool_with_logging(ctx: Context) -> str:
    """Write to the log at the start, in between and at the end."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log(message)
    return "Three messages were logged."


@tool(read_only=True)
def test_logging_tool(ctx: Context) -> str:
    """Write to the log, for those who asked for it only."""
    ctx.log("A message")
    return "A message was logged."


@tool(read_only=True)
def test_tool_with_progress(ctx: Context) -> str:
    """Tell three times how far it is."""
    for done in (0, 50, 100):
        ctx.report_progress(done, 100)
    return "All is done."


@prompt(capabilities=["files"])
def test_prompt_with_image(ctx: Context) -> str:
    """Show a picture of one pixel, and ask for it to be looked at."""
    ctx.send_file(_picture())
    return "Please analyze the image above."


@resource("test://static-binary", mime_type="image/png", capabilities=["files"])
def static_binary() -> bytes:
    """A picture of one pixel."""
    return Path(_picture()).read_bytes()


def _picture() -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(b"\0\xff\0\0")), (b"IEND", b"")
    Path("red.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts))
    return "red.png"
