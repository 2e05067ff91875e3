"""A function's signature → the schema of its arguments, and of its result.

Equal to what pydantic makes of the same function. What a caller never passes stays out:
`self`, and the parameters that the runtime fills in.
"""

import ast
from collections.abc import Mapping
from typing import NamedTuple

from toolkiln.model import JsonSchema
from toolkiln.spec.annotations import Note, TypeReader
from toolkiln.spec.annotations.definitions import target
from toolkiln.spec.annotations.expressions import last_name, quoted
from toolkiln.spec.annotations.shapes import Omitted, Unresolved
from toolkiln.spec.modules import AliasRef, External, Function, Scope, resolve

_INJECTED_NAMES = {"agent_state", "agent_id"}


class Signature(NamedTuple):
    """What a signature says, without the parameters that the runtime fills in."""

    schema: JsonSchema
    injected: dict[str, str]
    notes: list[Note]
    undescribed: dict[str, int]
    """Visible parameters without a description, with their lines."""
    unannotated: dict[str, int]
    takes_any: bool
    """Whether it takes arguments of any name."""


def read_signature(
    reader: TypeReader,
    function: Function,
    scope: Scope,
    texts: Mapping[str, str],
    *,
    is_method: bool,
    dunder_injected: bool = False,
) -> Signature:
    """The arguments' schema, with descriptions from `Field`, `Annotated` or `texts`."""
    properties: dict[str, JsonSchema] = {}
    required: list[str] = []
    injected: dict[str, str] = {}
    undescribed: dict[str, int] = {}
    unannotated: dict[str, int] = {}
    for argument, default in _arguments(function, is_method=is_method):
        filled = _filled_in(reader, argument, scope, dunder_injected=dunder_injected)
        if filled:
            injected[argument.arg] = filled
            continue
        if argument.annotation is None:
            unannotated[argument.arg] = argument.lineno
        try:
            field = reader.field(argument.annotation, scope, default, f"parameter {argument.arg!r}")
        except Omitted:
            continue
        name = field.metadata.validation_alias or field.metadata.alias or argument.arg
        schema = _described(field.schema, field.metadata.text or texts.get(argument.arg))
        if "description" not in schema:
            undescribed[argument.arg] = argument.lineno
        properties[name] = schema
        if field.required:
            required.append(name)
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    _variadic(function, scope, texts, reader, schema)
    rest = function.args.vararg
    if rest is not None and "description" not in properties[rest.arg]:
        undescribed[rest.arg] = rest.lineno
    return Signature(
        reader.definitions.attach(schema),
        injected,
        reader.take_notes(),
        undescribed,
        unannotated,
        function.args.kwarg is not None,
    )


def read_returns(
    reader: TypeReader, function: Function, scope: Scope
) -> tuple[JsonSchema | None, list[Note]]:
    """The schema of the serialised result, or None where it is not said or cannot be known."""
    if function.returns is None or last_name(function.returns) == "ToolResult":
        return None, []
    try:
        schema = reader.render(function.returns, scope)
    except (Unresolved, Omitted) as problem:
        name = getattr(problem, "name", "")
        reason = getattr(problem, "reason", "it asks not to be seen")
        message = f"the return type {name!r}: {reason}"
        note = Note("unresolved-type", message, function.returns.lineno)
        return None, [*reader.take_notes(), note]
    return reader.definitions.as_root(schema), reader.take_notes()


def read_class_schema(reader: TypeReader, node: ast.expr, scope: Scope) -> JsonSchema | None:
    """The schema of a settings class, or None if it cannot be known."""
    try:
        schema = reader.render(node, scope)
    except (Unresolved, Omitted):
        return None
    return reader.definitions.as_root(schema)


def _described(schema: JsonSchema, text: str | None) -> JsonSchema:
    if text and "description" not in schema:
        return {**schema, "description": text}
    return schema


