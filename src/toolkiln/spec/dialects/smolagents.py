"""smolagents tools: subclasses of `Tool` with `inputs`, `output_type` and `forward`."""

import ast
from collections.abc import Iterator
from typing import Any

from toolkiln.model.base import JsonSchema
from toolkiln.model.spec import Dialect
from toolkiln.spec import syntax
from toolkiln.spec.class_attributes import ClassAttributes, ancestry, attribute_of, method_of
from toolkiln.spec.declaration import Declaration
from toolkiln.spec.findings import Findings
from toolkiln.spec.namespace import ClassRef, Function, Module, NameScope
from toolkiln.spec.syntax import docstring

_TYPES = {"string", "boolean", "integer", "number", "array", "object", "null"}
"""Types of `inputs` that JSON has; `image`, `audio` and `any` may be anything."""


def is_tool(node: ast.ClassDef, scope: NameScope) -> bool:
    """Return whether a class extends smolagents' `Tool`, by import or by shape."""
    return bool(_chain(node, scope))


def _chain(node: ast.ClassDef, scope: NameScope) -> list[ClassRef]:
    chain = ancestry(ClassRef(node, scope), _is_base)
    is_imported = bool(ancestry(ClassRef(node, scope), _is_imported))
    has_shape = any(attribute_of(reference.node, "inputs") for reference in chain)
    return chain if (is_imported or has_shape) and method_of(chain, "forward") else []


def _is_base(name: str, origin: str) -> bool:
    return name == "Tool" or origin.startswith("smolagents.")


def _is_imported(_name: str, origin: str) -> bool:
    return origin.startswith("smolagents.")


def tools(module: Module, findings: Findings) -> Iterator[Declaration]:
    """Yield the tools of a file."""
    scope = NameScope(module)
    for node in module.classes:
        chain = _chain(node, scope)
        found = method_of(chain, "forward")
        if found is None:
            continue
        attributes = ClassAttributes(chain, findings)
        name = attributes.text("name")
        if name is None and attribute_of(node, "name") is None:
            continue  # only a base class of others
        forward = found[0]
        yield Declaration(
            dialect=Dialect.BASE_TOOL,
            name=name or node.name,
            entry=f"{node.name}.forward",
            line=node.lineno,
            scope=found[1].body_scope,
            function=forward,
            docstring=docstring(node) or docstring(forward),
            signature_docstring=docstring(forward),
            description=attributes.text("description"),
            named_after=name or node.name,
            parameters=_parameters(attributes.value("inputs"), forward),
            parameters_line=node.lineno,
            returns=_returns(attributes),
            is_method=True,
        )


def _parameters(inputs: Any, forward: Function) -> JsonSchema | None:
    if not isinstance(inputs, dict) or not all(isinstance(item, dict) for item in inputs.values()):
        return None
    optional = {p.arg for p, default in syntax.parameters(forward.args) if default is not None}
    required = [
        name for name, item in inputs.items() if name not in optional and not item.get("nullable")
    ]
    properties = {name: _property(item) for name, item in inputs.items()}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _returns(attributes: ClassAttributes) -> JsonSchema | None:
    schema, declared = attributes.value("output_schema"), attributes.value("output_type")
    if isinstance(schema, dict):
        return schema
    return {"type": declared} if declared in _TYPES else None


def _property(item: dict[str, Any]) -> JsonSchema:
    """Return the schema of one input; `nullable` is a type of its own in JSON Schema."""
    schema = {key: value for key, value in item.items() if key not in ("type", "nullable")}
    declared = item.get("type")
    types = declared if isinstance(declared, list) else [declared]
    if not all(name in _TYPES for name in types):
        return schema
    if item.get("nullable") and "null" not in types:
        types = [*types, "null"]
    return {"type": types[0] if len(types) == 1 else types, **schema}
