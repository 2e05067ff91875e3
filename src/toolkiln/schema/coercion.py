"""JSON text inside strings, parsed where the schema has no use for a string.

Models write `"[1, 2]"` for an array and `"5"` for a number. Such text is parsed only
where no string at all would be accepted, and every such place is noted. Nothing else is
coerced: numbers do not become strings, and what is valid is left alone.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from toolkiln.schema.document import Document
from toolkiln.schema.problems import place
from toolkiln.schema.structure import deeper_than, json_types

_EVERY_TYPE = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_CHAIN = 60


def parsed(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, or nested too deeply to be looked at.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ValueError(str(error)) from None


class Coercion:
    """The coercion of arguments to one document; branches of unions are tried in order."""

    def __init__(self, document: Document, depth: int) -> None:
        self._document = document
        self._depth = depth
        self._validators: dict[int, Any] = {}

    def apply(self, arguments: Any) -> tuple[Any, list[str]]:
        """The arguments with JSON text parsed, and a note for each place."""
        notes: list[str] = []
        return self._coerced(self._document.root, arguments, [], notes), notes

    def _coerced(self, node: Any, value: Any, path: list[str | int], notes: list[str]) -> Any:
        if not isinstance(node, dict):
            return value
        if isinstance(value, str):
            value = self._unwrapped(node, value, path, notes)
            if isinstance(value, str):
                return value
        if not isinstance(value, dict | list):
            return value
        for part in self._parts(node):
            value = self._inside(part, value, path, notes)
        for keyword in ("anyOf", "oneOf"):
            for part in self._parts(node):
                if keyword in part:
                    value = self._branch(part[keyword], value, path, notes)
        return value

    def _unwrapped(
        self, node: dict[str, Any], text: str, path: list[str | int], notes: list[str]
    ) -> Any:
        types = self._types(node)
        if "string" in types:
            return text
        try:
            value = parsed(text)
        except ValueError:
            return text
        if not types & json_types(value) or deeper_than(value, self._depth - len(path)):
            return text
        notes.append(f"{place(path)}: JSON text in a string was parsed")
        return value

    def _inside(
        self, part: dict[str, Any], value: Any, path: list[str | int], notes: list[str]
    ) -> Any:
        if isinstance(value, dict):
            properties = part.get("properties", {})
            others = part.get("additionalProperties")
            if not properties and not isinstance(others, dict):
                return value
            patterned = bool(part.get("patternProperties"))
            return {
                key: self._coerced(
                    properties.get(key, None if patterned else others), item, [*path, key], notes
                )
                for key, item in value.items()
            }
        prefix = part.get("prefixItems", [])
        items = part.get("items")
        if not prefix and not isinstance(items, dict):
            return value
        return [
            self._coerced(
                prefix[index] if index < len(prefix) else items, item, [*path, index], notes
            )
            for index, item in enumerate(value)
        ]

    def _branch(
        self, branches: list[Any], value: Any, path: list[str | int], notes: list[str]
    ) -> Any:
        """The first branch that accepts the value, as it is or coerced."""
        if any(self._accepts(branch, value) for branch in branches):
            return value
        for branch in branches:
            own: list[str] = []
            candidate = self._coerced(branch, value, path, own)
            if own and self._accepts(branch, candidate):
                notes.extend(own)
                return candidate
        return value

    def _accepts(self, branch: Any, value: Any) -> bool:
        if id(branch) not in self._validators:
            self._validators[id(branch)] = self._document.validator(branch)
        return bool(self._validators[id(branch)].is_valid(value))

    def _parts(self, node: dict[str, Any], chain: int = _CHAIN) -> Iterator[dict[str, Any]]:
        """The subschemas that all apply to the same value."""
        yield node
        inner = [*node.get("allOf", ())]
        if "$ref" in node:
            inner.append(self._document.target(node["$ref"]))
        for child in inner:
            if isinstance(child, dict) and chain:
                yield from self._parts(child, chain - 1)

    def _types(self, node: Any, chain: int = _CHAIN) -> frozenset[str]:
        """The JSON types that a subschema may accept; too many rather than too few."""
        if node is False:
            return frozenset()
        if not isinstance(node, dict) or not chain:
            return _EVERY_TYPE
        types = _EVERY_TYPE
        if "type" in node:
            declared = node["type"]
            types = frozenset((declared,) if isinstance(declared, str) else declared)
            types |= {"integer"} if "number" in types else frozenset()
        if "const" in node:
            types &= json_types(node["const"])
        if "enum" in node:
            types &= frozenset().union(*(json_types(value) for value in node["enum"]))
        if "$ref" in node:
            types &= self._types(self._document.target(node["$ref"]), chain - 1)
        for child in node.get("allOf", ()):
            types &= self._types(child, chain - 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                inner = (self._types(child, chain - 1) for child in node[keyword])
                types &= frozenset().union(*inner)
        return types