def _arguments(function: Function, *, is_method: bool) -> list[tuple[ast.arg, ast.expr | None]]:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    missing = len(positional) - len(given.defaults)
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        (argument, given.defaults[index - missing] if index >= missing else None)
        for index, argument in enumerate(positional)
    ]
    if is_method and pairs:
        pairs = pairs[1:]
    return [*pairs, *zip(given.kwonlyargs, given.kw_defaults, strict=True)]


def _variadic(
    function: Function,
    scope: Scope,
    texts: Mapping[str, str],
    reader: TypeReader,
    schema: JsonSchema,
) -> None:
    """`*args: T` as an array, `**kwargs: T` as further properties."""
    rest, named = function.args.vararg, function.args.kwarg
    if rest is not None:
        items = reader.field(rest.annotation, scope, None).schema
        array = {"type": "array", "items": items}
        schema["properties"][rest.arg] = _described(array, texts.get(rest.arg))
    if named is None:
        schema["additionalProperties"] = False
    elif (unpacked := _unpacked(named.annotation, scope, reader)) is not None:
        schema["properties"] |= unpacked["properties"]
        schema["additionalProperties"] = False
        required = [*schema.get("required", []), *unpacked.get("required", [])]
        if required:
            schema["required"] = required
    else:
        values = reader.field(named.annotation, scope, None).schema
        if values:
            schema["additionalProperties"] = values


def _unpacked(node: ast.expr | None, scope: Scope, reader: TypeReader) -> JsonSchema | None:
    """The object that `**options: Unpack[Options]` spreads over the parameters."""
    if isinstance(node, ast.Subscript) and resolve(node.value, scope) == External("typing.Unpack"):
        try:
            spread = reader.render(node.slice, scope)
        except (Unresolved, Omitted):
            return None
        return reader.definitions.schemas.get(target(spread))
    return None


def _filled_in(
    reader: TypeReader, argument: ast.arg, scope: Scope, *, dunder_injected: bool
) -> str | None:
    """What the runtime gives this parameter, or None if the caller passes it."""
    name = argument.arg
    if name in _INJECTED_NAMES:
        return name
    if dunder_injected and name.startswith("__") and name.endswith("__"):
        return name
    annotation = argument.annotation
    if annotation is None:
        return "context" if name == "ctx" else None
    if "Context" in scope.module.source and _is_context(annotation, scope):
        return "context"
    return "context" if name == "ctx" and _says_little(reader, annotation, scope) else None


def _says_little(reader: TypeReader, node: ast.expr, scope: Scope) -> bool:
    """Whether a type fits a context as well as anything: `Any`, `dict`, a foreign class."""
    try:
        schema = reader.render(node, scope)
    except (Unresolved, Omitted):
        return True
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind != {"type": "null"}]
    return all(kind in ({}, {"type": "object", "additionalProperties": True}) for kind in kinds)


def _is_context(node: ast.expr, scope: Scope) -> bool:
    """Whether an annotation is `Context`, from wherever, optional, quoted or aliased."""
    match node:
        case ast.Constant(value=str()):
            try:
                return _is_context(quoted(node), scope)
            except Unresolved:
                return False
        case ast.BinOp(left=left, right=right):
            return _is_context(left, scope) or _is_context(right, scope)
        case ast.Subscript(value=owner, slice=inside):
            if last_name(owner) in ("Optional", "Union", "Annotated"):
                items = inside.elts if isinstance(inside, ast.Tuple) else [inside]
                return any(_is_context(item, scope) for item in items)
            return _is_context(owner, scope)
        case ast.Name() | ast.Attribute():
            target = resolve(node, scope)
            if isinstance(target, External):
                return target.name.rpartition(".")[2] == "Context"
            if isinstance(target, AliasRef):
                value = target.assigned.value
                if isinstance(value, ast.Call):  # TypeAliasType("Ctx", Context)
                    return any(_is_context(argument, target.scope) for argument in value.args[1:2])
                return value is not node and _is_context(value, target.scope)
            return target is None and last_name(node) == "Context"
    return False
