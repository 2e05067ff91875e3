"""PEP 695 for interpreters before 3.12: `type X = …`, `def f[T]`, `class C[T]` respelled.

Line for line, so that findings still point at the author's lines; type parameters become
`TypeVar` assignments below the last one. Not a general back-port: what it cannot respell
stays a syntax error.
"""

import io
import re
import tokenize
from typing import NamedTuple

_HINT = re.compile(r"^\s*(type\s+\w+\s*[\[=]|(async\s+)?def\s+\w+\s*\[|class\s+\w+\s*\[)", re.M)


_BETWEEN_STATEMENTS = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class _Unclosed(Exception):
    """A list of type parameters has no end."""


class _Edit(NamedTuple):
    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def older_spelling(source: str) -> str | None:
    """The source with PEP 695 respelled, or None where there is none of it."""
    if not _HINT.search(source):
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
            _respell(tokens, index, edits, variables)
    except _Unclosed:
        return None
    for (row, start), (end_row, end), text in sorted(edits, reverse=True):
        head, rest = lines[row - 1][:start], lines[end_row - 1][end:]
        if row == end_row:
            lines[row - 1] = head + text + rest
        else:  # keep every line by joining them with backslashes
            lines[row - 1 : end_row] = [f"{head}{text}\\\n", *["\\\n"] * (end_row - row - 1), rest]
    tail = "".join(f'\n{name} = TypeVar("{name}"{limit})' for name, limit in variables.items())
    needs = "\nfrom typing import TypeVar, Generic\nfrom typing_extensions import TypeAliasType"
    return "".join(lines) + "\n" + needs + tail + "\n"


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


def _respell(
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
    """Return the index of the bracket that closes this one.

    Raises:
        _Unclosed: the statement ends before; `tokenize` takes any bracket for the other one.
    """
    depth = 0
    for index in range(opening, len(tokens)):
        if tokens[index].type in _BETWEEN_STATEMENTS:
            break
        depth += {"[": 1, "]": -1}.get(tokens[index].string, 0)
        if depth == 0:
            return index
    raise _Unclosed


def _type_parameters(inside: list[tokenize.TokenInfo], variables: dict[str, str]) -> list[str]:
    text = tokenize.untokenize([(t.type, t.string) for t in inside]).replace("\n", " ")
    names = []
    for parameter in _split_commas(text):
        name, _, bound = parameter.lstrip("* ").partition(":")
        name = name.split("=")[0].strip()
        bound = bound.split("=")[0].strip()
        names.append(name)
        limit = f", {bound[1:-1]}" if bound.startswith("(") else f", bound={bound}" if bound else ""
        if variables.setdefault(name, limit) != limit:
            variables[name] = ""  # two meanings of one name: promise neither
    return names


def _split_commas(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in text:
        depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [part for part in [*parts, current] if part.strip()]
