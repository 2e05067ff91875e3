"""How tools are written down for the fleet, and read back. No Redis here.

An entry, sealed with the fleet's key, has all that a caller needs to present a tool, and
names the files that a worker needs to run it. It does not say on which machine, by whom
or when the tool was admitted, so that workers with the same files publish the same bytes.
What cannot be read, or is not sealed, counts as not there.
"""

import json
import logging
import zlib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import msgspec
from pydantic import ValidationError

from toolkiln.fleet.identity import SEAL_BYTES, FleetKeys, sealed, unsealed
from toolkiln.model import Admission, Grant, Read, Reading, Served, ToolSpec
from toolkiln.store import write_json

_log = logging.getLogger(__name__)
NOT_SEALED = "not sealed with the fleet's key: `fleet_key` differs between processes"
NOT_SIGNED = "not signed by a worker of `worker_keys`"
_MOST_BYTES = 64 << 20
"""What a document may unpack to."""


class _Packed(msgspec.Struct, frozen=True):
    """An entry as it travels; what few callers look at is unpacked when they do."""

    name: str
    pool: str
    digest: str
    rest: bytes
    signature: bytes = b""
    """A worker's, of all other fields."""


class Document(NamedTuple):
    """A document, and the SHA-256 that it is kept under."""

    id: str
    data: bytes


class Entry:
    """A published tool; most of it is unpacked when it is first asked for."""

    __slots__ = ("_content", "_is_read", "_packed")

    def __init__(self, packed: _Packed) -> None:
        self._packed = packed
        self._content: Content | None = None
        self._is_read = False

    @property
    def pool(self) -> str:
        """Whose workers run it."""
        return self._packed.pool

    @property
    def digest(self) -> str:
        """The version of its file."""
        return self._packed.digest

    @property
    def content(self) -> "Content | None":
        """What it says; None, with a warning, if it cannot be read."""
        if not self._is_read:
            self._content, self._is_read = _content(self._packed), True
        return self._content


class Content(NamedTuple):
    """What an entry says of a tool."""

    served: Served
    """With its grant, and without its sources."""
    files: Mapping[str, str]
    """The SHA-256 of each source by its path, the tool's own file first."""


def write_entry(
    key: FleetKeys, pool: str, served: Served, spec: ToolSpec, grant: Grant
) -> Document:
    """A tool for the fleet.

    Raises:
        StoreError: its schemas are not plain JSON.
    """
    told = spec.model_copy(update={"path": served.file})
    rest = _pack(
        {
            "file": served.file,
            "files": [[path, digest_of(data)] for path, data in served.sources.items()],
            "grant": grant.model_dump(exclude_defaults=True),
            "spec": told.model_dump(exclude_defaults=True),
            **({"dev": True} if served.dev else {}),
            **({} if served.is_reviewed else {"unreviewed": True}),
        }
    )
    packed = _Packed(name=spec.name, pool=pool, digest=spec.digest, rest=rest)
    if key.signer is not None:
        signature = key.signer.sign(b"entry", _signed_part(packed))
        packed = msgspec.structs.replace(packed, signature=signature)
    data = sealed(key, "entry", msgspec.msgpack.encode(packed))
    return Document(digest_of(data), data)


def read_entry(key: FleetKeys, name: str, blob: bytes) -> Entry | str:
    """Return the entry of a tool, or why it counts as not there: forged or another tool's."""
    data = unsealed(key, "entry", blob)
    if data is None:
        return NOT_SEALED
    try:
        packed = msgspec.msgpack.decode(data, type=_Packed)
    except msgspec.MsgspecError:
        return "not written as an entry is"
    trusted = key.trusted
    if trusted is not None:
        if not trusted.is_signed(b"entry", _signed_part(packed), packed.signature):
            return NOT_SIGNED
    return Entry(packed) if packed.name == name else "an entry of another tool"


