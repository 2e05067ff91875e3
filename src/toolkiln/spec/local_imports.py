"""Local imports: the helper modules that make up a version together with the tool file.

A helper is a module beside the file, or in a package below its folder. Helpers are found
statically: import statements are read, nothing is imported. Standard library names never
refer to helpers, even if a file in the folder has the same name. Paths are plain strings
because pathlib would take longer than all other work on a small file.
"""

import ast
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

from toolkiln.model.source import Finding
from toolkiln.spec import data_files, syntax
from toolkiln.spec.findings import Findings
from toolkiln.spec.limits import WorkBudget
from toolkiln.spec.namespace import Import, Module
from toolkiln.spec.syntax import MAX_BYTES, decode, parse

NEVER_HELPERS = frozenset(sys.stdlib_module_names) | {
    "annotated_types",
    "pydantic",
    "pydantic_core",
    "toolkiln",
    "typing_extensions",
}


def version_digest(source: bytes, others: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of a tool file, combined with those of its helpers and data files."""
    own = hashlib.sha256(source).hexdigest()
    if not others:
        return own
    lines = [own, *(f"{n} {hashlib.sha256(others[n]).hexdigest()}" for n in sorted(others))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class VersionFiles:
    """The files of one version besides the tool file: helper modules and data files.

    Each file is read at most once.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.budget = WorkBudget()
        """Shared by the tool file and its helpers."""
        self.name = os.path.basename(path).removesuffix(".py")
        """The module name of the tool file."""
        self.folder = None if path.startswith("<") else os.path.dirname(path) or "."
        self._findings = Findings(path)
        self._root: Module | None = None
        self._lookups: dict[tuple[str, str], Module | None] = {}
        """By starting folder and dotted name; None for modules that do not exist."""
        self._helpers: dict[str, Module] = {}
        """By module name."""
        self._sources: dict[str, bytes] = {}
        """By path relative to the tool's folder, as `_data`."""
        self._data: dict[str, bytes] = {}
        self.file_patterns: tuple[str, ...] = ()
        self.is_package: Callable[[str], bool] = lambda _: False
        """Whether the file requires the package of a module, which then is no helper."""

    def helper(self, importer: Module, name: str, level: int) -> Module | None:
        """Return the helper module that an import in `importer` refers to, if it is one."""
        if self.folder is None or (level == 0 and self._is_never_a_helper(name)):
            return None
        start = self._start(importer, level)
        if start is None:
            return None
        key = (start, name)
        if key not in self._lookups:
            self._lookups[key] = None
            self._lookups[key] = self._load(os.path.join(start, *name.split(".")))
        return self._lookups[key]

    def load_helpers(self, root: Module, nodes: Iterable[ast.AST], findings: Findings) -> None:
        """Load every helper that `root` imports, directly or indirectly."""
        self._findings = findings
        self._root = root
        self._visit(root, nodes, ())

    def load_data_files(self, patterns: Mapping[str, int], findings: Findings) -> None:
        """Read the declared data files; `patterns` maps each pattern to its line."""
        self.file_patterns = tuple(patterns)
        if self.folder is not None and patterns:
            self._data = data_files.collect(self.folder, patterns, findings)

    def helper_trees(self) -> Iterator[tuple[str, ast.Module]]:
        """Yield the path and syntax tree of each helper."""
        for helper in self._helpers.values():
            yield helper.path or self.path, helper.tree

    def commented_sources(self) -> Iterator[tuple[str, str]]:
        """Yield the path and text of each helper that has a `toolkiln:` comment."""
        for name, data in self._sources.items():
            if b"toolkiln:" in data:
                yield os.path.join(self.folder or "", name), decode(data)

    @property
    def helpers(self) -> tuple[str, ...]:
        """The helper files, relative to the tool's folder."""
        return tuple(sorted(self._sources))

    @property
    def data_files(self) -> tuple[str, ...]:
        """The data files, relative to the tool's folder."""
        return tuple(self._data)

    @property
    def missing_modules(self) -> tuple[str, ...]:
        """Modules that do not exist; if one appears, the tool must be read again."""
        missing = [key for key, module in self._lookups.items() if module is None]
        if self.folder is None or not missing:
            return ()
        stems = (os.path.join(start, *name.split(".")) for start, name in missing)
        return tuple(sorted({os.path.relpath(stem, self.folder) for stem in stems}))

    def digest(self, source: bytes) -> str:
        """Return the digest of the version with this source."""
        return version_digest(source, self._sources | self._data)

    def _visit(self, module: Module, nodes: Iterable[ast.AST], trail: tuple[str, ...]) -> None:
        for imported in _imported_names(nodes):
            if imported.level == 0 and self._is_never_a_helper(imported.module):
                continue
            for target in self._targets(module, imported):
                self._descend(module, target, imported, trail)

    def _is_never_a_helper(self, name: str) -> bool:
        return name.partition(".")[0] in NEVER_HELPERS or self.is_package(name)

    def _targets(self, importer: Module, imported: Import) -> Iterator[Module]:
        """Yield the helpers that an import loads, and report an import that fails."""
        if self.folder is None:
            return
        level, attribute = imported.level, imported.attribute
        written = "." * level + imported.module
        if level and self._start(importer, level) is None:
            message = f"the import of {written!r} leaves the tool's folder"
            fix = "move the helper to the tool's folder or to a package below it"
            self._findings.error(
                "import-leaves-folder", message, imported.line, fix, path=importer.path
            )
            return
        parts = imported.module.split(".") if imported.module else []
        if not level and self.helper(importer, parts[0], 0) is None:
            return  # an installed package
        loaded = [self.helper(importer, ".".join(parts[: n + 1]), level) for n in range(len(parts))]
        yield from (module for module in loaded if module is not None)
        target = loaded[-1] if loaded else self._package(importer, level)
        if target is None and parts:
            message = f"there is no module {written!r} beside the tool"
            self._report_missing(message, importer, imported)
        elif attribute and attribute != "*":
            submodule = None
            if target is None or target.is_package:
                name = ".".join([*parts, attribute])
                submodule = self.helper(importer, name, level)
            if submodule is not None:
                yield submodule
            elif target is None or not _binds(target, attribute):
                where = f"the helper {target.name!r}" if target else "the tool's folder"
                self._report_missing(f"{where} has no {attribute!r}", importer, imported)

    def _package(self, importer: Module, level: int) -> Module | None:
        """Return the package that `from . import x` refers to; None for the tool's folder."""
        start = self._start(importer, level)
        packages = (helper for helper in self._helpers.values() if helper.is_package)
        return next((p for p in packages if os.path.dirname(p.path or "") == start), None)

    def _descend(
        self, importer: Module, helper: Module, imported: Import, trail: tuple[str, ...]
    ) -> None:
        here = (*trail, importer.name)
        if helper.name in here:
            is_parent = importer.name.startswith(f"{helper.name}.")
            if helper is not importer and not is_parent:
                cycle = " → ".join([*here[here.index(helper.name) :], helper.name])
                message = f"helpers import each other: {cycle}"
                fix = "move the shared code into a third module"
                self._findings.warn("import-cycle", message, imported.line, fix, path=importer.path)
        elif not helper.is_visited:
            helper.is_visited = True
            self._visit(helper, syntax.walk(helper.tree), here)

    def _start(self, importer: Module, level: int) -> str | None:
        """Return the folder an import starts from; None outside the tool's folder."""
        assert self.folder is not None
        start = self.folder
        if level and importer.path is not None:
            start = os.path.dirname(importer.path)
        for _ in range(level - 1):
            if start == self.folder:
                return None
            start = os.path.dirname(start)
        return start

    def _load(self, stem: str) -> Module | None:
        file, package = f"{stem}.py", os.path.join(stem, "__init__.py")
        is_package = os.path.isfile(package) or not os.path.isfile(file)
        if is_package:
            file = package
            if not os.path.isfile(package) and not _is_namespace(stem):
                return None
        elif os.path.abspath(file) == os.path.abspath(self.path):
            is_namesake = self._root is not None and _imports(self._root.tree, self.name)
            return None if is_namesake else self._root
        name = os.path.relpath(stem, self.folder).replace(os.sep, ".")
        known = self._helpers.get(name)
        if known is not None or name.startswith("."):
            return known
        tree = self._tree(file, name)
        if tree is None:
            return None
        self._helpers[name] = Module(tree, name, self, path=file, is_package=is_package)
        return self._helpers[name]

    def _tree(self, file: str, name: str) -> ast.Module | None:
        assert self.folder is not None
        if not os.path.exists(file):
            return ast.Module(body=[], type_ignores=[])  # a namespace package
        inside = os.path.realpath(self.folder)
        if os.path.commonpath([inside, os.path.realpath(file)]) != inside:
            message = "the helper links to a file outside the tool's folder"
            fix = "replace the link with the file"
            self._findings.error("import-leaves-folder", message, 1, fix, path=file)
            return None
        try:
            if os.path.getsize(file) > MAX_BYTES:
                raise OSError(f"more than {MAX_BYTES:,} bytes")
            with open(file, "rb") as handle:
                data = handle.read()
            tree = parse(decode(data), file)
        except (OSError, UnicodeDecodeError, LookupError, SyntaxError) as error:
            message = f"the helper cannot be read: {error}"
            self._findings.error(
                "helper-unreadable", message, 1, "save it as UTF-8 text", path=file
            )
            return None
        if (
            isinstance(tree, ast.Module)
            and not file.endswith("__init__.py")
            and _imports(tree, name)
        ):
            return None
        self._sources[os.path.relpath(file, self.folder).replace(os.sep, "/")] = data
        if isinstance(tree, Finding):
            self._findings.add(tree)
            return None
        return tree

    def _report_missing(self, message: str, importer: Module, imported: Import) -> None:
        fix = "add it, or correct the import"
        self._findings.error("missing-helper", message, imported.line, fix, path=importer.path)


def _imports(tree: ast.Module, name: str) -> bool:
    """Return whether a module imports its own name, by which it means a package."""
    names = _imported_names(syntax.walk(tree))
    return any(not item.level and item.module.partition(".")[0] == name for item in names)


def _imported_names(nodes: Iterable[ast.AST]) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, None, 0, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield Import(node.module or "", alias.name, node.level, node.lineno)


def _binds(module: Module, name: str) -> bool:
    """Return whether any statement of a module, at any level, may bind a name."""
    if name in module.bindings or module.stars or "__getattr__" in module.bindings:
        return True
    for node in syntax.walk(module.tree):
        match node:
            case ast.Name(id=bound, ctx=ast.Store()) | ast.MatchAs(name=bound) if bound == name:
                return True
            case ast.Global(names=names) if name in names:
                return True
    return False


def _is_namespace(folder: str) -> bool:
    if not os.path.isdir(folder):
        return False
    with os.scandir(folder) as entries:
        return any(entry.name.endswith(".py") for entry in entries)
