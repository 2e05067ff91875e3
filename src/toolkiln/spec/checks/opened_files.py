"""Files beside the source that it opens and does not declare, so that calls would not find them.

Paths are followed as far as they are written out: `Path(__file__).parent / "data" / "x.json"`,
`os.path.join(os.path.dirname(__file__), "x.csv")`, constants, and names that are assigned once.
This helps authors and is no guard: the sandbox decides what a call can open.
"""

import ast
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from toolkiln.spec import data_files
from toolkiln.spec.checks.dotted import fold
from toolkiln.spec.report import Findings

_DEEPEST = 50
"""Names and operators that are followed."""
_OPENERS = frozenset({"open", "io.open", "codecs.open"})
_SAME = frozenset(
    {"Path", "pathlib.Path", "PurePath", "pathlib.PurePath", "str", "os.fspath",
     "os.path.abspath", "os.path.realpath", "os.path.normpath"}
)  # fmt: skip
"""Functions that return the path they are given, perhaps with more parts."""
_SAME_METHODS = frozenset({"resolve", "absolute", "expanduser"})
_READERS = frozenset({"read_text", "read_bytes", "open"})


class _Path(NamedTuple):
    """A path as far as it is known."""

    is_beside: bool
    """Whether it starts at the source's own file; else at the working directory."""
    parts: tuple[str, ...]
    is_file: bool = False
    """Whether it is the source's own file, without parts."""


def check_opened_files(
    files: Mapping[str, Sequence[ast.AST]],
    folder: str | None,
    declared: Sequence[str],
    findings: Findings,
) -> None:
    """Report files beside the sources that they use and no declared pattern covers.

    `files` are the nodes of the tool's file and its helpers by their paths, `folder` is the tool's.
    """
    for path, tree_nodes in files.items():
        here = os.path.relpath(Path(path).parent, folder) if folder else "."
        for found, node, is_opened in _Reader(tree_nodes).paths():
            name = os.path.normpath("/".join((here, *found.parts)))
            if name.startswith(("..", "/")) or name == "." or name.endswith(".py"):
                continue
            if "\0" in name:
                continue
            place = Path(folder, name) if folder else None
            is_there = place is not None and os.path.lexists(place)
            is_declared = any(_covers(pattern, name) for pattern in declared)
            wanted = f"{name}/*" if place and is_there and place.is_dir() else name
            declare = f'declare it with @tool(files=["{wanted}"])'
            if found.is_beside and not is_declared and (is_opened or is_there):
                message = f"{name!r} beside the file is not declared, so calls do not have it"
                findings.warn("undeclared-file", message, node.lineno, declare, path=path)
            elif not found.is_beside and is_opened and is_there:
                message = f"{name!r} is opened in the working directory of the call, which is empty"
                fix = f'open Path(__file__).parent / "{name}"'
                fix += "" if is_declared else f", and {declare}"
                findings.warn("undeclared-file", message, node.lineno, fix, path=path)


def _covers(pattern: str, name: str) -> bool:
    """Whether a pattern means a file, or files in a folder of this name."""
    segments, depth = pattern.split("/"), name.count("/") + 1
    if len(segments) > depth and data_files.matches("/".join(segments[:depth]), name):
        return True
    return data_files.matches(pattern, name)


class _Reader:
    """The paths that one file spells out."""

    def __init__(self, tree_nodes: Sequence[ast.AST]) -> None:
        self._nodes = tree_nodes
        values: dict[str, ast.expr] = {}
        bound: Counter[str] = Counter()
        for node in tree_nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    values[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    values[name] = value
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    bound[name] += 1
        self._values = {name: value for name, value in values.items() if bound[name] == 1}

    def paths(self) -> Iterator[tuple[_Path, ast.expr, bool]]:
        """Each path with its expression, and whether it is opened for reading there."""
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
        """The expressions whose files are opened for reading, by their ids."""
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

    def _path(self, node: ast.AST, depth: int) -> _Path | None:
        if depth > _DEEPEST:
            return None
        text = fold(node)
        if text is not None:
            return _Path(False, (text,)) if text and text[0] not in "/~" else None
        match node:
            case ast.Name(id="__file__"):
                return _Path(True, (), is_file=True)
            case ast.Name(id=name) if name in self._values:
                return self._path(self._values[name], depth + 1)
            case ast.Attribute(value=value, attr="parent"):
                return _parent(self._path(value, depth + 1))
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return _joined(self._path(left, depth + 1), [right])
            case ast.Call():
                return self._of_call(node, depth + 1)
        return None

    def _of_call(self, node: ast.Call, depth: int) -> _Path | None:
        name = _dotted(node.func)
        first = node.args[0] if node.args else None
        if first is not None and (name in _SAME or name == "os.path.join"):
            return _joined(self._path(first, depth), node.args[1:])
        if first is not None and name == "os.path.dirname":
            return _parent(self._path(first, depth))
        if isinstance(node.func, ast.Attribute):
            owner = self._path(node.func.value, depth)
            if node.func.attr in _SAME_METHODS:
                return owner
            if node.func.attr == "joinpath":
                return _joined(owner, node.args)
            if node.func.attr == "with_name":
                return _joined(_parent(owner), node.args)
        return None


def _joined(start: _Path | None, more: Sequence[ast.expr]) -> _Path | None:
    parts = [fold(part) for part in more]
    if start is None or (start.is_file and parts):
        return None
    known = [part for part in parts if part is not None and not part.startswith("/")]
    return start._replace(parts=(*start.parts, *known)) if len(known) == len(parts) else None


def _parent(path: _Path | None) -> _Path | None:
    if path is None or not path.is_beside:
        return None
    return _Path(True, ()) if path.is_file else path._replace(parts=(*path.parts, ".."))


def _dotted(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _reads(call: ast.Call, position: int) -> bool:
    """Whether a call of `open` opens for reading, as far as it says."""
    given = [k.value for k in call.keywords if k.arg == "mode"] or call.args[position:][:1]
    mode = fold(given[0]) if given else "r"
    return mode is None or not set(mode) & set("wax+")
