"""Annotation → shape, from syntax alone.

`TypeReader` reads the types of a file and collects their definitions. It resolves names with
`namespace`, finds known types in `expressions`, and delegates classes to `classes`. A type
that it cannot resolve raises `Unresolved`; `field` turns that into an open schema and a note,
so a schema may be incomplete but is never wrong.
"""

import ast
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from toolkiln.model.base import JsonSchema
from toolkiln.spec.annotations import classes, expressions, fields, shapes
from toolkiln.spec.annotations.evaluator import Unknown, evaluate, jsonable
from toolkiln.spec.annotations.fields import Metadata
from toolkiln.spec.annotations.shapes import Definitions, Omitted, TypeShape, Unresolved
from toolkiln.spec.limits import MAX_VALUES
from toolkiln.spec.namespace import (
    AliasRef,
    ClassRef,
    External,
    FunctionRef,
    NameScope,
    Resolved,
    external_name,
    resolve,
)

_MAX_DEPTH = 60
_MAX_EXPRESSIONS = 20_000
"""Type expressions per schema; bounds the expansion of aliases."""


class Note(NamedTuple):
    """Something that could not be determined, to be reported as a finding."""

    rule: str
    message: str
    line: int
    path: str | None = None
    """The helper that contains it; None for the tool file."""


class SchemaField(NamedTuple):
    """A parameter or field with its schema and metadata."""

    schema: JsonSchema
    metadata: Metadata
    required: bool
    is_unpassable: bool = False
    """Whether it is known that no JSON value is of its type."""


