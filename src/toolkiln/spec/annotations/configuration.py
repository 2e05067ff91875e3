"""The configuration of a pydantic class, and the names that its fields take in JSON."""

import ast
from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic.alias_generators import to_camel, to_pascal, to_snake

from toolkiln.model import JsonSchema
from toolkiln.spec.annotations.fields import Metadata
from toolkiln.spec.annotations.lineage import Lineage
from toolkiln.spec.annotations.shapes import Unresolved
from toolkiln.spec.annotations.values import Unknown, evaluate
from toolkiln.spec.modules import External, Scope, resolve

Config = dict[str, Any]


class Code(NamedTuple):
    """A setting whose value is code: its source, and where that stands."""

    node: ast.expr
    scope: Scope


def read_config(lineage: Lineage) -> Config:
    """The configuration in force: `model_config`, `class Config`, class keywords, decorators."""
    config: Config = {}
    for owner in reversed(lineage.classes):
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
        if lineage.kind in ("model", "root"):
            config |= {k.arg: _setting(k.value, scope) for k in owner.node.keywords if k.arg}
        for decorator in owner.node.decorator_list:
            if isinstance(decorator, ast.Call):
                config |= _decorator_settings(decorator, owner.scope)
    return config


def aliased(name: str, metadata: Metadata, config: Config, *, serialized: bool) -> str:
    """The property that a field becomes.

    Raises:
        Unresolved: names are made in code.
    """
    if not serialized and config.get("validate_by_alias") is False:
        return name
    given = metadata.serialization_alias if serialized else metadata.validation_alias
    alias = given or metadata.alias
    generator = config.get("alias_generator")
    if alias is None and isinstance(generator, Code):
        return _generator(generator, serialized=serialized)(name)
    return alias or name


def configured(kind: str, schema: JsonSchema, config: Config, *, serialized: bool) -> JsonSchema:
    """A scalar's schema under a configuration."""
    if kind == "str":
        for setting, keyword in (("str_min_length", "minLength"), ("str_max_length", "maxLength")):
            if config.get(setting):
                schema[keyword] = config[setting]
    elif kind == "bytes" and config.get("ser_json_bytes") == "base64":
        schema["format"] = "base64url"
    elif kind == "timedelta" and serialized and config.get("ser_json_timedelta") == "float":
        return {"type": "number"}
    return schema


def _decorator_settings(decorator: ast.Call, scope: Scope) -> Config:
    config: Config = {}
    for keyword in decorator.keywords:
        if keyword.arg == "config":
            config |= _settings(keyword.value, scope)
    if resolve(decorator.func, scope) == External("pydantic.with_config"):
        for argument in decorator.args:
            config |= _settings(argument, scope)
    return config


def _settings(node: ast.expr, scope: Scope) -> Config:
    if isinstance(node, ast.Call):
        return {k.arg: _setting(k.value, scope) for k in node.keywords if k.arg}
    if isinstance(node, ast.Dict):
        return {
            str(key.value): _setting(value, scope)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        }
    return {}


def _setting(node: ast.expr, scope: Scope) -> Any:
    try:
        return evaluate(node, scope)
    except Unknown:
        return Code(node, scope)


_GENERATORS: dict[str, Callable[[str], str]] = {
    "pydantic.alias_generators.to_camel": to_camel,
    "pydantic.alias_generators.to_pascal": to_pascal,
    "pydantic.alias_generators.to_snake": to_snake,
}


def _generator(code: Code, *, serialized: bool) -> Callable[[str], str]:
    node, scope = code
    if isinstance(node, ast.Call) and resolve(node.func, scope) == External(
        "pydantic.AliasGenerator"
    ):
        given = dict(
            zip(("alias", "validation_alias", "serialization_alias"), node.args, strict=False)
        )
        given |= {k.arg: k.value for k in node.keywords if k.arg}
        mode = "serialization_alias" if serialized else "validation_alias"
        chosen = given.get(mode) or given.get("alias")
        if chosen is None:
            return str
        node = chosen
    target = resolve(node, scope)
    made = _GENERATORS.get(target.name) if isinstance(target, External) else None
    if made is None:
        raise Unresolved(ast.unparse(node), "it makes field names in code")
    return made
