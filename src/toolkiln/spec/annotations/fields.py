"""Field metadata and model configuration: `Annotated[…]`, `Field(…)`, `model_config`.

Metadata expressions are read into one `Metadata` value, which `TypeReader` applies to a
shape. Unknown metadata is ignored, as pydantic does.
"""

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic.alias_generators import to_camel, to_pascal, to_snake

from toolkiln.model.base import JsonSchema
from toolkiln.spec.annotations.class_hierarchy import SCHEMA_HOOKS, ClassHierarchy
from toolkiln.spec.annotations.evaluator import Unknown, evaluate, jsonable, try_evaluate
from toolkiln.spec.annotations.expressions import is_ellipsis
from toolkiln.spec.annotations.shapes import CONSTRAINTS, Unresolved
from toolkiln.spec.namespace import (
    AliasRef,
    ClassRef,
    External,
    FunctionRef,
    NameScope,
    external_name,
    resolve,
)
from toolkiln.spec.syntax import keyword_arguments


@dataclass(slots=True)
class Metadata:
    """Metadata of one type or field."""

    steps: list[tuple[str, Any]] = field(default_factory=list)
    """In order of application: constraints by pydantic's names, and `serialized`, `validated`,
    `opaque`, `opaque when validated`, `function`, `discriminator`."""
    updates: dict[str, Any] = field(default_factory=dict)
    """Keywords copied into the schema: description, examples, extras."""
    text: str | None = None
    """A bare string in `Annotated`: the description unless a `Field` has one."""
    default: tuple[ast.expr, NameScope] | None = None
    has_factory: bool = False
    alias: str | None = None
    validation_alias: str | None = None
    serialization_alias: str | None = None
    excluded: bool = False
    skipped: bool = False
    """Whether it has `SkipJsonSchema`."""
    replacement: tuple[dict[str, Any], str | None] | None = None
    """The schema and mode of `WithJsonSchema`."""
    unknown: list[str] = field(default_factory=list)
    """Constraints with unknown values, to be reported."""


_ANNOTATED_TYPES = {
    "Gt": "gt",
    "Ge": "ge",
    "Lt": "lt",
    "Le": "le",
    "MultipleOf": "multiple_of",
    "MinLen": "min_length",
    "MaxLen": "max_length",
}


def read_metadata(items: Iterable[tuple[ast.expr, NameScope]]) -> Metadata:
    """Read the metadata of `Annotated[T, *items]`."""
    metadata = Metadata()
    for node, scope in items:
        _read_item(node, scope, metadata)
    return metadata


def field_call(node: ast.expr | None, scope: NameScope) -> ast.Call | None:
    """Return the node if it is a call of pydantic's `Field`."""
    if isinstance(node, ast.Call) and external_name(node.func, scope) == "pydantic.Field":
        return node
    return None


def read_field(call: ast.Call, scope: NameScope, metadata: Metadata) -> None:
    """Add the arguments of `Field(...)` to `metadata`."""
    keywords = keyword_arguments(call)
    default = call.args[0] if call.args else keywords.get("default")
    if default is not None and not is_ellipsis(default):
        if not external_name(default, scope).endswith("PydanticUndefined"):
            metadata.default = (default, scope)
    if "default_factory" in keywords and not _is_none(keywords["default_factory"]):
        metadata.has_factory = True
    for name in ("alias", "validation_alias", "serialization_alias"):
        if name in keywords:
            setattr(metadata, name, _alias(keywords[name], scope))
    if try_evaluate(keywords.get("exclude"), scope) is True:
        metadata.excluded = True
    for name, value in keywords.items():
        if name in CONSTRAINTS:
            _add_constraint(name, value, scope, metadata)
    if "discriminator" in keywords:
        _add_discriminator(keywords["discriminator"], scope, metadata)
    _add_updates(keywords, scope, metadata)


def read_default_field(
    call: ast.Call, scope: NameScope, metadata: Metadata
) -> list[tuple[str, Any]]:
    """Add the arguments of `= Field(…)` to `metadata`, except constraints, which are returned."""
    annotated, metadata.steps = metadata.steps, []
    read_field(call, scope, metadata)
    constraints, metadata.steps = metadata.steps, annotated
    return constraints


def _add_updates(keywords: dict[str, ast.expr], scope: NameScope, metadata: Metadata) -> None:
    for name in ("title", "description", "examples"):
        if name in keywords:
            try:
                value = jsonable(evaluate(keywords[name], scope))
            except Unknown:
                metadata.unknown.append(name)
                continue
            if value is not None:
                metadata.updates[name] = value
    if "deprecated" in keywords:
        deprecated = try_evaluate(keywords["deprecated"], scope, default=True)
        if deprecated or deprecated == "":
            metadata.updates["deprecated"] = True
    if "json_schema_extra" in keywords and not _is_none(keywords["json_schema_extra"]):
        try:
            metadata.updates.update(jsonable(evaluate(keywords["json_schema_extra"], scope)))
        except (Unknown, TypeError, ValueError):
            metadata.steps.append(("opaque", "json_schema_extra"))


