"""The local modules that a tool file imports: part of its version, and of its types.

A helper is a module beside the file or in a package below its folder. Finding them is
static: import statements are read, files are opened, nothing is imported. A name of the
standard library is never taken for a helper, whatever lies in the folder.
"""

import ast
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from toolkiln.model import Finding, Severity
from toolkiln.spec import nodes
from toolkiln.spec.modules import Module
from toolkiln.spec.syntax import MAX_BYTES, parse
from toolkiln.spec.text import decode

_NEVER_HELPERS = frozenset(sys.stdlib_module_names) | {
    "annotated_types",
    "pydantic",
    "toolkiln",
    "typing_extensions",
}


class Neighbours:
    """The helper modules around one tool file, opened at most once each."""

    def __init__(self, path: str) -> None:
        self.folder = None if path.startswith("<") else Path(path).parent
        self.findings: list[Finding] = []
        self._path = path
        self._packages: dict[str, Path] = {}
        """The folder that relative imports of a module start from, by module name."""
        self._opened: dict[Path, Module | None] = {}
        self._sources: dict[str, bytes] = {}
        self._imports: dict[str, list[str]] = {}

    def helper(self, importer: Module, name: str, level: int) -> Module | None:
        """The helper module that `importer` means, or None if it is none of ours."""
        if self.folder is None or (level == 0 and name.partition(".")[0] in _NEVER_HELPERS):
            return None
        start = self._start(importer, level)
        if start is None:
            return None
        return self._module(start.joinpath(*name.split(".")) if name else start)

    def close(self, root: Module, tree_nodes: Sequence[ast.AST]) -> None:
        """Open everything that `root` imports locally, and what that imports in turn."""
        self._visit(root, tree_nodes, [])

    @property
    def files(self) -> tuple[str, ...]:
        """The helpers, relative to the tool's folder."""
        return tuple(sorted(self._sources))

    def digest(self, source: bytes) -> str:
        """SHA-256 of the tool file, or of it and its helpers where there are any."""
        own = hashlib.sha256(source).hexdigest()
        if not self._sources:
            return own
        lines = [own, *(f"{n} {hashlib.sha256(self._sources[n]).hexdigest()}" for n in self.files)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def _visit(self, module: Module, tree_nodes: Sequence[ast.AST], trail: list[str]) -> None:
        for node in tree_nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._follow(module, alias.name, None, node, trail)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self._follow(module, node.module or "", alias.name, node, trail)

    def _follow(
        self,
        importer: Module,
        name: str,
        attribute: str | None,
        node: ast.Import | ast.ImportFrom,
        trail: list[str],
    ) -> None:
        level = node.level if isinstance(node, ast.ImportFrom) else 0
        if level == 0 and name.partition(".")[0] in _NEVER_HELPERS:
            return
        if level and self.folder is not None and self._start(importer, level) is None:
            self._report(
                importer, node, "import-leaves-folder",
                f"the relative import of {'.' * level + name!r} leaves the folder of the tool",
                "move the helper beside the tool or into a package below its folder",
            )  # fmt: skip
            return
        target = self.helper(importer, name, level)
        if target is None:
            top = name.partition(".")[0]
            ours = level or (
                self.folder is not None and "." in name and (self.folder / top).is_dir()
            )
            if ours:
                self._report(
                    importer, node, "missing-helper",
                    f"there is no module {'.' * level + name!r} beside the tool",
                    "add the file, or correct the import",
                )  # fmt: skip
            return
        targets = [target]
        if attribute not in (None, "*"):
            assert attribute is not None
            submodule = self.helper(target, attribute, 1) if target.is_package else None
            if submodule is not None:
                targets.append(submodule)
            elif attribute not in target.bindings and not target.stars:
                self._report(
                    importer, node, "missing-helper",
                    f"the helper {target.name!r} defines no {attribute!r}",
                    "define it there, or correct the import",
                )  # fmt: skip
        for found in targets:
            self._descend(importer, found, node, trail)

    def _descend(
        self,
        importer: Module,
        found: Module,
        node: ast.Import | ast.ImportFrom,
        trail: list[str],
    ) -> None:
        here = [*trail, importer.name]
        if found.name in here:
            if found.name != importer.name:
                cycle = " → ".join([*here[here.index(found.name) :], found.name])
                self._report(
                    importer, node, "import-cycle", f"helpers import each other: {cycle}",
                    "move what both need into a third module", Severity.WARNING,
                )  # fmt: skip
            return
        if found.name not in self._imports:
            self._imports[found.name] = []
            self._visit(found, nodes.walk(found.tree), here)

    def _start(self, importer: Module, level: int) -> Path | None:
        """The folder an import starts from; None where that is outside the tool's folder."""
        assert self.folder is not None
        if level == 0:
            return self.folder
        start = self._packages.get(importer.name, self.folder)
        for _ in range(level - 1):
            if start == self.folder:
                return None
            start = start.parent
        return start

    def _module(self, stem: Path) -> Module | None:
        assert self.folder is not None
        file, package = stem.with_name(f"{stem.name}.py"), stem / "__init__.py"
        if stem != self.folder and file.is_file() and str(file) != self._path:
            return self._open(file, is_package=False)
        if stem == self.folder:
            return None
        if package.is_file():
            return self._open(package, is_package=True)
        if stem.is_dir() and any(stem.glob("*.py")):
            return self._open(package, is_package=True)
        return None

    def _open(self, file: Path, *, is_package: bool) -> Module | None:
        if file in self._opened:
            return self._opened[file]
        self._opened[file] = None
        assert self.folder is not None
        relative = file.relative_to(self.folder).as_posix()
        name = relative.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        tree = self._tree(file, relative)
        if tree is None:
            return None
        module = Module(tree, name, self, is_package=is_package)
        self._packages[name] = file.parent
        self._opened[file] = module
        return module

    def _tree(self, file: Path, relative: str) -> ast.Module | None:
        assert self.folder is not None
        if not file.exists():
            return ast.Module(body=[], type_ignores=[])  # a namespace package
        if not file.resolve().is_relative_to(self.folder.resolve()):
            self._fail(relative, "import-leaves-folder", "the helper is a link out of the folder",
                       "put the file itself there")  # fmt: skip
            return None
        try:
            data = file.read_bytes() if file.stat().st_size <= MAX_BYTES else b"\0"
            tree = parse(decode(data), str(file))
        except (OSError, UnicodeDecodeError, LookupError, SyntaxError) as error:
            self._fail(relative, "helper-unreadable", f"the helper cannot be read: {error}",
                       "make it readable UTF-8 text")  # fmt: skip
            return None
        self._sources[relative] = data
        if isinstance(tree, Finding):
            self.findings.append(tree)
            return None
        return tree

    def _fail(self, relative: str, rule: str, message: str, fix: str) -> None:
        assert self.folder is not None
        self.findings.append(
            Finding(
                rule=rule,
                severity=Severity.ERROR,
                message=message,
                fix=fix,
                path=str(self.folder / relative),
            )  # fmt: skip
        )

    def _report(
        self,
        importer: Module,
        node: ast.AST,
        rule: str,
        message: str,
        fix: str,
        severity: Severity = Severity.ERROR,
    ) -> None:
        path = self._path
        if importer.name in self._packages:
            assert self.folder is not None
            parts = importer.name.split(".")
            tail = (
                [*parts, "__init__.py"] if importer.is_package else [*parts[:-1], f"{parts[-1]}.py"]
            )
            path = str(self.folder.joinpath(*tail))
        self.findings.append(
            Finding(
                rule=rule,
                severity=severity,
                message=message,
                fix=fix,
                path=path,
                line=getattr(node, "lineno", 1),
            )  # fmt: skip
        )
