"""The calls that a docstring shows, as arguments to start from; nothing of it is run.

Only what can be read off the text is taken: literals, names that an example before gave to
one, and dates and decimals. A call that does not fit the tool's schema is no example.
"""

import ast
import doctest
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

from toolkiln.model import ToolSpec
from toolkiln.schema import Checked, check

_MOST = 3
_LONGEST = 20_000
_WRAPPERS = ("Decimal", "Path", "UUID", "Fraction")
"""Types that are written in JSON as what they are made of."""
_TIMES = {"date": date, "datetime": datetime}


def shown_calls(spec: ToolSpec) -> tuple[dict[str, Any], ...]:
    """The arguments of the first few calls among the examples of a tool."""
    found: list[dict[str, Any]] = []
    for arguments in _calls(spec):
        if arguments not in found and isinstance(check(spec, arguments), Checked):
            found.append(arguments)
        if len(found) == _MOST:
            break
    return tuple(found)


def _calls(spec: ToolSpec) -> Iterator[dict[str, Any]]:
    own, known = spec.entry.rpartition(".")[2], dict[str, Any]()
    for tree in _trees(spec.documentation.examples[:_LONGEST]):
        for node in ast.walk(tree):
            try:
                match node:
                    case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name == own:
                        yield _arguments(node, spec, known)
                    case ast.Assign(targets=[ast.Name(id=name)], value=value):
                        known[name] = _value(value, known)
            except (
                ValueError,
                TypeError,
                OverflowError,
                RecursionError,
            ):  # it is more than can be read off the text
                continue


def _trees(examples: str) -> Iterator[ast.Module]:
    try:
        parts = doctest.DocTestParser().get_examples(examples)
    except ValueError:
        return
    for part in parts:
        try:
            yield ast.parse(part.source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue


def _arguments(call: ast.Call, spec: ToolSpec, known: dict[str, Any]) -> dict[str, Any]:
    names = list(spec.parameters.get("properties", {}))
    if len(call.args) > len(names):
        raise ValueError
    given = dict(zip(names, call.args, strict=False))
    given |= {keyword.arg or "": keyword.value for keyword in call.keywords}
    return {name: _value(node, known) for name, node in given.items()}


def _value(node: ast.expr, known: dict[str, Any]) -> Any:
    """What JSON has for an expression; ValueError if that cannot be read off."""
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, known) for item in items]
        case ast.Dict(keys=keys, values=values):
            names = [_value(key, known) if key else None for key in keys]
            if not all(isinstance(name, str) for name in names):
                raise ValueError
            return dict(zip(names, (_value(value, known) for value in values), strict=True))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Call(func=ast.Name(id=name), args=[only], keywords=[]) if name in _WRAPPERS:
            return _value(only, known)
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in _TIMES:
            numbers = [_value(part, known) for part in parts]
            if not all(type(number) is int for number in numbers):
                raise ValueError
            return _TIMES[name](*numbers).isoformat()
        case _:
            raise ValueError
