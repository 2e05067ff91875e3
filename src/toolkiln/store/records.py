"""How identities, results and rows are written down and read back. No database here."""

import json
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import Any

from pydantic import BaseModel

from toolkiln.model import Caller, Result
from toolkiln.store.faults import StoreError


def scope_of(caller: Caller) -> str:
    """Who may see a call: its user and its agent together.

    The session and the agent's state do not count: they change between the tries of one call.
    """
    return _hash([caller.user_id, caller.agent_id])


def key_of(caller: Caller, call_id: str) -> str:
    """The id as the caller's own: another caller's same id is another call."""
    return _hash([caller.user_id, caller.agent_id, call_id])


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


def _hash(parts: list[str | None]) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return dict(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    raise TypeError(f"a {type(value).__name__} is not JSON")
