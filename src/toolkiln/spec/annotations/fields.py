"""What `Annotated[…]`, `Field(…)` and their relatives add to a type.

A pure reading of metadata expressions into one `Metadata` value; `annotations` applies it
to a shape. Metadata of unknown origin is ignored, as pydantic ignores what it does not
know.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from toolkiln.spec.annotations.shapes import CONSTRAINTS
from toolkiln.spec.annotations.values import Unknown, evaluate, evaluate_or, jsonable
from toolkiln.spec.modules import AliasRef, ClassRef, External, FunctionRef, Scope, resolve


@dataclass(slots=True)
class Metadata:
    """Everything that stands beside a type, in the order in which it applies."""

    steps: list[tuple[str, Any]] = field(default_factory=list)
    """Constraints by pydantic's name, and `written`, `read`, `opaque`, `function`, `tagged`."""
    updates: dict[str, Any] = field(default_factory=dict)
    """What is written into the schema as it is: description, examples, extras."""
    text: str | None = None
    """A bare string in `Annotated`: a description if no `Field` gives one."""
    default: tuple[ast.expr, Scope] | None = None
    has_factory: bool = False
    alias: str | None = None
    validation_alias: str | None = None
    serialization_alias: str | None = None
    excluded: bool = False
    skipped: bool = False
    """`SkipJsonSchema`: not to be seen."""
    replacement: tuple[dict[str, Any], str | None] | None = None
    """The schema of `WithJsonSchema`, and the mode it is for."""
    kw_only: bool | None = None
    unknown: list[str] = field(default_factory=list)
    """Constraints whose values cannot be known, to be reported."""

    @property
    def is_optional(self) -> bool:
        """Whether a default makes the field optional."""
        return self.default is not None or self.has_factory


_ANNOTATED_TYPES = {
    "Gt": "gt",
    "Ge": "ge",
    "Lt": "lt",
    "Le": "le",
    "MultipleOf": "multiple_of",
    "MinLen": "min_length",
    "MaxLen": "max_length",
}


def read_metadata(items: Iterable[tuple[ast.expr, Scope]]) -> Metadata:
    """The metadata of `Annotated[T, *items]`."""
    metadata = Metadata()
    for node, scope in items:
        _read_item(node, scope, metadata)
    return metadata


def field_call(node: ast.expr | None, scope: Scope) -> ast.Call | None:
    """The call, if the expression is a pydantic `Field(...)`."""
    if isinstance(node, ast.Call):
        target = resolve(node.func, scope)
        if isinstance(target, External) and target.name == "pydantic.Field":
            return node
    return None


def read_field(call: ast.Call, scope: Scope, metadata: Metadata) -> None:
    """Add what `Field(...)` says to `metadata`."""
    keywords = {k.arg: k.value for k in call.keywords if k.arg}
    default = call.args[0] if call.args else keywords.get("default")
    if default is not None and not _is_ellipsis(default) and not _is_undefined(default, scope):
        metadata.default = (default, scope)
    if "default_factory" in keywords and not _is_none(keywords["default_factory"]):
        metadata.has_factory = True
    for name in ("alias", "validation_alias", "serialization_alias"):
        if name in keywords:
            setattr(metadata, name, _alias(keywords[name], scope))
    if evaluate_or(keywords.get("exclude"), scope) is True:
        metadata.excluded = True
    if "kw_only" in keywords:
        metadata.kw_only = bool(evaluate_or(keywords["kw_only"], scope))
    for name, value in keywords.items():
        if name in CONSTRAINTS:
            _constraint(name, value, scope, metadata)
    if "discriminator" in keywords:
        _discriminator(keywords["discriminator"], scope, metadata)
    _updates(keywords, scope, metadata)


def read_default_field(call: ast.Call, scope: Scope, metadata: Metadata) -> list[tuple[str, Any]]:
    """Add what `= Field(…)` says to `metadata`, but for its constraints, which are returned."""
    stated, metadata.steps = metadata.steps, []
    read_field(call, scope, metadata)
    weak, metadata.steps = metadata.steps, stated
    return weak


def _updates(keywords: dict[str, ast.expr], scope: Scope, metadata: Metadata) -> None:
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
        deprecated = evaluate_or(keywords["deprecated"], scope, otherwise=True)
        if deprecated or deprecated == "":
            metadata.updates["deprecated"] = True
    if "json_schema_extra" in keywords and not _is_none(keywords["json_schema_extra"]):
        try:
            metadata.updates.update(jsonable(evaluate(keywords["json_schema_extra"], scope)))
        except (Unknown, TypeError, ValueError):
            metadata.steps.append(("opaque", "json_schema_extra"))


def _read_item(node: ast.expr, scope: Scope, metadata: Metadata) -> None:
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
            _local_class(target, metadata)
        elif isinstance(target, External):
            _bare(target.name, metadata)
        return
    if not isinstance(node, ast.Call):
        return
    target = resolve(node.func, scope)
    if isinstance(target, ClassRef):
        _local_class(target, metadata)
    elif isinstance(target, External):
        module, _, name = target.name.rpartition(".")
        if target.name == "pydantic.Field":
            read_field(node, scope, metadata)
        elif module == "annotated_types":
            _annotated_type(name, node, scope, metadata)
        elif module in ("pydantic", "pydantic.json_schema"):
            _pydantic_item(name, node, scope, metadata)
        elif name == "Doc" and node.args:
            metadata.text = evaluate_or(node.args[0], scope, metadata.text)


