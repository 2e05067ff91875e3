"""Messages for invalid arguments: path, reason, and the closest valid value.

Turns validation errors into short sentences, one for each fix. For a union, only the
closest branch is described. Collecting all errors can take time exponential in the depth of
the arguments, so this is limited to values that meet few subschemas; in larger values only
the invalid members are explained.
"""

import json
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, NamedTuple

from jsonschema_rs import ValidationError, ValidationErrorKind
from msgspec import Struct

from toolkiln.errors import nearest_hint
from toolkiln.schema.document import SchemaDocument, join, member_schema

_NOUNS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_TEMPLATES = {
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
    "contains": "has no item of the required kind",
    "not": "{} is excluded",
}
_SHOWN_CHOICES = 12
_SHOWN_CHARS = 60
_MAX_COMPARED = 100
"""Maximum number of options or names compared to suggest one."""
_MAX_COMPARED_LENGTH = 100
_MAX_HINTS = 10
"""Maximum number of unexpected names in one object that get a hint."""
_MAX_STEPS = 2_000
"""Maximum `SchemaDocument.steps` of a validation that collects all errors."""
_MEMBER_KEYWORDS = frozenset(
    (
        *("$ref", "allOf", "properties", "patternProperties", "additionalProperties"),
        *("items", "prefixItems", "unevaluatedItems", "unevaluatedProperties"),
    )
)
"""Keywords skipped for a large value; its members are validated one by one instead."""


class ArgumentProblem(Struct, frozen=True):
    """One reason why arguments are invalid."""

    path: str
    """JSON pointer into the arguments."""
    message: str
    """One short sentence, starting with the path."""
    hint: str | None = None
    """A suggested fix, if any."""


def problem(path: Iterable[str | int], reason: str, hint: str | None = None) -> ArgumentProblem:
    """Build a problem from the path of the value and a reason."""
    tokens = list(path)
    pointer = join("", *tokens) if tokens else ""
    return ArgumentProblem(pointer, f"{display_path(tokens)}: {reason}", hint)


def unknown_tool(name: str, known: Iterable[str]) -> ArgumentProblem:
    """Build the problem for a call of a tool that does not exist."""
    return ArgumentProblem("", f"there is no tool named {display(name)}", nearest_hint(name, known))


def display_path(tokens: list[str | int]) -> str:
    """Format a path like `items[2].name`."""
    if not tokens:
        return "arguments"
    text = ""
    for token in tokens:
        if isinstance(token, int):
            text += f"[{token}]"
        elif token.isidentifier() or (token.replace("-", "_").isidentifier() and token):
            text += f".{token}"
        else:
            text += f"[{display(token)}]"
    text = text.removeprefix(".")
    return text if len(text) <= 2 * _SHOWN_CHARS else f"{text[: 2 * _SHOWN_CHARS - 3]}..."


