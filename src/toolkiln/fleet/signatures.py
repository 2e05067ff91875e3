"""Ed25519 signatures of workers, which clients check before they trust a reply or a tool.

Every process of a fleet has the fleet key, so a seal does not separate workers from clients. A
worker also has a private key (`worker_key`) and signs its messages; clients have the public keys
(`worker_keys`). One signature covers a batch of replies: the worker signs the root of a hash
tree, and each reply carries its path to that root.
"""

import base64
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

from toolkiln.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

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
        for text in publics:
            if text.startswith(_PRIVATE):
                raise ConfigError(
                    "worker_keys contains a private key, which only workers may have",
                    hint=f"replace that key everywhere, and list the public one; {_KEYGEN}",
                )
        self.publics = tuple(publics)
        self._raw = [_decode("worker_keys", text, _PUBLIC) for text in publics]
        self._roots: dict[bytes, None] = {}
        """Verified roots, oldest first: the replies of a batch share one."""

    @cached_property
    def _keys(self) -> "dict[bytes, Ed25519PublicKey]":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        return {raw[:_ID]: Ed25519PublicKey.from_public_bytes(raw) for raw in self._raw}

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
