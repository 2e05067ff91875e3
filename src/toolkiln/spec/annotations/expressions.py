"""Type expressions: subscripts, quotes, unions and qualifiers, and tables of known types."""

import ast
import sys
import typing
from collections.abc import Iterator
from typing import Any

from toolkiln.model.base import JsonSchema
from toolkiln.spec import syntax
from toolkiln.spec.annotations.evaluator import Unknown, evaluate
from toolkiln.spec.annotations.shapes import Unresolved
from toolkiln.spec.namespace import AliasRef, External, NameScope, external_name, resolve

_MAX_CHAIN = 60
QUALIFIERS = {
    "typing.Required",
    "typing.NotRequired",
    "typing.ReadOnly",
    "typing.Final",
    "typing.ClassVar",
    "dataclasses.InitVar",
}


def peel(
    node: ast.expr, scope: NameScope
) -> tuple[ast.expr, NameScope, list[tuple[ast.expr, NameScope]]]:
    """Strip `Annotated` and qualifiers; return the type, its scope and the metadata."""
    items: list[tuple[ast.expr, NameScope]] = []
    for _ in range(_MAX_CHAIN):
        node = _unquoted(node)
        if isinstance(node, ast.Name | ast.Attribute):
            if isinstance(node, ast.Name) and node.id in scope.variables:
                node, scope = scope.variables[node.id]
                continue
            target = resolve(node, scope)
            if (
                isinstance(target, AliasRef)
                and target.assigned.type_params is None
                and isinstance(target.assigned.value, ast.Subscript)
                and external_name(target.assigned.value.value, target.scope) == "typing.Annotated"
            ):
                node, scope = target.assigned.value, target.scope
                continue
        if not isinstance(node, ast.Subscript):
            break
        name = external_name(node.value, scope)
        arguments = subscript_arguments(node)
        if name == "typing.Annotated" and len(arguments) > 1:
            items[:0] = [(item, scope) for item in arguments[1:]]
        elif name not in QUALIFIERS or not arguments:
            break
        node = arguments[0]
    return node, scope, items


def qualifiers(node: ast.expr, scope: NameScope) -> set[str]:
    """Return the qualifiers of a type, such as `Required` and `ClassVar`."""
    found: set[str] = set()
    for _ in range(_MAX_CHAIN):
        node = _unquoted(node)
        name = external_name(node.value if isinstance(node, ast.Subscript) else node, scope)
        if name in QUALIFIERS:
            found.add(name.rpartition(".")[2])
        elif name != "typing.Annotated":
            break
        if not isinstance(node, ast.Subscript):
            break
        node = subscript_arguments(node)[0]
    return found


