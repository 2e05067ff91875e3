"""Classes as types: enums, pydantic models, dataclasses, TypedDicts, NamedTuples.

Each becomes a definition of its own, the way pydantic writes it. The functions take the
`TypeReader` whose schema they add to; mutually recursive with `annotations`. Bases and
fields come from `lineage`.
"""

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from toolkiln.model import JsonSchema
from toolkiln.spec.annotations import enums
from toolkiln.spec.annotations.configuration import Config, aliased, read_config
from toolkiln.spec.annotations.definitions import target
from toolkiln.spec.annotations.fields import Metadata, read_field
from toolkiln.spec.annotations.lineage import ClassField, Lineage, trace, type_parameters
from toolkiln.spec.annotations.shapes import Omitted, Shape, Unresolved
from toolkiln.spec.annotations.values import Unknown, evaluate_or, jsonable
from toolkiln.spec.modules import ClassRef, Scope

if TYPE_CHECKING:
    from toolkiln.spec.annotations.reader import TypeReader

Arguments = tuple[tuple[ast.expr, Scope], ...]


def class_shape(reader: "TypeReader", reference: ClassRef, arguments: Arguments) -> Shape:
    """The shape of a class, parametrised or not.

    Raises:
        Unresolved: its schema cannot be known.
    """
    enum = _enum_shape(reader, reference)
    if enum is not None:
        return enum
    name = reference.node.name
    label, parameters = name, ""
    variables = dict(zip(type_parameters(reference), arguments, strict=False))
    if variables:
        given = {**reference.scope.variables, **variables}
        reference = reference._replace(scope=reference.scope._replace(variables=given))
        label = f"{name}_{'_'.join(ast.unparse(node) for node, _ in arguments)}_"
        parameters = repr([reader.render(node, scope) for node, scope in arguments])
    lineage = trace(reference)
    own = read_config(lineage)
    outer_class, outer_config = reader.current_class, reader.config
    inherits = not own and lineage.kind in ("dataclass", "typed-dict")
    if inherits and outer_config:
        reader.is_shareable = False
    key = (reference.scope.module.name, reference.qualname, parameters)

    def build() -> JsonSchema:
        reader.current_class, reader.config = reference, outer_config if inherits else own
        try:
            schema = _BUILDERS[lineage.kind](reader, lineage, reader.definitions.name(key))
            return _class_schema(schema, lineage, own, reader.config, is_generic=bool(variables))
        finally:
            reader.current_class, reader.config = outer_class, outer_config

    return reader.define(key, label, lineage.kind, build)


def root_model(reader: "TypeReader", node: ast.expr, scope: Scope) -> Shape:
    """`RootModel[T]`, used without a subclass."""
    label = f"RootModel_{ast.unparse(node)}_"
    return reader.define(label, label, "model", lambda: reader.render(node, scope))


def enum_schema(members: list[Any], docstring: str | None = None) -> JsonSchema:
    """The schema of an enum with these values."""
    schema: JsonSchema = {"enum": members, **type_of_values(members)}
    if docstring:
        schema["description"] = docstring
    return schema


def type_of_values(values: list[Any], null: str | None = None) -> JsonSchema:
    """The `type` that all values share, if they share one."""
    kinds = {type(value) for value in values}
    if len(kinds) != 1:
        return {}
    names = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array"}
    name = names.get(kinds.pop(), null)
    return {"type": name} if name else {}


def instance(reader: "TypeReader", reference: ClassRef, call: ast.Call, scope: Scope) -> Any:
    """What `Point(1, y=2)` is worth as JSON: the fields given, the defaults of the others.

    Raises:
        Unknown: part of it cannot be known.
    """
    try:
        lineage = trace(reference)
    except Unresolved as unresolved:
        raise Unknown(unresolved.name) from unresolved
    if lineage.kind not in ("model", "dataclass", "named-tuple"):
        raise Unknown(reference.node.name)
    given = {k.arg: k.value for k in call.keywords if k.arg}
    fields = lineage.fields()
    given |= {field.name: node for field, node in zip(fields, call.args, strict=False)}
    result: dict[str, Any] = {}
    for field in fields:
        read = reader.field(field.annotation, field.scope, field.default)
        if read.metadata.excluded:
            continue
        name = read.metadata.serialization_alias or read.metadata.alias or field.name
        node = given.get(field.name, given.get(name))
        if node is not None:
            result[name] = reader.value(node, scope)
        elif "default" in read.schema:
            result[name] = read.schema["default"]
        else:
            raise Unknown(field.name)
    return list(result.values()) if lineage.kind == "named-tuple" else result


