"""Codecs between a tool's values and the wire form that a provider's schema can describe.

`decode(encode(x)) == x` for every value the tool's schema accepts. `decode` returns values
of an unexpected form unchanged; `arguments.check` reports those. `transform` chooses the
codec for a schema.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn, Protocol

from jsonschema_rs import Draft202012Validator

MakeValidator = Callable[[], Draft202012Validator]


class Codec(Protocol):
    """Maps a value to its wire form and back."""

    def encode(self, value: Any) -> Any: ...

    def decode(self, value: Any) -> Any: ...


@dataclass(frozen=True)
class Same:
    """A value that is the same on the wire."""

    def encode(self, value: Any) -> Any:
        return value

    def decode(self, value: Any) -> Any:
        return value


SAME = Same()


@dataclass(frozen=True)
class TextCodec:
    """Any value, as JSON text in a string."""

    def encode(self, value: Any) -> Any:
        return json.dumps(value, ensure_ascii=False)

    def decode(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


@dataclass(frozen=True)
class Labels:
    """One of a few values, as a label."""

    values: tuple[tuple[str, Any], ...]

    def encode(self, value: Any) -> Any:
        return next((label for label, known in self.values if equal(known, value)), value)

    def decode(self, value: Any) -> Any:
        return next((known for label, known in self.values if label == value), value)


@dataclass(frozen=True)
class Named:
    """The codec of a named definition, so that codecs can be recursive."""

    name: str
    table: Mapping[str, Codec] = field(compare=False, repr=False)

    def encode(self, value: Any) -> Any:
        return self.table[self.name].encode(value)

    def decode(self, value: Any) -> Any:
        return self.table[self.name].decode(value)


@dataclass(frozen=True)
class Wrapped:
    """A value inside an object with one property, to distinguish it from other values."""

    name: str
    codec: Codec

    def encode(self, value: Any) -> Any:
        return {self.name: self.codec.encode(value)}

    def decode(self, value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {self.name}:
            return self.codec.decode(value[self.name])
        return value


@dataclass(frozen=True)
class ItemsCodec:
    """An array, item by item."""

    codec: Codec

    def encode(self, value: Any) -> Any:
        return [self.codec.encode(v) for v in value] if isinstance(value, list) else value

    def decode(self, value: Any) -> Any:
        return [self.codec.decode(v) for v in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class PairsCodec:
    """A mapping, as an array of key-value objects."""

    codec: Codec

    def encode(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return [{"key": k, "value": self.codec.encode(v)} for k, v in value.items()]

    def decode(self, value: Any) -> Any:
        if isinstance(value, dict):  # some models send a plain mapping anyway
            return {k: self.codec.decode(v) for k, v in value.items()}
        if not isinstance(value, list) or not all(map(_is_pair, value)):
            return value
        return {pair["key"]: self.codec.decode(pair["value"]) for pair in value}


def _is_pair(item: object) -> bool:
    return isinstance(item, dict) and item.keys() == {"key", "value"} and type(item["key"]) is str


@dataclass(frozen=True)
class Member:
    """One property of an object, or one position of a tuple, under its wire name."""

    name: str
    wire: str
    codec: Codec
    null_is_absent: bool = False

    def put(self, out: dict[str, Any], present: bool, value: Any) -> None:
        """Write the value into an encoded object."""
        if present:
            out[self.wire] = self.codec.encode(value)
        elif self.null_is_absent:
            out[self.wire] = None

    def is_in(self, wire: Mapping[str, Any]) -> bool:
        """Return whether an encoded object has a value for this member."""
        return self.wire in wire and not (self.null_is_absent and wire[self.wire] is None)


@dataclass(frozen=True)
class Members:
    """An object with declared properties, and optionally additional ones."""

    members: tuple[Member, ...]
    rest: Member | None = None

    def encode(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        out: dict[str, Any] = {}
        for member in self.members:
            member.put(out, member.name in value, value.get(member.name))
        declared = {member.name for member in self.members}
        others = {name: item for name, item in value.items() if name not in declared}
        if self.rest:
            self.rest.put(out, True, others)
            return out
        return {**others, **out}

    def decode(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        out: dict[str, Any] = {}
        known = {member.wire for member in self.members}
        if self.rest and self.rest.wire in value:
            others = self.rest.codec.decode(value[self.rest.wire])
            if isinstance(others, dict):
                out.update(others)
                known.add(self.rest.wire)
        # Unexpected properties are kept for `arguments.check` to report.
        out.update({name: item for name, item in value.items() if name not in known})
        for member in self.members:
            if member.is_in(value):
                out[member.name] = member.codec.decode(value[member.wire])
        return out


@dataclass(frozen=True)
class Positions:
    """A tuple, as an object with one property for each position."""

    members: tuple[Member, ...]
    rest: Member | None = None

    def encode(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        out: dict[str, Any] = {}
        for index, member in enumerate(self.members):
            present = index < len(value)
            member.put(out, present, value[index] if present else None)
        if self.rest:
            self.rest.put(out, True, value[len(self.members) :])
        return out

    def decode(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        members = (*self.members, self.rest) if self.rest else self.members
        if value and not any(member.wire in value for member in members):
            return value
        out: list[Any] = []
        for member in self.members:
            if not member.is_in(value):
                return out
            out.append(member.codec.decode(value[member.wire]))
        if self.rest:
            others = self.rest.codec.decode(value.get(self.rest.wire, []))
            out.extend(others if isinstance(others, list) else ())
        return out


@dataclass(frozen=True)
class Branch:
    """One alternative of a union: its codec, and validators for decoded and encoded values."""

    codec: Codec
    wire: dict[str, Any]
    make_accepts: MakeValidator = field(compare=False, repr=False)
    make_recognises: MakeValidator = field(compare=False, repr=False)

    @cached_property
    def accepts(self) -> Draft202012Validator:
        """Validator for decoded values."""
        return self.make_accepts()

    @cached_property
    def recognises(self) -> Draft202012Validator:
        """Validator for encoded values."""
        return self.make_recognises()


@dataclass(frozen=True)
class ChoiceCodec:
    """A union. `transform` ensures that no encoded value matches two different codecs."""

    branches: tuple[Branch, ...]

    def encode(self, value: Any) -> Any:
        fallback = value
        for branch in self.branches:
            if branch.accepts.is_valid(value):
                encoded = branch.codec.encode(value)
                if branch.recognises.is_valid(encoded):
                    return encoded
                fallback = encoded if fallback is value else fallback
        return fallback

    def decode(self, value: Any) -> Any:
        for branch in self.branches:
            if branch.recognises.is_valid(value):
                return branch.codec.decode(value)
        return value


def equal(left: Any, right: Any) -> bool:
    """Compare JSON values: true does not equal 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)
