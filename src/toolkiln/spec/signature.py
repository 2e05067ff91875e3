"""Function signatures and docstring argument lists → JSON Schemas of arguments and results.

Schemas equal those that pydantic generates for the same function. `self` and the parameters
that the runtime injects are left out.
"""

import ast
import re
from collections.abc import Container, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from toolkiln.docstrings.description import arguments
from toolkiln.docstrings.parser import parse
from toolkiln.frameworks.modules import INJECTED_DEFAULTS, INJECTED_TYPES
from toolkiln.model.base import JsonSchema
from toolkiln.spec.annotations.evaluator import Unknown, evaluate, jsonable
from toolkiln.spec.annotations.expressions import last_name, quoted
from toolkiln.spec.annotations.shapes import Omitted, Unresolved, target
from toolkiln.spec.annotations.type_reader import Note, TypeReader
from toolkiln.spec.namespace import (
    AliasRef,
    ClassRef,
    External,
    Function,
    NameScope,
    external_name,
    resolve,
)
from toolkiln.spec.syntax import parameters

_INJECTED_TYPE = re.compile(
    "|".join({"Context", *(name.rpartition(".")[2] for name in INJECTED_TYPES)})
)
"""The words of which a file has at least one if it has parameters that are injected by type."""

_INJECTED_NAMES = {"ctx": "context", "agent_state": "agent_state"}
"""What the runtime injects by the name of a parameter, unless its type is one of JSON."""


class ToolSignature(NamedTuple):
    """The schema of a signature, its injected parameters, and what is missing from it."""

    schema: JsonSchema
    injected: dict[str, str]
    notes: list[Note]
    undescribed: dict[str, int]
    """Lines of the parameters without a description."""
    unannotated: dict[str, int]
    """Lines of the parameters without a type."""
    accepts_any_name: bool
    """Whether it has `**kwargs`."""
    hidden: frozenset[str]
    """Parameters that are injected, or that no model can pass and that have a default."""


def read_signature(
    reader: TypeReader,
    function: Function,
    scope: NameScope,
    descriptions: Mapping[str, str],
    *,
    is_method: bool,
    dunder_injected: bool = False,
    injected_names: Mapping[str, str] = MappingProxyType({}),
    declared: Container[str] = (),
) -> ToolSignature:
    """Read a signature; descriptions come from `Field`, `Annotated` or `descriptions`.

    `declared` are the parameters that a hand-written schema has: callers pass them.
    """
    properties: dict[str, JsonSchema] = {}
    required: list[str] = []
    injected: dict[str, str] = {}
    hidden: set[str] = set()
    undescribed: dict[str, int] = {}
    unannotated: dict[str, int] = {}
    has_self = is_method and bool(function.args.posonlyargs or function.args.args)
    for parameter, default in parameters(function.args)[has_self:]:
        name = parameter.arg
        source = injected_names.get(name) or _injected(
            reader, parameter, default, scope, dunder_injected=dunder_injected
        )
        if source and not (source == "agent_id" and name in declared):
            injected[name] = source
            continue
        if parameter.annotation is None:
            unannotated[name] = parameter.lineno
        try:
            field = reader.field(parameter.annotation, scope, default, f"parameter {name!r}")
        except Omitted:
            continue
        if field.is_unpassable and not field.required and name not in declared:
            hidden.add(name)
            continue
        schema = _described(field.schema, field.metadata.text or descriptions.get(name))
        if "description" not in schema:
            undescribed[name] = parameter.lineno
        alias = field.metadata.validation_alias or field.metadata.alias or name
        properties[alias] = schema
        if field.required:
            required.append(alias)
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    _add_variadic(function, scope, descriptions, reader, schema)
    variadic = function.args.vararg
    if variadic is not None and "description" not in properties[variadic.arg]:
        undescribed[variadic.arg] = variadic.lineno
    return ToolSignature(
        reader.definitions.attach(schema),
        injected,
        reader.take_notes(),
        undescribed,
        unannotated,
        function.args.kwarg is not None,
        frozenset({*injected, *hidden}),
    )


_SECRET_NAME = re.compile(r"(?:^|_)(?:api_?key|key|token|secret|password|credentials?)$", re.I)
_TYPE_KEYWORDS = frozenset({"type", "anyOf", "oneOf", "allOf", "enum", "const", "$ref"})


