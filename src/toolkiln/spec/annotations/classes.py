"""Classes and aliases as types.

Enums, pydantic models, dataclasses, TypedDicts and NamedTuples become definitions, as in
pydantic. Aliases include `TypeVar`, `NewType`, `TypeAliasType` and functional classes. The
functions add to the definitions of the `TypeReader` they are given, and are mutually
recursive with it.
"""

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from toolkiln.model.base import JsonSchema
from toolkiln.spec.annotations import evaluator
from toolkiln.spec.annotations.class_hierarchy import (
    ClassField,
    ClassHierarchy,
    functional_class,
    hierarchy_of,
    type_parameters,
)
from toolkiln.spec.annotations.evaluator import Unknown, jsonable, try_evaluate
from toolkiln.spec.annotations.expressions import type_variables, union_members
from toolkiln.spec.annotations.fields import (
    Config,
    Metadata,
    property_name,
    read_config,
    read_field,
)
from toolkiln.spec.annotations.shapes import Omitted, TypeShape, Unresolved, array, target
from toolkiln.spec.namespace import AliasRef, ClassRef, NameScope, external_name
from toolkiln.spec.syntax import keyword_arguments

if TYPE_CHECKING:
    from toolkiln.spec.annotations.type_reader import TypeReader

Arguments = tuple[tuple[ast.expr, NameScope], ...]


def class_shape(reader: "TypeReader", reference: ClassRef, arguments: Arguments) -> TypeShape:
    """Return the shape of a class, with type arguments if it is generic."""
    enum = _enum_shape(reader, reference)
    if enum is not None:
        return enum
    name = reference.node.name
    label, parameters = name, ""
    variables = dict(zip(type_parameters(reference), arguments, strict=False))
    if variables:
        scope = reference.scope._replace(variables={**reference.scope.variables, **variables})
        reference = reference._replace(scope=scope)
        label = f"{name}_{'_'.join(ast.unparse(node) for node, _ in arguments)}_"
        parameters = repr([reader.render(*argument) for argument in arguments])
    hierarchy = hierarchy_of(reference)
    own_config = read_config(hierarchy)
    outer_class, outer_config = reader.current_class, reader.config
    inherits_config = not own_config and hierarchy.kind in ("dataclass", "typed-dict")
    if inherits_config and outer_config:
        reader.is_shareable = False
    key = (reference.scope.module.name, reference.qualname, parameters)

    def build() -> JsonSchema:
        config = outer_config if inherits_config else own_config
        reader.current_class, reader.config = reference, config
        try:
            schema = _BUILDERS[hierarchy.kind](reader, hierarchy, reader.definitions.name(key))
            return _class_schema(schema, hierarchy, own_config, config, is_generic=bool(variables))
        finally:
            reader.current_class, reader.config = outer_class, outer_config

    return reader.define(key, label, hierarchy.kind, build)


def root_model(reader: "TypeReader", node: ast.expr, scope: NameScope) -> TypeShape:
    """Return the shape of `RootModel[T]` without a subclass."""
    label = f"RootModel_{ast.unparse(node)}_"
    return reader.define(label, label, "model", lambda: reader.render(node, scope))


def enum_schema(values: list[Any], docstring: str | None = None) -> JsonSchema:
    """Return the schema of an enum."""
    schema: JsonSchema = {"enum": values, **type_of_values(values)}
    if docstring:
        schema["description"] = docstring
    return schema


def type_of_values(values: list[Any], null: str | None = None) -> JsonSchema:
    """Return the `type` keyword if all values have the same type, else nothing."""
    kinds = {type(value) for value in values}
    if len(kinds) != 1:
        return {}
    names = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array"}
    name = names.get(kinds.pop(), null)
    return {"type": name} if name else {}


def instance(reader: "TypeReader", reference: ClassRef, call: ast.Call, scope: NameScope) -> Any:
    """Return the JSON value of `Point(1, y=2)`, with defaults for fields that are not passed."""
    try:
        hierarchy = hierarchy_of(reference)
    except Unresolved as unresolved:
        raise Unknown(unresolved.name) from unresolved
    if hierarchy.kind not in ("model", "dataclass", "named-tuple"):
        raise Unknown(reference.node.name)
    arguments = keyword_arguments(call)
    fields = hierarchy.fields()
    arguments |= {field.name: node for field, node in zip(fields, call.args, strict=False)}
    result: dict[str, Any] = {}
    for field in fields:
        schema, metadata, *_ = reader.field(field.annotation, field.scope, field.default)
        if metadata.excluded:
            continue
        name = metadata.serialization_alias or metadata.alias or field.name
        node = arguments.get(field.name, arguments.get(name))
        if node is not None:
            result[name] = reader.value(node, scope)
        elif "default" in schema:
            result[name] = schema["default"]
        else:
            raise Unknown(field.name)
    return list(result.values()) if hierarchy.kind == "named-tuple" else result


