"""Checking files: what reading found, with findings that only show between files and in schemas."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from toolkiln import schema
from toolkiln.catalog.files import read_file, tool_files
from toolkiln.model import (
    Finding,
    Health,
    HealthLevel,
    Reading,
    Role,
    Severity,
    ToolSpec,
    Value,
)
from toolkiln.spec import KnownTools, cut_findings

_NONE = KnownTools({})


class Report(Value):
    """What checking one file told."""

    reading: Reading
    health: dict[str, Health]
    """By tool."""

    @property
    def worst(self) -> Severity | None:
        """The severity of its worst finding."""
        found = {finding.severity for finding in self.reading.findings}
        return next((severity for severity in Severity if severity in found), None)


def check(paths: Sequence[Path]) -> Iterator[Report]:
    """Read files, with findings that only show between files and in schemas."""
    readings = [read_file(file) for file in tool_files(paths)]
    known = KnownTools({spec.name: read.path for read in readings for spec in read.tools})
    owners: dict[str, str] = {}
    for reading in readings:
        yield report(reading, owners, known)


def report(reading: Reading, owners: dict[str, str], known: KnownTools = _NONE) -> Report:
    """A reading with the findings of its schemas, and of names that other files own.

    `owners` says whose each name and each address is, and is told of those that were nobody's.
    `known` are tools that the file may confuse people and models about.
    """
    health = {spec.name: schema.health(spec.parameters) for spec in reading.tools}
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
    return Report(reading=reading, health=health)


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


def _schema_findings(spec: ToolSpec, health: Health) -> Iterator[Finding]:
    for point in health.points:
        invalid = point.level is HealthLevel.INVALID
        if not invalid and spec.role is not Role.TOOL:  # no provider is shown its schema
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
