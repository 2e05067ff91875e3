"""Messages between callers and workers, in msgpack: envelopes, results, events, replies.

Processes of two versions share a fleet during an upgrade: readers ignore unknown fields, and new
fields have defaults. Encoding raises InputError for values that are too large or not plain JSON;
decoding raises `Malformed` for invalid bytes. `queue` moves the bytes, `message_auth`
authenticates them.
"""

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.msgpack import Decoder, Encoder, Ext
from pydantic import BaseModel, TypeAdapter, ValidationError

from toolkiln.errors import InputError, StoreError
from toolkiln.model.call import CallError, Event, Result, Status
from toolkiln.model.question import QuestionKind

T = TypeVar("T")
Observe = Callable[[Event], None]
"""Gets the events of a call."""
BODY_LIMIT = 32 * 1024 * 1024
"""Maximum bytes of an envelope or a reply."""
INLINE_LIMIT = 256 * 1024
"""Maximum bytes of a body inside a stream entry."""

Short = Annotated[str, Meta(max_length=1000)]
_RECORD = r"(?:[0-9A-Za-z_.-]{1,100}:)?[0-9A-Za-z_-]{1,64}"
Record = Annotated[str, Meta(max_length=165, pattern=rf"^{_RECORD}\Z")]
"""Key of a call: its id hashed with its caller's identity (`store.key_of`), after the name of
the Redis user where an ACL restricts the client to its own keys."""
ReplyTo = Annotated[str, Meta(max_length=200, pattern=r"^[0-9A-Za-z_.:-]*\Z")]
NO_REQUEST = Raw(b"\xc0")
Milliseconds = Annotated[int, Meta(ge=0, le=1 << 48)]

# msgpack extensions: text with lone surrogates, integers of more than 64 bits, and objects with
# such keys.
_TEXT, _INTEGER, _OBJECT = 1, 2, 3


class Malformed(StoreError):
    """Invalid data from Redis."""


class Envelope(Struct, frozen=True, array_like=True):
    """A call on its way to a worker."""

    id: Annotated[str, Meta(max_length=200)]
    """Chosen by the caller, or random."""
    record: Record
    tool: Short
    digest: Short | None = None
    """The version to run; None means the current one."""
    arguments: Raw = Raw(b"\xc0")
    """Encoded by `pack`."""
    session: Short | None = None
    """The hash of the session's token."""
    surface: Short = ""
    timeout_ms: Milliseconds | None = None
    """The caller's time limit, from when the call is accepted."""
    repeatable: bool = False
    """Whether a second run does no harm: the tool is read-only or idempotent."""
    remember: bool = False
    """Whether the id is an idempotency key: repeating it returns the first result."""
    events: bool = False
    """Whether to send events to the caller."""
    reply_to: ReplyTo = ""
    """Name of the caller's reply stream; empty: no reply."""
    pool: Short = "default"
    traceparent: Short | None = None
    """The caller's span in W3C Trace Context format; older workers ignore it."""
    depth: Annotated[int, Meta(ge=0, le=1000)] = 0
    asks: Annotated[tuple[QuestionKind, ...], Meta(max_length=10)] | None = None
    """Kinds of questions the caller can answer; None if it cannot answer any."""
    seal: bytes = b""
    """Proof that the caller has the fleet key (`message_auth`)."""
    request: Raw = NO_REQUEST
    """What the caller says about the call; last, so that older processes can ignore it."""


class Proof(Struct, frozen=True, array_like=True):
    """Signature of a trusted worker, and what it binds the reply to."""

    subject: bytes
    """See `reply_subject`."""
    target: str = ""
    """The entry that ended; for a question, the digest of its body."""
    signature: bytes = b""
    path: bytes = b""


class CallReply(Struct, frozen=True, array_like=True):
    """A message to the caller of one call."""

    record: Record
    kind: Literal["result", "end", "event", "stored", "question", "withdrawn"]
    """`end`: the call ended without a Result, and the body is the end code. `stored`: the body is
    the digest of a reply stored under a separate key. `question`: the body is the id of a
    question (`questions`), which `withdrawn` revokes."""
    body: bytes
    proof: Proof | None = None


_ENVELOPES = Decoder(Envelope)
_REPLIES = Decoder(list[CallReply])
_REPLY = Decoder(CallReply)
_ENCODER = Encoder()
_RESULT, _EVENT = TypeAdapter(Result), TypeAdapter(Event)
_SEND_JSON = "send plain JSON: text, numbers, true, false, null, lists and objects"
_DECODE_ERRORS = (
    msgspec.MsgspecError,
    ValueError,
    RecursionError,
    OverflowError,
    TypeError,
    MemoryError,
)


