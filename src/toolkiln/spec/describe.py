"""Declaration → `ToolSpec`: the last step of reading, the same for every dialect."""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from toolkiln.model import (
    Capability,
    Documentation,
    Hints,
    JsonSchema,
    Limits,
    Rights,
    Role,
    ToolSpec,
)
from toolkiln.spec import naming
from toolkiln.spec.annotations import Note, TypeReader
from toolkiln.spec.declaration import Declaration
from toolkiln.spec.docstrings import parse as parse_docstring
from toolkiln.spec.options import Options
from toolkiln.spec.report import Findings
from toolkiln.spec.signature import Signature, read_class_schema, read_returns, read_signature

_EMPTY, _NO_HINTS, _NO_LIMITS, _NO_RIGHTS = Documentation(), Hints(), Limits(), Rights()


class Origin:
    """What all tools of one file share."""

    def __init__(
        self,
        path: str,
        digest: str,
        requirements: tuple[str, ...],
        table: Mapping[str, Any],
        uses: tuple[Capability, ...],
    ) -> None:
        self.path = path
        self.digest = digest
        self.requirements = requirements
        self.table = table
        """`[tool.toolkiln]` of the file's PEP 723 block."""
        self.uses = uses
        self.arguments = TypeReader()
        self.results = TypeReader(serialized=True)


def describe(declaration: Declaration, origin: Origin, findings: Findings) -> ToolSpec:
    """The spec of one tool; what is wrong with it is added to `findings`."""
    text = (declaration.docstring or "").strip()
    documentation = parse_docstring(declaration.docstring or "") if text else _EMPTY
    given = {**origin.table, **declaration.options}
    options = Options(given, declaration.name, declaration.line, findings)
    parameters, injected, returns = _schemas(declaration, documentation, origin, findings)
    description = (declaration.description or "").strip()
    documentation = _without(documentation, injected)
    if not text and not description:
        findings.warn(
            "missing-docstring",
            f"{declaration.name!r} has no docstring; models only see its name",
            declaration.line,
            "say in one sentence what it does and when to use it",
            tool=declaration.name,
        )
    return ToolSpec(
        name=declaration.name,
        description=description or documentation.text or declaration.fallback,
        parameters=parameters,
        returns=returns,
        documentation=documentation,
        role=declaration.role,
        uri=options.text("uri") if declaration.role is Role.RESOURCE else None,
        mime_type=options.text("mime_type") if declaration.role is Role.RESOURCE else None,
        dialect=declaration.dialect,
        entry=declaration.entry,
        injected=injected,
        whole_arguments=_whole_arguments(declaration),
        is_async=declaration.is_async,
        parallel=options.flag("parallel"),
        isolation=options.choice("isolation", ("template", "call")) or "template",
        pinned=options.flag("pinned"),
        output_kind=options.kind("output_kind"),
        stdout_kind=options.kind("stdout_kind"),
        stderr_kind=options.kind("stderr_kind"),
        display_name=options.text("display_name") or naming.display_name(declaration.named_after),
        icon=options.icon("icon") or getattr(declaration.toolkit, "icon", None),
        color=options.color("color") or getattr(declaration.toolkit, "color", None),
        weight=options.number("weight", whole=True, least=None, otherwise=100),
        is_core=options.flag("is_core"),
        visible=options.flag("visible", otherwise=True),
        toolkit=declaration.toolkit,
        hints=_hints(options),
        limits=_limits(options),
        rights=_rights(options),
        uses=origin.uses,
        requirements=origin.requirements,
        settings=_settings(declaration, origin, findings),
        usages=options.texts("usages"),
        digest=origin.digest,
        path=origin.path,
        line=declaration.line,
    )


def _hints(options: Options) -> Hints:
    if not options.has(*Hints.model_fields):
        return _NO_HINTS
    return Hints(
        read_only=options.maybe("read_only"),
        destructive=options.maybe("destructive"),
        idempotent=options.maybe("idempotent"),
        open_world=options.maybe("open_world"),
    )


def _limits(options: Options) -> Limits:
    if not options.has(*Limits.model_fields):
        return _NO_LIMITS
    return Limits(
        timeout=options.number("timeout"),
        memory=options.size("memory"),
        cpu=options.number("cpu"),
        processes=options.number("processes", whole=True),
        disk=options.size("disk"),
        return_char_limit=options.number(
            "return_char_limit", whole=True, most=1_000_000, otherwise=50_000
        ),
    )


