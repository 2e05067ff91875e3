"""JSON text inside strings, parsed where the schema has no use for a string.

Models write `"[1, 2]"` for an array and `"5"` for a number. Such text is parsed only
where no string at all would be accepted, and every such place is noted. Nothing else is
coerced: numbers do not become strings, and what is valid is left alone. Trying the branches of
unions inside one another takes time that is exponential in their depth; a limit ends that.
"""

from typing import Any

import msgspec

from toolkiln.schema.document import Document, member_schema
from toolkiln.schema.problems import place
from toolkiln.schema.structure import deeper_than, json_types

_EVERY_TYPE = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_MOST_WORK = 30_000
"""Values that are compared with branches of unions, those inside of others each time."""


def parsed(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, or nested too deeply to be looked at.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ValueError(str(error)) from None


class _TooMuchWork(Exception):
    """The branches of unions took more than the limit."""


def coerced(document: Document, arguments: Any, depth: int) -> tuple[Any, list[str]]:
    """The arguments with JSON text parsed, and a note for each place."""
    notes: list[str] = []
    try:
        return _Coercion(document, depth).coerced(document.root, arguments, [], notes), notes
    except _TooMuchWork:
        return arguments, []


class _Coercion:
    """One coercion of arguments; branches of unions are tried in order."""

    def __init__(self, document: Document, depth: int) -> None:
        self._document = document
        self._depth = depth
        self._left = _MOST_WORK
        self._known_types: dict[int, frozenset[str]] = {}

    def coerced(self, node: Any, value: Any, path: list[str | int], notes: list[str]) -> Any:
        if not isinstance(node, dict):
            return value
        if isinstance(value, str):
            value = self._unwrapped(node, value, path, notes)
            if isinstance(value, str):
                return value
        if not isinstance(value, dict | list):
            return value
        for part in self._document.parts(node):
            value = self._inside(part, value, path, notes)
        for keyword in ("anyOf", "oneOf"):
            for part in self._document.parts(node):
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
            return {
                key: self.coerced(member_schema(part, key), item, [*path, key], notes)
                for key, item in value.items()
            }
        return [
            self.coerced(member_schema(part, index), item, [*path, index], notes)
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
            candidate = self.coerced(branch, value, path, own)
            if own and self._accepts(branch, candidate):
                notes.extend(own)
                return candidate
        return value

    def _accepts(self, branch: Any, value: Any) -> bool:
        self._left -= _size(value, self._left)
        if self._left < 0:
            raise _TooMuchWork
        return self._document.accepts(branch, value)

    def _types(self, node: Any) -> frozenset[str]:
        """The JSON types that a subschema may accept; too many rather than too few."""
        if not isinstance(node, dict):
            return frozenset() if node is False else _EVERY_TYPE
        if id(node) in self._known_types:
            return self._known_types[id(node)]
        # Counts where a schema refers to itself.
        types = self._known_types[id(node)] = _EVERY_TYPE
        if "type" in node:
            declared = node["type"]
            types = frozenset((declared,) if isinstance(declared, str) else declared)
            types |= {"integer"} if "number" in types else frozenset()
        if "const" in node:
            types &= json_types(node["const"])
        if "enum" in node:
            types &= frozenset().union(*(json_types(value) for value in node["enum"]))
        if "$ref" in node:
            types &= self._types(self._document.target(node["$ref"]))
        for child in node.get("allOf", ()):
            types &= self._types(child)
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                types &= frozenset().union(*map(self._types, node[keyword]))
        self._known_types[id(node)] = types
        return types


def _size(value: Any, limit: int) -> int:
    """How many values there are in a value, itself included; a little over the limit at most."""
    count = 1
    pending = [value]
    while pending and count <= limit:
        item = pending.pop()
        if isinstance(item, dict | list):
            count += len(item)
            pending += item.values() if isinstance(item, dict) else item
    return count
