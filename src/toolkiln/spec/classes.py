"""Classes as types: enums, pydantic models, dataclasses, TypedDicts, NamedTuples.

Each becomes a definition of its own, the way pydantic writes it. The functions take the
`TypeReader` whose schema they add to. A class that is none of these, or that has a base
we cannot see, is `Unresolved`.
"""

import ast
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkiln.model import JsonSchema
from toolkiln.spec import annotations
from toolkiln.spec.fields import Metadata
from toolkiln.spec.modules import ClassRef, External, FunctionRef, Scope, resolve
from toolkiln.spec.shapes import Shape
from toolkiln.spec.values import (
    Unknown,
    enum_kind,
    enum_values,
    evaluate,
    evaluate_or,
    jsonable,
)

if TYPE_CHECKING:
    from toolkiln.spec.annotations import TypeReader

Arguments = tuple[tuple[ast.expr, Scope], ...]

_PLAIN_BASES = {"builtins.object", "typing.Generic", "typing.Protocol", "abc.ABC"}
_MARKED_BASES = {
    "pydantic.BaseModel": "model",
    "pydantic.RootModel": "root",
    "typing.TypedDict": "typed-dict",
    "typing.NamedTuple": "named-tuple",
}
_HOOKS = {"__get_pydantic_core_schema__", "__get_pydantic_json_schema__"}


class Lineage(NamedTuple):
    """A class with all it inherits from, nearest first, as far as it matters to its type."""

    kind: str
    classes: list[ClassRef]
    root: tuple[ast.expr, Scope] | None
    """The argument of `RootModel[…]`."""


class ClassField(NamedTuple):
    """An annotated name in a class body."""

    name: str
    annotation: ast.expr
    default: ast.expr | None
    owner: ClassRef
    docstring: str | None

    @property
    def scope(self) -> Scope:
        return self.owner.body_scope


def class_shape(reader: "TypeReader", reference: ClassRef, arguments: Arguments) -> Shape:
    """The shape of a class, parametrised or not.

    Raises:
        Unresolved: its schema cannot be known.
    """
    name = reference.node.name
    try:
        enum = enum_kind(reference)
        if enum is not None:
            key = (reference.scope.module.name, reference.qualname)
            members = [jsonable(value) for value in enum_values(reference, enum).values()]
            text = ast.get_docstring(reference.node)
            return reader.define(key, name, "enum", lambda: enum_schema(members, text))
    except Unknown as unknown:
        raise annotations.Unresolved(name, f"its values come from code ({unknown})") from unknown
    variables = dict(zip(_type_parameters(reference), arguments, strict=False))
    if variables:
        given = {**reference.scope.variables, **variables}
        reference = reference._replace(scope=reference.scope._replace(variables=given))
    lineage = _lineage(reference)
    build = _BUILDERS[lineage.kind]
    label, parameters = name, ""
    if variables:
        label = f"{name}_{'_'.join(ast.unparse(node) for node, _ in arguments)}_"
        parameters = repr([reader.render(node, scope) for node, scope in arguments])
    key = (reference.scope.module.name, reference.qualname, parameters)

    def build_schema() -> JsonSchema:
        outer_class, outer_config = reader.current_class, reader.config
        reader.current_class = reference
        reader.config = _config(lineage)
        try:
            return build(reader, lineage, reader.definition_name(key))
        finally:
            reader.current_class, reader.config = outer_class, outer_config

    return reader.define(key, label, lineage.kind, build_schema)


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


def configured(
    kind: str, schema: JsonSchema, config: dict[str, Any], serialized: bool
) -> JsonSchema:
    """A scalar's schema under a model's configuration."""
    if kind == "str":
        for setting, keyword in (("str_min_length", "minLength"), ("str_max_length", "maxLength")):
            if config.get(setting):
                schema[keyword] = config[setting]
    elif kind == "bytes" and config.get("ser_json_bytes") == "base64":
        schema["format"] = "base64url"
    elif kind == "timedelta" and serialized and config.get("ser_json_timedelta") == "float":
        return {"type": "number"}
    return schema


