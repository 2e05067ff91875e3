"""Source text → syntax tree, or a finding that explains why it does not parse.

Nothing is compiled or executed. Every supported interpreter reads a file the same way: where
Python 3.11 cannot parse PEP 695 syntax, the source is first rewritten to the older spelling.
"""

import ast
import codecs
import io
import re
import sys
import tokenize
import warnings
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from toolkiln.model.source import Finding, Severity
from toolkiln.spec.limits import MAX_TOKENS

_PEP_695 = re.compile(r"^\s*(type\s+\w+\s*[\[=]|(async\s+)?def\s+\w+\s*\[|class\s+\w+\s*\[)", re.M)

_BETWEEN_STATEMENTS = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class _UnclosedBracket(Exception):
    """A type parameter list has no closing bracket."""


class _Edit(NamedTuple):
    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def _without_pep_695(source: str) -> str | None:
    if not _PEP_695.search(source):
        return None
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return None
    lines = io.StringIO(source).readlines()  # not `splitlines`: it also ends lines at form feeds
    edits: list[_Edit] = []
    variables: dict[str, str] = {}
    try:
        for index in _statement_starts(tokens):
            _rewrite(tokens, index, edits, variables)
    except _UnclosedBracket:
        return None
    for (row, start), (end_row, end), text in sorted(edits, reverse=True):
        head, rest = lines[row - 1][:start], lines[end_row - 1][end:]
        if row == end_row:
            lines[row - 1] = head + text + rest
        else:  # join lines with backslashes to preserve line numbers
            lines[row - 1 : end_row] = [f"{head}{text}\\\n", *["\\\n"] * (end_row - row - 1), rest]
    tail = "".join(f'\n{name} = TypeVar("{name}"{limit})' for name, limit in variables.items())
    imports = "\nfrom typing import TypeVar, Generic\nfrom typing_extensions import TypeAliasType"
    return "".join(lines) + "\n" + imports + tail + "\n"


def _statement_starts(tokens: list[tokenize.TokenInfo]) -> list[int]:
    starts, fresh = [], True
    skip = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT}
    for index, token in enumerate(tokens):
        if token.type in skip:
            fresh = fresh or token.type == tokenize.NEWLINE
        elif fresh:
            starts.append(index + (token.string == "async"))
            fresh = False
    return starts


def _rewrite(
    tokens: list[tokenize.TokenInfo], index: int, edits: list[_Edit], variables: dict[str, str]
) -> None:
    if index + 2 >= len(tokens):
        return
    keyword, name, after = tokens[index : index + 3]
    if keyword.string not in {"type", "def", "class"} or name.type != tokenize.NAME:
        return
    parameters: list[str] = []
    at = index + 2
    if after.string == "[":
        end = _closing(tokens, at)
        parameters = _type_parameters(tokens[at + 1 : end], variables)
        edits.append(_Edit(after.start, tokens[end].end, ""))
        at = end + 1
    if keyword.string == "type" and tokens[at].string == "=":
        last = next(i for i in range(at, len(tokens)) if tokens[i].type == tokenize.NEWLINE) - 1
        edits.append(_Edit(keyword.start, name.start, ""))
        edits.append(_Edit(tokens[at].end, tokens[at].end, f' TypeAliasType("{name.string}",'))
        edits.append(_Edit(tokens[last].end, tokens[last].end, ")"))
    elif keyword.string == "class" and parameters:
        generic = f"Generic[{', '.join(parameters)}]"
        if tokens[at].string == "(":
            empty = tokens[at + 1].string == ")"
            edits.append(
                _Edit(tokens[at].end, tokens[at].end, generic if empty else f"{generic}, ")
            )
        else:
            edits.append(_Edit(tokens[at].start, tokens[at].start, f"({generic})"))


