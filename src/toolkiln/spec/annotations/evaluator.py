"""Static evaluation of expressions: their values as far as known without running code.

Supports literals, constants of the module and its helpers, arithmetic and small builtins on
them, enum members, and a few standard library constructors. Everything else is `Unknown`.
The size of values and the number of steps are bounded.
"""

import ast
import datetime
import decimal
import enum
import fractions
import ipaddress
import math
import operator
import pathlib
import re
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError, to_jsonable_python

from toolkiln.spec.limits import MAX_VALUES
from toolkiln.spec.namespace import (
    AliasRef,
    ClassRef,
    External,
    NameScope,
    Resolved,
    external_name,
    resolve,
)
from toolkiln.spec.syntax import assigned_names, keyword_arguments

_MAX_DEPTH = 40
_MAX_STEPS = 10_000
_MAX_SIZE = 100_000
_MAX_REPEATED = 10_000
"""Items of a repeated string or sequence, and characters of a format string."""
_MAX_BITS = 256

Construct = Callable[[ClassRef, ast.Call, NameScope], Any]
"""Evaluates a call of a local class."""


class Unknown(Exception):
    """The value of an expression, or of an enum member, is only known at run time."""


def evaluate(node: ast.expr, scope: NameScope, construct: Construct | None = None) -> Any:
    """Return the value of an expression; raise Unknown if it is only known at run time.

    An enum member evaluates to its value.
    """
    return _Evaluation(construct).value(node, scope)


def try_evaluate(node: ast.expr | None, scope: NameScope, default: Any = None) -> Any:
    """Return the value of an expression, or `default` if it is missing or unknown."""
    if node is None:
        return default
    try:
        return evaluate(node, scope)
    except Unknown:
        return default


def jsonable(value: Any) -> Any:
    """Convert a value to strict JSON, as pydantic does for defaults, or raise Unknown."""
    if value is None or value.__class__ in (str, int, bool):
        return value
    if isinstance(value, set | frozenset):
        try:
            value = sorted(value)
        except TypeError:
            value = list(value)
    try:
        encoded = to_jsonable_python(value)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise Unknown(str(error)) from error
    if not _is_finite(encoded):
        raise Unknown("JSON has no infinity")
    return encoded


