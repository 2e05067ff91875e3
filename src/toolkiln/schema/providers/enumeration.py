"""A few given values on the wire: typed enums, or names where a dialect has no such enum."""

from typing import Any

from toolkiln.model import JsonSchema
from toolkiln.schema.providers.codec import SAME, Codec, Labels
from toolkiln.schema.providers.profile import Profile
from toolkiln.schema.providers.wire import Lowered, nullable
from toolkiln.schema.providers.wording import shown
from toolkiln.schema.structure import json_types


def enumerated(values: list[Any], profile: Profile) -> Lowered:
    """A form for exactly these values, at least one."""
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
    """A readable name for each value: strings as they are unless that is ambiguous."""
    names = [value if isinstance(value, str) else shown(value) for value in values]
    if len(set(names)) < len(names):
        names = [f"{index}: {shown(value)}" for index, value in enumerate(values, 1)]
    return tuple(zip(names, values, strict=True))
