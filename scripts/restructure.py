# mypy: ignore-errors
# ruff: noqa
"""One-time tool: move, merge and rename modules as module_map.toml and rename_map.toml say.

    python scripts/restructure.py check                 # is every module mapped?
    python scripts/restructure.py move GROUP [GROUP …]  # moves and merges into these packages
    python scripts/restructure.py rename [GROUP …]      # classes and functions
    (--dry prints the report only; --commit makes one commit per group)

Sources are read with `ast`; edits are made at byte offsets, so that nothing else changes.
"""

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent
SRC = ROOT / "src"
TOP = "toolkiln"
SHIM = "toolkiln.app"
FOLDERS = ("src", "tests", "bench", "fuzz", "scripts", "examples")
TEXTS = (
    "*.md", "*.toml", "Makefile", "biome.json", ".gitignore", "hatch_build.py", "docs/**/*.md",
    "deploy/**/*", "web/*.mjs", ".github/**/*", "bench/**/*.md",
)  # fmt: skip
Home = tuple[str, str]


class Report:
    """Everything a person should look at."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.notes: list[str] = []

    def error(self, text: str) -> None:
        if text not in self.errors:
            self.errors.append(text)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


REPORT = Report()


# --- one file ---------------------------------------------------------------------------


@dataclass
class Binding:
    """A name bound by an import statement."""

    local: str
    module: str
    """What is imported from, absolute; for `import a.b` the dotted name."""
    name: str | None
    """None for `import a.b`."""
    asname: str | None
    node: ast.Import | ast.ImportFrom
    typing: bool = False


@dataclass(eq=False)
class Scope:
    kind: str
    parent: "Scope | None"
    bound: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    imports: dict[str, Binding] = field(default_factory=dict)


@dataclass
class Ref:
    """A use of a name that is not bound locally, or that a local import binds."""

    name: str
    start: int
    end: int
    scope: Scope
    deferred: bool
    binding: Binding | None = None
    attrs: list[tuple[str, int, int]] = field(default_factory=list)
    """Attributes that follow, the first first; a quoted one (setattr) too."""
    store: bool = False


@dataclass
class Chunk:
    """A top-level statement with the comments above it."""

    start: int
    end: int
    names: tuple[str, ...]
    node: ast.stmt
    last: bool = False
    prefix: bytes = b""


class Source:
    def __init__(self, name: str, path: Path | None, data: bytes, realm: str) -> None:
        self.name, self.path, self.data, self.realm = name, path, data, realm
        self.package = path is not None and path.name == "__init__.py"
        self.tree = ast.parse(data)
        self._starts = [0]
        for line in data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.symbols: dict[str, ast.stmt] = {}
        self.imports: dict[str, Binding] = {}
        self.refs: list[Ref] = []
        self.statements: list[ast.Import | ast.ImportFrom] = []
        self.local_bindings: list[tuple[Scope, Binding]] = []
        self.typing_flag = b"TYPE_CHECKING = False" in data
        self.all_names: list[tuple[str, int, int]] = []
        self.lazy: list[tuple[str, str, tuple[int, int], tuple[int, int]]] = []
        self.identifiers: set[str] = set()
        self._module_level(self.tree.body, typing=False)
        Walker(self).run()

    def at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def span(self, node: Any) -> tuple[int, int]:
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def text(self, node: Any) -> str:
        start, end = self.span(node)
        return self.data[start:end].decode()

    def line_start(self, line: int) -> int:
        return self._starts[line - 1]

    def line_end(self, line: int) -> int:
        return self._starts[line]

    def line_of(self, offset: int) -> int:
        return self.data.count(b"\n", 0, offset) + 1

    def comment(self, node: ast.stmt) -> str:
        """The comment at the end of a statement of one line."""
        if node.lineno != node.end_lineno:
            return ""
        tail = self.data[self.span(node)[1] : self.line_end(node.lineno)].decode().strip()
        return tail if tail.startswith("#") else ""

    @property
    def parent(self) -> str:
        return self.name if self.package else self.name.rpartition(".")[0]

    def absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.parent.split(".")
        base = parts[: len(parts) - node.level + 1]
        return ".".join([*base, *([node.module] if node.module else [])])

    def bindings(self, node: ast.Import | ast.ImportFrom, *, typing: bool) -> Iterator[Binding]:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                local = alias.asname or alias.name
                yield Binding(local, self.absolute(node), alias.name, alias.asname, node, typing)
            else:
                local = alias.asname or alias.name.partition(".")[0]
                yield Binding(local, alias.name, None, alias.asname, node, typing)

    def _module_level(self, body: list[ast.stmt], *, typing: bool) -> None:
        for node in body:
            match node:
                case ast.Import() | ast.ImportFrom():
                    for binding in self.bindings(node, typing=typing):
                        known = self.imports.get(binding.local)
                        if known is None or known.typing:
                            self.imports[binding.local] = binding
                case ast.If():
                    inside = ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
                    self._module_level(node.body, typing=typing or inside)
                    self._module_level(node.orelse, typing=typing)
                case ast.Try():
                    for part in (node.body, node.orelse, node.finalbody):
                        self._module_level(part, typing=typing)
                    for handler in node.handlers:
                        self._module_level(handler.body, typing=typing)
                case ast.For() | ast.With() | ast.While():
                    for name in targets(node):
                        self.symbols.setdefault(name, node)
                    self._module_level(node.body, typing=typing)
                case _:
                    for name in targets(node):
                        self.symbols.setdefault(name, node)
                    self._tables(node)

    def _tables(self, node: ast.stmt) -> None:
        names = targets(node)
        value = getattr(node, "value", None)
        if "__all__" in names and isinstance(value, ast.List | ast.Tuple):
            for item in value.elts:
                if isinstance(item, ast.Constant):
                    start, end = self.span(item)
                    self.all_names.append((str(item.value), start, end))
        if "_HOMES" in names and isinstance(value, ast.Dict):
            for key, home in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(home, ast.Constant):
                    self.lazy.append(
                        (str(key.value), str(home.value), self.span(key), self.span(home))
                    )

    @property
    def docstring(self) -> ast.stmt | None:
        body = self.tree.body
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            return body[0] if isinstance(body[0].value.value, str) else None
        return None

    def chunks(self) -> list[Chunk]:
        """Statements that are neither the docstring, imports, `__all__`, nor typing imports."""
        found: list[Chunk] = []
        doc = self.docstring
        previous = self.line_end(doc.end_lineno or 1) if doc else 0
        for node in self.tree.body:
            if node is doc:
                continue
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            end = self.line_end(node.end_lineno or node.lineno)
            if self.is_import_block(node) or {"__all__", "TYPE_CHECKING"} & set(targets(node)):
                self._lost_comments(previous, self.line_start(first))
                previous = end
                continue
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                rest = [n for n in node.body if not isinstance(n, ast.Import | ast.ImportFrom)]
                names = tuple(name for n in rest for name in bound_names(n))
                chunk = Chunk(self.line_start(rest[0].lineno), end, names, node)
                chunk.prefix = b"if TYPE_CHECKING:\n"
                found.append(chunk)
                previous = end
                continue
            if found and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                found[-1].end = end
                previous = end
                continue
            start = min(previous, self.line_start(first))
            last = isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)
            found.append(Chunk(start, end, bound_names(node), node, last))
            previous = end
        if found and self.data[previous:].strip():
            found[-1].end = len(self.data)
        return found

    def _lost_comments(self, start: int, end: int) -> None:
        for line in self.data[start:end].decode().splitlines():
            if line.strip():
                REPORT.note(f"{self.name}: comment above an import is lost: {line.strip()}")

    def is_import_block(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.Import | ast.ImportFrom):
            return True
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return all(isinstance(n, ast.Import | ast.ImportFrom) for n in node.body)
        return False


def targets(node: ast.AST) -> list[str]:
    """The names that one statement binds."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Assign():
            return [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        case ast.AnnAssign() | ast.AugAssign():
            return [node.target.id] if isinstance(node.target, ast.Name) else []
        case ast.For():
            return [n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)]
        case ast.With():
            kept = [item.optional_vars for item in node.items if item.optional_vars]
            return [n.id for t in kept for n in ast.walk(t) if isinstance(n, ast.Name)]
    return []


def bound_names(node: ast.stmt) -> tuple[str, ...]:
    if isinstance(node, ast.If | ast.Try | ast.For | ast.With | ast.While):
        found: list[str] = list(targets(node))
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.stmt):
                found.extend(bound_names(inner))
                if isinstance(inner, ast.Import | ast.ImportFrom):
                    found.extend(a.asname or a.name.partition(".")[0] for a in inner.names)
            elif isinstance(inner, ast.ExceptHandler):
                for each in inner.body:
                    found.extend(bound_names(each))
                    if isinstance(each, ast.Import | ast.ImportFrom):
                        found.extend(a.asname or a.name.partition(".")[0] for a in each.names)
        return tuple(found)
    return tuple(targets(node))


