"""Who sent what through Redis: one key for the whole fleet, and seals that are made with it.

A caller seals the envelope of each call, a worker what it publishes. A seal proves that
somebody with the key wrote exactly this, for this purpose. It does not say who of them:
that is for the session that an envelope names, whose record decides what its holder may.
It proves nothing about when: an entry of a stream can be copied, and the record of the
call, not its seal, keeps it from running twice.

The key is a setting of every process of the fleet, or else is kept in Redis, where it
keeps out only those whom an ACL keeps from reading `keys.FLEET_KEY`.
"""

import hmac
import secrets
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING

import msgspec

from toolkiln.fleet import keys

if TYPE_CHECKING:
    from toolkiln.fleet.resp import Pipe
    from toolkiln.fleet.wire import Envelope

_LENGTH = 32
_ENCODER = msgspec.msgpack.Encoder()


async def fleet_key(pipe: "Pipe", given: str = "") -> bytes:
    """The key of the fleet: the one that is set, else the one in Redis, which is made once.

    Raises:
        StoreError: Redis failed.
    """
    if given:
        return sha256(given.encode("utf-8", "surrogatepass")).digest()
    made = secrets.token_bytes(_LENGTH)
    if await pipe.command("SET", keys.FLEET_KEY, made, "NX") is not None:
        return made
    kept: bytes | None = await pipe.command("GET", keys.FLEET_KEY)
    # Gone between the two: whoever made it has to look again as well.
    return kept if kept else await fleet_key(pipe)


async def put_back(pipe: "Pipe", key: bytes) -> None:
    """Have Redis keep the key again, if it has lost it with all else.

    Raises:
        StoreError: Redis failed.
    """
    await pipe.command("SET", keys.FLEET_KEY, key, "NX")


def seal(key: bytes, envelope: "Envelope") -> bytes:
    """What proves that a caller of the fleet sent this call: covers every field but itself."""
    return _mac(key, b"call", _ENCODER.encode(msgspec.structs.replace(envelope, seal=b"")))


def is_genuine(key: bytes, envelope: "Envelope") -> bool:
    """Whether the seal of a call is its own."""
    return hmac.compare_digest(seal(key, envelope), envelope.seal)


def sealed(key: bytes, purpose: str, data: bytes) -> bytes:
    """Data behind its seal; the same data for another purpose has another one."""
    return _mac(key, purpose.encode(), data) + data


def unsealed(key: bytes, purpose: str, blob: bytes) -> bytes | None:
    """The data that was `sealed` for this purpose; None if it is damaged or forged."""
    mac, data = blob[:_LENGTH], blob[_LENGTH:]
    return data if hmac.compare_digest(_mac(key, purpose.encode(), data), mac) else None


def _mac(key: bytes, purpose: bytes, data: bytes) -> bytes:
    # The length ahead: no purpose and data run together as another's.
    whole = len(purpose).to_bytes(2, "big") + purpose + data
    # A keyed BLAKE2b is a code by itself, and cheaper than an HMAC, twice in each call.
    return blake2b(whole, key=key, digest_size=_LENGTH).digest()
