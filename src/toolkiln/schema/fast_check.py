"""Fast path of argument checks: a pydantic-core validator that copies small arguments.

The copy consists of plain JSON types and is within the size limits. The fast check is
narrower than the schema on purpose; `arguments` decides about everything it rejects. If it is
exact, everything it accepts is valid; otherwise the copy has to be validated as well.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import TypeAdapter

from toolkiln.schema.document import ANNOTATIONS, JsonLimits, SchemaDocument

_MAX_ITEMS = 32
_MIN_BYTES = 128
"""A value with a smaller byte budget is rejected."""
_BYTES_PER_CHARACTER = 6
"""Maximum bytes of one character in JSON: `\\u0000`."""
_MAX_EXACT_INTEGER = 2**53
"""Largest bound with the same meaning for integers and floats."""
_BOUNDS = {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt"}
# Atoms with at most one quantifier: these mean the same in every regular expression engine.
_PORTABLE_PATTERN = re.compile(
    r"\^?((\[((\w-\w)|\w|\\d)+[_-]?\]|\w|-|\\d)(\{\d{1,2}(,\d{0,2})?\}|[+*?])?)*\$?", re.ASCII
)
_DATE = (
    r"([0-9]{3}[1-9]|[1-9][0-9]{3})-"
    r"((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
)
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{3}|\.[0-9]{6})?)?"
_ZONE = r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?"
_OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
FORMAT_PATTERNS = {
    "date": f"^{_DATE}$",
    "date-time": f"^{_DATE}[T ]{_TIME}{_ZONE}$",
    "time": f"^{_TIME}{_ZONE}$",
    "uuid": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    "email": r"^[A-Za-z0-9._%+-]{1,64}@([A-Za-z0-9-]{1,63}\.){1,3}[A-Za-z0-9-]{2,24}$",
    "uri": "^[A-Za-z][A-Za-z0-9+.-]*:[!-~]+$",
    "ipv4": rf"^({_OCTET}\.){{3}}{_OCTET}$",
}
"""The usual spelling of each format: narrower than `validator_options.FORMATS`, never wider."""

_NULL = {"type": "none"}
_BOOLEAN = {"type": "bool", "strict": True}
_REJECT = {"type": "str", "strict": True, "min_length": 1, "max_length": 0}
_ANY_SCALAR = ["string", "number", "boolean", "null"]


class _CoreSchema:
    """A pydantic-core schema used as a type."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> Any:
        return self._schema


