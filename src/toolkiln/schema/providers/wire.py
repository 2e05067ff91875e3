"""The forms that schemas take on the wire: small builders and measures, no decisions."""

import re
from typing import Any, NamedTuple

from toolkiln.model import JsonSchema
from toolkiln.schema.providers.codec import Codec


class Lowered(NamedTuple):
    """A schema on the wire and the codec for its values."""

    wire: JsonSchema
    codec: Codec


def closed_object(properties: JsonSchema, required: list[str] | None = None) -> JsonSchema:
    """An object with exactly these properties, all of them required unless said."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


def nullable(wire: JsonSchema) -> JsonSchema:
    """The same values, or null."""
    if "anyOf" in wire:
        null = {"type": "null"}
        return wire if null in wire["anyOf"] else {**wire, "anyOf": [*wire["anyOf"], null]}
    if "$ref" in wire:
        return {"anyOf": [wire, {"type": "null"}]}
    kinds = [wire["type"]] if isinstance(wire["type"], str) else wire["type"]
    if "null" in kinds:
        return wire
    out = {**wire, "type": [*kinds, "null"]}
    if "enum" in wire:
        out["enum"] = [*wire["enum"], None]
    return out


def size(wire: Any) -> int:
    """How many objects a schema consists of."""
    if isinstance(wire, dict):
        return 1 + sum(map(size, wire.values()))
    return sum(map(size, wire)) if isinstance(wire, list) else 0


def reachable(wire: JsonSchema, definitions: dict[str, JsonSchema]) -> set[str]:
    """The definitions that a schema refers to, directly or not."""
    found: set[str] = set()
    pending: list[Any] = [wire]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            ref = node.get("$ref")
            if isinstance(ref, str):
                name = ref.removeprefix("#/$defs/")
                if name not in found and name in definitions:
                    found.add(name)
                    pending.append(definitions[name])
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return found


def definition_name(ref: str, taken: set[str]) -> str:
    """A name that is free for what `ref` points at."""
    last = ref.rsplit("/", 1)[-1].replace("#", "") or "Arguments"
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", last)[:56]
    name, count = stem, 1
    while name in taken:
        count += 1
        name = f"{stem}_{count}"
    return name
