"""Annotation → shape, by syntax alone.

`TypeReader` reads the types of one schema and collects its definitions. It follows names
through `modules`, looks known types up in `known`, and leaves classes to `classes`. A type
that it cannot follow raises `Unresolved`; whoever reads a parameter or a field turns that
into `{}` and a report, so that no schema is ever wrong.
"""

import ast
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from toolkiln.model import JsonSchema
from toolkiln.spec.annotations import aliases, calls, classes, known
from toolkiln.spec.annotations.configuration import configured
from toolkiln.spec.annotations.definitions import Definitions, target
from toolkiln.spec.annotations.expressions import (
    QUALIFIERS,
    is_any,
    is_ellipsis,
    literal_values,
    peel,
    quoted,
    shown,
    subscript_arguments,
    union_members,
)
from toolkiln.spec.annotations.fields import (
    Metadata,
    field_call,
    read_default_field,
    read_metadata,
)
from toolkiln.spec.annotations.shapes import (
    Omitted,
    Shape,
    Unresolved,
    any_of,
    array,
    constrain,
    mapping,
    nullable,
)
from toolkiln.spec.annotations.tags import discriminated
from toolkiln.spec.annotations.values import Unknown, evaluate, jsonable
from toolkiln.spec.modules import (
    AliasRef,
    ClassRef,
    External,
    FunctionRef,
    Resolved,
    Scope,
    resolve,
)
from toolkiln.spec.work import MAX_VALUES

_DEEPEST = 60
_MOST = 20_000
"""Type expressions of one schema; far beyond any tool, and a bound on what aliases unfold to."""


class Note(NamedTuple):
    """Something that could not be known, to be reported beside the schema."""

    rule: str
    message: str
    line: int
    path: str | None = None
    """Of the helper it is in, if not in the file itself."""


class Field(NamedTuple):
    """A parameter or field: its schema and what surrounds it."""

    schema: JsonSchema
    metadata: Metadata
    required: bool


