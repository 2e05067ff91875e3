"""Resolution of expressions to dotted names such as `os.path`, for sensitive APIs.

Imports, aliases, assignments, annotations and constant `getattr` calls are followed, but
control flow is ignored: a name may refer to everything that is ever assigned to it. Only names
in `sensitive_apis` are resolved; `capabilities` decides what they mean.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from toolkiln.spec.checks import sensitive_apis
from toolkiln.spec.syntax import last_name, parameters, walk

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_Scope: TypeAlias = _Function | _Comprehension | ast.ClassDef


class BuiltinShadowing:
    """Determines where a file shadows builtins."""

    def __init__(self, nodes: Sequence[ast.AST], builtins: frozenset[str]) -> None:
        binders = [node for node in nodes if node.__class__ in _BINDERS]
        self._bound = {name for node in binders for name in _binds(node) if name in builtins}
        self._owners: dict[int, _Scope] = {}
        self._names: defaultdict[_Scope | None, set[str]] = defaultdict(set)
        if self._bound:
            self._read(nodes)

    def is_shadowed(self, node: ast.Name) -> bool:
        """Return whether a name refers to something other than the builtin."""
        if node.id not in self._bound:
            return False
        innermost = scope = self._owners.get(id(node))
        while scope is not None:
            is_visible = scope is innermost or not isinstance(scope, ast.ClassDef)
            if is_visible and node.id in self._names[scope]:
                return True
            scope = self._owners.get(id(scope))
        return node.id in self._names[None]

    def _read(self, nodes: Sequence[ast.AST]) -> None:
        for scope in nodes:  # outer scopes come first, so inner ones overwrite them
            if isinstance(scope, _Scope):
                for part in _body(scope):
                    self._owners.update((id(node), scope) for node in walk(part))
        unchanged = _self_assigned(nodes)
        for node in nodes:
            if id(node) not in unchanged:
                self._names[self._owners.get(id(node))].update(_binds(node))
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del):
                self._names[self._owners.get(id(node))].discard(node.id)


_BINDERS = {
    *(ast.Name, ast.arg, ast.alias, ast.ExceptHandler, ast.MatchAs),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
}


def _binds(node: ast.AST) -> Iterable[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return (name,)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.alias(name=name, asname=asname):
            return (asname or name.partition(".")[0],)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            return (name,)
    return ()


def _self_assigned(nodes: Sequence[ast.AST]) -> set[int]:
    """Return the targets of assignments such as `open = open`, which shadow nothing."""
    return {
        id(target)
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id == node.value.id
    }


def _body(scope: _Scope) -> Iterator[ast.AST]:
    """Yield the parts of a scope that see its names, which excludes defaults and decorators."""
    if isinstance(scope, _Comprehension):
        yield from walk(scope)[1:]
        return
    if isinstance(scope, _Function):
        arguments = scope.args
        yield from arguments.posonlyargs + arguments.args + arguments.kwonlyargs
        yield from filter(None, (arguments.vararg, arguments.kwarg))
    if isinstance(scope, ast.Lambda):
        yield scope.body
    else:
        yield from scope.body


Groups: TypeAlias = defaultdict[type[ast.AST], list[Any]]
"""The nodes of a file by class."""

_MAX_DEPTH = 40  # longer than any real chain, far below Python's recursion limit
_ROUNDS = 3  # of following assignments: `a = os; b = a; c = b`
_FACTORY_NAMES = {name.rpartition(".")[2] for name in sensitive_apis.FACTORIES} | {
    "getattr",
    "vars",
    "get",
    "__import__",
    "import_module",
}
_TYPING = ("typing", "typing_extensions")


class ModuleNames:
    """Resolves the expressions of one file to dotted names."""

    def __init__(self, nodes: Sequence[ast.AST], groups: Groups) -> None:
        self.targets: dict[str, list[str]] = {}
        """The dotted names that a name, or `name.attribute`, may refer to."""
        self.imports: list[tuple[ast.stmt, str]] = []
        """Every import at run time, with its dotted name."""
        self.builtins = sensitive_apis.BUILTINS.intersection([n.id for n in groups[ast.Name]])
        """Sensitive builtins that the file names."""
        self.roots = set(self.builtins)
        """First names of the chains that can be resolved."""
        self._imported: set[str] = set()
        self._shadowing = BuiltinShadowing(nodes, self.builtins) if self.builtins else None
        self._read_imports(groups)
        if any(node.attr in sensitive_apis.EXPOSED_MODULES for node in groups[ast.Attribute]):
            self.roots |= self._imported
        if self.roots:
            self._read_annotations(groups[ast.arg])
            self._read_assignments(groups)

    def may_resolve(self, node: Any) -> bool:
        """Return whether `resolve` may succeed, by a cheap test of the first name."""
        for _ in range(_MAX_DEPTH):
            cls = node.__class__
            if cls is ast.Name:
                return node.id in self.roots
            if cls is ast.Attribute or cls is ast.Subscript:
                node = node.value
            elif cls is ast.Call:
                node = node.func
            elif cls is ast.BinOp:
                node = node.left
            else:
                return cls is not ast.Constant and cls is not ast.JoinedStr
        return False

    def resolve(self, node: ast.AST, depth: int = _MAX_DEPTH) -> Sequence[str]:
        """Return the dotted names that an expression may refer to, usually none or one."""
        if isinstance(node, ast.Name):
            return self._resolve_name(node)
        if not depth:
            return ()
        if isinstance(node, ast.Attribute):
            return self._resolve_attribute(node, depth - 1)
        if isinstance(node, ast.Call):
            return list(self._results(node, depth - 1))
        match node:
            case ast.Subscript(value=value, slice=key):
                return list(_items(self.resolve(value, depth - 1), constant_string(key)))
            case ast.BinOp(left=left, op=ast.Div()):
                return [name for name in self.resolve(left, depth - 1) if name == "pathlib.Path()"]
            case ast.Await(value=value) | ast.NamedExpr(value=value):
                return self.resolve(value, depth - 1)
            case ast.IfExp(body=body, orelse=orelse):
                return [*self.resolve(body, depth - 1), *self.resolve(orelse, depth - 1)]
            case ast.BoolOp(values=values):
                return [name for value in values for name in self.resolve(value, depth - 1)]
        return ()

    def _resolve_name(self, node: ast.Name) -> Sequence[str]:
        targets = self.targets.get(node.id)
        if targets is not None:
            return targets
        if node.id in self.builtins and self._shadowing and not self._shadowing.is_shadowed(node):
            return (f"builtins.{node.id}",)
        return ()

    def _resolve_attribute(self, node: ast.Attribute, depth: int) -> Sequence[str]:
        if isinstance(node.value, ast.Name):
            targets = self.targets.get(f"{node.value.id}.{node.attr}")  # self.root = Path(…)
            if targets is not None:
                return targets
            if node.value.id in self._imported and node.value.id not in self.targets:
                exposed = sensitive_apis.EXPOSED_MODULES.get(node.attr)
                return (exposed,) if exposed else ()
        return [_member(base, node.attr) for base in self.resolve(node.value, depth)]

    def _results(self, call: ast.Call, depth: int) -> Iterator[str]:
        if isinstance(call.func, ast.Attribute) and call.func.attr not in _FACTORY_NAMES:
            return
        for function in self.resolve(call.func, depth):
            text = constant_string(call.args[0]) if call.args else None
            if function == "builtins.vars" and call.args:
                yield from (f"{base}.__dict__" for base in self.resolve(call.args[0], depth))
            elif function == "builtins.getattr" and len(call.args) > 1:
                if attr := constant_string(call.args[1]):
                    yield from (_member(base, attr) for base in self.resolve(call.args[0], depth))
            elif function == "builtins.__import__" and text:
                yield _canonical(text.partition(".")[0])
            elif function in ("importlib.import_module", "sys.modules.get") and text:
                yield _canonical(text)
            elif function in sensitive_apis.FACTORIES:
                yield sensitive_apis.FACTORIES[function]

    def _read_imports(self, groups: Groups) -> None:
        skipped = _for_type_checkers(groups) if groups[ast.If] else frozenset()
        for node in groups[ast.Import]:
            for alias in node.names:
                first = alias.name.partition(".")[0]
                target = alias.name if alias.asname else first
                self._read_import(node, alias.name, alias.asname or first, target, skipped)
        for node in groups[ast.ImportFrom]:
            if node.level or not node.module:
                continue  # a helper, which is checked separately
            for alias in node.names:
                if alias.name == "*":
                    self.imports.append((node, _canonical(node.module)))
                    self._bind_members(_canonical(node.module))
                else:
                    name = f"{node.module}.{alias.name}"
                    self._read_import(node, name, alias.asname or alias.name, name, skipped)

    def _read_import(
        self, node: ast.stmt, name: str, bound: str, target: str, skipped: frozenset[int]
    ) -> None:
        if name.partition(".")[0] not in sensitive_apis.ROOTS:
            self._imported.add(bound)
            return
        target = _canonical(target)
        if id(node) in skipped:
            if target in sensitive_apis.FACTORIES:  # for annotations such as `path: Path`
                self._bind(bound, target)
            return
        self.imports.append((node, _canonical(name)))
        self._imported.add(bound)
        if target in sensitive_apis.PREFIXES and rule(target) not in sensitive_apis.MODULES:
            self._bind(bound, target)  # not if its import is a use already

    def _bind_members(self, module: str) -> None:
        for name in sensitive_apis.PREFIXES:
            owner, _, member = name.rpartition(".")
            if owner == module:
                self._bind(member, name)

    def _read_annotations(self, arguments: Sequence[ast.arg]) -> None:
        for argument in arguments:
            pending = [argument.annotation]
            while pending:
                annotation = pending.pop()
                if isinstance(annotation, ast.BinOp):
                    pending += [annotation.left, annotation.right]
                elif annotation is not None and self.may_resolve(annotation):
                    for dotted in self.resolve(annotation):
                        if instance := sensitive_apis.FACTORIES.get(dotted):
                            self._bind(argument.arg, instance)

    def _read_assignments(self, groups: Groups) -> None:
        pairs = list(_assignments(groups))
        for _ in range(_ROUNDS):
            before = sum(map(len, self.targets.values()))
            for name, value in pairs:
                if self.may_resolve(value):
                    for dotted in tuple(self.resolve(value)):
                        self._bind(name, dotted)
            if before == sum(map(len, self.targets.values())):
                return

    def _bind(self, name: str, dotted: str) -> None:
        targets = self.targets.setdefault(name, [])
        if dotted not in targets:
            targets.append(dotted)
        self.roots.add(name.partition(".")[0])


@lru_cache(maxsize=4_096)
def rule(dotted: str) -> str | None:
    """Return the key in `sensitive_apis.RULES` that applies to a dotted name."""
    found = None
    end = dotted.find(".")
    while True:
        prefix = dotted if end < 0 else dotted[:end]
        if prefix in sensitive_apis.HARMLESS:
            return None
        if found is None and prefix in sensitive_apis.RULES:
            found = prefix
        if end < 0:
            return found
        end = dotted.find(".", end + 1)


def constant_string(node: ast.AST) -> str | None:
    """Return the value of a string constant or of a concatenation of constants."""
    pieces: list[str] = []
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            pieces.append(part.value)
        elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add):
            pending += [part.right, part.left]
        elif isinstance(part, ast.JoinedStr):
            pending += reversed(part.values)
        elif isinstance(part, ast.FormattedValue) and part.format_spec is None:
            pending.append(part.value)
        else:
            return None
    return "".join(pieces)


def _member(base: str, attr: str) -> str:
    name = f"{base}.{attr}"
    if base == "pathlib.Path()" and attr == "parent":
        return base
    if base == "builtins.__builtins__":
        return f"builtins.{attr}"
    if name in sensitive_apis.RULES or "(" in base:
        return name
    return sensitive_apis.EXPOSED_MODULES.get(attr, name)


def _items(bases: Sequence[str], key: str | None) -> Iterator[str]:
    """Yield what `vars(os)["system"]`, `__builtins__["eval"]` and `sys.modules["os"]` refer to."""
    for base in bases:
        if key is None:
            continue
        if base == "sys.modules":
            yield _canonical(key)
        elif base.endswith("__"):  # __dict__, __builtins__
            yield _member(base.removesuffix(".__dict__"), key)


@lru_cache(maxsize=4_096)
def _canonical(dotted: str) -> str:
    if dotted in sensitive_apis.MODULE_ALIASES:
        return sensitive_apis.MODULE_ALIASES[dotted]
    first, dot, rest = dotted.partition(".")
    return (
        f"{sensitive_apis.MODULE_ALIASES[first]}{dot}{rest}"
        if first in sensitive_apis.MODULE_ALIASES
        else dotted
    )


def _assignments(groups: Groups) -> Iterator[tuple[str, ast.expr]]:
    for node in groups[ast.Assign]:
        for target in node.targets:
            yield from _pairs(target, node.value)
    for node in groups[ast.AnnAssign] + groups[ast.NamedExpr]:
        if node.value is not None:
            yield from _pairs(node.target, node.value)
    for node in groups[ast.withitem]:
        if node.optional_vars is not None:
            yield from _pairs(node.optional_vars, node.context_expr)
    for node in groups[ast.arguments]:
        yield from ((argument.arg, value) for argument, value in parameters(node) if value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(value, ast.Constant):
        return
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        yield f"{target.value.id}.{target.attr}", value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for item, item_value in zip(target.elts, value.elts, strict=False):
            if isinstance(item, ast.Name):
                yield item.id, item_value


def _for_type_checkers(groups: Groups) -> frozenset[int]:
    """Return the imports in `if TYPE_CHECKING:` blocks."""
    branches = [node for node in groups[ast.If] if last_name(node.test) == "TYPE_CHECKING"]
    if not branches or not _is_type_checking_false(groups):
        return frozenset()
    return frozenset(
        id(node)
        for branch in branches
        for statement in branch.body
        for node in walk(statement)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def _is_type_checking_false(groups: Groups) -> bool:
    """Return whether every TYPE_CHECKING of the file is that of `typing`, or set to False."""
    stores = [
        node
        for node in groups[ast.Name] + groups[ast.Attribute]
        if last_name(node) == "TYPE_CHECKING" and isinstance(node.ctx, ast.Store)
    ]
    set_to_false = [
        target
        for node in groups[ast.Assign]
        if isinstance(node.value, ast.Constant) and node.value.value is False
        for target in node.targets
    ]
    origins = [
        node.module
        for node in groups[ast.ImportFrom]
        for alias in node.names
        if "TYPE_CHECKING" in (alias.name, alias.asname)
    ]
    return all(node in set_to_false for node in stores) and all(m in _TYPING for m in origins)
