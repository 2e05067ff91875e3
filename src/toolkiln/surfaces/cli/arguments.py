"""Arguments on the command line: a JSON object, or pairs. The gateway validates them."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from toolkiln.errors import BackendError, InputError
from toolkiln.kiln import Kiln

_FORMS = """write city=Paris days=3, or '{"city": "Paris", "days": 3}', or @FILE, or - for stdin"""


def parse_arguments(kiln: Kiln, tool: str, words: list[str]) -> dict[str, Any]:
    """Return the arguments of a call: JSON where it fits the schema of the tool, else texts."""
    if len(words) == 1 and (value := parse_object(words[0])) is not None:
        return value
    texts = parse_pairs(words)
    try:
        spec = kiln.tool(tool)
    except (InputError, BackendError):  # the gateway decides what the caller learns, and records it
        return dict(texts)
    from toolkiln.schema.arguments import parse_texts

    return parse_texts(spec, texts)


def parse_object(text: str) -> dict[str, Any] | None:
    """Return a JSON object: inline, in `@FILE`, or on stdin as `-`; None if it is none."""
    if text == "-":
        return _object(_stdin(), "stdin")
    if text.startswith("@"):
        return _object(_file(text[1:]), text[1:])
    if text.lstrip().startswith(("{", "[")):
        return _object(text, "the arguments")
    return None


def parse_pairs(words: list[str]) -> dict[str, str]:
    """Return the texts of `key=value` and `key=@FILE` by key."""
    return _unique(map(_pair, words))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"{text!r} is neither a JSON object nor key=value", hint=_FORMS)
    return name, _file(value[1:]) if value.startswith("@") else value


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
    """Return pairs as a mapping, and refuse duplicates."""
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