class Walker:
    """Scopes and uses of names in one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.deferred = 0

    def run(self) -> None:
        scope = Scope("module", None)
        for node in self.source.tree.body:
            self.visit(node, scope)
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Name):
                self.source.identifiers.add(node.id)
            elif isinstance(node, ast.arg):
                self.source.identifiers.add(node.arg)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.source.identifiers.add(node.name)
            elif isinstance(node, ast.alias):
                self.source.identifiers.add(node.asname or node.name.partition(".")[0])

    def bound(self, body: Iterable[ast.AST], scope: Scope) -> None:
        """What a function or class body binds, without what nested scopes bind."""
        for node in body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    scope.bound.add(node.name)
                    continue
                case ast.Lambda():
                    continue
                case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                    for inner in ast.walk(node):
                        if isinstance(inner, ast.NamedExpr):
                            scope.bound.add(inner.target.id)
                    continue
                case ast.Global() | ast.Nonlocal():
                    scope.globals.update(node.names)
                case ast.Name(ctx=ast.Store() | ast.Del()):
                    scope.bound.add(node.id)
                case ast.ExceptHandler(name=str(name)):
                    scope.bound.add(name)
                case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                    scope.bound.add(name)
                case ast.MatchMapping(rest=str(rest)):
                    scope.bound.add(rest)
                case ast.Import() | ast.ImportFrom():
                    for binding in self.source.bindings(node, typing=False):
                        scope.bound.add(binding.local)
                        scope.imports[binding.local] = binding
                        self.source.local_bindings.append((scope, binding))
            self.bound(ast.iter_child_nodes(node), scope)

    def visit(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self.source.statements.append(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._definition(node, scope)
                for part in node.decorator_list:
                    self.visit(part, scope)
                self._arguments(node.args, scope)
                if node.returns:
                    self.annotation(node.returns, scope)
                inner = Scope("function", scope)
                inner.bound.update(a.arg for a in _all_arguments(node.args))
                self.bound(node.body, inner)
                inner.bound -= inner.globals
                self.deferred += 1
                for statement in node.body:
                    self.visit(statement, inner)
                self.deferred -= 1
            case ast.Lambda():
                self._arguments(node.args, scope)
                inner = Scope("function", scope)
                inner.bound.update(a.arg for a in _all_arguments(node.args))
                self.deferred += 1
                self.visit(node.body, inner)
                self.deferred -= 1
            case ast.ClassDef():
                self._definition(node, scope)
                for part in [*node.decorator_list, *node.bases, *node.keywords]:
                    self.visit(part, scope)
                inner = Scope("class", scope)
                self.bound(node.body, inner)
                for statement in node.body:
                    self.visit(statement, inner)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                inner = Scope("comp", scope)
                for generator in node.generators:
                    for name in ast.walk(generator.target):
                        if isinstance(name, ast.Name):
                            inner.bound.add(name.id)
                self.visit(node.generators[0].iter, scope)
                for number, generator in enumerate(node.generators):
                    self.visit(generator.target, inner)
                    if number:
                        self.visit(generator.iter, inner)
                    for test in generator.ifs:
                        self.visit(test, inner)
                if isinstance(node, ast.DictComp):
                    self.visit(node.key, inner)
                    self.visit(node.value, inner)
                else:
                    self.visit(node.elt, inner)
            case ast.AnnAssign():
                self.visit(node.target, scope)
                self.annotation(node.annotation, scope)
                if node.value:
                    if ast.unparse(node.annotation).endswith("TypeAlias"):
                        self.annotation(node.value, scope)
                    else:
                        self.visit(node.value, scope)
            case ast.Global():
                start, end = self.source.span(node)
                for name in node.names:
                    found = re.search(rb"\b" + name.encode() + rb"\b", self.source.data[start:end])
                    assert found
                    module = scope
                    while module.parent:
                        module = module.parent
                    at = start + found.start()
                    self.source.refs.append(Ref(name, at, at + len(name), module, True))
            case ast.Attribute():
                self._attribute(node, scope)
            case ast.Call():
                self._call(node, scope)
            case ast.Name():
                start, end = self.source.span(node)
                store = not isinstance(node.ctx, ast.Load)
                self.name(Ref(node.id, start, end, scope, self.deferred > 0, store=store))
            case ast.Subscript():
                self.visit(node.value, scope)
                self.visit(node.slice, scope)
            case _:
                for child in ast.iter_child_nodes(node):
                    self.visit(child, scope)

    def _definition(self, node: Any, scope: Scope) -> None:
        if scope.kind != "module":
            return
        start = self.source.at(node.lineno, node.col_offset)
        found = re.compile(rb"(?:async\s+def|def|class)\s+").match(self.source.data, start)
        assert found, node.name
        end = found.end() + len(node.name.encode())
        self.source.refs.append(Ref(node.name, found.end(), end, scope, False, store=True))

    def _arguments(self, arguments: ast.arguments, scope: Scope) -> None:
        for argument in _all_arguments(arguments):
            if argument.annotation:
                self.annotation(argument.annotation, scope)
        for default in [*arguments.defaults, *(d for d in arguments.kw_defaults if d)]:
            self.visit(default, scope)

    def _chain(self, node: ast.expr) -> tuple[ast.Name, list[tuple[str, int, int]]] | None:
        attrs: list[tuple[str, int, int]] = []
        while isinstance(node, ast.Attribute):
            _, end = self.source.span(node)
            attrs.insert(0, (node.attr, end - len(node.attr.encode()), end))
            node = node.value
        return (node, attrs) if isinstance(node, ast.Name) else None

    def _attribute(self, node: ast.Attribute, scope: Scope) -> None:
        chain = self._chain(node)
        if chain is None:
            self.visit(node.value, scope)
            return
        root, attrs = chain
        start, end = self.source.span(root)
        self.name(Ref(root.id, start, end, scope, self.deferred > 0, attrs=attrs))

    def _call(self, node: ast.Call, scope: Scope) -> None:
        function = ast.unparse(node.func)
        rest = list(node.args)
        if function.rpartition(".")[2] in {"setattr", "getattr", "delattr", "object", "hasattr"}:
            if len(rest) > 1 and (chain := self._chain(rest[0])):
                quoted = rest[1]
                if isinstance(quoted, ast.Constant) and isinstance(quoted.value, str):
                    start, end = self.source.span(quoted)
                    root, attrs = chain
                    at = self.source.span(root)
                    attrs = [*attrs, (quoted.value, start + 1, end - 1)]
                    self.name(Ref(root.id, *at, scope, self.deferred > 0, attrs=attrs))
                    rest = rest[2:]
        self.visit(node.func, scope)
        if function in {"cast", "typing.cast"} and rest:
            self.annotation(rest.pop(0), scope)
        for argument in [*rest, *(k for k in node.keywords)]:
            if isinstance(argument, ast.keyword) and argument.arg == "bound":
                self.annotation(argument.value, scope)
            else:
                self.visit(argument, scope)

    def annotation(self, node: ast.expr, scope: Scope) -> None:
        """Visit an annotation, looking into its strings."""
        match node:
            case ast.Constant(value=str(text)):
                start, end = self.source.span(node)
                raw = self.source.data[start:end].decode()
                quote = 3 if raw.startswith(('"""', "'''")) else 1
                if raw[quote : len(raw) - quote] != text:
                    REPORT.note(f"{self.source.name}: annotation {raw} was not read")
                    return
                try:
                    inner = ast.parse(text, mode="eval").body
                except SyntaxError:
                    return
                for found in ast.walk(inner):
                    if isinstance(found, ast.Name):
                        at = start + quote + found.col_offset
                        attrs = self._inner_attrs(inner, found, start + quote)
                        self.name(Ref(found.id, at, at + len(found.id), scope, True, attrs=attrs))
            case ast.Subscript() if ast.unparse(node.value).endswith("Literal"):
                self.visit(node.value, scope)
            case ast.Subscript() if ast.unparse(node.value).endswith("Annotated"):
                self.visit(node.value, scope)
                if isinstance(node.slice, ast.Tuple):
                    self.annotation(node.slice.elts[0], scope)
                    for more in node.slice.elts[1:]:
                        self.visit(more, scope)
            case ast.Subscript() | ast.BinOp() | ast.Tuple() | ast.List():
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.annotation(child, scope)
            case _:
                self.visit(node, scope)

    def _inner_attrs(self, tree: ast.expr, name: ast.Name, base: int) -> list[tuple[str, int, int]]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.value is name:
                end = base + (node.end_col_offset or 0)
                return [(node.attr, end - len(node.attr), end)]
        return []

    def name(self, ref: Ref) -> None:
        """Keep a use if it is of a global, or of what a local import binds."""
        scope: Scope | None = ref.scope
        first = True
        while scope is not None:
            if scope.kind == "module":
                self.source.refs.append(ref)
                return
            if ref.name in scope.globals:
                while scope.parent:
                    scope = scope.parent
                self.source.refs.append(ref)
                return
            if ref.name in scope.bound and (scope.kind != "class" or first):
                if scope.kind == "class" and not ref.store and ref.name not in scope.imports:
                    if ref.name in self.source.symbols or ref.name in self.source.imports:
                        REPORT.note(f"{self.source.name}: {ref.name} in a class body is ambiguous")
                if ref.name in scope.imports:
                    ref.binding = scope.imports[ref.name]
                    self.source.refs.append(ref)
                return
            scope, first = scope.parent, False


def _all_arguments(given: ast.arguments) -> list[ast.arg]:
    more = [a for a in (given.vararg, given.kwarg) if a]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *more]


# --- the tree ---------------------------------------------------------------------------


