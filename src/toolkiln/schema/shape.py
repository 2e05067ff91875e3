"""The expected look of small arguments, as a pydantic-core validator that copies them.

What such a copy holds is what was sent, made of the JSON types and nothing derived, and
within the sizes. A shape is narrower than its schema on purpose: what it refuses is for
`arguments` to judge. It is `exact` if all that it lets through is valid; if not, it is a
guess, and the real validator has to look at the copy.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import TypeAdapter

from toolkiln.schema.document import ANNOTATIONS, Document
from toolkiln.schema.structure import Sizes

_FEW = 32
_LEAST = 128
"""Bytes; a place with less room than this takes nothing."""
_WORST_CHARACTER = 6
"""Bytes of a control character in JSON: `\\u0000`."""
_LARGEST = 2**53
"""Bounds up to here mean the same for integers and floats."""
_BOUNDS = {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt"}
# Atoms with at most one quantifier; every dialect of regular expressions agrees on these.
_PLAIN_PATTERN = re.compile(
    r"\^?((\[((\w-\w)|\w|\\d)+[_-]?\]|\w|-|\\d)(\{\d{1,2}(,\d{0,2})?\}|[+*?])?)*\$?", re.ASCII
)

_NULL = {"type": "none"}
_BOOLEAN = {"type": "bool", "strict": True}
_NOTHING = {"type": "str", "strict": True, "min_length": 1, "max_length": 0}
_ANY_SCALAR = ["string", "number", "boolean", "null"]


class _Core:
    """A pydantic-core schema, in the place of a type."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> Any:
        return self._schema


class Shape:
    """How the arguments of one document are expected to look."""

    def __init__(self, document: Document, sizes: Sizes) -> None:
        self.exact = True
        self.copy: Callable[[object], dict[str, Any]] = _refuse
        """A copy of arguments that are of this shape; ValueError for others."""
        self._document = document
        room = min(sizes.total_bytes, sizes.string_length)
        # Each level halves the room at least, and each member takes some: that bounds both.
        bounded = room.bit_length() <= sizes.depth and max(_FEW, room // _LEAST) <= sizes.items
        if bounded and document.root.get("properties"):
            self._only(document.root, "type", "properties", "required", "additionalProperties")
            schema = self._object(document.root, room)
            self.copy = TypeAdapter(Annotated[Any, _Core(schema)]).validator.validate_python

    def _only(self, node: dict[str, Any], *keywords: str) -> None:
        """Other keywords than these make the shape a guess."""
        if not node.keys() <= {*ANNOTATIONS, *keywords}:
            self.exact = False

    def _of(self, node: Any, room: int) -> Any:
        """A schema whose values take `room` bytes at most, as JSON."""
        if room < _LEAST or node is False:
            return _NOTHING
        if not isinstance(node, dict):
            node = {}
        if "$ref" in node:
            self._only(node, "$ref")
            return self._of(self._document.target(node["$ref"]), room)
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in node:
                self._only(node, "anyOf")
                each = room // len(node[keyword])
                return _union([self._of(branch, each) for branch in node[keyword]])
        kind = node.get("type", _ANY_SCALAR)
        if isinstance(kind, str):
            return self._typed(kind, node, room)
        self._only(node, "type")
        return _union([self._typed(each, node, room) for each in kind])

    def _typed(self, kind: str, node: dict[str, Any], room: int) -> Any:
        match kind:
            case "string":
                return self._string(node, room)
            case "array":
                self._only(node, "type", "items", "minItems", "maxItems")
                inner = self._of(node.get("items"), room // _FEW - 1)
                few = {
                    "min_length": self._whole(node, "minItems", 0),
                    "max_length": min(self._whole(node, "maxItems", _FEW), _FEW - 1),
                }
                return {"type": "list", "strict": True, "items_schema": inner, **few}
            case "object" if node.get("properties"):
                self._only(node, "type", "properties", "required", "additionalProperties")
                return self._object(node, room)
            case "object":
                self._only(node, "type", "additionalProperties")
                each = room // _FEW // 2
                inner = self._of(node.get("additionalProperties"), each - 2)
                both = {"keys_schema": _text(each), "values_schema": inner}
                return {"type": "dict", "strict": True, "max_length": _FEW - 1, **both}
            case "integer" | "number":
                self._only(node, "type", *_BOUNDS)
                return self._number(node, kind)
        self._only(node, "type")
        return _NULL if kind == "null" else _BOOLEAN

    def _object(self, node: dict[str, Any], room: int) -> Any:
        each = room // (len(node["properties"]) + 1)
        required = set(node.get("required", ()))
        fields = {}
        for name, inner in node["properties"].items():
            left = each - _WORST_CHARACTER * len(name) - 4
            if left >= _LEAST:
                schema = self._of(inner, left)
                needed = {"required": name in required}
                fields[name] = {"type": "typed-dict-field", "schema": schema, **needed}
        if not required <= fields.keys():
            self.exact = False
        return {"type": "typed-dict", "strict": True, "fields": fields, "extra_behavior": "forbid"}

    def _string(self, node: dict[str, Any], room: int) -> Any:
        text = _text(room)
        if "enum" in node:
            self._only(node, "type", "enum")
            values = [value for value in node["enum"] if isinstance(value, str)]
            literal = {"type": "literal", "expected": values}
            return {"type": "chain", "steps": [text, literal]} if values else _NOTHING
        self._only(node, "type", "minLength", "maxLength", "pattern")
        text["min_length"] = self._whole(node, "minLength", 0)
        text["max_length"] = min(
            text["max_length"], self._whole(node, "maxLength", text["max_length"])
        )
        if "pattern" in node:
            if len(node["pattern"]) <= 100 and _PLAIN_PATTERN.fullmatch(node["pattern"]):
                text["pattern"] = node["pattern"].replace(r"\d", "[0-9]")
            else:
                self.exact = False
        return text

    def _number(self, node: dict[str, Any], kind: str) -> Any:
        bounds = {
            name: self._whole(node, keyword, 0)
            for keyword, name in _BOUNDS.items()
            if keyword in node
        }
        ends = {"ge": -(2**63), "le": 2**63}
        integer = {"type": "int", "strict": True, **ends, **bounds}
        if kind == "integer":
            return integer
        real = {"type": "float", "strict": True, "allow_inf_nan": False, **bounds}
        # To be a strict float, `__float__` is enough: Decimals have it. So the class comes first.
        real = {"type": "chain", "steps": [{"type": "is-instance", "cls": float}, real]}
        # As a float alone, an integer would become one.
        return {"type": "union", "choices": [real, integer], "mode": "left_to_right"}

    def _whole(self, node: dict[str, Any], keyword: str, otherwise: int) -> int:
        value = node.get(keyword, otherwise)
        if type(value) is int and -_LARGEST <= value <= _LARGEST:
            return value
        self.exact = False
        return otherwise


def _refuse(_: object) -> dict[str, Any]:
    raise ValueError


def _text(room: int) -> dict[str, Any]:
    # Without a bound, lone surrogates would pass.
    return {"type": "str", "strict": True, "max_length": (room - 2) // _WORST_CHARACTER}


def _union(choices: list[Any]) -> Any:
    some = [choice for choice in choices if choice is not _NULL]
    if not some:
        return _NULL
    one = some[0]
    if len(some) > 1:
        one = {"type": "union", "choices": some, "mode": "left_to_right"}
    return one if len(some) == len(choices) else {"type": "nullable", "schema": one}
