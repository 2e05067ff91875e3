"""Classes as tools: `BaseTool` subclasses, toolkits, and Open WebUI's `Tools` class."""

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any

from toolkiln.docstrings.description import ARGUMENTS
from toolkiln.model.base import JsonSchema
from toolkiln.model.spec import Dialect, Toolkit
from toolkiln.spec.annotations.evaluator import Unknown, evaluate
from toolkiln.spec.class_attributes import ClassAttributes, ancestry, attribute_of, defines
from toolkiln.spec.declaration import Declaration
from toolkiln.spec.dialects import agno, langchain, smolagents
from toolkiln.spec.findings import Findings
from toolkiln.spec.names import display_name
from toolkiln.spec.namespace import ClassRef, Function, Module, NameScope
from toolkiln.spec.options import (
    DeclaredOptions,
    Decorator,
    FunctionName,
    bases,
    decorators,
    is_static,
    keywords,
    methods,
    report_unknown,
    settings_of,
)
from toolkiln.spec.signature import docstring_schema
from toolkiln.spec.syntax import docstring

_INJECTED_PARAMETERS = ("ctx", "context", "agent_state", "agent_id")
_APPROVAL_METHOD = "needs_permission"


def has_base_tools(module: Module) -> bool:
    """Return whether a file has `BaseTool` subclasses, complete or not."""
    scope = NameScope(module)
    return any(ancestry(ClassRef(node, scope), _is_base_tool) for node in module.classes)


def base_tools(module: Module, findings: Findings) -> Iterator[Declaration]:
    """Yield the concrete direct and indirect subclasses of `BaseTool`."""
    scope = NameScope(module)
    extended = {base.name for node in module.classes for base in bases(node, scope)}
    for node in module.classes:
        chain = ancestry(ClassRef(node, scope), _is_base_tool)
        if not chain or langchain.is_tool_class(chain):
            continue
        if node.name in extended and attribute_of(node, "name") is None:
            continue  # not a tool, or only a base class of others
        execute = next((m for ref in chain for m in methods(ref.node) if m.name == "execute"), None)
        if execute is None:
            message = f"the BaseTool {node.name!r} defines no execute(args)"
            fix = "define execute(self, args: dict) -> ToolResult"
            findings.error("missing-execute", message, node.lineno, fix, tool=node.name)
        else:
            yield _base_tool(chain, execute, findings)


def _is_base_tool(name: str, _origin: str) -> bool:
    return name == "BaseTool"


def _base_tool(chain: list[ClassRef], execute: Function, findings: Findings) -> Declaration:
    own = chain[0]
    node = own.node
    attributes = ClassAttributes(chain, findings)
    name = attributes.text("name") or _snake_case(node.name)
    whole_arguments = _whole_arguments(execute)
    parameters = attributes.value("parameters")
    if not isinstance(parameters, dict):
        parameters = _listed_arguments(chain, execute) if whole_arguments else None
    output_kind = attributes.value("output_semantic_type") or "status"
    options = {
        "output_kind": output_kind,
        "stdout_kind": attributes.value("stdout_semantic_type") or output_kind,
        "stderr_kind": attributes.value("stderr_semantic_type") or "error",
        "needs_approval": _approval_method(node) if defines(own, _APPROVAL_METHOD) else None,
        "display_name": attributes.value("display_name"),
    }
    return Declaration(
        dialect=Dialect.BASE_TOOL,
        name=name,
        entry=f"{node.name}.execute",
        line=node.lineno,
        scope=own.body_scope,
        function=execute,
        whole_arguments=whole_arguments,
        docstring=docstring(node),
        signature_docstring=docstring(execute),
        description=attributes.text("description"),
        named_after=node.name,
        parameters=parameters,
        parameters_line=node.lineno,
        options={k: v for k, v in options.items() if v is not None},
        is_method=True,
    )


def _approval_method(node: ast.ClassDef) -> FunctionName:
    return FunctionName(f"{node.name}.{_APPROVAL_METHOD}")


def _whole_arguments(execute: Function) -> str | None:
    names = [a.arg for a in [*execute.args.posonlyargs, *execute.args.args][1:]]
    passed = [name for name in names if name not in _INJECTED_PARAMETERS]
    if len(passed) == 1 and passed[0] in ARGUMENTS:
        return passed[0]
    if not passed and execute.args.kwarg is not None and not execute.args.kwonlyargs:
        return execute.args.kwarg.arg
    return None


