"""Keys of a fleet, and seals: MACs with the one key that all its processes share.

A caller seals the envelope of each call, a worker seals its published tools. A seal proves that a
process of the fleet wrote exactly these bytes for this purpose, but not which process: the
session in an envelope decides what its caller may do, and `signatures` separate workers from
clients. Seals have no timestamp, so a copied stream entry has a valid one; a worker runs only the
entry that the record of the call names.

The fleet key is a setting of every process, or else is stored in Redis, where only an ACL on
`keys.FLEET_KEY` protects it. During a key rotation the fallback key is accepted too.
"""

import hmac
import secrets
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from toolkiln.errors import StoreError
from toolkiln.fleet import keys
from toolkiln.fleet.signatures import Signer, Verifier

if TYPE_CHECKING:
    from toolkiln.fleet.connection import RedisPipe
    from toolkiln.fleet.wire import Envelope

SEAL_BYTES = 32
_ENCODER = msgspec.msgpack.Encoder()


class KeySettings(NamedTuple):
    """The settings that keys are read from; see `config.Settings`."""

    fleet_key: str = ""
    fleet_key_fallback: str = ""
    worker_key: str = ""
    worker_keys: tuple[str, ...] = ()


class FleetKeys(NamedTuple):
    """The keys of one process of a fleet."""

    sealing: bytes
    """The fleet key: creates seals, and is accepted."""
    fallback: bytes | None = None
    """Another accepted key, during a key rotation."""
    signer: Signer | None = None
    """Signs the messages of a worker."""
    trusted: Verifier | None = None
    """Workers whose signatures are required; None: signatures are not required."""


async def fleet_keys(pipe: "RedisPipe", settings: KeySettings = KeySettings()) -> FleetKeys:  # noqa: B008 - frozen
    """Return the configured keys; without a fleet key, the one in Redis, created once."""
    fleet_key, fallback = settings.fleet_key, settings.fleet_key_fallback
    return FleetKeys(
        sealing=_from_text(fleet_key) if fleet_key else await _stored_key(pipe),
        fallback=_from_text(fallback) if fallback else None,
        signer=Signer(settings.worker_key) if settings.worker_key else None,
        trusted=Verifier(settings.worker_keys) if settings.worker_keys else None,
    )


def _from_text(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


async def _stored_key(pipe: "RedisPipe") -> bytes:
    new_key = secrets.token_bytes(SEAL_BYTES)
    if await pipe.command("SET", keys.FLEET_KEY, new_key, "NX") is not None:
        return new_key
    stored: bytes | None = await pipe.command("GET", keys.FLEET_KEY)
    if stored is None:  # deleted between the two commands
        return await _stored_key(pipe)
    if len(stored) != SEAL_BYTES:
        raise StoreError(
            f"{pipe.address.name} has a damaged fleet key",
            hint=f"set `fleet_key` everywhere, or delete the key {keys.FLEET_KEY} in Redis",
        )
    return stored


async def restore_fleet_key(pipe: "RedisPipe", key: FleetKeys) -> None:
    """Store the key in Redis again, in case Redis has lost it."""
    await pipe.command("SET", keys.FLEET_KEY, key.sealing, "NX")


def seal(key: FleetKeys, envelope: "Envelope") -> bytes:
    """Return the seal of a call, which covers every other field."""
    return _mac(key.sealing, b"call", _unsealed_bytes(envelope))


def has_valid_seal(key: FleetKeys, envelope: "Envelope") -> bool:
    """Return whether the seal of a call is valid."""
    return _is_valid(key, b"call", _unsealed_bytes(envelope), envelope.seal)


def seal_bytes(key: FleetKeys, purpose: str, data: bytes) -> bytes:
    """Return data after its seal for this purpose."""
    return _mac(key.sealing, purpose.encode(), data) + data


def unseal_bytes(key: FleetKeys, purpose: str, blob: bytes) -> bytes | None:
    """Return the data sealed for this purpose; None if it is damaged or forged."""
    mac, data = blob[:SEAL_BYTES], blob[SEAL_BYTES:]
    return data if _is_valid(key, purpose.encode(), data, mac) else None


def _unsealed_bytes(envelope: "Envelope") -> bytes:
    return _ENCODER.encode(msgspec.structs.replace(envelope, seal=b""))


def _is_valid(key: FleetKeys, purpose: bytes, data: bytes, mac: bytes) -> bool:
    if hmac.compare_digest(_mac(key.sealing, purpose, data), mac):
        return True
    return key.fallback is not None and hmac.compare_digest(_mac(key.fallback, purpose, data), mac)


def _mac(key: bytes, purpose: bytes, data: bytes) -> bytes:
    # The length prefix separates the purpose from the data.
    message = len(purpose).to_bytes(2, "big") + purpose + data
    # Keyed BLAKE2b is a MAC by itself, and cheaper than HMAC.
    return blake2b(message, key=key, digest_size=SEAL_BYTES).digest()
