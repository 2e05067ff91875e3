"""Functions as tools: plain, decorated with `@tool` and the like, or `run` with constants."""

import ast
import re
from collections.abc import Iterator
from typing import Any, TypeVar

from toolkiln.errors import nearest_hint
from toolkiln.model.base import JsonSchema
from toolkiln.model.spec import Dialect, Role
from toolkiln.spec import syntax
from toolkiln.spec.annotations.evaluator import Unknown, evaluate, try_evaluate
from toolkiln.spec.declaration import Declaration
from toolkiln.spec.dialects import langchain
from toolkiln.spec.findings import Findings
from toolkiln.spec.names import accepted_form, accepted_name
from toolkiln.spec.namespace import Assignment, Function, Import, Module, NameScope
from toolkiln.spec.options import (
    DeclaredOptions,
    Decorator,
    approval_function,
    decorators,
    keywords,
    methods,
    our_name,
    report_unknown,
    requirement_text,
    settings_of,
)
from toolkiln.spec.syntax import docstring

_ROLES = {role.value: role for role in Role}
"""By decorator name."""
_NO_TOOL = {"overload", "fixture", "contextmanager", "asynccontextmanager", "singledispatch"}
"""Decorators of plain functions that are not tools."""
_ON_SERVER = re.compile(r"@[\w.]+\.(?:tool|prompt|resource)\b")
_PROGRAM_HELPER = re.compile(
    r"main|cli|usage|print_help|setup(?:_\w+)?|(?:configure|init)_logging|(?:\w+_)?parse_(?:args|arguments)"
    r"|(?:get|make|build|create)_(?:arg_|argument_)?parser"
)
"""Names of functions that a file has because it is also a program."""


def decorated_tools(module: Module, findings: Findings) -> Iterator[Declaration]:
    """Yield the functions decorated with `@tool`, `@prompt` or `@resource`."""
    scope = NameScope(module)
    for function in module.functions:
        for decorator in decorators(function, scope):
            if decorator.name in _ROLES:
                yield _decorated(function, decorator, scope, findings)
    yield from _local_tools(module, findings)
    yield from _added_tools(module, findings)
    for method in (method for node in module.classes for method in methods(node)):
        for decorator in decorators(method, scope):
            name = decorator.name
            if name in ("prompt", "resource") and decorator.origin.startswith("toolkiln."):
                message = f"{method.name!r} is a method and cannot be a {name}"
                fix = "make it a function at the top level of the file"
                findings.error("misplaced-mark", message, method.lineno, fix, tool=method.name)


def _local_tools(module: Module, findings: Findings) -> Iterator[Declaration]:
    """Yield the functions inside of others that a server decorates: `@mcp.tool`."""
    if not _ON_SERVER.search(module.source):
        return
    scope = NameScope(module)
    outers = [(function, function.name) for function in module.functions]
    outers += [
        (method, f"{node.name}.{method.name}")
        for node in module.classes
        for method in methods(node)
    ]
    for outer, outer_name in outers:
        for function in _functions_in(outer.body):
            for decorator in decorators(function, scope):
                if decorator.name not in _ROLES or not decorator.server:
                    continue
                entry = f"{outer_name}.<locals>.{function.name}"
                arguments = outer.args
                required = [p.arg for p, default in syntax.parameters(arguments) if default is None]
                unknown = [name for name in required if name not in (decorator.server, "self")]
                if unknown:
                    message = f"{function.name!r} is not a tool: {outer_name} needs {unknown[0]!r}"
                    fix = f"give {unknown[0]!r} a default, or declare the tool at the top level"
                    findings.note("not-offered", message, function.lineno, fix)
                else:
                    yield _decorated(function, decorator, scope, findings, entry)


