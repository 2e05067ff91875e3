"""What a file's top level binds, and what a name in it stands for.

`Module` is one parsed file. `resolve` follows a dotted name through bindings, imports
and helper modules to a class, an assignment, a function, or a name from elsewhere. It
never guesses: a name that cannot be followed is None. Which files are helpers is
`neighbours`' business; what a class or an alias means as a type is `annotations`'.
"""

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from toolkiln.spec.work import Work

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Import(NamedTuple):
    """A name bound by an import: `from module import attribute`, or the module itself."""

    module: str
    attribute: str | None
    level: int
    line: int


class Assigned(NamedTuple):
    """A name bound to the value of an expression."""

    value: ast.expr
    type_params: tuple[str, ...] | None = None
    """Set for a `type` statement, which pydantic keeps as a definition of its own."""


Bound = Import | Assigned | ast.ClassDef | Function


class External(NamedTuple):
    """A name from outside the tools folder, by its canonical dotted path."""

    name: str


class ClassRef(NamedTuple):
    """A class whose source we have."""

    node: ast.ClassDef
    scope: "Scope"
    """Where it is defined, not its own body."""

    @property
    def qualname(self) -> str:
        return ".".join([*(c.name for c in self.scope.classes), self.node.name])

    @property
    def body_scope(self) -> "Scope":
        return self.scope._replace(classes=(*self.scope.classes, self.node))


class AliasRef(NamedTuple):
    """An assignment whose source we have."""

    name: str
    assigned: Assigned
    scope: "Scope"


class FunctionRef(NamedTuple):
    """A function whose source we have."""

    node: Function
    scope: "Scope"


class ModuleRef(NamedTuple):
    """A helper module."""

    module: "Module"


Resolved = External | ClassRef | AliasRef | FunctionRef | ModuleRef


class Loader(Protocol):
    """Finds the helper module that an import names."""

    work: Work

    def helper(self, importer: "Module", name: str, level: int) -> "Module | None": ...


class Module:
    """One parsed file and what its top level binds."""

    def __init__(
        self,
        tree: ast.Module,
        name: str,
        loader: Loader | None = None,
        *,
        source: str = "",
        path: str | None = None,
        is_package: bool = False,
    ) -> None:
        self.tree = tree
        self.name = name
        self.source = source
        self.path = path
        """Of a helper; None for the file that is being read."""
        self.loader = loader
        self.work = Work() if loader is None else loader.work
        """Shared by the file that is being read and its helpers."""
        self.is_package = is_package
        self.is_closed = False
        """Whether what it imports has been opened too."""
        self.statements = list(statements(tree.body))
        """What runs at the top level, with ranks."""
        self.bindings: dict[str, Bound] = {}
        self.stars: list[Import] = []
        bind(self.statements, self.bindings, self.stars)
        self.resolved: dict[str, Resolved | None] = {}
        """What names of the top level turned out to be, so that each is followed once."""
        self.enum_members: dict[ast.ClassDef, dict[str, Any] | None] = {}
        """The members of its enums, so that each class is read once."""
        self._class_bindings: dict[ast.ClassDef, dict[str, Bound]] = {}

    @cached_property
    def functions(self) -> list[Function]:
        """The functions of the top level, those only a type checker sees left out."""
        return [
            node
            for node, rank in self.statements
            if rank and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """The classes of the top level, those only a type checker sees left out."""
        return [node for node, rank in self.statements if rank and isinstance(node, ast.ClassDef)]

    def class_bindings(self, node: ast.ClassDef) -> dict[str, Bound]:
        """What the body of a class binds."""
        found = self._class_bindings.get(node)
        if found is None:
            found = self._class_bindings[node] = {}
            bind(statements(node.body), found, [])
        return found


class Scope(NamedTuple):
    """Where an expression stands: a module, the classes around it, type variables given."""

    module: Module
    classes: tuple[ast.ClassDef, ...] = ()
    variables: "dict[str, tuple[ast.expr, Scope]]" = {}  # noqa: RUF012 - never changed in place


def statements(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, int]]:
    """The statements that run at this level, with a rank: higher ones win a name.

    2 is unconditional or the first branch, 1 an alternative (`else`, `except`), 0 what
    only a type checker sees. Branches that this interpreter never takes are left out.
    """
    for node in body:
        if isinstance(node, ast.If):
            yield from _branches(node)
        elif isinstance(node, ast.Try | ast.TryStar):
            yield from statements(node.body)
            for handler in node.handlers:
                yield from ((inner, min(rank, 1)) for inner, rank in statements(handler.body))
            yield from statements(node.orelse)
            yield from statements(node.finalbody)
        elif isinstance(node, ast.With):
            yield from statements(node.body)
        else:
            yield node, 2


def _branches(node: ast.If) -> Iterator[tuple[ast.stmt, int]]:
    verdict = _verdict(node.test)
    if verdict == "type checking":
        yield from ((inner, 0) for inner, _ in statements(node.body))
        yield from statements(node.orelse)
        return
    if verdict is not False:
        yield from statements(node.body)
    if verdict is not True:
        yield from ((inner, min(rank, 1)) for inner, rank in statements(node.orelse))


