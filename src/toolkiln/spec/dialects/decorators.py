"""Decorators and base classes recognised by name, and the arguments of decorators."""

import ast
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from toolkiln.spec.annotations.evaluator import Unknown, evaluate
from toolkiln.spec.findings import Findings
from toolkiln.spec.namespace import Function, NameScope, external_name
from toolkiln.spec.options import FunctionName


class Decorator(NamedTuple):
    """A decorator with the last part of its name."""

    name: str
    call: ast.Call | None
    """None if it has no arguments."""
    origin: str
    """The dotted path of an imported decorator, or ""."""


def decorators(node: Function | ast.ClassDef, scope: NameScope) -> Iterator[Decorator]:
    """Yield the decorators of a function or class."""
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        function = call.func if call else decorator
        origin = external_name(function, scope)
        if origin:
            yield Decorator(origin.rpartition(".")[2], call, origin)
        elif isinstance(function, ast.Name):
            yield Decorator(function.id, call, "")
        elif isinstance(function, ast.Attribute):
            yield Decorator(function.attr, call, "")


def base_names(node: ast.ClassDef, scope: NameScope) -> Iterator[str]:
    """Yield the last part of the name of each base class."""
    for base in node.bases:
        inner = base.value if isinstance(base, ast.Subscript) else base
        if name := external_name(inner, scope):
            yield name.rpartition(".")[2]
        elif isinstance(inner, ast.Attribute):
            yield inner.attr
        else:
            yield inner.id if isinstance(inner, ast.Name) else ""


def keywords(
    call: ast.Call | None,
    scope: NameScope,
    findings: Findings,
    tool: str,
    *,
    positional: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the arguments of a decorator by name, and report those with unknown values."""
    if call is None:
        return {}
    arguments: list[tuple[str | None, ast.expr]] = [*zip(positional, call.args, strict=False)]
    arguments += [(keyword.arg, keyword.value) for keyword in call.keywords]
    values: dict[str, Any] = {}
    for name, node in arguments:
        try:
            if name is None:
                values |= evaluate(node, scope)
            elif name != "settings":
                values[name] = evaluate(node, scope)
        except (Unknown, TypeError):
            if name == "output_kind" and isinstance(node, ast.Attribute):
                values[name] = node.attr.lower()  # OutputKind.FILE
            elif name == "needs_approval":
                values[name] = _approval(node, scope, tool, findings)
            else:
                report_unknown(name or "**", node, tool, findings)
    return values


def _approval(
    node: ast.expr, scope: NameScope, tool: str, findings: Findings
) -> FunctionName | Literal[True]:
    """Return the function that decides about approval; True if there is none."""
    if isinstance(node, ast.Name):
        return approval_function(node.id, node.lineno, scope, tool, findings) or True
    if isinstance(node, ast.Lambda):
        message = "needs_approval is a lambda, which cannot be referred to by name"
        fix = "define a function at the top level of this file, and pass it"
        findings.error("bad-option", message, node.lineno, fix, tool=tool)
    else:
        report_unknown("needs_approval", node, tool, findings)
    return True


def approval_function(
    name: str, line: int, scope: NameScope, tool: str, findings: Findings
) -> FunctionName | None:
    """Return a reference to a top-level function of the file, or report that it is missing."""
    if isinstance(scope.module.bindings.get(name), Function):
        return FunctionName(name)
    findings.warn(
        "unknown-value",
        f"{name!r} is not a function of this file, so every call needs approval",
        line,
        "define it at the top level of this file: it takes the arguments as one dict and "
        "returns whether the call needs approval",
        tool=tool,
    )
    return None


def settings_of(call: ast.Call | None, scope: NameScope) -> dict[str, tuple[ast.expr, NameScope]]:
    """Return the settings class of `@tool(settings=…)`."""
    for keyword in call.keywords if call else ():
        if keyword.arg == "settings":
            return {"operator": (keyword.value, scope)}
    return {}


def report_unknown(option: str, node: ast.expr, tool: str, findings: Findings) -> None:
    """Report an option whose value is only known at run time."""
    message = f"the value of {option} is not known before the code runs"
    fix = "write it as a literal or a constant of the module"
    findings.warn("unknown-value", message, node.lineno, fix, tool=tool)


def methods(node: ast.ClassDef) -> Iterator[Function]:
    """Yield the methods of a class."""
    for child in node.body:
        if isinstance(child, Function):
            yield child


def is_static(method: Function) -> bool:
    """Return whether a method is a static method."""
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in method.decorator_list)


def docstring(node: Function | ast.ClassDef | ast.Module) -> str | None:
    """Return the docstring without cleaning it."""
    body = node.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        text = body[0].value.value
        return text if isinstance(text, str) else None
    return None