def _enum_shape(reader: "TypeReader", reference: ClassRef) -> TypeShape | None:
    name = reference.node.name
    try:
        members = evaluator.enum_members(reference)
        if members is None:
            return None
        values = [jsonable(value) for value in members.values()]
    except Unknown as unknown:
        raise Unresolved(name, f"its values are computed at run time ({unknown})") from unknown
    key = (reference.scope.module.name, reference.qualname)
    docstring = ast.get_docstring(reference.node)
    return reader.define(key, name, "enum", lambda: enum_schema(values, docstring))


def _model_schema(reader: "TypeReader", hierarchy: ClassHierarchy, definition: str) -> JsonSchema:
    if reader.serialized:
        for _, method, scope in hierarchy.decorated("model_serializer"):
            if method.returns is not None:
                return reader.render(method.returns, scope)
    return _object_schema(reader, hierarchy, definition)


def _object_schema(reader: "TypeReader", hierarchy: ClassHierarchy, definition: str) -> JsonSchema:
    """Return the schema of a model, dataclass or TypedDict."""
    properties: dict[str, JsonSchema] = {}
    required: list[str] = []
    # Visible before it is complete: a discriminated union may refer back to it.
    reader.definitions.schemas[definition] = {"properties": properties}
    names = reader.definitions.properties.setdefault(definition, {})
    serializers = _field_serializers(hierarchy) if reader.serialized else {}
    opaque = set() if reader.serialized else _plain_validated(hierarchy)
    always = reader.serialized and reader.config.get("json_schema_serialization_defaults_required")
    for field in hierarchy.fields():
        if field.name in opaque:
            raise Unresolved(field.name, "a plain validator replaces its type")
        try:
            schema, metadata, is_required = _field(reader, field, hierarchy.kind)
        except Omitted:
            continue
        if reader.serialized and metadata.excluded:
            continue
        if field.name in serializers:
            schema = {**reader.render(*serializers[field.name]), **metadata.updates}
        name = property_name(field.name, metadata, reader.config, serialized=reader.serialized)
        names[field.name] = name
        properties[name] = _without_repeats(schema, reader.definitions.schemas)
        if is_required or always:
            required.append(name)
    if reader.serialized:
        computed = dict(_computed_fields(reader, hierarchy))
        properties |= computed
        required += computed
    result: JsonSchema = {"type": "object", "properties": properties}
    if required:
        result["required"] = required
    return result | _additional_properties(reader, hierarchy)


def _field(reader: "TypeReader", field: ClassField, kind: str) -> tuple[JsonSchema, Metadata, bool]:
    details = field.details or {}
    default = None if kind == "typed-dict" else field.default
    has_factory = kind == "dataclass" and "default_factory" in details
    is_init = try_evaluate(details.get("init"), field.scope) is not False
    if not is_init and default is None and not has_factory:
        raise Omitted
    schema, metadata, is_required, _ = reader.field(
        field.annotation, field.scope, default, f"field {field.name!r}"
    )
    extra = try_evaluate(details.get("metadata"), field.scope)
    if isinstance(extra, dict) and isinstance(extra.get("description"), str):
        schema = {"description": extra["description"], **schema}
    if field.docstring and reader.config.get("use_attribute_docstrings"):
        schema = {"description": field.docstring, **schema}
    if kind == "typed-dict":
        is_required = is_required and field.is_required_key
    return schema, metadata, is_required and not has_factory


def _additional_properties(reader: "TypeReader", hierarchy: ClassHierarchy) -> JsonSchema:
    """Return the keyword for `closed=True` or `__pydantic_extra__`."""
    if hierarchy.kind == "typed-dict":
        is_closed = any(field.owner_keyword("closed") is True for field in hierarchy.fields())
        return {"additionalProperties": False} if is_closed else {}
    if hierarchy.kind == "model" and reader.config.get("extra") == "allow":
        for owner in hierarchy.classes:
            for node in owner.node.body:
                if (
                    isinstance(node, ast.AnnAssign)
                    and ast.unparse(node.target) == "__pydantic_extra__"
                ):
                    values = reader.render(node.annotation, owner.body_scope)
                    return {"additionalProperties": values["additionalProperties"]}
    return {}


