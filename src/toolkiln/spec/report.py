"""The findings of one reading, as they come up."""

from toolkiln.model import Finding, Severity


class Findings:
    """Collects findings about one file and its helpers."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: list[Finding] = []

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
        self._found.append(
            Finding(
                rule=rule,
                severity=severity,
                message=message,
                line=line,
                fix=fix,
                tool=tool,
                path=path or self._path,
            )
        )
