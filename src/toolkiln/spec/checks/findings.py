"""What is wrong with a file or a tool, beyond what reading it already told.

"No findings" does not mean safe: the sandbox is the guarantee, these are for the author
and for whoever admits the file.
"""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import Any

from toolkiln.errors import nearest_hint
from toolkiln.model import Capability, Finding, JsonSchema, Reading, Role, Severity, ToolSpec
from toolkiln.spec import naming
from toolkiln.spec.checks import prose, secrets
from toolkiln.spec.checks.capabilities import Use
from toolkiln.spec.checks.imports import check_imports
from toolkiln.spec.dialects.functions import OPTIONS
from toolkiln.spec.dialects.marks import marks
from toolkiln.spec.modules import Function, Module, Scope
from toolkiln.spec.report import Findings
from toolkiln.spec.requirements import Requirements


def check_sources(
    files: Mapping[str, Sequence[ast.AST]],
    uses: Mapping[str, Sequence[Use]],
    specs: Sequence[ToolSpec],
    findings: Findings,
    *,
    has_data: bool,
) -> None:
    """Report secrets and undeclared capabilities of the file and its helpers."""
    for path, tree_nodes in files.items():
        for secret in secrets.literal_secrets(tree_nodes):
            findings.error(
                "literal-secret",
                f"the source contains what looks like a secret: {secret.what}",
                secret.line,
                "declare it with @tool(requires_secrets=[…]) and read it from ctx.secrets; "
                "revoke the one that was written down",
                path=path,
            )
    declared = _declared_capabilities(specs) | ({Capability.FILES} if has_data else set())
    for path, used in uses.items():
        for use in used:
            if use.capability not in declared:
                touched = _TOUCHES[use.capability]
                message = f"{use.what} can touch {touched}, and no tool here declares that"
                fix = _DECLARE[use.capability]
                findings.warn("undeclared-capability", message, use.line, fix, path=path)


def check_module(module: Module, needed: Requirements, findings: Findings) -> None:
    """Report what is wrong with requirements, names and imports of the file."""
    for problem in needed.problems:
        findings.error("bad-requirement", problem.message, problem.line, problem.fix)
    for name in sorted(needed.table.keys() - OPTIONS):
        if findings.is_full:
            break
        hint = nearest_hint(name, OPTIONS) or f"use one of {', '.join(sorted(OPTIONS))}"
        message = f"[tool.toolkiln] takes no {name!r}"
        findings.error("unknown-option", message, _line_of(name, module.source) or 1, hint)
    _check_shadowing(module, findings)
    check_imports(module, needed, findings)


def check_tool(spec: ToolSpec, source: str, names: Set[str], findings: Findings) -> None:
    """Report what concerns one tool: its name and everything a model reads of it.

    `names` are those of all tools of the file.
    """
    problem = naming.name_problem(spec.name)
    if problem:
        report = findings.warn if naming.accepted_name(spec.name) else findings.error
        fix = "use lower-case letters, digits and underscores, at most 40 of them"
        report("bad-name", problem, spec.line, fix, tool=spec.name)
    for remark in prose.lint_description(spec.description, spec.name):
        _report_remark(remark, spec, spec.line, findings)
    others = _Others(names, spec.name)
    texts = list(_visible_texts(spec))
    joined = "\n".join(texts)
    if joined.isascii() and not prose.lint(joined, "", others):
        return
    places = _places(spec)
    for text in dict.fromkeys(texts):
        if findings.is_full:
            return
        for remark in prose.lint(text, places.get(text, "the documentation"), others):
            _report_remark(remark, spec, _line_of(text, source) or spec.line, findings)


def check_names(specs: Sequence[ToolSpec], findings: Findings) -> None:
    """Report tools whose names people and models take for each other."""
    alike: dict[str, list[str]] = {}
    for spec in specs:
        alike.setdefault(naming.shape(spec.name), []).append(spec.name)
    for spec in specs:
        names = alike[naming.shape(spec.name)]
        if twin := next((name for name in names if name != spec.name), None):
            message, fix = _confusable(spec.name, twin)
            findings.warn("confusable-name", message, spec.line, fix, tool=spec.name)


class KnownTools:
    """The tools of a catalog, to compare those of a file with."""

    def __init__(self, files: Mapping[str, str]) -> None:
        """`files` says which file each tool is from."""
        self._files = files
        self._alike: dict[str, list[str]] = {}
        for name in files:
            self._alike.setdefault(naming.shape(name), []).append(name)

    def findings(self, reading: Reading, file: str) -> list[Finding]:
        """Return what a file says about tools of other files, and names that look like theirs."""
        said = {(finding.tool, finding.message) for finding in reading.findings}
        found: list[Finding] = []
        for spec in reading.tools:
            for rule, message, fix in self._remarks(spec, file):
                if (spec.name, message) not in said:
                    said.add((spec.name, message))
                    found.append(
                        Finding(
                            rule=rule, severity=Severity.WARNING, message=message, line=spec.line,
                            fix=fix, tool=spec.name, path=reading.path,
                        )
                    )  # fmt: skip
        return found

    def _remarks(self, spec: ToolSpec, file: str) -> Iterator[tuple[str, str, str]]:
        twins = self._alike.get(naming.shape(spec.name), ())
        twin = next((n for n in twins if n != spec.name and self._files[n] != file), None)
        if twin:
            yield "confusable-name", *_confusable(spec.name, twin)
        places = _places(spec)
        for text in dict.fromkeys(_visible_texts(spec)):
            place = places.get(text, "the documentation")
            for remark in prose.shadows(text, place, _Others(self._files.keys(), spec.name)):
                yield remark.rule, remark.message, remark.fix


