"""Reports on files, suggested repairs, and insertion of docstrings."""

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from toolkiln.catalog.files import read_file, tool_files
from toolkiln.model.source import FileReport, Finding, Reading, Repair, Severity
from toolkiln.model.spec import Dialect, HealthLevel, Role, SchemaHealth, ToolSpec
from toolkiln.schema.providers.compilers import health as rate
from toolkiln.spec import syntax
from toolkiln.spec.checks.file_checks import KnownTools
from toolkiln.spec.findings import cut_findings
from toolkiln.spec.reader import read
from toolkiln.spec.requirements import distribution_of, imported_modules, listed_packages

_NONE = KnownTools({})


def check(paths: Sequence[Path]) -> Iterator[FileReport]:
    """Check files, including their schemas and conflicts between them.

    A `requirements.txt` applies to the files of the folder that is checked, or beside a file.
    """
    folders = {path if path.is_dir() else path.parent for path in paths}
    listed = {folder: listed_packages(folder) for folder in folders}
    readings = [
        read_file(file, frozenset().union(*(listed.get(f, ()) for f in file.parents)))
        for file in tool_files(paths)
    ]
    known = KnownTools({spec.name: read.path for read in readings for spec in read.tools})
    owners: dict[str, str] = {}
    for reading in readings:
        yield report(reading, owners, known)


def report(reading: Reading, owners: dict[str, str], known: KnownTools = _NONE) -> FileReport:
    """Add findings about schemas and about names that other files own to a reading.

    `owners` maps names and addresses to files and is updated with those of this file. `known`
    are tools whose names this file could be confused with.
    """
    health = {spec.name: rate(spec.parameters) for spec in reading.tools}
    more = known.findings(reading, reading.path)
    for spec in reading.tools:
        more += _schema_findings(spec, health[spec.name])
        for taken in (spec.name, spec.uri):
            owner = owners.setdefault(taken, reading.path) if taken else reading.path
            if owner != reading.path:
                more.append(_taken(spec, owner, reading.path, is_name=taken == spec.name))
    if not reading.tools and not reading.findings:
        more.append(_no_tools(reading.path))
    if more:
        ordered = sorted([*reading.findings, *more], key=lambda f: (f.path != reading.path, f.line))
        reading = reading.model_copy(update={"findings": cut_findings(ordered, reading.path)})
    return FileReport(reading=reading, health=health)


def _taken(spec: ToolSpec, owner: str, path: str, *, is_name: bool) -> Finding:
    what, kind = (spec.name, spec.role) if is_name else (spec.uri, Role.RESOURCE)
    return Finding(
        rule="duplicate-name" if is_name else "duplicate-uri",
        severity=Severity.ERROR,
        message=f"{what!r} is a {kind} of {owner} already",
        line=spec.line,
        fix=f"give one of them another {'name' if is_name else 'address'}",
        tool=spec.name,
        path=path,
    )


def _no_tools(path: str) -> Finding:
    return Finding(
        rule="no-tools",
        severity=Severity.INFO,
        message="the file declares no tool",
        fix="write a public function at the top level, or mark one with @tool",
        path=path,
    )


def _schema_findings(spec: ToolSpec, health: SchemaHealth) -> Iterator[Finding]:
    for point in health.points:
        invalid = point.level is HealthLevel.INVALID
        if not invalid and spec.role is not Role.TOOL:  # its schema is not sent to providers
            continue
        yield Finding(
            rule="invalid-schema" if invalid else "not-strict",
            severity=Severity.ERROR if invalid else Severity.INFO,
            message=f"parameters{point.path}: {point.reason}",
            line=spec.line,
            fix="correct the schema" if invalid else "say exactly what is taken, if you can",
            tool=spec.name,
            path=spec.path,
        )


_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_BOM = "\ufeff"
_BLANKS = " \t\f"

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class _DocstringEdit(NamedTuple):
    """The insertion of a docstring; sorts by position."""

    row: int
    """Row of the first statement of the body, from 0."""
    column: int
    """Number of characters of the row before the docstring."""
    docstring: str
    """The literal."""
    before: str
    after: str


