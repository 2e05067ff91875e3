"""Toolkit classes: `@tool_metadata` on the class, `@method_metadata` and `@openapi_schema`
on its methods."""

import ast
import inspect
from collections.abc import Iterator
from typing import Any

from toolkiln.model import Dialect, Toolkit
from toolkiln.spec.annotations.values import Unknown, evaluate
from toolkiln.spec.declaration import Declaration
from toolkiln.spec.dialects.marks import (
    Mark,
    docstring,
    is_static,
    keywords,
    marks,
    methods,
    report_unknown,
    settings_of,
)
from toolkiln.spec.modules import Function, Module, Scope
from toolkiln.spec.naming import display_name
from toolkiln.spec.options import FunctionName, Options
from toolkiln.spec.report import Findings

_TOOLKIT_FIELDS = (
    "display_name", "description", "icon", "color", "is_core", "weight", "visible",
    "instance",
)  # fmt: skip
_METHOD_FIELDS = ("display_name", "description", "is_core", "visible")
_ASKED = "needs_permission"
_METHOD_MARKS = {"method_metadata", "openapi_schema", "tool"}


def declared(module: Module, findings: Findings) -> Iterator[Declaration]:
    """The methods of every toolkit class."""
    scope = Scope(module)
    for node in module.classes:
        on_class = next(
            (m for m in marks(node.decorator_list, scope) if m.name == "tool_metadata"), None
        )
        marked = [
            (method, {m.name: m for m in marks(method.decorator_list, scope)})
            for method in methods(node)
        ]
        chosen = [(method, found) for method, found in marked if _METHOD_MARKS & found.keys()]
        others = [(method, found) for method, found in marked if not _METHOD_MARKS & found.keys()]
        asked = any(method.name == _ASKED and (chosen or _asks(method)) for method, _ in others)
        if on_class and not chosen:
            chosen = [(m, found) for m, found in others if not m.name.startswith("_")]
        chosen = [(m, found) for m, found in chosen if not (asked and m.name == _ASKED)]
        if not chosen:
            continue
        toolkit = _toolkit(node, on_class, scope, findings)
        common = {"needs_approval": FunctionName(f"{node.name}.{_ASKED}")} if asked else {}
        for method, found in chosen:
            declaration = _method(node, method, found, toolkit, scope, findings)
            declaration.options = common | declaration.options
            yield declaration


def _asks(method: Function) -> bool:
    """Whether a method takes all arguments as one dict, as no tool does."""
    given = method.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return names[not is_static(method) :] in (["args"], ["arguments"])


def _toolkit(node: ast.ClassDef, mark: Mark | None, scope: Scope, findings: Findings) -> Toolkit:
    call = mark.call if mark else None
    given = keywords(call, scope, findings, node.name, positional=_TOOLKIT_FIELDS)
    options = Options(given, node.name, node.lineno, findings)
    text = inspect.cleandoc(docstring(node) or "")
    return Toolkit(
        name=node.name,
        display_name=options.text("display_name") or display_name(node.name),
        description=options.text("description") or text or f"{node.name} functionality",
        icon=options.icon("icon"),
        color=options.color("color"),
        weight=options.number("weight", whole=True, least=None, otherwise=100),
        is_core=options.flag("is_core"),
        visible=options.flag("visible"),
        instance=options.choice("instance", ("call", "template")) or "call",
    )


def _method(
    node: ast.ClassDef,
    method: Function,
    found: dict[str, Mark],
    toolkit: Toolkit,
    scope: Scope,
    findings: Findings,
) -> Declaration:
    mark = found.get("method_metadata") or found.get("tool")
    order = _METHOD_FIELDS if mark and mark.name == "method_metadata" else ()
    call = mark.call if mark else None
    options = keywords(call, scope, findings, method.name, positional=order)
    by_hand = _schema(found.get("openapi_schema"), scope, findings, method.name)
    name = options.get("name") or by_hand.get("name") or method.name
    return Declaration(
        dialect=Dialect.TOOLKIT,
        name=str(name),
        entry=f"{node.name}.{method.name}",
        line=method.lineno,
        scope=scope._replace(classes=(node,)),
        function=method,
        docstring=docstring(method),
        description=options.get("description") or by_hand.get("description"),
        fallback=f"{method.name} function",
        named_after=method.name,
        parameters=by_hand.get("parameters"),
        parameters_line=method.decorator_list[0].lineno if method.decorator_list else method.lineno,
        options={"weight": toolkit.weight} | options,
        is_method=not is_static(method),
        is_async=isinstance(method, ast.AsyncFunctionDef),
        toolkit=toolkit,
        settings=settings_of(call if order == () else None, scope),
    )


def _schema(mark: Mark | None, scope: Scope, findings: Findings, tool: str) -> dict[str, Any]:
    """Name, description and parameters of a hand-written schema, in any of its wrappings."""
    if mark is None or mark.call is None:
        return {}
    arguments = [*mark.call.args, *(k.value for k in mark.call.keywords if k.arg == "schema")]
    if not arguments:
        return {}
    try:
        given = evaluate(arguments[0], scope)
    except Unknown:
        report_unknown("openapi_schema", arguments[0], tool, findings)
        return {}
    if isinstance(given, dict) and isinstance(given.get("function"), dict):
        given = given["function"]
    if not isinstance(given, dict):
        return {}
    if "properties" in given or given.get("type") == "object":
        return {"parameters": given, "description": given.get("description")}
    parameters = given.get("parameters", given.get("input_schema"))
    return {
        "name": given.get("name"),
        "description": given.get("description"),
        "parameters": parameters if isinstance(parameters, dict) else None,
    }
