"""Type expressions as syntax: what is inside the brackets, the quotes, the qualifiers."""

import ast
from collections.abc import Iterator
from typing import Any

from toolkiln.spec.annotations.shapes import Unresolved
from toolkiln.spec.annotations.values import Unknown, evaluate
from toolkiln.spec.modules import AliasRef, External, Scope, resolve

_LONGEST_CHAIN = 60
QUALIFIERS = {
    "typing.Required",
    "typing.NotRequired",
    "typing.ReadOnly",
    "typing.Final",
    "typing.ClassVar",
    "dataclasses.InitVar",
}


def peel(node: ast.expr, scope: Scope) -> tuple[ast.expr, Scope, list[tuple[ast.expr, Scope]]]:
    """The type inside `Annotated` and qualifiers, with the metadata around it, inner first."""
    items: list[tuple[ast.expr, Scope]] = []
    for _ in range(_LONGEST_CHAIN):
        node = _unquoted(node)
        if isinstance(node, ast.Name | ast.Attribute):
            if isinstance(node, ast.Name) and node.id in scope.variables:
                node, scope = scope.variables[node.id]
                continue
            target = resolve(node, scope)
            if (
                isinstance(target, AliasRef)
                and target.assigned.type_params is None
                and isinstance(target.assigned.value, ast.Subscript)
                and _is_annotated(target.assigned.value, target.scope)
            ):
                node, scope = target.assigned.value, target.scope
                continue
        if not isinstance(node, ast.Subscript):
            break
        target = resolve(node.value, scope)
        name = target.name if isinstance(target, External) else ""
        arguments = subscript_arguments(node)
        if name == "typing.Annotated" and len(arguments) > 1:
            items[:0] = [(item, scope) for item in arguments[1:]]
        elif name not in QUALIFIERS or not arguments:
            break
        node = arguments[0]
    return node, scope, items


def qualifiers(node: ast.expr, scope: Scope) -> set[str]:
    """The qualifiers around a type: `Required`, `ClassVar`, `InitVar` …"""
    found: set[str] = set()
    for _ in range(_LONGEST_CHAIN):
        node = _unquoted(node)
        owner = node.value if isinstance(node, ast.Subscript) else node
        target = resolve(owner, scope)
        name = target.name if isinstance(target, External) else ""
        if name in QUALIFIERS:
            found.add(name.rpartition(".")[2])
        elif name != "typing.Annotated":
            break
        if not isinstance(node, ast.Subscript):
            break
        node = subscript_arguments(node)[0]
    return found


def union_members(node: ast.expr, scope: Scope, depth: int = 0) -> Iterator[tuple[ast.expr, Scope]]:
    """The alternatives of a union, nested ones and aliases of unions unfolded."""
    if depth > _LONGEST_CHAIN:
        raise Unresolved(ast.unparse(node)[:60], "it is nested too deeply")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from union_members(quoted(node), scope, depth + 1)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from union_members(node.left, scope, depth + 1)
        yield from union_members(node.right, scope, depth + 1)
    elif isinstance(node, ast.Subscript):
        target = resolve(node.value, scope)
        name = target.name if isinstance(target, External) else ""
        if name not in ("typing.Union", "typing.Optional"):
            yield node, scope
            return
        for argument in subscript_arguments(node):
            yield from union_members(argument, scope, depth + 1)
        if name == "typing.Optional":
            yield ast.Constant(None), scope
    elif isinstance(node, ast.Name) and node.id in scope.variables:
        yield from union_members(*scope.variables[node.id], depth + 1)
    elif isinstance(node, ast.Name | ast.Attribute):
        target = resolve(node, scope)
        if (
            isinstance(target, AliasRef)
            and target.assigned.type_params is None
            and isinstance(target.assigned.value, ast.BinOp | ast.Subscript)
        ):
            yield from union_members(target.assigned.value, target.scope, depth + 1)
        elif isinstance(target, External) and target.name == "types.NoneType":
            yield ast.Constant(None), scope
        else:
            yield node, scope
    else:
        yield node, scope


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name, quoted or not; empty for anything else."""
    if isinstance(node, ast.Constant):
        return str(node.value).rpartition(".")[2]
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _unquoted(node: ast.expr) -> ast.expr:
    """The expression inside quotes; the node itself where there are none, or no expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return quoted(node)
        except Unresolved:
            pass
    return node


def quoted(node: ast.Constant) -> ast.expr:
    """The expression inside a quoted annotation."""
    try:
        inner = ast.parse(str(node.value).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unresolved(
            str(node.value)[:60], "the quoted annotation is not an expression"
        ) from error
    for child in ast.walk(inner):
        if isinstance(child, ast.expr):
            child.lineno = node.lineno
    return inner


def subscript_arguments(node: ast.Subscript) -> list[ast.expr]:
    """The arguments between the brackets."""
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def type_variables(node: ast.expr, scope: Scope) -> Iterator[str]:
    """The type variables in an expression, in order of first appearance."""
    seen: set[str] = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and child.id not in seen:
            seen.add(child.id)
            target = resolve(child, scope)
            if isinstance(target, AliasRef) and isinstance(target.assigned.value, ast.Call):
                made = resolve(target.assigned.value.func, target.scope)
                if isinstance(made, External) and made.name == "typing.TypeVar":
                    yield child.id


def _is_annotated(node: ast.Subscript, scope: Scope) -> bool:
    target = resolve(node.value, scope)
    return isinstance(target, External) and target.name == "typing.Annotated"


def is_any(node: ast.expr, scope: Scope) -> bool:
    target = resolve(node, scope)
    return isinstance(target, External) and target.name == "typing.Any"


def is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def literal_values(arguments: list[ast.expr], scope: Scope) -> Iterator[Any]:
    """The values between the brackets of a `Literal`, nested and aliased ones unfolded."""
    for node in arguments:
        target = resolve(node, scope)
        if isinstance(target, AliasRef) and isinstance(target.assigned.value, ast.Subscript):
            inner = subscript_arguments(target.assigned.value)
            yield from literal_values(inner, target.scope)
        elif isinstance(node, ast.Subscript):
            yield from literal_values(subscript_arguments(node), scope)
        else:
            try:
                yield evaluate(node, scope)
            except Unknown as unknown:
                raise Unresolved(ast.unparse(node), "its value is not known") from unknown


def shown(node: ast.expr) -> str:
    """The beginning of an expression; only that, since it may be nested without end."""
    try:
        return ast.unparse(node)[:60]
    except RecursionError:
        return type(node).__name__
