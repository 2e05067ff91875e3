"""Capabilities that a file uses, such as network or files, found in its syntax tree.

Names are resolved through imports and aliases, so `from os import system as s` is found and
a method called `system` is not. This informs people and is not a security boundary: code can
hide from it, and the sandbox enforces limits. `sensitive_apis` has the tables;
`name_resolution` resolves names.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from toolkiln.model.spec import Capability
from toolkiln.spec.checks import sensitive_apis
from toolkiln.spec.checks.name_resolution import (
    Groups,
    ModuleNames,
    constant_string,
    rule,
)
from toolkiln.spec.syntax import last_name

_FORMAT_FIELD = re.compile(r"\{[^{}]*[.\[](__(?:globals|subclasses|bases|mro|code|builtins)__)")
_SAFE_LOADERS = frozenset({"SafeLoader", "CSafeLoader", "BaseLoader", "CBaseLoader"})
_GETTERS = frozenset(name.rpartition(".")[2] for name in sensitive_apis.GETTERS) | {
    "__getattribute__",
    "__import__",
    "import_module",
}
_ATTRIBUTES = sensitive_apis.INTROSPECTION_ATTRIBUTES.union(sensitive_apis.EXPOSED_MODULES)
_REMOTE = ("http://", "https://", "ftp://", "s3://", "gs://")


class CapabilityUse(NamedTuple):
    """The first use of a capability through one API."""

    capability: Capability
    line: int
    column: int
    """1-based, in UTF-8 bytes as Python counts them."""
    api: str
    """Such as `import httpx`, `os.system`, `Path.read_text`."""


def find_uses(nodes: Sequence[ast.AST]) -> list[CapabilityUse]:
    """Return the capability uses among a file's nodes (see `syntax.walk`), in source order."""
    if not _may_use_any(nodes):
        return []
    groups: Groups = defaultdict(list)
    for node in nodes:
        groups[node.__class__].append(node)
    collector = _UseCollector(groups, ModuleNames(nodes, groups))
    collector.check_imports()
    collector.check_introspection()
    collector.check_expressions()
    return collector.uses()


def _may_use_any(nodes: Sequence[Any]) -> bool:
    roots, builtins, attributes = sensitive_apis.ROOTS, sensitive_apis.BUILTINS, _ATTRIBUTES
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


