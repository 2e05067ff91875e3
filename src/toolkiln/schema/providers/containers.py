"""Objects, arrays and enums in the transform to a provider dialect.

Mappings become arrays of pairs and tuples become objects; optional properties become
nullable where a provider requires every property. See `transform` for the contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkiln.model.base import JsonSchema
from toolkiln.schema.document import is_free_form, join, json_types
from toolkiln.schema.providers.algebra import CannotMergeError, admits_null, merge
from toolkiln.schema.providers.codec import (
    SAME,
    Codec,
    ItemsCodec,
    Labels,
    Member,
    Members,
    PairsCodec,
    Positions,
    Same,
    Wrapped,
)
from toolkiln.schema.providers.profile import Profile, wire_names
from toolkiln.schema.providers.wire import Lowered, closed_object, display, nullable

if TYPE_CHECKING:
    from toolkiln.schema.providers.transform import Lowering

OBJECT_CODECS = (Same, Members)
_REST = "additional_properties"
_MORE = "more_items"
_VALUE = "value"


def declares_elsewhere(node: JsonSchema) -> bool:
    """Return whether conditional parts declare properties that the object itself does not."""
    conditional = [node.get(key) for key in ("if", "then", "else")]
    conditional += list(node.get("dependentSchemas", {}).values())
    own = node.get("properties", {})
    return any(
        isinstance(part, dict)
        and (part.get("properties", {}).keys() - own.keys() or "$ref" in part)
        for part in conditional
    )


def lower_object(lowering: Lowering, node: JsonSchema, path: str, notes: list[str]) -> Lowered:
    """Lower an object: declared properties, a mapping, or free-form."""
    properties = node.get("properties")
    patterns = node.get("patternProperties", {})
    others = node.get("additionalProperties")
    if properties or (properties is not None and others is None and not patterns):
        return _members(lowering, node, path, notes)
    if others is False and not patterns:
        return _members(lowering, node, path, notes)
    if len(patterns) == 1 and others in (None, False):
        ((pattern, value),) = patterns.items()
        key = merge({"type": "string", "pattern": pattern}, _names(node), lowering.document)
        return _pairs(lowering, node, key, value, join(path, "patternProperties", pattern), notes)
    if patterns:
        raise CannotMergeError("patternProperties")
    if others is None or is_free_form(others):
        reason = "accepts any properties"
        return lowering.as_text(node, path, "additionalProperties", reason, notes)
    key = merge({"type": "string"}, _names(node), lowering.document)
    return _pairs(lowering, node, key, others, join(path, "additionalProperties"), notes)


def _names(node: JsonSchema) -> Any:
    return node.get("propertyNames", True)


def _pairs(
    lowering: Lowering, node: JsonSchema, key: Any, value: Any, path: str, notes: list[str]
) -> Lowered:
    at = path.rsplit("/", 1)[0] if path.endswith("additionalProperties") else path
    key_wire: JsonSchema = {"type": "string"}
    lowered_key = lowering.lower(key, at) if isinstance(key, dict) else None
    if lowered_key and lowered_key.codec == SAME and lowered_key.wire.get("type") == "string":
        key_wire = lowered_key.wire
    elif "propertyNames" in node:
        notes = [*notes, lowering.lose(node, "propertyNames", at)]
    lowered = lowering.lower(value, path)
    wire: JsonSchema = {
        "type": "array",
        "items": closed_object({"key": key_wire, _VALUE: lowered.wire}),
    }
    notes = [*notes, "a mapping, as a list of keys with their values"]
    for keyword, source in (("minItems", "minProperties"), ("maxItems", "maxProperties")):
        if source in node and lowering.profile.keeps(keyword, node[source]):
            wire[keyword] = node[source]
        elif source in node:
            notes.append(lowering.lose(node, source, at))
    if node.get("required"):
        notes.append(lowering.lose(node, "required", at))
    return lowering.finish(wire, PairsCodec(lowered.codec), node, notes)


def _members(lowering: Lowering, node: JsonSchema, path: str, notes: list[str]) -> Lowered:
    declared: dict[str, Any] = dict(node.get("properties", {}))
    required = node.get("required", [])
    patterns = node.get("patternProperties", {})
    others = True if patterns else node.get("additionalProperties", False)
    for name in required:
        declared.setdefault(name, others if others is not False else True)
    names = wire_names(list(declared), lowering.profile.key_pattern)
    members: list[Member] = []
    wires: JsonSchema = {}
    required_wires: list[str] = []
    for name, schema in declared.items():
        if schema is False and name not in required:
            continue
        where = join(path, "properties", name)
        lowered = lowering.lower(schema, where)
        member = Member(name, names[name], lowered.codec)
        wire = lowered.wire
        if name not in required and lowering.profile.nullable_optionals:
            # A model of the tool can tell null from absent; a parameter with that default cannot.
            wire, member = _optional(lowering, member, lowered, schema, keeps_null=bool(path))
        if name in required or lowering.profile.nullable_optionals:
            required_wires.append(member.wire)
        wires[member.wire] = wire
        members.append(member)
    rest: Member | None = None
    if others is not False:
        taken = wires.keys() | declared.keys()
        wire_name = next(n for n in _numbered(_REST) if n not in taken)
        mapping = {"type": "object", "additionalProperties": {} if others is True else others}
        value_path = join(path, "patternProperties" if patterns else "additionalProperties")
        pairs = _pairs(lowering, mapping, None, mapping["additionalProperties"], value_path, [])
        rest = Member("", wire_name, pairs.codec)
        wires[wire_name] = pairs.wire
        required_wires.append(wire_name)
    if not wires and path and not lowering.profile.empty_objects:
        reason = "is an object without properties"
        return lowering.as_text(node, path, "properties", reason, notes)
    wire = closed_object(wires, required_wires)
    for keyword in ("minProperties", "maxProperties", "propertyNames"):
        if keyword in node:
            notes = [*notes, lowering.lose(node, keyword, path)]
    plain = rest is None and all(
        member.codec == SAME and member.name == member.wire and not member.null_is_absent
        for member in members
    )
    codec: Codec = SAME if plain else Members(tuple(members), rest)
    return lowering.finish(wire, codec, node, notes)


def _optional(
    lowering: Lowering,
    member: Member,
    lowered: Lowered,
    schema: Any,
    *,
    keeps_null: bool,
    defaults: bool = True,
) -> tuple[JsonSchema, Member]:
    """Lower an optional property where every property is required: null means absent.

    If null is also a valid value, the value is wrapped in an object with one property; without
    `keeps_null` not if it is the default.
    """
    null_is_value = admits_null(lowered.wire, lowering.definitions)
    if null_is_value is None:
        null_is_value = lowering.document.validator(schema).is_valid(None)
    has_default = defaults and isinstance(schema, dict) and "default" in schema
    if null_is_value and (keeps_null or not (has_default and schema["default"] is None)):
        inner = {key: value for key, value in lowered.wire.items() if key != "description"}
        wire = nullable(closed_object({_VALUE: inner}))
        member = Member(member.name, member.wire, Wrapped(_VALUE, member.codec), True)
    else:
        wire = lowered.wire if null_is_value else nullable(lowered.wire)
        member = Member(member.name, member.wire, member.codec, True)
    text = lowered.wire.get("description")
    note = "null for the default" if has_default else "null to leave it out"
    wire = {**wire, "description": f"{text} ({note})" if text else note.capitalize()}
    return wire, member


def lower_array(lowering: Lowering, node: JsonSchema, path: str, notes: list[str]) -> Lowered:
    """Lower a list, or a tuple with a schema for each position."""
    prefix = node.get("prefixItems")
    if prefix:
        size = len(prefix)
        fixed = node.get("minItems") == size == node.get("maxItems")
        alike = all(item == prefix[0] for item in prefix)
        keeps = lowering.profile.keeps
        if not (fixed and alike and keeps("minItems", size) and keeps("maxItems", size)):
            return _positions(lowering, node, path, notes)
        node = {**node, "items": prefix[0]}
        item_path = join(path, "prefixItems", 0)
    else:
        item_path = join(path, "items")
    if node.get("items") is False:
        node = {**node, "items": True, "maxItems": 0}
    lowered = lowering.lower(node.get("items", True), item_path)
    wire: JsonSchema = {"type": "array", "items": lowered.wire}
    notes = [*notes, *lowering.keep(wire, node, ("minItems", "maxItems", "uniqueItems"), path)]
    codec: Codec = SAME if lowered.codec == SAME else ItemsCodec(lowered.codec)
    return lowering.finish(wire, codec, node, notes)


def _positions(lowering: Lowering, node: JsonSchema, path: str, notes: list[str]) -> Lowered:
    prefix = node["prefixItems"][: node.get("maxItems")]
    at_least = node.get("minItems", 0)
    members: list[Member] = []
    wires: JsonSchema = {}
    required_wires: list[str] = []
    for index, schema in enumerate(prefix):
        lowered = lowering.lower(schema, join(path, "prefixItems", index))
        name = f"item_{index}"
        member = Member(name, name, lowered.codec)
        wire = lowered.wire
        if index >= at_least and lowering.profile.nullable_optionals:
            wire, member = _optional(
                lowering, member, lowered, schema, keeps_null=True, defaults=False
            )
        if index < at_least or lowering.profile.nullable_optionals:
            required_wires.append(name)
        wires[name] = wire
        members.append(member)
    rest: Member | None = None
    more = node.get("items", True)
    if more is not False and node.get("maxItems", len(prefix) + 1) > len(prefix):
        others = lowering.lower(more, join(path, "items"))
        wires[_MORE] = {"type": "array", "items": others.wire}
        required_wires.append(_MORE)
        rest = Member("", _MORE, ItemsCodec(others.codec))
        for keyword in ("minItems", "maxItems"):
            if keyword in node and (keyword == "maxItems" or at_least > len(prefix)):
                notes = [*notes, lowering.lose(node, keyword, path)]
    if node.get("uniqueItems"):
        notes = [*notes, lowering.lose(node, "uniqueItems", path)]
    notes = [*notes, "a tuple, as an object with one property for each position"]
    codec = Positions(tuple(members), rest)
    return lowering.finish(closed_object(wires, required_wires), codec, node, notes)


def _numbered(stem: str) -> Any:
    yield stem
    count = 2
    while True:
        yield f"{stem}_{count}"
        count += 1


def enumerated(values: list[Any], profile: Profile) -> Lowered:
    """Lower a non-empty list of allowed values."""
    some = [value for value in values if value is not None]
    if not some and profile.null_type:
        return Lowered({"type": "null"}, SAME)
    groups = _by_type(some)
    codec: Codec = SAME
    if some and groups.keys() <= profile.enum_types:
        forms = [_enumeration(kind, group) for kind, group in groups.items()]
        wire = forms[0] if len(forms) == 1 else {"anyOf": forms}
    else:
        labels = _labels(some or values)
        wire = {"type": "string", "enum": [label for label, _ in labels]}
        codec = Labels(labels)
    return Lowered(nullable(wire) if some and len(some) < len(values) else wire, codec)


def _by_type(values: list[Any]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for value in values:
        kinds = json_types(value)
        kind = "integer" if "integer" in kinds else next(iter(kinds))
        groups.setdefault(kind, []).append(value)
    if "number" in groups and "integer" in groups:
        groups["number"] += groups.pop("integer")
    return groups


def _enumeration(kind: str, values: list[Any]) -> JsonSchema:
    if kind == "boolean" and len(values) == 2:
        return {"type": "boolean"}
    return {"type": kind, "enum": values}


def _labels(values: list[Any]) -> tuple[tuple[str, Any], ...]:
    # Strings keep their spelling unless that is ambiguous.
    names = [value if isinstance(value, str) else display(value) for value in values]
    if len(set(names)) < len(names):
        names = [f"{index}: {display(value)}" for index, value in enumerate(values, 1)]
    return tuple(zip(names, values, strict=True))
