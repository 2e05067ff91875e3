"""Tools of LangChain and CrewAI: `BaseTool` classes with `_run`, and `StructuredTool` objects.

Their `@tool` is read with the other decorators. `args_schema` describes the arguments in all of
them, and converts them at run time.
"""

import ast
from collections.abc import Iterator
from typing import Any

from toolkiln.model.spec import Dialect
from toolkiln.spec.annotations.evaluator import try_evaluate
from toolkiln.spec.class_attributes import (
    ClassAttributes,
    ancestry,
    attribute_of,
    field_default,
    method_of,
)
from toolkiln.spec.declaration import ArgumentsClass, Declaration
from toolkiln.spec.findings import Findings
from toolkiln.spec.names import accepted_form, accepted_name
from toolkiln.spec.namespace import (
    Assignment,
    ClassRef,
    Function,
    FunctionRef,
    Module,
    NameScope,
    external_name,
    resolve,
)
from toolkiln.spec.options import bases
from toolkiln.spec.signature import injected_type
from toolkiln.spec.syntax import docstring

PACKAGES = ("langchain", "langchain_core", "crewai", "crewai_tools")
_CALLBACKS = {"run_manager": "default", "callbacks": "default"}
"""Parameters that the frameworks fill in by name."""
_OBJECTS = {
    "StructuredTool.from_function": ("func", "coroutine", "name", "description"),
    "StructuredTool": ("name", "description"),
    "Tool.from_function": ("func", "name", "description"),
    "Tool": ("name", "func", "description"),
}
"""What creates a tool from a function, with its positional parameters."""


def is_tool_class(chain: list[ClassRef]) -> bool:
    """Return whether a `BaseTool` class is one of these frameworks."""
    if method_of(chain, "_run") or method_of(chain, "_arun"):
        return method_of(chain, "execute") is None
    origins = (base.origin for base in bases(chain[-1].node, chain[-1].scope))
    return any(origin.partition(".")[0] in PACKAGES for origin in origins)


def tool_classes(module: Module, findings: Findings) -> Iterator[Declaration]:
    """Yield the concrete subclasses of `BaseTool`."""
    scope = NameScope(module)
    extended = {base.name for node in module.classes for base in bases(node, scope)}
    for node in module.classes:
        chain = ancestry(ClassRef(node, scope), lambda name, _: name == "BaseTool")
        if not chain or not is_tool_class(chain):
            continue
        if node.name in extended and attribute_of(node, "name") is None:
            continue  # only a base class of others
        run = _run_method(chain)
        if run is None:
            if attribute_of(node, "name") is None:
                continue
            message = f"the BaseTool {node.name!r} defines no _run()"
            fix = "define _run(self, …) with one parameter for each argument"
            findings.error("missing-execute", message, node.lineno, fix, tool=node.name)
            continue
        attributes = ClassAttributes(chain, findings)
        function, owner = run
        schemas = ((attribute_of(ref.node, "args_schema"), ref.body_scope) for ref in chain)
        yield _declaration(
            Dialect.BASE_TOOL,
            attributes.text("name") or node.name,
            f"{node.name}.{function.name}",
            function,
            owner.body_scope,
            next((found for found in schemas if found[0]), (None, scope)),
            line=node.lineno,
            named_after=node.name,
            docstring=docstring(node) or docstring(function),
            signature_docstring=docstring(function),
            description=attributes.text("description"),
            is_method=True,
        )


def _run_method(chain: list[ClassRef]) -> tuple[Function, ClassRef] | None:
    """Return `_run`, or `_arun` if that is the one which is implemented."""
    found = [method for name in ("_run", "_arun") if (method := method_of(chain, name))]
    implemented = [method for method in found if not _only_raises(method[0])]
    return next(iter(implemented or found), None)


def _only_raises(function: Function) -> bool:
    return isinstance(function.body[-1], ast.Raise) and len(function.body) <= 2


def tool_objects(module: Module, findings: Findings) -> Iterator[Declaration]:
    """Yield the functions that `StructuredTool.from_function` and the like make tools of."""
    scope = NameScope(module)
    for variable, binding in module.bindings.items():
        if not isinstance(binding, Assignment) or not isinstance(binding.value, ast.Call):
            continue
        call = binding.value
        origin = external_name(call.func, scope).split(".")
        creator = ".".join(origin[-2:] if origin[-1] == "from_function" else origin[-1:])
        if origin[0] not in PACKAGES or creator not in _OBJECTS:
            continue
        values = dict(zip(_OBJECTS[creator], call.args, strict=False))
        values |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        node = values.get("func", values.get("coroutine"))
        function = resolve(node, scope) if node is not None else None
        if not isinstance(function, FunctionRef):
            message = f"{variable!r} is not a tool: its function is not one of this file"
            fix = "define a function at the top level, and pass it as func"
            findings.note("not-offered", message, call.lineno, fix)
            continue
        yield _declaration(
            Dialect.DECORATED,
            _text(values.get("name"), scope) or function.node.name,
            variable,
            function.node,
            function.scope,
            (values.get("args_schema"), scope),
            line=call.lineno,
            description=_text(values.get("description"), scope),
        )


def _declaration(
    dialect: Dialect,
    name: str,
    entry: str,
    function: Function,
    scope: NameScope,
    schema: tuple[ast.expr | None, NameScope],
    **others: Any,
) -> Declaration:
    parameters, arguments = arguments_schema(*schema)
    return Declaration(
        dialect=dialect,
        name=accepted_form(name),
        options={} if accepted_name(name) else {"display_name": name},
        entry=entry,
        function=function,
        scope=scope,
        parameters=parameters,
        arguments_class=arguments,
        injected_names=_CALLBACKS,
        **others,
    )


def arguments_schema(
    node: ast.expr | None, scope: NameScope
) -> tuple[dict[str, Any] | None, ArgumentsClass | None]:
    """Return what `args_schema` is: a JSON Schema, or a class."""
    if node is None:
        return None, None
    node = field_default(node)
    if isinstance(node, ast.Dict):
        return try_evaluate(node, scope), None
    target = resolve(node, scope)
    injected: dict[str, str] = {}
    if isinstance(target, ClassRef):
        for child in target.node.body:
            if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
                kind = injected_type(child.annotation, target.body_scope)
                if kind is not None:
                    injected[child.target.id] = kind
    return None, ArgumentsClass(node, scope, injected)


def _text(node: ast.expr | None, scope: NameScope) -> str | None:
    value = try_evaluate(node, scope)
    return value if isinstance(value, str) else None