def envelope_to_wire(envelope: Envelope) -> bytes:
    """Encode an envelope."""
    return _check_size(_encode(envelope, "the call"), "the call")


def envelope_from_wire(data: bytes) -> Envelope:
    """Decode an envelope."""
    return _decode(_ENVELOPES, data, "an envelope")


def reply_to_wire(reply: CallReply) -> bytes:
    """Encode one reply; a stream entry contains several (`replies_to_wire`)."""
    return _check_size(_ENCODER.encode(reply), "the result")


def reply_from_wire(data: bytes) -> CallReply:
    """Decode a reply."""
    return _decode(_REPLY, data, "a reply")


def replies_to_wire(replies: Sequence[CallReply]) -> bytes:
    """Encode several replies to one caller as one stream entry."""
    return _ENCODER.encode(replies)


def replies_from_wire(data: bytes) -> list[CallReply]:
    """Decode the replies of one stream entry."""
    return _decode(_REPLIES, data, "replies")


def result_to_wire(result: Result) -> bytes:
    """Encode the fields of a result that differ from their defaults."""
    if (data := _encode_plain(result)) is not None:
        return _check_size(data, "the result")
    fields = _changed_fields(result)
    for name in ("error", "truncation", "timing"):
        if name in fields:
            fields[name] = _changed_fields(fields[name])
    if result.files:
        fields["files"] = [_changed_fields(file) for file in result.files]
    return _check_size(pack(fields), "the result")


def result_from_wire(data: bytes) -> Result:
    """Decode a result."""
    return read_model(_RESULT, unpack(data), "a result")


def event_to_wire(event: Event) -> bytes:
    """Encode the fields of an event that differ from their defaults."""
    return pack(_changed_fields(event))


def event_from_wire(data: bytes) -> Event:
    """Decode an event."""
    return read_model(_EVENT, unpack(data), "an event")


def read_model(adapter: TypeAdapter[T], data: Any, what: str) -> T:
    """Validate data from another process, ignoring unknown fields."""
    try:
        try:
            return adapter.validate_python(data)
        except ValidationError as error:
            if not drop_unknown_fields(data, error):
                raise
            return adapter.validate_python(data)
    except ValidationError as error:
        raise Malformed(f"{what} cannot be read: {error.errors()[0]['msg']}") from None


def drop_unknown_fields(data: Any, error: ValidationError) -> bool:
    """Remove the fields that a model does not know; False if there are none."""
    unknown = [problem["loc"] for problem in error.errors() if problem["type"] == "extra_forbidden"]
    removed = False
    for *path, last in unknown:
        parent = data
        for step in path:
            # The location in a union includes the member type, which is not in the data.
            if isinstance(parent, dict) and step in parent:
                parent = parent[step]
            if isinstance(parent, list | tuple) and isinstance(step, int):
                parent = parent[step] if step < len(parent) else parent
        if isinstance(parent, dict) and last in parent:
            del parent[last]
            removed = True
    return removed


def record_of(data: bytes) -> str | None:
    """Return the key of a call record, if these bytes are one."""
    text = data.decode("ascii", "replace")
    return text if re.fullmatch(_RECORD, text) else None


def reply_subject(envelope: Envelope) -> bytes:
    """Return the value that binds a reply to its call.

    Another process may repeat a call with a caller-chosen id in another envelope: both share
    the fingerprint.
    """
    return fingerprint(envelope).encode() if envelope.remember else envelope.seal


def signed_part(reply: CallReply) -> bytes:
    """Return the bytes of a reply that its signature covers."""
    proof = reply.proof
    assert proof is not None
    return _ENCODER.encode((reply.record, reply.kind, reply.body, proof.subject, proof.target))


def fingerprint(envelope: Envelope) -> str:
    """Return the hash of tool and arguments, equal for all attempts of one call."""
    arguments = pack(_sorted(unpack(envelope.arguments)))
    return sha256(envelope.tool.encode() + b"\0" + arguments).hexdigest()[:32]


def pack(value: Any) -> bytes:
    """Encode plain JSON and bytes, including lone surrogates and huge integers."""
    try:
        return _ENCODER.encode(value)
    except (UnicodeError, OverflowError):
        return _encode(_with_extensions(value), "the value")
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the value cannot be sent: {error}", hint=_SEND_JSON) from None


def unpack(data: bytes | Raw) -> Any:
    """Decode a value."""
    return _decode(_VALUES, data, "a value")


