"""Docstrings from a description, for tools whose source has none.

They are put into the text at the place where they belong: comments, formatting, line ends
and a BOM stay as they are. Which tools need one is what `spec` says of the source. Not a
formatter and not a repair of anything else: where the outcome would not be the same program
with docstrings, the source is left alone.
"""

import ast
import inspect
import io
import re
import tokenize
from pathlib import Path
from typing import NamedTuple

from toolkiln.model import Finding
from toolkiln.spec import read, syntax

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_BOM = "\ufeff"
_BLANKS = " \t\f"

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class _Edit(NamedTuple):
    """A docstring at its place; edits sort by place."""

    row: int
    """Of the first statement of the body, from 0."""
    column: int
    """How many characters of the row stay before the docstring."""
    docstring: str
    """The literal."""
    before: str
    after: str


def with_docstrings(code: str, description: str, path: str | Path = "<memory>") -> str:
    """The source, with the description as docstring of every tool that lacks one.

    Helper modules are looked for beside `path`. Source that cannot be read is returned
    unchanged, and so is any source if the description is blank.
    """
    text = inspect.cleandoc(re.sub(r"\r\n?", "\n", description)).strip()
    source = code.removeprefix(_BOM)
    tree = syntax.parse(source, str(path))
    if not text or isinstance(tree, Finding):
        return code
    escaped = _escaped(text, ascii_only=not _is_utf8(source))
    lines = source_lines(source)
    edits = []
    for node in _undocumented(tree, source, path):
        edit = _edit(node, lines, escaped)
        edits.append(edit)
        node.body.insert(0, ast.Expr(ast.Constant(ast.literal_eval(edit.docstring))))
    for row, column, docstring, before, after in sorted(edits, reverse=True):
        head, rest = lines[row][:column], lines[row][column:].lstrip(_BLANKS)
        lines[row] = f"{head}{before}{docstring}{after}{rest}"
    mended = "".join(lines)
    if not _is_same(tree, syntax.parse(mended, str(path))):
        return code
    return code.removesuffix(source) + mended


def source_lines(source: str) -> list[str]:
    """The lines as Python counts them, ends kept: a form feed ends none, a lone `\\r` one."""
    return re.findall(_LINE, source)


def _undocumented(tree: ast.Module, source: str, path: str | Path) -> list[_Definition]:
    """The functions, methods and classes that are tools and say nothing of themselves."""
    findings = read(source, path).findings
    rows = {found.line for found in findings if found.rule == "missing-docstring"}
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, _Definition) and node.lineno in rows  # no line holds two of them
    ]


def _edit(node: _Definition, lines: list[str], escaped: list[str]) -> _Edit:
    first = node.body[0]
    decorators = first.decorator_list if isinstance(first, _Definition) else []
    row = min([first.lineno, *(decorator.lineno for decorator in decorators)]) - 1
    column = len(lines[row].encode()[: first.col_offset].decode(errors="ignore"))
    head = lines[row][:column]
    newline = re.sub(r"[^\r\n]", "", lines[row]) or "\n"
    if not head.strip(_BLANKS):
        return _Edit(row, column, _quoted(escaped, head, newline), "", newline + head)
    start = lines[node.lineno - 1]
    indent = start[: len(start) - len(start.lstrip(_BLANKS))] + "    "
    layout = newline + indent
    column = len(head.rstrip(_BLANKS))
    return _Edit(row, column, _quoted(escaped, indent, newline), layout, layout)


def _escaped(text: str, *, ascii_only: bool) -> list[str]:
    """The lines of a docstring, spelt so that they mean the text and show all of it."""
    text = text.replace("\\", "\\\\")
    if '"""' in text or text.endswith('"'):
        text = text.replace('"', '\\"')
    shown = (
        char
        if char == "\n" or (char.isprintable() and (char.isascii() or not ascii_only))
        else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )
    return [line.rstrip() for line in "".join(shown).split("\n")]


def _quoted(lines: list[str], indent: str, newline: str) -> str:
    if len(lines) == 1:
        return f'"""{lines[0]}"""'
    rest = [indent + line if line else "" for line in [*lines[1:], '"""']]
    return newline.join([f'"""{lines[0]}', *rest])


def _is_utf8(source: str) -> bool:
    """Whether the file may hold any character, by what its first lines declare."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source.encode()).readline)
    except SyntaxError:
        return False
    return encoding == "utf-8"


def _is_same(wanted: ast.Module, mended: ast.Module | Finding) -> bool:
    """Whether the mended text is the program that was meant."""
    try:
        return isinstance(mended, ast.Module) and ast.dump(mended) == ast.dump(wanted)
    except RecursionError:
        return False
