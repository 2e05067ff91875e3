"""One schema that accepts what two accept together: the way out of `allOf`.

Merges what can be merged exactly and refuses the rest; it never widens or narrows. An
object that does not speak of further properties is read as having none, as everywhere
in the strict forms.
"""

import math
from typing import Any

from toolkiln.model import JsonSchema
from toolkiln.schema.document import ANNOTATIONS, ASSERTIONS, Document, assertions
from toolkiln.schema.providers.codec import equal

_GREATEST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_LEAST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_ENTANGLED = (
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
    ("not",),
)
"""Keywords that mean something only together with their neighbours."""
_NAMING = {"properties", "patternProperties", "additionalProperties"}
_DEPTH = 40


class CannotMergeError(Exception):
    """Two schemas have no exact common form; `keyword` is where they part."""

    def __init__(self, keyword: str) -> None:
        super().__init__(keyword)
        self.keyword = keyword


class NothingFitsError(CannotMergeError):
    """No value can satisfy both schemas."""


def merge(left: Any, right: Any, document: Document, depth: int = _DEPTH) -> Any:
    """The schema for values that both accept; descriptions of `left` win.

    Raises:
        CannotMergeError: there is no exact one.
    """
    if left is True or right is True:
        return right if left is True else left
    if left is False or right is False:
        return False
    if depth == 0:
        raise CannotMergeError("allOf")
    left, right = flat(left, document, depth - 1), flat(right, document, depth - 1)
    if left is False or right is False:
        return False
    out = {**right, **left}
    if not assertions(left) or not assertions(right):
        return out
    for group in _ENTANGLED:
        here, there = ({k: side[k] for k in group if k in side} for side in (left, right))
        if here and there and not equal(here, there):
            raise CannotMergeError(next(iter(here)))
    for keyword in (left.keys() & right.keys()) - ANNOTATIONS:
        if keyword in ASSERTIONS and not equal(left[keyword], right[keyword]):
            out[keyword] = _both(keyword, left, right, document, depth)
    _close(out, left, right, document, depth)
    return out


def flat(node: Any, document: Document, depth: int = _DEPTH) -> Any:
    """`node` without a reference or `allOf` at its top.

    Raises:
        CannotMergeError: its parts have no exact common form.
    """
    if not isinstance(node, dict):
        return node
    if depth == 0:
        raise CannotMergeError("$ref")
    parts: list[Any] = []
    if "$ref" in node:
        parts.append(document.target(node["$ref"]))
    parts.extend(node.get("allOf", ()))
    out: Any = {key: value for key, value in node.items() if key not in ("$ref", "allOf")}
    if "unevaluatedProperties" in out and "additionalProperties" not in out:
        unevaluated = out.pop("unevaluatedProperties")
    else:
        unevaluated = None
    for part in parts:
        out = merge(out, flat(part, document, depth - 1), document, depth - 1)
    if unevaluated is not None and isinstance(out, dict):
        out = {"additionalProperties": unevaluated, **out}
    return out


def _both(keyword: str, left: JsonSchema, right: JsonSchema, document: Document, depth: int) -> Any:
    a, b = left[keyword], right[keyword]
    if keyword in _GREATEST:
        return max(a, b)
    if keyword in _LEAST:
        return min(a, b)
    if keyword == "type":
        return _common_types(a, b)
    if keyword == "required":
        return [*a, *(name for name in b if name not in a)]
    if keyword == "enum":
        common = [value for value in a if any(equal(value, other) for other in b)]
        if not common:
            raise NothingFitsError(keyword)
        return common
    if keyword == "const":
        raise NothingFitsError(keyword)
    if keyword == "uniqueItems":
        return True
    if keyword == "multipleOf" and isinstance(a, int) and isinstance(b, int):
        return math.lcm(a, b)
    if keyword in ("items", "additionalProperties", "propertyNames", "unevaluatedProperties"):
        return merge(a, b, document, depth - 1)
    if keyword == "properties":
        common_names = a.keys() & b.keys()
        both = {name: merge(a[name], b[name], document, depth - 1) for name in common_names}
        return {**a, **b, **both}
    raise CannotMergeError(keyword)


def _common_types(a: Any, b: Any) -> Any:
    first = [a] if isinstance(a, str) else list(a)
    second = [b] if isinstance(b, str) else list(b)
    common = [t for t in first if t in second or (t == "integer" and "number" in second)]
    if "integer" in second and "number" in first and "integer" not in common:
        common.append("integer")
    if not common:
        raise NothingFitsError("type")
    return common[0] if len(common) == 1 else common


def _close(
    out: JsonSchema, left: JsonSchema, right: JsonSchema, document: Document, depth: int
) -> None:
    """Apply what each side says of properties that only the other one declares."""
    for one, other in ((left, right), (right, left)):
        if "prefixItems" in one and ("items" in other or "prefixItems" in other):
            raise CannotMergeError("prefixItems")
        if "patternProperties" in one and assertions(other).keys() & _NAMING:
            raise CannotMergeError("patternProperties")
        rule = one.get("additionalProperties", True)
        for name in other.get("properties", {}).keys() - one.get("properties", {}).keys():
            merged = merge(rule, other["properties"][name], document, depth - 1)
            out["properties"] = {**out["properties"], name: merged}
