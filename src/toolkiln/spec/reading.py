"""Source text → tools and findings. The file is never imported or executed.

`read` puts the parts of this package together, in the order in which a file is
understood: syntax, names, helpers, dialect, declarations, specs, findings.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolkiln.model import Capability, Finding, Reading, ToolSpec
from toolkiln.spec import nodes, requirements
from toolkiln.spec.checks import (
    capabilities,
    check_module,
    check_names,
    check_opened_files,
    check_roles,
    check_sources,
    check_tool,
)
from toolkiln.spec.data_files import MAX_FILES
from toolkiln.spec.declaration import Declaration
from toolkiln.spec.describe import Origin, describe
from toolkiln.spec.dialects import declarations
from toolkiln.spec.dialects.marks import docstring
from toolkiln.spec.ignore_comments import with_unused
from toolkiln.spec.modules import Module
from toolkiln.spec.neighbours import Neighbours
from toolkiln.spec.options import Options
from toolkiln.spec.report import Findings, cut_findings
from toolkiln.spec.syntax import parse
from toolkiln.spec.work import MAX_PARAMETERS, MAX_TOOLS, TooMuchWork

_SURROGATE = re.compile(r"\\[uU](?:0000)?[dD][89a-fA-F]")


def read(source: str, path: str | Path, *, data: bytes | None = None) -> Reading:
    """All that a file says: its tools, and what is wrong with it.

    Helper modules are looked for beside `path`; a path such as `<memory>` has none. `data`
    are the bytes that the source was decoded from, which is what its digest is of.
    """
    path = str(path)
    neighbours = Neighbours(path)
    if data is None:
        data = source.encode("utf-8", "surrogatepass")
    tree = parse(source, path)
    if isinstance(tree, Finding):
        return Reading(path=path, digest=neighbours.digest(data), findings=(tree,))
    findings = Findings(path)
    try:
        tools = _tools(tree, source, data, neighbours, findings)
    except RecursionError:
        tools = []
        fix = "break the deeply nested expression into parts"
        findings.error("too-deep", "the code is nested too deeply to be read", 1, fix)
    except TooMuchWork as error:
        tools = []
        fix = "split the file, or write simpler types and shorter enumerations"
        findings.error("too-complex", str(error), 1, fix)
    found = with_unused(findings.in_order(), {path: source, **dict(neighbours.texts())})
    return Reading(
        path=path,
        digest=neighbours.digest(data),
        tools=tuple(tools),
        findings=cut_findings(found, path),
        helpers=neighbours.files,
        sought=neighbours.sought,
        data_files=neighbours.data_files,
        file_patterns=neighbours.file_patterns,
    )


def _tools(
    tree: ast.Module, source: str, data: bytes, neighbours: Neighbours, findings: Findings
) -> list[ToolSpec]:
    path = neighbours.path
    module = Module(tree, neighbours.name, neighbours, source=source)
    tree_nodes = nodes.walk(tree)
    _mend_surrogates(tree_nodes, source, findings)
    neighbours.close(module, tree_nodes, findings)
    declared = _within_limits(declarations(module, findings), findings)
    needed = requirements.gather(
        source, docstring(tree), [item for d in declared for item in d.requirements]
    )
    neighbours.take_data_files(_declared_files(declared, needed.table, source, findings), findings)
    files = {path: tree_nodes} | {file: nodes.walk(tree) for file, tree in neighbours.trees()}
    uses = {file: capabilities.used(found) for file, found in files.items()}
    used = [use for found in uses.values() for use in found]
    origin = Origin(
        path,
        neighbours.digest(data),
        needed.packages,
        needed.table,
        tuple(dict.fromkeys(use.capability for use in used)),
    )
    specs = []
    for declaration in declared:
        spec = describe(declaration, origin, findings)
        neighbours.work.add_schema(_repeated(spec))
        specs.append(spec)
    kept = check_roles(_first_of_each_name(specs, findings), findings)
    check_sources(files, uses, kept, findings, has_data=bool(neighbours.file_patterns))
    if "__file__" in source or any(use.capability is Capability.FILES for use in used):
        check_opened_files(files, neighbours.folder, neighbours.file_patterns, findings)
    check_module(module, needed, findings)
    check_names(kept, findings)
    names = frozenset(spec.name for spec in kept)
    for spec in kept:
        check_tool(spec, source, names, findings)
    return kept


def _within_limits(declared: list[Declaration], findings: Findings) -> list[Declaration]:
    """The declared tools without those that one file may not have."""
    if len(declared) > MAX_TOOLS:
        first = declared[MAX_TOOLS]
        message = f"the file declares {len(declared):,} tools; those from here on are left out"
        fix = f"declare at most {MAX_TOOLS} tools in one file"
        findings.error("too-many-tools", message, first.line, fix)
    kept = []
    for one in declared[:MAX_TOOLS]:
        given = one.function.args
        count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
        if count > MAX_PARAMETERS:
            message = f"{one.name!r} has {count:,} parameters, and is left out"
            fix = f"take at most {MAX_PARAMETERS} parameters; group them in a class"
            findings.error("too-many-parameters", message, one.line, fix, tool=one.name)
        else:
            kept.append(one)
    return kept


def _repeated(spec: ToolSpec) -> list[Any]:
    """What a spec repeats of the file: its own schemas, and texts that all of its tools share."""
    shared = [*spec.requirements, *spec.usages, spec.toolkit.description if spec.toolkit else ""]
    return [spec.parameters, spec.returns, *spec.settings.values(), *shared, spec.description]


def _declared_files(
    declared: Sequence[Declaration], table: Mapping[str, Any], source: str, findings: Findings
) -> dict[str, int]:
    """The patterns of all tools of the file and of its table, with their lines."""
    found: dict[str, int] = {}
    given = [(item.options, item.name, item.line) for item in declared if "files" in item.options]
    if declared and "files" in table:
        given.append(
            (dict(table), declared[0].name, source.count("\n", 0, source.find("files")) + 1)
        )
    for options, tool, line in given:
        for pattern in Options(options, tool, line, findings).texts("files"):
            places = [source.find(f"{quote}{pattern}{quote}") for quote in "\"'"]
            at = min((place for place in places if place >= 0), default=None)
            found.setdefault(pattern, line if at is None else source.count("\n", 0, at) + 1)
            if len(found) > MAX_FILES:
                fix = f"name at most {MAX_FILES} files or patterns in files=[…]"
                findings.error("bad-file", f"{tool!r} has too many patterns", line, fix, tool=tool)
                return {}
    return found


def _mend_surrogates(tree_nodes: Sequence[ast.AST], source: str, findings: Findings) -> None:
    """Replace escaped halves of characters, which no JSON can carry."""
    if not _SURROGATE.search(source):
        return
    for node in tree_nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            mended = node.value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if mended != node.value:
                node.value = mended
                message = "the text contains half a character (a lone surrogate)"
                findings.error("hidden-characters", message, node.lineno, "write the whole one")


def _first_of_each_name(specs: Sequence[ToolSpec], findings: Findings) -> list[ToolSpec]:
    kept: dict[str, ToolSpec] = {}
    for spec in specs:
        first = kept.setdefault(spec.name, spec)
        if first is not spec:
            findings.error(
                "duplicate-name",
                f"{spec.entry} is named {spec.name!r} like {first.entry} in line {first.line}, "
                "and is left out",
                spec.line,
                "give one of them another name",
                tool=spec.name,
            )
    return list(kept.values())
