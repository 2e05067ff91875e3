"""Options that a tool declares: decorators, their arguments, and the typed values of options.

Decorators and base classes are recognised by name, no matter where they are imported from.
A value that is unknown or of the wrong type is a finding.
"""

import ast
import json
import math
import re
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from toolkiln import appearance
from toolkiln.model.spec import Capability
from toolkiln.spec.annotations.evaluator import Unknown, evaluate
from toolkiln.spec.findings import Findings
from toolkiln.spec.namespace import (
    ClassRef,
    External,
    Function,
    NameScope,
    external_name,
    resolve,
)
from toolkiln.spec.syntax import last_name

T = TypeVar("T", bound=str)

_KINDS = ("knowledge", "file", "file_view", "execution_result", "error", "status")
_ATLOOP_KINDS = {
    "knowledge_content": "knowledge",
    "file_content": "file",
    "file_view_result": "file_view",
    "error_message": "error",
    "status_message": "status",
}
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_SIZE = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.I)


_MAX_METADATA = 4_000
_OUR_NAMES = {"enable_parallel_execution": "parallel", "pip_requirements": "requirements"}


def our_name(option: str) -> str:
    """Return the name of an option that Letta names differently."""
    return _OUR_NAMES.get(option, option)


def requirement_text(item: Any) -> Any:
    """Return a requirement as text, also from `{"name": …, "version": …}`."""
    if not isinstance(item, dict) or "name" not in item:
        return item
    return f"{item['name']}=={version}" if (version := item.get("version")) else item["name"]


class FunctionName(NamedTuple):
    """An option value that refers to a function of the file by its entry."""

    entry: str


class DeclaredOptions:
    """Typed access to a tool's options. A value of the wrong type is reported and ignored."""

    def __init__(self, values: dict[str, Any], tool: str, line: int, findings: Findings) -> None:
        self._values = {our_name(name): value for name, value in values.items()}
        required = self._values.get("requirements")
        if isinstance(required, list | tuple):
            self._values["requirements"] = [*map(requirement_text, required)]
        self._tool = tool
        self._line = line
        self._findings = findings

    def has(self, *names: str) -> bool:
        """Return whether any of these options is declared."""
        return not self._values.keys().isdisjoint(names)

    def _checked(self, name: str, expected: str, fits: Callable[[Any], bool]) -> Any:
        """Return a value if it fits; None if it is missing, or reported."""
        value = self._values.get(name)
        if value is None or fits(value):
            return value
        self.report(name, value, expected)
        return None

    def text(self, name: str) -> str | None:
        """Return a string."""
        text: str | None = self._checked(name, "a string", lambda value: isinstance(value, str))
        return text

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings."""
        value = self._checked(name, "a list of strings", _is_texts)
        return tuple(sorted(value) if isinstance(value, set) else value or ())

    def mapping(self, name: str) -> dict[str, Any] | None:
        """Return a dict with string keys."""
        mapping: dict[str, Any] | None = self._checked(name, "a dict", _is_mapping)
        return mapping

    def schema(self) -> dict[str, Any] | None:
        """Return the schema in a TOML table, which may be JSON text."""
        value = self._values.get("parameters")
        if isinstance(value, str):
            try:
                self._values["parameters"] = json.loads(value)
            except (ValueError, RecursionError):
                self.report("parameters", value, "a dict or its JSON")
                return None
        return self.mapping("parameters")

    def metadata(self) -> dict[str, Any]:
        """Return the free dict of a tool, as JSON."""
        value = self.mapping("metadata") or {}
        try:
            text = json.dumps(value, allow_nan=False)
            if len(text) <= _MAX_METADATA:
                plain: dict[str, Any] = json.loads(text)
                return plain
        except (TypeError, ValueError, RecursionError):
            pass
        self.report("metadata", value, f"JSON of at most {_MAX_METADATA:,} characters")
        return {}

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return True or False."""
        value = self.optional_flag(name)
        return default if value is None else value

    def optional_flag(self, name: str) -> bool | None:
        """Return True, False, or None if the option is not declared."""
        flag: bool | None = self._checked(
            name, "True or False", lambda value: isinstance(value, bool)
        )
        return flag

    def approval(self, name: str) -> tuple[bool, str | None]:
        """Return whether calls need approval, and the function that decides by arguments.

        An invalid value counts as True.
        """
        value = self._values.get(name)
        if isinstance(value, FunctionName):
            return True, value.entry
        return self.flag(name, default=value is not None), None

    def number(
        self,
        name: str,
        *,
        integer: bool = False,
        minimum: int | None = 1,
        maximum: int | None = None,
        default: int | None = None,
    ) -> Any:
        """Return a number within bounds; a float only needs to be above zero."""
        value = self._values.get(name)
        if value is None:
            return default
        fits = isinstance(value, int if integer else int | float) and not isinstance(value, bool)
        fits = fits and math.isfinite(value)
        if fits and (minimum is None or value >= minimum or (not integer and value > 0)):
            if maximum is None or value <= maximum:
                return value
        bounds = " above zero" if minimum else ""
        if maximum:
            bounds = f" from {minimum or 0} to {maximum:,}"
        self.report(name, value, f"{'an integer' if integer else 'a number'}{bounds}")
        return default

    def size(self, name: str) -> int | None:
        """Return a number of bytes, given as a number or as text such as `256MB`."""
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
            value = int(match[1]) * _UNITS[match[2].lower()]
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        self.report(name, value, "a number of bytes, or text such as '256MB'")
        return None

    def choice(self, name: str, choices: tuple[T, ...]) -> T | None:
        """Return one of the choices."""
        value: T | None = self._values.get(name)
        if value is None or value in choices:
            return value
        self.report(name, value, f"one of {', '.join(choices)}")
        return None

    def kind(self, name: str) -> Any:
        """Return an output kind, also by its name in atloop; case and dashes do not matter."""
        value = self._values.get(name)
        if isinstance(value, str):
            value = value.strip().lower().replace(" ", "_").replace("-", "_")
            value = _ATLOOP_KINDS.get(value, value)
        if value is None or value in _KINDS:
            return value
        self.report(name, value, f"one of {', '.join(_KINDS)}")
        return None

    def capabilities(self, name: str) -> tuple[Capability, ...]:
        """Return a list of capabilities."""
        known = {item.value for item in Capability}
        texts = self.texts(name)
        for text in texts:
            if text not in known:
                self.report(name, text, f"one of {', '.join(sorted(known))}")
        return tuple(Capability(text) for text in texts if text in known)

    def icon(self, name: str) -> str | None:
        """Return the name of a Lucide icon; a fallback for an unknown one."""
        icon = self._drawable(name, "bad-icon", appearance.icon_problem)
        return icon and (appearance.icon_name(icon) or appearance.FALLBACK_ICON)

    def color(self, name: str) -> str | None:
        """Return a color."""
        return self._drawable(name, "bad-color", appearance.color_problem)

    def _drawable(self, name: str, rule: str, check: Callable[[str], str | None]) -> str | None:
        value = self.text(name)
        problem = check(value) if value else None
        if problem:
            self._findings.warn(rule, problem, self._line, f"correct {name}", tool=self._tool)
        return value

    def report(self, name: str, value: Any, expected: str) -> None:
        """Report a value of the wrong type."""
        message = f"{name} is {repr(value)[:40]}, not {expected}"
        fix = f"set {name} to {expected}"
        self._findings.error("bad-option", message, self._line, fix, tool=self._tool)


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple | set) and all(isinstance(v, str) for v in value)


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


