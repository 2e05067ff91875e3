"""Messages about invalid arguments: where, what, and the nearest value that works.

Turns the validator's errors into short sentences, one for each thing to change. Of the
branches of a union only the one that the value comes closest to is described. Collecting
errors takes time that can be exponential in the depth of the arguments, so that it is only
done for values that meet few subschemas; larger ones are searched for their invalid members.
"""

import json
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, NamedTuple

from jsonschema_rs import ValidationError, ValidationErrorKind
from msgspec import Struct

from toolkiln.errors import nearest_hint
from toolkiln.schema.document import Document, join, member_schema

_NOUNS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_SAYINGS = {
    "minimum": "{} is less than {}, the smallest allowed",
    "maximum": "{} is greater than {}, the largest allowed",
    "exclusiveMinimum": "{} is not greater than {}",
    "exclusiveMaximum": "{} is not less than {}",
    "multipleOf": "{} is not a multiple of {}",
    "minLength": "{} is shorter than {} characters",
    "maxLength": "{} is longer than {} characters",
    "minItems": "has fewer than {1} items",
    "maxItems": "has more than {1} items",
    "minProperties": "has fewer than {1} entries",
    "maxProperties": "has more than {1} entries",
    "pattern": "{} does not match the pattern {}",
    "format": "{} is not a valid {}",
    "const": "{} is not {}",
    "uniqueItems": "has duplicate items",
    "contains": "has no item of the kind that is needed",
    "not": "{} is excluded",
}
_SHOWN_CHOICES = 12
_SHOWN_CHARS = 60
_MOST_COMPARED = 100
"""Options or names that are compared to find the one that was meant."""
_LONGEST_COMPARED = 100
_MOST_HINTS = 10
"""Unexpected names of one object that get a hint."""
_MOST_STEPS = 2_000
"""Steps of a validation that collects all errors, by `Document.steps`."""
_ABOUT_MEMBERS = frozenset(
    (
        *("$ref", "allOf", "properties", "patternProperties", "additionalProperties"),
        *("items", "prefixItems", "unevaluatedItems", "unevaluatedProperties"),
    )
)
"""Keywords that a large value is not checked with: its parts and members are."""


class Problem(Struct, frozen=True):
    """One thing that is wrong with a call."""

    path: str
    """JSON pointer into the arguments."""
    message: str
    """One short sentence that names the place."""
    hint: str | None = None
    """What would work instead, if that is known."""


def problem(path: Iterable[str | int], what: str, hint: str | None = None) -> Problem:
    """A problem at a place."""
    tokens = list(path)
    where = place(tokens)
    return Problem(join("", *tokens) if tokens else "", f"{where}: {what}", hint)


def unknown_tool(name: str, known: Iterable[str]) -> Problem:
    """The answer to a call of a tool that does not exist."""
    return Problem("", f"there is no tool named {shown(name)}", nearest_hint(name, known))


def place(tokens: list[str | int]) -> str:
    """A path as a person writes it: `items[2].name`."""
    if not tokens:
        return "arguments"
    text = ""
    for token in tokens:
        if isinstance(token, int):
            text += f"[{token}]"
        elif token.isidentifier() or (token.replace("-", "_").isidentifier() and token):
            text += f".{token}"
        else:
            text += f"[{shown(token)}]"
    text = text.removeprefix(".")
    return text if len(text) <= 2 * _SHOWN_CHARS else f"{text[: 2 * _SHOWN_CHARS - 3]}..."


