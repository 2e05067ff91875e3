"""Module constants `TOOL_NAME`, `TOOL_DESCRIPTION`, `TOOL_PARAMETERS` with `run(…)`."""

import ast
from collections.abc import Iterator
from typing import Any, TypeVar

from toolkiln.model import Dialect, JsonSchema
from toolkiln.spec.annotations.values import Unknown, evaluate
from toolkiln.spec.declaration import Declaration
from toolkiln.spec.dialects.marks import approval_function, docstring, report_unknown
from toolkiln.spec.modules import Assigned, Function, Module, Scope
from toolkiln.spec.report import Findings

T = TypeVar("T", str, dict[str, Any])

_ASKED = "needs_permission"
_CONSTANTS = ("TOOL_NAME", "TOOL_DESCRIPTION", "TOOL_PARAMETERS")


def is_present(module: Module) -> bool:
    """Whether the file sets any of the constants."""
    return any(name in module.bindings for name in _CONSTANTS)


def declared(module: Module, findings: Findings) -> Iterator[Declaration]:
    """The one tool of a file with these constants."""
    bound = {n: b for n in _CONSTANTS if isinstance(b := module.bindings.get(n), Assigned)}
    if not bound:
        return
    run = module.bindings.get("run")
    if not isinstance(run, ast.FunctionDef | ast.AsyncFunctionDef):
        findings.error(
            "missing-run",
            f"the file sets {' and '.join(bound)} but defines no function run()",
            next(iter(bound.values())).value.lineno,
            "define run(...) with one parameter for each property of the schema",
        )
        return
    name = _value("TOOL_NAME", str, bound, module, findings) or run.name
    parameters = _value("TOOL_PARAMETERS", dict, bound, module, findings)
    yield Declaration(
        dialect=Dialect.CONSTANTS,
        name=name,
        entry="run",
        line=run.lineno,
        scope=Scope(module),
        function=run,
        docstring=docstring(run) or docstring(module.tree),
        description=_value("TOOL_DESCRIPTION", str, bound, module, findings),
        fallback=f"{name} function",
        named_after=name,
        parameters=_whole(parameters, run) if parameters else parameters,
        parameters_line=bound["TOOL_PARAMETERS"].value.lineno if parameters else run.lineno,
        options=_approval(module, name, run.lineno, findings),
        is_async=isinstance(run, ast.AsyncFunctionDef),
    )


def _approval(module: Module, tool: str, line: int, findings: Findings) -> dict[str, Any]:
    if _ASKED not in module.bindings:
        return {}
    entry = approval_function(_ASKED, line, Scope(module), tool, findings)
    return {"needs_approval": entry or True}


def _value(
    name: str, kind: type[T], bound: dict[str, Assigned], module: Module, findings: Findings
) -> T | None:
    """The value of a constant; one that is missing, unknown or of another kind is None."""
    if name not in bound:
        return None
    node = bound[name].value
    try:
        value = evaluate(node, Scope(module))
    except Unknown:
        report_unknown(name, node, "run", findings)
        return None
    if isinstance(value, kind):
        return value
    wanted = {str: "a string", dict: "a dict"}[kind]
    message = f"{name} is {repr(value)[:40]}, not {wanted}"
    findings.error("bad-option", message, node.lineno, f"set {name} to {wanted}", tool="run")
    return None


def _whole(parameters: JsonSchema, run: Function) -> JsonSchema:
    """A whole schema, also where only its properties are written down."""
    is_whole = isinstance(parameters.get("type"), str) or "$ref" in parameters
    if is_whole or not all(isinstance(value, dict) for value in parameters.values()):
        return parameters
    if set(parameters) == {"properties"}:
        return {"type": "object", **parameters}
    positional = [*run.args.posonlyargs, *run.args.args]
    optional = {a.arg for a in positional[len(positional) - len(run.args.defaults) :]}
    optional |= {
        a.arg
        for a, default in zip(run.args.kwonlyargs, run.args.kw_defaults, strict=True)
        if default
    }
    required = [name for name in parameters if name not in optional]
    return {"type": "object", "properties": parameters, "required": required}
