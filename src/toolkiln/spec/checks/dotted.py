"""What the names of one file stand for, as dotted names such as `os.path`.

Imports, aliases, assignments, annotations and constant `getattr`s are followed, for the
names in `sensitive` only and without regard to flow: a name stands for everything that
is ever assigned to it. Nothing is judged here; `capabilities` does that.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from toolkiln.spec.checks import sensitive
from toolkiln.spec.checks.scopes import Shadows
from toolkiln.spec.nodes import walk

Groups: TypeAlias = defaultdict[type[ast.AST], list[Any]]
"""The nodes of a file by their class."""

_DEPTH = 40  # longer chains than people write, far from the end of Python's stack
_ROUNDS = 3  # of following assignments: `a = os; b = a; c = b`
_MAKERS = {name.rpartition(".")[2] for name in sensitive.MAKES} | {
    "getattr",
    "vars",
    "get",
    "__import__",
    "import_module",
}
_TYPING = ("typing", "typing_extensions")


class Names:
    """Answers what an expression of one file stands for."""

    def __init__(self, nodes: Sequence[ast.AST], groups: Groups) -> None:
        self.known: dict[str, list[str]] = {}
        """Name, or `name.attribute`, to the dotted names it may stand for."""
        self.imports: list[tuple[ast.stmt, str]] = []
        """Every import that runs, with the dotted name it brings in."""
        self.builtins = sensitive.BUILTINS.intersection([n.id for n in groups[ast.Name]])
        """Builtins worth a second look that the file names."""
        self.roots = set(self.builtins)
        """Names that a chain must begin with to be worth resolving."""
        self._imported: set[str] = set()
        self._shadows = Shadows(nodes, self.builtins) if self.builtins else None
        self._read_imports(groups)
        if any(node.attr in sensitive.EXPOSED for node in groups[ast.Attribute]):
            self.roots |= self._imported
        if self.roots:
            self._read_annotations(groups[ast.arg])
            self._read_assignments(groups)

    def may_know(self, node: Any) -> bool:
        """Whether `resolve` could find something: a cheap look at where a chain begins."""
        for _ in range(_DEPTH):
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

    def resolve(self, node: ast.AST, depth: int = _DEPTH) -> Sequence[str]:
        """The dotted names that an expression may stand for; usually none or one."""
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
                return list(_items(self.resolve(value, depth - 1), fold(key)))
            case ast.BinOp(left=left, op=ast.Div()):
                return [name for name in self.resolve(left, depth - 1) if name == "pathlib.Path()"]
            case ast.Await(value=value) | ast.NamedExpr(value=value):
                return self.resolve(value, depth - 1)
            case ast.IfExp(body=one, orelse=other):
                return [*self.resolve(one, depth - 1), *self.resolve(other, depth - 1)]
            case ast.BoolOp(values=values):
                return [name for value in values for name in self.resolve(value, depth - 1)]
        return ()

    def _resolve_name(self, node: ast.Name) -> Sequence[str]:
        known = self.known.get(node.id)
        if known is not None:
            return known
        if node.id in self.builtins and self._shadows and not self._shadows.hide(node):
            return (f"builtins.{node.id}",)
        return ()

    def _resolve_attribute(self, node: ast.Attribute, depth: int) -> Sequence[str]:
        if isinstance(node.value, ast.Name):
            known = self.known.get(f"{node.value.id}.{node.attr}")  # self.root = Path(…)
            if known is not None:
                return known
            if node.value.id in self._imported and node.value.id not in self.known:
                return (sensitive.EXPOSED[node.attr],) if node.attr in sensitive.EXPOSED else ()
        return [_member(base, node.attr) for base in self.resolve(node.value, depth)]

    def _results(self, call: ast.Call, depth: int) -> Iterator[str]:
        if isinstance(call.func, ast.Attribute) and call.func.attr not in _MAKERS:
            return
        for function in self.resolve(call.func, depth):
            text = fold(call.args[0]) if call.args else None
            if function == "builtins.vars" and call.args:
                yield from (f"{base}.__dict__" for base in self.resolve(call.args[0], depth))
            elif function == "builtins.getattr" and len(call.args) > 1:
                if attr := fold(call.args[1]):
                    yield from (_member(base, attr) for base in self.resolve(call.args[0], depth))
            elif function == "builtins.__import__" and text:
                yield _canonical(text.partition(".")[0])
            elif function in ("importlib.import_module", "sys.modules.get") and text:
                yield _canonical(text)
            elif function in sensitive.MAKES:
                yield sensitive.MAKES[function]

    def _read_imports(self, groups: Groups) -> None:
        skipped = _for_type_checkers(groups) if groups[ast.If] else frozenset()
        for node in groups[ast.Import]:
            for alias in node.names:
                first = alias.name.partition(".")[0]
                target = alias.name if alias.asname else first
                self._read_import(node, alias.name, alias.asname or first, target, skipped)
        for node in groups[ast.ImportFrom]:
            if node.level or not node.module:
                continue  # a neighbour, which is read as a file of its own
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
        if name.partition(".")[0] not in sensitive.ROOTS:
            self._imported.add(bound)
            return
        target = _canonical(target)
        if id(node) in skipped:
            if target in sensitive.MAKES:  # `path: Path` still tells what `path` is
                self._bind(bound, target)
            return
        self.imports.append((node, _canonical(name)))
        self._imported.add(bound)
        if target in sensitive.PREFIXES and rule(target) not in sensitive.MODULES:
            self._bind(bound, target)  # a module whose import is a use need not be followed

    def _bind_members(self, module: str) -> None:
        for name in sensitive.PREFIXES:
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
                elif annotation is not None and self.may_know(annotation):
                    for dotted in self.resolve(annotation):
                        if made := sensitive.MAKES.get(dotted):
                            self._bind(argument.arg, made)

    def _read_assignments(self, groups: Groups) -> None:
        pairs = list(_assignments(groups))
        for _ in range(_ROUNDS):
            before = sum(map(len, self.known.values()))
            for name, value in pairs:
                if self.may_know(value):
                    for dotted in tuple(self.resolve(value)):
                        self._bind(name, dotted)
            if before == sum(map(len, self.known.values())):
                return

    def _bind(self, name: str, dotted: str) -> None:
        known = self.known.setdefault(name, [])
        if dotted not in known:
            known.append(dotted)
        self.roots.add(name.partition(".")[0])


@lru_cache(maxsize=4_096)
def rule(dotted: str) -> str | None:
    """The entry of `sensitive.RULES` that a dotted name falls under."""
    found = None
    end = dotted.find(".")
    while True:
        prefix = dotted if end < 0 else dotted[:end]
        if prefix in sensitive.HARMLESS:
            return None
        if found is None and prefix in sensitive.RULES:
            found = prefix
        if end < 0:
            return found
        end = dotted.find(".", end + 1)


def fold(node: ast.AST) -> str | None:
    """The text of a string constant, also one put together from constants."""
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
    if base == "pathlib.Path()" and attr in sensitive.STAYS:
        return base
    if base == "builtins.__builtins__":
        return f"builtins.{attr}"
    if name in sensitive.RULES or "(" in base:
        return name
    return sensitive.EXPOSED.get(attr, name)


def _items(bases: Sequence[str], key: str | None) -> Iterator[str]:
    """What `vars(os)["system"]`, `__builtins__["eval"]` or `sys.modules["os"]` stand for."""
    for base in bases:
        if key is None:
            continue
        if base == "sys.modules":
            yield _canonical(key)
        elif base.endswith("__"):  # __dict__, __builtins__
            yield _member(base.removesuffix(".__dict__"), key)


@lru_cache(maxsize=4_096)
def _canonical(dotted: str) -> str:
    if dotted in sensitive.SAME:
        return sensitive.SAME[dotted]
    first, dot, rest = dotted.partition(".")
    return f"{sensitive.SAME[first]}{dot}{rest}" if first in sensitive.SAME else dotted


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
        positional = node.posonlyargs + node.args
        defaults = zip(
            positional[len(positional) - len(node.defaults) :] + node.kwonlyargs,
            node.defaults + node.kw_defaults,
            strict=True,
        )
        yield from ((argument.arg, value) for argument, value in defaults if value is not None)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(value, ast.Constant):
        return
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        yield f"{target.value.id}.{target.attr}", value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, other in zip(target.elts, value.elts, strict=False):
            if isinstance(one, ast.Name):
                yield one.id, other


def _for_type_checkers(groups: Groups) -> frozenset[int]:
    """The imports under `if TYPE_CHECKING:`, which never run."""
    branches = [node for node in groups[ast.If] if last_name(node.test) == "TYPE_CHECKING"]
    if not branches or not _is_honest(groups):
        return frozenset()
    return frozenset(
        id(node)
        for branch in branches
        for statement in branch.body
        for node in walk(statement)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def _is_honest(groups: Groups) -> bool:
    """Whether TYPE_CHECKING is typing's own, or False."""
    stores = [
        node
        for node in groups[ast.Name] + groups[ast.Attribute]
        if last_name(node) == "TYPE_CHECKING" and isinstance(node.ctx, ast.Store)
    ]
    falsehoods = [
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
    return all(node in falsehoods for node in stores) and all(m in _TYPING for m in origins)


def last_name(node: ast.AST) -> str | None:
    """`c` of `a.b.c` or of `c`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
