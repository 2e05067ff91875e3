"""Module constants `TOOL_NAME`, `TOOL_DESCRIPTION`, `TOOL_PARAMETERS` with `run(…)`."""

import ast
from collections.abc import Iterator
from typing import Any

from toolkiln.model import Dialect, JsonSchema
from toolkiln.spec.annotations.values import Unknown, evaluate
from toolkiln.spec.declaration import Declaration
from toolkiln.spec.dialects.marks import docstring, report_unknown
from toolkiln.spec.modules import Assigned, Function, Module, Scope
from toolkiln.spec.report import Findings

_CONSTANTS = ("TOOL_NAME", "TOOL_DESCRIPTION", "TOOL_PARAMETERS")


def declared(module: Module, findings: Findings) -> Iterator[Declaration]:
    """The one tool of a file with these constants."""
    bound = {n: b for n in _CONSTANTS if isinstance(b := module.bindings.get(n), Assigned)}
    if not bound:
        return
    run = module.bindings.get("run")
    first = next(iter(bound.values())).value
    if not isinstance(run, ast.FunctionDef | ast.AsyncFunctionDef):
        findings.error(
            "missing-run",
            f"the file sets {' and '.join(bound)} but defines no function run()",
            first.lineno,
            "define run(...) with one parameter for each property of the schema",
        )
        return
    values = {name: _value(name, assigned, module, findings) for name, assigned in bound.items()}
    name = values.get("TOOL_NAME") or run.name
    parameters = values.get("TOOL_PARAMETERS")
    description = values.get("TOOL_DESCRIPTION")
    yield Declaration(
        dialect=Dialect.CONSTANTS,
        name=str(name),
        entry="run",
        line=run.lineno,
        scope=Scope(module),
        function=run,
        docstring=docstring(run) or docstring(module.tree),
        description=description if isinstance(description, str) else None,
        fallback=f"{name} function",
        named_after=str(name),
        parameters=_whole(parameters, run) if isinstance(parameters, dict) else None,
        parameters_line=bound["TOOL_PARAMETERS"].value.lineno if parameters else run.lineno,
        is_async=isinstance(run, ast.AsyncFunctionDef),
    )


def _value(name: str, assigned: Assigned, module: Module, findings: Findings) -> Any:
    try:
        return evaluate(assigned.value, Scope(module))
    except Unknown:
        report_unknown(name, assigned.value, "run", findings)
        return None


def _whole(parameters: JsonSchema, run: Function) -> JsonSchema:
    """A whole schema, also where only its properties are written down."""
    bare = bool(parameters) and not {"type", "properties", "$ref"} & parameters.keys()
    if not bare or not all(isinstance(value, dict) for value in parameters.values()):
        return parameters
    positional = [*run.args.posonlyargs, *run.args.args]
    optional = {a.arg for a in positional[len(positional) - len(run.args.defaults) :]}
    optional |= {
        a.arg
        for a, default in zip(run.args.kwonlyargs, run.args.kw_defaults, strict=True)
        if default
    }
    required = [name for name in parameters if name not in optional]
    return {"type": "object", "properties": parameters, "required": required}
