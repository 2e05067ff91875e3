"""What an expression is worth, as far as that can be known without running it.

Literals, constants of the module and its helpers, arithmetic and small built-in functions
on them, members of enums, and a few constructors of the standard library. Everything else
is `Unknown`. Results are bounded, so no expression costs more than it says.
"""

import ast
import datetime
import decimal
import fractions
import ipaddress
import math
import operator
import pathlib
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from toolkiln.spec.annotations import enums
from toolkiln.spec.modules import AliasRef, ClassRef, External, Scope, resolve

_DEEPEST = 40
_LONGEST = 10_000
_HEAVIEST = 100_000
_MOST_BITS = 256

Construct = Callable[[ClassRef, ast.Call, Scope], Any]
"""Makes the value of a call of a class whose source we have."""


class Unknown(Exception):
    """An expression whose value cannot be known statically."""


def evaluate(node: ast.expr, scope: Scope, construct: Construct | None = None) -> Any:
    """The value of an expression, an enum member standing for its own value.

    Raises:
        Unknown: it cannot be known without running the code.
    """
    if isinstance(node, ast.Constant):
        return node.value
    return _Evaluation(construct).value(node, scope)


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


class _Evaluation:
    """One evaluation: how deep it is, and how it makes objects."""

    def __init__(self, construct: Construct | None) -> None:
        self._construct = construct
        self._depth = 0
        self._steps = 0
        self._weights: dict[int, tuple[Any, int]] = {}
        """How much a container would take written out, by identity."""

    def value(self, node: ast.expr, scope: Scope) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        self._depth += 1
        self._steps += 1
        scope.module.work.spend()
        if self._depth > _DEEPEST or self._steps > _LONGEST:
            raise Unknown("too deep")
        try:
            result = self._value(node, scope)
        finally:
            self._depth -= 1
        if self._weight(result) > _HEAVIEST:
            raise Unknown("too large")
        return result

    def _weight(self, value: Any) -> int:
        if isinstance(value, str | bytes):
            return len(value)
        if not isinstance(value, list | tuple | set | frozenset | dict):
            return 1
        if id(value) not in self._weights:
            items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
            total = 1 + sum(map(self._weight, items))
            self._weights[id(value)] = (value, total)  # held, so that the id stays its own
        return self._weights[id(value)][1]

    def _value(self, node: ast.expr, scope: Scope) -> Any:
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
                return _attempt(_UNARY[type(op)], self.value(operand, scope))
            case ast.BinOp(left=left, op=op, right=right):
                return _binary(type(op), self.value(left, scope), self.value(right, scope))
            case ast.BoolOp(op=op, values=values):
                return self._boolean(op, values, scope)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return _attempt(
                    _COMPARE[type(op)], self.value(left, scope), self.value(right, scope)
                )
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.value(test, scope) else orelse, scope)
            case ast.Subscript(value=owner, slice=index):
                return self._item(owner, index, scope)
            case ast.JoinedStr(values=parts):
                return "".join(self._formatted(part, scope) for part in parts)
            case ast.Call():
                return self._called(node, scope)
        raise Unknown(type(node).__name__)

    def _named(self, node: ast.Name | ast.Attribute, scope: Scope) -> Any:
        if isinstance(node, ast.Attribute):
            member = enums.member(node, scope)
            if member is not None:
                return member[0]
        target = resolve(node, scope)
        if isinstance(target, AliasRef):
            return self.value(target.assigned.value, target.scope)
        if isinstance(target, External) and target.name in _CONSTANTS:
            return _CONSTANTS[target.name]
        raise Unknown(ast.unparse(node))

    def _items(self, items: Sequence[ast.expr], scope: Scope) -> Iterator[Any]:
        for item in items:
            if isinstance(item, ast.Starred):
                yield from _attempt(list, self.value(item.value, scope))
            else:
                yield self.value(item, scope)

    def _dict(self, node: ast.Dict, scope: Scope) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, scope)
            if key is None:
                _attempt(result.update, value)
            else:
                _attempt(result.__setitem__, self.value(key, scope), value)
        return result

    def _boolean(self, op: ast.boolop, values: list[ast.expr], scope: Scope) -> Any:
        result = None
        for node in values:
            result = self.value(node, scope)
            if bool(result) is isinstance(op, ast.Or):
                break
        return result

    def _item(self, owner: ast.expr, index: ast.expr, scope: Scope) -> Any:
        member = enums.member_by_key(owner, index, scope)
        if member is not None:
            return member[0]
        return _attempt(operator.getitem, self.value(owner, scope), self.value(index, scope))

    def _formatted(self, part: ast.expr, scope: Scope) -> str:
        if isinstance(part, ast.FormattedValue):
            if part.conversion != -1 or part.format_spec is not None:
                raise Unknown("format")
            return str(_plain(self.value(part.value, scope)))
        return str(self.value(part, scope))

    def _called(self, node: ast.Call, scope: Scope) -> Any:
        target = resolve(node.func, scope)
        if isinstance(target, ClassRef):
            if enums.is_enum(target):
                return enums.member_by_value(target, self.value(node.args[0], scope))
            if self._construct is not None:
                return self._construct(target, node, scope)
        if isinstance(target, AliasRef) and len(node.args) == 1:
            made = target.assigned.value
            called = resolve(made.func, target.scope) if isinstance(made, ast.Call) else None
            if called == External("typing.NewType"):
                return self.value(node.args[0], scope)
        if not isinstance(target, External) or target.name not in _FUNCTIONS:
            raise Unknown(ast.unparse(node.func)[:80])
        arguments = list(self._items(node.args, scope))
        keywords = {k.arg: self.value(k.value, scope) for k in node.keywords if k.arg}
        if len(keywords) < len(node.keywords):
            raise Unknown("**")
        return _attempt(_FUNCTIONS[target.name], *arguments, **keywords)


def _binary(op: type[ast.operator], left: Any, right: Any) -> Any:
    if op not in _BINARY:
        raise Unknown(op.__name__)
    if isinstance(left, int) and isinstance(right, int):
        if op in (ast.Pow, ast.LShift) and (abs(right) > _MOST_BITS or left.bit_length() > 64):
            raise Unknown("too large")
        if left.bit_length() + right.bit_length() > 4 * _MOST_BITS:
            raise Unknown("too large")
    elif op is ast.Add and isinstance(left, str | bytes | list | tuple):
        if isinstance(right, type(left)) and len(left) + len(right) > _HEAVIEST:
            raise Unknown("too long")
    elif op is ast.Mult:
        text, times = (right, left) if isinstance(left, int) else (left, right)
        if isinstance(text, str | bytes | list | tuple) and isinstance(times, int):
            if len(text) * times > _LONGEST:
                raise Unknown("too long")
    elif op is ast.Mod and isinstance(left, bytes):
        raise Unknown("format")
    elif op is ast.Mod and isinstance(left, str):
        _plain(right)
        if len(left) > _LONGEST or re.search("%[^a-z%]", left):
            raise Unknown("format")
    return _attempt(_BINARY[op], left, right)


def _plain(value: Any) -> Any:
    """A value whose text is its own, or a tuple of such."""
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
"""Pure and cheap, whatever they are given."""
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
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
