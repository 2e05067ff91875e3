"""Classes with their ancestors and all their fields, own and inherited.

A class with an unknown external base class is `Unresolved`.
"""

import ast
import inspect
from collections.abc import Iterator
from typing import NamedTuple

from toolkiln.spec.annotations.evaluator import try_evaluate
from toolkiln.spec.annotations.expressions import (
    last_name,
    qualifiers,
    subscript_arguments,
    type_variables,
)
from toolkiln.spec.annotations.shapes import Unresolved
from toolkiln.spec.namespace import (
    ClassRef,
    External,
    NameScope,
    Resolved,
    external_name,
    resolve,
)
from toolkiln.spec.syntax import keyword_arguments

_NEUTRAL_BASES = {"builtins.object", "typing.Generic", "typing.Protocol", "abc.ABC"}
_KINDS = {
    "pydantic.BaseModel": "model",
    "pydantic.RootModel": "root",
    "typing.TypedDict": "typed-dict",
    "typing.NamedTuple": "named-tuple",
}
_DATACLASSES = ("dataclasses.dataclass", "pydantic.dataclasses.dataclass")
SCHEMA_HOOKS = {"__get_pydantic_core_schema__", "__get_pydantic_json_schema__"}
"""Methods that compute a schema at run time."""
_FUNCTIONAL = "__functional__"
"""Prefix of the base of a class that was created by a functional call."""
_MAX_DEPTH = 30


class ClassField(NamedTuple):
    """An annotated name in a class body."""

    name: str
    annotation: ast.expr
    assigned: ast.expr | None
    owner: ClassRef
    docstring: str | None

    @property
    def scope(self) -> NameScope:
        """The scope of its annotation."""
        return self.owner.body_scope

    @property
    def details(self) -> dict[str, ast.expr] | None:
        """The keywords of `dataclasses.field(…)`, if that is the assigned value."""
        if isinstance(self.assigned, ast.Call):
            if external_name(self.assigned.func, self.scope) == "dataclasses.field":
                return keyword_arguments(self.assigned)
        return None

    @property
    def default(self) -> ast.expr | None:
        """The default, or a call of pydantic's `Field` that may contain one."""
        details = self.details
        return self.assigned if details is None else details.get("default")

    @property
    def is_required_key(self) -> bool:
        """Whether it is a required key of a TypedDict."""
        found = qualifiers(self.annotation, self.scope)
        if found & {"Required", "NotRequired"}:
            return "Required" in found
        return self.owner_keyword("total") is not False

    def owner_keyword(self, name: str) -> object:
        """Return the value of a keyword in the owner's class statement."""
        return try_evaluate(keyword_arguments(self.owner.node).get(name), self.owner.scope)


class ClassHierarchy(NamedTuple):
    """A class and its ancestors, the class itself first."""

    kind: str
    """`model`, `root`, `dataclass`, `typed-dict` or `named-tuple`."""
    classes: list[ClassRef]
    root: tuple[ast.expr, NameScope] | None
    """The argument of `RootModel[…]`."""

    @property
    def node(self) -> ast.ClassDef:
        """The class itself."""
        return self.classes[0].node

    def fields(self) -> list[ClassField]:
        """Return the fields, inherited ones first; an override keeps its position."""
        found: dict[str, ClassField] = {}
        for owner in reversed(self.classes):
            if self.kind == "dataclass" and dataclass_decorator(owner) is None:
                continue
            for field in _own_fields(owner):
                if self._is_field(field):
                    found[field.name] = field
                elif "ClassVar" in qualifiers(field.annotation, field.scope):
                    found.pop(field.name, None)
        return list(found.values())

    def _is_field(self, field: ClassField) -> bool:
        found = qualifiers(field.annotation, field.scope)
        if "ClassVar" in found or last_name(field.annotation) == "KW_ONLY":
            return False
        if self.kind == "model":
            is_constant = "Final" in found and field.assigned is not None
            return not (is_constant or field.name == "model_config" or field.name.startswith("_"))
        return field.name != "__pydantic_config__"

    def decorated(self, name: str) -> Iterator[tuple[ast.expr, ast.FunctionDef, NameScope]]:
        """Yield the methods with one of pydantic's decorators, inherited ones first."""
        for owner in reversed(self.classes):
            for node in owner.node.body:
                if isinstance(node, ast.FunctionDef):
                    for decorator in node.decorator_list:
                        called = decorator.func if isinstance(decorator, ast.Call) else decorator
                        if external_name(called, owner.scope) == f"pydantic.{name}":
                            yield decorator, node, owner.body_scope


def hierarchy_of(reference: ClassRef) -> ClassHierarchy:
    """Return a class with its ancestors; raise Unresolved if one of its bases is unknown."""
    visitor = _BaseVisitor()
    visitor.visit(reference, 0)
    name = reference.node.name
    if not visitor.kinds:
        names = {n for a in visitor.classes for n in a.scope.module.class_bindings(a.node)}
        is_plain = not reference.node.decorator_list and names.isdisjoint(SCHEMA_HOOKS)
        raise Unresolved(
            name,
            "it is a plain class; make it a dataclass, a TypedDict or a pydantic model",
            is_unpassable=is_plain,
        )
    for ancestor in visitor.classes:
        if SCHEMA_HOOKS & ancestor.scope.module.class_bindings(ancestor.node).keys():
            raise Unresolved(name, "it computes its schema at run time")
    kind = "root" if "root" in visitor.kinds else visitor.kinds[0]
    return ClassHierarchy(kind, visitor.classes, visitor.roots[0] if visitor.roots else None)


