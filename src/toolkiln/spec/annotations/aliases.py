"""Assigned names as types: aliases, `TypeVar`, `NewType`, `TypeAliasType`, functional classes."""

import ast
from typing import TYPE_CHECKING

from toolkiln.model import JsonSchema
from toolkiln.spec.annotations import calls, classes, enums
from toolkiln.spec.annotations.definitions import target as refers_to
from toolkiln.spec.annotations.expressions import type_variables, union_members
from toolkiln.spec.annotations.lineage import functional_class
from toolkiln.spec.annotations.shapes import Shape, Unresolved
from toolkiln.spec.annotations.values import Unknown, jsonable
from toolkiln.spec.modules import AliasRef, ClassRef, External, Scope, resolve

if TYPE_CHECKING:
    from toolkiln.spec.annotations.reader import TypeReader

Arguments = tuple[tuple[ast.expr, Scope], ...]


def alias_shape(reader: "TypeReader", target: AliasRef, arguments: Arguments) -> Shape:
    """The shape that an assigned name stands for, parametrised or not.

    Raises:
        Unresolved: it is no type, or comes from code.
    """
    value, scope = target.assigned.value, target.scope
    if isinstance(value, ast.Call):
        return _made(reader, target.name, value, scope, arguments)
    if target.assigned.type_params is not None:
        parameters = target.assigned.type_params
        return _type_alias(reader, target.name, value, scope, parameters, arguments)
    if arguments:
        scope = _filled(scope, tuple(type_variables(value, scope)), arguments)
    with reader.opened(scope.module.name, target.name):
        return reader.shape(value, scope)


def _filled(scope: Scope, parameters: tuple[str, ...], arguments: Arguments) -> Scope:
    given = dict(zip(parameters, arguments, strict=False))
    return scope._replace(variables={**scope.variables, **given})


def _type_alias(
    reader: "TypeReader",
    name: str,
    value: ast.expr,
    scope: Scope,
    parameters: tuple[str, ...],
    arguments: Arguments,
) -> Shape:
    """A `type` statement, which pydantic keeps as a definition."""
    label = name
    if arguments:
        label += f"_{'_'.join(ast.unparse(node) for node, _ in arguments)}_"
    inner = _filled(scope, parameters, arguments)
    key = (scope.module.name, name, label)

    def build() -> JsonSchema:
        shape = reader.shape(value, inner)
        if shape.kind == "enum":  # pydantic repeats an enum under the alias
            shape = Shape("enum", dict(reader.definitions.schemas[refers_to(shape.schema)]))
        reader.definitions.aliases[reader.definitions.name(key)] = shape
        return shape.render()

    return reader.define(key, label, "alias", build)


def _made(
    reader: "TypeReader", name: str, call: ast.Call, scope: Scope, arguments: Arguments
) -> Shape:
    """What `X = TypeVar(…)`, `X = NewType(…)`, `X = TypedDict(…)` and the like make."""
    target = resolve(call.func, scope)
    made = target.name if isinstance(target, External) else ""
    if made == "typing.TypeVar":
        return _type_variable(reader, call, scope)
    if made == "typing.NewType" and len(call.args) == 2:
        return reader.shape(call.args[1], scope)
    if made == "typing.TypeAliasType" and len(call.args) == 2:
        listed = next((k.value for k in call.keywords if k.arg == "type_params"), call.args[1])
        parameters = tuple(type_variables(listed, scope))
        return _type_alias(reader, name, call.args[1], scope, parameters, arguments)
    try:
        members = enums.functional_members(call, scope)
    except Unknown as unknown:
        raise Unresolved(name, f"its members come from code: {unknown}") from unknown
    if members is not None:
        values = [jsonable(value) for value in members.values()]
        key = (scope.module.name, name)
        return reader.define(key, name, "enum", lambda: classes.enum_schema(values))
    functional = functional_class(name, call, made)
    if functional is not None:
        return classes.class_shape(reader, ClassRef(functional, scope), ())
    return calls.call_shape(reader, call, scope)


def _type_variable(reader: "TypeReader", call: ast.Call, scope: Scope) -> Shape:
    keywords = {k.arg: k.value for k in call.keywords}
    if "default" in keywords:
        return reader.shape(keywords["default"], scope)
    if len(call.args) > 1:
        nodes = call.args[1:]
        return reader.alternatives([m for node in nodes for m in union_members(node, scope)])
    if "bound" in keywords:
        return reader.shape(keywords["bound"], scope)
    return Shape("any", {})
