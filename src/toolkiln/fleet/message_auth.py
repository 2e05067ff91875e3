"""Authentication of messages: seals of a fleet, and Ed25519 signatures of its workers.

A seal is a MAC with the fleet key, which all processes share. A caller seals the envelope of each
call, a worker its published tools. A seal proves that a process of the fleet wrote exactly these
bytes for this purpose, but not which process: the session in an envelope decides what its caller
may do. Seals have no timestamp, so a copied stream entry has a valid one; a worker runs only the
entry that the record of the call names.

The fleet key is a setting of every process, or else is stored in Redis, where only an ACL on
`keys.FLEET_KEY` protects it. During a key rotation the fallback key is accepted too.

Signatures separate workers from clients: a worker has a private key (`worker_key`), clients have
the public keys (`worker_keys`). One signature covers a batch of replies: the worker signs the root
of a hash tree, and each reply carries its path to that root.
"""

import base64
import hmac
import secrets
from collections.abc import Sequence
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from toolkiln.config import Settings
from toolkiln.errors import ConfigError, StoreError
from toolkiln.fleet import keys

if TYPE_CHECKING:
    from toolkiln.fleet.connection import RedisPipe
    from toolkiln.fleet.wire import Envelope

SEAL_BYTES = 32
_ENCODER = msgspec.msgpack.Encoder()
_NO_REQUEST = msgspec.Raw(b"\xc0")
_PRIVATE, _PUBLIC = "ed25519-private:", "ed25519:"
_HASH, _ID, _SIGNATURE = 32, 8, 64
_STEP = _HASH + 1
_MAX_PATH = 32 * _STEP
_MAX_ROOTS = 4096
_KEYGEN = "`toolkiln fleet keygen` prints a pair"
_LEAF, _NODE = b"\x00", b"\x01"
_LEFT, _RIGHT = b"\x00", b"\x01"


def generate_worker_keys() -> tuple[str, str]:
    """Return a new private key and its public key, as the settings spell them."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    text = _PRIVATE + _encode(private.private_bytes_raw())
    return text, _PUBLIC + _encode(private.public_key().public_bytes_raw())


class Signer:
    """Signs the messages of one worker."""

    def __init__(self, private: str) -> None:
        """Read a private key."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if private.startswith(_PUBLIC):
            raise ConfigError("worker_key is a public key", hint=f"set the private one; {_KEYGEN}")
        self._key = Ed25519PrivateKey.from_private_bytes(_decode("worker_key", private, _PRIVATE))
        raw = self._key.public_key().public_bytes_raw()
        self.public = _PUBLIC + _encode(raw)
        """The key that verifies these signatures, as `worker_keys` spells it."""
        self._id = raw[:_ID]

    def sign(self, purpose: bytes, data: bytes) -> bytes:
        """Return a signature of data for one purpose."""
        return self._id + self._key.sign(_message(purpose, data))

    def sign_all(self, leaves: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """Return for each leaf the common signature and the leaf's path to the root."""
        level = list(leaves)
        paths = [b""] * len(level)
        members = [[leaf] for leaf in range(len(level))]
        while len(level) > 1:
            parents, merged = [], []
            for index in range(0, len(level) - 1, 2):
                left, right = level[index], level[index + 1]
                for leaf in members[index]:
                    paths[leaf] += _RIGHT + right
                for leaf in members[index + 1]:
                    paths[leaf] += _LEFT + left
                parents.append(_hash(_NODE + left + right))
                merged.append(members[index] + members[index + 1])
            if len(level) % 2:
                parents.append(level[-1])
                merged.append(members[-1])
            level, members = parents, merged
        signature = self.sign(b"replies", level[0])
        return [(signature, path) for path in paths]


class Verifier:
    """Checks signatures against trusted public keys."""

    def __init__(self, publics: Sequence[str]) -> None:
        """Read public keys."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        for text in publics:
            if text.startswith(_PRIVATE):
                raise ConfigError(
                    "worker_keys contains a private key, which only workers may have",
                    hint=f"replace that key everywhere, and list the public one; {_KEYGEN}",
                )
        self.publics = tuple(publics)
        raw = [_decode("worker_keys", text, _PUBLIC) for text in publics]
        self._keys = {key[:_ID]: Ed25519PublicKey.from_public_bytes(key) for key in raw}
        self._roots: dict[bytes, None] = {}
        """Verified roots, oldest first: the replies of a batch share one."""

    def is_signed(self, purpose: bytes, data: bytes, signature: bytes) -> bool:
        """Return whether a trusted worker signed data for this purpose."""
        from cryptography.exceptions import InvalidSignature

        key = self._keys.get(signature[:_ID])
        if key is None or len(signature) != _ID + _SIGNATURE:
            return False
        try:
            key.verify(signature[_ID:], _message(purpose, data))
        except InvalidSignature:
            return False
        return True

    def is_proven(self, leaf: bytes, signature: bytes, path: bytes) -> bool:
        """Return whether a path leads from a leaf to a root that a trusted worker signed."""
        if len(path) % _STEP or len(path) > _MAX_PATH:
            return False
        root = leaf
        for index in range(0, len(path), _STEP):
            sibling = path[index + 1 : index + _STEP]
            root = _hash(
                _NODE + (root + sibling if path[index : index + 1] == _RIGHT else sibling + root)
            )
        cache_key = signature + root
        if cache_key in self._roots:
            return True
        if not self.is_signed(b"replies", root, signature):
            return False
        if len(self._roots) >= _MAX_ROOTS:
            del self._roots[next(iter(self._roots))]
        self._roots[cache_key] = None
        return True


def leaf_of(data: bytes) -> bytes:
    """Return the hash tree leaf of data."""
    return _hash(_LEAF + data)


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=_HASH).digest()


def _message(purpose: bytes, data: bytes) -> bytes:
    return b"toolkiln:" + len(purpose).to_bytes(2, "big") + purpose + data


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(setting: str, text: str, prefix: str) -> bytes:
    try:
        raw = base64.urlsafe_b64decode(text.removeprefix(prefix) + "=")
    except ValueError:
        raw = b""
    if not text.startswith(prefix) or len(raw) != _HASH:
        raise ConfigError(f"{setting} contains an invalid key", hint=_KEYGEN)
    return raw


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


async def fleet_keys(pipe: "RedisPipe", settings: Settings) -> FleetKeys:
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
    *fields, request = msgspec.structs.astuple(msgspec.structs.replace(envelope, seal=b""))
    # Without a request the bytes are those of processes that know none.
    return _ENCODER.encode(fields) + (b"" if request == _NO_REQUEST else bytes(request))


def _is_valid(key: FleetKeys, purpose: bytes, data: bytes, mac: bytes) -> bool:
    if hmac.compare_digest(_mac(key.sealing, purpose, data), mac):
        return True
    return key.fallback is not None and hmac.compare_digest(_mac(key.fallback, purpose, data), mac)


def _mac(key: bytes, purpose: bytes, data: bytes) -> bytes:
    # The length prefix separates the purpose from the data.
    message = len(purpose).to_bytes(2, "big") + purpose + data
    # Keyed BLAKE2b is a MAC by itself, and cheaper than HMAC.
    return blake2b(message, key=key, digest_size=SEAL_BYTES).digest()