def functional_class(name: str, call: ast.Call, made: str) -> ast.ClassDef | None:
    """`TypedDict("X", {…})`, `NamedTuple("X", […])`, `namedtuple("X", "a b")` as a class."""
    if len(call.args) < 2:
        return None
    base, pairs = None, []
    second = call.args[1]
    if made == "typing.TypedDict" and isinstance(second, ast.Dict):
        base = "TypedDict"
        pairs = list(zip(second.keys, second.values, strict=True))
    elif made == "typing.NamedTuple" and isinstance(second, ast.List | ast.Tuple):
        base = "NamedTuple"
        pairs = [(e.elts[0], e.elts[1]) for e in second.elts if isinstance(e, ast.Tuple)]
    elif made == "collections.namedtuple":
        base = "NamedTuple"
        pairs = [(ast.Constant(n), ast.Name("object", ast.Load())) for n in _names(second)]
    if base is None or not all(isinstance(key, ast.Constant) for key, _ in pairs):
        return None
    defaults: list[ast.expr | None] = [None] * len(pairs)
    for keyword in call.keywords:
        if keyword.arg == "defaults" and isinstance(keyword.value, ast.List | ast.Tuple):
            defaults[len(pairs) - len(keyword.value.elts) :] = keyword.value.elts
    body = [
        ast.AnnAssign(ast.Name(str(key.value), ast.Store()), annotation, default, 1)
        for (key, annotation), default in zip(pairs, defaults, strict=True)
        if isinstance(key, ast.Constant)
    ]
    keywords = [k for k in call.keywords if k.arg == "total"]
    bases: list[ast.expr] = [ast.Attribute(ast.Name("__typing__", ast.Load()), base, ast.Load())]
    node = ast.ClassDef(name, bases, keywords, list(body), [])
    return ast.fix_missing_locations(ast.copy_location(node, call))


def _names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.replace(",", " ").split()
    if isinstance(node, ast.List | ast.Tuple):
        return [str(e.value) for e in node.elts if isinstance(e, ast.Constant)]
    return []


def instance(reader: "TypeReader", reference: ClassRef, call: ast.Call, scope: Scope) -> Any:
    """What `Point(1, y=2)` is worth as JSON: the fields given, the defaults of the others.

    Raises:
        Unknown: part of it cannot be known.
    """
    try:
        lineage = _lineage(reference)
    except annotations.Unresolved as unresolved:
        raise Unknown(unresolved.name) from unresolved
    if lineage.kind not in ("model", "dataclass"):
        raise Unknown(reference.node.name)
    given = {k.arg: k.value for k in call.keywords if k.arg}
    fields = list(_fields(reader, lineage))
    for field, argument in zip(fields, call.args, strict=False):
        given[field.name] = argument
    result: dict[str, Any] = {}
    for field in fields:
        read = reader.field(field.annotation, field.scope, _plain_default(field))
        if read.metadata.excluded:
            continue
        name = read.metadata.serialization_alias or read.metadata.alias or field.name
        if field.name in given or name in given:
            result[name] = evaluate(given.get(field.name) or given[name], scope)
        elif "default" in read.schema:
            result[name] = read.schema["default"]
        else:
            raise Unknown(field.name)
    return result


# Lineage


def _lineage(reference: ClassRef) -> Lineage:
    """Bases nearest first; raises Unresolved for one that we cannot see."""
    kinds: list[str] = []
    order: list[ClassRef] = []
    roots: list[tuple[ast.expr, Scope]] = []
    _climb(reference, order, kinds, roots, 0)
    name = reference.node.name
    if not kinds:
        raise annotations.Unresolved(
            name, "it is a plain class; make it a dataclass, a TypedDict or a pydantic model"
        )
    for ancestor in order:
        bound = ancestor.scope.module.class_bindings(ancestor.node).keys()
        if _HOOKS & bound:
            raise annotations.Unresolved(name, "it writes its own schema in code")
    kind = "root" if "root" in kinds else kinds[0]
    return Lineage(kind, order, roots[0] if roots else None)


def _climb(
    reference: ClassRef,
    order: list[ClassRef],
    kinds: list[str],
    roots: list[tuple[ast.expr, Scope]],
    depth: int,
) -> None:
    if depth > 30 or any(known.node is reference.node for known in order):
        return
    order.append(reference)
    if _dataclass_decorator(reference) is not None:
        kinds.append("dataclass")
    for base in reference.node.bases:
        arguments: list[ast.expr] = []
        target = base
        if isinstance(base, ast.Subscript):
            target, arguments = base.value, annotations.subscript_arguments(base)
        resolved = _base(target, reference.scope)
        if isinstance(resolved, External):
            marked = _MARKED_BASES.get(resolved.name)
            if marked:
                kinds.append(marked)
                if marked == "root" and arguments:
                    roots.append((arguments[0], reference.scope))
            elif resolved.name not in _PLAIN_BASES:
                raise annotations.Unresolved(resolved.name)
        elif isinstance(resolved, ClassRef):
            pairs = [(argument, reference.scope) for argument in arguments]
            variables = dict(zip(_type_parameters(resolved), pairs, strict=False))
            scope = resolved.scope._replace(variables=variables)
            _climb(resolved._replace(scope=scope), order, kinds, roots, depth + 1)
        else:
            raise annotations.Unresolved(ast.unparse(base))