class Decorator(NamedTuple):
    """A decorator with the last part of its name."""

    name: str
    call: ast.Call | None
    """None if it has no arguments."""
    origin: str
    """The dotted path of an imported decorator, or ""."""
    server: str = ""
    """The variable of which the decorator is a method: `mcp` in `@mcp.tool`."""

    @property
    def is_own(self) -> bool:
        """Whether it is one of Toolkiln, as far as the file says."""
        return not self.server and self.origin.partition(".")[0] in ("", "toolkiln")


def decorators(node: Function | ast.ClassDef, scope: NameScope) -> Iterator[Decorator]:
    """Yield the decorators of a function or class."""
    for decorator in node.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        function = call.func if call else decorator
        origin = external_name(function, scope)
        if name := origin.rpartition(".")[2] or last_name(function):
            owner = function.value if isinstance(function, ast.Attribute) and not origin else None
            yield Decorator(name, call, origin, _first_name(owner) if owner else "")


def _first_name(node: ast.expr) -> str:
    """Return `a` for `a.b.c` and for `a`; "" for anything else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


class Base(NamedTuple):
    """A base class with the last part of its name."""

    name: str
    origin: str
    """The dotted path of a class of another module, or ""."""
    node: ast.expr


def bases(node: ast.ClassDef, scope: NameScope) -> Iterator[Base]:
    """Yield the base classes of a class."""
    for base in node.bases:
        inner = base.value if isinstance(base, ast.Subscript) else base
        target = resolve(inner, scope)
        external = target.name if isinstance(target, External) else ""
        name = external.rpartition(".")[2] or last_name(inner)
        if isinstance(target, ClassRef) and target.scope.module is not scope.module:
            yield Base(name, f"{target.scope.module.name}.{target.node.name}", base)
        else:
            yield Base(name, external, base)


def keywords(
    call: ast.Call | None,
    scope: NameScope,
    findings: Findings,
    tool: str,
    *,
    positional: Sequence[str] = (),
    known: Container[str] | None = None,
) -> dict[str, Any]:
    """Return the arguments of a decorator by name, and report those with unknown values.

    `known` are the arguments that matter; the others are left out.
    """
    if call is None:
        return {}
    arguments: list[tuple[str | None, ast.expr]] = [*zip(positional, call.args, strict=False)]
    arguments += [(keyword.arg, keyword.value) for keyword in call.keywords]
    values: dict[str, Any] = {}
    for name, node in arguments:
        if known is not None and name not in known:
            continue
        try:
            if name is None:
                values |= evaluate(node, scope)
            elif name != "settings":
                values[name] = evaluate(node, scope)
        except (Unknown, TypeError):
            if name == "output_kind" and isinstance(node, ast.Attribute):
                values[name] = node.attr.lower()  # OutputKind.FILE
            elif name == "annotations" and isinstance(node, ast.Call):  # ToolAnnotations(…)
                values[name] = keywords(node, scope, findings, tool)
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


def methods(node: ast.ClassDef) -> list[Function]:
    """Return the methods of a class."""
    return [child for child in node.body if isinstance(child, Function)]


def is_static(method: Function) -> bool:
    """Return whether a method is a static method."""
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in method.decorator_list)