def _confusable(name: str, twin: str) -> tuple[str, str]:
    return (
        f"the names {name!r} and {twin!r} are easily taken for each other",
        "give one of them a name that differs in a word",
    )


def _report_remark(remark: prose.Remark, spec: ToolSpec, line: int, findings: Findings) -> None:
    report = {
        Severity.ERROR: findings.error,
        Severity.WARNING: findings.warn,
        Severity.INFO: findings.note,
    }[remark.severity]
    report(remark.rule, remark.message, line, remark.fix, tool=spec.name)


def _declared_capabilities(specs: Sequence[ToolSpec]) -> set[Capability]:
    declared: set[Capability] = set()
    for spec in specs:
        declared.update(spec.rights.capabilities)
        if spec.rights.network:
            declared.add(Capability.NETWORK)
        if spec.rights.workspace:
            declared.add(Capability.FILES)
    return declared


_TOUCHES = {
    Capability.NETWORK: "the network",
    Capability.FILES: "files",
    Capability.SUBPROCESS: "other processes",
    Capability.ENVIRONMENT: "the environment",
    Capability.NATIVE: "native code",
    Capability.DYNAMIC_CODE: "code made at run time",
    Capability.DYNAMIC_IMPORT: "modules chosen at run time",
    Capability.INTROSPECTION: "the interpreter's internals",
}
_DECLARE = {
    capability: f'declare it with @tool(capabilities=["{capability}"]), or do without'
    for capability in Capability
} | {
    Capability.NETWORK: 'declare the hosts with @tool(network=["api.example.com"])',
    Capability.ENVIRONMENT: "take secrets from ctx.secrets and settings from @tool(settings=…); "
    'or declare @tool(capabilities=["environment"])',
}


def _check_shadowing(module: Module, findings: Findings) -> None:
    """Functions and classes that a later binding of the same name hides."""
    for node in [*module.functions, *module.classes]:
        winner = module.bindings.get(node.name)
        if winner is node or node.name.startswith("_") or _may_be_redefined(node, module):
            continue
        line = getattr(winner, "lineno", None) or getattr(winner, "line", None)
        where = f" in line {line}" if line else " elsewhere"
        findings.warn(
            "shadowed-name",
            f"{node.name!r} is bound again{where}; this definition is never used",
            node.lineno,
            "rename one of them, or delete this one",
        )


def _may_be_redefined(node: Function | ast.ClassDef, module: Module) -> bool:
    names = {mark.name for mark in marks(node.decorator_list, Scope(module))}
    return bool(names & {"overload", "setter", "getter", "deleter", "register", *Role})


def _visible_texts(spec: ToolSpec) -> Iterator[str]:
    """Every text that a model may come to read."""
    yield spec.description
    yield spec.display_name
    yield from _schema_texts(spec.parameters)
    if spec.returns:
        yield from _schema_texts(spec.returns)
    documentation = spec.documentation
    yield documentation.returns
    yield documentation.examples
    yield from spec.usages
    for error in documentation.raises:
        yield error.text
    for section in documentation.sections:
        yield f"{section.title}\n{section.body}"
    if spec.toolkit:
        yield spec.toolkit.description


def _schema_texts(schema: JsonSchema) -> list[str]:
    """The strings of a schema: descriptions, names, defaults, values."""
    texts: list[str] = []
    pending: list[Any] = [schema]
    for item in pending:
        if item.__class__ is str:
            texts.append(item)
        elif item.__class__ is dict:
            texts += item
            pending += item.values()
        elif item.__class__ is list:
            pending += item
    return texts


def _places(spec: ToolSpec) -> dict[str, str]:
    """Where each text of a tool comes from, for messages; the rest is documentation."""
    places = {spec.description: "the description"}
    for name, schema in spec.parameters.get("properties", {}).items():
        for text in (name, *_schema_texts(schema)):
            places.setdefault(text, f"the parameter {name!r}")
    return places


class _Others(Collection[str]):
    """The names of the other tools of a file, without a copy for each tool."""

    def __init__(self, names: Set[str], own: str) -> None:
        self._names = names
        self._own = own

    def __contains__(self, name: object) -> bool:
        return name != self._own and name in self._names

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if name != self._own)

    def __len__(self) -> int:
        return len(self._names) - (self._own in self._names)


def _line_of(text: str, source: str) -> int | None:
    for line in text.splitlines():
        if line.strip():
            at = source.find(line.strip())
            return source.count("\n", 0, at) + 1 if at >= 0 else None
    return None
