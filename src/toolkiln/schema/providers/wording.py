"""Constraints in words, for descriptions where a provider refuses the keyword.

Short phrases that finish the sentence "the value is / has ...". How values travel is
described here too, so that a model knows what to write.
"""

import json
from typing import Any

_PHRASES = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} entries",
    "maxProperties": "at most {} entries",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "pattern": "matches the regular expression {}",
    "format": "format: {}",
    "required": "with the keys {}",
    "propertyNames": "keys match the JSON Schema {}",
    "contains": "contains an item that matches the JSON Schema {}",
    "minContains": "at least {} such items",
    "maxContains": "at most {} such items",
    "not": "does not match the JSON Schema {}",
    "if": "if it matches the JSON Schema {}",
    "then": "then it also matches {}",
    "else": "otherwise it matches {}",
    "dependentRequired": "properties that need others: {}",
    "dependentSchemas": "properties with consequences: {}",
    "oneOf": "fits exactly one of the alternatives",
    "uniqueItems": "no duplicates",
    "enum": "one of {}",
}
_LONGEST = 600


def phrase(keyword: str, value: Any) -> str:
    """A constraint as a phrase."""
    template = _PHRASES.get(keyword, keyword + " {}")
    return template.format(shown(value))


def shown(value: Any) -> str:
    """A value as it would be written in JSON, strings of constraints bare, cut when long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def described(text: object, notes: list[str]) -> str | None:
    """A description with notes appended; None if there is nothing to say."""
    base = text if isinstance(text, str) else ""
    if not notes:
        return base or None
    said = "; ".join(dict.fromkeys(notes))
    return f"{base} ({said})" if base else said[0].upper() + said[1:]


def json_text(node: Any) -> str:
    """What to write where a value travels as JSON text."""
    schema = json.dumps(node, ensure_ascii=False) if isinstance(node, dict) else ""
    if not 2 < len(schema) <= _LONGEST:
        return "any JSON value, written as JSON text"
    return f"written as JSON text that matches the JSON Schema {schema}"


def default_note(value: Any) -> str:
    """What a parameter is when it is left out."""
    return f"default: {repr(value) if isinstance(value, str) else shown(value)}"
