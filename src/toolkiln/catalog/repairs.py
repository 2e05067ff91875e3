"""What can be put into a source to mend a finding: text and its place, for an editor.

A repair only inserts. Where the words are the author's to find, it makes room for them and
says where to write; the finding stays until they are there. What takes a decision, such as a
right, has no repair. `mending` is for sources whose author is not there to be asked.
"""

import ast
import re
from collections.abc import Callable, Mapping
from itertools import islice
from types import MappingProxyType

from toolkiln.catalog.checking import Report
from toolkiln.catalog.mending import source_lines
from toolkiln.model import Finding, ToolSpec, Value
from toolkiln.spec import distribution_of, imported_modules, syntax

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_DOCSTRING = re.compile(r"(\"\"\"|''')(?:(?!\1).)*\1", re.DOTALL)
"""A literal that says of itself where it ends: no prefix, no second literal behind it."""
_ARGUMENTS = re.compile(r"[ \t]*(?:Args|Arguments|Parameters|Params):\s*")
_OTHER_STYLE = re.compile(r"^\s*(?::param\b|@param\b|Parameters\s*\n\s*-{3,})", re.MULTILINE)
_MOST_NAMES = 20
"""Parameters that one repair makes room for: every finding of a function has the same one."""
_LONGEST_NAME = 100
_HEAD = re.compile(r"#!|#.*?coding[:=]")
"""Lines that have to be the first ones."""
_DEPENDENCIES = re.compile(r"#\s*dependencies\s*=\s*\[")
_LISTED = re.compile(r"#\s*dependencies\s*=\s*\[(?P<names>[^\[\]#]*)\]\s*")


class Repair(Value):
    """Text to be inserted."""

    line: int
    column: int
    """1-based, in characters."""
    text: str
    select: tuple[int, int] | None = None
    """What of the text is the author's to write, from and to; null: it is complete."""


class _Source:
    """A source, with its functions and imports by their lines."""

    def __init__(self, tree: ast.Module, text: str, tools: tuple[ToolSpec, ...]) -> None:
        self.lines = source_lines(text)
        self.tools = {tool.name: tool for tool in tools}
        self.functions: dict[int, _Function] = {}
        self.parameters: dict[int, _Function] = {}
        self.imports: dict[int, set[str | None]] = {}
        """The distributions of imported modules; None is that of an unknown module."""
        for node in ast.walk(tree):
            if isinstance(node, _Function):
                self.functions.setdefault(node.lineno, node)
                for argument in _arguments(node):
                    self.parameters.setdefault(argument.lineno, node)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = map(distribution_of, imported_modules(node))
                self.imports.setdefault(node.lineno, set()).update(names)

    def head(self, line: int, offset: int) -> str:
        """What stands before a place that the syntax tree names in bytes."""
        return self.lines[line - 1].encode()[:offset].decode(errors="ignore")

    def written(self, literal: ast.Constant) -> str:
        """A literal as it is spelt."""
        end = literal.end_lineno or literal.lineno
        lines = [
            *self.lines[literal.lineno - 1 : end - 1],
            self.head(end, literal.end_col_offset or 0),
        ]
        return "".join(lines)[len(self.head(literal.lineno, literal.col_offset)) :]

    def parameters_of(self, tool: str | None, function: _Function) -> dict[ast.arg, object]:
        """The parameters of a tool's function that models are told of, with their schemas."""
        spec = self.tools.get(tool or "")
        known = spec.parameters.get("properties", {}) if spec else {}
        return {one: known[one.arg] for one in _arguments(function) if one.arg in known}

    def undescribed(self, tool: str | None, function: _Function) -> list[str]:
        """The first parameters that have no description."""
        names = (
            one.arg
            for one, schema in self.parameters_of(tool, function).items()
            if isinstance(schema, dict) and "description" not in schema
        )
        return [name for name in islice(names, _MOST_NAMES) if len(name) <= _LONGEST_NAME]


def repairs_for(source: str, report: Report) -> tuple[Repair | None, ...]:
    """For each finding of a report on this source, what mends it; None where nothing can."""
    reading = report.reading
    tree = syntax.parse(source, reading.path)
    if isinstance(tree, Finding) or source.startswith("\ufeff"):
        return (None,) * len(reading.findings)
    read = _Source(tree, source, reading.tools)
    made: dict[tuple[str, str | None, int], Repair | None] = {}
    for finding in reading.findings:
        key = (finding.rule, finding.tool, finding.line)
        if key not in made and finding.rule in _MAKERS:
            made[key] = _MAKERS[finding.rule](read, finding)
    return tuple(made.get((one.rule, one.tool, one.line)) for one in reading.findings)


def _docstring(source: _Source, finding: Finding) -> Repair | None:
    """Room for a docstring, with a line for each parameter."""
    function = source.functions.get(finding.line)
    if function is None:
        return None
    first = function.body[0]
    decorators = first.decorator_list if isinstance(first, _Function | ast.ClassDef) else []
    line = min([first.lineno, *(decorator.lineno for decorator in decorators)])
    indent = source.head(line, first.col_offset)
    if indent.strip():
        return None  # behind other code on its line
    names = source.undescribed(finding.tool, function)
    described = f"\n\n{_section(names, indent)}\n{indent}" if names else ""
    text = f'"""{described}"""\n{indent}'
    return Repair(line=line, column=len(indent) + 1, text=text, select=(3, 3))


def _description(source: _Source, finding: Finding) -> Repair | None:
    """A line under `Args:` for each parameter that has none."""
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
        return None  # there is room already
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
    """A type to be corrected, for the first parameter of the line that has none."""
    function = source.parameters.get(finding.line)
    among = source.parameters_of(finding.tool, function) if function else {}
    for one in among:
        if one.annotation is None and one.lineno == finding.line:
            before = source.head(one.lineno, one.end_col_offset or 0)
            if not before.endswith(one.arg):
                return None  # the tree was made of another spelling
            place = len(before) + 1
            return Repair(line=one.lineno, column=place, text=": str", select=(2, 5))
    return None


def _requirement(source: _Source, finding: Finding) -> Repair | None:
    """List a well-known distribution; an unknown module has none that is safe to install."""
    names = source.imports.get(finding.line, set())
    package = next(iter(names)) if len(names) == 1 else None
    if package is None:
        return None
    opening = next((at for at, line in enumerate(source.lines) if _opens_block(line)), None)
    if opening is not None:
        return _in_block(source.lines, opening + 1, package)
    head = sum(bool(_HEAD.match(line)) for line in source.lines[:2])
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


_MAKERS: Mapping[str, Callable[[_Source, Finding], Repair | None]] = MappingProxyType(
    {
        "missing-docstring": _docstring,
        "undescribed-parameter": _description,
        "missing-annotation": _annotation,
        "unlisted-import": _requirement,
    }
)


def _arguments(function: _Function) -> list[ast.arg]:
    given = function.args
    rest = [one for one in (given.vararg, given.kwarg) if one]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *rest]


def _docstring_of(function: _Function) -> ast.Constant | None:
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return first.value if isinstance(first.value.value, str) else None
    return None


def _end_of_arguments(lines: list[str], start: int, end: int) -> tuple[int, str] | None:
    """The line behind the descriptions that there are, and how far their heading is indented."""
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
