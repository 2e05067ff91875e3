"""`BaseTool` subclasses: `name`, `description`, `execute(args)` and their relatives."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from toolkiln.model import Dialect, JsonSchema
from toolkiln.spec.annotations.values import Unknown, evaluate
from toolkiln.spec.argument_lists import argument_schema
from toolkiln.spec.declaration import Declaration
from toolkiln.spec.dialects.marks import base_names, docstring, methods, report_unknown
from toolkiln.spec.modules import ClassRef, Function, Module, Scope, resolve
from toolkiln.spec.options import FunctionName
from toolkiln.spec.report import Findings

_DICT_NAMES = ("args", "arguments", "params", "input", "kwargs")
_FILLED_IN = ("ctx", "context", "agent_state", "agent_id")
_DEEPEST = 20


def is_present(module: Module) -> bool:
    """Whether the file has such classes, finished or not."""
    scope = Scope(module)
    return any(_lineage(ClassRef(node, scope)) for node in module.classes)


def declared(module: Module, findings: Findings) -> Iterator[Declaration]:
    """The concrete subclasses of `BaseTool`, also through base classes of ours."""
    scope = Scope(module)
    extended = {name for node in module.classes for name in base_names(node, scope)}
    for node in module.classes:
        lineage = _lineage(ClassRef(node, scope))
        if not lineage or (node.name in extended and _attribute(node, "name") is None):
            continue  # no tool, or a base for others
        execute = _method(lineage, "execute")
        if execute is None:
            findings.error(
                "missing-execute",
                f"the BaseTool {node.name!r} defines no execute(args)",
                node.lineno,
                "define execute(self, args: dict) -> ToolResult",
                tool=node.name,
            )
        else:
            yield _declaration(lineage, execute, findings)


def _lineage(reference: ClassRef, depth: int = 0) -> list[ClassRef]:
    """The class and its ancestors whose source we have, if they lead to `BaseTool`."""
    if depth > _DEEPEST:
        return []
    scope = reference.scope
    for base, name in zip(reference.node.bases, base_names(reference.node, scope), strict=False):
        if name == "BaseTool":
            return [reference]
        target = resolve(base, scope)
        above = _lineage(target, depth + 1) if isinstance(target, ClassRef) else []
        if above:
            return [reference, *above]
    return []


def _declaration(lineage: list[ClassRef], execute: Function, findings: Findings) -> Declaration:
    own = lineage[0]
    node = own.node
    given = _Attributes(lineage, findings)
    name = given.text("name") or _snake(node.name)
    whole = _whole_arguments(execute)
    parameters = given.value("parameters")
    if not isinstance(parameters, dict):
        parameters = _listed_arguments(lineage, execute) if whole else None
    options = {
        "output_kind": given.value("output_semantic_type"),
        "stdout_kind": given.value("stdout_semantic_type"),
        "stderr_kind": given.value("stderr_semantic_type"),
        "needs_approval": (
            FunctionName(f"{node.name}.needs_permission")
            if _defines(own, "needs_permission")
            else None
        ),
        "display_name": given.value("display_name"),
    }
    return Declaration(
        dialect=Dialect.BASE_TOOL,
        name=name,
        entry=f"{node.name}.execute",
        line=node.lineno,
        scope=own.body_scope,
        function=execute,
        whole_arguments=whole,
        docstring=docstring(node) or docstring(execute),
        signature_docstring=docstring(execute),
        description=given.text("description"),
        fallback=f"{node.name} functionality",
        named_after=node.name,
        parameters=parameters,
        parameters_line=node.lineno,
        options={k: v for k, v in options.items() if v is not None},
        is_method=True,
        is_async=isinstance(execute, ast.AsyncFunctionDef),
    )


class _Attributes:
    """What the class and its ancestors set, nearest first."""

    def __init__(self, lineage: list[ClassRef], findings: Findings) -> None:
        self._lineage = lineage
        self._findings = findings

    def text(self, name: str) -> str | None:
        value = self.value(name)
        return value if isinstance(value, str) and value.strip() else None

    def value(self, name: str) -> Any:
        for reference in self._lineage:
            node = _attribute(reference.node, name)
            if node is not None:
                return self._evaluated(name, node, reference)
        return None

    def _evaluated(self, name: str, node: ast.expr, reference: ClassRef) -> Any:
        if _is_self(node):
            assert isinstance(node, ast.Attribute)
            return self.value(node.attr) if node.attr != name else None
        try:
            return evaluate(node, reference.body_scope)
        except Unknown:
            if isinstance(node, ast.Attribute):  # SemanticType.FILE of a library we do not have
                return node.attr.lower()
            report_unknown(name, node, self._lineage[0].node.name, self._findings)
            return None


def _attribute(node: ast.ClassDef, name: str) -> ast.expr | None:
    """What a class attribute is set to, in the body, in `__init__` or by a property."""
    for child in node.body:
        if isinstance(child, ast.Assign):
            if any(isinstance(t, ast.Name) and t.id == name for t in child.targets):
                return child.value
        elif isinstance(child, ast.AnnAssign):
            if isinstance(child.target, ast.Name) and child.target.id == name:
                return child.value
        elif isinstance(child, ast.FunctionDef) and child.name == name:
            last = child.body[-1]
            return last.value if isinstance(last, ast.Return) else None
        elif isinstance(child, ast.FunctionDef) and child.name == "__init__":
            for inner in child.body:
                if isinstance(inner, ast.Assign) and any(
                    _is_self(t) and isinstance(t, ast.Attribute) and t.attr == name
                    for t in inner.targets
                ):
                    return inner.value
    return None


def _is_self(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    )


def _method(lineage: list[ClassRef], name: str) -> Function | None:
    return next((m for ref in lineage for m in methods(ref.node) if m.name == name), None)


def _defines(reference: ClassRef, name: str) -> bool:
    """Whether the class or any ancestor whose source we have, mixins too, has this member."""
    pending, seen = [reference], set[ast.ClassDef]()
    while pending:
        node, scope = pending.pop()
        if name in scope.module.class_bindings(node):
            return True
        if node not in seen:
            seen.add(node)
            above = (resolve(base, scope) for base in node.bases)
            pending += [target for target in above if isinstance(target, ClassRef)]
    return False


def _whole_arguments(execute: Function) -> str | None:
    """The parameter that takes all arguments as one dict, if one does."""
    names = [a.arg for a in [*execute.args.posonlyargs, *execute.args.args][1:]]
    plain = [name for name in names if name not in _FILLED_IN]
    if len(plain) == 1 and plain[0] in _DICT_NAMES:
        return plain[0]
    if not plain and execute.args.kwarg is not None and not execute.args.kwonlyargs:
        return execute.args.kwarg.arg
    return None


def _listed_arguments(lineage: list[ClassRef], execute: Function) -> JsonSchema:
    """The schema that a docstring's argument list gives; anything where there is none."""
    scope = lineage[0].body_scope
    for text in (docstring(execute), *(docstring(reference.node) for reference in lineage)):
        schema = argument_schema(text, scope)
        if schema is not None and not schema["properties"].keys() <= {*_DICT_NAMES}:
            return schema
    return {"type": "object", "properties": {}}


def _snake(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return words.removesuffix("_tool") or words
