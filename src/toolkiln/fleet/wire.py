"""What travels between caller and worker, as msgpack: envelopes, results, events, replies.

Processes of two versions share a fleet while it is upgraded: readers ignore fields that they
do not know, and new fields have defaults. Whatever bytes come in, what comes out is one of
these values or `Malformed`. Large bodies, keys and streams belong to `queue`, and who may send
what to `identity`.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.msgpack import Decoder, Encoder, Ext
from pydantic import BaseModel, TypeAdapter, ValidationError

from toolkiln.errors import InputError
from toolkiln.model import Event, QuestionKind, Result
from toolkiln.store import StoreError

T = TypeVar("T")
BODY_LIMIT = 32 * 1024 * 1024
"""Bytes that an envelope or a reply may have."""
INLINE_LIMIT = 256 * 1024
"""Bytes up to which a body travels in the stream itself."""

Short = Annotated[str, Meta(max_length=1000)]
_RECORD = r"(?:[0-9A-Za-z_.-]{1,100}:)?[0-9A-Za-z_-]{1,64}"
Record = Annotated[str, Meta(max_length=165, pattern=rf"^{_RECORD}\Z")]
"""What a call is known by: its id, hashed with its caller's identity (`store.key_of`).

Ahead of that, where the client may use no other keys, the name of its Redis user."""
ReplyTo = Annotated[str, Meta(max_length=200, pattern=r"^[0-9A-Za-z_.:-]*\Z")]
Milliseconds = Annotated[int, Meta(ge=0, le=1 << 48)]

# Extensions of msgpack for what it has no words for: text with lone surrogates, integers of
# more than 64 bits, and objects with a key of such a kind.
_TEXT, _INTEGER, _OBJECT = 1, 2, 3


class Malformed(StoreError):
    """Bytes from Redis that are not what they should be."""


class Envelope(Struct, frozen=True, array_like=True):
    """One call on its way to a worker."""

    id: Annotated[str, Meta(max_length=200)]
    """The caller's own name for it, or a random one."""
    record: Record
    tool: Short
    digest: Short | None = None
    """The version to run; None means the current one."""
    arguments: Raw = Raw(b"\xc0")
    """As `pack` wrote them; `unpack` reads them."""
    session: Short | None = None
    """The hash of the session's token."""
    surface: Short = ""
    timeout_ms: Milliseconds | None = None
    """What the caller is ready to wait, from when the call is accepted."""
    repeatable: bool = False
    """Whether a second run does no harm: the tool is read-only or idempotent."""
    remember: bool = False
    """Whether the id is the caller's own, so that repeating it gives the first result."""
    events: bool = False
    """Whether the caller wants to hear of progress."""
    reply_to: ReplyTo = ""
    """The name of the caller's reply stream; nobody is told if it is empty."""
    pool: Short = "default"
    traceparent: Short | None = None
    """The caller's span, as W3C Trace Context writes it; earlier workers ignore it."""
    depth: Annotated[int, Meta(ge=0, le=1000)] = 0
    asks: Annotated[tuple[QuestionKind, ...], Meta(max_length=10)] | None = None
    """What the caller can be asked while it waits; None if nothing at all."""
    seal: bytes = b""
    """What proves that the caller holds the fleet's key (`identity`)."""


class Proof(Struct, frozen=True, array_like=True):
    """What shows that a trusted worker sent a reply, and about which call (`signatures`)."""

    about: bytes
    """The envelope's seal, or what its tool and arguments hash to; see `about`."""
    of: str = ""
    """The entry that the worker ended; of a question the digest of its body."""
    signature: bytes = b""
    path: bytes = b""


class Reply(Struct, frozen=True, array_like=True):
    """What a caller is told of one call."""

    record: Record
    kind: Literal["result", "end", "event", "stored", "question", "withdrawn"]
    """`end`: it ended without a Result, for the reason whose code the body is (`endings`).
    `stored`: the reply is a key of its own, and this its digest; `queue` fetches it.
    `question`: the call asks something, and the body is its id (`questioning`); `withdrawn`: it
    wants no answer to that any more."""
    body: bytes
    proof: Proof | None = None


