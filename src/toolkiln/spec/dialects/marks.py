"""Decorators and base classes recognised by name, and what their arguments say."""

import ast
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from toolkiln.spec.annotations.values import Unknown, evaluate
from toolkiln.spec.modules import External, Function, Scope, resolve
from toolkiln.spec.options import FunctionName
from toolkiln.spec.report import Findings


class Mark(NamedTuple):
    """A decorator: its short name, and its call if it has one."""

    name: str
    call: ast.Call | None
    origin: str
    """The dotted path it was imported by, as far as known."""


def marks(decorators: Sequence[ast.expr], scope: Scope) -> Iterator[Mark]:
    """The decorators, by the last part of the name that they were imported under."""
    for decorator in decorators:
        call = decorator if isinstance(decorator, ast.Call) else None
        node = call.func if call else decorator
        target = resolve(node, scope)
        origin = target.name if isinstance(target, External) else ""
        if origin:
            yield Mark(origin.rpartition(".")[2], call, origin)
        elif isinstance(node, ast.Name):
            yield Mark(node.id, call, origin)
        elif isinstance(node, ast.Attribute):
            yield Mark(node.attr, call, origin)


def base_names(node: ast.ClassDef, scope: Scope) -> Iterator[str]:
    """The base classes, each by the last part of its name."""
    for base in node.bases:
        inner = base.value if isinstance(base, ast.Subscript) else base
        target = resolve(inner, scope)
        if isinstance(target, External):
            yield target.name.rpartition(".")[2]
        elif isinstance(inner, ast.Attribute):
            yield inner.attr
        else:
            yield inner.id if isinstance(inner, ast.Name) else ""


def keywords(
    call: ast.Call | None,
    scope: Scope,
    findings: Findings,
    tool: str,
    *,
    positional: Sequence[str] = (),
) -> dict[str, Any]:
    """The arguments of a decorator by name; one that cannot be known is reported."""
    if call is None:
        return {}
    given: list[tuple[str | None, ast.expr]] = [*zip(positional, call.args, strict=False)]
    given += [(keyword.arg, keyword.value) for keyword in call.keywords]
    values: dict[str, Any] = {}
    for name, node in given:
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
    node: ast.expr, scope: Scope, tool: str, findings: Findings
) -> FunctionName | Literal[True]:
    """The function that an approval depends on; if there is none, people are always asked."""
    if isinstance(node, ast.Name):
        entry = approval_function(node.id, node.lineno, scope, tool, findings)
        return entry or True
    if isinstance(node, ast.Lambda):
        findings.error(
            "bad-option",
            "needs_approval is a lambda, which cannot be found by its name",
            node.lineno,
            "write a function at the top level of this file, and give its name",
            tool=tool,
        )
    else:
        report_unknown("needs_approval", node, tool, findings)
    return True


def approval_function(
    name: str, line: int, scope: Scope, tool: str, findings: Findings
) -> FunctionName | None:
    """The function of the file's top level that has this name."""
    found = scope.module.bindings.get(name)
    if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        return FunctionName(name)
    findings.warn(
        "unknown-value",
        f"{name!r} is no function of this file, so that people are asked before every call",
        line,
        "define it at the top level of this file: it takes the arguments as one dict and "
        "returns whether to ask",
        tool=tool,
    )
    return None


def settings_of(call: ast.Call | None, scope: Scope) -> dict[str, tuple[ast.expr, Scope]]:
    """The class that `@tool(settings=…)` names."""
    for keyword in call.keywords if call else ():
        if keyword.arg == "settings":
            return {"operator": (keyword.value, scope)}
    return {}


def report_unknown(what: str, node: ast.expr, tool: str, findings: Findings) -> None:
    """Report a declared value that only running the code would tell."""
    findings.warn(
        "unknown-value",
        f"the value of {what} is not known before the code runs",
        node.lineno,
        "write it as a literal or a constant of the module",
        tool=tool,
    )


def methods(node: ast.ClassDef) -> Iterator[Function]:
    """The methods of a class."""
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child


def is_static(method: Function) -> bool:
    """Whether the first parameter is an ordinary one."""
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in method.decorator_list)


def docstring(node: Function | ast.ClassDef | ast.Module) -> str | None:
    """The raw docstring."""
    body = node.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        text = body[0].value.value
        return text if isinstance(text, str) else None
    return None
