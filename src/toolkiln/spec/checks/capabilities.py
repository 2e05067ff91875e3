"""What a file can touch beyond its arguments, read off its syntax tree.

Names are followed through imports and aliases, so that `from os import system as s` and
a method called `system` are told apart. This is a report for people, not a guard: code
that wants to hide can, and the sandbox is what holds it. `sensitive` has the tables,
`dotted` knows what names stand for, `scopes` which builtins a file redefines.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from toolkiln.model import Capability
from toolkiln.spec.checks import sensitive
from toolkiln.spec.checks.dotted import Groups, Names, fold, last_name, rule

_FORMAT_WALK = re.compile(r"\{[^{}]*[.\[](__(?:globals|subclasses|bases|mro|code|builtins)__)")
_SAFE_LOADERS = frozenset({"SafeLoader", "CSafeLoader", "BaseLoader", "CBaseLoader"})
_GETTERS = frozenset(name.rpartition(".")[2] for name in sensitive.GETTERS) | {
    "__getattribute__",
    "__import__",
    "import_module",
}
_ATTRIBUTES = sensitive.WALKS.union(sensitive.EXPOSED)
_REMOTE = ("http://", "https://", "ftp://", "s3://", "gs://")


class Use(NamedTuple):
    """One capability that the source was seen to use, where it does so first."""

    capability: Capability
    line: int
    column: int
    """1-based, in UTF-8 bytes as Python counts them."""
    what: str
    """Such as `import httpx`, `os.system`, `Path.read_text`."""


def used(nodes: Sequence[ast.AST]) -> list[Use]:
    """The capabilities that a file's nodes (see `nodes.walk`) use, in source order."""
    if not _is_worth_a_look(nodes):
        return []
    groups: Groups = defaultdict(list)
    for node in nodes:
        groups[node.__class__].append(node)
    report = _Report(groups, Names(nodes, groups))
    report.look_at_imports()
    report.look_at_walks()
    report.look_at_expressions()
    return report.uses()


def _is_worth_a_look(nodes: Sequence[Any]) -> bool:
    roots, builtins, attributes = sensitive.ROOTS, sensitive.BUILTINS, _ATTRIBUTES
    for node in nodes:
        cls = node.__class__
        if cls is ast.Name:
            if node.id in builtins:
                return True
        elif cls is ast.Constant:
            if node.value.__class__ is str and "__" in node.value:
                return True
        elif cls is ast.Attribute:
            if node.attr in attributes:
                return True
        elif cls is ast.ImportFrom:
            if node.module and node.module.partition(".")[0] in roots:
                return True
        elif cls is ast.Import:
            if not roots.isdisjoint([alias.name.partition(".")[0] for alias in node.names]):
                return True
        elif cls is ast.MatchClass:
            return True
    return False


