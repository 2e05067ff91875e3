"""A class, what it inherits from, and the fields that come together.

Only what the source shows: a base class from elsewhere makes the whole class `Unresolved`.
"""

import ast
import inspect
from collections.abc import Iterator
from typing import NamedTuple

from toolkiln.spec.annotations.expressions import (
    last_name,
    qualifiers,
    subscript_arguments,
    type_variables,
)
from toolkiln.spec.annotations.shapes import Unresolved
from toolkiln.spec.annotations.values import evaluate_or
from toolkiln.spec.modules import ClassRef, External, Resolved, Scope, resolve

_PLAIN_BASES = {"builtins.object", "typing.Generic", "typing.Protocol", "abc.ABC"}
_MARKED_BASES = {
    "pydantic.BaseModel": "model",
    "pydantic.RootModel": "root",
    "typing.TypedDict": "typed-dict",
    "typing.NamedTuple": "named-tuple",
}
_DATACLASSES = ("dataclasses.dataclass", "pydantic.dataclasses.dataclass")
_HOOKS = {"__get_pydantic_core_schema__", "__get_pydantic_json_schema__"}
_MADE = "__made__"
"""Stands before the base of a class that a functional call made."""
_DEEPEST = 30


class ClassField(NamedTuple):
    """An annotated name in a class body."""

    name: str
    annotation: ast.expr
    assigned: ast.expr | None
    owner: ClassRef
    docstring: str | None

    @property
    def scope(self) -> Scope:
        """Where its annotation is looked up."""
        return self.owner.body_scope

    @property
    def details(self) -> dict[str, ast.expr] | None:
        """The keywords of `dataclasses.field(…)`, if that is what was assigned."""
        if isinstance(self.assigned, ast.Call):
            target = resolve(self.assigned.func, self.scope)
            if target == External("dataclasses.field"):
                return {k.arg: k.value for k in self.assigned.keywords if k.arg}
        return None

    @property
    def default(self) -> ast.expr | None:
        """The default, or the call of pydantic's `Field` that may hold one."""
        details = self.details
        return self.assigned if details is None else details.get("default")

    @property
    def is_required_key(self) -> bool:
        """Whether a TypedDict must have it."""
        marks = qualifiers(self.annotation, self.scope)
        if marks & {"Required", "NotRequired"}:
            return "Required" in marks
        return self.owner_keyword("total") is not False

    def owner_keyword(self, name: str) -> object:
        """What the owner's class statement says for a keyword."""
        given = next((k.value for k in self.owner.node.keywords if k.arg == name), None)
        return evaluate_or(given, self.owner.scope)


class Lineage(NamedTuple):
    """A class with all it inherits from, nearest first, as far as it matters to its type."""

    kind: str
    """`model`, `root`, `dataclass`, `typed-dict` or `named-tuple`."""
    classes: list[ClassRef]
    root: tuple[ast.expr, Scope] | None
    """The argument of `RootModel[…]`."""

    @property
    def node(self) -> ast.ClassDef:
        """The class itself."""
        return self.classes[0].node

    def fields(self) -> list[ClassField]:
        """The fields, oldest first, overridden in place."""
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
        marks = qualifiers(field.annotation, field.scope)
        if "ClassVar" in marks or last_name(field.annotation) == "KW_ONLY":
            return False
        if self.kind == "model":
            constant = "Final" in marks and field.assigned is not None
            return not (constant or field.name == "model_config" or field.name.startswith("_"))
        return field.name != "__pydantic_config__"

    def decorated(self, name: str) -> Iterator[tuple[ast.expr, ast.FunctionDef, Scope]]:
        """The methods under one of pydantic's decorators, oldest first."""
        for owner in reversed(self.classes):
            for node in owner.node.body:
                if isinstance(node, ast.FunctionDef):
                    for decorator in node.decorator_list:
                        called = decorator.func if isinstance(decorator, ast.Call) else decorator
                        if resolve(called, owner.scope) == External(f"pydantic.{name}"):
                            yield decorator, node, owner.body_scope


def trace(reference: ClassRef) -> Lineage:
    """The lineage of a class.

    Raises:
        Unresolved: it is no class that has a schema, or one of its bases is out of sight.
    """
    climb = _Climb()
    climb.visit(reference, 0)
    name = reference.node.name
    if not climb.kinds:
        raise Unresolved(
            name, "it is a plain class; make it a dataclass, a TypedDict or a pydantic model"
        )
    for ancestor in climb.classes:
        if _HOOKS & ancestor.scope.module.class_bindings(ancestor.node).keys():
            raise Unresolved(name, "it writes its own schema in code")
    kind = "root" if "root" in climb.kinds else climb.kinds[0]
    return Lineage(kind, climb.classes, climb.roots[0] if climb.roots else None)


