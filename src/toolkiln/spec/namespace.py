"""Name resolution across a tool file and its helpers.

`Module` is a parsed file with its top-level bindings. `resolve` follows a dotted name
through bindings, imports and helper modules to a class, an assignment, a function or an
external name, and returns None rather than guess. `local_imports` finds the helper
modules; `annotations` interprets classes and aliases as types.
"""

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from toolkiln.spec.limits import WorkBudget
from toolkiln.spec.syntax import assigned_names

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Import(NamedTuple):
    """A name bound by `from module import attribute`, or by `import module`."""

    module: str
    attribute: str | None
    level: int
    line: int


class Assignment(NamedTuple):
    """A name bound to the value of an expression."""

    value: ast.expr
    type_params: tuple[str, ...] | None = None
    """Set for a `type` statement, which becomes a definition in pydantic's schemas."""


Binding = Import | Assignment | ast.ClassDef | Function


class External(NamedTuple):
    """A name from outside the tool's folder, as a canonical dotted path."""

    name: str


class ClassRef(NamedTuple):
    """A class defined in the tool file or a helper."""

    node: ast.ClassDef
    scope: "NameScope"
    """The scope of the definition, not of the class body."""

    @property
    def qualname(self) -> str:
        return ".".join([*(c.name for c in self.scope.classes), self.node.name])

    @property
    def body_scope(self) -> "NameScope":
        return self.scope._replace(classes=(*self.scope.classes, self.node))


class AliasRef(NamedTuple):
    """An assignment in the tool file or a helper."""

    name: str
    assigned: Assignment
    scope: "NameScope"


class FunctionRef(NamedTuple):
    """A function defined in the tool file or a helper."""

    node: Function
    scope: "NameScope"


class ModuleRef(NamedTuple):
    """A helper module."""

    module: "Module"


Resolved = External | ClassRef | AliasRef | FunctionRef | ModuleRef


class Loader(Protocol):
    """Loads helper modules."""

    budget: WorkBudget

    def helper(self, importer: "Module", name: str, level: int) -> "Module | None": ...


class Module:
    """A parsed file with its top-level bindings."""

    def __init__(
        self,
        tree: ast.Module,
        name: str,
        loader: Loader,
        *,
        source: str = "",
        path: str | None = None,
        is_package: bool = False,
    ) -> None:
        self.tree = tree
        self.name = name
        self.source = source
        self.path = path
        """The file of a helper; None for the tool file."""
        self.loader = loader
        self.budget = loader.budget
        self.is_package = is_package
        self.is_visited = False
        """Whether the helpers it imports have been loaded."""
        self.statements = list(_ranked(tree.body))
        """Top-level statements with ranks."""
        self.bindings: dict[str, Binding] = {}
        self.stars: list[Import] = []
        _bind(self.statements, self.bindings, self.stars)
        self.resolved: dict[str, Resolved | None] = {}
        """Cache of resolved top-level names."""
        self.enum_members: dict[ast.ClassDef, dict[str, Any] | None] = {}
        """Cache of enum members."""
        self.lineages: dict[ast.ClassDef, list[Any]] = {}
        """Cache of the bases of classes, for `class_attributes`."""
        self._class_bindings: dict[ast.ClassDef, dict[str, Binding]] = {}

    @cached_property
    def functions(self) -> list[Function]:
        """Top-level functions, without those in TYPE_CHECKING blocks."""
        return [node for node, rank in self.statements if rank and isinstance(node, Function)]

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """Top-level classes, without those in TYPE_CHECKING blocks."""
        return [node for node, rank in self.statements if rank and isinstance(node, ast.ClassDef)]

    def class_bindings(self, node: ast.ClassDef) -> dict[str, Binding]:
        """Return the names that a class body binds."""
        found = self._class_bindings.get(node)
        if found is None:
            found = self._class_bindings[node] = {}
            _bind(_ranked(node.body), found, [])
        return found


class NameScope(NamedTuple):
    """The scope of an expression: its module, enclosing classes, and bound type variables."""

    module: Module
    classes: tuple[ast.ClassDef, ...] = ()
    variables: "dict[str, tuple[ast.expr, NameScope]]" = {}  # noqa: RUF012 - never changed in place


