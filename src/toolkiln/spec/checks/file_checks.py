"""Checks of a file as a whole, of each tool, and of tools against a catalog."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from toolkiln.errors import nearest_hint
from toolkiln.model.base import JsonSchema, uri_problem, uri_variables
from toolkiln.model.source import Finding, Reading, Severity
from toolkiln.model.spec import Capability, Role, ToolSpec
from toolkiln.spec import names as naming
from toolkiln.spec.checks import literal_secrets, text_lint
from toolkiln.spec.checks.capabilities import CapabilityUse
from toolkiln.spec.dialects.functions import OPTIONS
from toolkiln.spec.findings import Findings
from toolkiln.spec.namespace import Function, Module, NameScope
from toolkiln.spec.options import decorators
from toolkiln.spec.requirements import Requirements, check_imports


def check_sources(
    files: Mapping[str, Sequence[ast.AST]],
    uses: Mapping[str, Sequence[CapabilityUse]],
    specs: Sequence[ToolSpec],
    findings: Findings,
    *,
    has_data: bool,
) -> None:
    """Report secrets and undeclared capabilities in the tool file and its helpers."""
    for path, nodes in files.items():
        for secret in literal_secrets.find_secrets(nodes):
            message = f"the source contains a possible secret: {secret.description}"
            fix = "revoke it, declare it with @tool(requires_secrets=[…]) and read ctx.secrets"
            findings.error("literal-secret", message, secret.line, fix, path=path)
    declared = _declared_capabilities(specs) | ({Capability.FILES} if has_data else set())
    for path, used in uses.items():
        for use in used:
            if use.capability not in declared:
                resource = _RESOURCES[use.capability]
                message = f"{use.api} gives access to {resource}, which no tool here declares"
                fix = _DECLARATIONS[use.capability]
                findings.warn("undeclared-capability", message, use.line, fix, path=path)


def check_module(
    module: Module, requirements: Requirements, listed: Set[str], findings: Findings
) -> None:
    """Check the requirements, top-level names and imports of a file."""
    for problem in requirements.problems:
        findings.error("bad-requirement", problem.message, problem.line, problem.fix)
    for name in sorted(requirements.table.keys() - OPTIONS):
        if findings.is_full:
            break
        hint = nearest_hint(name, OPTIONS) or f"use one of {', '.join(sorted(OPTIONS))}"
        message = f"[tool.toolkiln] has no option {name!r}"
        findings.error("unknown-option", message, _line_of(name, module.source) or 1, hint)
    _check_shadowing(module, findings)
    check_imports(module, requirements, listed, findings)


def check_tool(spec: ToolSpec, source: str, names: Set[str], findings: Findings) -> None:
    """Check a tool's name and everything a model reads about it.

    `names` are the names of all tools of the file.
    """
    problem = naming.name_problem(spec.name)
    if problem:
        report = findings.warn if naming.accepted_name(spec.name) else findings.error
        fix = "use at most 40 lower-case letters, digits and underscores"
        report("bad-name", problem, spec.line, fix, tool=spec.name)
    for remark in text_lint.lint_description(spec.description, spec.name):
        _report_remark(remark, spec, spec.line, findings)
    others = names - {spec.name}
    texts = list(_visible_texts(spec))
    joined = "\n".join(texts)
    if joined.isascii() and not text_lint.lint(joined, "", others):
        return
    locations = _locations(spec)
    for text in dict.fromkeys(texts):
        if findings.is_full:
            return
        for remark in text_lint.lint(text, locations.get(text, "the documentation"), others):
            _report_remark(remark, spec, _line_of(text, source) or spec.line, findings)


def check_halves(spec: ToolSpec, halves: Mapping[str, int], findings: Findings) -> None:
    """Report texts with half of a character, if a model reads them."""
    if not halves:
        return
    texts = "\n".join(_visible_texts(spec))
    for half, line in halves.items():
        lines = (part.strip() for part in half.splitlines() if "\ufffd" in part)
        if any(part in texts for part in lines):
            message = "the text contains a lone surrogate (half a character)"
            fix = "write both halves"
            findings.error("hidden-characters", message, line, fix, tool=spec.name)


def check_names(specs: Sequence[ToolSpec], findings: Findings) -> None:
    """Report tools with names that people and models may confuse."""
    similar = _by_look_alike_key(spec.name for spec in specs)
    for spec in specs:
        names = similar[naming.look_alike_key(spec.name)]
        if other := next((name for name in names if name != spec.name), None):
            message, fix = _confusable(spec.name, other)
            findings.warn("confusable-name", message, spec.line, fix, tool=spec.name)


def _by_look_alike_key(names: Iterable[str]) -> dict[str, list[str]]:
    similar: dict[str, list[str]] = {}
    for name in names:
        similar.setdefault(naming.look_alike_key(name), []).append(name)
    return similar


class KnownTools:
    """The tools of a catalog, to check a file against."""

    def __init__(self, files: Mapping[str, str]) -> None:
        """`files` maps each tool to its file."""
        self._files = files
        self._similar = _by_look_alike_key(files)

    def findings(self, reading: Reading, file: str) -> list[Finding]:
        """Report instructions about tools of other files, and names similar to theirs."""
        reported = {(finding.tool, finding.message) for finding in reading.findings}
        found: list[Finding] = []
        for spec in reading.tools:
            for rule, message, fix in self._remarks(spec, file):
                if (spec.name, message) not in reported:
                    reported.add((spec.name, message))
                    found.append(
                        Finding(
                            rule=rule, severity=Severity.WARNING, message=message, line=spec.line,
                            fix=fix, tool=spec.name, path=reading.path,
                        )
                    )  # fmt: skip
        return found

    def _remarks(self, spec: ToolSpec, file: str) -> Iterator[tuple[str, str, str]]:
        similar = self._similar.get(naming.look_alike_key(spec.name), ())
        other = next((n for n in similar if n != spec.name and self._files[n] != file), None)
        if other:
            yield "confusable-name", *_confusable(spec.name, other)
        locations = _locations(spec)
        names = self._files.keys() - {spec.name}
        for text in dict.fromkeys(_visible_texts(spec)):
            where = locations.get(text, "the documentation")
            for remark in text_lint.shadowing_remarks(text, where, names):
                yield remark.rule, remark.message, remark.fix


def _confusable(name: str, other: str) -> tuple[str, str]:
    message = f"the names {name!r} and {other!r} are easily confused"
    return message, "rename one of them to differ in a word"


def _report_remark(
    remark: text_lint.TextRemark, spec: ToolSpec, line: int, findings: Findings
) -> None:
    findings.report(remark.severity, remark.rule, remark.message, line, remark.fix, tool=spec.name)


def _declared_capabilities(specs: Sequence[ToolSpec]) -> set[Capability]:
    declared: set[Capability] = set()
    for spec in specs:
        declared.update(spec.rights.capabilities)
        if spec.rights.network:
            declared.add(Capability.NETWORK)
        if spec.rights.workspace:
            declared.add(Capability.FILES)
    return declared


_RESOURCES = {
    Capability.NETWORK: "the network",
    Capability.FILES: "files",
    Capability.SUBPROCESS: "other processes",
    Capability.ENVIRONMENT: "the environment",
    Capability.NATIVE: "native code",
    Capability.DYNAMIC_CODE: "code created at run time",
    Capability.DYNAMIC_IMPORT: "modules chosen at run time",
    Capability.INTROSPECTION: "the interpreter's internals",
}
_DECLARATIONS = {
    capability: f'declare it with @tool(capabilities=["{capability}"]), or avoid it'
    for capability in Capability
} | {
    Capability.NETWORK: 'declare the hosts with @tool(network=["api.example.com"])',
    Capability.ENVIRONMENT: "use ctx.secrets for secrets and @tool(settings=…) for settings, "
    'or declare @tool(capabilities=["environment"])',
}


def _check_shadowing(module: Module, findings: Findings) -> None:
    for node in [*module.functions, *module.classes]:
        effective = module.bindings.get(node.name)
        if effective is node or node.name.startswith("_") or _may_be_redefined(node, module):
            continue
        line = getattr(effective, "lineno", None) or getattr(effective, "line", None)
        where = f" in line {line}" if line else ""
        message = f"{node.name!r} is redefined{where}; this definition is never used"
        fix = "rename or delete one of them"
        findings.warn("shadowed-name", message, node.lineno, fix)


def _may_be_redefined(node: Function | ast.ClassDef, module: Module) -> bool:
    names = {decorator.name for decorator in decorators(node, NameScope(module))}
    return bool(names & {"overload", "setter", "getter", "deleter", "register", *Role})


def _visible_texts(spec: ToolSpec) -> Iterator[str]:
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
    for section in documentation.sections + documentation.module:
        yield f"{section.title}\n{section.body}"
    if spec.toolkit:
        yield spec.toolkit.description
        yield spec.toolkit.usage_guide


def _schema_texts(schema: JsonSchema) -> list[str]:
    """Return the strings of a schema: descriptions, names, defaults, values."""
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


def _locations(spec: ToolSpec) -> dict[str, str]:
    """Return where texts of a tool come from, for messages; all others are documentation."""
    locations = {spec.description: "the description"}
    for name, schema in spec.parameters.get("properties", {}).items():
        for text in (name, *_schema_texts(schema)):
            locations.setdefault(text, f"the parameter {name!r}")
    return locations


def _line_of(text: str, source: str) -> int | None:
    for line in text.splitlines():
        if line.strip():
            at = source.find(line.strip())
            return source.count("\n", 0, at) + 1 if at >= 0 else None
    return None


def check_roles(specs: Sequence[ToolSpec], findings: Findings) -> list[ToolSpec]:
    """Check prompts and resources; return the specs without resources that have no usable URI."""
    accepted: list[ToolSpec] = []
    owners: dict[str, ToolSpec] = {}
    for spec in specs:
        if spec.role is Role.PROMPT:
            _check_prompt(spec, findings)
        elif spec.role is Role.RESOURCE:
            if not _has_uri(spec, findings):
                continue
            assert spec.uri is not None
            first = owners.setdefault(spec.uri, spec)
            if first is not spec:
                other = f"{first.name!r} in line {first.line}"
                message = f"{spec.name!r} has the same URI as {other} and is ignored"
                fix = "change one of the URIs"
                findings.error("duplicate-uri", message, spec.line, fix, tool=spec.name)
                continue
        accepted.append(spec)
    return accepted


def _check_prompt(spec: ToolSpec, findings: Findings) -> None:
    for name, schema in spec.parameters["properties"].items():
        if _needs_json(schema, spec.parameters.get("$defs", {})):
            message = f"clients pass prompt arguments as text, but {name!r} must be JSON"
            fix = f"accept text, a number, a boolean or an enumeration, such as `{name}: str`"
            findings.warn("prompt-argument", message, spec.line, fix, tool=spec.name)


def _has_uri(spec: ToolSpec, findings: Findings) -> bool:
    problem = uri_problem(spec.uri) if spec.uri else "a resource needs a URI"
    if problem is not None:
        fix = 'write it like @resource("notes://{year}/{name}")'
        message = f"{problem}; the resource is ignored"
        findings.error("bad-uri", message, spec.line, fix, tool=spec.name)
        return False
    assert spec.uri is not None
    variables, parameters = set(uri_variables(spec.uri)), set(spec.parameters["properties"])
    required = set(spec.parameters.get("required", ()))
    unknown = [f"the URI variable {n!r} is not a parameter" for n in sorted(variables - parameters)]
    missing = [f"the parameter {n!r} is not in the URI" for n in sorted(required - variables)]
    for message in (*unknown, *missing):
        fix = "name each URI variable after a parameter; other parameters need a default"
        findings.error("bad-uri", message, spec.line, fix, tool=spec.name)
    return True


def _needs_json(schema: Any, definitions: Mapping[str, Any]) -> bool:
    """Return whether a schema accepts only arrays and objects."""
    if not isinstance(schema, dict):
        return False
    if "$ref" in schema:
        return _needs_json(definitions.get(schema["$ref"].rpartition("/")[2]), {})
    if "anyOf" in schema:
        options = [option for option in schema["anyOf"] if option != {"type": "null"}]
        return bool(options) and all(_needs_json(option, definitions) for option in options)
    return schema.get("type") in ("array", "object")