def with_docstrings(code: str, description: str, path: str | Path = "<memory>") -> str:
    """Insert the description as docstring of every tool, and of a constants module, without one.

    Helper modules are searched for next to `path`. Unreadable source is returned unchanged, as is
    any source if the description is blank.
    """
    text = inspect.cleandoc(re.sub(r"\r\n?", "\n", description)).strip()
    source = code.removeprefix(_BOM)
    tree = syntax.parse(source, str(path))
    if not text or isinstance(tree, Finding):
        return code
    escaped = _escaped(text, ascii_only=not _is_utf8(source))
    lines = source_lines(source)
    edits = []
    for node in list(_undocumented(tree, source, path)):
        edit = _edit(node, lines, escaped)
        edits.append(edit)
        node.body.insert(0, ast.Expr(ast.Constant(ast.literal_eval(edit.docstring))))
    for row, column, docstring, before, after in sorted(edits, reverse=True):
        head, rest = lines[row][:column], lines[row][column:].lstrip(_BLANKS)
        lines[row] = f"{head}{before}{docstring}{after}{rest}"
    edited = "".join(lines)
    if not _is_same(tree, syntax.parse(edited, str(path))):
        return code
    return code.removesuffix(source) + edited


def source_lines(source: str) -> list[str]:
    """Split into lines as Python counts them, with line ends; a lone `\\r` ends a line."""
    return re.findall(_LINE, source)


def _undocumented(
    tree: ast.Module, source: str, path: str | Path
) -> Iterator[_Definition | ast.Module]:
    reading = read(source, path)
    if any(spec.dialect is Dialect.CONSTANTS for spec in reading.tools):
        if syntax.docstring(tree) is None:
            yield tree
    rows = {found.line for found in reading.findings if found.rule == "missing-docstring"}
    for node in ast.walk(tree):
        if isinstance(node, _Definition) and node.lineno in rows:  # at most one per line
            yield node


def _edit(node: _Definition | ast.Module, lines: list[str], escaped: list[str]) -> _DocstringEdit:
    row = _first_line(node) - 1
    head = _head(lines[row], node.body[0].col_offset)
    column = len(head)
    newline = re.sub(r"[^\r\n]", "", lines[row]) or "\n"
    if isinstance(node, ast.Module):
        return _DocstringEdit(row, 0, _quoted(escaped, "", newline), "", newline * 2)
    if not head.strip(_BLANKS):
        return _DocstringEdit(row, column, _quoted(escaped, head, newline), "", newline + head)
    start = lines[node.lineno - 1]
    indent = start[: len(start) - len(start.lstrip(_BLANKS))] + "    "
    layout = newline + indent
    column = len(head.rstrip(_BLANKS))
    return _DocstringEdit(row, column, _quoted(escaped, indent, newline), layout, layout)


def _first_line(node: _Definition | ast.Module) -> int:
    """Return the first line of the body."""
    first = node.body[0]
    decorators = first.decorator_list if isinstance(first, _Definition) else []
    return min([first.lineno, *(decorator.lineno for decorator in decorators)])


def _head(line: str, offset: int) -> str:
    """Return the text before a byte offset of the syntax tree."""
    return line.encode()[:offset].decode(errors="ignore")


def _escaped(text: str, *, ascii_only: bool) -> list[str]:
    """Escape text for a docstring, with all characters visible."""
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
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source.encode()).readline)
    except SyntaxError:
        return False
    return encoding == "utf-8"


def _is_same(expected: ast.Module, edited: ast.Module | Finding) -> bool:
    try:
        return isinstance(edited, ast.Module) and ast.dump(edited) == ast.dump(expected)
    except RecursionError:
        return False


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_DOCSTRING = re.compile(r"(\"\"\"|''')(?:(?!\1).)*\1", re.DOTALL)
"""A single literal without prefix."""
_ARGUMENTS = re.compile(r"[ \t]*(?:Args|Arguments|Parameters|Params):\s*")
_OTHER_STYLE = re.compile(r"^\s*(?::param\b|@param\b|Parameters\s*\n\s*-{3,})", re.MULTILINE)
_MOST_NAMES = 20
"""Parameters in one repair; all findings of a function share it."""
_LONGEST_NAME = 100
_HEAD = re.compile(r"#!|#.*?coding[:=]")
"""Lines that must come first in a file."""
_DEPENDENCIES = re.compile(r"#\s*dependencies\s*=\s*\[")
_LISTED = re.compile(r"#\s*dependencies\s*=\s*\[(?P<names>[^\[\]#]*)\]\s*")