def _read_item(node: ast.expr, scope: NameScope, metadata: Metadata) -> None:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            metadata.text = node.value
        return
    if isinstance(node, ast.Name | ast.Attribute):
        target = resolve(node, scope)
        if isinstance(target, AliasRef):
            value = target.assigned.value
            if isinstance(value, ast.Call) or isinstance(node, ast.Name):
                _read_item(value, target.scope, metadata)
        elif isinstance(target, ClassRef):
            _read_local_class(target, metadata)
        elif target == External("pydantic.json_schema.SkipJsonSchema"):
            metadata.skipped = True
        return
    if not isinstance(node, ast.Call):
        return
    target = resolve(node.func, scope)
    if isinstance(target, ClassRef):
        _read_local_class(target, metadata)
    elif isinstance(target, External):
        module, _, name = target.name.rpartition(".")
        if target.name == "pydantic.Field":
            read_field(node, scope, metadata)
        elif module == "annotated_types":
            _read_annotated_type(name, node, scope, metadata)
        elif module in ("pydantic", "pydantic.json_schema"):
            _read_pydantic_item(name, node, scope, metadata)
        elif name == "Doc" and node.args:
            metadata.text = try_evaluate(node.args[0], scope, metadata.text)


def _read_local_class(target: ClassRef, metadata: Metadata) -> None:
    if SCHEMA_HOOKS & target.scope.module.class_bindings(target.node).keys():
        metadata.steps.append(("opaque", target.node.name))


def _read_annotated_type(name: str, call: ast.Call, scope: NameScope, metadata: Metadata) -> None:
    keywords = keyword_arguments(call)
    if name in _ANNOTATED_TYPES:
        constraint = _ANNOTATED_TYPES[name]
        value = call.args[0] if call.args else keywords.get(constraint)
        if value is not None:
            _add_constraint(constraint, value, scope, metadata)
    elif name == "Interval":
        for constraint in ("gt", "ge", "lt", "le"):
            if constraint in keywords:
                _add_constraint(constraint, keywords[constraint], scope, metadata)
    elif name == "Len":
        bounds = dict(zip(("min_length", "max_length"), call.args, strict=False)) | keywords
        if try_evaluate(bounds.get("min_length"), scope, 0):  # pydantic omits zero
            _add_constraint("min_length", bounds["min_length"], scope, metadata)
        if "max_length" in bounds:
            _add_constraint("max_length", bounds["max_length"], scope, metadata)
    elif name in ("Predicate", "Not"):
        metadata.steps.append(("function", None))


def _read_pydantic_item(name: str, call: ast.Call, scope: NameScope, metadata: Metadata) -> None:
    keywords = keyword_arguments(call)
    if name in ("StringConstraints", "UrlConstraints"):
        for constraint, value in keywords.items():
            if constraint in CONSTRAINTS:
                _add_constraint(constraint, value, scope, metadata)
    elif name == "Discriminator" and call.args:
        _add_discriminator(call.args[0], scope, metadata)
    elif name == "WithJsonSchema" and (call.args or keywords):
        _read_json_schema(call, keywords, scope, metadata)
    elif name == "SkipJsonSchema":
        metadata.skipped = True
    elif name in ("PlainSerializer", "WrapSerializer"):
        _read_serializer(call, keywords, scope, metadata)
    elif name in ("BeforeValidator", "WrapValidator", "PlainValidator", "AfterValidator"):
        input_type = keywords.get("json_schema_input_type")
        if input_type is not None:
            metadata.steps.append(("validated", (input_type, scope)))
        elif name == "PlainValidator":
            metadata.steps.append(("opaque when validated", "PlainValidator"))
        metadata.steps.append(("function", None))
    elif name in ("GetPydanticSchema", "ValidateAs"):
        metadata.steps.append(("opaque", name))


def _read_json_schema(
    call: ast.Call, keywords: dict[str, ast.expr], scope: NameScope, metadata: Metadata
) -> None:
    argument = call.args[0] if call.args else keywords["json_schema"]
    try:
        schema = jsonable(evaluate(argument, scope))
        mode = try_evaluate(keywords.get("mode"), scope)
    except Unknown:
        metadata.steps.append(("opaque", "WithJsonSchema"))
        return
    if schema is None:
        metadata.skipped = True
    else:
        metadata.replacement = (schema, mode)


def _read_serializer(
    call: ast.Call, keywords: dict[str, ast.expr], scope: NameScope, metadata: Metadata
) -> None:
    returns = keywords.get("return_type")
    if returns is None and call.args:
        function = resolve(call.args[0], scope)
        if isinstance(function, FunctionRef):
            returns, scope = function.node.returns, function.scope
        elif isinstance(function, External) and function.name in ("builtins.str", "builtins.float"):
            returns = call.args[0]
    if returns is not None:
        metadata.steps.append(("serialized", (returns, scope)))


def _add_constraint(name: str, node: ast.expr, scope: NameScope, metadata: Metadata) -> None:
    try:
        metadata.steps.append((name, evaluate(node, scope)))
    except Unknown:
        metadata.unknown.append(name)


