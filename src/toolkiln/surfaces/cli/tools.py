"""Commands for tools: write a first version, check, list and show them.

Each template for a first version passes `toolkiln check --strict`.
"""

import keyword
import re
import sys
from collections.abc import Container, Iterator
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkiln.errors import InputError, nearest_hint
from toolkiln.surfaces.cli.app import (
    DevOption,
    JsonOption,
    RedisOption,
    TokenOption,
    ToolsOption,
    app,
    command,
)
from toolkiln.surfaces.cli.terminal import counted, is_terminal, print_json, printable, say

if TYPE_CHECKING:
    from toolkiln.model.source import FileReport, Finding
    from toolkiln.model.spec import ToolSpec
    from toolkiln.operations import catalog, tools

_MANY_FILES = 50
"""From here on checking takes long enough for a progress display."""
_LARGEST = 5_000_000
"""Bytes of a file that excerpts are taken from."""
_COLORS = {"error": "red", "warning": "yellow", "info": "cyan"}


@command(app)
def new(
    name: Annotated[str, typer.Argument(help="The name of the tool, such as convert_currency.")],
    dialect: Annotated[
        str,
        typer.Option(
            help="How it is written: function, decorated, constants, toolkit, base_tool, "
            "open_webui."
        ),
    ] = "decorated",
    tools: ToolsOption = None,
) -> None:
    """Write a first version of a tool, ready to be edited."""
    from toolkiln.surfaces.cli.session import tools_path

    folder = tools_path(tools)
    if folder.is_file():
        raise InputError(f"{str(folder)!r} is a file", hint="name a folder with --tools PATH")
    text = tool_template(name, dialect)
    file = folder / f"{name}.py"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as handle:
            handle.write(text)
    except FileExistsError:
        raise InputError(
            f"{str(file)!r} exists already", hint="choose another name, or edit that file"
        ) from None
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror}") from error
    typer.echo(str(file))
    typer.echo(f"next: edit it, then `toolkiln check {file}` and `toolkiln admit {file}`", err=True)


@command(app)
def check(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Files and folders. Default: the tools.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    tools: ToolsOption = None,
) -> None:
    """Check tools: what is wrong, where, and how to fix it."""
    import json

    from toolkiln.config import Settings
    from toolkiln.kiln import Kiln
    from toolkiln.operations import catalog
    from toolkiln.surfaces.cli.session import tools_path

    places = tuple(paths or [tools_path(tools)])
    failing = {"error", "warning"} if strict else {"error"}
    reports: list[FileReport] = []
    with Kiln(places[0], settings=Settings(), surface="cli") as kiln:  # it needs no settings
        found = kiln.run_operation_sync(catalog.check_files, catalog.CheckFiles(paths=places))
        for report in _with_progress(found, quiet=as_json):
            reports.append(report)
            if not as_json:
                print_findings(report.reading.path, report.reading.findings)
    totals = _totals(reports)
    if as_json:
        files = list(map(_report_json, reports))
        typer.echo(json.dumps({"files": files, "summary": totals}, indent=2))
    else:
        _print_totals(totals)
    has_failed = any(report.worst in failing for report in reports)
    if not totals["tools"] and not has_failed:
        raise InputError(
            f"there is no tool in {' '.join(map(str, places))}",
            hint="write a public function with a docstring, or start with `toolkiln new NAME`",
        )
    raise typer.Exit(1 if has_failed else 0)


@command(app, "list")
def list_(
    as_json: JsonOption = False,
    everything: Annotated[bool, typer.Option("--all", help="Show hidden tools too.")] = False,
    token: TokenOption = None,
    dev: DevOption = False,
    tools: ToolsOption = None,
    redis: RedisOption = None,
) -> None:
    """List tools, prompts and resources by toolkit, lightest first."""
    import json

    from toolkiln.operations import catalog
    from toolkiln.operations.operation import Nothing
    from toolkiln.surfaces.cli.session import authenticate, note_no_worker, open_kiln

    with open_kiln(tools, redis, dev=dev) as kiln:
        session = authenticate(kiln, token)
        found = kiln.run_operation_sync(catalog.list_catalog, Nothing(), session)
        _print_notes(found)
        shown = [spec for spec in found.tools if everything or spec.is_shown]
        if as_json:
            listed = [
                {**spec.model_dump(mode="json"), "dev": spec.name in found.dev} for spec in shown
            ]
            typer.echo(json.dumps(listed, indent=2))
        else:
            _print_tools(shown, found.dev)
        note_no_worker(kiln)
    _print_omitted(found, len(found.tools) - len(shown))


