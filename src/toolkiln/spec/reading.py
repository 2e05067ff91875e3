"""Source text → tools and findings. The file is never imported or executed.

`read` puts the parts of this package together, in the order in which a file is
understood: syntax, names, helpers, dialect, declarations, specs, findings.
"""

import ast
from collections.abc import Sequence
from pathlib import Path

from toolkiln.model import Finding, Reading, Severity, ToolSpec
from toolkiln.spec import capabilities, nodes, requirements
from toolkiln.spec.describe import Origin, describe
from toolkiln.spec.dialects import declarations
from toolkiln.spec.dialects.marks import docstring
from toolkiln.spec.findings import FileFacts, check_file, check_tool
from toolkiln.spec.modules import Module
from toolkiln.spec.neighbours import Neighbours
from toolkiln.spec.syntax import parse


def read(source: str, path: str | Path) -> Reading:
    """All that a file says: its tools, and what is wrong with it.

    Helper modules are looked for beside `path`; a path such as `<memory>` has none.
    """
    path = str(path)
    neighbours = Neighbours(path)
    data = source.encode("utf-8", "surrogatepass")
    tree = parse(source, path)
    if isinstance(tree, Finding):
        return Reading(path=path, digest=neighbours.digest(data), findings=(tree,))
    try:
        return _read(tree, source, data, path, neighbours)
    except RecursionError:
        finding = Finding(
            rule="too-deep",
            severity=Severity.ERROR,
            message="the code is nested too deeply to be read",
            fix="break the deeply nested expression into parts",
            path=path,
        )
        return Reading(path=path, digest=neighbours.digest(data), findings=(finding,))


def _read(tree: ast.Module, source: str, data: bytes, path: str, neighbours: Neighbours) -> Reading:
    module = Module(tree, "<tool>", neighbours)
    tree_nodes = nodes.walk(tree)
    neighbours.close(module, tree_nodes)
    findings = list(neighbours.findings)
    declared = declarations(module, findings)
    needed = requirements.gather(
        source, docstring(tree), [item for d in declared for item in d.requirements]
    )
    uses = capabilities.used(tree_nodes)
    origin = Origin(
        path,
        neighbours.digest(data),
        needed.packages,
        needed.table,
        tuple(dict.fromkeys(use.capability for use in uses)),
    )
    specs = [describe(declaration, origin, findings) for declaration in declared]
    kept = _first_of_each_name(specs, findings)
    facts = FileFacts(source, tree_nodes, module, needed, uses)
    findings += check_file(facts, kept)
    for spec in kept:
        findings += check_tool(spec, facts, kept)
    return Reading(
        path=path,
        digest=origin.digest,
        tools=tuple(kept),
        findings=_in_order(findings, path),
        helpers=neighbours.files,
    )


def _first_of_each_name(specs: Sequence[ToolSpec], findings: list[Finding]) -> list[ToolSpec]:
    kept: dict[str, ToolSpec] = {}
    for spec in specs:
        first = kept.setdefault(spec.name, spec)
        if first is not spec:
            findings.append(
                Finding(
                    rule="duplicate-name",
                    severity=Severity.ERROR,
                    message=f"{spec.entry} is named {spec.name!r} like {first.entry} "
                    f"in line {first.line}, and is left out",
                    line=spec.line,
                    fix="give one of them another name",
                    tool=spec.name,
                )
            )
    return list(kept.values())


def _in_order(findings: Sequence[Finding], path: str) -> tuple[Finding, ...]:
    placed = [f if f.path else f.model_copy(update={"path": path}) for f in findings]
    return tuple(sorted(dict.fromkeys(placed), key=lambda f: (f.path != path, f.path, f.line)))