class TypeReader:
    """Reads the types of a file, either for validation or for serialization.

    All schemas of the file share definitions, so each class is read only once.
    """

    def __init__(self, *, serialized: bool = False) -> None:
        self.serialized = serialized
        self.definitions = Definitions()
        self.notes: list[Note] = []
        self.config: dict[str, Any] = {}
        """The configuration of the current model."""
        self.current_class: ClassRef | None = None
        self.is_shareable = True
        """Whether other schemas can use the definitions: not if one of them inherited the
        configuration of the enclosing model."""
        self._open_aliases: list[tuple[str, str]] = []
        self._depth = 0
        self._expressions = 0

    def take_notes(self) -> list[Note]:
        """Return the notes since the last call, and start a new schema."""
        taken, self.notes, self._expressions = self.notes, [], 0
        if not self.is_shareable:
            self.definitions, self.is_shareable = Definitions(), True
        return taken

    def shape(self, node: ast.expr, scope: NameScope) -> TypeShape:
        """Return the shape of an annotation.

        Raises:
            Unresolved: the type cannot be determined.
            Omitted: the type is excluded from schemas.
        """
        self._depth += 1
        self._expressions += 1
        scope.module.budget.spend()
        try:
            if self._depth > _MAX_DEPTH or self._expressions > _MAX_EXPRESSIONS:
                raise Unresolved(expressions.shown(node), "it is nested too deeply")
            return self._shape(node, scope)
        finally:
            self._depth -= 1

    def _shape(self, node: ast.expr, scope: NameScope) -> TypeShape:
        if isinstance(node, ast.Name | ast.Attribute):
            if isinstance(node, ast.Name) and node.id in scope.variables:
                return self.shape(*scope.variables[node.id])
            return self._named(resolve(node, scope), node)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, scope)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self.union(list(expressions.union_members(node, scope)))
        if isinstance(node, ast.Constant):
            if node.value is None:
                return TypeShape("none", {"type": "null"})
            if isinstance(node.value, str):
                return self.shape(expressions.quoted(node), scope)
        if isinstance(node, ast.Call):
            return classes.call_shape(self, node, scope)
        raise Unresolved(expressions.shown(node), "it is not a type")

    def render(self, node: ast.expr, scope: NameScope) -> JsonSchema:
        """Return the schema of an annotation; raises like `shape`."""
        return self.shape(node, scope).render()

    def field(
        self,
        annotation: ast.expr | None,
        scope: NameScope,
        default: ast.expr | None,
        label: str | None = None,
    ) -> SchemaField:
        """Read a parameter or field with its `Annotated`, `Field` and default.

        Notes are prefixed with `label`.
        """
        noted = len(self.notes)
        if annotation is None:
            base, metadata = None, Metadata()
        else:
            base, base_scope, items = expressions.peel(annotation, scope)
            metadata = fields.read_metadata(items)
        default_steps: list[tuple[str, Any]] = []
        if (call := fields.field_call(default, scope)) is not None:
            default_steps = fields.read_default_field(call, scope, metadata)
        elif default is not None and not expressions.is_ellipsis(default):
            metadata.default = (default, scope)
        where = annotation or default
        self.note_unknown(metadata, where, scope)
        is_unpassable = False
        try:
            shape = self.shape(base, base_scope) if base is not None else TypeShape("any", {})
            schema = self.apply(metadata, self._apply_default_steps(default_steps, shape)).render()
        except Unresolved as problem:
            message = f"the type {problem.name!r}: {problem.reason}"
            is_unpassable = problem.is_unpassable and label is not None and self._depth == 0
            if not is_unpassable:
                self._note("unresolved-type", message, where, scope)
            elif metadata.default is None:
                message = f"a model cannot pass {problem.name!r}: {problem.reason}"
                self._note("unpassable-type", message, where, scope)
            else:
                message = f"a model cannot pass {problem.name!r}, so it always has its default"
                self._note("hidden-parameter", message, where, scope)
            schema = dict(metadata.updates)
        if metadata.default is not None and not is_unpassable:
            schema = self._with_default(schema, metadata.default)
        if label and len(self.notes) > noted:
            notes = self.notes[noted:]
            self.notes[noted:] = [n._replace(message=f"{label}: {n.message}") for n in notes]
        is_required = metadata.default is None and not metadata.has_factory
        return SchemaField(schema, metadata, is_required, is_unpassable)

    def note_unknown(self, metadata: Metadata, where: ast.expr | None, scope: NameScope) -> None:
        """Note the constraints whose values are only known at run time."""
        for name in metadata.unknown:
            self._note("unknown-value", f"the value of {name} is not known", where, scope)

    def _note(self, rule: str, message: str, where: ast.expr | None, scope: NameScope) -> None:
        line = where.lineno if where is not None else 1
        self.notes.append(Note(rule, message, line, scope.module.path))

    def _apply_default_steps(self, steps: list[tuple[str, Any]], shape: TypeShape) -> TypeShape:
        """Apply the constraints of `= Field(…)`; those of the annotation take precedence."""
        for step, value in steps:
            applied = self._step(shape, step, value)
            if applied.kind == shape.kind and shape.kind in ("int", "float", "str", "bytes"):
                applied = TypeShape(shape.kind, {**applied.schema, **shape.schema})
            shape = applied
        return shape

    def apply(self, metadata: Metadata, shape: TypeShape) -> TypeShape:
        """Apply metadata to a shape, in order."""
        if metadata.skipped:
            raise Omitted
        for step, value in metadata.steps:
            shape = self._step(shape, step, value)
        if metadata.updates:
            shape = TypeShape(shape.kind, {**shape.schema, **metadata.updates}, shape.inner)
        if metadata.replacement is not None:
            schema, mode = metadata.replacement
            if mode in (None, "serialization" if self.serialized else "validation"):
                shape = TypeShape("function", dict(schema))
        return shape

    def _step(self, shape: TypeShape, step: str, value: Any) -> TypeShape:
        if step == "discriminator":
            return shapes.discriminated(shape, value, self.definitions)
        if step == "function":
            return TypeShape(f"after {shape.kind.removeprefix('after ')}", shape.render())
        if step == "validated":
            return shape if self.serialized else TypeShape("function", self.render(*value))
        if step == "serialized":
            return TypeShape("function", self.render(*value)) if self.serialized else shape
        if step == "opaque" or (step == "opaque when validated" and not self.serialized):
            raise Unresolved(str(value), "it changes the schema at run time")
        if step == "opaque when validated":
            return shape
        try:
            if shape.kind == "alias":
                return self._constrained_alias(shape, step, value)
            return shapes.constrain(shape, step, value, serialized=self.serialized)
        except Unknown:
            return shape

    def _constrained_alias(self, shape: TypeShape, step: str, value: Any) -> TypeShape:
        """Return a reference to a new definition: the alias with a constraint."""
        name = shapes.target(shape.schema)
        inner = self.definitions.aliases.get(name)
        constrained = self._step(inner, step, value) if inner else None
        if inner is None or constrained is None or constrained.kind.startswith("after"):
            return shapes.constrain(shape, step, value, serialized=self.serialized)
        if constrained.render() == inner.render():
            return shape
        key = (name, step, repr(value))
        reference = self.define(key, name, "alias", constrained.render)
        self.definitions.aliases[self.definitions.name(key)] = constrained
        return TypeShape("alias", {**shape.schema, **reference.schema})

    def define(
        self, key: Hashable, name: str, kind: str, build: Callable[[], JsonSchema]
    ) -> TypeShape:
        """Return a reference to a definition; aliases inside it may be recursive."""
        outer, self._open_aliases = self._open_aliases, []
        try:
            return self.definitions.define(key, name, kind, build)
        finally:
            self._open_aliases = outer

    def _with_default(self, schema: JsonSchema, default: tuple[ast.expr, NameScope]) -> JsonSchema:
        node, scope = default
        try:
            return {**schema, "default": jsonable(self.value(node, scope))}
        except Unknown:
            message = f"the default {expressions.shown(node)!r} is not known before the code runs"
            self._note("unknown-default", message, node, scope)
            return schema

    def value(self, node: ast.expr, scope: NameScope) -> Any:
        """Return the value of an expression; instances of local classes become their fields."""
        return evaluate(node, scope, lambda *call: classes.instance(self, *call))

    def _named(self, target: Resolved | None, node: ast.expr) -> TypeShape:
        if isinstance(target, External):
            return self.external(target.name)
        if isinstance(target, ClassRef):
            return classes.class_shape(self, target, ())
        if isinstance(target, AliasRef):
            return classes.alias_shape(self, target, ())
        name = ast.unparse(node)
        if isinstance(target, FunctionRef) and f"builtins.{name}" in expressions.BUILTINS:
            return self.external(f"builtins.{name}")  # def list(…) -> list[str]
        if target is None:
            raise Unresolved(name, "it is neither defined nor imported")
        raise Unresolved(name, "it is not a type")

    def external(self, name: str) -> TypeShape:
        """Return the shape of a well-known external type."""
        scalar = expressions.SCALARS.get(name)
        if scalar is not None:
            return self._scalar(name, scalar)
        known = expressions.ORIGINS.get(name, name)
        if known in expressions.COLLECTIONS:
            return shapes.array({}, expressions.COLLECTIONS[known])
        if known == "collections.Counter":
            return shapes.mapping({}, {"type": "integer"}, "counter")
        if known in expressions.MAPPINGS and known != "collections.defaultdict":
            return shapes.mapping({}, {}, expressions.MAPPINGS[known])
        if name == "pydantic.JsonValue":
            return self.define(name, "JsonValue", "any", dict)
        if name == "pydantic.Json":
            return self._json(TypeShape("any", {}))
        if name == "typing.Self" and self.current_class is not None:
            return classes.class_shape(self, self.current_class, ())
        raise expressions.unresolved(name)

    def _scalar(self, name: str, scalar: tuple[str, JsonSchema]) -> TypeShape:
        kind, schema = scalar
        if self.serialized and name in expressions.SERIALIZED:
            kind, schema = expressions.SERIALIZED[name]
        if not self.config:
            return TypeShape(kind, dict(schema))
        schema = fields.configured(kind, dict(schema), self.config, serialized=self.serialized)
        return TypeShape(kind, schema)

    @contextmanager
    def following_alias(self, module: str, name: str) -> Iterator[None]:
        """Guard against an alias that refers to itself."""
        if (module, name) in self._open_aliases:
            raise Unresolved(name, "the alias refers to itself; write it with a type statement")
        self._open_aliases.append((module, name))
        try:
            yield
        finally:
            self._open_aliases.pop()

    def _subscript(self, node: ast.Subscript, scope: NameScope) -> TypeShape:
        target = resolve(node.value, scope)
        arguments = expressions.subscript_arguments(node)
        if isinstance(target, FunctionRef) and isinstance(node.value, ast.Name):
            target = External(f"builtins.{node.value.id}")
        if isinstance(target, External):
            return self._external_subscript(target.name, arguments, node, scope)
        pairs = tuple((argument, scope) for argument in arguments)
        if isinstance(target, ClassRef):
            return classes.class_shape(self, target, pairs)
        if isinstance(target, AliasRef):
            return classes.alias_shape(self, target, pairs)
        raise Unresolved(ast.unparse(node.value))

    def _external_subscript(
        self, name: str, arguments: list[ast.expr], node: ast.Subscript, scope: NameScope
    ) -> TypeShape:
        first = arguments[0] if arguments else node.slice
        if name in ("typing.Optional", "typing.Union"):
            return self.union(list(expressions.union_members(node, scope)))
        if name == "typing.Literal":
            return self._literal(arguments, scope)
        if name == "typing.Annotated":
            base, base_scope, items = expressions.peel(node, scope)
            return self._annotated(base, base_scope, fields.read_metadata(items))
        if name in expressions.QUALIFIERS:
            return self.shape(first, scope)
        known = expressions.ORIGINS.get(name, name)
        if known == "builtins.tuple":
            return self._tuple(arguments, scope)
        if known in expressions.COLLECTIONS:
            return shapes.array(self.render(first, scope), expressions.COLLECTIONS[known])
        if known in expressions.MAPPINGS and len(arguments) == 2:
            keys, values = (self.render(argument, scope) for argument in arguments)
            return shapes.mapping(keys, values, expressions.MAPPINGS[known])
        if known == "collections.Counter":
            return shapes.mapping(self.render(first, scope), {"type": "integer"}, "counter")
        if known == "builtins.type":
            if external_name(first, scope) != "typing.Any":
                return TypeShape("is-subclass", {})
        if name == "pydantic.Json":
            return self._json(self.shape(first, scope))
        if name in ("pydantic.Secret", "pydantic.OnErrorOmit"):
            return TypeShape("function", self.render(first, scope))
        if name == "pydantic.SerializeAsAny":
            return self.shape(first, scope)
        if name == "pydantic.json_schema.SkipJsonSchema":
            raise Omitted
        if name == "pydantic.RootModel":
            return classes.root_model(self, first, scope)
        if name in ("re.Pattern", "typing.Pattern", "os.PathLike", "pydantic.ImportString"):
            return self.external(name)
        raise expressions.unresolved(name)

    def _annotated(self, base: ast.expr, scope: NameScope, metadata: Metadata) -> TypeShape:
        shape = self.apply(metadata, self.shape(base, scope))
        if metadata.default is not None:
            schema = self._with_default(shape.render(), metadata.default)
            return TypeShape("default", schema)
        return shape

    def _json(self, inner: TypeShape) -> TypeShape:
        if self.serialized:
            return TypeShape("json", inner.render())
        content = {"contentMediaType": "application/json", "contentSchema": inner.render()}
        return TypeShape("json", {"type": "string", **content})

    def _tuple(self, arguments: list[ast.expr], scope: NameScope) -> TypeShape:
        if len(arguments) == 2 and expressions.is_ellipsis(arguments[1]):
            return shapes.array(self.render(arguments[0], scope), "tuple")
        items = [self.render(argument, scope) for argument in arguments]
        schema: JsonSchema = {"type": "array", "minItems": len(items), "maxItems": len(items)}
        if items:
            schema["prefixItems"] = items
        return TypeShape("tuple", schema)

    def _literal(self, arguments: list[ast.expr], scope: NameScope) -> TypeShape:
        distinct: dict[tuple[type, Any], None] = {}
        for value in expressions.literal_values(arguments, scope):
            scope.module.budget.spend()
            try:
                distinct[type(value), value] = None
            except TypeError:
                raise Unresolved("Literal", "it has a value that is not a constant") from None
            if len(distinct) > MAX_VALUES:
                raise Unresolved("Literal", f"it has more than {MAX_VALUES:,} values")
        try:
            encoded = [jsonable(value) for _, value in distinct]
        except Unknown as unknown:
            raise Unresolved("Literal", str(unknown)) from unknown
        schema: JsonSchema = {"const": encoded[0]} if len(encoded) == 1 else {"enum": encoded}
        schema |= classes.type_of_values(encoded, null="null")
        return TypeShape("literal", schema)

    def union(self, members: list[tuple[ast.expr, NameScope]]) -> TypeShape:
        """Return the shape of a union, with null last."""
        may_be_null = False
        options: list[TypeShape] = []
        distinct = {(ast.dump(node), id(scope.module)): (node, scope) for node, scope in members}
        for node, scope in distinct.values():
            if expressions.is_none(node):
                may_be_null = True
                continue
            try:
                options.append(self.shape(node, scope))
            except Omitted:
                continue
            except Unresolved as problem:
                nulls = [node for node, _ in distinct.values() if expressions.is_none(node)]
                problem.is_unpassable &= len(distinct) == 1 + len(nulls)  # else pass another type
                raise
        if not options:
            return TypeShape("none", {"type": "null"})
        shape = options[0]
        if len(options) > 1:
            shape = TypeShape("union", shapes.any_of([option.render() for option in options]))
        return shapes.nullable(shape) if may_be_null else shape
