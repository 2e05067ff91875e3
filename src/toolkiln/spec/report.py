"""The findings of one reading, as they come up."""

from collections.abc import Sequence

from toolkiln.model import Finding, Severity
from toolkiln.spec.work import MAX_FINDINGS

_LONGEST_TEXT = 1_000
"""Characters of a message or a fix: both may quote the source."""


def cut_findings(findings: Sequence[Finding], path: str) -> tuple[Finding, ...]:
    """As many findings of a file as are kept, errors first; an error says if some are left out."""
    if len(findings) <= MAX_FINDINGS:
        return tuple(findings)
    ranks = list(Severity)
    others = [at for at, one in enumerate(findings) if one.rule != "too-many-findings"]
    worst = sorted(others, key=lambda at: ranks.index(findings[at].severity))[:MAX_FINDINGS]
    left_out = Finding(
        rule="too-many-findings",
        severity=Severity.ERROR,
        message=f"the file has more than {MAX_FINDINGS:,} findings; the others are left out",
        fix="fix these first, or split the file",
        path=path,
    )
    return (left_out, *(findings[at] for at in sorted(worst)))


class Findings:
    """Collects findings about one file and its helpers."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: list[Finding] = []

    @property
    def is_full(self) -> bool:
        """Whether more findings would be left out."""
        return len(self._found) > MAX_FINDINGS

    def error(
        self, rule: str, message: str, line: int, fix: str, *, tool: str | None = None,
        path: str | None = None,
    ) -> None:  # fmt: skip
        """Something that keeps a tool from being served."""
        self._add(Severity.ERROR, rule, message, line, fix, tool, path)

    def warn(
        self, rule: str, message: str, line: int, fix: str, *, tool: str | None = None,
        path: str | None = None,
    ) -> None:  # fmt: skip
        """Something that a model or a client will trip over."""
        self._add(Severity.WARNING, rule, message, line, fix, tool, path)

    def note(
        self, rule: str, message: str, line: int, fix: str, *, tool: str | None = None,
        path: str | None = None,
    ) -> None:  # fmt: skip
        """Something worth knowing."""
        self._add(Severity.INFO, rule, message, line, fix, tool, path)

    def add(self, finding: Finding) -> None:
        """A finding made elsewhere."""
        self._found.append(finding)

    def in_order(self) -> tuple[Finding, ...]:
        """The findings once each, the file's own first, by line."""
        own = self._path
        once: dict[tuple[str, str | None, int, str], Finding] = {}
        for found in self._found:
            once.setdefault((found.rule, found.path, found.line, found.message), found)
        return tuple(sorted(once.values(), key=lambda f: (f.path != own, f.path, f.line)))

    def _add(
        self, severity: Severity, rule: str, message: str, line: int, fix: str,
        tool: str | None, path: str | None,
    ) -> None:  # fmt: skip
        if self.is_full and severity is not Severity.ERROR:
            return
        self._found.append(
            Finding(
                rule=rule,
                severity=severity,
                message=_shortened(message),
                line=line,
                fix=_shortened(fix),
                tool=tool,
                path=path or self._path,
            )
        )


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
