"""Declarations: dialect-independent descriptions of tools, and their conversion to specs.

Each dialect produces declarations; `build_spec` turns one into a `ToolSpec`. Nothing after
this module depends on the dialect.
"""

import ast
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from toolkiln.docstrings.description import class_docstring
from toolkiln.docstrings.parser import parse
from toolkiln.errors import nearest_hint
from toolkiln.model.base import JsonSchema
from toolkiln.model.spec import (
    Capability,
    Dialect,
    DocstringSection,
    Documentation,
    Hints,
    Limits,
    ParameterDoc,
    Permissions,
    Role,
    Toolkit,
    ToolSpec,
)
from toolkiln.spec import names, syntax
from toolkiln.spec.annotations.type_reader import Note, TypeReader
from toolkiln.spec.findings import Findings
from toolkiln.spec.namespace import Function, NameScope
from toolkiln.spec.options import DeclaredOptions
from toolkiln.spec.signature import (
    ToolSignature,
    read_class_schema,
    read_constructor,
    read_returns,
    read_signature,
)


class ArgumentsClass(NamedTuple):
    """A class that describes the arguments, and converts them at run time."""

    node: ast.expr
    scope: NameScope
    injected: Mapping[str, str]
    """Fields that the framework fills in, with the kind of injection."""


@dataclass(slots=True)
class Declaration:
    """One tool as its author declared it, in any dialect."""

    dialect: Dialect
    name: str
    entry: str
    scope: NameScope
    """The scope of the signature's annotations."""
    function: Function
    """The function that receives the arguments."""
    line: int = 0
    named_after: str = ""
    """The identifier from which the display name is derived."""
    whole_arguments: str | None = None
    """The parameter that receives all arguments as one dict, if there is one."""
    docstring: str | None = None
    """Line, name and docstring are by default those of the function."""
    signature_docstring: str | None = None
    """Docstring of the method that a class's docstring leaves details to."""
    description: str | None = None
    """An explicit description; takes precedence over the docstring."""
    parameters: JsonSchema | None = None
    """A hand-written schema."""
    arguments_class: ArgumentsClass | None = None
    parameters_line: int = 1
    returns: JsonSchema | None = None
    """Schema of the result if the function's annotation gives none."""
    role: Role = Role.TOOL
    options: dict[str, Any] = field(default_factory=dict)
    """Options of decorators and class attributes, by the names that `@tool` uses."""
    is_method: bool = False
    dunder_injected: bool = False
    """Whether the runtime injects `__user__` and similar parameters."""
    injected_names: dict[str, str] = field(default_factory=dict)
    """Parameters that the framework fills in by name, with the kind of injection."""
    toolkit: Toolkit | None = None
    requirements: tuple[tuple[str, int], ...] = ()
    settings: dict[str, tuple[ast.expr, NameScope]] = field(default_factory=dict)
    constructor: tuple[Function, NameScope] | None = None
    """The constructor whose parameters an operator sets."""

    def __post_init__(self) -> None:
        self.line = self.line or self.function.lineno
        self.named_after = self.named_after or self.function.name
        self.docstring = self.docstring or syntax.docstring(self.function)


# Most tools declare no options: building these for each slows reading by 7 %.
_EMPTY, _NO_HINTS, _NO_LIMITS, _NO_PERMISSIONS = Documentation(), Hints(), Limits(), Permissions()


@dataclass(frozen=True, slots=True)
class FileContext:
    """What all tools of one file share."""

    path: str
    digest: str
    requirements: tuple[str, ...]
    table: Mapping[str, Any]
    """The `[tool.toolkiln]` table of the PEP 723 block."""
    uses: tuple[Capability, ...]
    documentation: tuple[DocstringSection, ...] = ()
    arguments: TypeReader = field(default_factory=TypeReader)
    results: TypeReader = field(default_factory=lambda: TypeReader(serialized=True))