@command(app)
def show(
    tool: Annotated[str, typer.Argument(help="The name of a tool or a toolkit.")],
    form: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="FORM",
            help="openai, openai-strict, anthropic, anthropic-strict, gemini, mcp, schema or "
            "docs. Default: exactly what a model sees.",
            show_default=False,
        ),
    ] = None,
    dev: DevOption = False,
    tools: ToolsOption = None,
    redis: RedisOption = None,
) -> None:
    """Show one tool as a model, a provider or a person sees it."""
    from toolkiln.errors import NotFound, UnknownTool
    from toolkiln.kiln import PROVIDERS
    from toolkiln.operations import tools as tool_operations
    from toolkiln.operations.toolkits import ToolkitName, get_toolkit
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    forms = [*PROVIDERS, "schema", "docs"]
    if form is not None and form not in forms:
        hint = nearest_hint(form, forms) or f"one of {', '.join(forms)}"
        raise InputError(f"there is no form {form!r}", hint=hint)
    with open_kiln(tools, redis, dev=dev) as kiln:
        provider = form if form in PROVIDERS else None
        request = tool_operations.ShowTool(name=tool, provider=provider)
        session = authenticate(kiln)
        try:
            shown = kiln.run_operation_sync(tool_operations.show_tool, request, session)
        except UnknownTool as unknown:
            try:
                kit = kiln.run_operation_sync(get_toolkit, ToolkitName(name=tool), session)
            except NotFound:
                raise unknown from None
            if form is not None:
                raise InputError(f"{tool} is a toolkit", hint="leave out --as") from None
            print_json(kit.model_dump(mode="json"))
            return
    if shown.unserved is not None:
        _print_unserved(shown.unserved)
    if shown.dev:
        say(f"note: {tool} is not admitted; dev serves the file on disk", err=True)
    if form == "docs":
        typer.echo(shown.spec.detailed_description())
    elif form == "schema":
        print_json(shown.spec.parameters)
    elif form is None:
        print_json(_model_view(shown))
    else:
        print_json(shown.payload)
        for loss in shown.losses:
            typer.echo(f"lost: {loss.path or '/'}: {loss.reason}", err=True)
        for error in shown.errors:
            typer.echo(f"error: {error}", err=True)
    raise typer.Exit(1 if shown.errors else 0)


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    typer.echo(installed("toolkiln"))


def print_findings(file: str, findings: "tuple[Finding, ...]") -> None:
    """Print the findings of a file, each with its line of source and its fix."""
    lines: dict[str, list[str]] = {}
    for finding in findings:
        path = finding.path or file
        if path not in lines:
            lines[path] = _source_lines(path)
        typer.echo(_finding_text(finding, path, lines[path]))


def _finding_text(finding: "Finding", path: str, lines: list[str]) -> str:
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


def _with_progress(reports: "Iterator[FileReport]", *, quiet: bool) -> "Iterator[FileReport]":
    """Yield the reports, with a count on the terminal once there are many."""
    if quiet or not is_terminal(err=True):
        yield from reports
        return
    from rich.console import Console

    with Console(stderr=True).status("reading") as status:
        for number, report in enumerate(reports, 1):
            if number >= _MANY_FILES:
                status.update(f"reading {number:,} files: {report.reading.path}")
            yield report


def _report_json(report: "FileReport") -> dict[str, Any]:
    return {
        "path": report.reading.path,
        "digest": report.reading.digest,
        "helpers": list(report.reading.helpers),
        "data_files": list(report.reading.data_files),
        "tools": [
            {
                **spec.model_dump(mode="json"),
                "health": report.health[spec.name].model_dump(mode="json"),
            }
            for spec in report.reading.tools
        ],
        "findings": [finding.model_dump(mode="json") for finding in report.reading.findings],
    }


def _totals(reports: "list[FileReport]") -> dict[str, Any]:
    from collections import Counter

    from toolkiln.model.source import Severity
    from toolkiln.model.spec import HealthLevel

    findings = Counter(f.severity for report in reports for f in report.reading.findings)
    health = Counter(tool.level for report in reports for tool in report.health.values())
    return {
        "files": len(reports),
        "tools": sum(len(report.reading.tools) for report in reports),
        "findings": {severity.value: findings[severity] for severity in Severity},
        "health": {level.value: health[level] for level in HealthLevel},
    }


def _print_totals(totals: dict[str, Any]) -> None:
    findings = totals["findings"]
    counts = [
        counted(findings["error"], "error"),
        counted(findings["warning"], "warning"),
        f"{findings['info']} to know",
    ]
    tools = f"{counted(totals['tools'], 'tool')} in {counted(totals['files'], 'file')}"
    found = ", ".join(counts) if any(findings.values()) else "no findings"
    typer.echo(f"{tools}: {found}", err=True)


def _print_tools(specs: "list[ToolSpec]", dev: Container[str]) -> None:
    """Print tools by toolkit, each with the first line of its description."""
    from itertools import groupby

    from toolkiln.model.spec import Role

    width = max((len(spec.name) for spec in specs), default=0)
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


def _group_order(spec: "ToolSpec") -> tuple[bool, int, str, int, str]:
    kit = spec.toolkit
    if kit is None:
        return (False, 0, "", spec.weight, spec.name)
    return (True, kit.weight, kit.name, spec.weight, spec.name)


