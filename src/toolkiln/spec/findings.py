"""What is wrong with a file or a tool, beyond what reading it already told.

"No findings" does not mean safe: the sandbox is the guarantee, these are for the author
and for whoever admits the file.
"""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from toolkiln.model import Capability, Finding, Severity, ToolSpec
from toolkiln.spec import naming, prose, secrets
from toolkiln.spec.capabilities import Use
from toolkiln.spec.dialects.marks import marks
from toolkiln.spec.modules import Function, Module, Scope, statements
from toolkiln.spec.requirements import Requirements


class FileFacts:
    """What the checks of one file look at."""

    def __init__(
        self,
        source: str,
        tree_nodes: Sequence[ast.AST],
        module: Module,
        needed: Requirements,
        uses: Sequence[Use],
    ) -> None:
        self.source = source
        self.tree_nodes = tree_nodes
        self.module = module
        self.needed = needed
        self.uses = uses


def check_file(facts: FileFacts, specs: Sequence[ToolSpec]) -> Iterator[Finding]:
    """Findings that concern the file as a whole."""
    for problem in facts.needed.problems:
        yield _finding(
            "bad-requirement", Severity.ERROR, problem.message, problem.line, problem.fix
        )
    yield from _undeclared(facts, specs)
    for secret in secrets.literal_secrets(facts.tree_nodes):
        yield _finding(
            "literal-secret",
            Severity.ERROR,
            f"the source contains what looks like a secret: {secret.what}",
            secret.line,
            "declare it with @tool(requires_secrets=[…]) and read it from ctx.secrets; "
            "revoke the one that was written down",
        )
    yield from _shadowed(facts.module)
    yield from _unlisted_imports(facts)


def check_tool(spec: ToolSpec, facts: FileFacts, specs: Sequence[ToolSpec]) -> Iterator[Finding]:
    """Findings that concern one tool: its name and everything a model reads of it."""
    problem = naming.name_problem(spec.name)
    if problem:
        severity = Severity.WARNING if naming.accepted_name(spec.name) else Severity.ERROR
        fix = "use lower-case letters, digits and underscores, at most 40 of them"
        yield _finding("bad-name", severity, problem, spec.line, fix, spec.name)
    for remark in prose.lint_description(spec.description, spec.name):
        yield _finding(
            remark.rule, remark.severity, remark.message, spec.line, remark.fix, spec.name
        )
    others = [other.name for other in specs if other.name != spec.name]
    texts = list(_visible_texts(spec))
    if not prose.lint("\n".join(text for _, text in texts), "", others):
        return
    for where, text in texts:
        for remark in prose.lint(text, where, others):
            line = _line_of(text, facts.source) or spec.line
            yield _finding(
                remark.rule, remark.severity, remark.message, line, remark.fix, spec.name
            )


def _undeclared(facts: FileFacts, specs: Sequence[ToolSpec]) -> Iterator[Finding]:
    """Capabilities that the source uses and no tool of the file declares."""
    declared: set[Capability] = set()
    for spec in specs:
        declared.update(spec.rights.capabilities)
        if spec.rights.network:
            declared.add(Capability.NETWORK)
        if spec.rights.workspace:
            declared.add(Capability.FILES)
    for use in facts.uses:
        if use.capability in declared:
            continue
        yield _finding(
            "undeclared-capability",
            Severity.WARNING,
            f"{use.what} can touch {_TOUCHES[use.capability]}, and no tool here declares that",
            use.line,
            _DECLARE[use.capability],
        )


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


def _shadowed(module: Module) -> Iterator[Finding]:
    """Functions and classes that a later binding of the same name hides."""
    for node, rank in statements(module.tree.body):
        if rank < 2 or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        winner = module.bindings.get(node.name)
        if winner is node or node.name.startswith("_") or _may_be_redefined(node, module):
            continue
        line = getattr(winner, "lineno", None) or getattr(winner, "line", None)
        where = f" in line {line}" if line else " further down"
        yield _finding(
            "shadowed-name",
            Severity.WARNING,
            f"{node.name!r} is bound again{where}; this definition is never used",
            node.lineno,
            "rename one of them, or delete this one",
        )


def _may_be_redefined(node: Function | ast.ClassDef, module: Module) -> bool:
    names = {mark.name for mark in marks(node.decorator_list, Scope(module))}
    return bool(names & {"overload", "setter", "getter", "deleter", "register", "tool"})


def _unlisted_imports(facts: FileFacts) -> Iterator[Finding]:
    """Packages that are imported but not among the requirements."""
    listed = {_NAME.match(item)[0].lower().replace("-", "_") for item in facts.needed.packages}
    if facts.module.loader is None:
        return
    seen: set[str] = set()
    for node, rank in statements(facts.module.tree.body):
        if isinstance(node, ast.Import):
            tops = [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            tops = [node.module.partition(".")[0]]
        else:
            continue
        for top in tops:
            if rank < 2 or top in seen or top in sys.stdlib_module_names or top in _ALWAYS_THERE:
                continue
            seen.add(top)
            if top.lower() in listed or _PACKAGES.get(top, top).lower() in listed:
                continue
            if facts.module.loader.helper(facts.module, top, 0) is not None:
                continue
            yield _finding(
                "unlisted-import",
                Severity.WARNING,
                f"{top!r} is neither in the standard library, nor beside the file, "
                "nor among its requirements",
                node.lineno,
                f'list it: # /// script, # dependencies = ["{_PACKAGES.get(top, top)}"], # ///',
            )


_NAME = re.compile(r"[\w.-]*")
_ALWAYS_THERE = {"toolkiln", "pydantic", "typing_extensions", "annotated_types", "__future__"}
_PACKAGES = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv_python",
    "dateutil": "python_dateutil",
    "dotenv": "python_dotenv",
    "sklearn": "scikit_learn",
    "yaml": "pyyaml",
}
"""Import names that differ from the package's."""


def _visible_texts(spec: ToolSpec) -> Iterator[tuple[str, str]]:
    """Every text that a model may come to read, with where it stands."""
    yield "the description", spec.description
    yield from _schema_texts(spec.parameters, "the parameters")
    if spec.returns:
        yield from _schema_texts(spec.returns, "the result")
    documentation = spec.documentation
    for section in documentation.sections:
        yield f"the section {section.title!r}", f"{section.title}\n{section.body}"
    for text in (documentation.returns, documentation.examples):
        if text:
            yield "the documentation", text
    if spec.toolkit:
        yield "the toolkit's description", spec.toolkit.description
    yield "the display name", spec.display_name


def _schema_texts(schema: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(schema, str):
        yield where, schema
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "properties" and isinstance(value, dict):
                for name, inner in value.items():
                    yield where, name
                    yield from _schema_texts(inner, f"the parameter {name!r}")
            elif key not in ("$ref", "type", "format", "pattern", "required"):
                yield from _schema_texts(value, where)
    elif isinstance(schema, list):
        for item in schema:
            yield from _schema_texts(item, where)


def _line_of(text: str, source: str) -> int | None:
    for line in text.splitlines():
        if line.strip():
            at = source.find(line.strip())
            return source.count("\n", 0, at) + 1 if at >= 0 else None
    return None


def _finding(
    rule: str, severity: Severity, message: str, line: int, fix: str, tool: str | None = None
) -> Finding:
    return Finding(rule=rule, severity=severity, message=message, line=line, fix=fix, tool=tool)
