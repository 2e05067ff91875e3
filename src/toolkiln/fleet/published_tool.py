"""Format of published tools and permissions. No Redis here.

An entry, sealed with the fleet key, contains all that a caller needs to present a tool, and names
the files that a worker needs to run it. It does not contain by whom, when and where the tool was
admitted, so workers with the same files publish the same bytes. Unreadable or unsealed entries
count as missing.
"""

import json
import logging
import zlib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import msgspec
from pydantic import TypeAdapter

from toolkiln.fleet.message_auth import SEAL_BYTES, FleetKeys, seal_bytes, unseal_bytes
from toolkiln.fleet.wire import Malformed, read_model
from toolkiln.model.call import Grant
from toolkiln.model.catalog import Admission, FileVersion, ServedVersion
from toolkiln.model.source import Reading
from toolkiln.model.spec import ToolSpec
from toolkiln.store.codec import write_json

_log = logging.getLogger(__name__)
NOT_SEALED = "not sealed with the fleet's key: `fleet_key` differs between processes"
NOT_SIGNED = "not signed by a worker of `worker_keys`"
_SPEC = TypeAdapter(ToolSpec)
_MAX_BYTES = 64 << 20
"""Maximum size of an unpacked document."""


class _Packed(msgspec.Struct, frozen=True):
    """Serialised entry; the rarely used part is unpacked on demand."""

    name: str
    pool: str
    digest: str
    rest: bytes
    signature: bytes = b""
    """Of all other fields, by a worker."""


class PublishedTool:
    """A published tool, unpacked on first use."""

    __slots__ = ("_content", "_is_read", "_packed")

    def __init__(self, packed: _Packed) -> None:
        self._packed = packed
        self._content: EntryContent | None = None
        self._is_read = False

    @property
    def pool(self) -> str:
        """The pool whose workers run it."""
        return self._packed.pool

    @property
    def digest(self) -> str:
        """The version of its file."""
        return self._packed.digest

    @property
    def content(self) -> "EntryContent | None":
        """The content; None, with a warning, if it cannot be read."""
        if not self._is_read:
            self._content, self._is_read = _content(self._packed), True
        return self._content


class EntryContent(NamedTuple):
    """The content of an entry."""

    served: ServedVersion
    """With its grant, but without its sources."""
    files: Mapping[str, str]
    """SHA-256 of each source by path, the tool's own file first."""


def write_entry(
    key: FleetKeys, pool: str, served: ServedVersion, spec: ToolSpec, grant: Grant
) -> bytes:
    """Encode, sign and seal a tool."""
    published_spec = spec.model_copy(update={"path": served.file})
    rest = _pack(
        {
            "file": served.file,
            "files": [[path, digest_of(data)] for path, data in served.sources.items()],
            "grant": grant.model_dump(exclude_defaults=True),
            "spec": published_spec.model_dump(exclude_defaults=True),
            **({"dev": True} if served.dev else {}),
            **({} if served.is_reviewed else {"unreviewed": True}),
        }
    )
    packed = _Packed(name=spec.name, pool=pool, digest=spec.digest, rest=rest)
    if key.signer is not None:
        signature = key.signer.sign(b"entry", _signed_part(packed))
        packed = msgspec.structs.replace(packed, signature=signature)
    return seal_bytes(key, "entry", msgspec.msgpack.encode(packed))


def read_entry(key: FleetKeys, name: str, blob: bytes) -> PublishedTool | str:
    """Return the entry of a tool, or the reason why it is ignored."""
    data = unseal_bytes(key, "entry", blob)
    if data is None:
        return NOT_SEALED
    try:
        packed = msgspec.msgpack.decode(data, type=_Packed)
    except msgspec.MsgspecError:
        return "not a valid entry"
    trusted = key.trusted
    if trusted is not None:
        if not trusted.is_signed(b"entry", _signed_part(packed), packed.signature):
            return NOT_SIGNED
    return PublishedTool(packed) if packed.name == name else "an entry of another tool"


def is_signed(blob: bytes) -> bool:
    """Return whether a worker with a private key wrote an entry, trusted or not."""
    try:
        return bool(msgspec.msgpack.decode(blob[SEAL_BYTES:], type=_Packed).signature)
    except msgspec.MsgspecError:
        return False


def _signed_part(packed: _Packed) -> bytes:
    return msgspec.msgpack.encode((packed.name, packed.pool, packed.digest, packed.rest))


def _content(packed: _Packed) -> EntryContent | None:
    try:
        fields = _unpack(packed.rest)
        spec = read_model(_SPEC, fields["spec"], "its spec")
        if (spec.name, spec.digest) != (packed.name, packed.digest):
            raise ValueError("it is another tool")
        grant = Grant.model_validate(fields["grant"])
        file, files = str(fields["file"]), {str(path): str(sha) for path, sha in fields["files"]}
        if not all(map(_is_relative, files)):
            raise ValueError("its files are outside the folder")
    except (Malformed, ValueError, TypeError, KeyError, RecursionError, zlib.error) as error:
        message = str(error).partition("\n")[0]
        _log.warning("cannot read the published tool %r: %s", packed.name, message)
        return None
    reading = Reading(path=file, digest=spec.digest, tools=(spec,))
    admission = None if fields.get("dev") is True else _admission(spec)
    is_reviewed = fields.get("unreviewed") is not True
    grants = {spec.name: grant} if is_reviewed else {}
    return EntryContent(
        ServedVersion(file, FileVersion(reading, {}), admission, grants, is_reviewed), files
    )


def _admission(spec: ToolSpec) -> Admission:
    """Return the admission of a published version; by whom and when is not published."""
    return Admission(sha256=spec.digest, version=0, admitted_by="", admitted_at="", since="")


def write_permissions(key: FleetKeys, permissions: Mapping[str, Any]) -> bytes:
    """Encode, sign and seal permission settings by name."""
    packed = _pack(dict(permissions))
    if key.signer is not None:  # after the compressed data, which older readers ignore
        packed += key.signer.sign(b"permissions", packed)
    return seal_bytes(key, "permissions", packed)


def read_permissions(key: FleetKeys, blob: bytes) -> dict[str, Any] | str:
    """Return the permissions, or the reason why they are ignored."""
    data = unseal_bytes(key, "permissions", blob)
    if data is None:
        return NOT_SEALED
    try:
        content, signature = _decompress(data)
        permissions = dict(content)
    except (ValueError, TypeError, RecursionError, zlib.error):
        return "not valid permissions"
    if key.trusted is not None:
        packed = data[: len(data) - len(signature)]
        if not key.trusted.is_signed(b"permissions", packed, signature):
            return NOT_SIGNED
    return permissions


def digest_of(data: bytes) -> str:
    """Return the id of an entry or a file."""
    return sha256(data).hexdigest()


def _is_relative(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\0" not in path


def _pack(value: Any) -> bytes:
    text = write_json("a published document", value)
    return zlib.compress(text.encode("utf-8", "surrogatepass"), level=1)


def _unpack(data: bytes) -> Any:
    return _decompress(data)[0]


def _decompress(data: bytes) -> tuple[Any, bytes]:
    """Return the packed value, and the bytes after it."""
    decompressor = zlib.decompressobj()
    text = decompressor.decompress(data, _MAX_BYTES)
    if decompressor.unconsumed_tail:
        raise ValueError("it is too large")
    return json.loads(text.decode("utf-8", "surrogatepass")), decompressor.unused_data