def is_signed(blob: bytes) -> bool:
    """Return whether a worker with a key of its own wrote an entry, trusted or not."""
    try:
        return bool(msgspec.msgpack.decode(blob[SEAL_BYTES:], type=_Packed).signature)
    except msgspec.MsgspecError:
        return False


def _signed_part(packed: _Packed) -> bytes:
    return msgspec.msgpack.encode((packed.name, packed.pool, packed.digest, packed.rest))


def _content(packed: _Packed) -> Content | None:
    try:
        told = _unpack(packed.rest)
        spec = _tolerant(told["spec"])
        if (spec.name, spec.digest) != (packed.name, packed.digest):
            raise ValueError("it is another tool")
        grant = Grant.model_validate(told["grant"])
        file, files = str(told["file"]), {str(path): str(sha) for path, sha in told["files"]}
        if not all(map(_is_below, files)):
            raise ValueError("its files lie elsewhere")
    except (ValueError, TypeError, KeyError, RecursionError, zlib.error) as error:
        said = str(error).partition("\n")[0]
        _log.warning("the published tool %r cannot be read: %s", packed.name, said)
        return None
    reading = Reading(path=file, digest=spec.digest, tools=(spec,))
    admission = None if told.get("dev") is True else _admission(spec)
    is_reviewed = told.get("unreviewed") is not True
    grants = {spec.name: grant} if is_reviewed else {}
    return Content(Served(file, Read(reading, {}), admission, grants, is_reviewed), files)


def _admission(spec: ToolSpec) -> Admission:
    """That a worker serves an admitted version; who admitted it and when is not published."""
    return Admission(sha256=spec.digest, version=0, admitted_by="", admitted_at="", since="")


def write_permissions(key: FleetKeys, permissions: Mapping[str, Any]) -> bytes:
    """Settings by name, for callers.

    Raises:
        StoreError: they are not plain JSON.
    """
    packed = _pack(dict(permissions))
    if key.signer is not None:  # behind the end of the packed text, where readers do not look
        packed += key.signer.sign(b"permissions", packed)
    return sealed(key, "permissions", packed)


def read_permissions(key: FleetKeys, blob: bytes) -> dict[str, Any] | str:
    """Return what `write_permissions` wrote, or why it counts as not there."""
    data = unsealed(key, "permissions", blob)
    if data is None:
        return NOT_SEALED
    try:
        told, signature = _opened(data)
        said = dict(told)
    except (ValueError, TypeError, RecursionError, zlib.error):
        return "not written as permissions are"
    if key.trusted is not None:
        packed = data[: len(data) - len(signature)]
        if not key.trusted.is_signed(b"permissions", packed, signature):
            return NOT_SIGNED
    return said


def digest_of(data: bytes) -> str:
    """What a file is kept under."""
    return sha256(data).hexdigest()


def _tolerant(told: Any) -> ToolSpec:
    """A spec, without the fields that this Toolkiln does not know."""
    try:
        return ToolSpec.model_validate(told)
    except ValidationError as error:
        unknown = [wrong["loc"] for wrong in error.errors() if wrong["type"] == "extra_forbidden"]
        for *path, last in unknown:
            where = told
            for step in path:
                where = where[step]
            del where[last]
        return ToolSpec.model_validate(told)


def _is_below(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\0" not in path


def _pack(value: Any) -> bytes:
    text = write_json("what is published", value)
    return zlib.compress(text.encode("utf-8", "surrogatepass"), level=1)


def _unpack(data: bytes) -> Any:
    return _opened(data)[0]


def _opened(data: bytes) -> tuple[Any, bytes]:
    """Return what was packed, and the bytes behind it."""
    opened = zlib.decompressobj()
    text = opened.decompress(data, _MOST_BYTES)
    if opened.unconsumed_tail:
        raise ValueError("it is too large")
    return json.loads(text.decode("utf-8", "surrogatepass")), opened.unused_data