class _Evaluation:
    def __init__(self, construct: Construct | None) -> None:
        self._construct = construct
        self._depth = 0
        self._steps = 0
        self._sizes: dict[int, tuple[Any, int]] = {}
        """Containers and their sizes when written out, by identity."""

    def value(self, node: ast.expr, scope: NameScope) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        self._depth += 1
        self._steps += 1
        scope.module.budget.spend()
        if self._depth > _MAX_DEPTH or self._steps > _MAX_STEPS:
            raise Unknown("too deep")
        try:
            result = self._value(node, scope)
        finally:
            self._depth -= 1
        if self._size(result) > _MAX_SIZE:
            raise Unknown("too large")
        return result

    def _size(self, value: Any) -> int:
        if isinstance(value, str | bytes):
            return len(value)
        if not isinstance(value, list | tuple | set | frozenset | dict):
            return 1
        if id(value) not in self._sizes:
            items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
            total = 1 + sum(map(self._size, items))
            self._sizes[id(value)] = (value, total)  # a reference keeps the id from being reused
        return self._sizes[id(value)][1]

    def _value(self, node: ast.expr, scope: NameScope) -> Any:
        match node:
            case ast.Name() | ast.Attribute():
                return self._named(node, scope)
            case ast.List(elts=items):
                return list(self._items(items, scope))
            case ast.Tuple(elts=items):
                return tuple(self._items(items, scope))
            case ast.Set(elts=items):
                return _attempt(set, list(self._items(items, scope)))
            case ast.Dict():
                return self._dict(node, scope)
            case ast.UnaryOp(op=op, operand=operand):
                return _attempt(_OPERATORS[type(op)], self.value(operand, scope))
            case ast.BinOp(left=left, op=op, right=right):
                return _binary(type(op), self.value(left, scope), self.value(right, scope))
            case ast.BoolOp(op=op, values=values):
                return self._boolean(op, values, scope)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return _attempt(
                    _OPERATORS[type(op)], self.value(left, scope), self.value(right, scope)
                )
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.value(test, scope) else orelse, scope)
            case ast.Subscript(value=owner, slice=index):
                return self._item(owner, index, scope)
            case ast.JoinedStr(values=parts):
                return "".join(self._formatted(part, scope) for part in parts)
            case ast.Call():
                return self._call(node, scope)
        raise Unknown(type(node).__name__)

    def _named(self, node: ast.Name | ast.Attribute, scope: NameScope) -> Any:
        if isinstance(node, ast.Attribute):
            member = enum_member(node, scope)
            if member is not None:
                return member[0]
        target = resolve(node, scope)
        if isinstance(target, AliasRef):
            return self.value(target.assigned.value, target.scope)
        if isinstance(target, External) and target.name in _CONSTANTS:
            return _CONSTANTS[target.name]
        raise Unknown(ast.unparse(node))

    def _items(self, items: Sequence[ast.expr], scope: NameScope) -> Iterator[Any]:
        for item in items:
            if isinstance(item, ast.Starred):
                yield from _attempt(list, self.value(item.value, scope))
            else:
                yield self.value(item, scope)

    def _dict(self, node: ast.Dict, scope: NameScope) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, scope)
            if key is None:
                _attempt(result.update, value)
            else:
                _attempt(result.__setitem__, self.value(key, scope), value)
        return result

    def _boolean(self, op: ast.boolop, values: list[ast.expr], scope: NameScope) -> Any:
        result = None
        for node in values:
            result = self.value(node, scope)
            if bool(result) is isinstance(op, ast.Or):
                break
        return result

    def _item(self, owner: ast.expr, index: ast.expr, scope: NameScope) -> Any:
        member = member_by_key(owner, index, scope)
        if member is not None:
            return member[0]
        return _attempt(operator.getitem, self.value(owner, scope), self.value(index, scope))

    def _formatted(self, part: ast.expr, scope: NameScope) -> str:
        if isinstance(part, ast.FormattedValue):
            if part.conversion != -1 or part.format_spec is not None:
                raise Unknown("format")
            return str(_plain(self.value(part.value, scope)))
        return str(self.value(part, scope))

    def _call(self, node: ast.Call, scope: NameScope) -> Any:
        target = resolve(node.func, scope)
        if isinstance(target, ClassRef):
            members = enum_members(target)
            if members is not None:
                return self._member(target, members, node, scope)
            if self._construct is not None:
                return self._construct(target, node, scope)
        if isinstance(target, AliasRef) and len(node.args) == 1:
            alias = target.assigned.value
            if isinstance(alias, ast.Call):
                if external_name(alias.func, target.scope) == "typing.NewType":
                    return self.value(node.args[0], scope)
        function = _FUNCTIONS.get(target.name) if isinstance(target, External) else None
        if function is None:
            raise Unknown(ast.unparse(node.func)[:80])
        arguments = list(self._items(node.args, scope))
        keywords = {k: self.value(v, scope) for k, v in keyword_arguments(node).items()}
        if len(keywords) < len(node.keywords):
            raise Unknown("**")
        return _attempt(function, *arguments, **keywords)

    def _member(
        self, enum: ClassRef, members: dict[str, Any], call: ast.Call, scope: NameScope
    ) -> Any:
        """Return the value of `Color("red")`: the same, if the enum has it."""
        for node in call.args[:1]:
            value = self.value(node, scope)
            if value in members.values():
                return value
        raise Unknown(enum.node.name)


def _binary(op: type[ast.operator], left: Any, right: Any) -> Any:
    if op not in _OPERATORS:
        raise Unknown(op.__name__)
    if isinstance(left, int) and isinstance(right, int):
        if op in (ast.Pow, ast.LShift) and (abs(right) > _MAX_BITS or left.bit_length() > 64):
            raise Unknown("too large")
        if left.bit_length() + right.bit_length() > 4 * _MAX_BITS:
            raise Unknown("too large")
    elif op is ast.Add and isinstance(left, str | bytes | list | tuple):
        if isinstance(right, type(left)) and len(left) + len(right) > _MAX_SIZE:
            raise Unknown("too long")
    elif op is ast.Mult:
        text, times = (right, left) if isinstance(left, int) else (left, right)
        if isinstance(text, str | bytes | list | tuple) and isinstance(times, int):
            if len(text) * times > _MAX_REPEATED:
                raise Unknown("too long")
    elif op is ast.Mod and isinstance(left, bytes):
        raise Unknown("format")
    elif op is ast.Mod and isinstance(left, str):
        _plain(right)
        if len(left) > _MAX_REPEATED or re.search("%[^a-z%]", left):
            raise Unknown("format")
    return _attempt(_OPERATORS[op], left, right)