def build_spec(declaration: Declaration, file: FileContext, findings: Findings) -> ToolSpec:
    """Build the spec of one tool, and report its problems."""
    text = (declaration.docstring or "").strip()
    documentation = _documentation(declaration) if text else _EMPTY
    values = {**file.table, **declaration.options}
    options = DeclaredOptions(values, declaration.name, declaration.line, findings)
    is_declared = declaration.parameters is not None or "parameters" in declaration.options
    if "parameters" in file.table and not is_declared:
        declaration.parameters = options.schema()
    parameters, signature, returns = _schemas(declaration, documentation, file, findings)
    injected = signature.injected
    description = (declaration.description or "").strip()
    documentation = _without_hidden(documentation, signature.hidden)
    if file.documentation:
        documentation = documentation.model_copy(update={"module": file.documentation})
    if not text and not description:
        message = f"{declaration.name!r} has no docstring; models see only its name"
        fix = "describe in one sentence what it does and when to use it"
        findings.warn("missing-docstring", message, declaration.line, fix, tool=declaration.name)
    return ToolSpec(
        name=declaration.name,
        description=description or documentation.text or _fallback(declaration),
        parameters=parameters,
        returns=declaration.returns if returns is None else returns,
        documentation=documentation,
        role=declaration.role,
        uri=options.text("uri") if declaration.role is Role.RESOURCE else None,
        mime_type=options.text("mime_type") if declaration.role is Role.RESOURCE else None,
        dialect=declaration.dialect,
        entry=declaration.entry,
        injected=injected,
        whole_arguments=_whole_arguments(declaration),
        is_async=isinstance(declaration.function, ast.AsyncFunctionDef),
        parallel=options.flag("parallel"),
        isolation=options.choice("isolation", ("template", "call")) or "template",
        pinned=options.flag("pinned"),
        output_kind=options.kind("output_kind"),
        stdout_kind=options.kind("stdout_kind"),
        stderr_kind=options.kind("stderr_kind"),
        display_name=options.text("display_name") or names.display_name(declaration.named_after),
        icon=options.icon("icon") or getattr(declaration.toolkit, "icon", None),
        color=options.color("color") or getattr(declaration.toolkit, "color", None),
        weight=options.number("weight", integer=True, minimum=None, default=100),
        is_core=options.flag("is_core"),
        visible=options.flag("visible", default=True),
        toolkit=declaration.toolkit,
        hints=_hints(options),
        limits=_limits(options),
        rights=_permissions(options),
        uses=file.uses,
        requirements=file.requirements,
        settings=_settings(declaration, file, findings),
        usages=options.texts("usages"),
        metadata=options.metadata() if options.has("metadata") else {},
        digest=file.digest,
        path=file.path,
        line=declaration.line,
    )


def _documentation(declaration: Declaration) -> Documentation:
    own, method = declaration.docstring, declaration.signature_docstring
    return Documentation.of(class_docstring(own, method) if method else parse(own or ""))


def _fallback(declaration: Declaration) -> str:
    kind = "functionality" if declaration.dialect is Dialect.BASE_TOOL else "function"
    return f"{declaration.named_after} {kind}"


def _hints(options: DeclaredOptions) -> Hints:
    if not options.has(*Hints.model_fields):
        return _NO_HINTS
    return Hints(**{name: options.optional_flag(name) for name in Hints.model_fields})


def _limits(options: DeclaredOptions) -> Limits:
    if not options.has(*Limits.model_fields):
        return _NO_LIMITS
    return Limits(
        timeout=options.number("timeout"),
        memory=options.size("memory"),
        cpu=options.number("cpu"),
        processes=options.number("processes", integer=True),
        disk=options.size("disk"),
        return_char_limit=options.number(
            "return_char_limit", integer=True, maximum=1_000_000, default=50_000
        ),
    )


def _permissions(options: DeclaredOptions) -> Permissions:
    if not options.has(*Permissions.model_fields, "requires_secrets"):
        return _NO_PERMISSIONS
    needs_approval, approval_function = options.approval("needs_approval")
    return Permissions(
        network=options.texts("network"),
        secrets=options.texts("requires_secrets"),
        capabilities=options.capabilities("capabilities"),
        workspace=options.choice("workspace", ("read", "write")),
        sandbox=options.flag("sandbox", default=True),
        needs_approval=needs_approval,
        approval_function=approval_function,
    )


def _settings(
    declaration: Declaration, file: FileContext, findings: Findings
) -> dict[str, JsonSchema]:
    schemas: dict[str, JsonSchema] = {}
    if declaration.constructor is not None:
        constructor = read_constructor(file.arguments, *declaration.constructor)
        if constructor["properties"]:
            schemas["operator"] = constructor
    for kind, (node, scope) in declaration.settings.items():
        schema = read_class_schema(file.arguments, node, scope)
        if schema is not None:
            schemas[kind] = schema
        else:
            message = f"the settings class {ast.unparse(node)!r} cannot be read"
            line, tool = getattr(node, "lineno", declaration.line), declaration.name
            findings.warn("unresolved-type", message, line, _FIXES["unresolved-type"], tool=tool)
    return schemas


def _schemas(
    declaration: Declaration, documentation: Documentation, file: FileContext, findings: Findings
) -> tuple[JsonSchema, ToolSignature, JsonSchema | None]:
    """Return the schema of parameters, the signature, and the schema of the result."""
    function = declaration.function
    parameters = documentation.parameters
    signature = read_signature(
        file.arguments,
        function,
        declaration.scope,
        {parameter.name: parameter.text for parameter in parameters},
        is_method=declaration.is_method,
        dunder_injected=declaration.dunder_injected,
        injected_names={
            **declaration.injected_names,
            **(declaration.arguments_class.injected if declaration.arguments_class else {}),
        },
        declared=_properties(declaration.parameters or {}),
    )
    returns, notes = read_returns(file.results, function, declaration.scope)
    _report_notes(notes, declaration, findings)
    is_by_signature = declaration.whole_arguments is None and declaration.arguments_class is None
    if is_by_signature and not signature.accepts_any_name:
        _report_unknown(parameters, signature, declaration, findings)
    declared = declaration.parameters
    if declaration.arguments_class is not None:
        declared = _class_schema(declaration, signature, file, findings)
    if declared is None:
        _report_notes(signature.notes, declaration, findings)
        _report_parameters(signature, declaration.name, findings)
        return signature.schema, signature, returns
    if declaration.whole_arguments is None:
        has_defaults = declaration.arguments_class is not None
        for message in _mismatches(declared, signature, has_defaults=has_defaults):
            fix = "make the schema match the signature, or remove it"
            line = declaration.parameters_line
            findings.error("schema-mismatch", message, line, fix, tool=declaration.name)
    return declared, signature, returns