class Tree:
    """All Python files of the project, by the name they are imported by."""

    def __init__(self, groups: Iterable[str] = ()) -> None:
        self.modules: dict[str, Source] = {}
        self.others: list[Source] = []
        edits: dict[Path, list[dict[str, str]]] = defaultdict(list)
        self.edited: set[Path] = set()
        self.text_edits: list[dict[str, str]] = []
        for edit in tomllib.loads((HERE / "module_map.toml").read_text("utf-8")).get("edits", []):
            if edit["group"] in groups:
                if not edit["file"].endswith(".py"):
                    self.text_edits.append(edit)
                    continue
                edits[ROOT / edit["file"]].append(edit)
                if not (ROOT / edit["file"]).exists():
                    REPORT.error(f"edits: there is no {edit['file']}")
        for folder in FOLDERS:
            for path in sorted((ROOT / folder).rglob("*.py")):
                if "node_modules" in path.parts or path == Path(__file__).resolve():
                    continue
                data = path.read_bytes()
                for edit in edits[path]:
                    if data.count(edit["old"].encode()) != 1:
                        REPORT.error(f"edits: {edit['file']} has no (single) {edit['old']!r}")
                    data = data.replace(edit["old"].encode(), edit["new"].encode())
                    self.edited.add(path)
                try:
                    source = Source(name_of(path), path, data, folder)
                except SyntaxError as error:
                    REPORT.note(f"{path}: not read: {error}")
                    continue
                if source.name in self.modules:
                    self.others.append(source)
                else:
                    self.modules[source.name] = source

    @property
    def sources(self) -> list[Source]:
        return [*self.modules.values(), *self.others]

    def is_package(self, name: str) -> bool:
        return name in self.modules and self.modules[name].package

    def resolve(self, module: str, name: str) -> tuple[str, Any]:
        """What `from module import name` gives: a symbol, a module, or something foreign."""
        module = module.removeprefix("tests.") if module.startswith("tests.") else module
        source = self.modules.get(module)
        if source is None:
            return ("foreign", None)
        if name in source.symbols:
            return ("symbol", (module, name))
        if name in source.imports:
            binding = source.imports[name]
            if (binding.module, binding.name) != (module, name):
                return self.target(binding)
        if f"{module}.{name}" in self.modules:
            return ("module", f"{module}.{name}")
        return ("unknown", None)

    def target(self, binding: Binding) -> tuple[str, Any]:
        if binding.name is None:
            known = binding.module.removeprefix("tests.") in self.modules
            return ("dotted", binding.module) if known else ("foreign", None)
        return self.resolve(binding.module, binding.name)


def name_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    parts = relative.with_suffix("").parts
    if parts[0] in ("src", "tests"):
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == TOP else parts[0]


def dotted(path: str) -> str:
    """`model/guarding` -> `toolkiln.model.guarding`."""
    parts = [p for p in path.removesuffix(".py").split("/") if p]
    if parts and parts[-1] == "__init__":
        parts.pop()
    return ".".join([TOP, *parts])


# --- the plan ---------------------------------------------------------------------------


class Plan:
    """Where every symbol goes in this run, and what it is called there."""

    def __init__(self, tree: Tree, groups: list[str], *, renames: bool) -> None:
        self.tree = tree
        given = tomllib.loads((HERE / "module_map.toml").read_text("utf-8"))
        self.given = given
        self.packages = {dotted(k): dotted(v) for k, v in given["packages"].items()}
        self.lazy = {dotted(name) for name in given["facades"]["lazy"]}
        self.eager_additions = {dotted(name) for name in given["facades"]["eager_additions"]}
        self.no_front = {dotted(name) for name in given["facades"]["none"]}
        self.surfaces = {dotted(name) for name in given["facades"]["surfaces_may_import"]}
        self.tests = {
            name_of(ROOT / "tests" / k): name_of(ROOT / "tests" / v)
            for group in groups
            for k, v in given["tests"].get(group, {}).items()
            if (ROOT / "tests" / k).is_file()
        }
        self.test_folders = {
            k.replace("/", "."): v.replace("/", ".")
            for group in groups
            for k, v in given["test_folders"].get(group, {}).items()
            if (ROOT / "tests" / k).is_dir()
        }
        self.conftests = {
            folder: names
            for group in groups
            for folder, names in given["conftests"].get(group, {}).items()
        }
        self.groups = groups
        self.targets: dict[str, list[str]] = {}
        self.default: dict[str, str] = {}
        self.split: dict[str, dict[str, str]] = defaultdict(dict)
        mapped: set[str] = set()
        for target, sources in given["modules"].items():
            for source in sources:
                mapped.add(dotted(source))
            if self.group_of(target) in groups:
                name = dotted(target)
                here = [dotted(s) for s in sources if dotted(s) in tree.modules]
                here = [s for s in here if not (s == SHIM)]
                self.targets[name] = here
                for source in here:
                    self.default[source] = name
        for source, parts in given.get("symbols", {}).items():
            for target, names in parts.items():
                if self.group_of(target) in groups and dotted(source) in tree.modules:
                    for symbol in names:
                        self.split[dotted(source)][symbol] = dotted(target)
                        self.targets.setdefault(dotted(target), [])
        for name in given.get("stay", []):
            mapped.add(dotted(name))
        every = {dotted(t) for t in given["modules"]} | mapped
        every |= {dotted(t) for parts in given["symbols"].values() for t in parts}
        self.unmapped = [
            name
            for name, source in tree.modules.items()
            if source.realm == "src" and name not in every and not self._is_facade(name)
        ]
        self.names: dict[Home, str] = {}
        self.shared: set[Home] = set()
        self.table = tomllib.loads((HERE / "rename_map.toml").read_text("utf-8"))
        self.renames = self._current_renames()
        for key, new in self.table["at_move"].items():
            path, _, name = key.partition(":")
            module = dotted(path)
            if module in self.default or name in self.split.get(module, ()):
                if name not in tree.modules[module].symbols:
                    REPORT.error(f"rename map: {key} is not there")
                self.names[module, name] = new
        self._follow_private()
        if renames:
            for (module, name), new in self.renames.items():
                if not groups or layer(module).rpartition(".")[2] in groups:
                    self.names[module, name] = new
        self._clashes()

    def _is_facade(self, name: str) -> bool:
        return self.tree.is_package(name)

    def group_of(self, target: str) -> str:
        special = self.given.get("groups", {})
        if target in special:
            return str(special[target])
        parts = target.split("/")
        if parts[0] == "surfaces":
            return parts[1] if len(parts) > 2 else "surfaces"
        return parts[0] if len(parts) > 1 else self.given["single"].get(target, target)

    def _current_renames(self) -> dict[Home, str]:
        found: dict[Home, str] = {}
        for key, new in self.table["names"].items():
            path, _, name = key.partition(":")
            home = self._current(dotted(path), name)
            if home is not None:
                found[home] = new
            elif (at := self._current(dotted(path), new)) is None:
                REPORT.note(f"rename map: {key} is not there")
        return found

    def _current(self, module: str, name: str) -> Home | None:
        """Where a symbol of the old tree is at this moment."""
        places = [module]
        for source, parts in self.given.get("symbols", {}).items():
            if dotted(source) == module:
                places += [dotted(t) for t, names in parts.items() if name in names]
        places += [
            dotted(t) for t, srcs in self.given["modules"].items() if module in map(dotted, srcs)
        ]
        for place in places:
            if place in self.tree.modules and name in self.tree.modules[place].symbols:
                return (place, name)
        return None

    # -- where things go

    def module(self, name: str) -> str:
        """The new name of a module (of most of it)."""
        if name in self.default:
            return self.default[name]
        if name in self.tests:
            return self.tests[name]
        for old, new in self.test_folders.items():
            if name == old or name.startswith(f"{old}."):
                return new + name.removeprefix(old)
        if self.tree.is_package(name) and name not in self.default:
            return self.package(name)
        return name

    def package(self, name: str) -> str:
        new = self.packages.get(name, name)
        if new != name and self.group_of_package(new) in self.groups:
            return new
        return name

    def group_of_package(self, new: str) -> str:
        return new.split(".")[1]

    def home(self, module: str, name: str) -> Home:
        """Where a symbol goes, and its name there."""
        new = self.names.get((module, name), name)
        if name in self.split.get(module, ()):
            return (self.split[module][name], new)
        return (self.module(module), new)

    def moved(self) -> set[str]:
        """Modules that are rebuilt or moved."""
        return set(self.default) | set(self.split)

    def _follow_private(self) -> None:
        """Private symbols go where all of their users go."""
        for module, parts in self.split.items():
            source = self.tree.modules[module]
            chunks = source.chunks()
            for name in parts:
                if name not in source.symbols:
                    REPORT.note(f"module map: {module} has no {name}")
            changed = True
            while changed:
                changed = False
                users: dict[str, set[str]] = defaultdict(set)
                for chunk in chunks:
                    goes = {self.home(module, n)[0] for n in chunk.names} or {self.module(module)}
                    for ref in source.refs:
                        if chunk.start <= ref.start < chunk.end and ref.binding is None:
                            if ref.name in source.symbols and ref.name not in chunk.names:
                                users[ref.name] |= goes
                for name, goes in users.items():
                    if name.startswith("_") and name not in parts and len(goes) == 1:
                        (goal,) = goes
                        if goal != self.module(module):
                            parts[name] = goal
                            changed = True

    def sources_of(self, target: str) -> list[str]:
        """The modules with something that goes to a target, the main one first."""
        found = list(self.targets.get(target, []))
        if target in self.tree.modules and target not in found:
            if self.module(target) == target and not self.tree.is_package(target):
                found.insert(0, target)
        for module, parts in self.split.items():
            if target in parts.values() and module not in found:
                found.append(module)
        return found

    def _clashes(self) -> None:
        for target in self.all_targets():
            taken: dict[str, tuple[str, str]] = {}
            for module in self.sources_of(target):
                source = self.tree.modules[module]
                texts = {n: chunk for chunk in source.chunks() for n in chunk.names}
                for name, chunk in texts.items():
                    goal, new = self.home(module, name)
                    if goal != target or name == "__all__":
                        continue
                    text = source.data[chunk.start : chunk.end].decode().strip()
                    if new not in taken:
                        taken[new] = (module, text)
                        continue
                    other, same = taken[new]
                    if text == same and _is_shareable(chunk.node):
                        self.shared.add((target, new))
                        continue
                    if (module, name) in self.renames:
                        self.names[module, name] = self.renames[module, name]
                    elif (other, new) in self.renames and not self.names.get((other, new)):
                        self.names[other, new] = self.renames[other, new]
                        taken[self.renames[other, new]] = taken.pop(new)
                    elif name.startswith("_"):
                        self.names[module, name] = _private_name(name, module)
                        REPORT.note(f"{target}: {module}.{name} -> {self.names[module, name]}")
                    else:
                        REPORT.error(f"{target}: {name} of {module} and of {other}: rename one")
                        continue
                    final = self.names.get((module, name), name)
                    if final in taken:
                        REPORT.error(f"{target}: {module}.{name} as {final} is taken as well")
                    taken[final] = (module, text)

    def all_targets(self) -> list[str]:
        kept = [m for m in self.split if self.module(m) == m]
        return list(dict.fromkeys([*self.targets, *kept]))


