"""The definitions of one schema: built once each, also when they are recursive."""

import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from toolkiln.model import JsonSchema
from toolkiln.spec.annotations.shapes import Omitted, Shape, Unresolved

_PREFIX = "#/$defs/"


class Definitions:
    """What a schema's `$defs` will hold, by name."""

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
        if not self.schemas:
            return schema
        self._unfold_aliases(schema)
        reached: dict[str, JsonSchema] = {}
        pending = list(references(schema))
        while pending:
            name = pending.pop()
            if name not in reached and name in self.schemas:
                reached[name] = self.schemas[name]
                pending += references(self.schemas[name])
        if reached:
            schema["$defs"] = {name: reached[name] for name in sorted(reached)}
        return schema

    def as_root(self, schema: JsonSchema) -> JsonSchema:
        """The schema with its definitions; if it is one reference, the definition itself."""
        self._unfold_aliases(schema)
        if len(schema) == 1 and "$ref" in schema:
            root = dict(self.schemas[target(schema)])
            if target(schema) not in references(self.attach(root)):
                return root
        return self.attach(schema)

    def _unfold_aliases(self, schema: JsonSchema) -> None:
        """An alias that is the only one to refer to a class is that class."""
        for name in [n for n in self.aliases if set(self.schemas.get(n, ())) == {"$ref"}]:
            aliased = target(self.schemas[name])
            everywhere = [*references(schema), *references(list(self.schemas.values()))]
            if everywhere.count(aliased) == 1 and aliased not in (name, "JsonValue"):
                self.schemas[name] = self.schemas.pop(aliased)

    def _unique(self, name: str) -> str:
        candidate, number = name, 2
        while candidate in self.schemas:
            candidate, number = f"{name}_{number}", number + 1
        return candidate


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
