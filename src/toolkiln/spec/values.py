"""What an expression is worth, as far as that can be known without running it.

Literals, constants of the module and its helpers, arithmetic on them, members of enums,
and calls of a few constructors of the standard library. Everything else is `Unknown`.
"""

import ast
import datetime
import decimal
import math
import operator
import pathlib
import re
import uuid
from collections.abc import Callable
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from toolkiln.spec.modules import (
    AliasRef,
    ClassRef,
    External,
    Resolved,
    Scope,
    resolve,
)

_DEEPEST = 40
_MOST_BITS = 256


class Unknown(Exception):
    """An expression whose value cannot be known statically."""


def evaluate(node: ast.expr, scope: Scope, depth: int = 0) -> Any:
    """The value of an expression, an enum member standing for its own value.

    Raises:
        Unknown: it cannot be known without running the code.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if depth > _DEEPEST:
        raise Unknown(ast.dump(node)[:80])
    below = depth + 1
    match node:
        case ast.Name() | ast.Attribute():
            return _named(node, scope, below)
        case ast.List(elts=items):
            return [evaluate(item, scope, below) for item in items]
        case ast.Tuple(elts=items):
            return tuple(evaluate(item, scope, below) for item in items)
        case ast.Set(elts=items):
            return _hashed(set, [evaluate(item, scope, below) for item in items])
        case ast.Dict(keys=keys, values=values):
            return _dict(keys, values, scope, below)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _safely(_UNARY[type(op)], evaluate(operand, scope, below))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _binary(
                type(op), evaluate(left, scope, below), evaluate(right, scope, below)
            )
        case ast.JoinedStr(values=parts) if all(isinstance(p, ast.Constant) for p in parts):
            return "".join(str(p.value) for p in parts if isinstance(p, ast.Constant))
        case ast.Call():
            return _called(node, scope, below)
    raise Unknown(type(node).__name__)


def evaluate_or(node: ast.expr | None, scope: Scope, otherwise: Any = None) -> Any:
    """The value of an expression, or `otherwise` where it is missing or cannot be known."""
    if node is None:
        return otherwise
    try:
        return evaluate(node, scope)
    except Unknown:
        return otherwise


def jsonable(value: Any) -> Any:
    """A value as strict JSON, the way pydantic writes defaults.

    Raises:
        Unknown: JSON has no such value.
    """
    if value is None or value.__class__ in (str, int, bool):
        return value
    if isinstance(value, set | frozenset):
        value = _sorted(value)
    try:
        encoded = to_jsonable_python(value)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise Unknown(str(error)) from error
    if not _finite(encoded):
        raise Unknown("JSON has no infinity")
    return encoded


def enum_values(reference: ClassRef, kinds: "EnumKind") -> dict[str, Any]:
    """The members of an enum, by name, with the values they have at run time.

    Raises:
        Unknown: a value comes from code.
    """
    members: dict[str, Any] = {}
    scope = reference.body_scope
    for node in reference.node.body:
        for name, value in _member_assignments(node):
            members[name] = _member_value(name, value, members, scope, kinds)
    return members


class EnumKind:
    """How an enum makes values: its mixin and its rule for `auto()`."""

    def __init__(self, mixin: Callable[[Any], Any] | None, auto: str) -> None:
        self.mixin = mixin
        self.auto = auto
        """`count`, `flag`, `name`, `lower` or `unknown`."""


_ENUM_BASES = {
    "enum.Enum": EnumKind(None, "count"),
    "enum.IntEnum": EnumKind(int, "count"),
    "enum.StrEnum": EnumKind(str, "lower"),
    "enum.Flag": EnumKind(None, "flag"),
    "enum.IntFlag": EnumKind(int, "flag"),
    "enum.ReprEnum": EnumKind(None, "count"),
}
_MIXINS: dict[str, Callable[[Any], Any]] = {
    "builtins.str": str,
    "builtins.int": int,
    "builtins.float": float,
}


def enum_kind(reference: ClassRef) -> EnumKind | None:
    """How this enum makes values, or None if the class is no enum."""
    kind: EnumKind | None = None
    mixin: Callable[[Any], Any] | None = None
    for base in reference.node.bases:
        target = resolve(base, reference.scope)
        if isinstance(target, External):
            kind = _ENUM_BASES.get(target.name, kind)
            mixin = _MIXINS.get(target.name, mixin)
        elif isinstance(target, ClassRef) and target.node is not reference.node:
            kind = enum_kind(target) or kind
    if kind is None:
        return None
    return EnumKind(mixin or kind.mixin, _auto_rule(reference.node) or kind.auto)


def functional_enum(call: ast.Call, scope: Scope) -> dict[str, Any] | None:
    """The members of `Enum("Color", "RED GREEN")`, or None if the call makes no enum.

    Raises:
        Unknown: the members come from code.
    """
    target = resolve(call.func, scope)
    if not isinstance(target, External) or target.name not in _ENUM_BASES or len(call.args) != 2:
        return None
    given = evaluate(call.args[1], scope)
    if isinstance(given, str):
        given = given.replace(",", " ").split()
    if isinstance(given, dict):
        return given
    names = list(given)
    if all(isinstance(item, tuple) and len(item) == 2 for item in names):
        return dict(names)
    kind = _ENUM_BASES[target.name]
    members: dict[str, Any] = {}
    for name in names:
        members[name] = _next_value(name, members, kind)
    return members


def _named(node: ast.Name | ast.Attribute, scope: Scope, depth: int) -> Any:
    if isinstance(node, ast.Attribute):
        member = _enum_member(node, scope)
        if member is not None:
            return member[0]
    target = resolve(node, scope)
    if isinstance(target, AliasRef):
        return evaluate(target.assigned.value, target.scope, depth)
    if isinstance(target, External) and target.name in _CONSTANTS:
        return _CONSTANTS[target.name]
    raise Unknown(ast.unparse(node))


def _enum_member(node: ast.Attribute, scope: Scope) -> tuple[Any] | None:
    if node.attr in ("value", "name") and isinstance(node.value, ast.Attribute):
        inner = _enum_member(node.value, scope)
        if inner is not None:
            return inner if node.attr == "value" else (node.value.attr,)
    owner = resolve(node.value, scope)
    members = _members_of(owner)
    if members is not None and node.attr in members:
        return (members[node.attr],)
    return None


def _members_of(owner: Resolved | None) -> dict[str, Any] | None:
    if isinstance(owner, ClassRef):
        kind = enum_kind(owner)
        return None if kind is None else enum_values(owner, kind)
    if isinstance(owner, AliasRef) and isinstance(owner.assigned.value, ast.Call):
        return functional_enum(owner.assigned.value, owner.scope)
    return None


def _member_assignments(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    pairs: list[tuple[str, ast.expr]] = []
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                pairs.append((target.id, node.value))
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs += [
                    (item.id, value)
                    for item, value in zip(target.elts, node.value.elts, strict=False)
                    if isinstance(item, ast.Name)
                ]
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        pairs.append((node.target.id, node.value))
    return [(name, value) for name, value in pairs if not name.startswith("_")]


def _member_value(
    name: str, node: ast.expr, members: dict[str, Any], scope: Scope, kind: EnumKind
) -> Any:
    if isinstance(node, ast.Name) and node.id in members:
        return members[node.id]
    if isinstance(node, ast.Call):
        target = resolve(node.func, scope)
        if isinstance(target, External) and target.name == "enum.auto":
            return _mixed(_next_value(name, members, kind), kind)
        if isinstance(target, External) and target.name == "enum.member" and len(node.args) == 1:
            return _mixed(evaluate(node.args[0], scope), kind)
    return _mixed(evaluate(node, scope), kind)


def _mixed(value: Any, kind: EnumKind) -> Any:
    if kind.mixin is None or isinstance(value, kind.mixin):  # type: ignore[arg-type]
        return value
    return _safely(kind.mixin, value)


def _next_value(name: str, members: dict[str, Any], kind: EnumKind) -> Any:
    if kind.auto == "name":
        return name
    if kind.auto == "lower":
        return name.lower()
    numbers = [v for v in members.values() if isinstance(v, int)]
    if kind.auto == "count":
        return max(numbers) + 1 if numbers else 1
    if kind.auto == "flag":
        return 1 << max(numbers).bit_length() if numbers else 1
    raise Unknown("_generate_next_value_")


def _auto_rule(node: ast.ClassDef) -> str | None:
    for method in node.body:
        if isinstance(method, ast.FunctionDef):
            if method.name in ("__new__", "__init__") and method.name == "__new__":
                raise Unknown("__new__")
            if method.name == "_generate_next_value_":
                last = method.body[-1]
                text = ast.unparse(last.value) if isinstance(last, ast.Return) and last.value else ""
                first = method.args.args[0].arg if method.args.args else ""
                return {first: "name", f"{first}.lower()": "lower"}.get(text, "unknown")
    return None


def _called(node: ast.Call, scope: Scope, depth: int) -> Any:
    target = resolve(node.func, scope)
    if not isinstance(target, External) or target.name not in _CONSTRUCTORS:
        raise Unknown(ast.unparse(node.func)[:80])
    arguments = [evaluate(argument, scope, depth) for argument in node.args]
    keywords = {k.arg: evaluate(k.value, scope, depth) for k in node.keywords}
    if None in keywords:
        raise Unknown("**")
    return _safely(_CONSTRUCTORS[target.name], *arguments, **keywords)


def _dict(
    keys: list[ast.expr | None], values: list[ast.expr], scope: Scope, depth: int
) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for key, value in zip(keys, values, strict=True):
        worth = evaluate(value, scope, depth)
        if key is None:
            if not isinstance(worth, dict):
                raise Unknown("**")
            result.update(worth)
        else:
            _safely(result.__setitem__, evaluate(key, scope, depth), worth)
    return result


def _binary(op: type[ast.operator], left: Any, right: Any) -> Any:
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    texts = isinstance(left, str | tuple | list) and type(left) is type(right)
    if not numbers and not (texts and op is ast.Add) and not (op is ast.BitOr and isinstance(left, dict)):
        if not isinstance(left, _ARITHMETIC) or not isinstance(right, _ARITHMETIC):
            raise Unknown("operands")
    if isinstance(left, int) and isinstance(right, int):
        if op in (ast.Pow, ast.LShift) and (abs(right) > _MOST_BITS or left.bit_length() > 64):
            raise Unknown("too large")
        if left.bit_length() + right.bit_length() > 4 * _MOST_BITS:
            raise Unknown("too large")
    return _safely(_BINARY[op], left, right)


def _safely(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    try:
        return function(*arguments, **keywords)
    except (TypeError, ValueError, ArithmeticError, LookupError, re.error) as error:
        raise Unknown(str(error)) from error


def _hashed(kind: type[set[Any]], items: list[Any]) -> set[Any]:
    result: set[Any] = _safely(kind, items)
    return result


def _sorted(values: set[Any] | frozenset[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return list(values)


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(map(_finite, value))
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    return True


def _pattern(pattern: str, flags: int = 0) -> str:
    return pattern


_ARITHMETIC = (datetime.timedelta, datetime.date, datetime.datetime, decimal.Decimal, int, float)
_CONSTANTS = {"math.pi": math.pi, "math.e": math.e, "math.tau": math.tau, "math.inf": math.inf}
_CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "builtins.bool": bool,
    "builtins.dict": dict,
    "builtins.float": float,
    "builtins.frozenset": frozenset,
    "builtins.int": int,
    "builtins.list": list,
    "builtins.set": set,
    "builtins.str": str,
    "builtins.tuple": tuple,
    "datetime.date": datetime.date,
    "datetime.datetime": datetime.datetime,
    "datetime.time": datetime.time,
    "datetime.timedelta": datetime.timedelta,
    "decimal.Decimal": decimal.Decimal,
    "pathlib.Path": pathlib.PurePath,
    "pathlib.PurePath": pathlib.PurePath,
    "re.compile": _pattern,
    "uuid.UUID": uuid.UUID,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
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
}
