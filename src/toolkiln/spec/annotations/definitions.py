"""The definitions of a file's schemas: built once each, also when they are recursive."""

import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from toolkiln.model import JsonSchema
from toolkiln.spec.annotations.shapes import Omitted, Shape, Unresolved

_PREFIX = "#/$defs/"


class Definitions:
    """What may come to stand in a schema's `$defs`, by name."""

    def __init__(self) -> None:
        self.schemas: dict[str, JsonSchema] = {}
        self.properties: dict[str, dict[str, str]] = {}
        """Of each class, the property that each field became."""
        self.aliases: dict[str, Shape] = {}
        """The shapes behind the definitions that are type aliases."""
        self._names: dict[Hashable, str] = {}

    def define(self, key: Hashable, name: str, kind: str, build: Callable[[], JsonSchema]) -> Shape:
        """A reference to the definition of `key`."""
        if key not in self._names:
            unique = self._unique(re.sub(r"[^a-zA-Z0-9.\-_]", "_", name))
            self._names[key] = unique
            self.schemas[unique] = {}
            try:
                self.schemas[unique] = build()
            except (Unresolved, Omitted):
                del self._names[key], self.schemas[unique]
                raise
        return Shape(kind, {"$ref": _PREFIX + self._names[key]})

    def name(self, key: Hashable) -> str:
        """The name under which `key` is defined, while it is being built or after."""
        return self._names[key]

    def attach(self, schema: JsonSchema) -> JsonSchema:
        """The schema with the definitions that it reaches."""
        return _attached(schema, self._reached(schema)) if self.schemas else schema

    def as_root(self, schema: JsonSchema) -> JsonSchema:
        """The schema with its definitions; if it is one reference, the definition itself."""
        reached = self._reached(schema)
        if len(schema) == 1 and "$ref" in schema:
            name = target(schema)
            if name not in references(list(reached.values())):
                return _attached(dict(reached.pop(name)), reached)
        return _attached(schema, reached)

    def _reached(self, schema: JsonSchema) -> dict[str, JsonSchema]:
        reached: dict[str, JsonSchema] = {}
        pending = list(references(schema))
        while pending:
            name = pending.pop()
            if name not in reached:
                reached[name] = self.schemas[name]
                pending += references(reached[name])
        for name in [n for n in reached if n in self.aliases and set(reached[n]) == {"$ref"}]:
            # An alias that is the only one to refer to a class is that class.
            aliased = target(reached[name])
            everywhere = [*references(schema), *references(list(reached.values()))]
            recursive = name == aliased or name in references(reached[aliased])
            if everywhere.count(aliased) == 1 and not recursive and aliased != "JsonValue":
                reached[name] = reached.pop(aliased)
        return reached

    def _unique(self, name: str) -> str:
        candidate, number = name, 2
        while candidate in self.schemas:
            candidate, number = f"{name}_{number}", number + 1
        return candidate


def _attached(schema: JsonSchema, reached: dict[str, JsonSchema]) -> JsonSchema:
    if reached:
        schema["$defs"] = {name: reached[name] for name in sorted(reached)}
    return schema


def target(schema: JsonSchema) -> str:
    """The name of the definition that a schema refers to."""
    return str(schema.get("$ref", "")).removeprefix(_PREFIX)


def references(schema: Any) -> Iterator[str]:
    """The names of the definitions that a schema refers to, over and over if it does."""
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(_PREFIX)
        for value in schema.values():
            if value.__class__ in (dict, list):
                yield from references(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from references(item)
