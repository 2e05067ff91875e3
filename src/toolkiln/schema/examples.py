"""Example arguments, read statically from the calls in a tool's docstring.

Arguments may be literals, variables assigned to literals in an earlier example, dates and
decimals. Calls that do not match the tool's schema are skipped.
"""

import ast
import doctest
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

from toolkiln.model.spec import ToolSpec
from toolkiln.schema.arguments import Checked, check

_MAX_EXAMPLES = 3
_MAX_CHARACTERS = 20_000
_WRAPPERS = ("Decimal", "Path", "UUID", "Fraction")
"""Types whose JSON value is the constructor's only argument."""
_TIMES = {"date": date, "datetime": datetime}


def example_calls(spec: ToolSpec) -> tuple[dict[str, Any], ...]:
    """Return the arguments of the first few example calls of a tool."""
    found: list[dict[str, Any]] = []
    for arguments in _calls(spec):
        if arguments not in found and isinstance(check(spec, arguments), Checked):
            found.append(arguments)
        if len(found) == _MAX_EXAMPLES:
            break
    return tuple(found)


def _calls(spec: ToolSpec) -> Iterator[dict[str, Any]]:
    function, variables = spec.entry.rpartition(".")[2], dict[str, Any]()
    for tree in _trees(spec.documentation.examples[:_MAX_CHARACTERS]):
        for node in ast.walk(tree):
            try:
                match node:
                    case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if (
                        name == function
                    ):
                        yield _arguments(node, spec, variables)
                    case ast.Assign(targets=[ast.Name(id=name)], value=value):
                        variables[name] = _value(value, variables)
            except (ValueError, TypeError, OverflowError, RecursionError):
                continue  # not static


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


def _arguments(call: ast.Call, spec: ToolSpec, variables: dict[str, Any]) -> dict[str, Any]:
    names = list(spec.parameters.get("properties", {}))
    if len(call.args) > len(names):
        raise ValueError
    nodes = dict(zip(names, call.args, strict=False))
    nodes |= {keyword.arg or "": keyword.value for keyword in call.keywords}
    return {name: _value(node, variables) for name, node in nodes.items()}


def _value(node: ast.expr, variables: dict[str, Any]) -> Any:
    """Evaluate an expression to a JSON value; raises ValueError if it is not static."""
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        case ast.Name(id=name) if name in variables:
            return variables[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, variables) for item in items]
        case ast.Dict(keys=keys, values=values):
            names = [_value(key, variables) if key else None for key in keys]
            if not all(isinstance(name, str) for name in names):
                raise ValueError
            return dict(zip(names, (_value(value, variables) for value in values), strict=True))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Call(func=ast.Name(id=name), args=[only], keywords=[]) if name in _WRAPPERS:
            return _value(only, variables)
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in _TIMES:
            numbers = [_value(part, variables) for part in parts]
            if not all(type(number) is int for number in numbers):
                raise ValueError
            return _TIMES[name](*numbers).isoformat()
        case _:
            raise ValueError
