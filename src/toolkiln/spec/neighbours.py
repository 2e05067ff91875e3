"""The local modules that a tool file imports, and its data files: part of its version.

A helper is a module beside the file or in a package below its folder. Finding them is
static: import statements are read, files are opened, nothing is imported. A name of the
standard library is never taken for a helper, whatever lies in the folder. Paths are plain
strings here: pathlib costs more than everything else that is done for a small file.
"""

import ast
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from toolkiln.model import Finding
from toolkiln.spec import data_files, nodes
from toolkiln.spec.modules import Module
from toolkiln.spec.report import Findings
from toolkiln.spec.syntax import MAX_BYTES, parse
from toolkiln.spec.text import decode
from toolkiln.spec.work import Work

NEVER_HELPERS = frozenset(sys.stdlib_module_names) | {
    "annotated_types",
    "pydantic",
    "toolkiln",
    "typing_extensions",
}


def version_digest(source: bytes, others: Mapping[str, bytes]) -> str:
    """SHA-256 of a tool file; with helpers or data files, of their paths and digests as well."""
    own = hashlib.sha256(source).hexdigest()
    if not others:
        return own
    lines = [own, *(f"{n} {hashlib.sha256(others[n]).hexdigest()}" for n in sorted(others))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class _Imported(NamedTuple):
    """One name that an import statement brings in."""

    module: str
    attribute: str | None
    level: int
    line: int

    def __str__(self) -> str:
        return "." * self.level + self.module


class _Helper(NamedTuple):
    """An opened helper: its module, its file, the folder its relative imports start from."""

    module: Module
    file: str
    package: str


class Neighbours:
    """The helper modules around one tool file, opened at most once each."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.work = Work()
        """What reading the file and its helpers has taken so far."""
        self.name = os.path.basename(path).removesuffix(".py")
        """The tool file's own, as a module."""
        self.folder = None if path.startswith("<") else os.path.dirname(path) or "."
        self._findings = Findings(path)
        self._root: Module | None = None
        self._found: dict[tuple[str, str], Module | None] = {}
        self._helpers: dict[str, _Helper] = {}
        """By module name."""
        self._sources: dict[str, bytes] = {}
        """By path relative to the tool's folder."""
        self._data: dict[str, bytes] = {}
        """Likewise."""
        self.file_patterns: tuple[str, ...] = ()

    def helper(self, importer: Module, name: str, level: int) -> Module | None:
        """The helper module that `importer` means, or None if it is none of ours."""
        if self.folder is None or (level == 0 and name.partition(".")[0] in NEVER_HELPERS):
            return None
        start = self._start(importer, level)
        if start is None:
            return None
        key = (start, name)
        if key not in self._found:
            self._found[key] = None
            self._found[key] = self._open(os.path.join(start, *name.split(".")))
        return self._found[key]

    def close(self, root: Module, imports: Iterable[ast.AST], findings: Findings) -> None:
        """Open everything that `root` imports locally, and what that imports in turn."""
        self._findings = findings
        self._root = root
        self._visit(root, imports, ())

    def take_data_files(self, declared: Mapping[str, int], findings: Findings) -> None:
        """Read the declared data files; `declared` has the line of each pattern."""
        self.file_patterns = tuple(declared)
        if self.folder is not None and declared:
            self._data = data_files.collect(self.folder, declared, findings)

    def trees(self) -> Iterator[tuple[str, ast.Module]]:
        """The helpers' files with what they contain."""
        for helper in self._helpers.values():
            yield helper.file, helper.module.tree

    def texts(self) -> Iterator[tuple[str, str]]:
        """The helpers' files that mention Toolkiln in a comment, with their text."""
        for name, data in self._sources.items():
            if b"toolkiln:" in data:
                yield os.path.join(self.folder or "", name), decode(data)

    @property
    def files(self) -> tuple[str, ...]:
        """The helpers, relative to the tool's folder."""
        return tuple(sorted(self._sources))

    @property
    def data_files(self) -> tuple[str, ...]:
        """The data files, relative to the tool's folder."""
        return tuple(self._data)

    @property
    def sought(self) -> tuple[str, ...]:
        """The modules that are not there; if one appears, the tool is to be read again."""
        missing = [key for key, module in self._found.items() if module is None]
        if self.folder is None or not missing:
            return ()
        stems = (os.path.join(start, *name.split(".")) for start, name in missing)
        return tuple(sorted({os.path.relpath(stem, self.folder) for stem in stems}))

    def digest(self, source: bytes) -> str:
        """What names this version."""
        return version_digest(source, self._sources | self._data)

    def _visit(self, module: Module, imports: Iterable[ast.AST], trail: tuple[str, ...]) -> None:
        for imported in _imported(imports):
            if imported.level == 0 and imported.module.partition(".")[0] in NEVER_HELPERS:
                continue
            for target in self._targets(module, imported):
                self._descend(module, target, imported, trail)

    def _targets(self, importer: Module, imported: _Imported) -> Iterator[Module]:
        """The helpers that an import opens; what is wrong with it is reported."""
        if self.folder is None:
            return
        level, attribute = imported.level, imported.attribute
        if level and self._start(importer, level) is None:
            self._findings.error(
                "import-leaves-folder",
                f"the import of {str(imported)!r} leaves the folder of the tool",
                imported.line,
                "move the helper beside the tool or into a package below its folder",
                path=self._file(importer),
            )
            return
        parts = imported.module.split(".") if imported.module else []
        if not level and self.helper(importer, parts[0], 0) is None:
            return  # a package from elsewhere
        opened = [self.helper(importer, ".".join(parts[: n + 1]), level) for n in range(len(parts))]
        yield from (module for module in opened if module is not None)
        target = opened[-1] if opened else self._package(importer, level)
        if target is None and parts:
            self._missing(
                f"there is no module {str(imported)!r} beside the tool", importer, imported
            )
        elif attribute and attribute != "*":
            submodule = None
            if target is None or target.is_package:
                name = ".".join([*parts, attribute])
                submodule = self.helper(importer, name, level)
            if submodule is not None:
                yield submodule
            elif target is None or not _binds(target, attribute):
                where = f"the helper {target.name!r}" if target else "the folder of the tool"
                self._missing(f"{where} has no {attribute!r}", importer, imported)

    def _package(self, importer: Module, level: int) -> Module | None:
        """The package that `from . import x` starts from; None for the tool's own folder."""
        start = self._start(importer, level)
        packages = (h.module for h in self._helpers.values() if h.module.is_package)
        return next((m for m in packages if self._helpers[m.name].package == start), None)

    def _descend(
        self, importer: Module, found: Module, imported: _Imported, trail: tuple[str, ...]
    ) -> None:
        here = (*trail, importer.name)
        if found.name in here:
            is_parent = importer.name.startswith(f"{found.name}.")
            if found is not importer and not is_parent:
                cycle = " → ".join([*here[here.index(found.name) :], found.name])
                self._findings.warn(
                    "import-cycle",
                    f"helpers import each other: {cycle}",
                    imported.line,
                    "move what both need into a third module",
                    path=self._file(importer),
                )
        elif not found.is_closed:
            found.is_closed = True
            self._visit(found, nodes.walk(found.tree), here)

    def _start(self, importer: Module, level: int) -> str | None:
        """The folder an import starts from; None where that is outside the tool's folder."""
        assert self.folder is not None
        helper = self._helpers.get(importer.name)
        start = self.folder if level == 0 or helper is None else helper.package
        for _ in range(level - 1):
            if start == self.folder:
                return None
            start = os.path.dirname(start)
        return start

    def _open(self, stem: str) -> Module | None:
        file, package = f"{stem}.py", os.path.join(stem, "__init__.py")
        is_package = True
        if os.path.isfile(package):
            file = package
        elif os.path.isfile(file):
            is_package = False
            if os.path.abspath(file) == os.path.abspath(self.path):
                return self._root
        elif not _is_namespace(stem):
            return None
        name = os.path.relpath(stem, self.folder).replace(os.sep, ".")
        known = self._helpers.get(name)
        if known is not None or name.startswith("."):
            return known and known.module
        tree = self._tree(file)
        if tree is None:
            return None
        module = Module(tree, name, self, path=file, is_package=is_package)
        self._helpers[name] = _Helper(module, file, stem if is_package else os.path.dirname(stem))
        return module

    def _tree(self, file: str) -> ast.Module | None:
        assert self.folder is not None
        if not os.path.exists(file):
            return ast.Module(body=[], type_ignores=[])  # a namespace package
        inside = os.path.realpath(self.folder)
        if os.path.commonpath([inside, os.path.realpath(file)]) != inside:
            message, fix = "the helper is a link out of the folder", "put the file itself there"
            self._findings.error("import-leaves-folder", message, 1, fix, path=file)
            return None
        try:
            if os.path.getsize(file) > MAX_BYTES:
                raise OSError(f"it has more than {MAX_BYTES:,} bytes")
            with open(file, "rb") as handle:
                data = handle.read()
            tree = parse(decode(data), file)
        except (OSError, UnicodeDecodeError, LookupError, SyntaxError) as error:
            message, fix = f"the helper cannot be read: {error}", "make it readable UTF-8 text"
            self._findings.error("helper-unreadable", message, 1, fix, path=file)
            return None
        self._sources[os.path.relpath(file, self.folder).replace(os.sep, "/")] = data
        if isinstance(tree, Finding):
            self._findings.add(tree)
            return None
        return tree

    def _missing(self, message: str, importer: Module, imported: _Imported) -> None:
        fix = "add it, or correct the import"
        path = self._file(importer)
        self._findings.error("missing-helper", message, imported.line, fix, path=path)

    def _file(self, module: Module) -> str:
        helper = self._helpers.get(module.name)
        return helper.file if helper else self.path


def _imported(tree_nodes: Iterable[ast.AST]) -> Iterator[_Imported]:
    imports = [node for node in tree_nodes if node.__class__ in _IMPORTS]
    for node in imports:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _Imported(alias.name, None, 0, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield _Imported(node.module or "", alias.name, node.level, node.lineno)


_IMPORTS = (ast.Import, ast.ImportFrom)


def _binds(module: Module, name: str) -> bool:
    """Whether a module may have this name, by whatever statement."""
    if name in module.bindings or module.stars or "__getattr__" in module.bindings:
        return True
    for node in nodes.walk(module.tree):
        match node:
            case ast.Name(id=bound, ctx=ast.Store()) | ast.MatchAs(name=bound) if bound == name:
                return True
            case ast.Global(names=names) if name in names:
                return True
    return False


def _is_namespace(folder: str) -> bool:
    """Whether a folder without `__init__.py` is a package all the same."""
    if not os.path.isdir(folder):
        return False
    with os.scandir(folder) as entries:
        return any(entry.name.endswith(".py") for entry in entries)