class _Source:
    """A source with its functions and imports by line."""

    def __init__(self, tree: ast.Module, text: str, tools: tuple[ToolSpec, ...]) -> None:
        self.lines = source_lines(text)
        self.tools = {tool.name: tool for tool in tools}
        self.functions: dict[int, _Function] = {}
        self.parameters: dict[int, _Function] = {}
        self.imports: dict[int, set[str | None]] = {}
        """Distributions of imported modules; None for an unknown module."""
        for node in ast.walk(tree):
            if isinstance(node, _Function):
                self.functions.setdefault(node.lineno, node)
                for argument in _arguments(node):
                    self.parameters.setdefault(argument.lineno, node)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = map(distribution_of, imported_modules(node))
                self.imports.setdefault(node.lineno, set()).update(names)

    def head(self, line: int, offset: int) -> str:
        return _head(self.lines[line - 1], offset)

    def written(self, literal: ast.Constant) -> str:
        """Return a literal as written."""
        end = literal.end_lineno or literal.lineno
        lines = [
            *self.lines[literal.lineno - 1 : end - 1],
            self.head(end, literal.end_col_offset or 0),
        ]
        return "".join(lines)[len(self.head(literal.lineno, literal.col_offset)) :]

    def parameters_of(self, tool: str | None, function: _Function) -> dict[ast.arg, object]:
        """Return the parameters of a tool that models see, with their schemas."""
        spec = self.tools.get(tool or "")
        schemas = spec.parameters.get("properties", {}) if spec else {}
        return {item: schemas[item.arg] for item in _arguments(function) if item.arg in schemas}

    def undescribed(self, tool: str | None, function: _Function) -> list[str]:
        """Return the first parameters without description."""
        names = (
            argument.arg
            for argument, schema in self.parameters_of(tool, function).items()
            if isinstance(schema, dict) and "description" not in schema
        )
        return [name for name in islice(names, _MOST_NAMES) if len(name) <= _LONGEST_NAME]


def repairs_for(source: str, report: FileReport) -> tuple[Repair | None, ...]:
    """Return a repair for each finding of a report, or None."""
    reading = report.reading
    tree = syntax.parse(source, reading.path)
    if isinstance(tree, Finding) or source.startswith("\ufeff"):
        return (None,) * len(reading.findings)
    read = _Source(tree, source, reading.tools)
    repairs: dict[tuple[str, str | None, int], Repair | None] = {}
    for finding in reading.findings:
        key = (finding.rule, finding.tool, finding.line)
        if key not in repairs and finding.rule in _REPAIRS:
            repairs[key] = _REPAIRS[finding.rule](read, finding)
    return tuple(repairs.get((item.rule, item.tool, item.line)) for item in reading.findings)


def _docstring(source: _Source, finding: Finding) -> Repair | None:
    """Insert an empty docstring with a line for each parameter."""
    function = source.functions.get(finding.line)
    if function is None:
        return None
    line = _first_line(function)
    indent = source.head(line, function.body[0].col_offset)
    if indent.strip():
        return None  # after other code on its line
    names = source.undescribed(finding.tool, function)
    described = f"\n\n{_section(names, indent)}\n{indent}" if names else ""
    text = f'"""{described}"""\n{indent}'
    return Repair(line=line, column=len(indent) + 1, text=text, select=(3, 3))


def _description(source: _Source, finding: Finding) -> Repair | None:
    """Insert a line under `Args:` for each undescribed parameter."""
    function = source.parameters.get(finding.line)
    literal = _docstring_of(function) if function else None
    if function is None or literal is None or literal.end_lineno is None:
        return None
    written = source.written(literal)
    if not _DOCSTRING.fullmatch(written) or _OTHER_STYLE.search(written):
        return None
    lines = {line.strip() for line in written.splitlines()}
    names = [n for n in source.undescribed(finding.tool, function) if f"{n}:" not in lines]
    if not names:
        return None  # the lines exist already
    if place := _end_of_arguments(source.lines, literal.lineno, literal.end_lineno):
        line, indent = place
        return _to_write(line, 1, "".join(f"{indent}    {name}: \n" for name in names), names[0])
    indent = _indent(source.lines[literal.lineno - 1])
    section = _section(names, indent)
    before = source.head(literal.end_lineno, literal.end_col_offset or 0)[:-3]
    if before.strip():
        text = f"\n\n{section}\n{indent}"
        return _to_write(literal.end_lineno, len(before) + 1, text, names[0])
    return _to_write(literal.end_lineno, 1, f"\n{section}\n", names[0])


