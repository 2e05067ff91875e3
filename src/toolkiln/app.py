"""Kiln: the one place that wires the parts together for the surfaces and for Python.

    kiln = Kiln("tools")
    kiln.tool("convert").parameters

It reads files and compiles schemas. Nothing of a tool's code runs here.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from toolkiln import schema
from toolkiln.catalog import read_file, tool_files
from toolkiln.errors import InputError, UnknownTool
from toolkiln.model import (
    Dialect,
    Finding,
    Health,
    HealthLevel,
    Reading,
    Severity,
    ToolSpec,
    Value,
)

PROVIDERS = schema.PROVIDERS
"""The providers that tools are compiled for."""


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


class Kiln:
    """The tools of a file or folder."""

    def __init__(self, tools: str | Path) -> None:
        self.path = Path(tools)

    @cached_property
    def readings(self) -> list[Reading]:
        """What each tool file says.

        Raises:
            InputError: the path does not exist or holds no Python files.
        """
        readings = [read_file(file) for file in tool_files([self.path])]
        helpers = {Path(r.path).parent / helper for r in readings for helper in r.helpers}
        return [r for r in readings if Path(r.path) not in helpers or _is_marked(r)]

    @cached_property
    def tools(self) -> dict[str, ToolSpec]:
        """The tools by name, lightest first; of two with one name the first file's.

        Raises:
            InputError: there is no tool.
        """
        found: dict[str, ToolSpec] = {}
        for reading in self.readings:
            for spec in reading.tools:
                found.setdefault(spec.name, spec)
        if not found:
            raise InputError(
                f"there is no tool in {self.path}",
                hint=f"run `toolkiln check {self.path}` to see why, or `toolkiln new NAME`",
            )
        return {spec.name: spec for spec in sorted(found.values(), key=_order)}

    def tool(self, name: str) -> ToolSpec:
        """One tool.

        Raises:
            UnknownTool: there is none of that name; the hint names the nearest.
        """
        try:
            return self.tools[name]
        except KeyError:
            raise UnknownTool(name, self.tools) from None

    def health(self, name: str) -> Health:
        """Whether models can be held to a tool's schema."""
        return schema.health(self.tool(name).parameters)

    def compiled(self, name: str, provider: str) -> schema.Compiled:
        """A tool as one provider wants it, with what was lost on the way."""
        return schema.compile_tool(self.tool(name), provider)

    def check_arguments(self, name: str, arguments: object) -> schema.Checked | schema.Problems:
        """Whether these arguments may be passed to a tool, all problems at once."""
        return schema.check(self.tool(name), arguments)


def check(paths: Sequence[Path]) -> Iterator[Report]:
    """Read files one by one, with findings that only show between files and in schemas."""
    owners: dict[str, str] = {}
    for file in tool_files(paths):
        yield _report(read_file(file), owners)


def _report(reading: Reading, owners: dict[str, str]) -> Report:
    health = {spec.name: schema.health(spec.parameters) for spec in reading.tools}
    more: list[Finding] = []
    for spec in reading.tools:
        more += _schema_findings(spec, health[spec.name])
        owner = owners.setdefault(spec.name, reading.path)
        if owner != reading.path:
            more.append(
                Finding(
                    rule="duplicate-name",
                    severity=Severity.ERROR,
                    message=f"{spec.name!r} is a tool of {owner} already",
                    line=spec.line,
                    fix="give one of them another name",
                    tool=spec.name,
                    path=reading.path,
                )
            )
    if not reading.tools and not reading.findings:
        more.append(_no_tools(reading.path))
    if more:
        ordered = sorted([*reading.findings, *more], key=lambda f: (f.path != reading.path, f.line))
        reading = reading.model_copy(update={"findings": tuple(ordered)})
    return Report(reading=reading, health=health)


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
        yield Finding(
            rule="invalid-schema" if invalid else "not-strict",
            severity=Severity.ERROR if invalid else Severity.INFO,
            message=f"parameters{point.path}: {point.reason}",
            line=spec.line,
            fix="correct the schema" if invalid else "say exactly what is taken, if you can",
            tool=spec.name,
            path=spec.path,
        )


def _is_marked(reading: Reading) -> bool:
    """Whether a helper of other files declares tools of its own on purpose."""
    return any(spec.dialect is not Dialect.FUNCTION for spec in reading.tools)


def _order(spec: ToolSpec) -> tuple[int, str]:
    return spec.weight, spec.name