def _added_tools(module: Module, findings: Findings) -> Iterator[Declaration]:
    """Yield the functions that a server is given by a call: `mcp.add_tool(f)`, `mcp.tool()(f)`."""
    if "FastMCP" not in module.source and "MCPServer" not in module.source:
        return
    scope = NameScope(module)
    for node in syntax.walk(module.tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="tool" | "add_tool") as method,
                args=[ast.Name(id=name), *more],
                keywords=options,
            ):
                call = ast.copy_location(ast.Call(method, more, options), node)
            case ast.Call(
                func=ast.Call(func=ast.Attribute(attr="tool")) as call, args=[ast.Name(id=name)]
            ):
                pass
            case _:
                continue
        function = module.bindings.get(name)
        if isinstance(function, Function):
            yield _decorated(function, Decorator("tool", call, "", name), scope, findings)


def _functions_in(body: list[ast.stmt]) -> Iterator[Function]:
    """Yield the functions that statements define, but not those inside of these."""
    for node in body:
        if isinstance(node, Function):
            yield node
        elif not isinstance(node, ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                yield from _functions_in(getattr(node, name, []))


def plain_functions(module: Module, findings: Findings) -> Iterator[Declaration]:
    """Yield the public functions of a file; of several with the same name, the last one.

    `__all__` decides which ones, and otherwise whether they have type hints or a docstring.
    """
    scope = NameScope(module)
    functions = [
        function
        for function in module.functions
        if not function.name.startswith("_")
        and module.bindings.get(function.name) is function
        and not any(decorator.name in _NO_TOOL for decorator in decorators(function, scope))
    ]
    exported = _exported(module)
    uses_agno = any(
        isinstance(binding, Import) and binding.module.partition(".")[0] == "agno"
        for binding in module.bindings.values()
    )
    has_described = any(
        _is_described(function)
        for function in functions
        if not _PROGRAM_HELPER.fullmatch(function.name)
    )
    for function in functions:
        name = function.name
        reason = None
        if exported is not None:
            reason = None if name in exported else "__all__ does not list it"
        elif _PROGRAM_HELPER.fullmatch(name):
            reason = "its name is that of a helper of a program"
        elif has_described and not _is_described(function):
            reason = "it has neither type hints nor a docstring, unlike others of this file"
        if reason is None:
            yield Declaration(
                dialect=Dialect.FUNCTION,
                name=name,
                entry=name,
                scope=scope,
                function=function,
                injected_names=agno_parameters(function) if uses_agno else {},
            )
        else:
            fix = "if it is a tool, mark it with @tool; if not, start its name with an underscore"
            findings.note("not-offered", f"{name!r} is not a tool: {reason}", function.lineno, fix)


def _exported(module: Module) -> frozenset[str] | None:
    """Return the functions in `__all__`; None if it has none, or is only known at run time."""
    exported = module.bindings.get("__all__")
    if not isinstance(exported, Assignment):
        return None
    names = try_evaluate(exported.value, NameScope(module), default=())
    functions = frozenset(function.name for function in module.functions)
    return functions.intersection(names) or None if isinstance(names, list | tuple) else None


def _is_described(function: Function) -> bool:
    """Return whether a function has type hints or a docstring."""
    hinted = (parameter.annotation for parameter, _ in syntax.parameters(function.args))
    return bool(docstring(function)) or function.returns is not None or any(hinted)


def _decorated(
    function: Function,
    decorator: Decorator,
    scope: NameScope,
    findings: Findings,
    entry: str | None = None,
) -> Declaration:
    call, role = decorator.call, _ROLES[decorator.name]
    values = decorator_options(decorator, scope, findings, function.name)
    injected = dict.fromkeys(values.pop("exclude_args", ()), "default")
    if decorator.origin.startswith("agno."):
        injected |= agno_parameters(function)
    line = call.lineno if call else function.lineno
    if decorator.origin.startswith("toolkiln."):
        _check_options(values, decorator.name, line, function.name, findings)
    options = DeclaredOptions(values, function.name, line, findings)
    name = options.text("name")
    if values.get("name") == "":
        options.report("name", "", "a name")
    options.texts("requirements")
    if not decorator.is_own and name and not accepted_name(name):
        values = {"display_name": name, **values}
        name = accepted_form(name)
    keyword = {item.arg: item.value for item in call.keywords} if call else {}
    parameters, arguments = langchain.arguments_schema(keyword.get("args_schema"), scope)
    return Declaration(
        dialect=Dialect.DECORATED,
        name=name or function.name,
        entry=entry or function.name,
        scope=scope,
        function=function,
        injected_names=injected,
        description=options.text("description"),
        parameters=options.mapping("parameters") or parameters,
        arguments_class=arguments,
        parameters_line=line,
        role=role,
        options=values,
        requirements=_requirements(call, scope),
        settings=settings_of(call, scope),
    )


_FOREIGN_OPTIONS = {
    "title": "display_name",
    "requires_confirmation": "needs_approval",
    "annotations": "annotations",
    "exclude_args": "exclude_args",
}
"""Options of other frameworks' decorators, with ours."""
_ANNOTATIONS = {
    "title": "display_name",
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}


def decorator_options(
    decorator: Decorator | None, scope: NameScope, findings: Findings, tool: str
) -> dict[str, Any]:
    """Return the options of a decorator, those of other frameworks by our names."""
    if decorator is None:
        return {}
    first = "uri" if _ROLES[decorator.name] is Role.RESOURCE else "name"
    known = None if decorator.is_own else {first, *OPTIONS, "mime_type", *_FOREIGN_OPTIONS}
    values = keywords(decorator.call, scope, findings, tool, positional=(first,), known=known)
    if decorator.is_own:
        return values
    own = {_FOREIGN_OPTIONS.get(name, name): value for name, value in values.items()}
    annotations = own.pop("annotations", None)
    if isinstance(annotations, dict):
        own |= {
            name: annotations[hint] for hint, name in _ANNOTATIONS.items() if hint in annotations
        }
    return own


_AGNO_PARAMETERS = {
    "agent": "agno:CallingAgent",
    "team": "agno:CallingAgent",
    "run_context": "agno:RunContext",
    "session_state": "agno:session_state",
    **dict.fromkeys(("images", "videos", "audios", "files"), "default"),
}


def agno_parameters(function: Function) -> dict[str, str]:
    """Return the parameters that agno fills in by name."""
    names = {parameter.arg for parameter, _ in syntax.parameters(function.args)}
    return {name: kind for name, kind in _AGNO_PARAMETERS.items() if name in names}


def _requirements(call: ast.Call | None, scope: NameScope) -> tuple[tuple[str, int], ...]:
    for keyword in call.keywords if call else ():
        listed = keyword.value
        if not isinstance(listed, ast.List | ast.Tuple):
            continue
        if our_name(keyword.arg or "") == "requirements":
            values = (try_evaluate(item, scope, default=ast.unparse(item)) for item in listed.elts)
            texts = (str(requirement_text(value)) for value in values)
            return tuple(zip(texts, (item.lineno for item in listed.elts), strict=True))
    return ()


OPTIONS = {
    "name", "description", "display_name", "icon", "color", "weight", "is_core", "visible",
    "read_only", "destructive", "idempotent", "open_world", "parallel", "output_kind",
    "return_char_limit", "timeout", "memory", "cpu", "processes", "disk", "network",
    "requires_secrets", "capabilities", "workspace", "sandbox", "isolation", "pinned",
    "needs_approval", "requirements", "files", "settings", "usages", "parameters", "metadata",
    "enable_parallel_execution", "pip_requirements",
}  # fmt: skip
"""Options of `@tool`; a test compares them with `define.tool`."""
PROMPT_OPTIONS = OPTIONS - {
    "color", "weight", "is_core", "read_only", "destructive", "idempotent", "open_world",
    "parallel", "output_kind", "return_char_limit", "usages", "parameters", "metadata",
    "enable_parallel_execution", "pip_requirements",
}  # fmt: skip
"""Options of `@prompt`: those that do not concern a model's choice of a tool."""
_DECORATOR_OPTIONS = {
    "tool": OPTIONS,
    "prompt": PROMPT_OPTIONS,
    "resource": PROMPT_OPTIONS | {"uri", "mime_type"},
}


def _check_options(
    options: dict[str, object], decorator: str, line: int, tool: str, findings: Findings
) -> None:
    accepted = _DECORATOR_OPTIONS[decorator]
    for name in sorted(options.keys() - accepted):
        hint = nearest_hint(name, accepted) or f"use one of {', '.join(sorted(accepted))}"
        message = f"@{decorator} has no option {name!r}"
        findings.error("unknown-option", message, line, hint, tool=tool)


T = TypeVar("T", str, dict[str, Any])

_CONSTANTS = ("TOOL_NAME", "TOOL_DESCRIPTION", "TOOL_PARAMETERS")


def has_constants(module: Module) -> bool:
    """Return whether a file sets any `TOOL_…` constant."""
    return any(name in module.bindings for name in _CONSTANTS)


def constant_tools(module: Module, findings: Findings) -> Iterator[Declaration]:
    """Yield the tool of a file with `TOOL_…` constants: its function `run`."""
    bindings = ((name, module.bindings.get(name)) for name in _CONSTANTS)
    constants = {name: item for name, item in bindings if isinstance(item, Assignment)}
    if not constants:
        return
    run = module.bindings.get("run")
    if not isinstance(run, Function):
        message = f"the file sets {' and '.join(constants)} but defines no function run()"
        fix = "define run(...) with one parameter for each property of the schema"
        findings.error("missing-run", message, next(iter(constants.values())).value.lineno, fix)
        return
    name = _value("TOOL_NAME", str, constants, module, findings) or run.name
    parameters = _value("TOOL_PARAMETERS", dict, constants, module, findings)
    yield Declaration(
        dialect=Dialect.CONSTANTS,
        name=name,
        entry="run",
        scope=NameScope(module),
        function=run,
        docstring=docstring(run) or docstring(module.tree),
        description=_value("TOOL_DESCRIPTION", str, constants, module, findings),
        named_after=name,
        parameters=_complete_schema(parameters, run) if parameters else parameters,
        parameters_line=constants["TOOL_PARAMETERS"].value.lineno if parameters else run.lineno,
        options=_approval(module, name, run.lineno, findings),
    )


def _approval(module: Module, tool: str, line: int, findings: Findings) -> dict[str, Any]:
    if "needs_permission" not in module.bindings:
        return {}
    entry = approval_function("needs_permission", line, NameScope(module), tool, findings)
    return {"needs_approval": entry or True}


def _value(
    name: str, kind: type[T], constants: dict[str, Assignment], module: Module, findings: Findings
) -> T | None:
    if name not in constants:
        return None
    node = constants[name].value
    try:
        value = evaluate(node, NameScope(module))
    except Unknown:
        report_unknown(name, node, "run", findings)
        return None
    if isinstance(value, kind):
        return value
    expected = {str: "a string", dict: "a dict"}[kind]
    message = f"{name} is {repr(value)[:40]}, not {expected}"
    findings.error("bad-option", message, node.lineno, f"set {name} to {expected}", tool="run")
    return None


def _complete_schema(parameters: JsonSchema, run: Function) -> JsonSchema:
    """Return an object schema, also if only its properties are given."""
    is_complete = isinstance(parameters.get("type"), str) or "$ref" in parameters
    if is_complete or not all(isinstance(value, dict) for value in parameters.values()):
        return parameters
    if set(parameters) == {"properties"}:
        return {"type": "object", **parameters}
    optional = {parameter.arg for parameter, default in syntax.parameters(run.args) if default}
    required = [name for name in parameters if name not in optional]
    return {"type": "object", "properties": parameters, "required": required}
