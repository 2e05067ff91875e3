"""The words that open a section of a docstring, and the kind of section each opens."""

import re
from typing import Literal

Kind = Literal["parameters", "returns", "raises", "examples", "free", "type"]
"""What a section is about. Free ones are kept under their title; a mere type is dropped,
since annotations say it better. Not an enum: looking up its members took a tenth of the time.
"""


def _by_word(words: dict[Kind, str]) -> dict[str, Kind]:
    return {word: kind for kind, group in words.items() for word in group.split(", ")}


TITLES = _by_word(
    {
        "parameters": "args, arguments, params, parameters, kwargs, keyword args, "
        "keyword arguments, keyword parameters, other args, other arguments, other params, "
        "other parameters",
        "returns": "returns, return, yields, yield",
        "raises": "raises, raise, exceptions, throws",
        "examples": "examples, example, example usage, usage example, usage examples",
        "free": "note, notes, important, important note, important notes, warning, warnings, "
        "caution, danger, attention, hint, tip, tips, see also, references, todo, attributes, "
        "methods, warns, receives, deprecated, limitations, best practices, usage, usage notes, "
        "use case, use cases, use when, difference, differences, key differences, not for",
    }
)
"""`Args:`, `**Examples**`, `Returns` above a line of dashes; lower case."""

FIELDS = _by_word(
    {
        "parameters": "param, parameter, arg, argument, key, keyword, kwarg",
        "returns": "return, returns, yield, yields",
        "raises": "raise, raises, except, exception, throws",
        "free": "note, warning, important, attention, see, todo, deprecated",
        "type": "type, rtype, ytype",
    }
)
"""`:param x:` and `@param x:`."""

DIRECTIVES = _by_word(
    {
        "free": "note, warning, important, caution, danger, attention, error, hint, tip, todo, "
        "admonition, seealso, deprecated, versionadded, versionchanged",
        "examples": "code, code-block, sourcecode, doctest, testcode",
    }
)
"""`.. note::`."""

_LONGER = re.compile(
    r"(?:when (?:not )?to use|use this(?: tool)? (?:when|for|if)"
    r"|(?:key )?differences? (?:from|to|between|with))(?: [\w`'.-]+){0,4}"
)
_ORNAMENT = " !⚠️❗🚨💡📝"


def kind_of(title: str) -> Kind | None:
    """The kind of section that a title opens, None if it is no known title."""
    words = title.strip(_ORNAMENT).lower()
    return TITLES.get(words) or ("free" if _LONGER.fullmatch(words) else None)


def title_of(word: str) -> str:
    """The title of the section that a field or directive opens."""
    named = {"seealso": "See Also", "see": "See Also", "versionadded": "Added"}
    return named.get(word) or word.removeprefix("version").capitalize()
