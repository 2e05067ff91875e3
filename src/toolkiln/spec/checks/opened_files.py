"""Files that a source opens but does not declare, so calls would not find them.

Only literal paths are recognised: `Path(__file__).parent / "data" / "x.json"`,
`os.path.join(os.path.dirname(__file__), "x.csv")`, constants, and names assigned once. This
helps authors and is not a security boundary: the sandbox decides what a call can open.
"""

import ast
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from toolkiln.spec import data_files
from toolkiln.spec.checks.name_resolution import constant_string
from toolkiln.spec.findings import Findings

_MAX_DEPTH = 50
"""Nested names and operators in a path."""
_OPENERS = frozenset({"open", "io.open", "codecs.open"})
_PATH_FUNCTIONS = frozenset(
    {"Path", "pathlib.Path", "PurePath", "pathlib.PurePath", "str", "os.fspath",
     "os.path.abspath", "os.path.realpath", "os.path.normpath"}
)  # fmt: skip
"""Functions that return their argument as a path, perhaps with more parts."""
_PATH_METHODS = frozenset({"resolve", "absolute", "expanduser"})
_READERS = frozenset({"read_text", "read_bytes", "open"})


class _LiteralPath(NamedTuple):
    is_beside: bool
    """Whether it is relative to the source file rather than to the working directory."""
    parts: tuple[str, ...]
    is_source: bool = False
    """Whether it is `__file__` itself."""


def check_opened_files(
    files: Mapping[str, Sequence[ast.AST]],
    folder: str | None,
    declared: Sequence[str],
    findings: Findings,
) -> None:
    """Report files beside the sources that they open and no declared pattern covers.

    `files` maps the tool file and its helpers to their nodes; `folder` is the tool's folder.
    """
    for path, nodes in files.items():
        here = os.path.relpath(Path(path).parent, folder) if folder else "."
        for literal, node, is_opened in _PathReader(nodes).paths():
            name = os.path.normpath("/".join((here, *literal.parts)))
            if name.startswith(("..", "/")) or name == "." or name.endswith(".py"):
                continue
            if "\0" in name:
                continue
            target = Path(folder, name) if folder else None
            exists = target is not None and os.path.lexists(target)
            is_declared = any(_covers(pattern, name) for pattern in declared)
            pattern = f"{name}/*" if target and exists and target.is_dir() else name
            declare = f'declare it with @tool(files=["{pattern}"])'
            if literal.is_beside and not is_declared and (is_opened or exists):
                message = f"{name!r} is not declared, so it is missing in calls"
                findings.warn("undeclared-file", message, node.lineno, declare, path=path)
            elif not literal.is_beside and is_opened and exists:
                message = f"{name!r} is opened in the call's working directory, which is empty"
                fix = f'open Path(__file__).parent / "{name}"'
                fix += "" if is_declared else f", and {declare}"
                findings.warn("undeclared-file", message, node.lineno, fix, path=path)


def _covers(pattern: str, name: str) -> bool:
    """Return whether a pattern matches a file, or files in a folder of this name."""
    segments, depth = pattern.split("/"), name.count("/") + 1
    if len(segments) > depth and data_files.matches("/".join(segments[:depth]), name):
        return True
    return data_files.matches(pattern, name)


class _PathReader:
    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        self._nodes = nodes
        values: dict[str, ast.expr] = {}
        bindings: Counter[str] = Counter()
        for node in nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    values[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    values[name] = value
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    bindings[name] += 1
        self._values = {name: value for name, value in values.items() if bindings[name] == 1}

    def paths(self) -> Iterator[tuple[_LiteralPath, ast.expr, bool]]:
        """Yield each path with its expression, and whether it is opened for reading."""
        opened = set(self._opened())
        seen: set[int] = set()
        for node in self._nodes:  # parents come before children
            is_opened = id(node) in opened
            is_path = isinstance(node, ast.BinOp | ast.Call | ast.Attribute)
            if not isinstance(node, ast.expr) or id(node) in seen or not (is_path or is_opened):
                continue
            found = self._path(node, 0)
            if found is not None:
                seen.update(map(id, ast.walk(node)))
                if found.parts:
                    yield found, node, is_opened

    def _opened(self) -> Iterator[int]:
        for node in self._nodes:
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            if _dotted(function) in _OPENERS:
                if node.args and _reads(node, 1):
                    yield id(node.args[0])
            elif isinstance(function, ast.Attribute) and function.attr in _READERS:
                if function.attr != "open" or _reads(node, 0):
                    yield id(function.value)

    def _path(self, node: ast.AST, depth: int) -> _LiteralPath | None:
        if depth > _MAX_DEPTH:
            return None
        text = constant_string(node)
        if text is not None:
            return _LiteralPath(False, (text,)) if text and text[0] not in "/~" else None
        match node:
            case ast.Name(id="__file__"):
                return _LiteralPath(True, (), is_source=True)
            case ast.Name(id=name) if name in self._values:
                return self._path(self._values[name], depth + 1)
            case ast.Attribute(value=value, attr="parent"):
                return _parent(self._path(value, depth + 1))
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return _joined(self._path(left, depth + 1), [right])
            case ast.Call():
                return self._call(node, depth + 1)
        return None

    def _call(self, node: ast.Call, depth: int) -> _LiteralPath | None:
        name = _dotted(node.func)
        first = node.args[0] if node.args else None
        if first is not None and (name in _PATH_FUNCTIONS or name == "os.path.join"):
            return _joined(self._path(first, depth), node.args[1:])
        if first is not None and name == "os.path.dirname":
            return _parent(self._path(first, depth))
        if isinstance(node.func, ast.Attribute):
            owner = self._path(node.func.value, depth)
            if node.func.attr in _PATH_METHODS:
                return owner
            if node.func.attr == "joinpath":
                return _joined(owner, node.args)
            if node.func.attr == "with_name":
                return _joined(_parent(owner), node.args)
        return None


def _joined(base: _LiteralPath | None, nodes: Sequence[ast.expr]) -> _LiteralPath | None:
    parts = [constant_string(node) for node in nodes]
    if base is None or (base.is_source and parts):
        return None
    relative = [part for part in parts if part is not None and not part.startswith("/")]
    if len(relative) < len(parts):
        return None
    return base._replace(parts=(*base.parts, *relative))


def _parent(path: _LiteralPath | None) -> _LiteralPath | None:
    if path is None or not path.is_beside:
        return None
    return _LiteralPath(True, ()) if path.is_source else path._replace(parts=(*path.parts, ".."))


def _dotted(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _reads(call: ast.Call, position: int) -> bool:
    modes = [k.value for k in call.keywords if k.arg == "mode"] or call.args[position:][:1]
    mode = constant_string(modes[0]) if modes else "r"
    return mode is None or not set(mode) & set("wax+")