def shown(value: Any) -> str:
    """A value in a sentence, cut when long."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}..."


class _Explanation(NamedTuple):
    """One thing to change, at a path below the value that was validated."""

    path: list[str | int]
    what: str
    hint: str | None = None


class Explainer:
    """Says what is wrong with arguments for one schema."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def problems(self, arguments: Any) -> Iterator[Problem]:
        """One problem for each thing to change."""
        for path, what, hint in self._explain(self._document.root, arguments, []):
            yield problem(path, what, hint)

    def _explain(self, node: Any, value: Any, at: list[str | int]) -> Iterator[_Explanation]:
        if self._document.steps(node, value, _MOST_STEPS) <= _MOST_STEPS:
            validator = self._document.kept_validator(node)
            yield from _errors(validator.iter_errors(value), node, at)
            return
        is_explained = False
        for found in self._search(node, value, at):
            yield found
            is_explained = True
        if not is_explained:
            yield _Explanation(at, "does not match the schema, and is too large to say why")

    def _search(self, node: Any, value: Any, at: list[str | int]) -> Iterator[_Explanation]:
        """What is wrong with a large value itself, and with its invalid members."""
        if not isinstance(value, dict | list):
            return
        for part in self._document.parts(node):
            alone = {key: item for key, item in part.items() if key not in _ABOUT_MEMBERS}
            if "properties" in part:
                alone["properties"] = dict.fromkeys(part["properties"], True)
            if part.get("additionalProperties") is False and "patternProperties" not in part:
                alone["additionalProperties"] = False
            if self._document.steps(alone, value, _MOST_STEPS) <= _MOST_STEPS:
                errors = self._document.validator(alone).iter_errors(value)
                yield from _errors(errors, alone, at)
            for key, member in value.items() if isinstance(value, dict) else enumerate(value):
                schema = member_schema(part, key)
                if isinstance(schema, dict) and not self._document.accepts(schema, member):
                    yield from self._explain(schema, member, [*at, key])


def _errors(
    errors: Iterable[ValidationError], root: Any, at: list[str | int]
) -> Iterator[_Explanation]:
    for error in errors:
        for path, what, hint in _explain(error, root):
            yield _Explanation([*at, *path], what, hint)


def _explain(error: ValidationError, root: Any) -> Iterator[_Explanation]:
    kind, path, value = error.kind, error.instance_path, error.instance
    match kind:
        case ValidationErrorKind.AnyOf() | ValidationErrorKind.OneOfNotValid():
            yield from _closest(error, kind.context, root)
        case ValidationErrorKind.OneOfMultipleValid():
            yield _Explanation(path, "fits more than one of the alternatives, and must fit one")
        case ValidationErrorKind.Type():
            yield _Explanation(path, f"{shown(value)} is not {_either(kind.types)}")
        case ValidationErrorKind.Required():
            yield _Explanation([*path, kind.property], "is required, but missing")
        case ValidationErrorKind.AdditionalProperties() | (
            ValidationErrorKind.UnevaluatedProperties()
        ):
            known = _known_names(error, root)
            for at, name in enumerate(kind.unexpected):
                noun = "property" if path else "parameter"
                hint = _nearest(name, known) if at < _MOST_HINTS else None
                yield _Explanation([*path, name], f"is not a known {noun}", hint)
        case ValidationErrorKind.Enum():
            yield _Explanation(path, _not_one_of(value, kind.options), _like(value, kind.options))
        case ValidationErrorKind.Constant():
            expected = kind.expected_value
            hint = _like(value, [expected])
            yield _Explanation(path, f"{shown(value)} is not {shown(expected)}", hint)
        case ValidationErrorKind.PropertyNames():
            for inner in _explain(kind.error, root):
                yield _Explanation(path, f"a key is not allowed: {inner.what}", inner.hint)
        case ValidationErrorKind.FalseSchema():
            yield _Explanation(path, "is not allowed")
        case _:
            yield _Explanation(path, _saying(error))


def _saying(error: ValidationError) -> str:
    name = error.kind.name
    if name not in _SAYINGS:
        return error.message if len(error.message) <= 200 else f"{error.message[:197]}..."
    limit = error.kind.value
    bare = name in ("format",)
    return _SAYINGS[name].format(shown(error.instance), limit if bare else shown(limit))


def _either(types: list[str]) -> str:
    nouns = [_NOUNS.get(kind, kind) for kind in sorted(types, key=lambda kind: kind == "null")]
    return " or ".join([", ".join(nouns[:-1]), nouns[-1]] if len(nouns) > 1 else nouns)


def _not_one_of(value: Any, options: list[Any]) -> str:
    listed = ", ".join(shown(option) for option in options[:_SHOWN_CHOICES])
    more = len(options) - _SHOWN_CHOICES
    return f"{shown(value)} is not one of {listed}" + (f" and {more} others" if more > 0 else "")


