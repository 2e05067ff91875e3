"""Plain functions, and functions marked `@tool`, `@prompt` or `@resource`."""

import ast
from collections.abc import Iterator

from toolkiln.errors import nearest_hint
from toolkiln.model import Dialect, Role
from toolkiln.spec.annotations.values import evaluate_or
from toolkiln.spec.declaration import Declaration
from toolkiln.spec.dialects.marks import Mark, docstring, keywords, marks, methods, settings_of
from toolkiln.spec.modules import Function, Module, Scope
from toolkiln.spec.options import Options
from toolkiln.spec.report import Findings

_NOT_TOOLS = {"main"}
_ROLES = {role.value: role for role in Role}
"""By the name of the decorator."""


def decorated(module: Module, findings: Findings) -> Iterator[Declaration]:
    """The functions marked as one of the roles."""
    scope = Scope(module)
    for function in module.functions:
        for mark in marks(function.decorator_list, scope):
            if mark.name in _ROLES:
                yield _from_mark(function, mark, scope, findings)
    for method in (one for node in module.classes for one in methods(node)):
        for mark in marks(method.decorator_list, scope):
            if mark.name in ("prompt", "resource") and mark.origin.startswith("toolkiln."):
                message = f"{method.name!r} is a method, which cannot be a {mark.name}"
                fix = "make it a function at the top level of the file"
                findings.error("misplaced-mark", message, method.lineno, fix, tool=method.name)


def plain(module: Module) -> Iterator[Declaration]:
    """The public functions of a file without marks; of several with one name the last."""
    scope = Scope(module)
    for function in module.functions:
        name = function.name
        if name.startswith("_") or name in _NOT_TOOLS or module.bindings.get(name) is not function:
            continue
        if any(mark.name in _WRAPPERS for mark in marks(function.decorator_list, scope)):
            continue
        yield Declaration(
            dialect=Dialect.FUNCTION,
            name=name,
            entry=name,
            line=function.lineno,
            scope=scope,
            function=function,
            docstring=docstring(function),
            fallback=f"{name} function",
            named_after=name,
            is_async=isinstance(function, ast.AsyncFunctionDef),
        )


_WRAPPERS = {"overload", "fixture", "contextmanager", "asynccontextmanager", "singledispatch"}


def _from_mark(function: Function, mark: Mark, scope: Scope, findings: Findings) -> Declaration:
    call, role = mark.call, _ROLES[mark.name]
    first = "uri" if role is Role.RESOURCE else "name"
    given = keywords(call, scope, findings, function.name, positional=(first,))
    line = call.lineno if call else function.lineno
    if mark.origin.startswith("toolkiln."):
        _check_options(given, mark.name, line, function.name, findings)
    options = Options(given, function.name, line, findings)
    name = options.text("name")
    if given.get("name") == "":
        options.refuse("name", "", "a name")
    declaration = Declaration(
        dialect=Dialect.DECORATED,
        name=name or function.name,
        entry=function.name,
        line=function.lineno,
        scope=scope,
        function=function,
        docstring=docstring(function),
        description=options.text("description"),
        fallback=f"{function.name} function",
        named_after=function.name,
        parameters=options.mapping("parameters"),
        parameters_line=line,
        role=role,
        options=given,
        is_async=isinstance(function, ast.AsyncFunctionDef),
    )
    options.texts("requirements")
    declaration.requirements = _requirements(call, scope)
    declaration.settings = settings_of(call, scope)
    return declaration


def _requirements(call: ast.Call | None, scope: Scope) -> tuple[tuple[str, int], ...]:
    for keyword in call.keywords if call else ():
        if keyword.arg == "requirements" and isinstance(keyword.value, ast.List | ast.Tuple):
            return tuple(
                (str(evaluate_or(item, scope, otherwise=ast.unparse(item))), item.lineno)
                for item in keyword.value.elts
            )
    return ()


OPTIONS = {
    "name", "description", "display_name", "icon", "color", "weight", "is_core", "visible",
    "read_only", "destructive", "idempotent", "open_world", "parallel", "output_kind",
    "return_char_limit", "timeout", "memory", "cpu", "processes", "disk", "network",
    "requires_secrets", "capabilities", "workspace", "sandbox", "isolation", "pinned",
    "needs_approval", "requirements", "files", "settings", "usages", "parameters",
}  # fmt: skip
"""What `@tool` takes; a test compares it with `define.tool`."""
PROMPT_OPTIONS = OPTIONS - {
    "color", "weight", "is_core", "read_only", "destructive", "idempotent", "open_world",
    "parallel", "output_kind", "return_char_limit", "usages", "parameters",
}  # fmt: skip
"""What `@prompt` takes: nothing that only means something to a model that chooses a tool."""
_TAKES = {
    "tool": OPTIONS,
    "prompt": PROMPT_OPTIONS,
    "resource": PROMPT_OPTIONS | {"uri", "mime_type"},
}


def _check_options(
    options: dict[str, object], mark: str, line: int, tool: str, findings: Findings
) -> None:
    known = _TAKES[mark]
    for name in sorted(options.keys() - known):
        hint = nearest_hint(name, known) or f"use one of {', '.join(sorted(known))}"
        findings.error("unknown-option", f"@{mark} takes no {name!r}", line, hint, tool=tool)
