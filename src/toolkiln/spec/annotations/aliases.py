"""Assignments as types: aliases, `TypeVar`, `NewType`, `TypeAliasType`, functional classes."""

import ast
from typing import TYPE_CHECKING

from toolkiln.model.base import JsonSchema
from toolkiln.spec.annotations import classes, evaluator
from toolkiln.spec.annotations.class_hierarchy import functional_class
from toolkiln.spec.annotations.evaluator import Unknown, jsonable
from toolkiln.spec.annotations.expressions import type_variables, union_members
from toolkiln.spec.annotations.fields import Metadata, read_field
from toolkiln.spec.annotations.shapes import TypeShape, Unresolved, array, target
from toolkiln.spec.namespace import AliasRef, ClassRef, NameScope, external_name
from toolkiln.spec.syntax import keyword_arguments

if TYPE_CHECKING:
    from toolkiln.spec.annotations.type_reader import TypeReader

_CONSTRAINED = {
    "pydantic.conint": "builtins.int",
    "pydantic.confloat": "builtins.float",
    "pydantic.constr": "builtins.str",
    "pydantic.conbytes": "builtins.bytes",
    "pydantic.condecimal": "decimal.Decimal",
    "pydantic.condate": "datetime.date",
    "pydantic.conlist": "list",
    "pydantic.conset": "set",
    "pydantic.confrozenset": "frozenset",
}


def call_shape(reader: "TypeReader", node: ast.Call, scope: NameScope) -> TypeShape:
    """Return the shape of a call used as a type, such as `constr(max_length=3)`."""
    name = external_name(node.func, scope)
    if name == "builtins.type" and len(node.args) == 1 and ast.unparse(node.args[0]) == "None":
        return TypeShape("none", {"type": "null"})
    base = _CONSTRAINED.get(name)
    if base is None:
        raise Unresolved(ast.unparse(node.func), "a call is not a type")
    item = node.args[0] if node.args else keyword_arguments(node).get("item_type")
    if base in ("list", "set", "frozenset"):
        items = reader.render(item, scope) if item is not None else {}
        shape = array(items, base, unique=base != "list")
    else:
        shape = reader.external(base)
    metadata = Metadata()
    call = ast.Call(func=node.func, args=[], keywords=node.keywords)
    read_field(call, scope, metadata)
    metadata.updates.clear()
    reader.note_unknown(metadata, node, scope)
    return reader.apply(metadata, shape)


Arguments = tuple[tuple[ast.expr, NameScope], ...]


def alias_shape(reader: "TypeReader", alias: AliasRef, arguments: Arguments) -> TypeShape:
    """Return the shape of an alias, with type arguments if it is generic."""
    value, scope = alias.assigned.value, alias.scope
    if isinstance(value, ast.Call):
        return _called_alias(reader, alias.name, value, scope, arguments)
    if alias.assigned.type_params is not None:
        parameters = alias.assigned.type_params
        return _type_alias(reader, alias.name, value, scope, parameters, arguments)
    if arguments:
        scope = _specialized(scope, tuple(type_variables(value, scope)), arguments)
    with reader.following_alias(scope.module.name, alias.name):
        return reader.shape(value, scope)


def _specialized(scope: NameScope, parameters: tuple[str, ...], arguments: Arguments) -> NameScope:
    variables = dict(zip(parameters, arguments, strict=False))
    return scope._replace(variables={**scope.variables, **variables})


def _type_alias(
    reader: "TypeReader",
    name: str,
    value: ast.expr,
    scope: NameScope,
    parameters: tuple[str, ...],
    arguments: Arguments,
) -> TypeShape:
    """Return the shape of a `type` statement, which becomes a definition in pydantic."""
    label = name
    if arguments:
        label += f"_{'_'.join(ast.unparse(node) for node, _ in arguments)}_"
    inner = _specialized(scope, parameters, arguments)
    key = (scope.module.name, name, label)

    def build() -> JsonSchema:
        shape = reader.shape(value, inner)
        if shape.kind == "enum":  # pydantic repeats an enum under the alias
            shape = TypeShape("enum", dict(reader.definitions.schemas[target(shape.schema)]))
        reader.definitions.aliases[reader.definitions.name(key)] = shape
        return shape.render()

    return reader.define(key, label, "alias", build)


def _called_alias(
    reader: "TypeReader", name: str, call: ast.Call, scope: NameScope, arguments: Arguments
) -> TypeShape:
    """Return the shape of `X = TypeVar(…)`, `X = NewType(…)`, `X = TypedDict(…)` and the like."""
    function = external_name(call.func, scope)
    if function == "typing.TypeVar":
        return _type_variable(reader, call, scope)
    if function == "typing.NewType" and len(call.args) == 2:
        return reader.shape(call.args[1], scope)
    if function == "typing.TypeAliasType" and len(call.args) == 2:
        declared = keyword_arguments(call).get("type_params", call.args[1])
        parameters = tuple(type_variables(declared, scope))
        return _type_alias(reader, name, call.args[1], scope, parameters, arguments)
    try:
        members = evaluator.functional_members(call, scope)
    except Unknown as unknown:
        raise Unresolved(name, f"its members are computed at run time: {unknown}") from unknown
    if members is not None:
        values = [jsonable(value) for value in members.values()]
        key = (scope.module.name, name)
        return reader.define(key, name, "enum", lambda: classes.enum_schema(values))
    functional = functional_class(name, call, function)
    if functional is not None:
        return classes.class_shape(reader, ClassRef(functional, scope), ())
    return call_shape(reader, call, scope)


def _type_variable(reader: "TypeReader", call: ast.Call, scope: NameScope) -> TypeShape:
    keywords = keyword_arguments(call)
    if "default" in keywords:
        return reader.shape(keywords["default"], scope)
    if len(call.args) > 1:
        nodes = call.args[1:]
        return reader.union([m for node in nodes for m in union_members(node, scope)])
    if "bound" in keywords:
        return reader.shape(keywords["bound"], scope)
    return TypeShape("any", {})
