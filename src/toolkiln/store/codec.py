"""Encoding of values for the database, and the keys of callers and calls."""

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

from toolkiln.errors import InputError, NotFound, StoreError
from toolkiln.model.call import Result
from toolkiln.model.identity import Caller
from toolkiln.model.source import Reading


def scope_of(caller: Caller) -> str:
    """Return the key of a caller: platform, user and agent.

    The session and the agent's state are left out: they change between retries of one call.
    """
    return hash_of(_identity(caller))


def key_of(caller: Caller, call_id: str) -> str:
    """Return the key of a call: its id, scoped to the caller."""
    # Equals `hash_of` of all parts; both sides of a fleet compute it for every call.
    key = _hash_prefix(*_identity(caller)).copy()
    key.update(f"{encode_basestring_ascii(call_id)}]".encode())
    text: str = key.hexdigest()
    return text


def write_result(result: Result) -> str:
    """Encode a result as ASCII JSON; pydantic's encoder rejects lone surrogates."""
    try:
        return json.dumps(dict(result), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        text = f"the result of call {result.call_id!r} cannot be stored: {error}"
        raise StoreError(text, hint="its value must be plain JSON") from error


def read_result(text: str) -> Result:
    """Decode a result."""
    try:
        fields = json.loads(text)
        for file in fields["files"]:
            file["data"] = b64decode(file["data"], validate=True)
        return Result.model_validate(fields)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StoreError(
            "a stored result cannot be read",
            hint="another version of Toolkiln wrote it, or the store is damaged; "
            "repeat the call under another id",
        ) from error


def write_reading(reading: Reading) -> bytes:
    """Encode a reading as compressed JSON."""
    try:
        return _pack(dict(reading))
    except (TypeError, ValueError, RecursionError) as error:
        text = f"the reading of {reading.path!r} cannot be stored: {error}"
        raise StoreError(text, hint="its schemas must be plain JSON") from error


def read_reading(data: bytes) -> Reading | None:
    """Decode a reading; None if it is damaged or has other fields."""
    try:
        return Reading.model_validate(_unpack(data))
    except (ValueError, RecursionError, zlib.error):
        return None


def write_sources(sources: Mapping[str, bytes]) -> bytes:
    """Encode files as compressed JSON; Latin-1 represents any bytes as text."""
    return _pack({name: data.decode("latin-1") for name, data in sources.items()})


def read_sources(data: bytes) -> dict[str, bytes]:
    """Decode files."""
    try:
        return {name: text.encode("latin-1") for name, text in _unpack(data).items()}
    except (ValueError, AttributeError, zlib.error) as error:
        raise StoreError(
            "the stored sources of a version cannot be read",
            hint="the store is damaged; restore it from a backup, or admit the file again",
        ) from error


def write_json(what: str, value: Any) -> str:
    """Encode a value as JSON that preserves order and any text; sets become sorted lists."""
    try:
        # Not ASCII: an escaped surrogate pair would decode to one character.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        text = f"{what} cannot be stored: {error}"
        raise StoreError(text, hint="its values must be plain JSON") from error


@contextmanager
def decode_guard(what: str) -> Iterator[None]:
    """Raise StoreError if the block cannot decode a row."""
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreError(
            f"{what} cannot be read",
            hint="another version of Toolkiln wrote it, or the store is damaged; "
            "restore it from a backup",
        ) from error


def hash_of(parts: list[str | None]) -> str:
    """Return a key of fixed length, safe in any index, for a list of texts."""
    return sha256(json.dumps(parts).encode()).hexdigest()


@lru_cache(1024)
def _hash_prefix(*parts: str | None) -> Any:
    """The hash of a list whose last item is still to come."""
    return sha256(f"{json.dumps(parts)[:-1]}, ".encode())


def _identity(caller: Caller) -> list[str | None]:
    # Omitted if None, so that keys of older versions still match.
    platform = [] if caller.platform is None else [caller.platform]
    return [*platform, caller.user_id, caller.agent_id]


def _pack(value: Any) -> bytes:
    # Not ASCII: an escaped surrogate pair would decode to one character.
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


def check_page_bounds(offset: int, limit: int) -> None:
    """Check the offset and limit of a page."""
    if offset < 0 or limit < 1:
        hint = "pages start at offset 0 and have at least one character"
        raise InputError(f"no page has offset {offset} and limit {limit}", hint=hint)


def output_not_found() -> NotFound:
    """Return the error for an unknown output handle."""
    return NotFound(
        "no output is stored under this handle",
        hint="outputs expire; call the tool again",
    )