def _is_shareable(node: ast.stmt) -> bool:
    """Whether two equal definitions can become one: nothing that keeps state."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return True
    value = getattr(node, "value", None)
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in {
            "logging.getLogger",
            "getLogger",
            "re.compile",
            "TypeVar",
        }
    return isinstance(value, ast.Constant | ast.Subscript | ast.BinOp | ast.Tuple | ast.Name)


def _private_name(name: str, module: str) -> str:
    noun = module.rpartition(".")[2]
    bare = name.lstrip("_")
    if bare.isupper():
        return f"_{noun.upper()}_{bare}"
    if bare[:1].isupper():
        return "_" + "".join(p.title() for p in noun.split("_")) + bare
    return f"_{noun}_{bare}"


# --- rewriting --------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One imported name."""

    module: str
    name: str | None
    asname: str | None
    typing: bool = False
    comment: str = field(default="", compare=False)

    @property
    def local(self) -> str:
        return self.asname or self.name or self.module.partition(".")[0]

    def render(self) -> str:
        more = f" as {self.asname}" if self.asname and self.asname != self.name else ""
        if self.name is None:
            return f"import {self.module}{more}"
        return f"from {self.module} import {self.name}{more}"

    def line(self) -> str:
        return f"{self.render()}  {self.comment}" if self.comment else self.render()


@dataclass
class Edit:
    start: int
    end: int
    text: str


def apply(data: bytes, edits: Iterable[Edit], start: int = 0, end: int | None = None) -> bytes:
    end = len(data) if end is None else end
    out, at = [], start
    for edit in sorted({(e.start, e.end, e.text) for e in edits}):
        if edit[0] < start or edit[1] > end:
            continue
        if edit[0] < at:
            if edit[1] <= at:
                continue
            REPORT.error(f"overlapping edits at {data[edit[0] - 30 : edit[1] + 30]!r}")
            continue
        out += [data[at : edit[0]], edit[2].encode()]
        at = edit[1]
    out.append(data[at:end])
    return b"".join(out)