class _BaseVisitor:
    def __init__(self) -> None:
        self.classes: list[ClassRef] = []
        self._visited: set[int] = set()
        self.kinds: list[str] = []
        self.roots: list[tuple[ast.expr, NameScope]] = []

    def visit(self, reference: ClassRef, depth: int) -> None:
        if depth > _MAX_DEPTH or id(reference.node) in self._visited:
            return
        self._visited.add(id(reference.node))
        self.classes.append(reference)
        if dataclass_decorator(reference) is not None:
            self.kinds.append("dataclass")
        for base in reference.node.bases:
            self._visit_base(base, reference, depth)

    def _visit_base(self, base: ast.expr, reference: ClassRef, depth: int) -> None:
        arguments = subscript_arguments(base) if isinstance(base, ast.Subscript) else []
        name = base.value if isinstance(base, ast.Subscript) else base
        target = _resolve_base(name, reference.scope)
        if isinstance(target, External):
            kind = _KINDS.get(target.name)
            if kind is not None:
                self.kinds.append(kind)
                self.roots += [(item, reference.scope) for item in arguments if kind == "root"]
            elif target.name not in _NEUTRAL_BASES:
                raise Unresolved(target.name)
        elif isinstance(target, ClassRef):
            pairs = [(argument, reference.scope) for argument in arguments]
            variables = dict(zip(type_parameters(target), pairs, strict=False))
            scope = target.scope._replace(variables=variables)
            self.visit(target._replace(scope=scope), depth + 1)
        else:
            raise Unresolved(ast.unparse(base))


def _resolve_base(node: ast.expr, scope: NameScope) -> Resolved | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id == _FUNCTIONAL:
            return External(f"typing.{node.attr}")
    return resolve(node, scope)


def type_parameters(reference: ClassRef) -> list[str]:
    """Return the type parameters of a generic class, in order."""
    declared = [parameter.name for parameter in getattr(reference.node, "type_params", [])]
    if declared:
        return declared
    generic: list[str] = []
    inherited: list[str] = []
    for base in reference.node.bases:
        if isinstance(base, ast.Subscript):
            names = list(type_variables(base.slice, reference.scope))
            if external_name(base.value, reference.scope) in ("typing.Generic", "typing.Protocol"):
                generic += names
            else:
                inherited += [name for name in names if name not in inherited]
    return generic or inherited


def dataclass_decorator(reference: ClassRef) -> ast.expr | None:
    """Return the decorator that makes a class a dataclass, if it has one."""
    for decorator in reference.node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if external_name(called, reference.scope) in _DATACLASSES:
            return decorator
    return None


def _own_fields(owner: ClassRef) -> Iterator[ClassField]:
    body = owner.node.body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = None
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                if isinstance(following.value.value, str):
                    text = inspect.cleandoc(following.value.value)
            yield ClassField(node.target.id, node.annotation, node.value, owner, text)


def functional_class(name: str, call: ast.Call, function: str) -> ast.ClassDef | None:
    """Convert `TypedDict("X", {…})`, `NamedTuple("X", […])` or `namedtuple("X", "a b")` to a class.

    Return None for any other call.
    """
    if len(call.args) < 2:
        return None
    members = call.args[1]
    pairs: list[tuple[ast.expr | None, ast.expr]]
    if function == "typing.TypedDict" and isinstance(members, ast.Dict):
        base, pairs = "TypedDict", list(zip(members.keys, members.values, strict=True))
    elif function == "typing.NamedTuple" and isinstance(members, ast.List | ast.Tuple):
        tuples = [item for item in members.elts if isinstance(item, ast.Tuple)]
        base, pairs = "NamedTuple", [(item.elts[0], item.elts[1]) for item in tuples]
    elif function == "collections.namedtuple":
        anything = ast.Name("object", ast.Load())
        base, pairs = "NamedTuple", [(ast.Constant(item), anything) for item in _names(members)]
    else:
        return None
    defaults: list[ast.expr | None] = [None] * len(pairs)
    for keyword in call.keywords:
        if keyword.arg == "defaults" and isinstance(keyword.value, ast.List | ast.Tuple):
            defaults[len(pairs) - len(keyword.value.elts) :] = keyword.value.elts
    body: list[ast.stmt] = [
        ast.AnnAssign(ast.Name(str(key.value), ast.Store()), annotation, default, 1)
        for (key, annotation), default in zip(pairs, defaults, strict=True)
        if isinstance(key, ast.Constant)
    ]
    if len(body) < len(pairs):
        return None
    bases: list[ast.expr] = [ast.Attribute(ast.Name(_FUNCTIONAL, ast.Load()), base, ast.Load())]
    keywords = [k for k in call.keywords if k.arg in ("total", "closed")]
    node = ast.ClassDef(name=name, bases=bases, keywords=keywords, body=body, decorator_list=[])
    return ast.fix_missing_locations(ast.copy_location(node, call))


def _names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.replace(",", " ").split()
    if isinstance(node, ast.List | ast.Tuple):
        return [str(e.value) for e in node.elts if isinstance(e, ast.Constant)]
    return []
