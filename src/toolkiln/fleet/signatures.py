"""Ed25519 signatures of workers: what clients check before they believe a reply or a tool.

Every process of a fleet has the fleet's key, so a seal made with it does not separate one
client from another. A worker also holds a private key (`worker_key`) and signs what it says;
clients hold the public keys (`worker_keys`). One signature covers all replies of a moment:
the worker signs the root of a hash tree, and each reply carries its path to that root.
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
_LONGEST_PATH = 32 * _STEP
_MOST_ROOTS = 4096
_KEYGEN = "`toolkiln fleet keygen` prints a pair"
_LEAF, _NODE = b"\x00", b"\x01"
_LEFT, _RIGHT = b"\x00", b"\x01"


def generate_worker_keys() -> tuple[str, str]:
    """Return a new private key and its public key, as the settings spell them."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    text = _PRIVATE + _encoded(private.private_bytes_raw())
    return text, _PUBLIC + _encoded(private.public_key().public_bytes_raw())


class Signer:
    """Signs what one worker says."""

    def __init__(self, private: str) -> None:
        """Read a private key.

        Raises:
            ConfigError: it is not one.
        """
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if private.startswith(_PUBLIC):
            raise ConfigError("worker_key is a public key", hint=f"set the private one; {_KEYGEN}")
        self._key = Ed25519PrivateKey.from_private_bytes(_decoded("worker_key", private, _PRIVATE))
        raw = self._key.public_key().public_bytes_raw()
        self.public = _PUBLIC + _encoded(raw)
        """The key that verifies these signatures, as `worker_keys` spells it."""
        self._id = raw[:_ID]

    def sign(self, purpose: bytes, data: bytes) -> bytes:
        """Return a signature of data for one purpose."""
        return self._id + self._key.sign(_message(purpose, data))

    def sign_all(self, leaves: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """Return for each leaf the one signature of all and the leaf's path to its root."""
        level = list(leaves)
        paths = [b""] * len(level)
        members = [[place] for place in range(len(level))]
        while len(level) > 1:
            above, grouped = [], []
            for at in range(0, len(level) - 1, 2):
                left, right = level[at], level[at + 1]
                for place in members[at]:
                    paths[place] += _RIGHT + right
                for place in members[at + 1]:
                    paths[place] += _LEFT + left
                above.append(_hash(_NODE + left + right))
                grouped.append(members[at] + members[at + 1])
            if len(level) % 2:
                above.append(level[-1])
                grouped.append(members[-1])
            level, members = above, grouped
        signature = self.sign(b"replies", level[0])
        return [(signature, path) for path in paths]


class Verifier:
    """Checks signatures against the public keys that a process trusts."""

    def __init__(self, publics: Sequence[str]) -> None:
        """Read public keys.

        Raises:
            ConfigError: one of them is not a public key.
        """
        for text in publics:
            if text.startswith(_PRIVATE):
                raise ConfigError(
                    "worker_keys has a private key, which only workers may have",
                    hint=f"replace that key everywhere, and list the public one; {_KEYGEN}",
                )
        self.publics = tuple(publics)
        self._raw = [_decoded("worker_keys", text, _PUBLIC) for text in publics]
        self._roots: dict[bytes, None] = {}
        """Signed roots that were checked, the oldest first: replies of a moment share one."""

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
        if len(path) % _STEP or len(path) > _LONGEST_PATH:
            return False
        root = leaf
        for at in range(0, len(path), _STEP):
            beside = path[at + 1 : at + _STEP]
            root = _hash(_NODE + (root + beside if path[at : at + 1] == _RIGHT else beside + root))
        known = signature + root
        if known in self._roots:
            return True
        if not self.is_signed(b"replies", root, signature):
            return False
        if len(self._roots) >= _MOST_ROOTS:
            del self._roots[next(iter(self._roots))]
        self._roots[known] = None
        return True


def leaf_of(data: bytes) -> bytes:
    """Return the leaf of a hash tree that stands for data."""
    return _hash(_LEAF + data)


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=_HASH).digest()


def _message(purpose: bytes, data: bytes) -> bytes:
    return b"toolkiln:" + len(purpose).to_bytes(2, "big") + purpose + data


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decoded(setting: str, text: str, prefix: str) -> bytes:
    try:
        raw = base64.urlsafe_b64decode(text.removeprefix(prefix) + "=")
    except ValueError:
        raw = b""
    if not text.startswith(prefix) or len(raw) != _HASH:
        raise ConfigError(f"{setting} has something that is not a key", hint=_KEYGEN)
    return raw