class _Timing(Struct, omit_defaults=True):
    started: float = 0.0
    duration: float = 0.0
    cpu: float | None = None
    memory: int | None = None


class _Plain(Struct, omit_defaults=True):
    """The fields of most results, for fast encoding."""

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


def _encode_plain(result: Result) -> bytes | None:
    """Encode a result that has only the fields of `_Plain`; None if it has others."""
    if (
        result.error or result.notes or result.files or result.messages
        or result.injected_tools or result.truncation or result.dev
        or result.agent_state is not None
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


def _changed_fields(value: BaseModel) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    fields = type(value).model_fields
    return {name: item for name, item in value.__dict__.items() if item != fields[name].default}


def _encode(value: Any, what: str) -> bytes:
    try:
        return _ENCODER.encode(value)
    except (UnicodeError, OverflowError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{what} cannot be sent: {error}", hint=_SEND_JSON) from None


def _check_size(data: bytes, what: str) -> bytes:
    if len(data) > BODY_LIMIT:
        raise InputError(
            f"{what} has {len(data):,} bytes; the limit is {BODY_LIMIT:,}",
            hint="use a file in the workspace, or send it in parts",
        )
    return data


def _with_extensions(value: Any) -> Any:
    """Replace values that msgpack cannot express by extensions."""
    if isinstance(value, str):
        return value if _is_text(value) else Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else Ext(_INTEGER, b"%x" % value)
    if isinstance(value, list | tuple):
        return [_with_extensions(item) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) and _is_text(key) for key in value):
            return {key: _with_extensions(item) for key, item in value.items()}
        pairs = [[_with_extensions(key), _with_extensions(item)] for key, item in value.items()]
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


def _decode_extension(code: int, data: memoryview) -> Any:
    if code == _TEXT:
        return bytes(data).decode("utf-8", "surrogatepass")
    if code == _INTEGER:
        return int(bytes(data), 16)
    if code == _OBJECT:
        return dict(_VALUES.decode(data))
    raise ValueError(f"extension {code} is unknown")


_VALUES = Decoder(ext_hook=_decode_extension)


def _decode(decoder: Decoder[T], data: bytes, what: str) -> T:
    try:
        return decoder.decode(data)
    except _DECODE_ERRORS as error:
        raise Malformed(f"{what} cannot be read: {error}") from None


_ENDS: dict[str, tuple[Status, str, str | None, bool]] = {
    "timeout": (Status.TIMEOUT, "the call timed out", None, True),
    "cancelled": (Status.CANCELLED, "the call was cancelled", None, False),
    "lost": (
        Status.UNAVAILABLE,
        "the call was lost: its worker or Redis failed, and it may have run",
        "check what it was supposed to change before you retry",
        False,
    ),
    "poison": (
        Status.UNAVAILABLE,
        "the call was dead-lettered: it crashed its workers, or it cannot be read",
        "an operator can inspect it with `toolkiln fleet dead-letters list`",
        False,
    ),
    "overloaded": (
        Status.UNAVAILABLE,
        "too many calls are waiting for workers",
        "retry later, or start more workers",
        True,
    ),
    "stale": (
        Status.UNAVAILABLE,
        "no worker has this version of the tool",
        "list the tools again, and call the current version",
        True,
    ),
    "no_worker": (
        Status.UNAVAILABLE,
        "no worker took the call in time; it did not run",
        "start a worker for its pool, or retry later",
        True,
    ),
    "no_replica": (
        Status.UNAVAILABLE,
        "no Redis replica received the call in time; it did not run",
        "connect a replica, or turn `fleet_durable` off",
        True,
    ),
    "unverified": (
        Status.UNAVAILABLE,
        "the reply to the call is not signed by a trusted worker; the call may have run",
        "list the public keys of all workers in `worker_keys`; "
        "check what the call was supposed to change before you retry",
        False,
    ),
    "forged": (
        Status.DENIED,
        "the call is not from the caller it names",
        "give callers and workers the same fleet key",
        False,
    ),
}

CODES = frozenset(_ENDS)
"""All end codes."""


def end_result(code: str, *, call_id: str, tool: str, retry_after: float | None = None) -> Result:
    """Return the Result for an end code; an unknown one counts as `lost`."""
    code = code if code in _ENDS else "lost"
    status, message, hint, retryable = _ENDS[code]
    error = CallError(
        code=code, message=message, hint=hint, retryable=retryable, retry_after=retry_after
    )
    return Result(call_id=call_id, tool=tool, status=status, text=message, error=error)
