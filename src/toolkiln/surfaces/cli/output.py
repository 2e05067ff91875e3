"""Reports, tools and totals as text for people and as JSON for programs."""

from collections.abc import Container
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from toolkiln.app import Report
from toolkiln.model import Finding, HealthLevel, Role, Severity, Toolkit, ToolSpec
from toolkiln.surfaces.cli.terminal import printable

_LARGEST = 5_000_000
"""Bytes of a file that excerpts are taken from."""
_COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


class Summary:
    """Totals over all files checked."""

    def __init__(self) -> None:
        self.files = 0
        self.tools = 0
        self.findings = dict.fromkeys(Severity, 0)
        self.health = dict.fromkeys(HealthLevel, 0)

    def add(self, report: Report) -> None:
        """Count one more file."""
        self.files += 1
        self.tools += len(report.reading.tools)
        for finding in report.reading.findings:
            self.findings[finding.severity] += 1
        for health in report.health.values():
            self.health[health.level] += 1

    def as_json(self) -> dict[str, Any]:
        """The totals as a mapping."""
        return {
            "files": self.files,
            "tools": self.tools,
            "findings": {severity.value: count for severity, count in self.findings.items()},
            "health": {level.value: count for level, count in self.health.items()},
        }

    def print(self) -> None:
        """One line on stderr."""
        counts = [
            _count(self.findings[Severity.ERROR], "error"),
            _count(self.findings[Severity.WARNING], "warning"),
            f"{self.findings[Severity.INFO]} to know",
        ]
        tools = f"{_count(self.tools, 'tool')} in {_count(self.files, 'file')}"
        found = ", ".join(counts) if any(self.findings.values()) else "no findings"
        typer.echo(f"{tools}: {found}", err=True)


def report_json(report: Report) -> dict[str, Any]:
    """One file, its tools with their health, its findings."""
    return {
        "path": report.reading.path,
        "digest": report.reading.digest,
        "helpers": list(report.reading.helpers),
        "data_files": list(report.reading.data_files),
        "tools": [
            {**tool_json(spec), "health": report.health[spec.name].model_dump(mode="json")}
            for spec in report.reading.tools
        ],
        "findings": [finding.model_dump(mode="json") for finding in report.reading.findings],
    }


def tool_json(spec: ToolSpec) -> dict[str, Any]:
    """Everything known of a tool."""
    return spec.model_dump(mode="json")


def print_report(report: Report) -> None:
    """The findings of one file, each with its line of source and its fix."""
    lines: dict[str, list[str]] = {}
    for finding in report.reading.findings:
        path = finding.path or report.reading.path
        if path not in lines:
            lines[path] = _source_lines(path)
        typer.echo(_finding_text(finding, path, lines[path]))


def print_tools(specs: list[ToolSpec], dev: Container[str] = ()) -> None:
    """Print tools by toolkit, each with its first sentence; mark those named in `dev`."""
    if not specs:
        return
    width = max(len(spec.name) for spec in specs)
    ordered = sorted(specs, key=_group_order)
    for index, (toolkit, members) in enumerate(groupby(ordered, key=lambda spec: spec.toolkit)):
        if toolkit is not None:
            title = typer.style(toolkit.display_name, bold=True)
            typer.echo(f"{chr(10) if index else ''}{title}  {_first_line(toolkit.description)}")
        for spec in members:
            core = " (core)" if spec.cannot_be_disabled else ""
            core += " (dev)" if spec.name in dev else ""
            role = (
                "" if spec.role is Role.TOOL else f" ({spec.role} {spec.uri or ''}".rstrip() + ")"
            )
            name = typer.style(f"{spec.name:<{width}}", fg="green")
            typer.echo(f"  {name}  {_first_line(spec.description)}{core}{printable(role)}")


def _group_order(spec: ToolSpec) -> tuple[bool, int, str, int, str]:
    kit: Toolkit | None = spec.toolkit
    if kit is None:
        return (False, 0, "", spec.weight, spec.name)
    return (True, kit.weight, kit.name, spec.weight, spec.name)


def _finding_text(finding: Finding, path: str, lines: list[str]) -> str:
    severity = typer.style(finding.severity.value, fg=_COLORS[finding.severity], bold=True)
    place = f"{path}:{finding.line}" + (f":{finding.column}" if finding.column else "")
    parts = [f"{place}: {severity}[{finding.rule}] {printable(finding.message)}"]
    if 0 < finding.line <= len(lines) and lines[finding.line - 1].strip():
        source = printable(lines[finding.line - 1].expandtabs(4).rstrip())[:160]
        gutter = f"{finding.line:>5} | "
        parts.append(typer.style(gutter, dim=True) + source)
        if finding.column:
            before = lines[finding.line - 1][: finding.column - 1].expandtabs(4)
            parts.append(" " * (len(gutter) + len(before)) + "^")
    parts.append(f"  fix: {finding.fix}\n")
    return "\n".join(parts)


def _source_lines(path: str) -> list[str]:
    file = Path(path)
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST:
            return []
        return file.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 90 else f"{line[:89]}…"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