def _print_notes(found: "catalog.ToolInventory") -> None:
    if found.unserved is not None:
        _print_unserved(found.unserved)
    if found.disabled:
        say(f"note: disabled: {', '.join(found.disabled)}", err=True)
    for finding in found.findings:
        say(f"note: {finding.message}", err=True)
    if number := found.unserved_files:
        files = "1 file is" if number == 1 else f"{number:,} files are"
        say(f"note: {files} not served as on disk; see `toolkiln status`", err=True)
    if found.denied:
        say(f"note: {found.denied:,} not listed, because of the rules", err=True)


def _print_omitted(found: "catalog.ToolInventory", hidden: int) -> None:
    for error in found.unreadable:
        say(f"left out: {error.path}:{error.line}: {error.message}", err=True)
    if hidden:
        typer.echo(f"{hidden} hidden; --all shows them", err=True)


def _print_unserved(reason: tuple[str, str | None]) -> None:
    message, hint = reason
    say(f"note: {message}\nnote: {hint}", err=True)


def _model_view(shown: "tools.ShownTool") -> dict[str, Any]:
    from toolkiln.model.spec import Role

    spec = shown.spec
    view: dict[str, Any] = {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
    }
    if spec.role is not Role.TOOL:
        about = {"role": spec.role, "uri": spec.uri, "mime_type": spec.mime_type}
        view |= {name: value for name, value in about.items() if value is not None}
    if shown.dev:
        view["dev"] = True
    return view


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 90 else f"{line[:89]}…"


_TOOL_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def tool_template(name: str, dialect: str) -> str:
    """Return the text of a file with one tool.

    Raises:
        InputError: the name or the dialect cannot be used.
    """
    if not _TOOL_NAME.fullmatch(name) or keyword.iskeyword(name) or name == "main":
        raise InputError(
            f"{name!r} cannot be the name of a tool",
            hint="use lower-case letters, digits and underscores, a letter first, at most 40",
        )
    if name in sys.stdlib_module_names:
        raise InputError(
            f"{name}.py would hide the module {name!r} of the standard library",
            hint=f"call it {name}_tool, or say what it does",
        )
    if dialect not in _TEMPLATES:
        hint = nearest_hint(dialect, _TEMPLATES) or f"one of {', '.join(_TEMPLATES)}"
        raise InputError(f"there is no dialect {dialect!r}", hint=hint)
    camel = "".join(part.capitalize() for part in name.split("_"))
    text = Template(_TEMPLATES[dialect])
    return text.substitute(name=name, Title=name.replace("_", " ").capitalize(), Class=camel)


_FUNCTION = '''\
def $name(text: str, limit: int = 10) -> list[str]:
    """Split a text into words, longest first.

    Args:
        text: The text to split.
        limit: How many words to return at most.

    Returns:
        The words.

    Examples:
        >>> $name("a bit of text", limit=2)
        ['text', 'bit']
    """
    return sorted(text.split(), key=len, reverse=True)[:limit]
'''

_TEMPLATES = {
    "function": _FUNCTION,
    "decorated": f"from toolkiln import tool\n\n\n@tool(read_only=True)\n{_FUNCTION}",
    "constants": '''\
TOOL_NAME = "$name"
TOOL_DESCRIPTION = "Split a text into words, longest first."
TOOL_PARAMETERS = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "The text to split."},
        "limit": {
            "type": "integer",
            "description": "How many words to return at most.",
            "default": 10,
        },
    },
    "required": ["text"],
    "additionalProperties": False,
}


def run(text: str, limit: int = 10, ctx=None) -> list[str]:
    """Split a text into words, longest first."""
    return sorted(text.split(), key=len, reverse=True)[:limit]
''',
    "toolkit": '''\
from toolkiln import method_metadata, tool_metadata


@tool_metadata(description="Looks at texts.", icon="text", visible=True)
class ${Class}Tool:
    """Looks at texts."""

    @method_metadata(display_name="Longest words")
    def $name(self, text: str, limit: int = 10) -> list[str]:
        """Split a text into words, longest first.

        Args:
            text: The text to split.
            limit: How many words to return at most.

        Returns:
            The words.
        """
        return sorted(text.split(), key=len, reverse=True)[:limit]
''',
    "base_tool": '''\
from toolkiln import BaseTool, ToolResult


class ${Class}Tool(BaseTool):
    """Split a text into words, longest first."""

    name = "$name"
    description = "Split a text into words, longest first."
    parameters = {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "The text to split."}},
        "required": ["text"],
        "additionalProperties": False,
    }

    def execute(self, args: dict) -> ToolResult:
        words = sorted(args["text"].split(), key=len, reverse=True)
        return ToolResult(ok=True, stdout="\\n".join(words))
''',
    "open_webui": '''\
"""
title: $Title
description: Looks at texts.
version: 0.1.0
"""


class Tools:
    def $name(self, text: str, limit: int = 10) -> list[str]:
        """
        Split a text into words, longest first.

        :param text: The text to split.
        :param limit: How many words to return at most.
        """
        return sorted(text.split(), key=len, reverse=True)[:limit]
''',
}