def _base(node: ast.expr, scope: Scope) -> Any:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id == "__typing__":
            return External(f"typing.{node.attr}")
    return resolve(node, scope)


def _type_parameters(reference: ClassRef) -> list[str]:
    """The names that `Class[…]` fills in, in order."""
    declared = [p.name for p in getattr(reference.node, "type_params", [])]
    if declared:
        return declared
    generic: list[str] = []
    inherited: list[str] = []
    for base in reference.node.bases:
        if isinstance(base, ast.Subscript):
            target = resolve(base.value, reference.scope)
            names = list(annotations.type_variables(base.slice, reference.scope))
            if isinstance(target, External) and target.name in ("typing.Generic", "typing.Protocol"):
                generic += names
            else:
                inherited += [name for name in names if name not in inherited]
    return generic or inherited


def _dataclass_decorator(reference: ClassRef) -> ast.expr | None:
    for decorator in reference.node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        target = resolve(called, reference.scope)
        if isinstance(target, External) and target.name in (
            "dataclasses.dataclass",
            "pydantic.dataclasses.dataclass",
        ):
            return decorator
    return None


# Fields


def _own_fields(owner: ClassRef) -> Iterator[ClassField]:
    body = owner.node.body
    for index, node in enumerate(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            following = body[index + 1] if index + 1 < len(body) else None
            text = None
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                if isinstance(following.value.value, str):
                    text = inspect.cleandoc(following.value.value)
            yield ClassField(node.target.id, node.annotation, node.value, owner, text)


def _fields(reader: "TypeReader", lineage: Lineage) -> Iterator[ClassField]:
    """The fields of a class and its ancestors, oldest first, overridden in place."""
    found: dict[str, ClassField] = {}
    for owner in reversed(lineage.classes):
        if lineage.kind == "dataclass" and _dataclass_decorator(owner) is None:
            continue
        for field in _own_fields(owner):
            if field.name == "model_config" or (lineage.kind == "model" and field.name[0] == "_"):
                continue
            if "ClassVar" in annotations.qualifiers(field.annotation, field.scope):
                found.pop(field.name, None)
                continue
            if ast.unparse(field.annotation).endswith("KW_ONLY"):
                continue
            found[field.name] = field
    yield from found.values()


def _plain_default(field: ClassField) -> ast.expr | None:
    """The default of a field; of `dataclasses.field(default=…)` what is inside."""
    default = field.default
    if isinstance(default, ast.Call):
        target = resolve(default.func, field.scope)
        if isinstance(target, External) and target.name == "dataclasses.field":
            keywords = {k.arg: k.value for k in default.keywords}
            return keywords.get("default")
    return default


def _dataclass_field_call(field: ClassField) -> dict[str, ast.expr]:
    default = field.default
    if isinstance(default, ast.Call):
        target = resolve(default.func, field.scope)
        if isinstance(target, External) and target.name == "dataclasses.field":
            return {k.arg: k.value for k in default.keywords if k.arg}
    return {}


# Configuration


def _config(lineage: Lineage) -> dict[str, Any]:
    """The configuration in force: `model_config`, `class Config`, class keywords, decorators."""
    config: dict[str, Any] = {}
    for owner in reversed(lineage.classes):
        scope = owner.body_scope
        for node in owner.node.body:
            match node:
                case ast.Assign(targets=[ast.Name(id="model_config" | "__pydantic_config__")]):
                    config |= _settings(node.value, scope)
                case ast.AnnAssign(target=ast.Name(id="model_config"), value=value) if value:
                    config |= _settings(value, scope)
                case ast.ClassDef(name="Config"):
                    config |= {
                        t.id: _setting(a.value, scope)
                        for a in node.body
                        if isinstance(a, ast.Assign)
                        for t in a.targets
                        if isinstance(t, ast.Name)
                    }
        if lineage.kind in ("model", "root"):
            config |= {k.arg: _setting(k.value, scope) for k in owner.node.keywords if k.arg}
        for decorator in owner.node.decorator_list:
            if isinstance(decorator, ast.Call):
                for keyword in decorator.keywords:
                    if keyword.arg == "config":
                        config |= _settings(keyword.value, owner.scope)
                called = resolve(decorator.func, owner.scope)
                if isinstance(called, External) and called.name == "pydantic.with_config":
                    for argument in decorator.args:
                        config |= _settings(argument, owner.scope)
    return config


def _settings(node: ast.expr, scope: Scope) -> dict[str, Any]:
    if isinstance(node, ast.Call):
        return {k.arg: _setting(k.value, scope) for k in node.keywords if k.arg}
    if isinstance(node, ast.Dict):
        return {
            str(key.value): _setting(value, scope)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        }
    return {}


class _Code(NamedTuple):
    """A setting whose value is code, by the name it resolves to."""

    name: str


def _setting(node: ast.expr, scope: Scope) -> Any:
    try:
        return evaluate(node, scope)
    except Unknown:
        target = resolve(node, scope)
        return _Code(target.name if isinstance(target, External) else ast.unparse(node))


def _aliased(name: str, metadata: Metadata, reader: "TypeReader") -> str:
    """The property that a field becomes."""
    config = reader.config
    if reader.serialized:
        alias = metadata.serialization_alias or metadata.alias
    else:
        if config.get("validate_by_alias") is False:
            return name
        alias = metadata.validation_alias or metadata.alias
    if alias is None and isinstance(generator := config.get("alias_generator"), _Code):
        made = _ALIAS_GENERATORS.get(generator.name)
        if made is None:
            raise annotations.Unresolved(generator.name, "it makes field names in code")
        return made(name)
    return alias or name


def _to_camel(name: str) -> str:
    from pydantic.alias_generators import to_camel

    return to_camel(name)


def _to_pascal(name: str) -> str:
    from pydantic.alias_generators import to_pascal

    return to_pascal(name)


def _to_snake(name: str) -> str:
    from pydantic.alias_generators import to_snake

    return to_snake(name)


_ALIAS_GENERATORS: dict[str, Callable[[str], str]] = {
    "pydantic.alias_generators.to_camel": _to_camel,
    "pydantic.alias_generators.to_pascal": _to_pascal,
    "pydantic.alias_generators.to_snake": _to_snake,
}


# Schemas


def _model(reader: "TypeReader", lineage: Lineage, definition: str) -> JsonSchema:
    written = _model_serializer(reader, lineage)
    schema = written if written is not None else _object(reader, lineage, definition)
    return _class_schema(schema, lineage, reader.config)


def _object(reader: "TypeReader", lineage: Lineage, definition: str) -> JsonSchema:
    """The object schema of a model, dataclass or TypedDict."""
    properties: dict[str, JsonSchema] = {}
    required: list[str] = []
    names = reader.field_names.setdefault(definition, {})
    serializers = _field_serializers(lineage) if reader.serialized else {}
    for field in _fields(reader, lineage):
        is_required = True
        default = _plain_default(field)
        if lineage.kind == "typed-dict":
            default = None
            is_required = _required_key(field)
        elif lineage.kind == "dataclass":
            settings = _dataclass_field_call(field)
            factory = "default_factory" in settings
            if evaluate_or(settings.get("init"), field.scope) is False and not (default or factory):
                continue
            is_required = not factory
        try:
            read = reader.field(field.annotation, field.scope, default)
        except annotations.Omitted:
            continue
        if reader.serialized and read.metadata.excluded:
            continue
        schema = read.schema
        if field.name in _plain_validated(lineage) and not reader.serialized:
            raise annotations.Unresolved(field.name, "a plain validator replaces its type")
        if field.name in serializers:
            schema = {**reader.render(*serializers[field.name]), **read.metadata.updates}
        if field.docstring and reader.config.get("use_attribute_docstrings"):
            schema = {"description": field.docstring, **schema}
        name = _aliased(field.name, read.metadata, reader)
        names[field.name] = name
        properties[name] = _without_repeats(schema, reader.definitions)
        always = reader.serialized and reader.config.get("json_schema_serialization_defaults_required")
        if (read.required and is_required) or always:
            required.append(name)
    if reader.serialized:
        for name, schema in _computed_fields(reader, lineage):
            properties[name] = schema
            required.append(name)
    result: JsonSchema = {"type": "object", "properties": properties}
    if required:
        result["required"] = required
    return result


def _class_schema(schema: JsonSchema, lineage: Lineage, config: dict[str, Any]) -> JsonSchema:
    """The schema with what the class itself says: docstring, extra fields, additions."""
    node = lineage.classes[0].node
    text = ast.get_docstring(node)
    schema = {**schema}
    if text and not (lineage.kind == "dataclass" and text.startswith(f"{node.name}(")):
        schema.setdefault("description", text)
    if config.get("extra") in ("allow", "forbid") and "additionalProperties" not in schema:
        schema["additionalProperties"] = config["extra"] == "allow"
    extra = config.get("json_schema_extra")
    if isinstance(extra, dict):
        schema.update(jsonable(extra))
    elif extra is not None:
        raise annotations.Unresolved(node.name, "it changes its schema in code")
    return schema


def _dataclass(reader: "TypeReader", lineage: Lineage, definition: str) -> JsonSchema:
    return _class_schema(_object(reader, lineage, definition), lineage, reader.config)


def _root(reader: "TypeReader", lineage: Lineage, definition: str) -> JsonSchema:
    for field in _fields(reader, lineage):
        if field.name == "root":
            read = reader.field(field.annotation, field.scope, field.default)
            return _class_schema(read.schema, lineage, reader.config)
    if lineage.root is None:
        return _class_schema({}, lineage, reader.config)
    return _class_schema(reader.render(*lineage.root), lineage, reader.config)


def _named_tuple(reader: "TypeReader", lineage: Lineage, definition: str) -> JsonSchema:
    items, least = [], 0
    for field in _fields(reader, lineage):
        read = reader.field(field.annotation, field.scope, field.default)
        items.append(read.schema)
        least += read.required
    schema: JsonSchema = {"type": "array", "prefixItems": items, "maxItems": len(items)}
    return {**schema, "minItems": least} if least else schema


_BUILDERS: dict[str, Callable[["TypeReader", Lineage, str], JsonSchema]] = {
    "model": _model,
    "root": _root,
    "dataclass": _dataclass,
    "typed-dict": _dataclass,
    "named-tuple": _named_tuple,
}


def _required_key(field: ClassField) -> bool:
    marks = annotations.qualifiers(field.annotation, field.scope)
    if "Required" in marks:
        return True
    if "NotRequired" in marks:
        return False
    total = next((k.value for k in field.owner.node.keywords if k.arg == "total"), None)
    return evaluate_or(total, field.owner.scope, otherwise=True) is not False


def _without_repeats(schema: JsonSchema, definitions: dict[str, JsonSchema]) -> JsonSchema:
    """A reference without the texts that its definition says already."""
    if "$ref" not in schema or len(schema) == 1:
        return schema
    target = definitions.get(schema["$ref"].removeprefix("#/$defs/"), {})
    return {k: v for k, v in schema.items() if k == "$ref" or target.get(k, ...) != v}


# Decorated methods


def _decorated(lineage: Lineage, name: str) -> Iterator[tuple[ast.expr, ast.FunctionDef, Scope]]:
    for owner in reversed(lineage.classes):
        for node in owner.node.body:
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    called = decorator.func if isinstance(decorator, ast.Call) else decorator
                    target = resolve(called, owner.scope)
                    if isinstance(target, External) and target.name == f"pydantic.{name}":
                        yield decorator, node, owner.body_scope


def _plain_validated(lineage: Lineage) -> set[str]:
    names: set[str] = set()
    for decorator, _, scope in _decorated(lineage, "field_validator"):
        if isinstance(decorator, ast.Call):
            mode = next((k.value for k in decorator.keywords if k.arg == "mode"), None)
            if evaluate_or(mode, scope) == "plain":
                names |= {evaluate_or(a, scope) for a in decorator.args}
    return names


def _field_serializers(lineage: Lineage) -> dict[str, tuple[ast.expr, Scope]]:
    found: dict[str, tuple[ast.expr, Scope]] = {}
    for decorator, method, scope in _decorated(lineage, "field_serializer"):
        if isinstance(decorator, ast.Call):
            given = next((k.value for k in decorator.keywords if k.arg == "return_type"), None)
            returns = given or method.returns
            if returns is not None:
                for argument in decorator.args:
                    found[str(evaluate_or(argument, scope))] = (returns, scope)
    return found


def _model_serializer(reader: "TypeReader", lineage: Lineage) -> JsonSchema | None:
    if reader.serialized:
        for _, method, scope in _decorated(lineage, "model_serializer"):
            if method.returns is not None:
                return reader.render(method.returns, scope)
    return None


def _computed_fields(
    reader: "TypeReader", lineage: Lineage
) -> Iterator[tuple[str, JsonSchema]]:
    for decorator, method, scope in _decorated(lineage, "computed_field"):
        metadata = Metadata()
        returns = method.returns
        if isinstance(decorator, ast.Call):
            annotations.read_field(decorator, scope, metadata)
            given = next((k.value for k in decorator.keywords if k.arg == "return_type"), None)
            returns = given or returns
        if returns is None:
            raise annotations.Unresolved(method.name, "the computed field has no return type")
        schema = {**reader.render(returns, scope), "readOnly": True}
        text = ast.get_docstring(method)
        if text:
            schema["description"] = text
        schema |= metadata.updates
        yield _aliased(method.name, metadata, reader), schema