def _rights(options: Options) -> Rights:
    if not options.has(*Rights.model_fields, "requires_secrets"):
        return _NO_RIGHTS
    needs_approval, approval_function = options.approval("needs_approval")
    return Rights(
        network=options.texts("network"),
        secrets=options.texts("requires_secrets"),
        capabilities=options.capabilities("capabilities"),
        workspace=options.choice("workspace", ("read", "write")),
        sandbox=options.flag("sandbox", otherwise=True),
        needs_approval=needs_approval,
        approval_function=approval_function,
    )


def _settings(
    declaration: Declaration, origin: Origin, findings: Findings
) -> dict[str, JsonSchema]:
    found: dict[str, JsonSchema] = {}
    for kind, (node, scope) in declaration.settings.items():
        schema = read_class_schema(origin.arguments, node, scope)
        if schema is not None:
            found[kind] = schema
        else:
            message = f"the settings {ast.unparse(node)!r} cannot be read"
            line, tool = getattr(node, "lineno", declaration.line), declaration.name
            findings.warn("unresolved-type", message, line, _FIXES["unresolved-type"], tool=tool)
    return found


def _schemas(
    declaration: Declaration, documentation: Documentation, origin: Origin, findings: Findings
) -> tuple[JsonSchema, dict[str, str], JsonSchema | None]:
    """Parameters, injected parameters and result: by hand first, else from the signature."""
    function = declaration.function
    texts = {item.name: item.text for item in documentation.parameters}
    if not texts and declaration.signature_docstring:
        described = parse_docstring(declaration.signature_docstring).parameters
        texts = {item.name: item.text for item in described}
    signature = read_signature(
        origin.arguments,
        function,
        declaration.scope,
        texts,
        is_method=declaration.is_method,
        dunder_injected=declaration.dunder_injected,
    )
    returns, notes = read_returns(origin.results, function, declaration.scope)
    _report_notes(notes, declaration, findings)
    by_hand = declaration.parameters
    if by_hand is None:
        _report_notes(signature.notes, declaration, findings)
        _report_parameters(signature, declaration.name, findings)
        return signature.schema, signature.injected, returns
    if declaration.whole_arguments is None:
        for message in _disagreements(by_hand, signature):
            fix = "make the schema and the signature agree, or leave the schema out"
            line = declaration.parameters_line
            findings.error("schema-mismatch", message, line, fix, tool=declaration.name)
    return by_hand, signature.injected, returns


def _whole_arguments(declaration: Declaration) -> str | None:
    whole, rest = declaration.whole_arguments, declaration.function.args.kwarg
    return f"**{whole}" if rest is not None and rest.arg == whole else whole


def _without(documentation: Documentation, injected: Mapping[str, str]) -> Documentation:
    """The documentation without the parameters that no caller passes."""
    kept = tuple(item for item in documentation.parameters if item.name not in injected)
    if len(kept) == len(documentation.parameters):
        return documentation
    return documentation.model_copy(update={"parameters": kept})


_FIXES = {
    "unresolved-type": "use a type of the standard library or pydantic, or a class of this folder",
    "unknown-default": "use a literal or a constant if models should know it",
    "unknown-value": "use a literal or a constant of the module",
}


def _report_notes(notes: list[Note], declaration: Declaration, findings: Findings) -> None:
    for note in notes:
        report = findings.note if note.rule == "unknown-default" else findings.warn
        fix, tool = _FIXES[note.rule], declaration.name
        report(note.rule, note.message, note.line, fix, tool=tool, path=note.path)


def _report_parameters(signature: Signature, tool: str, findings: Findings) -> None:
    for name, line in signature.unannotated.items():
        findings.warn(
            "missing-annotation",
            f"parameter {name!r} has no type; models may pass anything",
            line,
            f"annotate it, for example `{name}: str`",
            tool=tool,
        )
    for name, line in signature.undescribed.items():
        findings.warn(
            "undescribed-parameter",
            f"parameter {name!r} has no description",
            line,
            f"add `{name}: …` under `Args:` in the docstring",
            tool=tool,
        )


def _disagreements(by_hand: JsonSchema, signature: Signature) -> Iterator[str]:
    """Where a hand-written schema and the function it is for do not fit each other."""
    written = by_hand.get("properties", {})
    if not isinstance(written, dict):
        return
    if not signature.takes_any:
        for name in written:
            if name not in signature.schema["properties"]:
                yield f"the schema has {name!r}, which the function does not take"
    required = by_hand.get("required", [])
    for name in signature.schema.get("required", []):
        if name not in written:
            yield f"the function needs {name!r}, which the schema does not have"
        elif name not in required:
            yield f"the function needs {name!r}, which the schema does not require"
