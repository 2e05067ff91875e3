"""Addresses of resources: URIs, and templates of them after RFC 6570, level 1.

`notes://{year}/{name}` stands for every address that has something in each of these places.
A value ends at the first character that follows its place in the template, so that there
is one way to read an address, and reading takes no longer than the address is.
"""

import re
from functools import lru_cache
from urllib.parse import unquote

OWN_SCHEME = "toolkiln:"
"""The addresses of the pages about tools."""
LONGEST = 2_048
"""Characters of an address that is looked up."""
_URI = re.compile(r"[a-z][a-z0-9+.-]*:[^\s\x00-\x1f\x7f<>\"\\^`|]+")
_PLACE = re.compile(r"\{([^\W\d]\w*)\}")
_BETWEEN = "/?#"
"""What parts of addresses end with: no value has one of them unescaped."""


def uri_places(uri: str) -> tuple[str, ...]:
    """The names of a template's places, in order; none of an address."""
    return tuple(_PLACE.findall(uri))


def uri_problem(uri: str) -> str | None:
    """Why a text is neither an address nor a template of some; None if it is."""
    names = uri_places(uri)
    bare = _PLACE.sub("x", uri)
    if "{" in bare or "}" in bare:
        return "places in a template are written {name}, and nothing else"
    if not _URI.fullmatch(bare) or len(uri) > LONGEST:
        return "an address begins with a scheme, as in notes://today"
    if not _URI.match(uri.partition("{")[0] + "x"):
        return "the scheme of an address is no place of a template"
    if uri.startswith(OWN_SCHEME):
        return f"addresses that begin with {OWN_SCHEME} are Toolkiln's own"
    if len(set(names)) < len(names):
        return "a template has each place once"
    if "}{" in uri:
        return "nothing tells where one place ends and the next begins"
    return None


def uri_values(template: str, uri: str) -> dict[str, str] | None:
    """What an address has in the places of a template; None if it is no such address."""
    if len(uri) > LONGEST:
        return None
    found = _pattern(template).fullmatch(uri)
    return None if found is None else {k: unquote(v) for k, v in found.groupdict().items()}


@lru_cache(1024)
def _pattern(template: str) -> re.Pattern[str]:
    literal, *rest = re.split(r"\{([^{}]*)\}", template)
    made = re.escape(literal)
    for name, following in zip(rest[::2], rest[1::2], strict=True):
        end = re.escape(_BETWEEN + following[:1])
        made += f"(?P<{name}>[^{end}]+){re.escape(following)}"
    return re.compile(made)