def _ranked(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, int]]:
    """Yield the statements of a body with ranks; a binding with a higher rank wins.

    2 is unconditional or a first branch, 1 an alternative (`else`, `except`), 0 a
    TYPE_CHECKING block. Branches that this interpreter never takes are skipped.
    """
    for node in body:
        if isinstance(node, ast.If):
            yield from _branches(node)
        elif isinstance(node, ast.Try | ast.TryStar):
            yield from _ranked(node.body)
            for handler in node.handlers:
                yield from ((inner, min(rank, 1)) for inner, rank in _ranked(handler.body))
            yield from _ranked(node.orelse)
            yield from _ranked(node.finalbody)
        elif isinstance(node, ast.With):
            yield from _ranked(node.body)
        else:
            yield node, 2


def _branches(node: ast.If) -> Iterator[tuple[ast.stmt, int]]:
    outcome = _outcome(node.test)
    if outcome == "type checking":
        yield from ((inner, 0) for inner, _ in _ranked(node.body))
        yield from _ranked(node.orelse)
        return
    if outcome is not False:
        yield from _ranked(node.body)
    if outcome is not True:
        yield from ((inner, min(rank, 1)) for inner, rank in _ranked(node.orelse))


def _outcome(test: ast.expr) -> bool | str | None:
    """Return what a condition evaluates to, "type checking", or None if unknown."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return "type checking"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _outcome(operand)
            return not inner if isinstance(inner, bool) else None
        case ast.Compare(
            left=ast.Attribute(value=ast.Name(id="sys"), attr="version_info"),
            ops=[ast.GtE() | ast.Lt() as operator],
            comparators=[ast.Tuple(elts=parts)],
        ) if all(isinstance(part, ast.Constant) for part in parts):
            version = tuple(part.value for part in parts if isinstance(part, ast.Constant))
            newer = sys.version_info >= version
            return newer if isinstance(operator, ast.GtE) else not newer
        case ast.Compare(left=ast.Name(id="__name__")):
            return False
    return None


def _bind(
    statements: Iterable[tuple[ast.stmt, int]], bindings: dict[str, Binding], stars: list[Import]
) -> None:
    """Record what statements bind; later bindings of the same rank win."""
    ranks: dict[str, int] = {}
    for node, rank in statements:
        for name, binding in _bindings(node, stars):
            if rank >= ranks.get(name, 0):
                ranks[name] = rank
                bindings[name] = binding


def _bindings(node: ast.stmt, stars: list[Import]) -> Iterator[tuple[str, Binding]]:
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        for alias in node.names:
            binding = Import(module, alias.name, node.level, node.lineno)
            if alias.name == "*":
                stars.append(binding)
            else:
                yield alias.asname or alias.name, binding
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                yield alias.asname, Import(alias.name, None, 0, node.lineno)
            else:
                top = alias.name.partition(".")[0]
                yield top, Import(top, None, 0, node.lineno)
    elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name, node
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for name, value in assigned_names(node):
            yield name, Assignment(value)
    elif node.__class__.__name__ == "TypeAlias":  # 3.12 and later
        name = node.name.id  # type: ignore[attr-defined]
        params = tuple(p.name for p in node.type_params)  # type: ignore[attr-defined]
        yield name, Assignment(node.value, params)  # type: ignore[attr-defined]


_CANONICAL_MODULES = {
    "typing_extensions": "typing",
    "pydantic.types": "pydantic",
    "pydantic.networks": "pydantic",
    "pydantic.fields": "pydantic",
    "pydantic.main": "pydantic",
    "pydantic.root_model": "pydantic",
    "pydantic.config": "pydantic",
    "pydantic.functional_validators": "pydantic",
    "pydantic.functional_serializers": "pydantic",
    "pydantic.aliases": "pydantic",
}
_STAR_MODULES = {"typing", "pydantic", "datetime", "enum", "decimal", "uuid", "pathlib"}
_BUILTINS = frozenset(vars(builtins))
_MAX_CHAIN = 20


def resolve(node: ast.expr, scope: NameScope) -> Resolved | None:
    """Return what a (dotted) name refers to, or None if unknown.

    Simple aliases (`Color = colours.Color`) are followed.
    """
    scope.module.budget.spend()
    found = _resolve_once(node, scope)
    for _ in range(_MAX_CHAIN):
        if not isinstance(found, AliasRef) or found.assigned.type_params is not None:
            break
        value = found.assigned.value
        if not isinstance(value, ast.Name | ast.Attribute):
            break
        target = _resolve_once(value, found.scope)
        if target is None:
            break
        found = target
    return found


def external_name(node: ast.expr, scope: NameScope) -> str:
    """Return the dotted path of an external name, or "" if it is anything else."""
    target = resolve(node, scope)
    return target.name if isinstance(target, External) else ""


def _canonical(name: str) -> External:
    """Return a dotted name with re-exports mapped to the module that documents them."""
    module, _, attribute = name.rpartition(".")
    return External(
        f"{_CANONICAL_MODULES[module]}.{attribute}" if module in _CANONICAL_MODULES else name
    )


def _resolve_once(node: ast.expr, scope: NameScope) -> Resolved | None:
    if isinstance(node, ast.Name):
        return _lookup(node.id, scope)
    if not isinstance(node, ast.Attribute):
        return None
    owner = resolve(node.value, scope)
    if isinstance(owner, External):
        return _canonical(f"{owner.name}.{node.attr}")
    if isinstance(owner, ModuleRef):
        return _lookup_in_module(node.attr, owner.module)
    if isinstance(owner, ClassRef):
        binding = owner.scope.module.class_bindings(owner.node).get(node.attr)
        return None if binding is None else _follow(node.attr, binding, owner.body_scope)
    return None


def _lookup(name: str, scope: NameScope) -> Resolved | None:
    """Look a bare name up in the enclosing classes, the module, then builtins."""
    for depth in range(len(scope.classes), 0, -1):
        binding = scope.module.class_bindings(scope.classes[depth - 1]).get(name)
        if binding is not None:
            return _follow(name, binding, scope._replace(classes=scope.classes[:depth]))
    resolved = scope.module.resolved
    if name not in resolved:
        found = _lookup_in_module(name, scope.module)
        if found is None and name in _BUILTINS:
            found = External(f"builtins.{name}")
        resolved[name] = found
    return resolved[name]


def _lookup_in_module(
    name: str, module: Module, seen: frozenset[tuple[str, str]] = frozenset()
) -> Resolved | None:
    """Look a name up at the top level of a module, following re-exports."""
    if (module.name, name) in seen:
        return None
    seen |= {(module.name, name)}
    binding = module.bindings.get(name)
    if binding is not None:
        return _follow(name, binding, NameScope(module), seen)
    for star in module.stars:
        helper = _helper(module, star)
        if helper is not None:
            found = _lookup_in_module(name, helper, seen)
            if found is not None:
                return found
        elif star.level == 0 and _CANONICAL_MODULES.get(star.module, star.module) in _STAR_MODULES:
            if hasattr(sys.modules.get(star.module), name) or star.module == "typing_extensions":
                return _canonical(f"{star.module}.{name}")
    if module.is_package:
        submodule = module.loader.helper(module, name, 1)
        if submodule is not None:
            return ModuleRef(submodule)
    return None


def _follow(
    name: str, binding: Binding, scope: NameScope, seen: frozenset[tuple[str, str]] = frozenset()
) -> Resolved | None:
    if isinstance(binding, Import):
        return _follow_import(binding, scope.module, seen)
    if isinstance(binding, Assignment):
        return AliasRef(name, binding, scope)
    if isinstance(binding, ast.ClassDef):
        return ClassRef(binding, scope)
    return FunctionRef(binding, scope)


def _follow_import(
    binding: Import, importer: Module, seen: frozenset[tuple[str, str]]
) -> Resolved | None:
    helper = _helper(importer, binding)
    if binding.attribute is None:
        return ModuleRef(helper) if helper is not None else External(binding.module)
    if helper is not None:
        return _lookup_in_module(binding.attribute, helper, seen)
    if binding.level:
        sibling = binding._replace(module=binding.attribute)
        module = None if binding.module else _helper(importer, sibling)
        return ModuleRef(module) if module is not None else None
    return _canonical(f"{binding.module}.{binding.attribute}")


def _helper(importer: Module, binding: Import) -> Module | None:
    return importer.loader.helper(importer, binding.module, binding.level)
