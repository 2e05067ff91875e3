"""JSON Schema documents: subschemas, JSON pointers, local references, and limits of JSON values.

Checking a schema is up to `validity`, rewriting it up to `providers`. References are local
pointers; nothing is ever fetched.
"""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

from jsonschema_rs import Draft202012Validator, Registry

from toolkiln.model.base import JsonSchema
from toolkiln.schema.validator_options import (
    FORMATS,
    LINEAR,
    MAX_BACKTRACKED_LENGTH,
    PatternOptions,
    backtracks,
    options_for,
)

IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
IN_PLACE_SINGLES = ("not", "if", "then", "else")
_SINGLES = (
    *IN_PLACE_SINGLES,
    *("items", "contains", "additionalProperties", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
)
_LISTS = (*IN_PLACE_LISTS, "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_URN = "urn:toolkiln:parameters"
_IN_PLACE = frozenset((*IN_PLACE_LISTS, *IN_PLACE_SINGLES, "dependentSchemas"))
_OF_PROPERTIES = frozenset(("additionalProperties", "patternProperties", "unevaluatedProperties"))
_OF_ITEMS = frozenset(("items", "contains", "unevaluatedItems"))

ANNOTATIONS = frozenset(
    (
        *("title", "description", "default", "examples", "example", "deprecated"),
        *("readOnly", "writeOnly", "discriminator", "$defs", "definitions"),
        *("contentEncoding", "contentMediaType", "contentSchema"),
        *("$comment", "$schema", "$id", "$anchor", "$vocabulary"),
    )
)
"""Keywords that describe without constraining; unknown keywords are treated the same way."""

ASSERTIONS = frozenset(
    (
        *_SINGLES,
        *_LISTS,
        *("$ref", "$dynamicRef", "type", "enum", "const", "format", "pattern"),
        *("properties", "patternProperties", "dependentSchemas", "dependentRequired", "required"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems"),
        *("minProperties", "maxProperties", "minContains", "maxContains"),
    )
) - {"contentSchema"}
"""Keywords that can reject a value."""


def join(path: str, *tokens: str | int) -> str:
    """Append tokens to a JSON pointer."""
    for token in tokens:
        path += "/" + str(token).replace("~", "~0").replace("/", "~1")
    return path


def resolve(root: object, ref: str) -> Any:
    """Resolve a local reference.

    Raises:
        LookupError: it has no target in this document.
    """
    if ref != "#" and not ref.startswith("#/"):
        raise LookupError(ref)
    found: Any = root
    for token in unquote(ref).split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found[key]
        elif isinstance(found, list) and key.isascii() and key.isdigit():
            found = found[int(key)]
        else:
            raise LookupError(ref)
    return found


def children(node: JsonSchema) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the direct subschemas of `node`, each with its pointer tokens."""
    for keyword in _SINGLES:
        if keyword in node:
            yield (keyword,), node[keyword]
    for keyword in _LISTS:
        if isinstance(node.get(keyword), list):
            for index, child in enumerate(node[keyword]):
                yield (keyword, index), child
    for keyword in _MAPS:
        if isinstance(node.get(keyword), dict):
            for name, child in node[keyword].items():
                yield (keyword, name), child


def map_children(node: JsonSchema, function: Callable[[str, Any], Any]) -> JsonSchema:
    """Copy `node`, replacing each direct subschema by `function(keyword, subschema)`."""
    copy = dict(node)
    for tokens, child in children(node):
        keyword = str(tokens[0])
        mapped = function(keyword, child)
        if len(tokens) == 1:
            copy[keyword] = mapped
        else:
            if copy[keyword] is node[keyword]:
                copy[keyword] = node[keyword].copy()
            copy[keyword][tokens[1]] = mapped
    return copy


def walk(root: JsonSchema) -> Iterator[tuple[str, JsonSchema]]:
    """Yield every object subschema of a valid document with its pointer, starting at the root."""
    pending: list[tuple[str, Any]] = [("", root)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, dict):
            yield path, node
            found = [(join(path, *tokens), child) for tokens, child in children(node)]
            pending.extend(reversed(found))


def format_options(schema: JsonSchema) -> dict[str, Any]:
    """Return validator options for the formats a schema uses; each format costs time."""
    used = {node["format"] for _, node in walk(schema) if "format" in node}
    formats = {name: accepts for name, accepts in FORMATS.items() if name in used}
    return {"validate_formats": True, "formats": formats} if used else {}


def limit_backtracking(schema: JsonSchema) -> JsonSchema:
    """Add a maximum length to strings and keys that a backtracking engine matches."""
    if options_for(schema) is LINEAR:
        return schema
    copy: JsonSchema = deepcopy(schema)
    for _, node in list(walk(copy)):
        if backtracks(node.get("pattern")):
            longest = node.get("maxLength", MAX_BACKTRACKED_LENGTH)
            node["maxLength"] = min(longest, MAX_BACKTRACKED_LENGTH)
        if any(map(backtracks, node.get("patternProperties", ()))):
            short = {"propertyNames": {"maxLength": MAX_BACKTRACKED_LENGTH}}
            node["allOf"] = [*node.get("allOf", ()), short]
    return copy


def member_schema(node: JsonSchema, key: str | int) -> Any:
    """Return the subschema for one member of an object or array."""
    if isinstance(key, str):
        others = None if node.get("patternProperties") else node.get("additionalProperties")
        return node.get("properties", {}).get(key, others)
    prefix = node.get("prefixItems", ())
    return prefix[key] if key < len(prefix) else node.get("items")


def _member(value: object, key: str | int) -> list[Any]:
    if isinstance(value, dict):
        return [value[key]] if key in value else []
    return value[key : key + 1] if isinstance(value, list) and isinstance(key, int) else []


def assertions(node: JsonSchema) -> JsonSchema:
    """Return the keywords of `node` that can reject a value."""
    return {key: value for key, value in node.items() if key in ASSERTIONS}


def is_free_form(node: object) -> bool:
    """Return whether a subschema accepts every value."""
    return node is True or (isinstance(node, dict) and not assertions(node))


def without_definitions(node: Any) -> Any:
    """Return a subschema without its `$defs`."""
    if not isinstance(node, dict):
        return node
    return {key: value for key, value in node.items() if key not in ("$defs", "definitions")}


def implied_type(node: JsonSchema) -> str | None:
    """Infer the type of a schema that declares none from its keywords."""
    if "properties" in node:
        return "object"
    return "array" if "prefixItems" in node or isinstance(node.get("items"), dict) else None


class SchemaDocument:
    """A valid schema with reference look-up and validators for its parts."""

    def __init__(self, root: JsonSchema) -> None:
        self.root = root
        self._registry: Registry | None = None
        self._options: PatternOptions = LINEAR
        self._formats: dict[str, Any] = {}
        self._validators: dict[int, tuple[Draft202012Validator, object]] = {}

    def target(self, ref: str) -> Any:
        """Resolve a reference; raises LookupError."""
        return resolve(self.root, ref)

    def parts(self, node: JsonSchema) -> list[JsonSchema]:
        """Return the subschemas that apply to the same value through references and `allOf`."""
        found: dict[int, JsonSchema] = {}
        pending: list[Any] = [node]
        while pending:
            part = pending.pop()
            if isinstance(part, dict) and id(part) not in found:
                found[id(part)] = part
                if "$ref" in part:
                    pending.append(self.target(part["$ref"]))
                pending += reversed(part.get("allOf", ()))
        return list(found.values())

    def steps(self, node: object, value: object, limit: int) -> int:
        """Count the subschemas that a validation visits if it collects all errors.

        The count can be exponential in the depth of the value, because it grows with each
        alternative at each level. Counting stops shortly after the limit.
        """
        count = 0
        pending = [(node, value)]
        while pending and count <= limit:
            schema, item = pending.pop()
            count += 1
            if isinstance(schema, dict) and "$ref" in schema:
                pending.append((self.target(schema["$ref"]), item))
            for (keyword, *name), child in children(schema) if isinstance(schema, dict) else ():
                count += 1
                if not isinstance(child, dict):
                    continue
                if keyword in _IN_PLACE:
                    pending.append((child, item))
                elif keyword in ("properties", "prefixItems"):
                    pending += [(child, member) for member in _member(item, name[0])]
                elif keyword == "propertyNames" and isinstance(item, dict):
                    pending += [(child, key) for key in islice(item, limit)]
                elif keyword in _OF_PROPERTIES and isinstance(item, dict):
                    pending += [(child, member) for member in islice(item.values(), limit)]
                elif keyword in _OF_ITEMS and isinstance(item, list):
                    pending += [(child, member) for member in item[:limit]]
        return count + len(pending)

    def accepts(self, node: object, value: object) -> bool:
        """Return whether a value is valid for a part of the document."""
        return bool(self.cached_validator(node).is_valid(value))

    def cached_validator(self, node: object) -> Draft202012Validator:
        """Return the validator for a part of the document, compiled once."""
        cached = self._validators.get(id(node))
        if cached is None:
            # Caching the node keeps its id from being reused.
            cached = self._validators[id(node)] = (self.validator(node), node)
        return cached[0]

    def validator(self, node: object) -> Draft202012Validator:
        """Compile a validator for a part of the document or a schema built from its parts."""
        if self._registry is None:
            self._registry = Registry([(_URN, _detached(limit_backtracking(self.root)))])
            self._options = options_for(self.root)
            self._formats = format_options(self.root)
        schema = _detached(limit_backtracking(node) if isinstance(node, dict) else node)
        return Draft202012Validator(
            schema,
            registry=self._registry,
            pattern_options=self._options,
            offline=True,
            **self._formats,
        )


def _detached(node: Any) -> Any:
    """Copy a subschema with absolute references, valid outside the document."""
    if not isinstance(node, dict):
        return node
    copy = {key: value for key, value in node.items() if key not in ("$id", "$schema")}
    if isinstance(copy.get("$ref"), str) and copy["$ref"].startswith("#"):
        copy["$ref"] = _URN + copy["$ref"]
    return map_children(copy, lambda _, child: _detached(child))


def secret_fields(schema: JsonSchema) -> frozenset[str]:
    """Return the names of top-level properties that are or contain secrets."""
    properties = schema.get("properties", {})
    definitions = schema.get("$defs", {})
    return frozenset(name for name, part in properties.items() if _is_secret(part, definitions))


def _is_secret(schema: Any, definitions: JsonSchema) -> bool:
    pending, seen = [schema], set[str]()
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, dict):
            if part.get("format") == "password" or part.get("writeOnly") or part.get("secret"):
                return True
            form = part.get("input")  # of Open WebUI
            if isinstance(form, dict) and form.get("type") == "password":
                return True
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name and name not in seen:
                seen.add(name)
                pending.append(definitions.get(name))
            for key in ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"):
                pending.append(part.get(key))
            for key in ("properties", "patternProperties"):
                if isinstance(part.get(key), dict):
                    pending += part[key].values()
    return False


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """Size limits of a JSON value."""

    depth: int = 64
    """Maximum nesting of arrays and objects."""
    string_length: int = 1_000_000
    items: int = 100_000
    """Maximum members of one array or object."""
    total_bytes: int = 4_000_000


class Flaw(NamedTuple):
    """One path at which a value is not JSON or exceeds a limit."""

    path: str
    reason: str


def flaws(value: object, sizes: JsonLimits, limit: int = 20) -> list[Flaw]:
    """Return the first reasons why `value` is not JSON within `sizes`."""
    found: list[Flaw] = []
    spent = 0
    pending: list[tuple[str, Any, int, tuple[int, ...]]] = [("", value, 1, ())]
    while pending and len(found) < limit:
        path, item, depth, ancestors = pending.pop()
        spent += 1
        if isinstance(item, str):
            spent += len(item)
        if spent > sizes.total_bytes:
            return [Flaw("", f"is larger than {sizes.total_bytes:,} bytes")]
        if not isinstance(item, dict | list | tuple):
            reason = _scalar_flaw(item, sizes)
            if reason:
                found.append(Flaw(path, reason))
        elif id(item) in ancestors:
            found.append(Flaw(path, "contains itself"))
        elif depth > sizes.depth:
            found.append(Flaw(path, f"is nested deeper than {sizes.depth} levels"))
        elif len(item) > sizes.items:
            found.append(Flaw(path, f"has more than {sizes.items:,} members"))
        else:
            inner = (*ancestors, id(item))
            if isinstance(item, dict):
                for key in item:
                    reason = _key_flaw(key, sizes)
                    if reason:
                        found.append(Flaw(path, reason))
                    else:
                        spent += len(key)
                        pending.append((join(path, key), item[key], depth + 1, inner))
            else:
                pending.extend((join(path, i), v, depth + 1, inner) for i, v in enumerate(item))
    return found[:limit]


def plain(value: Any) -> Any:
    """Copy a value without flaws, converting subclasses and tuples to plain JSON types."""
    if isinstance(value, dict):
        return {str.__str__(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind.__str__(value) if kind is str else kind(value)
    raise TypeError(type(value).__name__)


def deeper_than(value: object, depth: int) -> bool:
    """Return whether arrays and objects are nested more than `depth` levels."""
    level: list[Any] = [value]
    for _ in range(depth + 1):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        if not inner:
            return False
        # By identity: shared or circular parts are visited once per level.
        level = list({id(item): item for item in inner if isinstance(item, dict | list)}.values())
    return bool(level)


def json_types(value: Any) -> frozenset[str]:
    """Return the JSON types of a value; a whole number has two."""
    if value is None:
        return frozenset(("null",))
    if isinstance(value, bool):
        return frozenset(("boolean",))
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return frozenset(("integer", "number"))
    kinds: tuple[tuple[type, str], ...] = ((float, "number"), (str, "string"), (list, "array"))
    return frozenset((next((name for kind, name in kinds if isinstance(value, kind)), "object"),))


def _scalar_flaw(item: object, sizes: JsonLimits) -> str | None:
    if item is None or isinstance(item, bool):
        return None
    if isinstance(item, str):
        if len(item) > sizes.string_length:
            return f"is longer than {sizes.string_length:,} characters"
        return None if _is_unicode(item) else "contains a lone surrogate, which is not Unicode text"
    if isinstance(item, int):
        # Python refuses to print integers beyond this many digits.
        return None if item.bit_length() < 13_000 else "is an integer of thousands of digits"
    if isinstance(item, float):
        return None if math.isfinite(item) else f"{float(item)} is not a JSON number"
    return f"a Python {type(item).__name__} is not a JSON value"


def _key_flaw(key: object, sizes: JsonLimits) -> str | None:
    if not isinstance(key, str):
        return f"the key {_short(key)} is not a string"
    if len(key) > sizes.string_length:
        return f"has a key longer than {sizes.string_length:,} characters"
    return None if _is_unicode(key) else "has a key with a lone surrogate, which is not Unicode"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short(value: object) -> str:
    # Foreign objects may have a repr that raises or never ends.
    return (
        repr(value)[:40] if isinstance(value, int | float | bytes | None) else type(value).__name__
    )