def _closing(tokens: list[tokenize.TokenInfo], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        if tokens[index].type in _BETWEEN_STATEMENTS:
            break
        depth += {"[": 1, "]": -1}.get(tokens[index].string, 0)
        if depth == 0:
            return index
    raise _UnclosedBracket


def _type_parameters(tokens: list[tokenize.TokenInfo], variables: dict[str, str]) -> list[str]:
    text = tokenize.untokenize([(t.type, t.string) for t in tokens]).replace("\n", " ")
    names = []
    for parameter in split_list(text):
        name, _, bound = parameter.lstrip("* ").partition(":")
        name = name.split("=")[0].strip()
        bound = bound.split("=")[0].strip()
        names.append(name)
        limit = f", {bound[1:-1]}" if bound.startswith("(") else f", bound={bound}" if bound else ""
        if variables.setdefault(name, limit) != limit:
            variables[name] = ""  # two different bounds for one name: apply neither
    return names


_OPERATOR = re.compile(r"\s*(?:[<>=!~]=?|;)")


def split_list(text: str) -> list[str]:
    """Split a comma-separated list, but not inside brackets, quotes and version sets."""
    parts = []
    start = depth = 0
    quote = ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[(":
            depth += 1
        elif letter in "])":
            depth = max(0, depth - 1)
        elif letter == "," and not depth and not _OPERATOR.match(text, at + 1):
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


_MANY_BRACES = 2_000
_FSTRING_WORK = 1_000
MAX_BYTES = 1_000_000
"""Size limit of a file. Larger files are data, not tools."""


def parse(source: str, path: str) -> ast.Module | Finding:
    """Parse a source; return an error finding if it is not valid Python or too large."""
    if len(source) > MAX_BYTES:
        message = f"the file has {len(source):,} characters"
        fix = f"keep tools under {MAX_BYTES:,} characters; load data at run time"
        return _error("file-too-large", message, fix, path)
    if "\0" in source:
        line = source.count("\n", 0, source.index("\0")) + 1
        message = "the file contains null bytes"
        return _error("not-python", message, "save it as UTF-8 text", path, line)
    source = source.removeprefix("\ufeff")
    if _has_too_many_tokens(source):
        message = f"the file has more than {MAX_TOKENS:,} tokens"
        fix = "split it into several files; load data at run time"
        return _error("file-too-large", message, fix, path)
    try:
        return _tree(source)
    except SyntaxError as error:
        if sys.version_info < (3, 12) and (rewritten := _without_pep_695(source)):
            try:
                return _tree(rewritten)
            except SyntaxError as other:  # the actual mistake; line numbers are the same
                error = other if (other.lineno or 0) <= source.count("\n") + 1 else error
            except (ValueError, RecursionError, MemoryError):
                pass
        message = f"this is not valid Python: {error.msg}"
        fix = "correct this line; the rest of the file was not read"
        finding = _error("syntax-error", message, fix, path, max(error.lineno or 1, 1))
        return finding.model_copy(update={"column": error.offset or None})
    except (RecursionError, MemoryError):
        fix = "break the deeply nested expression into parts"
        return _error("too-deep", "the code is nested too deeply to be read", fix, path)
    except ValueError as error:  # such as a lone surrogate, or an integer of 5,000 digits
        message = f"this is not valid Python: {error}"
        return _error("not-python", message, "save it as UTF-8 text", path)


def _error(rule: str, message: str, fix: str, path: str, line: int = 1) -> Finding:
    return Finding(
        rule=rule, severity=Severity.ERROR, message=message, line=line, fix=fix, path=path
    )


def _has_too_many_tokens(source: str) -> bool:
    if len(source) <= MAX_TOKENS and source.count("{") < _MANY_BRACES:
        return False
    count = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(source, newline=None).readline):
            count += 1
            if token.type == tokenize.STRING and "f" in token.string[:2].lower():
                # Before Python 3.12 an f-string is one token including the code inside it, and
                # the parser scans all of it for each expression.
                size = len(token.string)
                count += max(size // 2, size * token.string.count("{") // _FSTRING_WORK)
            if count > MAX_TOKENS:
                return True
    except (tokenize.TokenError, SyntaxError, IndexError):
        pass  # the parser will report the error
    return False


def _tree(source: str) -> ast.Module:
    if "\\" not in source:
        try:
            return ast.parse(source)
        except SyntaxError:
            pass  # it may be a warning turned into an error
    with warnings.catch_warnings():  # not for every file: it adds a tenth to the parse time
        warnings.simplefilter("ignore")  # invalid escapes are not reported
        return ast.parse(source)


_QUADRATIC_ENCODINGS = ("idna", "punycode")


def decode(data: bytes) -> str:
    """Decode the bytes of a source file, with universal newlines.

    Raises:
        UnicodeDecodeError: the bytes are not in the encoding that the file declares.
        SyntaxError: the declared encoding does not exist or is not a text encoding.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    try:
        if codecs.lookup(encoding).name in _QUADRATIC_ENCODINGS:
            raise LookupError(encoding)
        text = data.decode(encoding)
    except UnicodeDecodeError:
        raise
    except (LookupError, UnicodeError):  # such as rot13, and `undefined`, which always fails
        raise SyntaxError(f"unknown encoding: {encoding}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


_LEAVES = "identifier string int constant expr_context operator unaryop boolop cmpop"
_WITH_GAPS = ("keys", "kw_defaults")  # `{**a}` and `def f(*, a)` put None into these lists


def walk(tree: ast.AST) -> list[ast.AST]:
    """Return all nodes of a tree, parents before children; several times faster than `ast.walk`."""
    nodes = [tree]
    append, extend, fields_of = nodes.append, nodes.extend, _FIELDS.get
    for node in nodes:
        fields = fields_of(node.__class__)
        if fields is None:
            continue
        for name in fields[0]:
            child = getattr(node, name)
            if child is not None:
                append(child)
        for name in fields[1]:
            children = getattr(node, name)
            if children:
                extend(children)
        for name in fields[2]:
            extend(child for child in getattr(node, name) if child is not None)
    return nodes


def keyword_arguments(node: ast.Call | ast.ClassDef) -> dict[str, ast.expr]:
    """Return the keyword arguments of a call or class statement, without `**` ones."""
    return {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}


docstring = partial(ast.get_docstring, clean=False)
"""Returns the docstring of a module, class or function as written."""


def last_name(node: ast.AST) -> str:
    """Return `c` for `a.b.c` and for `c`; "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def assigned_names(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that an assignment binds, with the expressions of their values."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for item, value in zip(target.elts, node.value.elts, strict=False):
                    if isinstance(item, ast.Name):
                        yield item.id, value
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        yield node.target.id, node.value


def parameters(arguments: ast.arguments) -> list[tuple[ast.arg, ast.expr | None]]:
    """Return the parameters of a signature with their defaults, without variadic ones."""
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    defaults = [*[None] * required, *arguments.defaults, *arguments.kw_defaults]
    return list(zip([*positional, *arguments.kwonlyargs], defaults, strict=True))


def _subclasses(cls: type[ast.AST]) -> Iterator[type[ast.AST]]:
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


def _fields(cls: type[ast.AST]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the fields that contain a node, a list of nodes, and a list of nodes and None.

    In every Python version the docstring of a node class is its grammar rule, such as
    `Call(expr func, expr* args, keyword* keywords)`.
    """
    grammar = re.fullmatch(rf"{cls.__name__}\((.+)\)", cls.__doc__ or "", re.DOTALL)
    pairs = [field.split() for field in grammar[1].split(",")] if grammar else []
    nodes = [(kind, name) for kind, name in pairs if kind.rstrip("?*") not in _LEAVES.split()]
    return (
        tuple(name for kind, name in nodes if not kind.endswith("*")),
        tuple(name for kind, name in nodes if kind.endswith("*") and name not in _WITH_GAPS),
        tuple(name for kind, name in nodes if kind.endswith("*") and name in _WITH_GAPS),
    )


_FIELDS = {cls: fields for cls in _subclasses(ast.AST) if any(fields := _fields(cls))}