class _UseCollector:
    def __init__(self, groups: Groups, names: ModuleNames) -> None:
        self._groups = groups
        self._names = names
        self._found: dict[tuple[Capability, str], CapabilityUse] = {}
        self._calls: dict[int, ast.Call] = {}
        """By identity of the called expression."""

    def uses(self) -> list[CapabilityUse]:
        return sorted(self._found.values(), key=lambda use: (use.line, use.column, use.api))

    def check_imports(self) -> None:
        for node, dotted in self._names.imports:
            key = rule(dotted)
            if key in sensitive_apis.MODULES:
                self._add(*sensitive_apis.RULES[key], node)

    def check_introspection(self) -> None:
        """Find introspection attributes of any object, and strings that name them."""
        for node in self._groups[ast.Attribute]:
            if node.attr in sensitive_apis.INTROSPECTION_ATTRIBUTES:
                self._add_introspection(node.attr, node)
        for node in self._groups[ast.Constant]:
            if node.value.__class__ is str and "__" in node.value:
                if node.value == "__builtins__":
                    self._add_introspection("__builtins__", node)
                elif match := _FORMAT_FIELD.search(node.value):
                    self._add_introspection(match[1], node)
        for node in self._groups[ast.MatchClass]:
            for attr in sensitive_apis.INTROSPECTION_ATTRIBUTES.intersection(node.kwd_attrs):
                self._add_introspection(attr, node)

    def check_expressions(self) -> None:
        """Find expressions that start with a sensitive name."""
        names = self._names
        self._calls = {id(call.func): call for call in self._groups[ast.Call]}
        has_paths = any("pathlib.Path" in targets for targets in names.targets.values())
        for node in self._groups[ast.Name]:
            if node.id in names.roots and not isinstance(node.ctx, ast.Store):
                self._check(node)
        for node in self._groups[ast.Attribute]:
            is_resolved = names.may_resolve(node) and self._check(node)
            if has_paths and not is_resolved and node.attr in sensitive_apis.PATH_METHODS:
                self._add(Capability.FILES, f"Path.{node.attr}", node)
        for node in self._groups[ast.Subscript]:
            if names.may_resolve(node):
                self._check(node)
                if not isinstance(node.ctx, ast.Load) and "sys.path" in names.resolve(node.value):
                    self._add(Capability.DYNAMIC_IMPORT, "sys.path", node)
        for node in self._groups[ast.Call]:
            name = last_name(node.func)
            if name in names.targets or name in _GETTERS:
                self._check(node)
                self._check_getter(node)

    def _add(self, capability: Capability, api: str, node: Any) -> None:
        use = CapabilityUse(capability, node.lineno, node.col_offset + 1, api)
        earlier = self._found.get((capability, api))
        if earlier is None or use[1:3] < earlier[1:3]:
            self._found[capability, api] = use

    def _add_introspection(self, attr: str, node: ast.AST) -> None:
        is_builtins = attr == "__builtins__"
        kind = Capability.DYNAMIC_CODE if is_builtins else Capability.INTROSPECTION
        self._add(kind, attr, node)

    def _check(self, node: ast.expr) -> bool:
        """Check what an expression refers to; return whether it could be resolved."""
        resolved = self._names.resolve(node)
        for dotted in resolved:
            key = rule(dotted)
            if key is not None:
                self._check_rule(key, node, self._calls.get(id(node)) if key == dotted else None)
            elif dotted == "sys.path" and isinstance(node, ast.Attribute | ast.Name):
                if not isinstance(node.ctx, ast.Load):
                    self._add(Capability.DYNAMIC_IMPORT, "sys.path", node)
            elif (
                dotted.endswith(".__dict__")
                and dotted[:-9] in sensitive_apis.DYNAMIC_ACCESS_MODULES
            ):
                self._add(Capability.INTROSPECTION, f"vars({dotted[:-9]})", node)
        return bool(resolved)

    def _check_rule(self, key: str, node: ast.expr, call: ast.Call | None) -> None:
        capability, api = sensitive_apis.RULES[key]
        if call is None:
            if key in sensitive_apis.CALL_ONLY:
                return
            if key == "sys.modules" and self._is_module_lookup(node):
                return
        elif self._is_harmless(key, call):
            return
        elif capability is Capability.FILES and _first_string(call).startswith(_REMOTE):
            capability = Capability.NETWORK
        self._add(capability, api, node)

    def _is_harmless(self, key: str, call: ast.Call) -> bool:
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        first = _first_string(call)
        match key:
            case "sqlite3.connect" | "aiosqlite.connect":
                return first == ":memory:"
            case "sqlalchemy.create_engine" | "sqlalchemy.ext.asyncio.create_async_engine":
                return first.startswith("sqlite") and first.endswith(("://", ":memory:"))
            case "yaml.load" | "yaml.load_all":
                return any(last_name(value) in _SAFE_LOADERS for value in arguments)
            case "pathlib.Path().replace":
                return len(arguments) != 1  # str.replace
        is_files = sensitive_apis.RULES[key][0] is Capability.FILES
        return is_files and any("io.memory()" in self._names.resolve(value) for value in arguments)

    def _is_module_lookup(self, node: ast.expr) -> bool:
        """Return whether `sys.modules` is only used for `__name__` or with `in`."""
        return any(
            item.value is node and last_name(item.slice) == "__name__"
            for item in self._groups[ast.Subscript]
        ) or any(
            node in test.comparators and isinstance(test.ops[0], ast.In | ast.NotIn)
            for test in self._groups[ast.Compare]
        )

    def _check_getter(self, call: ast.Call) -> None:
        """Find `getattr(os, …)`, `getattr(x, "__globals__")`, `attrgetter("f.__code__")`."""
        is_getter = not sensitive_apis.GETTERS.isdisjoint(self._names.resolve(call.func))
        if not is_getter and last_name(call.func) != "__getattribute__":
            return
        attributes = sensitive_apis.INTROSPECTION_ATTRIBUTES
        strings = [constant_string(argument) for argument in call.args]
        for string in filter(None, strings):
            for attr in attributes.intersection(string.split(".")):
                self._add_introspection(attr, call)
        if len(strings) > 1 and strings[1] is None:
            for attr in attributes.intersection(self._strings()):
                self._add_introspection(attr, call)
            for module in self._names.resolve(call.args[0]):
                if module in sensitive_apis.DYNAMIC_ACCESS_MODULES:
                    self._add(Capability.INTROSPECTION, f"getattr({module}, …)", call)

    def _strings(self) -> set[str]:
        nodes = self._groups[ast.Constant] + self._groups[ast.BinOp]
        return {string for node in nodes if (string := constant_string(node))}


def _first_string(call: ast.Call) -> str:
    return (constant_string(call.args[0]) if call.args else None) or ""
