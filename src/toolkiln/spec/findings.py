"""Findings of one file: the collector, the cap, and `# toolkiln: ignore[rule]` comments.

An ignore comment turns an error on its line into a warning marked as overruled. Whether a
version with overruled errors is admitted is decided elsewhere: only a person may do so.
Errors that leave nothing to serve cannot be overruled.
"""

import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import NamedTuple

from toolkiln.errors import nearest_hint
from toolkiln.model.source import Finding, Severity
from toolkiln.spec.limits import MAX_FINDINGS

_MAX_TEXT = 1_000
"""Characters per message and per fix; both may quote the source."""


class Findings:
    """Collects the findings about one file and its helpers."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: list[Finding] = []

    @property
    def is_full(self) -> bool:
        """Whether further findings would be dropped."""
        return len(self._found) > MAX_FINDINGS

    def error(
        self, rule: str, message: str, line: int, fix: str, *, tool: str | None = None,
        path: str | None = None,
    ) -> None:  # fmt: skip
        """Report a problem that prevents a tool from being served."""
        self.report(Severity.ERROR, rule, message, line, fix, tool=tool, path=path)

    def warn(
        self, rule: str, message: str, line: int, fix: str, *, tool: str | None = None,
        path: str | None = None,
    ) -> None:  # fmt: skip
        """Report a problem for models or clients."""
        self.report(Severity.WARNING, rule, message, line, fix, tool=tool, path=path)

    def note(
        self, rule: str, message: str, line: int, fix: str, *, tool: str | None = None,
        path: str | None = None,
    ) -> None:  # fmt: skip
        """Report something worth knowing."""
        self.report(Severity.INFO, rule, message, line, fix, tool=tool, path=path)

    def add(self, finding: Finding) -> None:
        """Add a finding as is, even when full."""
        self._found.append(finding)

    def report(
        self, severity: Severity, rule: str, message: str, line: int, fix: str, *,
        tool: str | None = None, path: str | None = None,
    ) -> None:  # fmt: skip
        """Report a problem of any severity; only errors are kept when full."""
        if self.is_full and severity is not Severity.ERROR:
            return
        self._found.append(
            Finding(
                rule=rule,
                severity=severity,
                message=_shorten(message),
                line=line,
                fix=_shorten(fix),
                tool=tool,
                path=path or self._path,
            )
        )

    def tools_with(self, rule: str) -> set[str | None]:
        """Return the tools that have a finding of this rule."""
        return {finding.tool for finding in self._found if finding.rule == rule}

    def soften(self, rule: str, consequence: str) -> None:
        """Turn the errors of a rule into warnings with this consequence."""
        for index, found in enumerate(self._found):
            if found.rule == rule:
                message = _shorten(f"{found.message}; {consequence}")
                changes = {"severity": Severity.WARNING, "message": message}
                self._found[index] = found.model_copy(update=changes)

    def in_order(self) -> tuple[Finding, ...]:
        """Return the findings without duplicates: the file's own first, then by line."""
        own = self._path
        distinct: dict[tuple[str, str | None, int, str], Finding] = {}
        for found in self._found:
            distinct.setdefault((found.rule, found.path, found.line, found.message), found)
        return tuple(sorted(distinct.values(), key=lambda f: (f.path != own, f.path, f.line)))


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def cut_findings(findings: Sequence[Finding], path: str) -> tuple[Finding, ...]:
    """Keep the most severe findings of a file up to the limit, and report the cut as an error."""
    if len(findings) <= MAX_FINDINGS:
        return tuple(findings)
    ranks = list(Severity)
    others = [i for i, finding in enumerate(findings) if finding.rule != "too-many-findings"]
    worst = sorted(others, key=lambda index: ranks.index(findings[index].severity))[:MAX_FINDINGS]
    left_out = Finding(
        rule="too-many-findings",
        severity=Severity.ERROR,
        message=f"the file has more than {MAX_FINDINGS:,} findings; the rest is not listed",
        fix="fix these first, or split the file",
        path=path,
    )
    return (left_out, *(findings[index] for index in sorted(worst)))


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
_RUNTIME_RULES = frozenset({"example-fails", "schema-differs"})
"""Found by running the file, so reading it cannot tell whether the comment is used."""
_MAX_RULES = 20
"""Rules per comment."""
_PREFIX = "toolkiln:"
_COMMENT = re.compile(r"#\s*toolkiln:\s*ignore\b(?:\[(?P<rules>[^\]]*)\])?")