def display(value: Any) -> str:
    """Format a value for a message; long values are truncated."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}..."


class _Explanation(NamedTuple):
    """One fix, at a path below the validated value."""

    path: list[str | int]
    reason: str
    hint: str | None = None


class Explainer:
    """Explains why arguments are invalid for one schema."""

    def __init__(self, document: SchemaDocument) -> None:
        self._document = document

    def problems(self, arguments: Any) -> Iterator[ArgumentProblem]:
        """Yield one problem for each fix."""
        for path, reason, hint in self._explain(self._document.root, arguments, []):
            yield problem(path, reason, hint)

    def _explain(self, node: Any, value: Any, at: list[str | int]) -> Iterator[_Explanation]:
        if self._document.steps(node, value, _MAX_STEPS) <= _MAX_STEPS:
            validator = self._document.cached_validator(node)
            yield from _errors(validator.iter_errors(value), node, at)
            return
        is_explained = False
        for explanation in self._explain_large(node, value, at):
            yield explanation
            is_explained = True
        if not is_explained:
            yield _Explanation(at, "does not match the schema, but is too large to explain why")

    def _explain_large(self, node: Any, value: Any, at: list[str | int]) -> Iterator[_Explanation]:
        """Explain a large value on its own, then its invalid members."""
        if not isinstance(value, dict | list):
            return
        for part in self._document.parts(node):
            shallow = {key: item for key, item in part.items() if key not in _MEMBER_KEYWORDS}
            if "properties" in part:
                shallow["properties"] = dict.fromkeys(part["properties"], True)
            if part.get("additionalProperties") is False and "patternProperties" not in part:
                shallow["additionalProperties"] = False
            if self._document.steps(shallow, value, _MAX_STEPS) <= _MAX_STEPS:
                errors = self._document.validator(shallow).iter_errors(value)
                yield from _errors(errors, shallow, at)
            for key, member in value.items() if isinstance(value, dict) else enumerate(value):
                schema = member_schema(part, key)
                if isinstance(schema, dict) and not self._document.accepts(schema, member):
                    yield from self._explain(schema, member, [*at, key])


def _errors(
    errors: Iterable[ValidationError], root: Any, at: list[str | int]
) -> Iterator[_Explanation]:
    for error in errors:
        for path, reason, hint in _explain(error, root):
            yield _Explanation([*at, *path], reason, hint)


def _explain(error: ValidationError, root: Any) -> Iterator[_Explanation]:
    kind, path, value = error.kind, error.instance_path, error.instance
    match kind:
        case ValidationErrorKind.AnyOf() | ValidationErrorKind.OneOfNotValid():
            yield from _explain_union(error, kind.context, root)
        case ValidationErrorKind.OneOfMultipleValid():
            yield _Explanation(
                path, "matches more than one alternative, and must match exactly one"
            )
        case ValidationErrorKind.Type():
            yield _Explanation(path, f"{display(value)} is not {_type_names(kind.types)}")
        case ValidationErrorKind.Required():
            yield _Explanation([*path, kind.property], "is required, but missing")
        case ValidationErrorKind.AdditionalProperties() | (
            ValidationErrorKind.UnevaluatedProperties()
        ):
            known = _known_names(error, root)
            for index, name in enumerate(kind.unexpected):
                noun = "property" if path else "parameter"
                hint = _nearest(name, known) if index < _MAX_HINTS else None
                yield _Explanation([*path, name], f"is not a known {noun}", hint)
        case ValidationErrorKind.Enum():
            yield _invalid_option(path, value, kind.options)
        case ValidationErrorKind.Constant():
            expected = kind.expected_value
            hint = _closest_option(value, [expected])
            yield _Explanation(path, f"{display(value)} is not {display(expected)}", hint)
        case ValidationErrorKind.PropertyNames():
            for inner in _explain(kind.error, root):
                yield _Explanation(path, f"a key is not allowed: {inner.reason}", inner.hint)
        case ValidationErrorKind.FalseSchema():
            yield _Explanation(path, "is not allowed")
        case _:
            yield _Explanation(path, _reason(error))


def _reason(error: ValidationError) -> str:
    name = error.kind.name
    if name not in _TEMPLATES:
        return error.message if len(error.message) <= 200 else f"{error.message[:197]}..."
    limit = error.kind.value if name == "format" else display(error.kind.value)
    return _TEMPLATES[name].format(display(error.instance), limit)


def _type_names(types: list[str]) -> str:
    nouns = [_NOUNS.get(kind, kind) for kind in sorted(types, key=lambda kind: kind == "null")]
    return " or ".join([", ".join(nouns[:-1]), nouns[-1]] if len(nouns) > 1 else nouns)


def _invalid_option(path: list[str | int], value: Any, options: list[Any]) -> _Explanation:
    listed = ", ".join(display(option) for option in options[:_SHOWN_CHOICES])
    more = len(options) - _SHOWN_CHOICES
    others = f" and {more} others" if more > 0 else ""
    reason = f"{display(value)} is not one of {listed}{others}"
    return _Explanation(path, reason, _closest_option(value, options))


def _closest_option(value: Any, options: list[Any]) -> str | None:
    """Suggest an option that differs in case, type or a few characters.

    Comparing characters is slow, so many options are compared by case and type only.
    """
    written = value if isinstance(value, str) else json.dumps(value)
    by_text = {o if isinstance(o, str) else json.dumps(o): o for o in reversed(options)}
    folded = {text.casefold(): text for text in reversed(by_text)}
    target = written.casefold()[:_MAX_COMPARED_LENGTH]
    short = [text for text in folded if len(text) <= _MAX_COMPARED_LENGTH]
    if target in folded:
        close = [target]
    elif len(options) <= _MAX_COMPARED:
        close = get_close_matches(target, short, n=1, cutoff=0.6)
    else:
        close = []
    return f"did you mean {display(by_text[folded[close[0]]])}?" if close else None


def _nearest(name: str, known: list[str]) -> str | None:
    hint = nearest_hint(name[:_MAX_COMPARED_LENGTH], known[:_MAX_COMPARED])
    if hint or not known:
        return hint
    return f"known: {', '.join(map(display, known))}" if len(known) <= _SHOWN_CHOICES else None


def _known_names(error: ValidationError, root: Any) -> list[str]:
    # The names of the schema that rejected one.
    node = root
    try:
        for step in error.schema_path[:-1]:
            node = node[step]
    except (LookupError, TypeError):
        return []  # the validator omits empty names from its paths
    properties = node.get("properties", {}) if isinstance(node, dict) else {}
    return list(properties)


def _explain_union(
    error: ValidationError, branches: list[list[ValidationError]], root: Any
) -> Iterator[_Explanation]:
    here = error.instance_path
    fitting = [branch for branch in branches if not _misses_type(branch, here)]
    if not fitting:
        types = [kind for branch in branches for inner in branch for kind in _types(inner, here)]
        names = _type_names(list(dict.fromkeys(types)))
        yield _Explanation(here, f"{display(error.instance)} is not {names}")
        return
    options = [option for branch in fitting for option in _options(branch, here)]
    if options and all(_options(branch, here) for branch in fitting):
        yield _invalid_option(here, error.instance, options)
        return
    if tagged := _tags(fitting, here):
        yield _invalid_option(*tagged)
        return
    nearest: list[ValidationError] = min(fitting, key=lambda branch: _distance(branch, here))
    for inner in nearest:
        yield from _explain(inner, root)


def _misses_type(branch: list[ValidationError], here: list[str | int]) -> bool:
    return any(_types(found, here) for found in branch)


def _types(found: ValidationError, here: list[str | int]) -> list[str]:
    if isinstance(found.kind, ValidationErrorKind.Type) and found.instance_path == here:
        return found.kind.types
    return []


def _options(branch: list[ValidationError], here: list[str | int]) -> list[Any]:
    # The values a branch accepts at exactly this path.
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
    """Return the discriminating property, its value and the valid tags, if no branch has it."""
    if len(branches) < 2:
        return None
    found: list[tuple[list[str | int], Any, list[Any]]] = []
    for branch in branches:
        members = [e for e in branch if len(e.instance_path) == len(here) + 1]
        tags = [(e, _options([e], e.instance_path)) for e in members]
        tag = next(((e, options) for e, options in tags if options), None)
        if tag is None:
            return None
        found.append((tag[0].instance_path, tag[0].instance, tag[1]))
    if any(path != found[0][0] for path, _, _ in found):
        return None
    options = [option for _, _, branch_options in found for option in branch_options]
    return found[0][0], found[0][1], options


def _distance(branch: list[ValidationError], here: list[str | int]) -> tuple[int, int]:
    # A wrong tag counts most, then the number of errors.
    wrong_tag = any(
        isinstance(found.kind, ValidationErrorKind.Constant)
        and len(found.instance_path) == len(here) + 1
        for found in branch
    )
    return int(wrong_tag), len(branch)