class TypeReader:
    """Reads the types of a file, as they are read from JSON or written to it.

    Definitions are shared by all schemas of the file, so that a class is read once however
    many tools take it.
    """

    def __init__(self, *, serialized: bool = False) -> None:
        self.serialized = serialized
        self.definitions = Definitions()
        self.notes: list[Note] = []
        self.config: dict[str, Any] = {}
        """The model configuration in force."""
        self.current_class: ClassRef | None = None
        self.is_shareable = True
        """Whether the definitions hold for the next schema too: not if one of them took over
        the configuration of the model around it."""
        self._open_aliases: list[tuple[str, str]] = []
        self._depth = 0
        self._seen = 0

    def take_notes(self) -> list[Note]:
        """What could not be known since the last call, which starts a new schema."""
        taken, self.notes, self._seen = self.notes, [], 0
        if not self.is_shareable:
            self.definitions, self.is_shareable = Definitions(), True
        return taken

    def shape(self, node: ast.expr, scope: Scope) -> Shape:
        """The shape of an annotation.

        Raises:
            Unresolved: it cannot be known.
            Omitted: it asks not to be seen.
        """
        self._depth += 1
        self._seen += 1
        scope.module.work.spend()
        try:
            if self._depth > _DEEPEST or self._seen > _MOST:
                raise Unresolved(shown(node), "it is nested too deeply")
            return self._shape(node, scope)
        finally:
            self._depth -= 1

    def _shape(self, node: ast.expr, scope: Scope) -> Shape:
        if isinstance(node, ast.Name | ast.Attribute):
            if isinstance(node, ast.Name) and node.id in scope.variables:
                return self.shape(*scope.variables[node.id])
            return self._named(resolve(node, scope), node)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, scope)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._union(node, scope)
        if isinstance(node, ast.Constant):
            if node.value is None:
                return Shape("none", {"type": "null"})
            if isinstance(node.value, str):
                return self.shape(quoted(node), scope)
        if isinstance(node, ast.Call):
            return calls.call_shape(self, node, scope)
        raise Unresolved(shown(node), "it is not a type")

    def render(self, node: ast.expr, scope: Scope) -> JsonSchema:
        """The schema of an annotation; see `shape`."""
        return self.shape(node, scope).render()

    def field(
        self,
        annotation: ast.expr | None,
        scope: Scope,
        default: ast.expr | None,
        what: str | None = None,
    ) -> Field:
        """A parameter or field with everything that `Annotated`, `Field` and its default say.

        Notes that come up on the way are about `what`.
        """
        noted = len(self.notes)
        if annotation is None:
            base, metadata = None, Metadata()
        else:
            base, base_scope, items = peel(annotation, scope)
            metadata = read_metadata(items)
        weak: list[tuple[str, Any]] = []
        if (call := field_call(default, scope)) is not None:
            weak = read_default_field(call, scope, metadata)
        elif default is not None and not is_ellipsis(default):
            metadata.default = (default, scope)
        where = annotation or default
        self.note_unknown(metadata, where, scope)
        try:
            shape = self.shape(base, base_scope) if base is not None else Shape("any", {})
            schema = self.apply(metadata, self._weakly(weak, shape)).render()
        except Unresolved as problem:
            message = f"the type {problem.name!r}: {problem.reason}"
            self._note("unresolved-type", message, where, scope)
            schema = dict(metadata.updates)
        if metadata.default is not None:
            schema = self._with_default(schema, metadata.default)
        if what and len(self.notes) > noted:
            about = [n._replace(message=f"{what}: {n.message}") for n in self.notes[noted:]]
            self.notes[noted:] = about
        return Field(schema, metadata, not metadata.is_optional)

    def note_unknown(self, metadata: Metadata, where: ast.expr | None, scope: Scope) -> None:
        """Note the constraints whose values only running the code would tell."""
        for name in metadata.unknown:
            self._note("unknown-value", f"the value of {name} is not known", where, scope)

    def _note(self, rule: str, message: str, where: ast.expr | None, scope: Scope) -> None:
        line = where.lineno if where is not None else 1
        self.notes.append(Note(rule, message, line, scope.module.path))

    def _weakly(self, steps: list[tuple[str, Any]], shape: Shape) -> Shape:
        """The shape with constraints of `= Field(…)`, which the annotation's own override."""
        for step, value in steps:
            applied = self._step(shape, step, value)
            if applied.kind == shape.kind and shape.kind in ("int", "float", "str", "bytes"):
                applied = Shape(shape.kind, {**applied.schema, **shape.schema})
            shape = applied
        return shape

    def apply(self, metadata: Metadata, shape: Shape) -> Shape:
        """The shape with constraints, replacements and texts applied, in order."""
        if metadata.skipped:
            raise Omitted
        for step, value in metadata.steps:
            shape = self._step(shape, step, value)
        if metadata.updates:
            shape = Shape(shape.kind, {**shape.schema, **metadata.updates}, shape.inner)
        if metadata.replacement is not None:
            schema, mode = metadata.replacement
            if mode in (None, "serialization" if self.serialized else "validation"):
                shape = Shape("function", dict(schema))
        return shape

    def _step(self, shape: Shape, step: str, value: Any) -> Shape:
        if step == "tagged":
            return discriminated(shape, value, self.definitions)
        if step == "function":
            return Shape(f"after {shape.kind.removeprefix('after ')}", shape.render())
        if step == "read":
            return shape if self.serialized else Shape("function", self.render(*value))
        if step == "written":
            return Shape("function", self.render(*value)) if self.serialized else shape
        if step == "opaque" or (step == "opaque when read" and not self.serialized):
            raise Unresolved(str(value), "it changes the schema in code")
        if step == "opaque when read":
            return shape
        try:
            if shape.kind == "alias":
                return self._constrained_alias(shape, step, value)
            return constrain(shape, step, value, serialized=self.serialized)
        except Unknown:
            return shape

    def _constrained_alias(self, shape: Shape, step: str, value: Any) -> Shape:
        """A definition of its own for an alias under a constraint."""
        name = target(shape.schema)
        inner = self.definitions.aliases.get(name)
        constrained = self._step(inner, step, value) if inner else None
        if inner is None or constrained is None or constrained.kind.startswith("after"):
            return constrain(shape, step, value, serialized=self.serialized)
        if constrained.render() == inner.render():
            return shape
        key = (name, step, repr(value))
        made = self.define(key, name, "alias", constrained.render)
        self.definitions.aliases[self.definitions.name(key)] = constrained
        return Shape("alias", {**shape.schema, **made.schema})

    def define(self, key: Hashable, name: str, kind: str, build: Callable[[], JsonSchema]) -> Shape:
        """A reference to the definition of `key`; inside it, aliases may come round again."""
        outside, self._open_aliases = self._open_aliases, []
        try:
            return self.definitions.define(key, name, kind, build)
        finally:
            self._open_aliases = outside

    def _with_default(self, schema: JsonSchema, default: tuple[ast.expr, Scope]) -> JsonSchema:
        node, scope = default
        try:
            return {**schema, "default": jsonable(self.value(node, scope))}
        except Unknown:
            message = f"the default {shown(node)!r} is not known before the code runs"
            self._note("unknown-default", message, node, scope)
            return schema

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """What an expression is worth, objects of our own classes as their fields."""
        return evaluate(node, scope, lambda *made: classes.instance(self, *made))

    # Names

    def _named(self, target: Resolved | None, node: ast.expr) -> Shape:
        if isinstance(target, External):
            return self.external(target.name)
        if isinstance(target, ClassRef):
            return classes.class_shape(self, target, ())
        if isinstance(target, AliasRef):
            return aliases.alias_shape(self, target, ())
        name = ast.unparse(node)
        if isinstance(target, FunctionRef) and f"builtins.{name}" in known.BUILTINS:
            return self.external(f"builtins.{name}")  # def list(…) -> list[str]
        if target is None:
            raise Unresolved(name, "nothing of that name is defined or imported")
        raise Unresolved(name, "it is not a type")

    def external(self, name: str) -> Shape:
        """The shape of a type from elsewhere that is known by name."""
        scalar = known.SCALARS.get(name)
        if scalar is not None:
            return self._scalar(name, scalar)
        if name in known.LISTS:
            return array({}, known.LISTS[name])
        if name in known.SETS:
            return array({}, known.SETS[name], unique=True)
        if name in known.TUPLES:
            return array({}, "tuple")
        if name in known.COUNTERS:
            return mapping({}, {"type": "integer"}, "counter")
        if name in known.MAPPINGS and not name.lower().endswith("defaultdict"):
            return mapping({}, {}, known.MAPPINGS[name])
        if name == "pydantic.JsonValue":
            return self.define(name, "JsonValue", "any", dict)
        if name == "pydantic.Json":
            return self._json(Shape("any", {}))
        if name == "typing.Self" and self.current_class is not None:
            return classes.class_shape(self, self.current_class, ())
        raise Unresolved(name.removeprefix("builtins."), known.reason(name))

    def _scalar(self, name: str, scalar: tuple[str, JsonSchema]) -> Shape:
        kind, schema = scalar
        if self.serialized and name in known.SERIALIZED:
            kind, schema = known.SERIALIZED[name]
        if not self.config:
            return Shape(kind, dict(schema))
        schema = configured(kind, dict(schema), self.config, serialized=self.serialized)
        return Shape(kind, schema)

    @contextmanager
    def opened(self, module: str, name: str) -> Iterator[None]:
        """While an alias is being followed; it must not lead back to itself."""
        if (module, name) in self._open_aliases:
            raise Unresolved(name, "the alias refers to itself; write it with a type statement")
        self._open_aliases.append((module, name))
        try:
            yield
        finally:
            self._open_aliases.pop()

    # Subscripts

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Shape:
        target = resolve(node.value, scope)
        arguments = subscript_arguments(node)
        if isinstance(target, FunctionRef) and isinstance(node.value, ast.Name):
            target = External(f"builtins.{node.value.id}")
        if isinstance(target, External):
            return self._external_subscript(target.name, arguments, node, scope)
        pairs = tuple((argument, scope) for argument in arguments)
        if isinstance(target, ClassRef):
            return classes.class_shape(self, target, pairs)
        if isinstance(target, AliasRef):
            return aliases.alias_shape(self, target, pairs)
        raise Unresolved(ast.unparse(node.value))

    def _external_subscript(
        self, name: str, arguments: list[ast.expr], node: ast.Subscript, scope: Scope
    ) -> Shape:
        first = arguments[0] if arguments else node.slice
        if name in ("typing.Optional", "typing.Union"):
            return self._union(node, scope)
        if name == "typing.Literal":
            return self._literal(arguments, scope)
        if name == "typing.Annotated":
            base, base_scope, items = peel(node, scope)
            return self._annotated(base, base_scope, read_metadata(items))
        if name in QUALIFIERS:
            return self.shape(first, scope)
        if name in known.LISTS:
            return array(self.render(first, scope), known.LISTS[name])
        if name in known.SETS:
            return array(self.render(first, scope), known.SETS[name], unique=True)
        if name in known.TUPLES:
            return self._tuple(arguments, scope)
        if name in known.MAPPINGS and len(arguments) == 2:
            keys, values = (self.render(argument, scope) for argument in arguments)
            return mapping(keys, values, known.MAPPINGS[name])
        if name in known.COUNTERS:
            return mapping(self.render(first, scope), {"type": "integer"}, "counter")
        if name in ("builtins.type", "typing.Type") and not is_any(first, scope):
            return Shape("is-subclass", {})
        if name == "pydantic.Json":
            return self._json(self.shape(first, scope))
        if name in ("pydantic.Secret", "pydantic.OnErrorOmit"):
            return Shape("function", self.render(first, scope))
        if name == "pydantic.SerializeAsAny":
            return self.shape(first, scope)
        if name == "pydantic.json_schema.SkipJsonSchema":
            raise Omitted
        if name == "pydantic.RootModel":
            return classes.root_model(self, first, scope)
        if name in ("re.Pattern", "typing.Pattern", "os.PathLike", "pydantic.ImportString"):
            return self.external(name)
        raise Unresolved(name, known.reason(name))

    def _annotated(self, base: ast.expr, scope: Scope, metadata: Metadata) -> Shape:
        shape = self.apply(metadata, self.shape(base, scope))
        if metadata.default is not None:
            schema = self._with_default(shape.render(), metadata.default)
            return Shape("default", schema)
        return shape

    def _json(self, inner: Shape) -> Shape:
        if self.serialized:
            return Shape("json", inner.render())
        content = {"contentMediaType": "application/json", "contentSchema": inner.render()}
        return Shape("json", {"type": "string", **content})

    def _tuple(self, arguments: list[ast.expr], scope: Scope) -> Shape:
        if len(arguments) == 2 and is_ellipsis(arguments[1]):
            return array(self.render(arguments[0], scope), "tuple")
        items = [self.render(argument, scope) for argument in arguments]
        schema: JsonSchema = {"type": "array", "minItems": len(items), "maxItems": len(items)}
        if items:
            schema["prefixItems"] = items
        return Shape("tuple", schema)

    def _literal(self, arguments: list[ast.expr], scope: Scope) -> Shape:
        distinct: dict[tuple[type, Any], None] = {}
        for value in literal_values(arguments, scope):
            scope.module.work.spend()
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
        return Shape("literal", schema)

    # Unions

    def _union(self, node: ast.expr, scope: Scope) -> Shape:
        return self.alternatives(list(union_members(node, scope)))

    def alternatives(self, members: list[tuple[ast.expr, Scope]]) -> Shape:
        """One of several types, null last."""
        may_be_null = False
        shapes: list[Shape] = []
        distinct = {(ast.dump(node), id(scope.module)): (node, scope) for node, scope in members}
        for node, scope in distinct.values():
            if isinstance(node, ast.Constant) and node.value is None:
                may_be_null = True
                continue
            try:
                shapes.append(self.shape(node, scope))
            except Omitted:
                continue
        if not shapes:
            return Shape("none", {"type": "null"})
        if len(shapes) == 1:
            union = shapes[0]
        else:
            union = Shape("union", any_of([shape.render() for shape in shapes]))
        return nullable(union) if may_be_null else union
