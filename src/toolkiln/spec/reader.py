"""Source text → tools and findings. The file is never imported or executed.

`read` runs the stages in order: syntax tree, names, helpers, dialect, declarations, specs,
checks.
"""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from toolkiln.docstrings.description import describe
from toolkiln.docstrings.parser import parse
from toolkiln.model.source import Finding, Reading
from toolkiln.model.spec import Capability, Dialect, DocstringSection, ToolSpec
from toolkiln.spec import syntax
from toolkiln.spec.checks import capabilities, file_checks
from toolkiln.spec.checks.opened_files import check_opened_files
from toolkiln.spec.data_files import MAX_FILES
from toolkiln.spec.declaration import Declaration, FileContext, build_spec
from toolkiln.spec.dialects import declarations
from toolkiln.spec.findings import Findings, apply_ignore_comments, cut_findings
from toolkiln.spec.limits import MAX_PARAMETERS, MAX_TOOLS, BudgetExceeded
from toolkiln.spec.local_imports import VersionFiles
from toolkiln.spec.namespace import Module
from toolkiln.spec.options import DeclaredOptions
from toolkiln.spec.requirements import read_requirements, requirements_of_framework

_MODULE_CHARACTERS = 200_000
"""Maximum of documentation about a file in all of its tools together."""
_SURROGATE = re.compile(r"\\[uU](?:0000)?[dD][89a-fA-F]")


def read(
    source: str,
    path: str | Path,
    *,
    data: bytes | None = None,
    packages: Set[str] = frozenset(),
) -> Reading:
    """Read the tools and findings of a file.

    Helper modules are looked up beside `path`, unless it is a placeholder such as `<memory>`.
    `data` are the bytes that `source` was decoded from; the digest is computed from them.
    `packages` are those that the tools folder lists for all its files.
    """
    path = str(path)
    version_files = VersionFiles(path)
    if data is None:
        data = source.encode("utf-8", "surrogatepass")
    tree = syntax.parse(source, path)
    if isinstance(tree, Finding):
        return Reading(path=path, digest=version_files.digest(data), findings=(tree,))
    findings = Findings(path)
    tools: list[ToolSpec] = []
    try:
        tools = _tools(tree, source, data, packages, version_files, findings)
    except RecursionError:
        fix = "break the deeply nested expression into parts"
        findings.error("too-deep", "the code is nested too deeply to be read", 1, fix)
    except BudgetExceeded as error:
        fix = "split the file, or use simpler types and shorter enumerations"
        findings.error("too-complex", str(error), 1, fix)
    sources = {path: source, **dict(version_files.commented_sources())}
    return Reading(
        path=path,
        digest=version_files.digest(data),
        tools=tuple(tools),
        findings=cut_findings(apply_ignore_comments(findings.in_order(), sources), path),
        helpers=version_files.helpers,
        sought=version_files.missing_modules,
        data_files=version_files.data_files,
        file_patterns=version_files.file_patterns,
    )


def _tools(
    tree: ast.Module,
    source: str,
    data: bytes,
    packages: Set[str],
    version_files: VersionFiles,
    findings: Findings,
) -> list[ToolSpec]:
    path = version_files.path
    module = Module(tree, version_files.name, version_files, source=source)
    nodes = syntax.walk(tree)
    halves = _replace_surrogates(nodes, source)
    text = syntax.docstring(tree)
    requirements = read_requirements(source, text)
    version_files.is_package = requirements.provide
    version_files.load_helpers(module, nodes, findings)
    declared = _within_limits(declarations(module, findings), findings)
    more = [item for d in declared for item in d.requirements]
    if any(d.dialect in (Dialect.OPEN_WEBUI, Dialect.TOOLKIT) for d in declared):
        helpers = (tree for _, tree in version_files.helper_trees())
        more += requirements_of_framework(module, helpers, requirements)
    if more:
        requirements = read_requirements(source, text, more)
    patterns = _file_patterns(declared, requirements.table, source, findings)
    version_files.load_data_files(patterns, findings)
    files = {path: nodes} | {f: syntax.walk(tree) for f, tree in version_files.helper_trees()}
    uses = {file: capabilities.find_uses(found) for file, found in files.items()}
    used = dict.fromkeys(use.capability for found in uses.values() for use in found)
    digest = version_files.digest(data)
    about = tuple(_module_sections(module, text, declared))
    context = FileContext(
        path, digest, requirements.packages, requirements.table, tuple(used), about
    )
    specs = []
    for declaration in declared:
        spec = build_spec(declaration, context, findings)
        version_files.budget.add_schema(_budgeted(spec))
        specs.append(spec)
    specs = _passable(_without_duplicates(specs, findings), findings)
    specs = file_checks.check_roles(specs, findings)
    has_data = bool(version_files.file_patterns)
    file_checks.check_sources(files, uses, specs, findings, has_data=has_data)
    if "__file__" in source or Capability.FILES in used:
        check_opened_files(files, version_files.folder, version_files.file_patterns, findings)
    file_checks.check_module(module, requirements, packages, findings)
    file_checks.check_names(specs, findings)
    names = frozenset(spec.name for spec in specs)
    for spec in specs:
        file_checks.check_tool(spec, source, names, findings)
        file_checks.check_halves(spec, halves, findings)
    return specs