def _add_discriminator(node: ast.expr, scope: NameScope, metadata: Metadata) -> None:
    value = try_evaluate(node, scope)
    if value is None and isinstance(node, ast.Call) and node.args:  # Discriminator("kind")
        value = try_evaluate(node.args[0], scope)
    metadata.steps.append(("discriminator", value if isinstance(value, str) else None))


def _alias(node: ast.expr, scope: NameScope) -> str | None:
    if isinstance(node, ast.Call):  # AliasChoices("a", AliasPath("b", 0)): the first plain name
        for argument in node.args:
            value = try_evaluate(argument, scope)
            if isinstance(value, str):
                is_path = external_name(node.func, scope).endswith("AliasPath")
                return None if is_path and len(node.args) > 1 else value
        return None
    value = try_evaluate(node, scope)
    return value if isinstance(value, str) else None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


Config = dict[str, Any]


class ConfigCode(NamedTuple):
    """A setting whose value is only known at run time."""

    node: ast.expr
    scope: NameScope


def read_config(hierarchy: ClassHierarchy) -> Config:
    """Merge `model_config`, `class Config`, class keywords and decorators of a class."""
    config: Config = {}
    for owner in reversed(hierarchy.classes):
        scope = owner.body_scope
        for node in owner.node.body:
            match node:
                case ast.Assign(
                    targets=[ast.Name(id="model_config" | "__pydantic_config__")], value=value
                ):
                    config |= _settings(value, scope)
                case ast.AnnAssign(
                    target=ast.Name(id="model_config" | "__pydantic_config__"), value=value
                ) if value is not None:
                    config |= _settings(value, scope)
                case ast.ClassDef(name="Config", body=body):
                    for inner in body:
                        if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name):
                            config[inner.targets[0].id] = _setting(inner.value, scope)
        if hierarchy.kind in ("model", "root"):
            config |= {k: _setting(v, scope) for k, v in keyword_arguments(owner.node).items()}
        for decorator in owner.node.decorator_list:
            if isinstance(decorator, ast.Call):
                config |= _decorator_settings(decorator, owner.scope)
    return config


def property_name(name: str, metadata: Metadata, config: Config, *, serialized: bool) -> str:
    """Return the property name of a field, considering aliases and alias generators."""
    if not serialized and config.get("validate_by_alias") is False:
        return name
    specific = metadata.serialization_alias if serialized else metadata.validation_alias
    alias = specific or metadata.alias
    generator = config.get("alias_generator")
    if alias is None and isinstance(generator, ConfigCode):
        return _alias_generator(generator, serialized=serialized)(name)
    return alias or name


def configured(kind: str, schema: JsonSchema, config: Config, *, serialized: bool) -> JsonSchema:
    """Apply a model configuration to the schema of a scalar."""
    if kind == "str":
        for setting, keyword in (("str_min_length", "minLength"), ("str_max_length", "maxLength")):
            if config.get(setting):
                schema[keyword] = config[setting]
    elif kind == "bytes" and config.get("ser_json_bytes") == "base64":
        schema["format"] = "base64url"
    elif kind == "timedelta" and serialized and config.get("ser_json_timedelta") == "float":
        return {"type": "number"}
    return schema


def _decorator_settings(decorator: ast.Call, scope: NameScope) -> Config:
    config: Config = {}
    for keyword in decorator.keywords:
        if keyword.arg == "config":
            config |= _settings(keyword.value, scope)
    if external_name(decorator.func, scope) == "pydantic.with_config":
        for argument in decorator.args:
            config |= _settings(argument, scope)
    return config


def _settings(node: ast.expr, scope: NameScope) -> Config:
    if isinstance(node, ast.Call):
        return {k: _setting(v, scope) for k, v in keyword_arguments(node).items()}
    if isinstance(node, ast.Dict):
        return {
            str(key.value): _setting(value, scope)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        }
    return {}


def _setting(node: ast.expr, scope: NameScope) -> Any:
    try:
        return evaluate(node, scope)
    except Unknown:
        return ConfigCode(node, scope)


_GENERATORS: dict[str, Callable[[str], str]] = {
    "pydantic.alias_generators.to_camel": to_camel,
    "pydantic.alias_generators.to_pascal": to_pascal,
    "pydantic.alias_generators.to_snake": to_snake,
}


def _alias_generator(code: ConfigCode, *, serialized: bool) -> Callable[[str], str]:
    node, scope = code
    if isinstance(node, ast.Call) and external_name(node.func, scope) == "pydantic.AliasGenerator":
        names = ("alias", "validation_alias", "serialization_alias")
        arguments = dict(zip(names, node.args, strict=False)) | keyword_arguments(node)
        mode = "serialization_alias" if serialized else "validation_alias"
        chosen = arguments.get(mode) or arguments.get("alias")
        if chosen is None:
            return str
        node = chosen
    generator = _GENERATORS.get(external_name(node, scope))
    if generator is None:
        raise Unresolved(ast.unparse(node), "it computes field names at run time")
    return generator
