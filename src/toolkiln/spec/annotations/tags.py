"""Discriminated unions: which alternative is meant, told by the value of one property."""

from typing import Any

from toolkiln.model import JsonSchema
from toolkiln.spec.annotations.definitions import Definitions, target
from toolkiln.spec.annotations.shapes import Shape


def discriminated(
    shape: Shape,
    field: str | None,
    definitions: Definitions,
) -> Shape:
    """The union as `oneOf`, with a mapping from tag to alternative if a field tells them apart."""
    if shape.inner is not None:
        inner = discriminated(shape.inner, field, definitions)
        return Shape("nullable", shape.schema, inner)
    rendered = dict(shape.render())
    members = rendered.pop("anyOf", None)
    if members is None:
        members, rendered = [rendered], {}
    if field is None:
        return Shape("tagged-union", {**rendered, "oneOf": members})
    choices: list[JsonSchema] = []
    mapping: dict[str, Any] = {}
    property_name = field
    for member in _flattened(members, field):
        for name in _named(member):
            property_name = definitions.properties.get(name, {}).get(field, field)
            properties = definitions.schemas.get(name, {}).get("properties", {})
            for tag in _tags(properties.get(property_name, {}), definitions.schemas):
                mapping[tag] = member.get("$ref", member)
        if member not in choices:
            choices.append(member)
    schema = {
        **rendered,
        "oneOf": choices,
        "discriminator": {"propertyName": property_name, "mapping": mapping},
    }
    return Shape("tagged-union", schema)


def _flattened(members: list[JsonSchema], field: str) -> list[JsonSchema]:
    """The alternatives, those of an inner union told apart by the same field unfolded."""
    flat: list[JsonSchema] = []
    for member in members:
        shared = member.get("discriminator", {}).get("propertyName") == field
        flat += member["oneOf"] if shared else [member]
    return flat


def _named(member: JsonSchema) -> list[str]:
    """The definitions that an alternative may turn out to be."""
    if "$ref" in member:
        return [target(member)]
    return [name for inner in member.get("oneOf", []) for name in _named(inner)]


def _tags(schema: JsonSchema, definitions: dict[str, JsonSchema]) -> list[str]:
    if "$ref" in schema:
        schema = definitions.get(target(schema), {})
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    return [_tag(value) for value in values]


def _tag(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