class _IgnoreComment(NamedTuple):
    line: int
    lines: range
    """The lines it applies to."""
    rules: tuple[str, ...]


def overrule(findings: Iterable[Finding], sources: Mapping[str, str]) -> tuple[Finding, ...]:
    """Apply ignore comments: errors they name become warnings marked as overruled.

    `sources` has the text of each path that findings refer to.
    """
    comments = {
        path: _by_line(_ignore_comments(text)) for path, text in sources.items() if _PREFIX in text
    }
    return tuple(_overruled(finding, comments.get(finding.path or "", {})) for finding in findings)


def apply_ignore_comments(
    findings: Sequence[Finding], sources: Mapping[str, str]
) -> tuple[Finding, ...]:
    """Overrule findings, and report ignore comments that have no effect."""
    found = overrule(findings, sources)
    overruled = {(f.path, f.rule, f.line) for f in found if f.overruled}
    reports = (
        finding
        for path, text in sources.items()
        if _PREFIX in text
        for comment in _ignore_comments(text)
        for finding in _unused(comment, path, overruled)
    )
    unused = list(islice(reports, MAX_FINDINGS + 1))
    if not unused:
        return found
    own = next(iter(sources))
    return tuple(sorted([*found, *unused], key=lambda f: (f.path != own, f.path or "", f.line)))


def _by_line(comments: Iterable[_IgnoreComment]) -> dict[int, list[_IgnoreComment]]:
    found: dict[int, list[_IgnoreComment]] = {}
    for comment in comments:
        for line in comment.lines:
            found.setdefault(line, []).append(comment)
    return found


def _overruled(finding: Finding, comments: Mapping[int, Iterable[_IgnoreComment]]) -> Finding:
    if finding.severity is not Severity.ERROR or finding.rule not in OVERRULABLE:
        return finding
    for comment in comments.get(finding.line, ()):
        if finding.rule in comment.rules:
            message = f"{finding.rule} is overruled in line {comment.line}: {finding.message}"
            changes = {"severity": Severity.WARNING, "message": message, "overruled": True}
            return finding.model_copy(update=changes)
    return finding


def _unused(
    comment: _IgnoreComment, path: str, overruled: Set[tuple[str | None, str, int]]
) -> Iterator[Finding]:
    if not comment.rules:
        yield _warning("the comment names no rule", "write it as ignore[rule]", comment, path)
    for rule in comment.rules:
        if rule not in OVERRULABLE:
            fix = nearest_hint(rule, OVERRULABLE) or "fix the error, or remove the comment"
            yield _warning(f"{rule!r} cannot be overruled", fix, comment, path)
        elif rule not in _RUNTIME_RULES and not any(
            (path, rule, line) in overruled for line in comment.lines
        ):
            message = f"this line has no error {rule!r}"
            yield _warning(message, "remove the comment", comment, path)


def _warning(message: str, fix: str, comment: _IgnoreComment, path: str) -> Finding:
    return Finding(
        rule="unused-ignore",
        severity=Severity.WARNING,
        message=message,
        line=comment.line,
        fix=fix,
        path=path,
    )


def _ignore_comments(source: str) -> tuple[_IgnoreComment, ...]:
    found: list[_IgnoreComment] = []
    first = end = 0  # lines of the string that ends before a comment, which applies to it as well
    starts: list[int] = []
    fstring_start = getattr(tokenize, "FSTRING_START", None)  # since Python 3.12
    fstring_end = getattr(tokenize, "FSTRING_END", None)
    lines = io.StringIO(source.removeprefix("\ufeff"), newline=None)
    try:
        for token in tokenize.generate_tokens(lines.readline):
            if token.type == fstring_start:
                starts.append(token.start[0])
            elif token.type in (tokenize.STRING, fstring_end):
                start = token.start[0] if token.type == tokenize.STRING else starts.pop()
                first = start if start != end else first
                end = token.end[0]
            elif token.type == tokenize.COMMENT and (match := _COMMENT.search(token.string)):
                line = token.start[0]
                names = (match["rules"] or "").split(",")
                rules = tuple(dict.fromkeys(filter(None, map(str.strip, names))))[:_MAX_RULES]
                lines_covered = range(first if end == line else line, line + 1)
                found.append(_IgnoreComment(line, lines_covered, rules))
    except (tokenize.TokenError, SyntaxError, IndexError):
        pass  # the parser accepts more than the tokenizer; comments not reached have no effect
    return tuple(found)