def _enum_shape(reader: "TypeReader", reference: ClassRef) -> Shape | None:
    name = reference.node.name
    try:
        members = enums.members(reference)
        if members is None:
            return None
        listed = [jsonable(value) for value in members.values()]
    except Unknown as unknown:
        raise Unresolved(name, f"its values come from code ({unknown})") from unknown
    key = (reference.scope.module.name, reference.qualname)
    text = ast.get_docstring(reference.node)
    return reader.define(key, name, "enum", lambda: enum_schema(listed, text))


def _model(reader: "TypeReader", lineage: Lineage, definition: str) -> JsonSchema:
    if reader.serialized:
        for _, method, scope in lineage.decorated("model_serializer"):
            if method.returns is not None:
                return reader.render(method.returns, scope)
    return _record(reader, lineage, definition)


def _record(reader: "TypeReader", lineage: Lineage, definition: str) -> JsonSchema:
    """The object schema of a model, dataclass or TypedDict."""
    properties: dict[str, JsonSchema] = {}
    required: list[str] = []
    # In sight already while it is built: a discriminated union may refer back to it.
    reader.definitions.schemas[definition] = {"properties": properties}
    names = reader.definitions.properties.setdefault(definition, {})
    replaced = _field_serializers(lineage) if reader.serialized else {}
    opaque = set() if reader.serialized else _plain_validated(lineage)
    always = reader.serialized and reader.config.get("json_schema_serialization_defaults_required")
    for field in lineage.fields():
        if field.name in opaque:
            raise Unresolved(field.name, "a plain validator replaces its type")
        try:
            schema, metadata, is_required = _field(reader, field, lineage.kind)
        except Omitted:
            continue
        if reader.serialized and metadata.excluded:
            continue
        if field.name in replaced:
            schema = {**reader.render(*replaced[field.name]), **metadata.updates}
        name = aliased(field.name, metadata, reader.config, serialized=reader.serialized)
        names[field.name] = name
        properties[name] = _without_repeats(schema, reader.definitions.schemas)
        if is_required or always:
            required.append(name)
    if reader.serialized:
        computed = dict(_computed_fields(reader, lineage))
        properties |= computed
        required += computed
    result: JsonSchema = {"type": "object", "properties": properties}
    if required:
        result["required"] = required
    return result | _extras(reader, lineage)


def _field(reader: "TypeReader", field: ClassField, kind: str) -> tuple[JsonSchema, Metadata, bool]:
    details = field.details or {}
    default = None if kind == "typed-dict" else field.default
    factory = kind == "dataclass" and "default_factory" in details
    never_given = evaluate_or(details.get("init"), field.scope) is False
    if never_given and default is None and not factory:
        raise Omitted
    schema, metadata, is_required = reader.field(
        field.annotation, field.scope, default, f"field {field.name!r}"
    )
    told = evaluate_or(details.get("metadata"), field.scope)
    if isinstance(told, dict) and isinstance(told.get("description"), str):
        schema = {"description": told["description"], **schema}
    if field.docstring and reader.config.get("use_attribute_docstrings"):
        schema = {"description": field.docstring, **schema}
    if kind == "typed-dict":
        is_required = is_required and field.is_required_key
    return schema, metadata, is_required and not factory


def _extras(reader: "TypeReader", lineage: Lineage) -> JsonSchema:
    """What properties beyond the fields must be, if the class says so in its own way."""
    if lineage.kind == "typed-dict":
        fields = lineage.fields()
        closed = any(field.owner_keyword("closed") is True for field in fields)
        return {"additionalProperties": False} if closed else {}
    if lineage.kind == "model" and reader.config.get("extra") == "allow":
        for owner in lineage.classes:
            for node in owner.node.body:
                if (
                    isinstance(node, ast.AnnAssign)
                    and ast.unparse(node.target) == "__pydantic_extra__"
                ):
                    values = reader.render(node.annotation, owner.body_scope)
                    return {"additionalProperties": values["additionalProperties"]}
    return {}