def _bare(name: str, metadata: Metadata) -> None:
    if name == "pydantic.json_schema.SkipJsonSchema":
        metadata.skipped = True


def _local_class(target: ClassRef, metadata: Metadata) -> None:
    """An object of the author's own may change the schema in code that we do not run."""
    hooks = {"__get_pydantic_core_schema__", "__get_pydantic_json_schema__"}
    if hooks & target.scope.module.class_bindings(target.node).keys():
        metadata.steps.append(("opaque", target.node.name))


def _annotated_type(name: str, call: ast.Call, scope: Scope, metadata: Metadata) -> None:
    keywords = {k.arg: k.value for k in call.keywords if k.arg}
    if name in _ANNOTATED_TYPES:
        constraint = _ANNOTATED_TYPES[name]
        value = call.args[0] if call.args else keywords.get(constraint)
        if value is not None:
            _constraint(constraint, value, scope, metadata)
    elif name == "Interval":
        for constraint in ("gt", "ge", "lt", "le"):
            if constraint in keywords:
                _constraint(constraint, keywords[constraint], scope, metadata)
    elif name == "Len":
        bounds = dict(zip(("min_length", "max_length"), call.args, strict=False)) | keywords
        if evaluate_or(bounds.get("min_length"), scope, 0):  # none is written for zero
            _constraint("min_length", bounds["min_length"], scope, metadata)
        if "max_length" in bounds:
            _constraint("max_length", bounds["max_length"], scope, metadata)
    elif name in ("Predicate", "Not", "Timezone", "Unit"):
        if name in ("Predicate", "Not"):
            metadata.steps.append(("function", None))


def _pydantic_item(name: str, call: ast.Call, scope: Scope, metadata: Metadata) -> None:
    keywords = {k.arg: k.value for k in call.keywords if k.arg}
    if name in ("StringConstraints", "UrlConstraints"):
        for constraint, value in keywords.items():
            if constraint in CONSTRAINTS:
                _constraint(constraint, value, scope, metadata)
    elif name == "Discriminator" and call.args:
        _discriminator(call.args[0], scope, metadata)
    elif name == "WithJsonSchema" and (call.args or keywords):
        _with_json_schema(call, keywords, scope, metadata)
    elif name == "SkipJsonSchema":
        metadata.skipped = True
    elif name in ("PlainSerializer", "WrapSerializer"):
        _serializer(call, keywords, scope, metadata)
    elif name in ("BeforeValidator", "WrapValidator", "PlainValidator", "AfterValidator"):
        given = keywords.get("json_schema_input_type")
        if given is not None:
            metadata.steps.append(("read", (given, scope)))
        elif name == "PlainValidator":
            metadata.steps.append(("opaque when read", "PlainValidator"))
        metadata.steps.append(("function", None))
    elif name in ("GetPydanticSchema", "ValidateAs"):
        metadata.steps.append(("opaque", name))


def _with_json_schema(
    call: ast.Call, keywords: dict[str, ast.expr], scope: Scope, metadata: Metadata
) -> None:
    given = call.args[0] if call.args else keywords["json_schema"]
    try:
        schema = jsonable(evaluate(given, scope))
        mode = evaluate_or(keywords.get("mode"), scope)
    except Unknown:
        metadata.steps.append(("opaque", "WithJsonSchema"))
        return
    if schema is None:
        metadata.skipped = True
    else:
        metadata.replacement = (schema, mode)


def _serializer(
    call: ast.Call, keywords: dict[str, ast.expr], scope: Scope, metadata: Metadata
) -> None:
    given = keywords.get("return_type")
    where = scope
    if given is None and call.args:
        function = resolve(call.args[0], scope)
        if isinstance(function, FunctionRef):
            given, where = function.node.returns, function.scope
        elif isinstance(function, External) and function.name in ("builtins.str", "builtins.float"):
            given = call.args[0]
    if given is not None:
        metadata.steps.append(("written", (given, where)))


def _constraint(name: str, node: ast.expr, scope: Scope, metadata: Metadata) -> None:
    try:
        metadata.steps.append((name, evaluate(node, scope)))
    except Unknown:
        metadata.unknown.append(name)


def _discriminator(node: ast.expr, scope: Scope, metadata: Metadata) -> None:
    value = evaluate_or(node, scope)
    if value is None and isinstance(node, ast.Call) and node.args:  # Discriminator("kind")
        value = evaluate_or(node.args[0], scope)
    metadata.steps.append(("tagged", value if isinstance(value, str) else None))


def _alias(node: ast.expr, scope: Scope) -> str | None:
    if isinstance(node, ast.Call):  # AliasChoices("a", AliasPath("b", 0)): the first plain name
        for argument in node.args:
            value = evaluate_or(argument, scope)
            if isinstance(value, str):
                target = resolve(node.func, scope)
                path = isinstance(target, External) and target.name.endswith("AliasPath")
                return None if path and len(node.args) > 1 else value
        return None
    value = evaluate_or(node, scope)
    return value if isinstance(value, str) else None


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_undefined(node: ast.expr, scope: Scope) -> bool:
    target = resolve(node, scope)
    return isinstance(target, External) and target.name.endswith("PydanticUndefined")