def _like(value: Any, options: list[Any]) -> str | None:
    """The option that was probably meant: same but for case, type, or a few characters.

    Comparing characters takes long, so that with many options only the others count.
    """
    written = value if isinstance(value, str) else json.dumps(value)
    by_text = {o if isinstance(o, str) else json.dumps(o): o for o in reversed(options)}
    folded = {text.casefold(): text for text in reversed(by_text)}
    asked = written.casefold()[:_LONGEST_COMPARED]
    short = [text for text in folded if len(text) <= _LONGEST_COMPARED]
    if asked in folded:
        close = [asked]
    elif len(options) <= _MOST_COMPARED:
        close = get_close_matches(asked, short, n=1, cutoff=0.6)
    else:
        close = []
    return f"did you mean {shown(by_text[folded[close[0]]])}?" if close else None


def _nearest(name: str, known: list[str]) -> str | None:
    hint = nearest_hint(name[:_LONGEST_COMPARED], known[:_MOST_COMPARED])
    if hint or not known:
        return hint
    return f"known: {', '.join(map(shown, known))}" if len(known) <= _SHOWN_CHOICES else None


def _known_names(error: ValidationError, root: Any) -> list[str]:
    """The property names of the schema that refused one."""
    node = root
    try:
        for step in error.schema_path[:-1]:
            node = node[step]
    except (LookupError, TypeError):
        return []  # the validator leaves empty names out of its paths
    properties = node.get("properties", {}) if isinstance(node, dict) else {}
    return list(properties)


def _closest(
    error: ValidationError, branches: list[list[ValidationError]], root: Any
) -> Iterator[_Explanation]:
    here = error.instance_path
    fitting = [branch for branch in branches if not _misses_type(branch, here)]
    if not fitting:
        types = [kind for branch in branches for found in branch for kind in _types(found, here)]
        yield _Explanation(
            here, f"{shown(error.instance)} is not {_either(list(dict.fromkeys(types)))}"
        )
        return
    options = [option for branch in fitting for option in _options(branch, here)]
    if options and all(_options(branch, here) for branch in fitting):
        yield _Explanation(
            here, _not_one_of(error.instance, options), _like(error.instance, options)
        )
        return
    tagged = _tags(fitting, here)
    if tagged:
        path, value, tags = tagged
        yield _Explanation(path, _not_one_of(value, tags), _like(value, tags))
        return
    nearest: list[ValidationError] = min(fitting, key=lambda branch: _distance(branch, here))
    for found in nearest:
        yield from _explain(found, root)


def _misses_type(branch: list[ValidationError], here: list[str | int]) -> bool:
    return any(_types(found, here) for found in branch)


def _types(found: ValidationError, here: list[str | int]) -> list[str]:
    if isinstance(found.kind, ValidationErrorKind.Type) and found.instance_path == here:
        return found.kind.types
    return []


def _options(branch: list[ValidationError], here: list[str | int]) -> list[Any]:
    """The values that a branch would take at this very place."""
    for found in branch:
        if found.instance_path == here:
            if isinstance(found.kind, ValidationErrorKind.Enum):
                return found.kind.options
            if isinstance(found.kind, ValidationErrorKind.Constant):
                return [found.kind.expected_value]
    return []


def _tags(
    branches: list[list[ValidationError]], here: list[str | int]
) -> tuple[list[str | int], Any, list[Any]] | None:
    """The property that tells the branches apart, if its value fits none of them."""
    if len(branches) < 2:
        return None
    found: list[tuple[list[str | int], Any, list[Any]]] = []
    for branch in branches:
        places = [e for e in branch if len(e.instance_path) == len(here) + 1]
        tags = [(e, _options([e], e.instance_path)) for e in places]
        tag = next(((e, options) for e, options in tags if options), None)
        if tag is None:
            return None
        found.append((tag[0].instance_path, tag[0].instance, tag[1]))
    if any(path != found[0][0] for path, _, _ in found):
        return None
    options = [option for _, _, branch_options in found for option in branch_options]
    return found[0][0], found[0][1], options


def _distance(branch: list[ValidationError], here: list[str | int]) -> tuple[int, int]:
    """How far a value is from a branch: a wrong tag counts most, then the number of errors."""
    wrong_tag = any(
        isinstance(found.kind, ValidationErrorKind.Constant)
        and len(found.instance_path) == len(here) + 1
        for found in branch
    )
    return int(wrong_tag), len(branch)