_ENVELOPES = Decoder(Envelope)
_REPLIES = Decoder(list[Reply])
_REPLY = Decoder(Reply)
_ENCODER = Encoder()
_RESULT, _EVENT = TypeAdapter(Result), TypeAdapter(Event)
_SEND_JSON = "send plain JSON: text, numbers, true, false, null, lists and objects"
_BAD = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, TypeError, MemoryError)


def envelope_to_wire(envelope: Envelope) -> bytes:
    """One envelope.

    Raises:
        InputError: it is too large, or has text that is none.
    """
    return _fitting(_written(envelope, "the call"), "the call")


def envelope_from_wire(data: bytes) -> Envelope:
    """The envelope that `envelope_to_wire` wrote.

    Raises:
        Malformed: these bytes are none.
    """
    return _decoded(_ENVELOPES, data, "an envelope")


def reply_to_wire(reply: Reply) -> bytes:
    """One reply; a stream's entry holds several of them (`replies_from_wire`).

    Raises:
        InputError: it is too large.
    """
    return _fitting(_ENCODER.encode(reply), "the result")


def reply_from_wire(data: bytes) -> Reply:
    """The reply that `reply_to_wire` wrote.

    Raises:
        Malformed: these bytes are none.
    """
    return _decoded(_REPLY, data, "a reply")


def replies_to_wire(replies: Sequence[Reply]) -> bytes:
    """Several replies to one caller, as one entry."""
    return _ENCODER.encode(replies)


def replies_from_wire(data: bytes) -> list[Reply]:
    """The replies of one entry.

    Raises:
        Malformed: these bytes are none.
    """
    return _decoded(_REPLIES, data, "replies")


def result_to_wire(result: Result) -> bytes:
    """One result: those of its fields that say something.

    Raises:
        InputError: it is too large, or its value is not plain JSON.
    """
    if (data := _plainly(result)) is not None:
        return _fitting(data, "the result")
    said = _said(result)
    for name in ("error", "truncation", "timing"):
        if name in said:
            said[name] = _said(said[name])
    if result.files:
        said["files"] = [_said(file) for file in result.files]
    return _fitting(pack(said), "the result")


def result_from_wire(data: bytes) -> Result:
    """The result that `result_to_wire` wrote.

    Raises:
        Malformed: these bytes are none.
    """
    return read_model(_RESULT, unpack(data), "a result")


def event_to_wire(event: Event) -> bytes:
    """One event."""
    return pack(event.__dict__)


def event_from_wire(data: bytes) -> Event:
    """The event that `event_to_wire` wrote.

    Raises:
        Malformed: these bytes are none.
    """
    return read_model(_EVENT, unpack(data), "an event")


def read_model(expected: TypeAdapter[T], told: Any, what: str) -> T:
    """Return the value that another process sent, without the fields that are unknown here.

    Raises:
        Malformed: it is something else.
    """
    try:
        try:
            return expected.validate_python(told)
        except ValidationError as error:
            if not without_unknown(told, error):
                raise
            return expected.validate_python(told)
    except ValidationError as error:
        raise Malformed(f"{what} cannot be read: {error.errors()[0]['msg']}") from None


def without_unknown(told: Any, error: ValidationError) -> bool:
    """Remove the fields that a model does not know; False if there are none."""
    unknown = [wrong["loc"] for wrong in error.errors() if wrong["type"] == "extra_forbidden"]
    removed = False
    for *path, last in unknown:
        where = told
        for step in path:
            # The location of a union names the member that was tried, which is not in the data.
            if isinstance(where, dict) and step in where:
                where = where[step]
            if isinstance(where, list | tuple) and isinstance(step, int):
                where = where[step] if step < len(where) else where
        if isinstance(where, dict) and last in where:
            del where[last]
            removed = True
    return removed


def record_of(data: bytes) -> str | None:
    """The name of a record, if these bytes are one."""
    text = data.decode("ascii", "replace")
    return text if re.fullmatch(_RECORD, text) else None


def about(envelope: Envelope) -> bytes:
    """Return what binds a reply to a call.

    A call with an id of its caller's own can be repeated by another process, with another
    envelope: there the tool and the arguments are what both have.
    """
    return fingerprint(envelope).encode() if envelope.remember else envelope.seal