def _class_schema(
    declaration: Declaration, signature: ToolSignature, file: FileContext, findings: Findings
) -> JsonSchema | None:
    """Return the schema of the class of the arguments without the injected ones."""
    assert declaration.arguments_class is not None
    node, scope, _ = declaration.arguments_class
    schema = read_class_schema(file.arguments, node, scope)
    _report_notes(file.arguments.take_notes(), declaration, findings)
    if schema is None:
        message = f"the class of the arguments {ast.unparse(node)!r} cannot be read"
        line, fix = declaration.parameters_line, _FIXES["unresolved-type"]
        findings.warn("unresolved-type", message, line, fix, tool=declaration.name)
        return None
    hidden = signature.injected.keys()
    properties = {k: v for k, v in schema.get("properties", {}).items() if k not in hidden}
    required = [name for name in schema.get("required", ()) if name not in hidden]
    schema = {**schema, "properties": properties, "required": required}
    return schema if required else {k: v for k, v in schema.items() if k != "required"}


def _whole_arguments(declaration: Declaration) -> str | None:
    if declaration.arguments_class is not None:
        return "args_schema"
    name, kwargs = declaration.whole_arguments, declaration.function.args.kwarg
    return f"**{name}" if kwargs is not None and kwargs.arg == name else name


def _without_hidden(documentation: Documentation, hidden: Set[str]) -> Documentation:
    visible = tuple(item for item in documentation.parameters if item.name not in hidden)
    if len(visible) == len(documentation.parameters):
        return documentation
    return documentation.model_copy(update={"parameters": visible})


_FIXES = {
    "unpassable-type": "take JSON values, such as a name, and make the object from them",
    "hidden-parameter": "take JSON values if models should pass it",
    "unresolved-type": "use a standard library or pydantic type, or a class from this folder",
    "unknown-default": "use a literal or a constant if models should see it",
    "unknown-value": "use a literal or a constant of the module",
}


_REPORTS = {
    "unknown-default": Findings.note,
    "hidden-parameter": Findings.note,
    "unpassable-type": Findings.error,
}
"""Of other rules: warnings."""


def _report_notes(notes: list[Note], declaration: Declaration, findings: Findings) -> None:
    for note in notes:
        report = _REPORTS.get(note.rule, Findings.warn)
        fix, tool = _FIXES[note.rule], declaration.name
        report(findings, note.rule, note.message, note.line, fix, tool=tool, path=note.path)


def _report_parameters(signature: ToolSignature, tool: str, findings: Findings) -> None:
    for name, line in signature.unannotated.items():
        message = f"parameter {name!r} has no type; models may pass anything"
        fix = f"annotate it, for example `{name}: str`"
        findings.warn("missing-annotation", message, line, fix, tool=tool)
    for name, line in signature.undescribed.items():
        message = f"parameter {name!r} has no description"
        fix = f"add `{name}: …` under `Args:` in the docstring"
        findings.warn("undescribed-parameter", message, line, fix, tool=tool)


def _report_unknown(
    documented: tuple[ParameterDoc, ...],
    signature: ToolSignature,
    declaration: Declaration,
    findings: Findings,
) -> None:
    """Report parameters that only the docstring has."""
    if not documented:
        return
    arguments = declaration.function.args
    variadic = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    own = [parameter.arg for parameter, _ in syntax.parameters(arguments)]
    known = {*own, *(argument.arg for argument in variadic), *signature.schema["properties"]}
    for item in documented:
        if item.name.lstrip("*") not in known:
            message = f"the docstring describes {item.name!r}, which is not a parameter"
            fix = nearest_hint(item.name, known) or "remove it, or correct its name"
            line, tool = declaration.line, declaration.name
            findings.warn("unknown-parameter", message, line, fix, tool=tool)


def _properties(schema: JsonSchema) -> dict[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _mismatches(
    declared: JsonSchema, signature: ToolSignature, *, has_defaults: bool
) -> Iterator[str]:
    properties = declared.get("properties", {})
    if not isinstance(properties, dict):
        return
    if not signature.accepts_any_name:
        for name in properties:
            if name not in signature.schema["properties"]:
                yield f"the schema has {name!r}, which the function does not accept"
    required = declared.get("required", [])
    for name in signature.schema.get("required", []):
        if name not in properties:
            yield f"the function requires {name!r}, which the schema does not have"
        elif name not in required and not has_defaults:
            yield f"the function requires {name!r}, which is optional in the schema"