def _class_schema(
    schema: JsonSchema,
    hierarchy: ClassHierarchy,
    own_config: Config,
    config: Config,
    *,
    is_generic: bool,
) -> JsonSchema:
    """Add the class docstring, `extra` and `json_schema_extra` to a schema."""
    if hierarchy.kind == "named-tuple":
        return schema
    node = hierarchy.node
    docstring = ast.get_docstring(node)
    schema = dict(schema)
    is_generated = hierarchy.kind == "dataclass" and (docstring or "").startswith(f"{node.name}(")
    is_specialized = is_generic and hierarchy.kind in ("model", "root")
    if docstring and not is_generated and not is_specialized:
        schema.setdefault("description", docstring)
    if config.get("extra") in ("allow", "forbid"):
        schema.setdefault("additionalProperties", config["extra"] == "allow")
    extra = own_config.get("json_schema_extra")
    if isinstance(extra, dict):
        schema.update(jsonable(extra))
    elif extra is not None:
        raise Unresolved(node.name, "it changes its schema at run time")
    return schema


def _root_schema(reader: "TypeReader", hierarchy: ClassHierarchy, _definition: str) -> JsonSchema:
    for field in hierarchy.fields():
        if field.name == "root":
            return reader.field(field.annotation, field.scope, field.default).schema
    return reader.render(*hierarchy.root) if hierarchy.root else {}


def _tuple_schema(reader: "TypeReader", hierarchy: ClassHierarchy, _definition: str) -> JsonSchema:
    fields = [reader.field(f.annotation, f.scope, f.default) for f in hierarchy.fields()]
    schema: JsonSchema = {
        "type": "array",
        "prefixItems": [field.schema for field in fields],
        "maxItems": len(fields),
    }
    required = sum(field.required for field in fields)
    return {**schema, "minItems": required} if required else schema


_BUILDERS: dict[str, Callable[["TypeReader", ClassHierarchy, str], JsonSchema]] = {
    "model": _model_schema,
    "root": _root_schema,
    "dataclass": _object_schema,
    "typed-dict": _object_schema,
    "named-tuple": _tuple_schema,
}


def _without_repeats(schema: JsonSchema, definitions: dict[str, JsonSchema]) -> JsonSchema:
    """Return a reference without keywords that repeat its definition."""
    if "$ref" not in schema or len(schema) == 1:
        return schema
    definition = definitions.get(target(schema), {})
    return {k: v for k, v in schema.items() if k == "$ref" or definition.get(k, ...) != v}


def _plain_validated(hierarchy: ClassHierarchy) -> set[str]:
    """Return the fields whose type a plain validator replaces."""
    names: set[str] = set()
    for decorator, _, scope in hierarchy.decorated("field_validator"):
        if isinstance(decorator, ast.Call):
            if try_evaluate(keyword_arguments(decorator).get("mode"), scope) == "plain":
                names |= {try_evaluate(argument, scope) for argument in decorator.args}
    return names


def _field_serializers(hierarchy: ClassHierarchy) -> dict[str, tuple[ast.expr, NameScope]]:
    types: dict[str, tuple[ast.expr, NameScope]] = {}
    for decorator, method, scope in hierarchy.decorated("field_serializer"):
        if isinstance(decorator, ast.Call):
            returns = keyword_arguments(decorator).get("return_type") or method.returns
            if returns is not None:
                types |= {str(try_evaluate(a, scope)): (returns, scope) for a in decorator.args}
    return types


def _computed_fields(
    reader: "TypeReader", hierarchy: ClassHierarchy
) -> Iterator[tuple[str, JsonSchema]]:
    for decorator, method, scope in hierarchy.decorated("computed_field"):
        metadata = Metadata()
        returns = method.returns
        if isinstance(decorator, ast.Call):
            read_field(decorator, scope, metadata)
            returns = keyword_arguments(decorator).get("return_type") or returns
        if returns is None:
            raise Unresolved(method.name, "the computed field has no return type")
        schema = {**reader.render(returns, scope), "readOnly": True}
        if docstring := ast.get_docstring(method):
            schema["description"] = docstring
        name = property_name(method.name, metadata, reader.config, serialized=True)
        yield name, schema | metadata.updates


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
        shape = array(items, base)
    else:
        shape = reader.external(base)
    metadata = Metadata()
    call = ast.Call(func=node.func, args=[], keywords=node.keywords)
    read_field(call, scope, metadata)
    metadata.updates.clear()
    reader.note_unknown(metadata, node, scope)
    return reader.apply(metadata, shape)


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
        return reader.define(key, name, "enum", lambda: enum_schema(values))
    functional = functional_class(name, call, function)
    if functional is not None:
        return class_shape(reader, ClassRef(functional, scope), ())
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
