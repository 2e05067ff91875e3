"""Envelopes and replies that are too large for a stream: keys of their own, by digest."""

from hashlib import sha256
from typing import Literal

from msgspec.structs import replace

from toolkiln.fleet import keys
from toolkiln.fleet.resp import Pipe
from toolkiln.fleet.wire import INLINE_LIMIT, Malformed, Reply, reply_from_wire

# How msgpack begins 32 bytes; an envelope is an array, which begins otherwise.
_DIGEST = b"\xc4\x20"
_DIGEST_SIZE = 34


def reference(data: bytes) -> bytes:
    """What stands for a body."""
    return _DIGEST + sha256(data).digest()


def is_reference(data: bytes) -> bool:
    """Whether this stands for a body, and is not one."""
    return len(data) == _DIGEST_SIZE and data.startswith(_DIGEST)


def is_large(data: bytes) -> bool:
    """Whether this is too large for a stream."""
    return len(data) > INLINE_LIMIT


async def fetch(pipe: Pipe, record: str, what: Literal["call", "result"], stands: bytes) -> bytes:
    """The body that a reference stands for.

    Raises:
        Malformed: it is gone, or another one.
        StoreError: Redis failed.
    """
    data = await pipe.command("GET", keys.body(record, what))
    if not isinstance(data, bytes) or reference(data) != stands:
        raise Malformed(f"the body of a {what} is gone, or another one")
    return data


def stored(reply: Reply, data: bytes) -> Reply:
    """The reply that stands for one with this body."""
    return Reply(reply.record, "stored", reference(data))


async def resolve(pipe: Pipe, reply: Reply) -> Reply:
    """The reply itself; a loss if its body is gone.

    Raises:
        StoreError: Redis failed.
    """
    if reply.kind != "stored":
        return reply
    try:
        found = reply_from_wire(await fetch(pipe, reply.record, "result", reply.body))
    except Malformed:
        return Reply(reply.record, "end", b"lost")
    if found.record != reply.record:
        return Reply(reply.record, "end", b"lost")
    return replace(found, proof=reply.proof)  # which covers the digest of the body