def signed_part(reply: Reply) -> bytes:
    """Return the bytes of a reply that its signature covers."""
    proof = reply.proof
    assert proof is not None
    return _ENCODER.encode((reply.record, reply.kind, reply.body, proof.about, proof.of))


def fingerprint(envelope: Envelope) -> str:
    """What two tries of one call have in common: another one is another call."""
    arguments = pack(_sorted(unpack(envelope.arguments)))
    return sha256(envelope.tool.encode() + b"\0" + arguments).hexdigest()[:32]


def pack(value: Any) -> bytes:
    """Any plain JSON, with bytes; lone surrogates and huge numbers come back as they were.

    Raises:
        InputError: it is something else, or nested too deep.
    """
    try:
        return _ENCODER.encode(value)
    except (UnicodeError, OverflowError):
        return _written(_expressible(value), "the value")
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the value cannot be sent: {error}", hint=_SEND_JSON) from None


def unpack(data: bytes | Raw) -> Any:
    """The value that `pack` wrote.

    Raises:
        Malformed: these bytes are none.
    """
    return _decoded(_VALUES, data, "a value")


class _Timing(Struct, omit_defaults=True):
    started: float = 0.0
    duration: float = 0.0
    cpu: float | None = None
    memory: int | None = None


class _Plain(Struct, omit_defaults=True):
    """The fields of most results, so that writing them costs little."""

    call_id: str
    tool: str
    status: str
    digest: str | None = None
    value: Any = None
    text: str = ""
    timing: _Timing | None = None
    stdout: str = ""
    stderr: str = ""
    sandbox: str = ""


def _plainly(result: Result) -> bytes | None:
    """A result without anything special, as it would be written anyway; None if it has that."""
    if (
        result.error or result.notes or result.files or result.messages
        or result.injected_tools or result.truncation or result.dev
    ):  # fmt: skip
        return None
    when = result.timing
    plain = _Plain(
        result.call_id, result.tool, result.status, result.digest, result.value, result.text,
        _Timing(when.started, when.duration, when.cpu, when.memory) if when.started else None,
        result.stdout, result.stderr, result.sandbox,
    )  # fmt: skip
    try:
        return _ENCODER.encode(plain)
    except (UnicodeError, OverflowError, TypeError, ValueError, RecursionError):
        return None


def _said(value: BaseModel) -> dict[str, Any]:
    """The fields that differ from what they are by themselves."""
    fields = type(value).model_fields
    return {name: said for name, said in value.__dict__.items() if said != fields[name].default}


def _written(value: Any, what: str) -> bytes:
    try:
        return _ENCODER.encode(value)
    except (UnicodeError, OverflowError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{what} cannot be sent: {error}", hint=_SEND_JSON) from None


def _fitting(data: bytes, what: str) -> bytes:
    if len(data) > BODY_LIMIT:
        raise InputError(
            f"{what} has {len(data):,} bytes, and {BODY_LIMIT:,} can be sent",
            hint="hand over a file in the workspace, or a part at a time",
        )
    return data


def _expressible(value: Any) -> Any:
    """The same with extensions in place of what msgpack cannot say."""
    if isinstance(value, str):
        return value if _is_text(value) else Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else Ext(_INTEGER, b"%x" % value)
    if isinstance(value, list | tuple):
        return [_expressible(item) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) and _is_text(key) for key in value):
            return {key: _expressible(item) for key, item in value.items()}
        pairs = [[_expressible(key), _expressible(item)] for key, item in value.items()]
        return Ext(_OBJECT, _ENCODER.encode(pairs))
    return value


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=repr)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _extended(code: int, data: memoryview) -> Any:
    if code == _TEXT:
        return bytes(data).decode("utf-8", "surrogatepass")
    if code == _INTEGER:
        return int(bytes(data), 16)
    if code == _OBJECT:
        return dict(_VALUES.decode(data))
    raise ValueError(f"extension {code} is unknown")


_VALUES = Decoder(ext_hook=_extended)


def _decoded(decoder: Decoder[T], data: bytes, what: str) -> T:
    try:
        return decoder.decode(data)
    except _BAD as error:
        raise Malformed(f"{what} cannot be read: {error}") from None
