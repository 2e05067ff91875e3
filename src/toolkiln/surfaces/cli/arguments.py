"""The arguments of a call as people write them: a JSON object, or pairs.

What they mean is for the tool's schema to say; whether they fit is checked by the gateway.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from toolkiln.app import Kiln
from toolkiln.errors import BackendError, InputError

_FORMS = """write city=Paris days=3, or '{"city": "Paris", "days": 3}', or @FILE, or - for stdin"""


def parse_arguments(kiln: Kiln, tool: str, given: list[str]) -> dict[str, Any]:
    """The arguments of a call.

    Raises:
        InputError: they cannot be read.
    """
    if len(given) == 1 and (whole := parse_object(given[0])) is not None:
        return whole
    texts = parse_pairs(given)
    try:
        properties = kiln.tool(tool).parameters.get("properties")
    except (InputError, BackendError):  # the gateway decides what the caller learns, and records it
        return dict(texts)
    known = properties if isinstance(properties, dict) else {}
    arguments = {name: _value(text, known.get(name)) for name, text in texts.items()}
    answer = kiln.check_arguments(tool, arguments)
    for problem in getattr(answer, "problems", ()):
        name = problem.path.partition("/")[2].partition("/")[0]
        name = name.replace("~1", "/").replace("~0", "~")
        if name in texts:  # it does not fit as JSON
            arguments[name] = texts[name]
    return arguments


def parse_object(text: str) -> dict[str, Any] | None:
    """A JSON object: as it stands, in `@FILE`, or on stdin as `-`; None: it is none of these.

    Raises:
        InputError: it cannot be read.
    """
    if text == "-":
        return _object(_stdin(), "stdin")
    if text.startswith("@"):
        return _object(_file(text[1:]), text[1:])
    if text.lstrip().startswith(("{", "[")):
        return _object(text, "the arguments")
    return None


def parse_pairs(given: list[str]) -> dict[str, str]:
    """The texts of `key=value` and `key=@FILE`.

    Raises:
        InputError: one is no pair, cannot be read, or is given twice.
    """
    return _unique(map(_pair, given))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"{text!r} is neither a JSON object nor key=value", hint=_FORMS)
    return name, _file(value[1:]) if value.startswith("@") else value


def _value(text: str, schema: Any) -> Any:
    if isinstance(schema, dict) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _object(text: str, origin: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        why = "is nested too deeply" if isinstance(error, RecursionError) else f"{error}"
        raise InputError(f"{origin}: not valid JSON: {why}", hint=_FORMS) from error
    if not isinstance(value, dict):
        raise InputError(f"{origin}: not a JSON object with the tool's parameters", hint=_FORMS)
    return value


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a mapping, of which nothing gets lost."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            hint = f"""for several values write {name}='["one", "two"]'"""
            raise InputError(f"{name!r} is given twice", hint=hint)
        found[name] = value
    return found


def _stdin() -> str:
    if sys.stdin is None:
        raise InputError("stdin is closed", hint=_FORMS)
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"stdin is not UTF-8 text: {error}") from error


def _file(name: str) -> str:
    try:
        return Path(name).read_text("utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(
            f"{name!r} cannot be read: {why}",
            hint="a text that starts with @ is written in a JSON object",
        ) from error
