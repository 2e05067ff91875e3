"""Base class of values, JSON Schema type, and URI templates (RFC 6570, level 1)."""

import re
from functools import lru_cache
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")


class Value(BaseModel):
    """Base of frozen values that forbid unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Page(Value, Generic[T]):
    """A page of a list."""

    items: tuple[T, ...]
    next_cursor: str | None
    """Selects the next page; null on the last one."""


BUILTIN_SCHEME = "toolkiln:"
"""Scheme of the built-in resources."""
MAX_URI_LENGTH = 2_048
_URI = re.compile(r"[a-z][a-z0-9+.-]*:[^\s\x00-\x1f\x7f<>\"\\^`|]+")
_VARIABLE = re.compile(r"\{([^\W\d]\w*)\}")
_SEPARATORS = "/?#"
"""Characters that no variable contains unescaped."""


def uri_variables(uri: str) -> tuple[str, ...]:
    """Return the variable names of a URI template, in order."""
    return tuple(_VARIABLE.findall(uri))


def uri_problem(uri: str) -> str | None:
    """Return why a string is neither a URI nor a supported URI template, if so."""
    names = uri_variables(uri)
    bare = _VARIABLE.sub("x", uri)
    if "{" in bare or "}" in bare:
        return "a URI template may only use variables like {name}"
    if not _URI.fullmatch(bare) or len(uri) > MAX_URI_LENGTH:
        return "a URI starts with a scheme, as in notes://today"
    if not _URI.match(uri.partition("{")[0] + "x"):
        return "the scheme of a URI template cannot be a variable"
    if uri.startswith(BUILTIN_SCHEME):
        return f"URIs that start with {BUILTIN_SCHEME} are reserved"
    if len(set(names)) < len(names):
        return "a URI template may use each variable only once"
    if "}{" in uri:
        return "variables of a URI template need a separator between them"
    return None


def uri_values(template: str, uri: str) -> dict[str, str] | None:
    """Match a URI against a template; return the variables, or None if it does not match."""
    if len(uri) > MAX_URI_LENGTH:
        return None
    found = _pattern(template).fullmatch(uri)
    return None if found is None else {k: unquote(v) for k, v in found.groupdict().items()}


@lru_cache(1024)
def _pattern(template: str) -> re.Pattern[str]:
    literal, *rest = re.split(r"\{([^{}]*)\}", template)
    pattern = re.escape(literal)
    for name, following in zip(rest[::2], rest[1::2], strict=True):
        end = re.escape(_SEPARATORS + following[:1])
        pattern += f"(?P<{name}>[^{end}]+){re.escape(following)}"
    return re.compile(pattern)


JsonSchema = dict[str, Any]
"""A JSON Schema 2020-12 document."""
