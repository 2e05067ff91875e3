"""Overruled errors of a version, as the manifest and the history record them.

Which errors a comment overrules is found by `spec`; who may admit them is decided by authoring.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from toolkiln.model import Admission, Finding, Overruled, Reading


def recorded(
    findings: Iterable[Finding], reading: Reading, before: Admission | None, by: str
) -> tuple[Overruled, ...]:
    """The overruled errors of a version that `by` admits, for its admission.

    If `before` admits the same version already, its records stay.
    """
    folder = Path(reading.path).parent
    found: dict[tuple[str, str, int], Overruled] = {}
    for finding in findings:
        file = os.path.relpath(finding.path or reading.path, folder)
        key = finding.rule, file, finding.line
        found[key] = Overruled(rule=finding.rule, file=file, line=finding.line, by=by)
    if before and before.sha256 == reading.digest:
        found |= {(one.rule, one.file, one.line): one for one in before.overruled}
    return tuple(found[key] for key in sorted(found))


def note(findings: Iterable[Finding]) -> str:
    """What history and audit say of a version's overruled errors; empty if it has none."""
    named = dict.fromkeys(f"{finding.rule} (line {finding.line})" for finding in findings)
    return f"overruled: {', '.join(named)}" if named else ""