def _plain(value: Any) -> Any:
    """Return a value, or a tuple of values, whose `str()` is predictable."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, str | int | float | decimal.Decimal | pathlib.PurePath):
        return value
    raise Unknown("format")


def _attempt(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    try:
        return function(*arguments, **keywords)
    except (TypeError, ValueError, ArithmeticError, LookupError, re.error) as error:
        raise Unknown(str(error)) from error


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(map(_is_finite, value))
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return True


_CONSTANTS: dict[str, Any] = {
    "math.pi": math.pi,
    "math.e": math.e,
    "math.tau": math.tau,
    "math.inf": math.inf,
    "datetime.timezone.utc": datetime.UTC,
    "datetime.UTC": datetime.UTC,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        f"builtins.{f.__name__}": f
        for f in (abs, bool, dict, float, frozenset, int, len, list, max, min, round, set, str,
                  sum, tuple)
    },
    **{f"datetime.{t.__name__}": t for t in (datetime.date, datetime.datetime, datetime.time,
                                             datetime.timedelta)},
    **{
        f"ipaddress.{t.__name__}": t
        for t in (ipaddress.IPv4Address, ipaddress.IPv4Network, ipaddress.IPv4Interface,
                  ipaddress.IPv6Address, ipaddress.IPv6Network, ipaddress.IPv6Interface)
    },
    "decimal.Decimal": decimal.Decimal,
    "fractions.Fraction": fractions.Fraction,
    "pathlib.Path": pathlib.PosixPath,
    "pathlib.PurePath": pathlib.PurePosixPath,
    "pydantic.SecretStr": lambda value: "**********" if value else "",
    "re.compile": lambda pattern, *_: pattern,
    "uuid.UUID": uuid.UUID,
}  # fmt: skip
"""Functions that are pure and cheap for any arguments."""
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class EnumKind(NamedTuple):
    """How an enum computes values: its mixin type and its rule for `auto()`."""

    mixin: type | None
    auto: str
    """`count`, `flag`, `name`, `lower` or `unknown`."""


_ENUM_BASES = {
    "enum.Enum": EnumKind(None, "count"),
    "enum.ReprEnum": EnumKind(None, "count"),
    "enum.IntEnum": EnumKind(int, "count"),
    "enum.StrEnum": EnumKind(str, "lower"),
    "enum.Flag": EnumKind(None, "flag"),
    "enum.IntFlag": EnumKind(int, "flag"),
}
_AUTO_RULES: dict[str, Callable[[str, int, int, list[Any]], Any]] = {
    "count": enum.Enum._generate_next_value_,
    "flag": enum.Flag._generate_next_value_,
    "lower": enum.StrEnum._generate_next_value_,
}
"""The interpreter's own rules, because Python versions differ in them."""
_MIXINS: dict[str, type] = {f"builtins.{t.__name__}": t for t in (str, int, float)}


def enum_members(reference: ClassRef) -> dict[str, Any] | None:
    """Return the values of an enum's members and aliases by name; None if it is no enum."""
    cache = reference.scope.module.enum_members
    if reference.node not in cache:
        cache[reference.node] = _enum_members(reference)
    return cache[reference.node]


def _enum_members(reference: ClassRef) -> dict[str, Any] | None:
    kind = _enum_kind(reference)
    if kind is None:
        return None
    kind = kind._replace(auto=_own_auto_rule(reference.node) or kind.auto)
    scope = reference.body_scope
    raw: dict[str, Any] = {}  # values before conversion to the mixin type, as `auto()` sees them
    members: dict[str, Any] = {}
    ignored = _ignored(reference)
    for node in reference.node.body:
        scope.module.budget.spend()
        for name, expression in _member_values(node):
            if name not in ignored:
                raw[name] = _raw_value(name, expression, raw, scope, kind)
                members[name] = _converted(raw[name], kind)
                _check_size(raw)
    return members


def functional_members(call: ast.Call, scope: NameScope) -> dict[str, Any] | None:
    """Return the members of `Enum("Color", "RED GREEN")`, or None if it is another call."""
    kind = _ENUM_BASES.get(external_name(call.func, scope))
    if kind is None or len(call.args) != 2:
        return None
    keywords = keyword_arguments(call)
    if "type" in keywords:
        kind = kind._replace(mixin=_MIXINS.get(external_name(keywords["type"], scope)))
    start = evaluate(keywords["start"], scope) if "start" in keywords else 1
    items = evaluate(call.args[1], scope)
    if isinstance(items, str):
        items = items.replace(",", " ").split()
    if isinstance(items, dict):
        items = list(items.items())
    raw: dict[str, Any] = {}
    for item in items:
        name, value = item if isinstance(item, tuple | list) else (item, None)
        raw[name] = _next_value(name, raw, kind, start) if value is None else value
        _check_size(raw)
    return {name: _converted(value, kind) for name, value in raw.items()}