def _verdict(test: ast.expr) -> bool | str | None:
    """What is known of a condition: its truth, that only type checkers enter, or nothing."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return "type checking"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _verdict(operand)
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


def bind(
    ranked: Iterable[tuple[ast.stmt, int]], into: dict[str, Bound], stars: list[Import]
) -> None:
    """Record what statements bind; later bindings of the same rank win."""
    ranks: dict[str, int] = {}
    for node, rank in ranked:
        for name, bound in _bound_by(node, stars):
            if rank >= ranks.get(name, 0):
                ranks[name] = rank
                into[name] = bound


def _bound_by(node: ast.stmt, stars: list[Import]) -> Iterator[tuple[str, Bound]]:
    kind = node.__class__
    if kind is ast.ImportFrom:
        assert isinstance(node, ast.ImportFrom)
        module = node.module or ""
        for alias in node.names:
            bound = Import(module, alias.name, node.level, node.lineno)
            if alias.name == "*":
                stars.append(bound)
            else:
                yield alias.asname or alias.name, bound
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                yield alias.asname, Import(alias.name, None, 0, node.lineno)
            else:
                top = alias.name.partition(".")[0]
                yield top, Import(top, None, 0, node.lineno)
    elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name, node
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, Assigned(node.value)
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for item, value in zip(target.elts, node.value.elts, strict=False):
                    if isinstance(item, ast.Name):
                        yield item.id, Assigned(value)
    elif isinstance(node, ast.AnnAssign):
        if isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, Assigned(node.value)
    elif kind.__name__ == "TypeAlias":  # 3.12 and later
        name = node.name.id  # type: ignore[attr-defined]
        params = tuple(p.name for p in node.type_params)  # type: ignore[attr-defined]
        yield name, Assigned(node.value, params)  # type: ignore[attr-defined]


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


def canonical(name: str) -> External:
    """A dotted name with re-exports folded into the module that documents them."""
    module, _, attribute = name.rpartition(".")
    return External(
        f"{_CANONICAL_MODULES[module]}.{attribute}" if module in _CANONICAL_MODULES else name
    )


_LONGEST_CHAIN = 20


def resolve(node: ast.expr, scope: Scope) -> Resolved | None:
    """What a (dotted) name stands for, or None if that cannot be known.

    Plain renamings (`Color = colours.Color`) are followed to their end.
    """
    scope.module.work.spend()
    found = _resolve_once(node, scope)
    for _ in range(_LONGEST_CHAIN):
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


def _resolve_once(node: ast.expr, scope: Scope) -> Resolved | None:
    if isinstance(node, ast.Name):
        return lookup(node.id, scope)
    if not isinstance(node, ast.Attribute):
        return None
    owner = resolve(node.value, scope)
    if isinstance(owner, External):
        return canonical(f"{owner.name}.{node.attr}")
    if isinstance(owner, ModuleRef):
        return lookup_in_module(node.attr, owner.module)
    if isinstance(owner, ClassRef):
        bound = owner.scope.module.class_bindings(owner.node).get(node.attr)
        return None if bound is None else _follow(node.attr, bound, owner.body_scope)
    return None


def lookup(name: str, scope: Scope) -> Resolved | None:
    """What a bare name stands for at `scope`: class bodies, then the module, then builtins."""
    for depth in range(len(scope.classes), 0, -1):
        bound = scope.module.class_bindings(scope.classes[depth - 1]).get(name)
        if bound is not None:
            return _follow(name, bound, scope._replace(classes=scope.classes[:depth]))
    resolved = scope.module.resolved
    if name not in resolved:
        found = lookup_in_module(name, scope.module)
        if found is None and name in _BUILTINS:
            found = External(f"builtins.{name}")
        resolved[name] = found
    return resolved[name]


def lookup_in_module(
    name: str, module: Module, seen: frozenset[tuple[str, str]] = frozenset()
) -> Resolved | None:
    """What `name` stands for at the top level of `module`, through re-exports too."""
    if (module.name, name) in seen:
        return None
    seen |= {(module.name, name)}
    bound = module.bindings.get(name)
    if bound is not None:
        return _follow(name, bound, Scope(module), seen)
    for star in module.stars:
        helper = _helper(module, star)
        if helper is not None:
            found = lookup_in_module(name, helper, seen)
            if found is not None:
                return found
        elif star.level == 0 and _CANONICAL_MODULES.get(star.module, star.module) in _STAR_MODULES:
            if hasattr(sys.modules.get(star.module), name) or star.module in ("typing_extensions",):
                return canonical(f"{star.module}.{name}")
    if module.is_package and module.loader is not None:
        submodule = module.loader.helper(module, name, 1)
        if submodule is not None:
            return ModuleRef(submodule)
    return None


def _follow(
    name: str, bound: Bound, scope: Scope, seen: frozenset[tuple[str, str]] = frozenset()
) -> Resolved | None:
    if isinstance(bound, Import):
        return _imported(bound, scope.module, seen)
    if isinstance(bound, Assigned):
        return AliasRef(name, bound, scope)
    if isinstance(bound, ast.ClassDef):
        return ClassRef(bound, scope)
    return FunctionRef(bound, scope)


def _imported(bound: Import, importer: Module, seen: frozenset[tuple[str, str]]) -> Resolved | None:
    helper = _helper(importer, bound)
    if bound.attribute is None:
        return ModuleRef(helper) if helper is not None else External(bound.module)
    if helper is not None:
        return lookup_in_module(bound.attribute, helper, seen)
    if bound.level:
        sibling = bound._replace(module=bound.attribute)
        module = None if bound.module else _helper(importer, sibling)
        return ModuleRef(module) if module is not None else None
    return canonical(f"{bound.module}.{bound.attribute}")


def _helper(importer: Module, bound: Import) -> Module | None:
    if importer.loader is None:
        return None
    return importer.loader.helper(importer, bound.module, bound.level)
