"""The table of fuzz targets: one function from bytes for each parser of foreign input.

A target returns what the parser made of the input. It swallows the one error that the parser
documents; every other exception, an endless run and a huge output are bugs. `check` looks at
the output, the runner at the time.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Raw

from toolkiln.catalog import manifest
from toolkiln.config import load
from toolkiln.docstrings.parser import parse
from toolkiln.errors import ConfigError, InputError, InvalidCursor
from toolkiln.execution.executor import ExecutionOutcome, Invocation
from toolkiln.fleet import wire
from toolkiln.model.call import Grant
from toolkiln.model.catalog import Admission, DecisionRecord
from toolkiln.model.spec import Dialect, ToolSpec
from toolkiln.model.tool import ResolvedTool
from toolkiln.operations.operation import decode_cursor, encode_cursor
from toolkiln.sandbox.channel import CallChannel
from toolkiln.sandbox.network.connection import ConnectionEnded, parse_request, requested_host
from toolkiln.schema.arguments import ArgumentChecker
from toolkiln.schema.providers import PROVIDERS, compile_tool
from toolkiln.schema.providers.compilers import health
from toolkiln.spec.reader import read
from toolkiln.spec.syntax import decode
from toolkiln.surfaces.mcp import tools

MAX_INPUT = 4096
"""Bytes of one input."""
MAX_OUTPUT = 4 << 20
"""Characters that the output of a parser may have for an input of at most `MAX_INPUT` bytes."""


@dataclass(frozen=True)
class Target:
    """A parser, with inputs that it accepts and words that it knows."""

    parse: Callable[[bytes], Any]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()

    def check(self, data: bytes) -> None:
        """Parse one input, and fail if the output is too large."""
        size = len(repr(self.parse(data[:MAX_INPUT])))
        assert size <= MAX_OUTPUT, f"{len(data)} bytes became {size:,} characters"


def _source(data: bytes) -> Any:
    try:
        text = decode(data)
    except (UnicodeDecodeError, SyntaxError):
        return None
    return read(text, "<memory>", data=data).model_dump_json()


def _docstring(data: bytes) -> Any:
    return parse(data.decode("utf-8", "surrogateescape"))


def _schema(data: bytes) -> Any:
    try:
        parameters = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parameters, dict):
        return None
    spec = _spec(parameters)
    compiled = [compile_tool(spec, provider) for provider in PROVIDERS]
    with suppress(InputError):
        ArgumentChecker(parameters)
    return [health(parameters), *((each.payload, each.losses, each.errors) for each in compiled)]


def _proxy_head(data: bytes) -> Any:
    with suppress(ConnectionEnded):
        return requested_host(data), parse_request(data)
    return None


def _envelope(data: bytes) -> Any:
    found: list[Any] = []
    for decoder in (
        wire.reply_from_wire, wire.replies_from_wire, wire.result_from_wire,
        wire.event_from_wire, wire.unpack,
    ):  # fmt: skip
        with suppress(wire.Malformed):
            found.append(decoder(data))
    with suppress(wire.Malformed):
        envelope = wire.envelope_from_wire(data)
        found += [envelope, wire.fingerprint(envelope)]
    return found


def _frames(data: bytes) -> Any:
    """Each line is a frame of its own; the length of the last one is wrong."""
    *whole, last = data.split(b"\n")
    sent = b"".join(len(body).to_bytes(4, "big") + body for body in whole) + last
    return _loop().run_until_complete(_converse(sent))


async def _converse(sent: bytes) -> Any:
    outcome = ExecutionOutcome()
    channel = CallChannel(_invocation(), outcome)
    far = channel.far_call.dup()
    channel.open()
    far.sendall(sent)
    far.close()
    try:
        ending = await channel.over
    finally:
        channel.close()
    return ending, outcome


def _cursor(data: bytes) -> Any:
    found: list[Any] = []
    for types in ((float, str), (float, str, int), (str,), (int, str), (int,)):
        with suppress(InvalidCursor):
            found.append(decode_cursor("runs", data.decode("latin-1"), *types))
    with suppress(InputError):
        found.append(tools._decode_cursor(data.decode("latin-1")))
    return found


def _settings(data: bytes) -> Any:
    (_folder() / "toolkiln.toml").write_bytes(data)
    with suppress(ConfigError):
        return load(_folder(), {})
    return None


def _manifest(data: bytes) -> Any:
    """The seal is right if it can be: without a key, anyone can compute it."""
    with suppress(ValueError, RecursionError):
        content = json.loads(data)
        if isinstance(content, dict):
            seal = manifest._seal(
                {k: v for k, v in content.items() if k not in ("format", "seal")}, ""
            )
            data = json.dumps({**content, "seal": seal}).encode()
    with suppress(manifest.ManifestError):
        return manifest.encode(manifest.decode(data, _folder()))
    return None


def _spec(parameters: dict[str, Any]) -> ToolSpec:
    return ToolSpec(
        name="convert", description="Convert money.", parameters=parameters,
        dialect=Dialect.FUNCTION, entry="convert", display_name="Convert", digest="0" * 64,
        path="convert.py", line=1,
    )  # fmt: skip


def _invocation() -> Invocation:
    return Invocation(ResolvedTool(_spec({"type": "object"}), dict), {})


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="fuzz-")
    _folders.append(folder)  # removed when the process ends
    return Path(folder.name)


_folders: list[tempfile.TemporaryDirectory[str]] = []

_ADMISSION = Admission(
    sha256="0" * 64, version=1, admitted_by="ana", admitted_at="2026-01-01", since="2026-01-01",
    rights={"a": Grant(network=("example.com",))},
)  # fmt: skip
_REFUSAL = DecisionRecord(sha256="0" * 64, by="ana", at="2026-01-01")

TARGETS: dict[str, Target] = {
    "source": Target(
        _source,
        (
            b'# /// script\n# dependencies = ["rich>=13"]\n# ///\nfrom typing import Literal\n'
            b"from pydantic import BaseModel, Field\nclass Point(BaseModel):\n    x: int = "
            b'Field(ge=0, description="Across.")\n\n'
            b'@tool(network=["example.com"], files=["*.csv"])\n'
            b'async def convert(amount: float, to: Literal["EUR", "USD"] = "EUR", '
            b"at: list[Point] | None = None) -> dict[str, int]:\n"
            b'    """Convert money.\n\n    Args:\n        amount: How much.\n    """\n'
            b"    return open('rates.csv').read()  # toolkiln: ignore[opened-file]\n",
            b'"""\ntitle: Money\nrequirements: rich\n"""\nimport os\nclass Tools:\n'
            b"    class Valves(BaseModel):\n        key: str = ''\n"
            b"    def convert(self, amount: int, __user__: dict) -> str:\n"
            b'        """:param amount: How much."""\n        return eval(os.environ["A"])\n',
        ),
        (
            b"# -*- coding: utf-7 -*-\n", b"# coding: rot13\n", b"# coding: idna\n",
            b"\xef\xbb\xbf",
            b"type A[T: int] = list[A]\n", b"def f[T](x: T): ...\n", b"@tool()\n", b"Annotated[",
            b"Literal[", b"Enum", b"TypedDict", b"dataclass", b"NewType", b"lambda: ", b"\\ud800",
            b"Union[", b"Optional[", b"Callable[[", b"**kwargs: Unpack[", b"= 10**9",
            b"'x' * 10**9",
            b"1 << 99999", b"from . import ", b"__file__", b"*args", b"yield ", b"]", b")",
            b"\n    ",
        ),
    ),
    "docstring": Target(
        _docstring,
        (
            b"Convert money.\n\nArgs:\n    amount (int): How much.\n        More.\n"
            b"Returns:\n    int: What is left.\nRaises:\n    ValueError: bad\n\n"
            b"Example:\n    >>> convert(1)\n    2\n",
            b"Convert.\n\nParameters\n----------\na, b : int, optional\n    How much.\n\n"
            b"**Notes:**\n```\nx\n```\n.. note:: hi\n   :class: y\n"
            b":param str a: How.\n@return: It.\n",
        ),
        (b"Args:", b"::", b"```", b"~~~", b"-----", b"=====", b":param ", b"\t", b"\r", b"\x0c",
         b"\xe2\x80\xa8", b"\n\n", b"    ", b"* ", b"**", b">>> ", b"\xed\xa0\x80"),
    ),
    "schema": Target(
        _schema,
        (
            b'{"type":"object","properties":{"a":{"type":"string","enum":["x","y"]},"b":{"type":'
            b'"array","items":{"$ref":"#/$defs/A"},"minItems":1}},"required":["a"],'
            b'"additionalProperties":false,"$defs":{"A":{"anyOf":[{"type":"null"},'
            b'{"type":"object","properties":{"n":{"$ref":"#/$defs/A"}}}]}}}',
            b'{"type":"object","properties":{"a":{"allOf":[{"type":"integer","minimum":0},'
            b'{"maximum":9,"default":1}]},"c":{"const":null},"d":{"type":["string","null"],'
            b'"pattern":"^a+$","format":"date"}},"patternProperties":{"^x":{"not":{}}}}',
        ),
        (
            b'"$ref":"#"', b'"$ref":"#/$defs/A"', b'"oneOf":[', b'"prefixItems":[', b'"if":{',
            b'"dependentSchemas":{', b'"uniqueItems":true', b'"multipleOf":0.1', b"1e400", b"-1",
            b'"$dynamicRef":"#a"', b'"$id":"http://x/"', b'"unevaluatedProperties":false', b"true",
            b'"const":', b'"enum":[]', b'"propertyNames":{', b"null", b"{}", b"[]", b"9" * 5000,
            b'"discriminator":{"propertyName":"k","mapping":{', b'"\\ud800"', b"}", b"]", b",",
        ),
    ),
    "proxy-head": Target(
        _proxy_head,
        (
            b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443",
            b"POST http://example.com:8080/a?b HTTP/1.0\r\nHost: example.com:8080\r\n"
            b"Content-Length: 12\r\nConnection: close, X-A\r\nX-A: b\r\nAccept: */*",
        ),
        (b"\r\n", b"\n", b"Transfer-Encoding: chunked", b"Host: ", b"[::1]", b"127.1", b":0", b"@",
         b"xn--", b"\xff", b"http://", b"/", b"?", b"#", b" ", b"\t", b":99999", b"%00"),
    ),
    "envelope": Target(
        _envelope,
        (
            wire.envelope_to_wire(
                wire.Envelope("id", "record", "tool", "0" * 64, Raw(wire.pack({"a": [1]})))
            ),
            wire.replies_to_wire([wire.CallReply("record", "result", wire.pack({"a": 1}))]),
            wire.pack({"call_id": "i", "tool": "t", "status": "ok", "value": {"\ud800": 1 << 70}}),
            wire.pack({"kind": "log", "text": "hello", "level": "info"}),
        ),
        (b"\xc0", b"\xdd\xff\xff\xff\xff", b"\xdf\x00\x01\x00\x00", b"\xc1", b"\xd4\x01\xff",
         b"\xc7\x04\x03\x91\x92\x90\x01", b"\xca\x7f\xc0\x00\x00", b"\xd6\xff\x00\x00\x00\x00",
         b"\x91" * 200, b"\xc7\x02\x02-1", b"\xc7\x02\x02_1"),
    ),
    "frames": Target(
        _frames,
        (
            b'{"op":"begun"}\n{"op":"loaded","seconds":0.1}\n{"op":"progress","done":1,"total":2,'
            b'"message":"m"}\n{"op":"log","level":20,"message":"m"}\n{"op":"message","value":1}\n'
            b'{"op":"inject","names":["a"]}\n{"op":"file","name":"../a","data":"YQ=="}\n'
            b'{"op":"result","value":1,"notes":["n"]}\n',
            b'{"op":"call","tool":"t","arguments":{}}\n{"op":"ask","questions":[]}\n'
            b'{"op":"tool_result","value":{"ok":true,"stdout":"","stderr":""}}\n',
            b'{"op":"error","type":"ValueError","message":"m","traceback":"t"}\n',
        ),
        (b"NaN", b"1e999", b'"\\ud800"', b"[" * 200, b"null", b"{}", b"[]", b"true", b"-1",
         b"9" * 5000, b"\xff\xff\xff\xff", b'"op":', b'"level":', b'"done":', b"\n", b'"value":'),
    ),
    "cursor": Target(
        _cursor,
        tuple(
            encode_cursor("runs", *position).encode()
            for position in ((1.5, "a"), (1.5, "a", 2), (1,))
        ),
        (b"=", b"_", b"-", b"+", b"/", b"W10", b"W1siXV0", b"TmFO", b"\xc3\xa4", b"\n"),
    ),
    "settings": Target(
        _settings,
        (
            b'tools = "tools"\nport = 8300\nrequire_key = "auto"\nhosts = ["a"]\npolicy = "ask"\n'
            b'[grants.convert]\nnetwork = ["example.com"]\nsecrets = ["KEY"]\nsandbox = false\n'
            b'[limits]\nmemory = 1000000\n[privileges]\nana = ["ADMIN"]\n"group:b" = ["APPROVE"]\n'
            b'[rates."a*"]\ncaller = "60/minute"\n[[rules]]\ntools = ["a*"]\neffect = "deny"\n',
        ),
        (
            b"[[", b"]]", b"[", b"]", b" = ", b"inf", b"nan", b"-1", b"9" * 5000, b"1979-05-27",
            b"07:32:00", b'"""', b"'''", b'"\\u0000"', b"true", b"{ a = 1 }", b"\x00", b"rates",
            b"redis", b"telemetry", b"store", b"private_networks", b"0x7fffffffffffffffff", b"\n",
        ),
    ),
    "manifest": Target(
        _manifest,
        (
            manifest.encode(
                manifest.Manifest(
                    files={"a.py": _ADMISSION}, rejected={"b.py": _REFUSAL},
                    enabled={"a": False, "b": manifest.Switch(methods={"c": True})},
                )
            ),
        ),
        (b"null", b"{}", b"[]", b"true", b"1e400", b"NaN", b'"\\ud800"', b'"format"', b'"seal"',
         b'"grant":{', b'"proposed":{', b'"at":"2026-01-01T00:00:00Z"', b'"by":"', b"9" * 5000),
    ),
}  # fmt: skip