def _listed_arguments(chain: list[ClassRef], execute: Function) -> JsonSchema:
    """Return the schema of the arguments that a docstring lists; any object if none does."""
    scope = chain[0].body_scope
    for text in map(docstring, (execute, *(reference.node for reference in chain))):
        schema = docstring_schema(text, scope)
        if schema is not None and not schema["properties"].keys() <= {*ARGUMENTS}:
            return schema
    return {"type": "object", "properties": {}}


def _snake_case(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return words.removesuffix("_tool") or words


_TOOLKIT_FIELDS = (
    "display_name", "description", "icon", "color", "is_core", "weight", "visible",
    "usage_guide", "instance",
)  # fmt: skip
_METHOD_FIELDS = ("display_name", "description", "is_core", "visible")
_METHOD_DECORATORS = {"method_metadata", "openapi_schema", "tool"}
_TOOLKIT_BASES = ("agentpress.tool.Tool", "sandbox.tool_base.SandboxToolsBase")
"""Ends of the dotted paths of Suna's base classes."""
_BASE_METHODS = {
    "success_response", "fail_response", "get_schemas", "get_metadata", "get_method_metadata",
}  # fmt: skip


def toolkit_tools(module: Module, findings: Findings) -> Iterator[Declaration]:
    """Yield the tools of all toolkit classes: decorated methods, or all public ones."""
    scope = NameScope(module)
    extended = {base.name for node in module.classes for base in bases(node, scope)}
    for node in module.classes:
        if agno.is_toolkit(node, scope) or smolagents.is_tool(node, scope):
            continue
        class_decorator = next(
            (item for item in decorators(node, scope) if item.name == "tool_metadata"), None
        )
        tools: list[tuple[Function, dict[str, Decorator]]] = []
        others: list[tuple[Function, dict[str, Decorator]]] = []
        for method in methods(node):
            found = {item.name: item for item in decorators(method, scope)}
            (tools if _METHOD_DECORATORS & found.keys() else others).append((method, found))
        needs_approval = any(
            method.name == _APPROVAL_METHOD and (tools or _takes_arguments_dict(method))
            for method, _ in others
        )
        is_extended = node.name in extended
        if not tools and (class_decorator or (not is_extended and _is_toolkit(node, scope))):
            tools = [(method, found) for method, found in others if _is_offered(method)]
        if needs_approval:
            tools = [(m, found) for m, found in tools if m.name != _APPROVAL_METHOD]
        if not tools:
            continue
        toolkit = _toolkit(node, class_decorator, scope, findings)
        common = {"needs_approval": _approval_method(node)} if needs_approval else {}
        for method, found in tools:
            declaration = _toolkit_tool(node, method, found, toolkit, scope, findings)
            declaration.options = common | declaration.options
            yield declaration


def _is_toolkit(node: ast.ClassDef, scope: NameScope) -> bool:
    return bool(ancestry(ClassRef(node, scope), _is_toolkit_base))


def _is_toolkit_base(_name: str, origin: str) -> bool:
    return origin.endswith(_TOOLKIT_BASES)


def _is_offered(method: Function) -> bool:
    is_own = not method.name.startswith("_") and method.name not in _BASE_METHODS
    return is_own and not _is_property(method)


def _takes_arguments_dict(method: Function) -> bool:
    args = method.args
    names = [argument.arg for argument in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    return names[not is_static(method) :] in (["args"], ["arguments"])


def _toolkit(
    node: ast.ClassDef, decorator: Decorator | None, scope: NameScope, findings: Findings
) -> Toolkit:
    call = decorator.call if decorator else None
    values = keywords(call, scope, findings, node.name, positional=_TOOLKIT_FIELDS)
    options = DeclaredOptions(values, node.name, node.lineno, findings)
    text = inspect.cleandoc(docstring(node) or "")
    return Toolkit(
        name=node.name,
        display_name=options.text("display_name") or display_name(node.name),
        description=options.text("description") or text or f"{node.name} functionality",
        icon=options.icon("icon"),
        color=options.color("color"),
        weight=options.number("weight", integer=True, minimum=None, default=100),
        is_core=options.flag("is_core"),
        visible=options.flag("visible"),
        usage_guide=inspect.cleandoc(options.text("usage_guide") or ""),
        instance=options.choice("instance", ("call", "template")) or "call",
    )


def _toolkit_tool(
    node: ast.ClassDef,
    method: Function,
    found: dict[str, Decorator],
    toolkit: Toolkit,
    scope: NameScope,
    findings: Findings,
) -> Declaration:
    decorator = found.get("method_metadata") or found.get("tool")
    positional = _METHOD_FIELDS if decorator and decorator.name == "method_metadata" else ()
    call = decorator.call if decorator else None
    options = keywords(call, scope, findings, method.name, positional=positional)
    schema = _openapi_schema(found.get("openapi_schema"), scope, findings, method.name)
    name = options.get("name") or schema.get("name") or method.name
    return Declaration(
        dialect=Dialect.TOOLKIT,
        name=str(name),
        entry=f"{node.name}.{method.name}",
        scope=scope._replace(classes=(node,)),
        function=method,
        description=options.get("description") or schema.get("description"),
        parameters=schema.get("parameters"),
        parameters_line=method.decorator_list[0].lineno if method.decorator_list else method.lineno,
        options={"weight": toolkit.weight} | options,
        is_method=not is_static(method),
        toolkit=toolkit,
        settings=settings_of(call if positional == () else None, scope),
    )


def _openapi_schema(
    decorator: Decorator | None, scope: NameScope, findings: Findings, tool: str
) -> dict[str, Any]:
    """Return name, description and parameters of a hand-written schema in any provider's form."""
    if decorator is None or decorator.call is None:
        return {}
    call = decorator.call
    arguments = [*call.args, *(k.value for k in call.keywords if k.arg == "schema")]
    if not arguments:
        return {}
    try:
        schema = evaluate(arguments[0], scope)
    except Unknown:
        report_unknown("openapi_schema", arguments[0], tool, findings)
        return {}
    if isinstance(schema, dict) and isinstance(schema.get("function"), dict):
        schema = schema["function"]
    if not isinstance(schema, dict):
        return {}
    if "properties" in schema or schema.get("type") == "object":
        return {"parameters": schema, "description": schema.get("description")}
    parameters = schema.get("parameters", schema.get("input_schema"))
    return {
        "name": schema.get("name"),
        "description": schema.get("description"),
        "parameters": parameters if isinstance(parameters, dict) else None,
    }


_SETTINGS = {"Valves": "operator", "UserValves": "user"}
_FRONTMATTER = re.compile(
    r"^[ \t]*(?P<key>\w+)[ \t]*:[ \t]*"
    r"(?:[>|]-?[ \t]*\n(?P<block>(?:[ \t]+\S.*(?:\n|\Z)|\n)+)|(?P<line>\S.*))",
    re.M,
)
"""A line of the module docstring, or a block as in YAML, whose first paragraph counts."""


def open_webui_class(module: Module) -> ast.ClassDef | None:
    """Return Open WebUI's class `Tools`, the last one of a file that has several."""
    node = next((c for c in reversed(module.classes) if c.name == "Tools"), None)
    if node is None or any(isinstance(d, ast.Call) for d in node.decorator_list):
        return None
    return node if methods(node) else None


def open_webui_tools(module: Module) -> Iterator[Declaration]:
    """Yield the public methods of Open WebUI's class `Tools`."""
    node = open_webui_class(module)
    if node is None:
        return
    public = [m for m in methods(node) if not m.name.startswith("_") and not _is_property(m)]
    frontmatter = _frontmatter(docstring(module.tree) or "")
    file = module.name if module.name.isidentifier() else node.name
    toolkit = Toolkit(
        name=f"{file}.{node.name}",  # all files call their class the same
        display_name=frontmatter.get("title") or display_name(file),
        description=frontmatter.get("description")
        or (docstring(node) or "").strip()
        or f"{node.name} functionality",
        visible=True,
    )
    scope = NameScope(module, (node,))
    nested = {child.name for child in node.body if isinstance(child, ast.ClassDef)}
    settings: dict[str, tuple[ast.expr, NameScope]] = {
        kind: (ast.Name(name, ast.Load()), scope)
        for name, kind in _SETTINGS.items()
        if name in nested
    }
    for method in public:
        yield Declaration(
            dialect=Dialect.OPEN_WEBUI,
            name=method.name,
            entry=f"{node.name}.{method.name}",
            scope=scope,
            function=method,
            is_method=not is_static(method),
            dunder_injected=True,
            toolkit=toolkit,
            settings=settings,
        )


def _frontmatter(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _FRONTMATTER.finditer(inspect.cleandoc(text)):
        paragraph = inspect.cleandoc(match["block"] or match["line"]).partition("\n\n")[0]
        found.setdefault(match["key"], " ".join(paragraph.split()))
    return found


def _is_property(method: Function) -> bool:
    names = (ast.unparse(decorator).rpartition(".")[2] for decorator in method.decorator_list)
    return not {"property", "cached_property", "setter", "getter", "deleter"}.isdisjoint(names)
