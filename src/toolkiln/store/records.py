"""How identities and values are written down and read back. No database here."""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from json.encoder import encode_basestring_ascii
from typing import Any

from pydantic import BaseModel

from toolkiln.model import Caller, Reading, Result
from toolkiln.store.errors import StoreError


def scope_of(caller: Caller) -> str:
    """Who may see a call: its user, where the user id means something, and its agent.

    The session and the agent's state do not count: they change between the tries of one call.
    """
    return hash_of(_identity(caller))


def key_of(caller: Caller, call_id: str) -> str:
    """The id as the caller's own: another caller's same id is another call."""
    # As `hash_of` of it all; asked for with every call of a fleet, on both sides.
    key = _begun(*_identity(caller)).copy()
    key.update(f"{encode_basestring_ascii(call_id)}]".encode())
    text: str = key.hexdigest()
    return text


def write_result(result: Result) -> str:
    """ASCII JSON. Not pydantic's own, which refuses lone surrogates and deep nesting.

    Raises:
        StoreError: the value is not plain JSON.
    """
    try:
        return json.dumps(dict(result), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        text = f"the result of call {result.call_id!r} cannot be kept: {error}"
        raise StoreError(text, hint="its value must be plain JSON") from error


def read_result(text: str) -> Result:
    """The Result that `write_result` wrote.

    Raises:
        StoreError: it is damaged, or of a version with other fields.
    """
    try:
        fields = json.loads(text)
        for file in fields["files"]:
            file["data"] = b64decode(file["data"], validate=True)
        return Result.model_validate(fields)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StoreError(
            "a kept result cannot be read",
            hint="another version of Toolkiln wrote it, or the store is damaged; "
            "repeat the call under another id",
        ) from error


def write_reading(reading: Reading) -> bytes:
    """Compressed JSON.

    Raises:
        StoreError: something in it is not plain JSON.
    """
    try:
        return _pack(dict(reading))
    except (TypeError, ValueError, RecursionError) as error:
        text = f"the reading of {reading.path!r} cannot be kept: {error}"
        raise StoreError(text, hint="its schemas must be plain JSON") from error


def read_reading(data: bytes) -> Reading | None:
    """The Reading that `write_reading` wrote; None if it is damaged or has other fields."""
    try:
        return Reading.model_validate(_unpack(data))
    except (ValueError, RecursionError, zlib.error):
        return None


def write_sources(sources: Mapping[str, bytes]) -> bytes:
    """Compressed JSON, in order; as Latin-1, any bytes are text, and program text stays small."""
    return _pack({name: data.decode("latin-1") for name, data in sources.items()})


def read_sources(data: bytes) -> dict[str, bytes]:
    """The files that `write_sources` wrote.

    Raises:
        StoreError: they are damaged.
    """
    try:
        return {name: text.encode("latin-1") for name, text in _unpack(data).items()}
    except (ValueError, AttributeError, zlib.error) as error:
        raise StoreError(
            "the kept sources of a version cannot be read",
            hint="the store is damaged; restore it from a backup, or admit the file again",
        ) from error


def write_json(what: str, value: Any) -> str:
    """JSON that keeps order and any text; sets become sorted lists.

    Raises:
        StoreError: the value is not plain JSON.
    """
    try:
        # Not ASCII: an escaped pair of surrogates would come back as one character.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        text = f"{what} cannot be kept: {error}"
        raise StoreError(text, hint="its values must be plain JSON") from error


@contextmanager
def intact(what: str) -> Iterator[None]:
    """Around what reads a row: whatever is wrong with it, the store is damaged.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreError(
            f"{what} cannot be read",
            hint="another version of Toolkiln wrote it, or the store is damaged; "
            "restore it from a backup",
        ) from error


def hash_of(parts: list[str | None]) -> str:
    """A key of fixed length, safe in any index, for a list of any texts."""
    return sha256(json.dumps(parts).encode()).hexdigest()


@lru_cache(1024)
def _begun(*parts: str | None) -> Any:
    """The hash of a list whose last item is still to come."""
    return sha256(f"{json.dumps(parts)[:-1]}, ".encode())


def _identity(caller: Caller) -> list[str | None]:
    # Without a platform as ever, so that what older versions kept is found.
    platform = [] if caller.platform is None else [caller.platform]
    return [*platform, caller.user_id, caller.agent_id]


def _pack(value: Any) -> bytes:
    # Not ASCII: an escaped pair of surrogates would come back as one character.
    text = json.dumps(value, ensure_ascii=False, default=_plain)
    return zlib.compress(text.encode("utf-8", "surrogatepass"), level=1)


def _unpack(data: bytes) -> Any:
    return json.loads(zlib.decompress(data).decode("utf-8", "surrogatepass"))


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return dict(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"a {type(value).__name__} is not JSON")