def read_constructor(reader: TypeReader, function: Function, scope: NameScope) -> JsonSchema:
    """Return the schema of the values that a constructor takes as settings.

    Parameters of other types than those of JSON are left out, and so are the switches that decide
    which methods are tools. A parameter named like a key is a secret.
    """
    schema = read_signature(reader, function, scope, {}, is_method=True).schema
    properties = {
        name: {**part, "writeOnly": True} if _SECRET_NAME.search(name) else part
        for name, part in schema["properties"].items()
        if not part.keys().isdisjoint(_TYPE_KEYWORDS)
        and not name.startswith("enable_")
        and name != "all"
    }
    required = [name for name in schema.get("required", ()) if name in properties]
    return {
        **schema,
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def read_returns(
    reader: TypeReader, function: Function, scope: NameScope
) -> tuple[JsonSchema | None, list[Note]]:
    """Return the schema of the serialised result; None if not annotated or not resolvable."""
    if function.returns is None or last_name(function.returns) == "ToolResult":
        return None, []
    try:
        schema = reader.render(function.returns, scope)
    except (Unresolved, Omitted) as problem:
        name = getattr(problem, "name", "")
        reason = getattr(problem, "reason", "it is excluded from schemas")
        message = f"the return type {name!r}: {reason}"
        note = Note("unresolved-type", message, function.returns.lineno)
        return None, [*reader.take_notes(), note]
    return reader.definitions.as_root(schema), reader.take_notes()


def read_class_schema(reader: TypeReader, node: ast.expr, scope: NameScope) -> JsonSchema | None:
    """Return the schema of a settings class, or None if it cannot be resolved."""
    try:
        schema = reader.render(node, scope)
    except (Unresolved, Omitted):
        return None
    return reader.definitions.as_root(schema)


def _described(schema: JsonSchema, description: str | None) -> JsonSchema:
    if description and "description" not in schema:
        return {**schema, "description": description}
    return schema


def _add_variadic(
    function: Function,
    scope: NameScope,
    descriptions: Mapping[str, str],
    reader: TypeReader,
    schema: JsonSchema,
) -> None:
    """Add `*args: T` as an array property and `**kwargs: T` as additional properties."""
    args, kwargs = function.args.vararg, function.args.kwarg
    if args is not None:
        items = reader.field(args.annotation, scope, None).schema
        array = {"type": "array", "items": items}
        schema["properties"][args.arg] = _described(array, descriptions.get(args.arg))
    if kwargs is None:
        schema["additionalProperties"] = False
    elif (unpacked := _unpacked(kwargs.annotation, scope, reader)) is not None:
        schema["properties"] |= unpacked["properties"]
        schema["additionalProperties"] = False
        required = [*schema.get("required", []), *unpacked.get("required", [])]
        if required:
            schema["required"] = required
    else:
        values = reader.field(kwargs.annotation, scope, None).schema
        if values:
            schema["additionalProperties"] = values


def _unpacked(node: ast.expr | None, scope: NameScope, reader: TypeReader) -> JsonSchema | None:
    """Return the object schema of `**options: Unpack[Options]`."""
    if isinstance(node, ast.Subscript) and external_name(node.value, scope) == "typing.Unpack":
        try:
            reference = reader.render(node.slice, scope)
        except (Unresolved, Omitted):
            return None
        return reader.definitions.schemas.get(target(reference))
    return None


def _injected(
    reader: TypeReader,
    parameter: ast.arg,
    default: ast.expr | None,
    scope: NameScope,
    *,
    dunder_injected: bool,
) -> str | None:
    """Return what the runtime injects for a parameter, or None if the caller passes it."""
    name, annotation = parameter.arg, parameter.annotation
    if dunder_injected and name.startswith("__") and name.endswith("__"):
        return name
    if isinstance(default, ast.Call) and external_name(default.func, scope) in INJECTED_DEFAULTS:
        return "default"
    if name == "agent_id":  # without an agent it is None, which the tool has to expect
        expects_none = isinstance(default, ast.Constant) and default.value is None
        return name if expects_none else None
    source = _INJECTED_NAMES.get(name)
    if annotation is None:
        return source
    if _has_injected_types(scope.module.source):
        if found := injected_type(annotation, scope):
            return found
    return source if source and _is_unspecific(reader, annotation, scope) else None


def _is_unspecific(reader: TypeReader, node: ast.expr, scope: NameScope) -> bool:
    """Return whether a type may be a context: `Any`, `dict` or an external class."""
    try:
        schema = reader.render(node, scope)
    except (Unresolved, Omitted):
        return True
    options = [option for option in schema.get("anyOf", [schema]) if option != {"type": "null"}]
    return all(o in ({}, {"type": "object", "additionalProperties": True}) for o in options)


@lru_cache(maxsize=64)
def _has_injected_types(source: str) -> bool:
    return _INJECTED_TYPE.search(source) is not None


def injected_type(node: ast.expr, scope: NameScope) -> str | None:
    """Return what the runtime injects for a type, also optional, quoted or aliased.

    These are all classes named `Context`, and those of frameworks that have stand-ins.
    """
    match node:
        case ast.Constant(value=str()):
            try:
                return injected_type(quoted(node), scope)
            except Unresolved:
                return None
        case ast.BinOp(left=left, right=right):
            return injected_type(left, scope) or injected_type(right, scope)
        case ast.Subscript(value=owner, slice=inside):
            if last_name(owner) in ("Optional", "Union", "Annotated"):
                items = inside.elts if isinstance(inside, ast.Tuple) else [inside]
                return next(filter(None, (injected_type(item, scope) for item in items)), None)
            return injected_type(owner, scope)
        case ast.Call(func=function, args=arguments):
            kind = injected_type(function, scope)
            match arguments:
                case [ast.Constant(value=str(name))] if kind and ":" in kind:
                    return f"{kind}:{name}"  # Annotated[str, InjectedState("user")]
            return kind
        case ast.Name() | ast.Attribute():
            target = resolve(node, scope)
            if isinstance(target, External):
                is_context = target.name.rpartition(".")[2] == "Context"
                return INJECTED_TYPES.get(target.name, "context" if is_context else None)
            if isinstance(target, ClassRef):  # the framework's module, beside the file
                name = f"{target.scope.module.name}.{target.qualname}"
                return INJECTED_TYPES.get(name)
            if isinstance(target, AliasRef):
                value = target.assigned.value
                if isinstance(value, ast.Call):  # TypeAliasType("Ctx", Context)
                    found = (injected_type(item, target.scope) for item in value.args[1:2])
                    return next(found, None)
                return None if value is node else injected_type(value, target.scope)
            return "context" if target is None and last_name(node) == "Context" else None
    return None


_TYPE_WORDS = {
    "string": "str",
    "text": "str",
    "integer": "int",
    "number": "float",
    "double": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "dictionary": "dict",
}
_DEFAULT = re.compile(r"\bdefaults?(?:\s+(?:to|is)|\s*[=:])?\s*([^\s,;)]+)", re.I)
_LIST_ITEM = re.compile(r"\n\s*[-*•] ")
_LIST_OF = re.compile(r"(?:list|array|sequence) of (\w+?)s?$", re.I)


def docstring_schema(docstring: str | None, scope: NameScope) -> JsonSchema | None:
    """Return a schema of the arguments that a docstring lists, or None if it lists none."""
    parameters = arguments(parse(docstring)) if docstring else ()
    if not docstring or not parameters:
        return None
    properties: dict[str, JsonSchema] = {}
    required = []
    for name, text in parameters:
        written = _written_type(docstring, name)
        schema = _schema(written, scope)
        own = _LIST_ITEM.split(text)[0]
        default = _DEFAULT.search(written) or _DEFAULT.search(own)
        if default:
            schema |= _default(default[1], scope)
        properties[name] = {**schema, "description": text} if text else schema
        if not default and "optional" not in f"{written}, {own}".lower():
            required.append(name)
    result: JsonSchema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return {**result, "required": required} if required else result


def _written_type(docstring: str, name: str) -> str:
    escaped = re.escape(name)
    for pattern in (
        rf"^\s*[-*]?\s*{escaped}\s*\(([^)\n]*)\)\s*:",  # Google
        rf"^\s*{escaped} : ([^\n]+)$",  # NumPy
        rf"^\s*[:@]type\s+{escaped}\s*:\s*([^\n]+)$",  # Sphinx
        rf"^\s*[:@]param\s+([^:\n]+?)\s+{escaped}\s*:",
    ):
        found = re.search(pattern, docstring, re.M)
        if found:
            return found[1].strip()
    return ""


def _schema(written: str, scope: NameScope) -> JsonSchema:
    parts = [
        part
        for part in re.split(r",(?![^\[]*\])", written)
        if part.strip().lower() not in ("optional", "required", "")
        and not part.strip().lower().startswith("default")
    ]
    text = ",".join(parts).strip().strip("`")
    if match := _LIST_OF.match(text):
        text = f"list[{_TYPE_WORDS.get(match[1].lower(), match[1])}]"
    text = _TYPE_WORDS.get(text.lower(), text)
    try:
        node = ast.parse(text, mode="eval").body
        if isinstance(node, ast.Set):  # NumPy's {'a', 'b'}
            return {"enum": sorted(evaluate(node, scope))}
        return TypeReader().render(node, scope)
    except (SyntaxError, ValueError, TypeError, Unresolved, Omitted, Unknown, RecursionError):
        return {}


def _default(text: str, scope: NameScope) -> JsonSchema:
    try:
        node = ast.parse(text.strip("`."), mode="eval").body
        return {"default": jsonable(evaluate(node, scope))}
    except (SyntaxError, ValueError, Unknown, RecursionError):
        return {}
