"""One spelling for equal schemas: titles gone, definitions renamed, order settled.

It walks a schema as a schema: a property that happens to be called `title`, or a
default that contains one, is data and stays. It judges nothing and resolves nothing.
"""

import json
from typing import Any

Schema = dict[str, Any]

_DEFS = "#/$defs/"
_SCHEMA = ("items", "additionalProperties", "propertyNames", "contains", "not", "contentSchema")
_SCHEMAS = ("prefixItems", "anyOf", "oneOf", "allOf")
_NAMED = ("properties", "patternProperties", "dependentSchemas")


def text(schema: Schema | None) -> str:
    """The normalised schema as JSON, in which `true` differs from `1`, as it does not for `==`."""
    return json.dumps(None if schema is None else normalise(schema), indent=2, sort_keys=True)


def normalise(schema: Schema) -> Schema:
    """The schema without titles, its definitions named by order of first reference."""
    return _Walk(schema.get("$defs", {})).root(schema)


class _Walk:
    """One pass over a schema, meeting definitions as they are referred to."""

    def __init__(self, definitions: dict[str, Schema]) -> None:
        self._definitions = definitions
        self._names: dict[str, str] = {}
        self._done: dict[str, Any] = {}

    def root(self, schema: Schema) -> Schema:
        result: Schema = self._schema({k: v for k, v in schema.items() if k != "$defs"})
        return {**result, "$defs": self._done} if self._done else result

    def _schema(self, schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        return {key: self._keyword(key, schema[key]) for key in sorted(schema) if key != "title"}

    def _keyword(self, key: str, value: Any) -> Any:
        if key == "$ref":
            return self._reference(value)
        if key == "required":
            return sorted(value)
        if key in _SCHEMA:
            return self._schema(value)
        if key in _SCHEMAS:
            return [self._schema(item) for item in value]
        if key in _NAMED:
            return {name: self._schema(value[name]) for name in sorted(value)}
        if key == "discriminator" and "mapping" in value:
            choices = sorted(value["mapping"].items(), key=lambda item: str(item[0]))
            return {**value, "mapping": {str(k): self._choice(v) for k, v in choices}}
        return _number(value)

    def _choice(self, value: Any) -> Any:
        """A discriminator's target: a reference, or a whole schema where unions nest."""
        return self._reference(value) if isinstance(value, str) else self._schema(value)

    def _reference(self, pointer: str) -> str:
        name = pointer.removeprefix(_DEFS).replace("~1", "/").replace("~0", "~")
        if not pointer.startswith(_DEFS) or name not in self._definitions:
            return pointer
        if name not in self._names:
            self._names[name] = new = f"D{len(self._names) + 1}"
            self._done[new] = None
            self._done[new] = self._schema(self._definitions[name])
        return _DEFS + self._names[name]


def _number(value: Any) -> Any:
    """In JSON Schema 1.0 and 1 are the same number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_number(item) for item in value]
    if isinstance(value, dict):
        return {key: _number(item) for key, item in value.items()}
    return value