def _annotation(source: _Source, finding: Finding) -> Repair | None:
    """Insert a type for the author to correct, for the first parameter of the line without one."""
    function = source.parameters.get(finding.line)
    parameters = source.parameters_of(finding.tool, function) if function else {}
    for item in parameters:
        if item.annotation is None and item.lineno == finding.line:
            before = source.head(item.lineno, item.end_col_offset or 0)
            if not before.endswith(item.arg):
                return None  # the tree has another spelling of the name
            return Repair(line=item.lineno, column=len(before) + 1, text=": str", select=(2, 5))
    return None


def _requirement(source: _Source, finding: Finding) -> Repair | None:
    """List a well-known distribution; an unknown module has none that is safe to install."""
    names = source.imports.get(finding.line, set())
    package = next(iter(names)) if len(names) == 1 else None
    if package is None:
        return None
    return _listing(source.lines, package)


def with_requirements(code: str, packages: Iterable[str]) -> str:
    """List packages in the PEP 723 block of a source; other lines stay as they are."""
    lines = source_lines(code)
    newline = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    for package in packages:
        if (repair := _listing(lines, package)) is not None:
            line = lines[repair.line - 1] if repair.line <= len(lines) else ""
            text = repair.text.replace("\n", newline)
            at = repair.column - 1
            lines[repair.line - 1 : repair.line] = source_lines(line[:at] + text + line[at:])
    return "".join(lines)


def block_bounds(lines: Sequence[str]) -> tuple[int, int]:
    """Return where the PEP 723 block starts and ends; if there is none, twice where it goes."""
    head = sum(bool(_HEAD.match(line)) for line in lines[:2])
    start = next((at for at, line in enumerate(lines) if _opens_block(line)), None)
    if start is None:
        return head, head
    closing = (at for at in range(start + 1, len(lines)) if lines[at].rstrip() == "# ///")
    return start, next(closing, start) + 1


def _listing(lines: list[str], package: str) -> Repair | None:
    """Insert a requirement into the PEP 723 block, or a block with it."""
    opening = next((at for at, line in enumerate(lines) if _opens_block(line)), None)
    if opening is not None:
        return _in_block(lines, opening + 1, package)
    head = sum(bool(_HEAD.match(line)) for line in lines[:2])
    text = f'# /// script\n# dependencies = ["{package}"]\n# ///\n\n'
    return Repair(line=head + 1, column=1, text=text)


def _in_block(lines: list[str], start: int, package: str) -> Repair | None:
    for at in range(start, len(lines)):
        line = lines[at].rstrip()
        if line == "# ///" or not line.startswith("#"):
            break
        if match := _LISTED.fullmatch(line):
            names = match["names"].rstrip()
            parting = ", " if names and not names.endswith(",") else " " if names else ""
            column = match.start("names") + len(names) + 1
            return Repair(line=at + 1, column=column, text=f'{parting}"{package}"')
        if _DEPENDENCIES.match(line):
            is_open = line.endswith("[")
            return Repair(line=at + 2, column=1, text=f'#     "{package}",\n') if is_open else None
    return Repair(line=start + 1, column=1, text=f'# dependencies = ["{package}"]\n')


_REPAIRS: Mapping[str, Callable[[_Source, Finding], Repair | None]] = MappingProxyType(
    {
        "missing-docstring": _docstring,
        "undescribed-parameter": _description,
        "missing-annotation": _annotation,
        "unlisted-import": _requirement,
    }
)


def _arguments(function: _Function) -> list[ast.arg]:
    arguments = function.args
    rest = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]


def _docstring_of(function: _Function) -> ast.Constant | None:
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return first.value if isinstance(first.value.value, str) else None
    return None


def _end_of_arguments(lines: list[str], start: int, end: int) -> tuple[int, str] | None:
    """Return the line after the existing descriptions and the indent of their heading."""
    for at in range(start, end - 1):
        if _ARGUMENTS.fullmatch(lines[at]):
            indent = _indent(lines[at])
            last = at + 1
            while last < end - 1 and lines[last].strip() and _indent(lines[last]) > indent:
                last += 1
            return last + 1, indent
    return None


def _opens_block(line: str) -> bool:
    return line.rstrip() == "# /// script"


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _section(names: list[str], indent: str) -> str:
    return "\n".join([f"{indent}Args:", *(f"{indent}    {name}: " for name in names)])


def _to_write(line: int, column: int, text: str, name: str) -> Repair:
    at = text.index(f"{name}: ") + len(name) + 2
    return Repair(line=line, column=column, text=text, select=(at, at))
