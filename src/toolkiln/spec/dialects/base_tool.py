"""`BaseTool` subclasses: `name`, `description`, `execute(args)` and their relatives."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from toolkiln.model import Dialect
from toolkiln.spec.annotations.values import Unknown, evaluate
from toolkiln.spec.argument_lists import argument_schema
from toolkiln.spec.declaration import Declaration
from toolkiln.spec.dialects.marks import (
    base_names,
    docstring,
    methods,
    report_unknown,
    static_attribute,
)
from toolkiln.spec.modules import Function, Module, Scope
from toolkiln.spec.report import Findings


def declared(module: Module, findings: Findings) -> Iterator[Declaration]:
    """The concrete subclasses of `BaseTool`, also through a base class in the same file."""
    scope = Scope(module)
    bases: dict[str, list[ast.ClassDef]] = {}
    nodes = module.classes
    extended = {name for node in nodes for name in base_names(node, scope)}
    for node in nodes:
        names = list(base_names(node, scope))
        chain = [node, *(ancestor for name in names for ancestor in bases.get(name, ()))]
        if len(chain) == 1 and "BaseTool" not in names:
            continue
        bases[node.name] = chain
        if node.name in extended and static_attribute(node, "name") is None:
            continue  # a base for others
        execute = _method(chain, "execute")
        if execute is not None:
            yield _declaration(node, chain, execute, scope, findings)
        else:
            findings.error(
                "missing-execute",
                f"the BaseTool {node.name!r} defines no execute(args)",
                node.lineno,
                "define execute(self, args: dict) -> ToolResult",
                tool=node.name,
            )


def _declaration(
    node: ast.ClassDef,
    chain: list[ast.ClassDef],
    execute: Function,
    scope: Scope,
    findings: Findings,
) -> Declaration:
    inner = scope._replace(classes=(node,))

    def attribute(name: str) -> Any:
        found = next((v for c in chain if (v := static_attribute(c, name)) is not None), None)
        if found is None:
            return None
        try:
            return evaluate(found, inner)
        except Unknown:
            if isinstance(found, ast.Attribute):  # SemanticType.FILE of a library we do not have
                return found.attr.lower()
            report_unknown(name, found, node.name, findings)
            return None

    given = attribute("name")
    name = given if isinstance(given, str) and given else _snake(node.name)
    description = attribute("description")
    text = docstring(node) or docstring(execute)
    parameters = attribute("parameters")
    takes_dict = _takes_dict(execute)
    if not isinstance(parameters, dict) and takes_dict:
        parameters = argument_schema(docstring(execute), inner)
        parameters = parameters or argument_schema(docstring(node), inner)
        parameters = parameters or {"type": "object", "properties": {}}
    options = {
        "output_kind": attribute("output_semantic_type"),
        "stdout_kind": attribute("stdout_semantic_type"),
        "stderr_kind": attribute("stderr_semantic_type"),
        "needs_approval": _method(chain, "needs_permission") is not None,
        "display_name": attribute("display_name"),
    }
    return Declaration(
        dialect=Dialect.BASE_TOOL,
        name=name,
        entry=f"{node.name}.execute",
        line=node.lineno,
        scope=inner,
        function=None if takes_dict else execute,
        docstring=text,
        signature_docstring=docstring(execute),
        description=description if isinstance(description, str) else None,
        fallback=f"{node.name} functionality",
        named_after=node.name,
        parameters=parameters if isinstance(parameters, dict) else None,
        parameters_line=node.lineno,
        options={k: v for k, v in options.items() if v is not None},
        is_method=True,
        is_async=isinstance(execute, ast.AsyncFunctionDef),
    )


def _method(chain: list[ast.ClassDef], name: str) -> Function | None:
    return next((m for node in chain for m in methods(node) if m.name == name), None)


def _takes_dict(execute: Function) -> bool:
    names = [a.arg for a in [*execute.args.posonlyargs, *execute.args.args][1:]]
    plain = [n for n in names if n not in ("ctx", "context", "agent_state", "agent_id")]
    return (
        len(plain) == 1
        and plain[0] in ("args", "arguments", "params", "input", "kwargs")
        or (not plain and execute.args.kwarg is not None and not execute.args.kwonlyargs)
    )


def _snake(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return words.removesuffix("_tool") or words