class _Climb:
    """The way up through the base classes."""

    def __init__(self) -> None:
        self.classes: list[ClassRef] = []
        self._known: set[int] = set()
        self.kinds: list[str] = []
        self.roots: list[tuple[ast.expr, Scope]] = []

    def visit(self, reference: ClassRef, depth: int) -> None:
        if depth > _DEEPEST or id(reference.node) in self._known:
            return
        self._known.add(id(reference.node))
        self.classes.append(reference)
        if dataclass_decorator(reference) is not None:
            self.kinds.append("dataclass")
        for base in reference.node.bases:
            self._base(base, reference, depth)

    def _base(self, base: ast.expr, reference: ClassRef, depth: int) -> None:
        arguments = subscript_arguments(base) if isinstance(base, ast.Subscript) else []
        named = base.value if isinstance(base, ast.Subscript) else base
        target = _resolve_base(named, reference.scope)
        if isinstance(target, External):
            kind = _MARKED_BASES.get(target.name)
            if kind is not None:
                self.kinds.append(kind)
                self.roots += [(item, reference.scope) for item in arguments if kind == "root"]
            elif target.name not in _PLAIN_BASES:
                raise Unresolved(target.name)
        elif isinstance(target, ClassRef):
            pairs = [(argument, reference.scope) for argument in arguments]
            variables = dict(zip(type_parameters(target), pairs, strict=False))
            scope = target.scope._replace(variables=variables)
            self.visit(target._replace(scope=scope), depth + 1)
        else:
            raise Unresolved(ast.unparse(base))


def _resolve_base(node: ast.expr, scope: Scope) -> Resolved | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id == _MADE:
            return External(f"typing.{node.attr}")
    return resolve(node, scope)


def type_parameters(reference: ClassRef) -> list[str]:
    """The names that `Class[…]` fills in, in order."""
    declared = [parameter.name for parameter in getattr(reference.node, "type_params", [])]
    if declared:
        return declared
    generic: list[str] = []
    inherited: list[str] = []
    for base in reference.node.bases:
        if isinstance(base, ast.Subscript):
            target = resolve(base.value, reference.scope)
            names = list(type_variables(base.slice, reference.scope))
            if target in (External("typing.Generic"), External("typing.Protocol")):
                generic += names
            else:
                inherited += [name for name in names if name not in inherited]
    return generic or inherited


def dataclass_decorator(reference: ClassRef) -> ast.expr | None:
    """The decorator that makes the class a dataclass, if one does."""
    for decorator in reference.node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        target = resolve(called, reference.scope)
        if isinstance(target, External) and target.name in _DATACLASSES:
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


def functional_class(name: str, call: ast.Call, made: str) -> ast.ClassDef | None:
    """`TypedDict("X", {…})`, `NamedTuple("X", […])`, `namedtuple("X", "a b")` as a class."""
    if len(call.args) < 2:
        return None
    members = call.args[1]
    pairs: list[tuple[ast.expr | None, ast.expr]]
    if made == "typing.TypedDict" and isinstance(members, ast.Dict):
        base, pairs = "TypedDict", list(zip(members.keys, members.values, strict=True))
    elif made == "typing.NamedTuple" and isinstance(members, ast.List | ast.Tuple):
        tuples = [item for item in members.elts if isinstance(item, ast.Tuple)]
        base, pairs = "NamedTuple", [(item.elts[0], item.elts[1]) for item in tuples]
    elif made == "collections.namedtuple":
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
    bases: list[ast.expr] = [ast.Attribute(ast.Name(_MADE, ast.Load()), base, ast.Load())]
    keywords = [k for k in call.keywords if k.arg in ("total", "closed")]
    node = ast.ClassDef(name=name, bases=bases, keywords=keywords, body=body, decorator_list=[])
    return ast.fix_missing_locations(ast.copy_location(node, call))


def _names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.replace(",", " ").split()
    if isinstance(node, ast.List | ast.Tuple):
        return [str(e.value) for e in node.elts if isinstance(e, ast.Constant)]
    return []