def union_members(
    node: ast.expr, scope: NameScope, depth: int = 0
) -> Iterator[tuple[ast.expr, NameScope]]:
    """Yield the members of a union, including those of nested unions and aliases."""
    if depth > _MAX_CHAIN:
        raise Unresolved(ast.unparse(node)[:60], "it is nested too deeply")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from union_members(quoted(node), scope, depth + 1)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from union_members(node.left, scope, depth + 1)
        yield from union_members(node.right, scope, depth + 1)
    elif isinstance(node, ast.Subscript):
        name = external_name(node.value, scope)
        if name not in ("typing.Union", "typing.Optional"):
            yield node, scope
            return
        for argument in subscript_arguments(node):
            yield from union_members(argument, scope, depth + 1)
        if name == "typing.Optional":
            yield ast.Constant(None), scope
    elif isinstance(node, ast.Name) and node.id in scope.variables:
        yield from union_members(*scope.variables[node.id], depth + 1)
    elif isinstance(node, ast.Name | ast.Attribute):
        target = resolve(node, scope)
        if (
            isinstance(target, AliasRef)
            and target.assigned.type_params is None
            and isinstance(target.assigned.value, ast.BinOp | ast.Subscript)
        ):
            yield from union_members(target.assigned.value, target.scope, depth + 1)
        elif target == External("types.NoneType"):
            yield ast.Constant(None), scope
        else:
            yield node, scope
    else:
        yield node, scope


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name, quoted or not; "" for anything else."""
    if isinstance(node, ast.Constant):
        return str(node.value).rpartition(".")[2]
    return syntax.last_name(node)


def _unquoted(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return quoted(node)
        except Unresolved:
            pass
    return node


def quoted(node: ast.Constant) -> ast.expr:
    """Parse a quoted annotation."""
    try:
        inner = ast.parse(str(node.value).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unresolved(
            str(node.value)[:60], "the quoted annotation is not an expression"
        ) from error
    for child in ast.walk(inner):
        if isinstance(child, ast.expr):
            child.lineno = node.lineno
    return inner


def subscript_arguments(node: ast.Subscript) -> list[ast.expr]:
    """Return the arguments of a subscript."""
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def type_variables(node: ast.expr, scope: NameScope) -> Iterator[str]:
    """Yield the type variables of an expression, in order of first appearance."""
    seen: set[str] = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and child.id not in seen:
            seen.add(child.id)
            target = resolve(child, scope)
            if isinstance(target, AliasRef) and isinstance(target.assigned.value, ast.Call):
                function = target.assigned.value.func
                if external_name(function, target.scope) == "typing.TypeVar":
                    yield child.id


def is_none(node: ast.expr) -> bool:
    """Return whether an expression is `None`."""
    return isinstance(node, ast.Constant) and node.value is None


def is_ellipsis(node: ast.expr) -> bool:
    """Return whether an expression is `...`."""
    return isinstance(node, ast.Constant) and node.value is ...


def literal_values(arguments: list[ast.expr], scope: NameScope) -> Iterator[Any]:
    """Yield the values of a `Literal`, including those of nested literals and aliases."""
    for node in arguments:
        target = resolve(node, scope)
        if isinstance(target, AliasRef) and isinstance(target.assigned.value, ast.Subscript):
            inner = subscript_arguments(target.assigned.value)
            yield from literal_values(inner, target.scope)
        elif isinstance(node, ast.Subscript):
            yield from literal_values(subscript_arguments(node), scope)
        else:
            try:
                yield evaluate(node, scope)
            except Unknown as unknown:
                raise Unresolved(ast.unparse(node), "its value is unknown") from unknown


def shown(node: ast.expr) -> str:
    """Return the beginning of an expression for messages."""
    try:
        return ast.unparse(node)[:60]
    except RecursionError:
        return type(node).__name__


def _text(format_: str | None = None, **more: object) -> JsonSchema:
    return {"type": "string", **({"format": format_} if format_ else {}), **more}


_URL = ("url", _text("uri", minLength=1))
_MULTI_HOST = ("url", _text("multi-host-uri", minLength=1))
_SECRET = ("lax-or-strict", _text("password", writeOnly=True))
_DECIMAL = ("decimal", {"anyOf": [{"type": "number"}, {"type": "string"}]})

SCALARS: dict[str, tuple[str, JsonSchema]] = {
    "builtins.str": ("str", {"type": "string"}),
    "builtins.int": ("int", {"type": "integer"}),
    "builtins.float": ("float", {"type": "number"}),
    "builtins.bool": ("bool", {"type": "boolean"}),
    "builtins.None": ("none", {"type": "null"}),
    "types.NoneType": ("none", {"type": "null"}),
    "builtins.object": ("any", {}),
    "builtins.bytes": ("bytes", _text("binary")),
    "builtins.complex": ("complex", _text()),
    "typing.Any": ("any", {}),
    "typing.Text": ("str", {"type": "string"}),
    "typing.AnyStr": ("union", {"anyOf": [_text("binary"), {"type": "string"}]}),
    "typing.Final": ("any", {}),
    "datetime.date": ("date", _text("date")),
    "datetime.datetime": ("datetime", _text("date-time")),
    "datetime.time": ("time", _text("time")),
    "datetime.timedelta": ("timedelta", _text("duration")),
    "decimal.Decimal": _DECIMAL,
    "fractions.Fraction": (
        "fraction",
        {"anyOf": [{"type": "number"}, _text("fraction")]},
    ),
    "uuid.UUID": ("uuid", _text("uuid")),
    "zoneinfo.ZoneInfo": ("function", _text("zoneinfo")),
    "re.Pattern": ("function", _text("regex")),
    "typing.Pattern": ("function", _text("regex")),
    "os.PathLike": ("lax-or-strict", _text("path")),
    **{
        f"pathlib.{name}": ("lax-or-strict", _text("path"))
        for name in ("Path", "PurePath", "PosixPath", "PurePosixPath", "PureWindowsPath")
    },
    **{
        f"ipaddress.IPv{version}{kind}": ("lax-or-strict", _text(f"ipv{version}{format_}"))
        for version in (4, 6)
        for kind, format_ in (("Address", ""), ("Network", "network"), ("Interface", "interface"))
    },
    **{
        f"pydantic.{name}": _URL
        for name in (
            "AnyUrl", "AnyHttpUrl", "AnyWebsocketUrl", "FileUrl", "FtpUrl", "AmqpDsn",
            "ClickHouseDsn", "CockroachDsn", "KafkaDsn", "MariaDBDsn", "MySQLDsn", "RedisDsn",
            "SnowflakeDsn",
        )
    },
    "pydantic.HttpUrl": ("url", _text("uri", minLength=1, maxLength=2083)),
    "pydantic.WebsocketUrl": ("url", _text("uri", minLength=1, maxLength=2083)),
    "pydantic.MongoDsn": _MULTI_HOST,
    "pydantic.NatsDsn": _MULTI_HOST,
    "pydantic.PostgresDsn": _MULTI_HOST,
    "pydantic.EmailStr": ("function", _text("email")),
    "pydantic.NameEmail": ("function", _text("name-email")),
    "pydantic.IPvAnyAddress": ("function", _text("ipvanyaddress")),
    "pydantic.IPvAnyInterface": ("function", _text("ipvanyinterface")),
    "pydantic.IPvAnyNetwork": ("function", _text("ipvanynetwork")),
    "pydantic.SecretStr": _SECRET,
    "pydantic.SecretBytes": _SECRET,
    "pydantic.FilePath": ("function", _text("file-path")),
    "pydantic.DirectoryPath": ("function", _text("directory-path")),
    "pydantic.NewPath": ("function", _text("path")),
    "pydantic.SocketPath": ("function", _text("path")),
    "pydantic.Base64Bytes": ("function", _text("base64")),
    "pydantic.Base64Str": ("function", _text("base64")),
    "pydantic.Base64UrlBytes": ("function", _text("base64url")),
    "pydantic.Base64UrlStr": ("function", _text("base64url")),
    "pydantic.ImportString": ("function", _text()),
    "pydantic.PaymentCardNumber": ("function", _text(minLength=12, maxLength=19)),
    "pydantic.PositiveInt": ("int", {"type": "integer", "exclusiveMinimum": 0}),
    "pydantic.NegativeInt": ("int", {"type": "integer", "exclusiveMaximum": 0}),
    "pydantic.NonNegativeInt": ("int", {"type": "integer", "minimum": 0}),
    "pydantic.NonPositiveInt": ("int", {"type": "integer", "maximum": 0}),
    "pydantic.PositiveFloat": ("float", {"type": "number", "exclusiveMinimum": 0}),
    "pydantic.NegativeFloat": ("float", {"type": "number", "exclusiveMaximum": 0}),
    "pydantic.NonNegativeFloat": ("float", {"type": "number", "minimum": 0}),
    "pydantic.NonPositiveFloat": ("float", {"type": "number", "maximum": 0}),
    "pydantic.FiniteFloat": ("float", {"type": "number"}),
    "pydantic.StrictInt": ("int", {"type": "integer"}),
    "pydantic.StrictFloat": ("float", {"type": "number"}),
    "pydantic.StrictBool": ("bool", {"type": "boolean"}),
    "pydantic.StrictStr": ("str", {"type": "string"}),
    "pydantic.StrictBytes": ("bytes", _text("binary")),
    "pydantic.PastDate": ("date", _text("date")),
    "pydantic.FutureDate": ("date", _text("date")),
    "pydantic.PastDatetime": ("datetime", _text("date-time")),
    "pydantic.FutureDatetime": ("datetime", _text("date-time")),
    "pydantic.AwareDatetime": ("datetime", _text("date-time")),
    "pydantic.NaiveDatetime": ("datetime", _text("date-time")),
    **{f"pydantic.UUID{n}": ("uuid", _text(f"uuid{n}")) for n in (1, 3, 4, 5, 6, 7, 8)},
    "pydantic.ByteSize": (
        "function",
        {
            "anyOf": [
                {"type": "string", "pattern": r"^\s*(\d*\.?\d+)\s*(\w+)?"},
                {"type": "integer", "minimum": 0},
            ]
        },
    ),
}  # fmt: skip

SERIALIZED: dict[str, tuple[str, JsonSchema]] = {
    "decimal.Decimal": ("decimal", {"type": "string"}),
    "fractions.Fraction": ("fraction", _text("fraction")),
    "pydantic.ByteSize": ("function", {"type": "integer", "minimum": 0}),
}
"""Scalars whose serialization schema differs."""

COLLECTIONS = {
    "builtins.list": "list",
    "builtins.set": "set",
    "builtins.frozenset": "frozenset",
    "builtins.tuple": "tuple",
    "collections.deque": "deque",
    "collections.abc.MutableSequence": "list",
    "collections.abc.Sequence": "sequence",
    "collections.abc.Iterable": "generator",
    "collections.abc.Generator": "generator",
    "collections.abc.MutableSet": "set",
    "collections.abc.Set": "frozenset",
}
"""Types that become arrays, and their kinds."""
MAPPINGS = {
    "builtins.dict": "dict",
    "collections.abc.Mapping": "dict",
    "collections.abc.MutableMapping": "dict",
    "collections.OrderedDict": "ordered-dict",
    "collections.defaultdict": "lax-or-strict",
}
ORIGINS = {
    f"typing.{name}": f"{origin.__module__}.{origin.__qualname__}"
    for name, value in vars(typing).items()
    if isinstance(origin := typing.get_origin(value), type)
}
"""The types that names of `typing` such as `List` stand for."""
BUILTINS = {
    name
    for table in (SCALARS, COLLECTIONS, MAPPINGS)
    for name in table
    if name.startswith("builtins.")
}


_ABSTRACT = {"typing", "types", "collections", "builtins"}
_UNPASSABLE = {
    "typing.Callable", "typing.IO", "typing.TextIO", "typing.BinaryIO", "typing.Type",
    "collections.abc.Callable", "builtins.callable", "builtins.type",
}  # fmt: skip


def unresolved(name: str) -> Unresolved:
    """Return the error for an external type without schema."""
    top = name.partition(".")[0]
    if top not in sys.stdlib_module_names:
        return Unresolved(name, "it comes from another package")
    shown, reason = name.removeprefix("builtins."), "JSON cannot represent it"
    is_unpassable = name in _UNPASSABLE or top not in _ABSTRACT
    return Unresolved(shown, reason, is_unpassable=is_unpassable)