def _module_sections(
    module: Module, text: str | None, declared: Sequence[Declaration]
) -> Iterator[DocstringSection]:
    """Yield a file's docstring and its public functions that are no tools."""
    room = _MODULE_CHARACTERS // max(len(declared), 1)
    offered = {declaration.function for declaration in declared}
    if any(declaration.dialect is Dialect.OPEN_WEBUI for declaration in declared):
        text = None  # fields such as the title, which are read elsewhere
    texts = [("Module", inspect.cleandoc(text or ""))]
    for function in module.functions if declared else ():
        name = function.name
        if name.startswith("_") or function in offered or module.bindings.get(name) is not function:
            continue
        returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
        signature = f"{name}({ast.unparse(function.args)}){returns}"
        body = f"```python\n{signature}\n```"
        if text := syntax.docstring(function):
            body += f"\n\n{describe(parse(text), '', {})}"
        texts.append((f"Function {name}", body))
    for title, body in texts:
        if body and (body := body[:room]):
            room -= len(body)
            yield DocstringSection(title=title, body=body)


def _within_limits(declared: list[Declaration], findings: Findings) -> list[Declaration]:
    """Drop and report declarations beyond the limits on tools and parameters."""
    if len(declared) > MAX_TOOLS:
        first = declared[MAX_TOOLS]
        message = f"the file declares {len(declared):,} tools; those from here on are ignored"
        fix = f"declare at most {MAX_TOOLS} tools per file"
        findings.error("too-many-tools", message, first.line, fix)
    accepted = []
    for declaration in declared[:MAX_TOOLS]:
        name, args = declaration.name, declaration.function.args
        count = len(args.posonlyargs) + len(args.args) + len(args.kwonlyargs)
        if count > MAX_PARAMETERS:
            message = f"{name!r} has {count:,} parameters and is ignored"
            fix = f"use at most {MAX_PARAMETERS} parameters; group them in a class"
            findings.error("too-many-parameters", message, declaration.line, fix, tool=name)
        else:
            accepted.append(declaration)
    return accepted


def _budgeted(spec: ToolSpec) -> list[Any]:
    """Return the parts of a spec that count: its schemas, and texts that every tool repeats."""
    kit = (spec.toolkit.description, spec.toolkit.usage_guide) if spec.toolkit else ()
    shared = [*spec.requirements, *spec.usages, *kit]
    return [spec.parameters, spec.returns, *spec.settings.values(), *shared, spec.description]


def _file_patterns(
    declared: Sequence[Declaration], table: Mapping[str, Any], source: str, findings: Findings
) -> dict[str, int]:
    """Return the patterns of `files` options and of the PEP 723 table, with lines."""
    patterns: dict[str, int] = {}
    owners = [(item.options, item.name, item.line) for item in declared if "files" in item.options]
    if declared and "files" in table:
        line = source.count("\n", 0, source.find("files")) + 1
        owners.append((dict(table), declared[0].name, line))
    for options, tool, line in owners:
        for pattern in DeclaredOptions(options, tool, line, findings).texts("files"):
            positions = [source.find(f"{quote}{pattern}{quote}") for quote in "\"'"]
            at = min((position for position in positions if position >= 0), default=None)
            patterns.setdefault(pattern, line if at is None else source.count("\n", 0, at) + 1)
            if len(patterns) > MAX_FILES:
                fix = f"list at most {MAX_FILES} files or patterns in files=[…]"
                findings.error("bad-file", f"{tool!r} has too many patterns", line, fix, tool=tool)
                return {}
    return patterns


def _replace_surrogates(nodes: Sequence[ast.AST], source: str) -> dict[str, int]:
    """Join escaped halves of characters, and replace single ones, which JSON cannot represent.

    Returns the texts with single halves, and their lines.
    """
    halves: dict[str, int] = {}
    if not _SURROGATE.search(source):
        return halves
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            joined = node.value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if joined.count("\ufffd") > node.value.count("\ufffd"):
                halves[inspect.cleandoc(joined)] = node.lineno
            node.value = joined
    return halves


def _passable(specs: list[ToolSpec], findings: Findings) -> list[ToolSpec]:
    """Leave out the tools that no model can call, if the file has others."""
    unpassable = findings.tools_with("unpassable-type")
    passable = [spec for spec in specs if spec.name not in unpassable]
    if not passable or len(passable) == len(specs):
        return specs
    findings.soften("unpassable-type", "this tool is left out")
    return passable


def _without_duplicates(specs: Sequence[ToolSpec], findings: Findings) -> list[ToolSpec]:
    distinct: dict[str, ToolSpec] = {}
    for spec in specs:
        first = distinct.setdefault(spec.name, spec)
        if first is not spec:
            other = f"{first.entry} in line {first.line}"
            message = f"{spec.entry} has the same name {spec.name!r} as {other} and is ignored"
            findings.error(
                "duplicate-name", message, spec.line, "rename one of them", tool=spec.name
            )
    return list(distinct.values())
