"""Classes as static values: their local ancestry, and the attributes that they set or inherit.

A class whose base is imported from elsewhere is recognised by the name of that base. Values
that are only known at run time are reported, not guessed.
"""

import ast
from collections.abc import Callable, Iterator
from typing import Any

from toolkiln.spec.annotations.evaluator import Unknown, evaluate
from toolkiln.spec.findings import Findings
from toolkiln.spec.namespace import ClassRef, Function, resolve
from toolkiln.spec.options import Base, bases, methods, report_unknown
from toolkiln.spec.syntax import last_name

_MAX_DEPTH = 20


def ancestry(reference: ClassRef, is_base: Callable[[str, str], bool]) -> list[ClassRef]:
    """Return a class and its local ancestors up to a base, or [] if it has no such base.

    `is_base` gets the last part of a base's name, and its dotted origin if it is imported.
    """
    lineages = reference.scope.module.lineages
    if reference.node not in lineages:
        lineages[reference.node] = list(_lineages(reference, set(), 0))
    found = (chain for chain, base in lineages[reference.node] if is_base(base.name, base.origin))
    return next(found, [])


def _lineages(
    reference: ClassRef, seen: set[ast.ClassDef], depth: int
) -> Iterator[tuple[list[ClassRef], Base]]:
    """Yield the bases of a class and of its local ancestors, each with the classes below it."""
    seen.add(reference.node)
    for base in bases(reference.node, reference.scope):
        yield [reference], base
        target = resolve(base.node, reference.scope)
        if isinstance(target, ClassRef) and target.node not in seen and depth < _MAX_DEPTH:
            for chain, further in _lineages(target, seen, depth + 1):
                yield [reference, *chain], further


def method_of(chain: list[ClassRef], name: str) -> tuple[Function, ClassRef] | None:
    """Return the method that instances of a class have, and the class that defines it."""
    for reference in chain:
        for method in methods(reference.node):
            if method.name == name:
                return method, reference
    return None


class ClassAttributes:
    """Static attributes of a class, its own before inherited ones."""

    def __init__(self, chain: list[ClassRef], findings: Findings) -> None:
        self._chain = chain
        self._findings = findings

    def text(self, name: str) -> str | None:
        """Return a text that is not blank."""
        value = self.value(name)
        return value if isinstance(value, str) and value.strip() else None

    def value(self, name: str) -> Any:
        """Return a value; None if it is missing or unknown, which is reported."""
        for reference in self._chain:
            node = attribute_of(reference.node, name)
            if node is not None:
                return self._evaluated(name, node, reference)
        return None

    def _evaluated(self, name: str, node: ast.expr, reference: ClassRef) -> Any:
        if is_self(node):
            assert isinstance(node, ast.Attribute)
            return self.value(node.attr) if node.attr != name else None
        try:
            return evaluate(field_default(node), reference.body_scope)
        except Unknown:
            if isinstance(node, ast.Attribute):  # SemanticType.FILE of an external library
                return node.attr.lower()
            report_unknown(name, node, self._chain[0].node.name, self._findings)
            return None


def attribute_of(node: ast.ClassDef, name: str) -> ast.expr | None:
    """Return the value of an attribute set in the class body, in `__init__` or by a property."""
    for child in node.body:
        if isinstance(child, ast.Assign):
            if any(isinstance(t, ast.Name) and t.id == name for t in child.targets):
                return child.value
        elif isinstance(child, ast.AnnAssign):
            if isinstance(child.target, ast.Name) and child.target.id == name:
                return child.value
        elif isinstance(child, ast.FunctionDef) and child.name == name:
            last = child.body[-1]
            return last.value if isinstance(last, ast.Return) else None
        elif isinstance(child, ast.FunctionDef) and child.name == "__init__":
            for inner in child.body:
                if isinstance(inner, ast.Assign) and any(
                    is_self(t) and isinstance(t, ast.Attribute) and t.attr == name
                    for t in inner.targets
                ):
                    return inner.value
    return None


def field_default(node: ast.expr) -> ast.expr:
    """Return the default in a call of pydantic's `Field`; any other expression unchanged."""
    if not isinstance(node, ast.Call) or last_name(node.func) != "Field":
        return node
    defaults = [keyword.value for keyword in node.keywords if keyword.arg == "default"]
    return next(iter([*node.args, *defaults]), node)


def is_self(node: ast.expr) -> bool:
    """Return whether an expression is an attribute of `self`."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    )


def defines(reference: ClassRef, name: str) -> bool:
    """Return whether a class or any local ancestor, mixins included, has a member."""
    pending, seen = [reference], set[ast.ClassDef]()
    while pending:
        node, scope = pending.pop()
        if name in scope.module.class_bindings(node):
            return True
        if node not in seen:
            seen.add(node)
            bases = (resolve(base, scope) for base in node.bases)
            pending += [target for target in bases if isinstance(target, ClassRef)]
    return False