def enum_member(node: ast.Attribute, scope: NameScope) -> tuple[Any] | None:
    """Return the value of `Color.RED`, `Color.RED.value` or `Color.RED.name`, in a tuple."""
    if node.attr in ("value", "name") and isinstance(node.value, ast.Attribute):
        inner = enum_member(node.value, scope)
        if inner is not None:
            return inner if node.attr == "value" else (node.value.attr,)
    members = _members_of(resolve(node.value, scope))
    return (members[node.attr],) if members is not None and node.attr in members else None


def member_by_key(owner: ast.expr, index: ast.expr, scope: NameScope) -> tuple[Any] | None:
    """Return the value of `Color["RED"]`, in a tuple."""
    if not isinstance(owner, ast.Name | ast.Attribute) or not isinstance(index, ast.Constant):
        return None
    members = _members_of(resolve(owner, scope))
    return (members[index.value],) if members is not None and index.value in members else None


def _check_size(raw: dict[str, Any]) -> None:
    if len(raw) > MAX_VALUES:
        raise Unknown(f"it has more than {MAX_VALUES:,} members")


def _members_of(owner: Resolved | None) -> dict[str, Any] | None:
    if isinstance(owner, ClassRef):
        return enum_members(owner)
    if isinstance(owner, AliasRef) and isinstance(owner.assigned.value, ast.Call):
        return functional_members(owner.assigned.value, owner.scope)
    return None


def _enum_kind(reference: ClassRef, depth: int = 0) -> EnumKind | None:
    kind: EnumKind | None = None
    mixin: type | None = None
    for base in reference.node.bases:
        target = resolve(base, reference.scope)
        if isinstance(target, External):
            kind = _ENUM_BASES.get(target.name, kind)
            mixin = _MIXINS.get(target.name, mixin)
        elif isinstance(target, ClassRef) and depth < 20:
            inherited = _enum_kind(target, depth + 1)
            if inherited is not None:
                rule = _own_auto_rule(target.node) or inherited.auto
                kind = inherited._replace(auto=rule)
    return kind and kind._replace(mixin=mixin or kind.mixin)


def _member_values(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Yield what a statement assigns to names that `enum` neither reserves nor keeps private."""
    for name, value in assigned_names(node):
        is_sunder = name.startswith("_") and name.endswith("_")
        if not is_sunder and not name.startswith("__") and not isinstance(value, ast.Lambda):
            yield name, value


def _ignored(reference: ClassRef) -> set[str]:
    names: Any = ()
    for node in reference.node.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_ignore_":
            names = evaluate(node.value, reference.scope)
    return set(names.replace(",", " ").split() if isinstance(names, str) else names)


def _raw_value(
    name: str, node: ast.expr, raw: dict[str, Any], scope: NameScope, kind: EnumKind
) -> Any:
    if isinstance(node, ast.Name) and node.id in raw:
        return raw[node.id]
    if isinstance(node, ast.Call):
        function = external_name(node.func, scope)
        if function == "enum.auto":
            return _next_value(name, raw, kind, 1)
        if function == "enum.member" and len(node.args) == 1:
            return evaluate(node.args[0], scope)
    return evaluate(node, scope)


def _converted(value: Any, kind: EnumKind) -> Any:
    if kind.mixin is None or isinstance(value, kind.mixin):
        return value
    return _attempt(kind.mixin, *(value if isinstance(value, tuple) else (value,)))


def _next_value(name: str, raw: dict[str, Any], kind: EnumKind, start: int) -> Any:
    if kind.auto == "name":
        return name
    rule = _AUTO_RULES.get(kind.auto)
    if rule is None:
        raise Unknown("_generate_next_value_")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _attempt(rule, name, start, len(raw), list(raw.values()))


def _own_auto_rule(node: ast.ClassDef) -> str | None:
    for method in node.body:
        if isinstance(method, ast.FunctionDef):
            if method.name == "__new__":
                raise Unknown("__new__")
            if method.name == "_generate_next_value_":
                return _auto_rule(method)
    return None


def _auto_rule(method: ast.FunctionDef) -> str:
    last = method.body[-1]
    returned = ast.unparse(last.value) if isinstance(last, ast.Return) and last.value else ""
    first = method.args.args[0].arg if method.args.args else ""
    return {first: "name", f"{first}.lower()": "lower"}.get(returned, "unknown")
