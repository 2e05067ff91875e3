"""`# toolkiln: ignore[rule]`: the author's claim that an error of that line is acceptable.

It turns the error into a warning that is marked as overruled. Whether a version with overruled
errors is admitted is decided elsewhere: only a person may. Errors that leave nothing to serve
cannot be overruled.
"""

import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import NamedTuple

from toolkiln.errors import nearest_hint
from toolkiln.model import Finding, Severity
from toolkiln.spec.work import MAX_FINDINGS

OVERRULABLE = frozenset(
    {
        "bad-option",
        "bad-requirement",
        "example-fails",
        "hidden-characters",
        "literal-secret",
        "missing-file",
        "missing-helper",
        "model-instructions",
        "schema-differs",
        "schema-mismatch",
        "unknown-option",
    }
)
"""Rules whose errors a person may overrule."""
_FOUND_LATER = frozenset({"example-fails", "schema-differs"})
"""Found by running the file, so that reading cannot say whether a comment is of use."""
_WORD = "toolkiln:"
_MOST_RULES = 20
"""Rules that one comment may name."""
_COMMENT = re.compile(r"#\s*toolkiln:\s*ignore\b(?:\[(?P<rules>[^\]]*)\])?")


class _Comment(NamedTuple):
    """One comment: the lines that it is about, and the rules that it names."""

    line: int
    lines: range
    rules: tuple[str, ...]


def overrule(findings: Iterable[Finding], sources: Mapping[str, str]) -> tuple[Finding, ...]:
    """The findings, those as overruled warnings that a comment of their line names.

    `sources` are texts by the paths that findings name.
    """
    comments = {path: _by_line(_comments(text)) for path, text in sources.items() if _WORD in text}
    return tuple(_overruled(one, comments.get(one.path or "", {})) for one in findings)


def _by_line(comments: Iterable[_Comment]) -> dict[int, list[_Comment]]:
    found: dict[int, list[_Comment]] = {}
    for comment in comments:
        for line in comment.lines:
            found.setdefault(line, []).append(comment)
    return found


def with_unused(findings: Sequence[Finding], sources: Mapping[str, str]) -> tuple[Finding, ...]:
    """Overrule findings as comments say, and report comments that overrule nothing."""
    found = overrule(findings, sources)
    overruled = {(one.path, one.rule, one.line) for one in found if one.overruled}
    reports = (
        finding
        for path, text in sources.items()
        if _WORD in text
        for comment in _comments(text)
        for finding in _unused(comment, path, overruled)
    )
    unused = list(islice(reports, MAX_FINDINGS + 1))
    if not unused:
        return found
    own = next(iter(sources))
    return tuple(sorted([*found, *unused], key=lambda f: (f.path != own, f.path or "", f.line)))


def _overruled(finding: Finding, comments: Mapping[int, Iterable[_Comment]]) -> Finding:
    if finding.severity is not Severity.ERROR or finding.rule not in OVERRULABLE:
        return finding
    for comment in comments.get(finding.line, ()):
        if finding.rule in comment.rules:
            message = f"{finding.rule} is overruled in line {comment.line}: {finding.message}"
            changed = {"severity": Severity.WARNING, "message": message, "overruled": True}
            return finding.model_copy(update=changed)
    return finding


def _unused(
    comment: _Comment, path: str, overruled: Set[tuple[str | None, str, int]]
) -> Iterator[Finding]:
    if not comment.rules:
        yield _warning("the comment names no rule", "write it as ignore[rule]", comment, path)
    for rule in comment.rules:
        if rule not in OVERRULABLE:
            fix = nearest_hint(rule, OVERRULABLE) or "correct the error, or remove the comment"
            yield _warning(f"{rule!r} is not an error that can be overruled", fix, comment, path)
        elif rule not in _FOUND_LATER and not any(
            (path, rule, line) in overruled for line in comment.lines
        ):
            message = f"there is no error {rule!r} in this line"
            yield _warning(message, "remove the comment", comment, path)


def _warning(message: str, fix: str, comment: _Comment, path: str) -> Finding:
    return Finding(
        rule="unused-ignore",
        severity=Severity.WARNING,
        message=message,
        line=comment.line,
        fix=fix,
        path=path,
    )


def _comments(source: str) -> tuple[_Comment, ...]:
    """The comments of a source; text in string literals is none."""
    found: list[_Comment] = []
    first = end = 0  # the lines of the strings before a comment, which it is about as well
    opened: list[int] = []
    start_kind = getattr(tokenize, "FSTRING_START", None)  # from Python 3.12 on
    end_kind = getattr(tokenize, "FSTRING_END", None)
    lines = io.StringIO(source.removeprefix("\ufeff"), newline=None)
    try:
        for token in tokenize.generate_tokens(lines.readline):
            if token.type == start_kind:
                opened.append(token.start[0])
            elif token.type in (tokenize.STRING, end_kind):
                began = token.start[0] if token.type == tokenize.STRING else opened.pop()
                first = began if began != end else first
                end = token.end[0]
            elif token.type == tokenize.COMMENT and (match := _COMMENT.search(token.string)):
                line = token.start[0]
                named = (match["rules"] or "").split(",")
                rules = tuple(dict.fromkeys(filter(None, map(str.strip, named))))[:_MOST_RULES]
                start = first if end == line else line
                found.append(_Comment(line, range(start, line + 1), rules))
    except (tokenize.TokenError, SyntaxError, IndexError):
        pass  # the parser understands more than the tokenizer: what it has not seen counts as code
    return tuple(found)