def _class_schema(
    schema: JsonSchema, lineage: Lineage, own: Config, in_force: Config, *, is_generic: bool
) -> JsonSchema:
    """The schema with what the class itself says: docstring, extra fields, additions."""
    if lineage.kind == "named-tuple":
        return schema
    node = lineage.node
    text = ast.get_docstring(node)
    schema = dict(schema)
    made_up = lineage.kind == "dataclass" and (text or "").startswith(f"{node.name}(")
    unnamed = is_generic and lineage.kind in ("model", "root")
    if text and not made_up and not unnamed:
        schema.setdefault("description", text)
    if in_force.get("extra") in ("allow", "forbid"):
        schema.setdefault("additionalProperties", in_force["extra"] == "allow")
    extra = own.get("json_schema_extra")
    if isinstance(extra, dict):
        schema.update(jsonable(extra))
    elif extra is not None:
        raise Unresolved(node.name, "it changes its schema in code")
    return schema


def _root(reader: "TypeReader", lineage: Lineage, _definition: str) -> JsonSchema:
    for field in lineage.fields():
        if field.name == "root":
            return reader.field(field.annotation, field.scope, field.default).schema
    return reader.render(*lineage.root) if lineage.root else {}


def _named_tuple(reader: "TypeReader", lineage: Lineage, _definition: str) -> JsonSchema:
    read = [reader.field(f.annotation, f.scope, f.default) for f in lineage.fields()]
    schema: JsonSchema = {
        "type": "array",
        "prefixItems": [field.schema for field in read],
        "maxItems": len(read),
    }
    least = sum(field.required for field in read)
    return {**schema, "minItems": least} if least else schema


_BUILDERS: dict[str, Callable[["TypeReader", Lineage, str], JsonSchema]] = {
    "model": _model,
    "root": _root,
    "dataclass": _record,
    "typed-dict": _record,
    "named-tuple": _named_tuple,
}


def _without_repeats(schema: JsonSchema, definitions: dict[str, JsonSchema]) -> JsonSchema:
    """A reference without the texts that its definition says already."""
    if "$ref" not in schema or len(schema) == 1:
        return schema
    told = definitions.get(target(schema), {})
    return {k: v for k, v in schema.items() if k == "$ref" or told.get(k, ...) != v}


def _plain_validated(lineage: Lineage) -> set[str]:
    """The fields whose type a plain validator replaces."""
    names: set[str] = set()
    for decorator, _, scope in lineage.decorated("field_validator"):
        if isinstance(decorator, ast.Call) and _keyword(decorator, "mode", scope) == "plain":
            names |= {evaluate_or(argument, scope) for argument in decorator.args}
    return names


def _field_serializers(lineage: Lineage) -> dict[str, tuple[ast.expr, Scope]]:
    """The return types of the functions that write fields."""
    found: dict[str, tuple[ast.expr, Scope]] = {}
    for decorator, method, scope in lineage.decorated("field_serializer"):
        if isinstance(decorator, ast.Call):
            given = next((k.value for k in decorator.keywords if k.arg == "return_type"), None)
            returns = given or method.returns
            if returns is not None:
                found |= {str(evaluate_or(a, scope)): (returns, scope) for a in decorator.args}
    return found


def _computed_fields(reader: "TypeReader", lineage: Lineage) -> Iterator[tuple[str, JsonSchema]]:
    for decorator, method, scope in lineage.decorated("computed_field"):
        metadata = Metadata()
        returns = method.returns
        if isinstance(decorator, ast.Call):
            read_field(decorator, scope, metadata)
            given = next((k.value for k in decorator.keywords if k.arg == "return_type"), None)
            returns = given or returns
        if returns is None:
            raise Unresolved(method.name, "the computed field has no return type")
        schema = {**reader.render(returns, scope), "readOnly": True}
        text = ast.get_docstring(method)
        if text:
            schema["description"] = text
        name = aliased(method.name, metadata, reader.config, serialized=True)
        yield name, schema | metadata.updates


def _keyword(call: ast.Call, name: str, scope: Scope) -> Any:
    return evaluate_or(next((k.value for k in call.keywords if k.arg == name), None), scope)
