"""Keys of a fleet, and seals made with the one key that all its processes share.

A caller seals the envelope of each call, a worker seals what it publishes. A seal proves that
a process of the fleet wrote exactly this, for this purpose, but not which one: the session
that an envelope names decides what its caller may do, and `signatures` separate workers from
clients. A seal says nothing about time: an entry of a stream can be copied, so a worker runs
only the entry that the record of the call names.

The fleet's key is a setting of every process, or else is kept in Redis, where it keeps out
only those whom an ACL keeps from reading `keys.FLEET_KEY`. While it is replaced, the fallback
is accepted as well; only the first one seals.
"""

import hmac
import secrets
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from toolkiln.fleet import keys
from toolkiln.fleet.signatures import Signer, Verifier
from toolkiln.store import StoreError

if TYPE_CHECKING:
    from toolkiln.fleet.resp import Pipe
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
    """The fleet's key: seals, and is accepted."""
    fallback: bytes | None = None
    """Another key that is accepted, while keys are replaced."""
    signer: Signer | None = None
    """Signs what a worker says."""
    trusted: Verifier | None = None
    """The workers whose signatures are required; None: none is."""


async def fleet_keys(pipe: "Pipe", settings: KeySettings = KeySettings()) -> FleetKeys:  # noqa: B008 - frozen
    """Return the keys that are set; without a fleet key, the one in Redis, which is made once.

    Raises:
        StoreError: Redis failed.
        ConfigError: a key cannot be read.
    """
    given, fallback = settings.fleet_key, settings.fleet_key_fallback
    return FleetKeys(
        sealing=_from_text(given) if given else await _kept_key(pipe),
        fallback=_from_text(fallback) if fallback else None,
        signer=Signer(settings.worker_key) if settings.worker_key else None,
        trusted=Verifier(settings.worker_keys) if settings.worker_keys else None,
    )


def _from_text(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


async def _kept_key(pipe: "Pipe") -> bytes:
    made = secrets.token_bytes(SEAL_BYTES)
    if await pipe.command("SET", keys.FLEET_KEY, made, "NX") is not None:
        return made
    kept: bytes | None = await pipe.command("GET", keys.FLEET_KEY)
    if kept is None:  # gone between the two: the process that made it has to look again as well
        return await _kept_key(pipe)
    if len(kept) != SEAL_BYTES:
        raise StoreError(
            f"{pipe.address.name} has a damaged key of the fleet",
            hint=f"set `fleet_key` everywhere, or delete the key {keys.FLEET_KEY} in Redis",
        )
    return kept


async def put_back(pipe: "Pipe", key: FleetKeys) -> None:
    """Have Redis keep the key again, if it has lost it with all else.

    Raises:
        StoreError: Redis failed.
    """
    await pipe.command("SET", keys.FLEET_KEY, key.sealing, "NX")


def seal(key: FleetKeys, envelope: "Envelope") -> bytes:
    """Return the proof that a process of the fleet sent this call; covers every other field."""
    return _mac(key.sealing, b"call", _unsealed_bytes(envelope))


def is_genuine(key: FleetKeys, envelope: "Envelope") -> bool:
    """Return whether the seal of a call is its own."""
    return _opens(key, b"call", _unsealed_bytes(envelope), envelope.seal)


def sealed(key: FleetKeys, purpose: str, data: bytes) -> bytes:
    """Return data behind its seal; the same data for another purpose has another one."""
    return _mac(key.sealing, purpose.encode(), data) + data


def unsealed(key: FleetKeys, purpose: str, blob: bytes) -> bytes | None:
    """Return the data that was `sealed` for this purpose; None if it is damaged or forged."""
    mac, data = blob[:SEAL_BYTES], blob[SEAL_BYTES:]
    return data if _opens(key, purpose.encode(), data, mac) else None


def _unsealed_bytes(envelope: "Envelope") -> bytes:
    return _ENCODER.encode(msgspec.structs.replace(envelope, seal=b""))


def _opens(key: FleetKeys, purpose: bytes, data: bytes, mac: bytes) -> bool:
    if hmac.compare_digest(_mac(key.sealing, purpose, data), mac):
        return True
    return key.fallback is not None and hmac.compare_digest(_mac(key.fallback, purpose, data), mac)


def _mac(key: bytes, purpose: bytes, data: bytes) -> bytes:
    # The length ahead: no purpose and data run together as another's.
    whole = len(purpose).to_bytes(2, "big") + purpose + data
    # A keyed BLAKE2b is a code by itself, and cheaper than an HMAC, twice in each call.
    return blake2b(whole, key=key, digest_size=SEAL_BYTES).digest()