class _Report:
    """Collects uses, one for each capability and wording."""

    def __init__(self, groups: Groups, names: Names) -> None:
        self._groups = groups
        self._names = names
        self._found: dict[tuple[Capability, str], Use] = {}
        self._called: dict[int, ast.Call] = {}

    def uses(self) -> list[Use]:
        return sorted(self._found.values(), key=lambda use: (use.line, use.column, use.what))

    def look_at_imports(self) -> None:
        for node, dotted in self._names.imports:
            key = rule(dotted)
            if key in sensitive.MODULES:
                self._add(*sensitive.RULES[key], node)

    def look_at_walks(self) -> None:
        """Attributes that mean the same on any object, and strings that name them."""
        for node in self._groups[ast.Attribute]:
            if node.attr in sensitive.WALKS:
                self._add_walk(node.attr, node)
        for node in self._groups[ast.Constant]:
            if node.value.__class__ is str and "__" in node.value:
                if node.value == "__builtins__":
                    self._add_walk("__builtins__", node)
                elif walked := _FORMAT_WALK.search(node.value):
                    self._add_walk(walked[1], node)
        for node in self._groups[ast.MatchClass]:
            for attr in sensitive.WALKS.intersection(node.kwd_attrs):
                self._add_walk(attr, node)

    def look_at_expressions(self) -> None:
        """Everything that begins with a name worth following."""
        names = self._names
        self._called = {id(call.func): call for call in self._groups[ast.Call]}
        has_paths = any("pathlib.Path" in known for known in names.known.values())
        for node in self._groups[ast.Name]:
            if node.id in names.roots and not isinstance(node.ctx, ast.Store):
                self._touch(node)
        for node in self._groups[ast.Attribute]:
            resolved = names.may_know(node) and self._touch(node)
            if has_paths and not resolved and node.attr in sensitive.PATH_METHODS:
                self._add(Capability.FILES, f"Path.{node.attr}", node)
        for node in self._groups[ast.Subscript]:
            if names.may_know(node):
                self._touch(node)
                if not isinstance(node.ctx, ast.Load) and "sys.path" in names.resolve(node.value):
                    self._add(Capability.DYNAMIC_IMPORT, "sys.path", node)
        for node in self._groups[ast.Call]:
            name = last_name(node.func)
            if name in names.known or name in _GETTERS:
                self._touch(node)
                self._look_at_getter(node)

    def _add(self, capability: Capability, what: str, node: Any) -> None:
        use = Use(capability, node.lineno, node.col_offset + 1, what)
        earlier = self._found.get((capability, what))
        if earlier is None or use[1:3] < earlier[1:3]:
            self._found[capability, what] = use

    def _add_walk(self, attr: str, node: ast.AST) -> None:
        is_builtins = attr == "__builtins__"
        kind = Capability.DYNAMIC_CODE if is_builtins else Capability.INTROSPECTION
        self._add(kind, attr, node)

    def _touch(self, node: ast.expr) -> bool:
        """Notes what an expression stands for; whether it stands for anything known."""
        resolved = self._names.resolve(node)
        for dotted in resolved:
            key = rule(dotted)
            if key is not None:
                self._touch_rule(key, node, self._called.get(id(node)) if key == dotted else None)
            elif dotted == "sys.path" and isinstance(node, ast.Attribute | ast.Name):
                if not isinstance(node.ctx, ast.Load):
                    self._add(Capability.DYNAMIC_IMPORT, "sys.path", node)
            elif dotted.endswith(".__dict__") and dotted[:-9] in sensitive.VALUABLE:
                self._add(Capability.INTROSPECTION, f"vars({dotted[:-9]})", node)
        return bool(resolved)

    def _touch_rule(self, key: str, node: ast.expr, call: ast.Call | None) -> None:
        capability, what = sensitive.RULES[key]
        if call is None:
            if key in sensitive.CALL_ONLY or (key == "sys.modules" and self._only_looks(node)):
                return
        elif self._is_harmless(key, call):
            return
        elif capability is Capability.FILES and _first_text(call).startswith(_REMOTE):
            capability = Capability.NETWORK
        self._add(capability, what, node)

    def _is_harmless(self, key: str, call: ast.Call) -> bool:
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        first = _first_text(call)
        match key:
            case "sqlite3.connect" | "aiosqlite.connect":
                return first == ":memory:"
            case "sqlalchemy.create_engine" | "sqlalchemy.ext.asyncio.create_async_engine":
                return first.startswith("sqlite") and first.endswith(("://", ":memory:"))
            case "yaml.load" | "yaml.load_all":
                return any(last_name(value) in _SAFE_LOADERS for value in given)
            case "pathlib.Path().replace":
                return len(given) != 1  # that is str.replace
        is_files = sensitive.RULES[key][0] is Capability.FILES
        return is_files and any("io.memory()" in self._names.resolve(value) for value in given)

    def _only_looks(self, node: ast.expr) -> bool:
        """Whether `sys.modules` is asked for this very module or for a name's presence."""
        return any(
            item.value is node and last_name(item.slice) == "__name__"
            for item in self._groups[ast.Subscript]
        ) or any(
            node in test.comparators and isinstance(test.ops[0], ast.In | ast.NotIn)
            for test in self._groups[ast.Compare]
        )

    def _look_at_getter(self, call: ast.Call) -> None:
        """Finds `getattr(os, …)`, `getattr(x, "__globals__")`, `attrgetter("f.__code__")`."""
        is_getter = not sensitive.GETTERS.isdisjoint(self._names.resolve(call.func))
        if not is_getter and last_name(call.func) != "__getattribute__":
            return
        texts = [fold(argument) for argument in call.args]
        for text in filter(None, texts):
            for attr in sensitive.WALKS.intersection(text.split(".")):
                self._add_walk(attr, call)
        if len(texts) > 1 and texts[1] is None:
            for attr in sensitive.WALKS.intersection(self._strings()):
                self._add_walk(attr, call)
            for module in self._names.resolve(call.args[0]):
                if module in sensitive.VALUABLE:
                    self._add(Capability.INTROSPECTION, f"getattr({module}, …)", call)

    def _strings(self) -> set[str]:
        nodes = self._groups[ast.Constant] + self._groups[ast.BinOp]
        return {text for node in nodes if (text := fold(node))}


def _first_text(call: ast.Call) -> str:
    return (fold(call.args[0]) if call.args else None) or ""
