"""Type expressions as syntax: what is inside the brackets, the quotes, the qualifiers."""

import ast
from collections.abc import Iterator

from toolkiln.spec.annotations.shapes import Unresolved
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
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = quoted(node)
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
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = quoted(node)
            except Unresolved:
                break
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