class FastCheck:
    """The fast check for the arguments of one schema."""

    def __init__(self, document: SchemaDocument, sizes: JsonLimits) -> None:
        self.is_exact = True
        self.copy: Callable[[object], dict[str, Any]] = _reject
        """Copy arguments; raises ValueError for those it rejects."""
        self._document = document
        budget = min(sizes.total_bytes, sizes.string_length)
        # Each level at least halves the budget and each member uses some: that limits both.
        bounded = (
            budget.bit_length() <= sizes.depth
            and max(_MAX_ITEMS, budget // _MIN_BYTES) <= sizes.items
        )
        if bounded and document.root.get("properties"):
            self._allow(document.root, "type", "properties", "required", "additionalProperties")
            schema = self._object(document.root, budget)
            self.copy = TypeAdapter(Annotated[Any, _CoreSchema(schema)]).validator.validate_python

    def _allow(self, node: dict[str, Any], *keywords: str) -> None:
        """Mark the check as inexact if the node has keywords other than these."""
        if not node.keys() <= {*ANNOTATIONS, *keywords}:
            self.is_exact = False

    def _schema_for(self, node: Any, budget: int) -> Any:
        """Build a schema for values of at most `budget` bytes as JSON."""
        if budget < _MIN_BYTES or node is False:
            return _REJECT
        if not isinstance(node, dict):
            node = {}
        if "$ref" in node:
            self._allow(node, "$ref")
            return self._schema_for(self._document.target(node["$ref"]), budget)
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in node:
                self._allow(node, "anyOf")
                each = budget // len(node[keyword])
                return _union([self._schema_for(branch, each) for branch in node[keyword]])
        kind = node.get("type", _ANY_SCALAR)
        if isinstance(kind, str):
            return self._typed(kind, node, budget)
        self._allow(node, "type")
        return _union([self._typed(each, node, budget) for each in kind])

    def _typed(self, kind: str, node: dict[str, Any], budget: int) -> Any:
        match kind:
            case "string":
                return self._string(node, budget)
            case "array":
                self._allow(node, "type", "items", "minItems", "maxItems")
                inner = self._schema_for(node.get("items"), budget // _MAX_ITEMS - 1)
                length = {
                    "min_length": self._whole(node, "minItems", 0),
                    "max_length": min(self._whole(node, "maxItems", _MAX_ITEMS), _MAX_ITEMS - 1),
                }
                return {"type": "list", "strict": True, "items_schema": inner, **length}
            case "object" if node.get("properties"):
                self._allow(node, "type", "properties", "required", "additionalProperties")
                return self._object(node, budget)
            case "object":
                self._allow(node, "type", "additionalProperties")
                each = budget // _MAX_ITEMS // 2
                inner = self._schema_for(node.get("additionalProperties"), each - 2)
                both = {"keys_schema": _text(each), "values_schema": inner}
                return {"type": "dict", "strict": True, "max_length": _MAX_ITEMS - 1, **both}
            case "integer" | "number":
                self._allow(node, "type", *_BOUNDS)
                return self._number(node, kind)
        self._allow(node, "type")
        return _NULL if kind == "null" else _BOOLEAN

    def _object(self, node: dict[str, Any], budget: int) -> Any:
        each = budget // (len(node["properties"]) + 1)
        required = set(node.get("required", ()))
        fields = {}
        for name, inner in node["properties"].items():
            left = each - _BYTES_PER_CHARACTER * len(name) - 4
            if left >= _MIN_BYTES:
                schema = self._schema_for(inner, left)
                needed = {"required": name in required}
                fields[name] = {"type": "typed-dict-field", "schema": schema, **needed}
        if not required <= fields.keys():
            self.is_exact = False
        return {"type": "typed-dict", "strict": True, "fields": fields, "extra_behavior": "forbid"}

    def _string(self, node: dict[str, Any], budget: int) -> Any:
        text = _text(budget)
        if "enum" in node:
            self._allow(node, "type", "enum")
            values = [value for value in node["enum"] if isinstance(value, str)]
            literal = {"type": "literal", "expected": values}
            return {"type": "chain", "steps": [text, literal]} if values else _REJECT
        self._allow(node, "type", "minLength", "maxLength", "pattern", "format")
        text["min_length"] = self._whole(node, "minLength", 0)
        text["max_length"] = min(
            text["max_length"], self._whole(node, "maxLength", text["max_length"])
        )
        if "pattern" not in node and node.get("format") in FORMAT_PATTERNS:
            text["pattern"] = FORMAT_PATTERNS[node["format"]]
        elif "format" in node:
            self.is_exact = False
        elif "pattern" in node:
            if len(node["pattern"]) <= 100 and _PORTABLE_PATTERN.fullmatch(node["pattern"]):
                text["pattern"] = node["pattern"].replace(r"\d", "[0-9]")
            else:
                self.is_exact = False
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
        # Check the class first: strict floats accept any `__float__`, such as Decimal's.
        real = {"type": "chain", "steps": [{"type": "is-instance", "cls": float}, real]}
        # As a float only, an integer would be converted.
        return {"type": "union", "choices": [real, integer], "mode": "left_to_right"}

    def _whole(self, node: dict[str, Any], keyword: str, otherwise: int) -> int:
        value = node.get(keyword, otherwise)
        if type(value) is int and -_MAX_EXACT_INTEGER <= value <= _MAX_EXACT_INTEGER:
            return value
        self.is_exact = False
        return otherwise


def _reject(_: object) -> dict[str, Any]:
    raise ValueError


def _text(budget: int) -> dict[str, Any]:
    # Without a maximum length, pydantic-core would accept lone surrogates.
    return {"type": "str", "strict": True, "max_length": (budget - 2) // _BYTES_PER_CHARACTER}


def _union(choices: list[Any]) -> Any:
    others = [choice for choice in choices if choice is not _NULL]
    if not others:
        return _NULL
    schema = others[0]
    if len(others) > 1:
        schema = {"type": "union", "choices": others, "mode": "left_to_right"}
    return schema if len(others) == len(choices) else {"type": "nullable", "schema": schema}