class Rewriter:
    """Rewrites files by a plan."""

    def __init__(self, tree: Tree, plan: Plan) -> None:
        self.tree, self.plan = tree, plan
        self.required: dict[str, dict[str, Home]] = defaultdict(dict)
        self.writes: dict[Path, bytes] = {}
        self.moves: dict[Path, Path] = {}
        self.removals: set[Path] = set()

    # -- what an import becomes

    def exports(self, package: str) -> dict[str, Home | str]:
        """What a package's front offers: symbols, or modules by name."""
        source = self.tree.modules.get(package)
        if source is None or not source.package:
            return {}
        found: dict[str, Home | str] = {}
        for name in [n for n, _, _ in source.all_names] or list(source.imports):
            kind, what = self.tree.resolve(package, name)
            if kind in ("symbol", "module"):
                found[name] = what
        return found

    def emission(
        self, source: Source, target: str, path: str, old: Home, exported: str
    ) -> tuple[str, str]:
        """Module and name to import a symbol by, in the file that becomes `target`."""
        module, name = self.plan.home(*old)
        export = name if exported == old[1] else exported
        if not module.startswith(TOP):
            return (module, name)
        inside = source.realm == "src"
        facade = self.tree.is_package(path) and path not in self.plan.default
        facade = facade or (path in self.plan.packages and self.tree.is_package(path))
        facade = facade and path != old[0]
        if path == TOP:
            return (TOP, export)
        if path == SHIM and self.tree.is_package(SHIM) and old[0] != SHIM:
            same = module.startswith(f"{SHIM}.")
            if inside and (same or layer(module) not in self.plan.surfaces):
                return (SHIM, export)
            if same:
                return (SHIM, export)
        elif facade and path != old[0]:
            new = self.plan.package(path)
            below = module == new or module.startswith(f"{new}.")
            outside = not (target == new or target.startswith(f"{new}."))
            if below and outside:
                self.require(new, export, (module, name))
                return (new, export)
        if inside and layer(target) == layer(module):
            return (module, name)
        deep = not facade
        if (not inside and deep) or layer(module) == module:
            return (module, name)
        if layer(module) in self.plan.no_front:
            return (module, name)
        if layer(module) == SHIM and target.startswith(TOP):
            return (module, name) if path != SHIM else (SHIM, export)
        if target == TOP:
            return (layer(module), export)
        self.require(layer(module), export, (module, name))
        return (layer(module), export)

    def require(self, facade: str, export: str, home: Home) -> None:
        known = self.required[facade].setdefault(export, home)
        if known != home:
            REPORT.error(f"{facade}: {export} is both {known} and {home}")

    def entry(
        self, source: Source, target: str, binding: Binding
    ) -> tuple[Entry | None, str | None]:
        """What a binding becomes: an import, or a name of the file itself."""
        kind, what = self.tree.target(binding)
        unchanged = Entry(binding.module, binding.name, binding.asname, binding.typing)
        if kind == "symbol":
            home = self.plan.home(*what)
            if home[0] == target:
                return None, home[1]
            assert binding.name is not None
            if home == what and layer(target) == layer(source.name):
                if self.plan.package(binding.module) == binding.module:
                    return self._relative(source, target, unchanged, binding), None
            path, name = self.emission(
                source, target, self._plain(binding.module), what, binding.name
            )
            if (path, name) == (self._plain(binding.module), binding.name):
                return self._relative(source, target, unchanged, binding), None
            asname = binding.asname
            if asname is None and name != binding.name and home[1] == what[1]:
                asname = binding.name
            entry = Entry(path, name, asname, binding.typing)
            return self._relative(source, target, entry, binding), None
        if kind == "module":
            new = self.plan.module(what)
            if self.tree.is_package(what) and what in self.plan.packages:
                new = self.plan.package(what)
            if new == target:
                return None, None
            if new == what:
                return self._relative(source, target, unchanged, binding), None
            parent, _, leaf = new.rpartition(".")
            local = self.alias(source, target, binding, leaf)
            entry = Entry(parent, leaf, local if local != leaf else None, binding.typing)
            return self._relative(source, target, entry, binding), None
        if kind == "dotted":
            return Entry(self.plan.module(what), None, binding.asname, binding.typing), None
        if kind == "foreign" and binding.module.startswith(f"{TOP}."):
            new = self.plan.module(binding.module)
            if new != target:
                return Entry(new, binding.name, binding.asname, binding.typing), None
            last = binding
            while last.name in getattr(self.tree.modules.get(last.module), "imports", {}):
                last = self.tree.modules[last.module].imports[last.name]
            asname = binding.local if binding.local != last.name else None
            comment = self.tree.modules[binding.module].comment(last.node)
            return Entry(last.module, last.name, asname, binding.typing, comment), None
        if kind == "unknown" and binding.module.startswith(TOP):
            REPORT.note(f"{source.name}: {binding.module}.{binding.name} is unknown")
            new = self.plan.module(binding.module)
            return Entry(new, binding.name, binding.asname, binding.typing), None
        comment = source.comment(binding.node)
        return replace(unchanged, comment=comment), None

    @staticmethod
    def _plain(module: str) -> str:
        return module.removeprefix("tests.") if module.startswith("tests.") else module

    def _relative(self, source: Source, target: str, entry: Entry, binding: Binding) -> Entry:
        """Tests import what lies beside them relatively, as they did."""
        node = binding.node
        if source.realm == "tests" and isinstance(node, ast.ImportFrom) and node.level:
            package = target if source.package else target.rpartition(".")[0]
            if target == source.name and entry.module == binding.module:
                dots = "." * node.level + (node.module or "")
                return Entry(dots, entry.name, entry.asname, entry.typing)
            if entry.module == package:
                return Entry(".", entry.name, entry.asname, entry.typing)
            if entry.module.startswith(f"{package}."):
                rest = entry.module.removeprefix(package)
                return Entry(rest, entry.name, entry.asname, entry.typing)
        return entry

    def alias(self, source: Source, target: str, binding: Binding, leaf: str) -> str:
        """The local name of a module object: its own, unless something else has that."""
        if binding.asname is not None:
            return binding.asname
        for other in self.plan.sources_of(target):
            if other != source.name and leaf in self.tree.modules[other].identifiers:
                return binding.local
        if leaf == binding.local or leaf not in source.identifiers:
            return leaf
        others = {b.local for b in source.imports.values() if b.local == leaf}
        same = all(
            self.plan.module(self.tree.target(source.imports[o])[1] or "").rpartition(".")[2]
            == leaf
            for o in others
            if self.tree.target(source.imports[o])[0] == "module"
        )
        if others and same and leaf not in source.symbols and not self._locally_bound(source, leaf):
            return leaf
        return binding.local

    @staticmethod
    def _locally_bound(source: Source, name: str) -> bool:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.arg) and node.arg == name:
                return True
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
                return True
        return False

    # -- uses

    def use(
        self, source: Source, target: str, ref: Ref, extra: set[Entry]
    ) -> tuple[list[Edit], str | None]:
        """Edits at one use, and the global name that it reads afterwards (None: foreign)."""
        binding = ref.binding or (
            None if ref.name in source.symbols else source.imports.get(ref.name)
        )
        if binding is None:
            if ref.name not in source.symbols:
                return [], None
            module, name = self.plan.home(source.name, ref.name)
            if module != target:
                path, got = self.emission(source, target, module, (source.name, ref.name), ref.name)
                if name.startswith("_"):
                    REPORT.note(f"{target} imports the private {name} of {module}")
                extra.add(Entry(path, got, None))
                name = got
            return self._renamed(source, ref, name)
        kind, what = self.tree.target(binding)
        if kind == "symbol":
            entry, name = self.entry(source, target, binding)
            return self._renamed(source, ref, name or (entry.local if entry else ref.name))
        if kind == "module":
            return self._module_use(source, target, ref, binding, what, extra)
        return [], ref.name

    def _renamed(self, source: Source, ref: Ref, name: str) -> tuple[list[Edit], str]:
        if name == ref.name:
            return [], name
        self._check_shadow(source, ref, name)
        return [Edit(ref.start, ref.end, name)], name

    def _check_shadow(self, source: Source, ref: Ref, name: str) -> None:
        scope: Scope | None = ref.scope
        while scope is not None and scope.kind != "module":
            if name in scope.bound and (scope.kind != "class" or scope is ref.scope):
                line = source.line_of(ref.start)
                REPORT.error(f"{source.name}:{line}: {name} (for {ref.name}) is bound locally")
            scope = scope.parent

    def _module_use(
        self, source: Source, target: str, ref: Ref, binding: Binding, what: str, extra: set[Entry]
    ) -> tuple[list[Edit], str | None]:
        entry, _ = self.entry(source, target, binding)
        local = entry.local if entry else None
        if not ref.attrs:
            if local is None:
                REPORT.error(f"{source.name}: {ref.name} as an object, which becomes this module")
                return [], None
            return self._renamed(source, ref, local)
        attr, start, end = ref.attrs[0]
        kind, found = self.tree.resolve(what, attr)
        quoted = source.data[start - 1 : start] in (b'"', b"'")
        edits: list[Edit] = []
        if kind == "symbol" and (found[0] == what or self.tree.is_package(what)):
            module, name = self.plan.home(*found)
            here = self.plan.package(what) if self.tree.is_package(what) else self.plan.module(what)
            if self.tree.is_package(what) and found[0] != what:
                left = not (module == here or module.startswith(f"{here}."))
                if what == SHIM or not left:
                    if not left:
                        export = name if attr == found[1] else attr
                        self.require(here, export, (module, name))
                        if export != attr:
                            edits.append(Edit(start, end, export))
                    module = here
                else:
                    module = layer(module)
            if module == target:
                if quoted:
                    REPORT.error(f"{source.name}: setattr of {attr} on its own module")
                    return [], None
                self._check_shadow(source, ref, name)
                return [Edit(ref.start, end, name)], name
            if name != attr and not edits and module != here:
                edits.append(Edit(start, end, name))
            elif name != attr and not edits:
                edits.append(Edit(start, end, name))
            if module != here:
                parent, _, leaf = module.rpartition(".")
                extra.add(Entry(parent, leaf, None, binding.typing))
                edits.append(Edit(ref.start, ref.end, leaf))
                return edits, leaf
        elif kind == "module" and self.tree.is_package(what):
            new = self.plan.module(found)
            if new != found:
                edits.append(Edit(start, end, new.rpartition(".")[2]))
        if local is None:
            if quoted or kind == "symbol":
                REPORT.error(f"{source.name}: {ref.name}.{attr} cannot be resolved")
                return edits, None
            # A name that the merged module imports itself: it is global here as well.
            self._check_shadow(source, ref, attr)
            return [Edit(ref.start, end, attr)], attr
        more, local = self._renamed(source, ref, local)
        return [*edits, *more], local

    # -- files

    def run(self) -> None:
        targets = self.plan.all_targets()
        rebuilt: set[str] = set()
        for target in targets:
            sources = self.plan.sources_of(target)
            if not sources:
                continue
            whole = len(sources) == 1 and sources[0] not in self.plan.split
            if whole:
                self.in_place(self.tree.modules[sources[0]], target)
            else:
                self.rebuild(target, [self.tree.modules[s] for s in sources])
            rebuilt.update(sources)
            rebuilt.add(target)
        for module in self.plan.moved():
            if module not in rebuilt:
                REPORT.error(f"{module} was not handled")
        facades = []
        for source in self.tree.sources:
            if source.name in rebuilt and self.tree.modules.get(source.name) is source:
                if not (source.package and source.name in self.plan.packages):
                    continue
                continue
            if source.realm == "src" and source.package and source.name != TOP:
                facades.append(source)
                continue
            self.in_place(source, self.plan.module(source.name))
        for source in facades:
            self.facade(source)
        self.new_facades()
        self.texts()
        self.test_folders()

    def test_folders(self) -> None:
        """Data files of folders that move, packages of new ones, fixtures from elsewhere."""
        tests = ROOT / "tests"
        for old, new in self.plan.test_folders.items():
            old_folder = tests.joinpath(*old.split("."))
            listed = subprocess.run(
                ["git", "ls-files", "-z", old_folder], cwd=ROOT, capture_output=True, text=True
            ).stdout.split("\0")
            for path in [ROOT / name for name in listed if name]:
                if path not in self.moves:
                    goal = tests.joinpath(*new.split(".")) / path.relative_to(old_folder)
                    if path.suffix != ".py" or goal.name == "__init__.py":
                        self.moves[path] = goal
        for new in {*self.plan.tests.values(), *self.plan.test_folders.values()}:
            folder = new.rpartition(".")[0] if new in self.plan.tests.values() else new
            init = tests.joinpath(*folder.split("."), "__init__.py")
            if folder and not init.exists() and init not in self.moves.values():
                self.writes.setdefault(init, b"")
        for old in self.plan.tests:
            folder = tests.joinpath(*old.split(".")).parent
            listed = subprocess.run(
                ["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, text=True
            ).stdout.split("\0")
            left = [ROOT / name for name in listed if name]
            if all(p.name == "__init__.py" or p in self.moves for p in left):
                self.removals.add(folder / "__init__.py")
        for folder, imported in self.plan.conftests.items():
            path = tests / folder / "conftest.py"
            data = self.writes.get(path, path.read_bytes() if path.exists() else b"")
            lines, tail = "", ""
            for module, names in imported.items():
                parent, _, leaf = module.rpartition(".")
                lines += f"from {parent} import {leaf} as {parent}_{leaf}\n"
                tail += "\n" + "".join(f"{n} = {parent}_{leaf}.{n}\n" for n in names)
            if not data:
                doc = f'"""Fixtures of {", ".join(imported)} for these tests."""\n\n'
                self.writes[path] = (doc + lines + tail).encode()
                continue
            source = Source("conftest", path, data, "tests")
            imports = [n for n in source.tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
            at = source.line_end(imports[-1].end_lineno)
            end = len(data)
            self.writes[path] = apply(data, [Edit(at, at, lines), Edit(end, end, tail)])

    def path_of(self, module: str, like: Source) -> Path:
        if like.realm in ("src", "tests"):
            base = SRC if like.realm == "src" else ROOT / "tests"
            return base.joinpath(*module.split(".")).with_suffix(".py")
        return base_path(like)

    def statement_edits(
        self,
        source: Source,
        target: str,
        drop: Callable[[Binding], bool] | None = None,
        span: tuple[int, int] | None = None,
    ) -> list[Edit]:
        """Edits of all import statements of a file, in place."""
        edits = []
        typing = {id(b.node) for b in source.imports.values() if b.typing}
        for node in source.statements:
            entries, changed = [], False
            if span and not span[0] <= source.span(node)[0] < span[1]:
                continue
            for binding in source.bindings(node, typing=id(node) in typing):
                if drop and drop(binding):
                    changed = True
                    continue
                entry, _ = self.entry(source, target, binding)
                if entry is None:
                    changed = True
                    continue
                entries.append(entry)
                old = Entry(binding.module, binding.name, binding.asname)
                written = Entry(_written(node), binding.name, binding.asname)
                new = Entry(entry.module, entry.name, entry.asname)
                changed = changed or new not in (old, written)
            if not changed:
                continue
            edits.append(self._statement(source, node, entries))
        return edits

    def _statement(
        self, source: Source, node: ast.Import | ast.ImportFrom, entries: list[Entry]
    ) -> Edit:
        start, end = source.span(node)
        line_end = source.line_end(node.end_lineno or node.lineno)
        tail = source.data[end:line_end].decode().strip()
        comment = tail if tail.startswith("#") else ""
        indent = " " * node.col_offset
        rendered = list(dict.fromkeys(entry.render() for entry in _grouped(entries)))
        if not rendered:
            if self._is_alone(source, node):
                return Edit(start, end, "pass")
            if comment:
                REPORT.note(f"{source.name}: import with {comment} is gone")
            first = source.line_start(node.lineno)
            if source.data[first:start].strip() or (tail and not comment):
                return Edit(start, end, "pass")
            return Edit(first, line_end, "")
        text = f"\n{indent}".join(rendered)
        return Edit(start, end, text)

    @staticmethod
    def _is_alone(source: Source, node: ast.stmt) -> bool:
        for parent in ast.walk(source.tree):
            for part in ("body", "orelse", "finalbody"):
                body = getattr(parent, part, None)
                if isinstance(body, list) and node in body:
                    return len(body) == 1 and not isinstance(parent, ast.Module)
        return False

    def use_edits(
        self, source: Source, target: str, extra: set[Entry], span: tuple[int, int] | None = None
    ) -> tuple[list[Edit], set[str]]:
        edits: list[Edit] = []
        used: set[str] = set()
        for ref in source.refs:
            if span and not span[0] <= ref.start < span[1]:
                continue
            found, _ = self.use(source, target, ref, extra)
            edits += found
            if ref.binding is None and ref.name != "TYPE_CHECKING":
                used.add(ref.name)
        return edits, used

    def in_place(self, source: Source, target: str) -> None:
        edits, extra = self.statement_edits(source, target), set[Entry]()
        more, _ = self.use_edits(source, target, extra)
        edits += more
        edits += self.all_edits(source)
        edits += self.string_edits(source)
        edits += self.extra_edit(source, extra)
        self.finish(source, target, edits)

    def extra_edit(self, source: Source, extra: set[Entry]) -> list[Edit]:
        if not extra:
            return []
        known = {e.render() for e in extra}
        imports = [n for n in source.tree.body if isinstance(n, ast.Import | ast.ImportFrom)] or (
            [source.docstring] if source.docstring else []
        )
        at = source.line_end(imports[-1].end_lineno or 1) if imports else 0
        return [Edit(at, at, "".join(f"{text}\n" for text in sorted(known)))]

    def finish(self, source: Source, target: str, edits: list[Edit]) -> None:
        assert source.path is not None
        data = apply(source.data, edits)
        if target == source.name and source.realm in ("src", "tests"):
            path = source.path
        elif source.realm in ("src", "tests"):
            path = self.path_of(target, source)
            if source.package and source.realm == "tests":
                path = path.with_suffix("") / "__init__.py"
            elif (
                source.package
                and self.tree.is_package(source.name)
                and target in (self.plan.packages.get(source.name),)
            ):
                path = path.with_suffix("") / "__init__.py"
        else:
            path = source.path
        if path != source.path:
            self.moves[source.path] = path
        if data != source.data or path != source.path or source.path in self.tree.edited:
            self.writes[path] = data

    def all_edits(self, source: Source) -> list[Edit]:
        """Renamed entries of `__all__` and of lazy tables."""
        edits = []
        for name, start, end in source.all_names:
            new = self.exported(source, name)
            if new != name:
                edits.append(Edit(start, end, f'"{new}"'))
        for name, home, (start, end), (at, until) in source.lazy:
            new = self.exported(source, name)
            if new != name:
                edits.append(Edit(start, end, f'"{new}"'))
            binding = source.imports.get(name)
            if binding is not None and home.startswith(TOP):
                entry, _ = self.entry(source, source.name, binding)
                if entry is not None:
                    kind, what = self.tree.target(binding)
                    if kind == "symbol" and self.plan.home(*what) != what:
                        edits.append(Edit(at, until, f'"{entry.module}"'))
        return edits

    def exported(self, source: Source, name: str) -> str:
        kind, what = self.tree.resolve(source.name, name)
        if kind == "symbol":
            module, new = self.plan.home(*what)
            if what[1] == name:
                return new
        if kind == "module" and not self.tree.is_package(what):
            return self.plan.module(what).rpartition(".")[2]
        return name

    # -- merging

    def rebuild(self, target: str, sources: list[Source]) -> None:
        """One module from (parts of) several."""
        order = self._order(target, sources)
        entries: dict[str, list[tuple[Entry, str]]] = defaultdict(list)
        bodies, ends, exported = [], [], []
        extra: set[Entry] = set()
        defined: set[str] = set()
        last: Chunk | None = None
        for source in order:
            strings = self.string_edits(source)
            chunks = source.chunks()
            for number, chunk in enumerate(chunks):
                goals = {self.plan.home(source.name, n)[0] for n in chunk.names}
                if not goals:
                    goals = {self.plan.module(source.name)}
                if len(goals) > 1:
                    REPORT.error(f"{source.name}: {chunk.names} go to several modules")
                if goals != {target}:
                    continue
                news = [self.plan.home(source.name, n)[1] for n in chunk.names]
                if news and all((target, n) in self.plan.shared for n in news):
                    if set(news) <= defined:
                        continue
                edits, used = self.use_edits(source, target, extra, (chunk.start, chunk.end))
                for name in used:
                    binding = source.imports.get(name)
                    if name in source.symbols or binding is None:
                        continue
                    at = source.span(binding.node)[0]
                    if any(c.start <= at < c.end for c in source.chunks()):
                        continue
                    entry, _ = self.entry(source, target, binding)
                    if entry is not None and (entry, source.name) not in entries[entry.local]:
                        entries[entry.local].append((entry, source.name))
                inner = self.statement_edits(source, target, span=(chunk.start, chunk.end))
                text = apply(source.data, [*edits, *strings, *inner], chunk.start, chunk.end)
                lead = text[: len(text) - len(text.lstrip(b"\n"))]
                text = chunk.prefix + text.strip(b"\n")
                follows = number and chunks[number - 1] is last and not chunk.last
                if follows and len(lead) < 1 and not chunk.prefix and bodies:
                    bodies[-1] += b"\n" + text
                else:
                    (ends if chunk.last else bodies).append(text)
                last = chunk
                defined.update(self.plan.home(source.name, n)[1] for n in chunk.names)
            for name, _, _ in source.all_names:
                kind, what = self.tree.resolve(source.name, name)
                if kind == "symbol" and self.plan.home(*what)[0] == target:
                    exported.append(self.plan.home(*what)[1])
                elif kind == "foreign" and self.plan.module(source.name) == target:
                    exported.append(name)
                    entry, _ = self.entry(source, target, source.imports[name])
                    if entry is not None and (entry, source.name) not in entries[entry.local]:
                        entries[entry.local].append((entry, source.name))
                elif kind == "symbol" and self.plan.module(source.name) == target:
                    if not source.package:
                        REPORT.note(f"{target}: {name} was re-exported by {source.name}")
            self._side_effects(source, target)
        for entry in extra:
            entries[entry.local].append((entry, target))
        future = any(b"from __future__ import annotations" in s.data for s in sources)
        if future:
            entries.pop("annotations", None)
            REPORT.note(f"{target} has `from __future__ import annotations`")
        imports, typing = self._merged(target, entries, defined)
        main = sources[0]
        doc = main.text(main.docstring) if main.docstring else f'"""{target}."""'
        if self.plan.module(main.name) != target:
            noun = target.removeprefix(f"{TOP}.").replace(".", "/")
            doc = f'"""{self.plan.given["docs"].get(noun, noun.capitalize() + ".")}"""'
        parts = [doc.encode()]
        if future:
            parts.append(b"from __future__ import annotations")
        if imports:
            parts.append("\n".join(imports).encode())
        if typing:
            block = "\n".join(f"    {line}" for line in typing)
            if not any(s.typing_flag for s in sources):
                parts[-1:] = [parts[-1] + b"\nfrom typing import TYPE_CHECKING"]
            if any(s.typing_flag for s in sources):
                lines = re.findall(
                    rb"(?m)^TYPE_CHECKING = False.*$", b"\n".join(s.data for s in sources)
                )
                parts.append(max(lines, key=len) + f"\nif TYPE_CHECKING:\n{block}".encode())
            else:
                parts.append(f"if TYPE_CHECKING:\n{block}".encode())
        names = sorted(dict.fromkeys(exported))
        if names and not all(s.package for s in sources if s.all_names):
            listed = "".join(f'    "{name}",\n' for name in names)
            parts.append(f"__all__ = [\n{listed}]".encode())
        data = b"\n\n".join([*parts, *bodies, *ends]) + b"\n"
        path = SRC.joinpath(*target.split(".")).with_suffix(".py")
        self.writes[path] = data
        keeps = {s.name for s in sources if self._keeps(s, target)}
        for source in sources:
            assert source.path is not None
            if source.path == path or source.name in keeps:
                continue
            default = self.plan.module(source.name) == target
            if path not in self.moves.values() and default and not path.exists():
                self.moves.setdefault(source.path, path)
            elif source.path not in self.moves:
                self.removals.add(source.path)

    def _keeps(self, source: Source, target: str) -> bool:
        """Whether a module stays where it is, with what is left in it."""
        return self.plan.module(source.name) == source.name and source.name != target

    def _side_effects(self, source: Source, target: str) -> None:
        for node in source.tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                tail = source.data[source.span(node)[1] : source.line_end(node.end_lineno or 1)]
                if b"#" in tail:
                    REPORT.note(
                        f"{target}: {source.name} had {source.text(node)} {tail.decode()!r}"
                    )

    def _merged(
        self, target: str, entries: dict[str, list[tuple[Entry, str]]], defined: set[str]
    ) -> tuple[list[str], list[str]]:
        imports, typing = [], []
        for local, found in sorted(entries.items()):
            kinds = {(e.module, e.name) for e, _ in found}
            if len(kinds) > 1:
                origin = ", ".join(f"{e.render()} ({s})" for e, s in found)
                REPORT.error(f"{target}: {local} is imported as different things: {origin}")
            if local in defined:
                origin = ", ".join(f"{e.render()} ({s})" for e, s in found)
                REPORT.error(f"{target}: {local} is defined and imported: {origin}")
            if all(e.typing for e, _ in found):
                typing.append(found[0][0].line())
            else:
                imports.append(next(e for e, _ in found if not e.typing).line())
        return sorted(set(imports)), sorted(set(typing) - set(imports))

    def _order(self, target: str, sources: list[Source]) -> list[Source]:
        """Dependencies first; by all uses if that has no cycle, else by those of importing."""
        for every in (True, False):
            needs: dict[str, set[str]] = {s.name: set() for s in sources}
            for source in sources:
                for ref in source.refs:
                    if ref.deferred and not every:
                        continue
                    needs[source.name] |= self._homes_of(source, ref, target) & set(needs)
                needs[source.name].discard(source.name)
            order = _topological([s.name for s in sources], needs)
            if order is not None:
                return [self.tree.modules[name] for name in order]
        REPORT.error(f"{target}: its modules need each other when they are imported: {needs}")
        return sources

    def _homes_of(self, source: Source, ref: Ref, target: str) -> set[str]:
        binding = ref.binding or (
            None if ref.name in source.symbols else source.imports.get(ref.name)
        )
        if binding is None:
            return set()
        kind, what = self.tree.target(binding)
        if kind == "symbol":
            return {what[0]} if self.plan.home(*what)[0] == target else set()
        if kind == "module":
            if ref.attrs:
                kind, found = self.tree.resolve(what, ref.attrs[0][0])
                if kind == "symbol" and self.plan.home(*found)[0] == target:
                    return {found[0]}
            return set()
        return set()

    # -- fronts of packages

    def facade(self, source: Source) -> None:
        new = self.plan.package(source.name)
        if source.name in self.plan.default:
            return
        exports: dict[str, Home | str] = {}
        gone: set[str] = set()
        for name, what in self.exports(source.name).items():
            if isinstance(what, str):
                exports[name] = what
                continue
            home = self.plan.home(*what)
            export = home[1] if name == what[1] else name
            left = not (home[0] == new or home[0].startswith(f"{new}."))
            left = left and layer(home[0]) != new and source.name != SHIM
            if left and what[0] != home[0] and any(n == name for n, _, _ in source.all_names):
                gone.add(name)
                if layer(home[0]) != home[0] and layer(home[0]) not in self.plan.no_front:
                    if layer(home[0]) != layer(source.name) or layer(new) != layer(home[0]):
                        self.require(layer(home[0]), export, home)
            else:
                exports[export] = home
        self._pending = getattr(self, "_pending", [])
        self._pending.append((source, new, exports, gone))

    def new_facades(self) -> None:
        seen = set()
        for source, new, exports, gone in getattr(self, "_pending", []):
            seen.add(new)
            wanted = (
                {e: h for e, h in self.required[new].items() if e not in exports}
                if new != SHIM
                else {}
            )
            if new in self.plan.lazy and (source.lazy or new.split(".")[1] in self.plan.groups):
                every = {**{e: h for e, h in exports.items() if not isinstance(h, str)}, **wanted}
                doc = source.text(source.docstring) if source.docstring else None
                self.write_lazy(source, new, every, doc)
                continue
            needed = {ref.name for ref in source.refs if ref.binding is None}
            unused = gone - needed
            edits = self.statement_edits(source, new, lambda b, g=unused: b.local in g)  # type: ignore[misc]
            extra: set[Entry] = set()
            more, _ = self.use_edits(source, new, extra)
            edits += more
            edits += [e for e in self.all_edits(source)]
            for name, start, end in source.all_names:
                if name in gone:
                    rest = re.compile(rb"\s*,?").match(source.data, end)
                    assert rest
                    edits = [e for e in edits if e.start != start]
                    edits.append(Edit(start, rest.end(), ""))
            edits += self.string_edits(source)
            edits += self.extra_edit(source, extra)
            before = len(source.data)
            if wanted:
                edits += self._additions(source, new, wanted)
            self.finish(source, new, edits)
            del before
        for facade, wanted in list(self.required.items()):
            if facade in seen or not wanted:
                continue
            path = SRC.joinpath(*facade.split("."), "__init__.py")
            if facade == layer(facade) and not self._is_module(facade):
                self.write_lazy(None, facade, dict(wanted), None)
            elif not path.exists():
                REPORT.error(f"{facade} has no front for {sorted(wanted)}")

    def _is_module(self, name: str) -> bool:
        return name in self.plan.targets or (
            name in self.tree.modules and not self.tree.is_package(name)
        )

    def _additions(self, source: Source, new: str, wanted: dict[str, Home]) -> list[Edit]:
        """More exports of a front that imports eagerly: lazily unless the map says otherwise."""

        def line(export: str, home: Home) -> str:
            more = f" as {export}" if export != home[1] else ""
            return f"from {home[0]} import {home[1]}{more}\n"

        lines = "".join(line(e, h) for e, h in sorted(wanted.items()))
        imports = [n for n in source.tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        at = source.line_end(imports[-1].end_lineno or 1) if imports else None
        if at is None:
            doc = source.docstring
            at = source.line_end(doc.end_lineno or 1) if doc else 0
            lines = "\n" + lines
        edits = []
        eager = new in self.plan.eager_additions
        if eager:
            edits.append(Edit(at, at, lines))
        else:
            if source.lazy:
                REPORT.error(f"{new}: cannot add to its lazy table: {sorted(wanted)}")
            indented = "".join(f"    {one}\n" for one in lines.strip().split("\n"))
            block = (
                "from importlib import import_module\nfrom typing import TYPE_CHECKING, Any\n"
                f"if TYPE_CHECKING:\n{indented}"
            )
            edits.append(Edit(at, at, block))
            table = "".join(f'    "{e}": "{h[0]}",\n' for e, h in sorted(wanted.items()))
            tail = f"\n\n_HOMES = {{\n{table}}}\n\n\n{LAZY_FULL}"
            edits.append(Edit(len(source.data), len(source.data), tail))
        if source.all_names:
            _, _, last = source.all_names[-1]
            names = "".join(f', "{name}"' for name in sorted(wanted))
            edits.append(Edit(last, last, names))
        else:
            names = ", ".join(f'"{name}"' for name in sorted(wanted))
            edits.append(Edit(at, at, f"\n__all__ = [{names}]\n"))
        return edits

    def write_lazy(
        self, source: Source | None, new: str, exports: dict[str, Any], doc: str | None
    ) -> None:
        modules = {m.rpartition(".")[2] for m in self._new_modules() if m.rpartition(".")[0] == new}
        for export in set(exports) & modules:
            REPORT.error(f"{new}: {export} is also a module, and is loaded lazily")
        if doc is None:
            doc = f'"""{self.plan.given["docs"].get(new.removeprefix("toolkiln."), new + ".")}"""'
        lines = sorted(
            f"    from {h[0]} import {h[1]}" + (f" as {e}" if e != h[1] else "")
            for e, h in exports.items()
        )
        relative = {e: h[0].removeprefix(f"{new}.") for e, h in exports.items()}
        aliased = {e for e, h in exports.items() if e != h[1]}
        if aliased:
            REPORT.error(f"{new}: {sorted(aliased)} have another name at home")
        table = "".join(f'    "{e}": "{relative[e]}",\n' for e in sorted(exports))
        names = "".join(f'    "{e}",\n' for e in sorted(exports))
        text = (
            f"{doc}\n\nfrom importlib import import_module\nfrom typing import TYPE_CHECKING, Any\n\n"
            "if TYPE_CHECKING:\n" + "\n".join(lines) + f"\n\n_HOMES = {{\n{table}}}\n\n"
            f"__all__ = [\n{names}]\n\n\n{LAZY}"
        )
        path = SRC.joinpath(*new.split("."), "__init__.py")
        if source is not None and source.path != path:
            assert source.path is not None
            self.moves[source.path] = path
        if not path.exists() or path.read_bytes() != text.encode():
            self.writes[path] = text.encode()

    def _new_modules(self) -> set[str]:
        found = set(self.plan.targets)
        for name, source in self.tree.modules.items():
            if source.realm == "src":
                found.add(self.plan.module(name))
        return found

    # -- strings, comments and other files

    def string_edits(self, source: Source) -> list[Edit]:
        spans = [source.span(node) for node in source.statements]
        skip = [
            (start, end)
            for _, _, k, (start, end) in source.lazy
            for start, end in (k, (start, end))
        ]
        edits = []
        for start, end, new in self.text_edits(source.data.decode()):
            if any(s <= start < e for s, e in [*spans, *skip]):
                continue
            edits.append(Edit(start, end, new))
        return edits

    def text_edits(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Changes of dotted names, imports in quoted code and paths; offsets in bytes."""
        taken: list[tuple[int, int]] = []

        def put(found: re.Match[str], new: str) -> Iterator[tuple[int, int, str]]:
            taken.append(found.span())
            if new != found.group():
                start = len(text[: found.start()].encode())
                yield start, start + len(found.group().encode()), new

        for found in IMPORT.finditer(text):
            yield from put(found, self.quoted_import(found))
        for found in DOTTED.finditer(text):
            if not any(s <= found.start() < e for s, e in taken):
                yield from put(found, self.redot(found.group()))
        for found in PATH.finditer(text):
            if not any(s <= found.start() < e for s, e in taken):
                yield from put(found, self.repath(found))
        for found in TESTS.finditer(text):
            if not any(s <= found.start() < e for s, e in taken):
                for old, new in self.plan.test_folders.items():
                    folder = old.replace(".", "/")
                    if found.group(1) == folder or found.group(1).startswith(f"{folder}/"):
                        rest = found.group(1).removeprefix(folder)
                        yield from put(found, f"tests/{new.replace('.', '/')}{rest}")
                        break
        for found in GLOB.finditer(text):
            if not any(s <= found.start() < e for s, e in taken):
                new = self.plan.package(dotted(found.group(1)))
                yield from put(found, f"src/{new.replace('.', '/')}/**")

    def quoted_import(self, found: re.Match[str]) -> str:
        module, names = found.group(1), [n.strip() for n in found.group(2).split(",")]
        if module not in self.tree.modules:
            return found.group()
        groups: dict[str, list[str]] = defaultdict(list)
        fake = Source("quoted", None, b"", "other")
        for each in names:
            name, _, asname = each.partition(" as ")
            kind, what = self.tree.resolve(module, name)
            if kind == "symbol":
                path, new = self.emission(fake, "quoted", module, what, name)
            elif kind == "module":
                path, _, new = self.plan.module(what).rpartition(".")
            else:
                path, new = self.plan.module(module), name
            groups[path].append(f"{new} as {asname}" if asname else new)
        if len(groups) > 1:
            lines = [f"from {m} import {', '.join(n)}" for m, n in groups.items()]
            before = found.string[: found.start()].rpartition("\n")[2]
            return f"\n{before}".join(lines) if not before.strip() else "; ".join(lines)
        ((path, new_names),) = groups.items()
        return f"from {path} import {', '.join(new_names)}"

    def redot(self, text: str) -> str:
        parts = text.split(".")
        for count in range(len(parts), 0, -1):
            module = ".".join(parts[:count])
            if module in self.tree.modules:
                break
        else:
            return text
        rest = parts[count:]
        package = self.tree.is_package(module)
        if not rest:
            return self.plan.package(module) if package else self.plan.module(module)
        kind, what = self.tree.resolve(module, rest[0])
        if kind == "symbol" and what[0] == module and not package:
            home, name = self.plan.home(*what)
            return ".".join([home, name, *rest[1:]])
        if kind == "symbol" and package:
            fake = Source("quoted", None, b"", "other")
            path, name = self.emission(fake, "quoted", module, what, rest[0])
            return ".".join([path, name, *rest[1:]])
        if rest[0] in self.tree.modules[module].imports and not package:
            name = rest[0]
            if kind == "symbol" and what[1] == name:
                name = self.plan.home(*what)[1]
            return ".".join([self.plan.module(module), name, *rest[1:]])
        return ".".join([self.plan.package(module) if package else self.plan.module(module), *rest])

    def repath(self, found: re.Match[str]) -> str:
        prefix, path = found.group(1) or "", found.group(2)
        if prefix == "tests/":
            module = name_of(ROOT / "tests" / f"{path}.py")
            if module not in self.tree.modules:
                return found.group()
            new = self.plan.module(module).replace(".", "/")
            return f"tests/{new}.py" if not self.tree.is_package(module) else found.group()
        module = dotted(path)
        if module not in self.tree.modules or module == TOP:
            return found.group()
        new = self.plan.module(module)
        if new == module:
            return found.group()
        return f"{prefix}{new.removeprefix(f'{TOP}.').replace('.', '/')}.py"

    def texts(self) -> None:
        for pattern in TEXTS:
            for path in ROOT.glob(pattern):
                if not path.is_file() or "node_modules" in path.parts or path in self.writes:
                    continue
                if path.suffix == ".py" and path.name != "hatch_build.py":
                    continue
                try:
                    text = path.read_text("utf-8")
                except UnicodeDecodeError:
                    continue
                edits = [Edit(*edit) for edit in self.text_edits(text)]
                if path.suffix == ".md":
                    edits += self.blocks(path, text)
                data = apply(text.encode(), edits)
                if data != text.encode():
                    self.writes[path] = data

    def blocks(self, path: Path, text: str) -> Iterator[Edit]:
        """Edits in the Python blocks of a page, beyond the imports."""
        for found in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
            base = len(text[: found.start(1)].encode())
            try:
                source = Source(str(path), None, found.group(1).encode(), "other")
            except SyntaxError:
                continue
            edits, _ = self.use_edits(source, "quoted", set())
            for edit in edits:
                yield Edit(base + edit.start, base + edit.end, edit.text)

    def write(self) -> None:
        for old, new in self.moves.items():
            new.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "mv", "-f", old, new], check=True, cwd=ROOT)
        for path in self.removals:
            if path not in self.writes and path not in self.moves:
                subprocess.run(["git", "rm", "-qf", path], check=True, cwd=ROOT)
        for edit in self.tree.text_edits:
            path = self.moves.get(ROOT / edit["file"], ROOT / edit["file"])
            data = self.writes.get(path) or path.read_bytes()
            if edit["old"].encode() not in data:
                print(f"ERROR: edits: {edit['file']} has no {edit['old']!r}")
            self.writes[path] = data.replace(edit["old"].encode(), edit["new"].encode())
        for path, data in self.writes.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            subprocess.run(["git", "add", path], check=True, cwd=ROOT)


LAZY = """def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
"""
LAZY_FULL = LAZY.replace('f"{__name__}.{_HOMES[name]}"', "_HOMES[name]")
IMPORT = re.compile(r"from (toolkiln[\w.]*) import ((?:\w+(?: as \w+)?)(?:, ?\w+(?: as \w+)?)*)")
DOTTED = re.compile(r"(?<![\w./-])toolkiln(?:\.[A-Za-z_]\w*)+")
PATH = re.compile(r"(?<![\w/.-])(src/toolkiln/|toolkiln/|tests/)?((?:[a-z_]\w*/)*[a-z_]\w*)\.py\b")
TESTS = re.compile(r"(?<![\w/])tests/([a-z_]\w*(?:/\w+)*)(?![\w.]*\.py)")
GLOB = re.compile(r"src/toolkiln/([a-z_/]+)/\*\*")


def _written(node: ast.Import | ast.ImportFrom) -> str:
    if isinstance(node, ast.ImportFrom):
        return "." * node.level + (node.module or "")
    return ""


def _grouped(entries: list[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda e: (e.module, e.name or ""))


def _topological(names: list[str], needs: dict[str, set[str]]) -> list[str] | None:
    order: list[str] = []
    state: dict[str, int] = {}

    def visit(name: str) -> bool:
        if state.get(name) == 2:
            return True
        if state.get(name) == 1:
            return False
        state[name] = 1
        if not all(visit(n) for n in names if n in needs[name]):
            return False
        state[name] = 2
        order.append(name)
        return True

    return order if all(visit(n) for n in names) else None


def base_path(source: Source) -> Path:
    assert source.path is not None
    return source.path


# --- commands ---------------------------------------------------------------------------


def tidy() -> None:
    bin_ = ROOT / ".venv" / "bin"
    fix = ["check", "--fix", "-q", "."]
    for command in (fix, ["format", "-q", "."], fix):
        subprocess.run([bin_ / "ruff", *command], cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    subprocess.run([bin_ / "ruff", "check", "-q", "--output-format=concise", "."], cwd=ROOT)
    subprocess.run(["git", "add", "-u"], cwd=ROOT, check=True)
    for folder in sorted((SRC / TOP).rglob("*"), reverse=True):
        if folder.is_dir() and folder.name == "__pycache__":
            continue
        if folder.is_dir() and not any(p.name != "__pycache__" for p in folder.iterdir()):
            subprocess.run(["rm", "-rf", folder], check=True)


def broken_imports() -> list[str]:
    """Modules that cannot be imported, as by a cycle, each first in an interpreter of its package."""
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        module = importlib.import_module(name)\n"
        "        [getattr(module, n) for n in getattr(module, '__all__', ())]\n"
        "    except BaseException as error:\n"
        "        print(f'{name}: {type(error).__name__}: {error}'[:300])\n"
    )
    by_package: dict[str, list[str]] = defaultdict(list)
    for path in sorted((SRC / TOP).rglob("*.py")):
        if path.name != "__main__.py":
            by_package[layer(name_of(path))].append(name_of(path))
    found = []
    for names in by_package.values():
        command = [ROOT / ".venv" / "bin" / "python", "-c", code, *names]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        found += done.stdout.splitlines()
    return found


def show() -> None:
    for note in REPORT.notes:
        print("note:", note)
    for error in REPORT.errors:
        print("ERROR:", error)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["check", "move", "rename"])
    parser.add_argument("groups", nargs="*")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--commit", action="store_true")
    parser.add_argument("--force", action="store_true", help="write in spite of errors")
    given = parser.parse_args()
    if given.command == "check":
        plan = Plan(Tree(), [], renames=False)
        for name in plan.unmapped:
            print("unmapped:", name)
        return 1 if plan.unmapped else 0
    for group in given.groups if given.command == "move" else [None]:
        REPORT.__init__()  # type: ignore[misc]
        moving = given.command == "move"
        tree = Tree([group] if moving else [])
        plan = Plan(tree, [group] if moving else given.groups, renames=not moving)
        if plan.unmapped:
            print("unmapped modules:", ", ".join(plan.unmapped))
            return 1
        if not moving:
            plan.targets.clear(), plan.default.clear(), plan.split.clear()
        rewriter = Rewriter(tree, plan)
        rewriter.run()
        show()
        if REPORT.errors and not given.force:
            return 1
        if given.dry:
            continue
        rewriter.write()
        tidy()
        if broken := broken_imports():
            print(*(f"IMPORT: {text}" for text in broken[:20]), sep="\n")
            return 1
        if given.commit:
            subject = (
                f"Move and merge modules into {group}, by script"
                if moving
                else "Rename classes and functions, by script"
            )
            body = "Made by scripts/restructure.py from scripts/module_map.toml; no hand edits."
            subprocess.run(["git", "commit", "-qm", subject, "-m", body], cwd=ROOT, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
