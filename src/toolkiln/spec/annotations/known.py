"""The types that Toolkiln knows by name: the standard library's and pydantic's.

Tables, and why a name is in none of them; parametrised types are put together in `reader`.
"""

import sys

from toolkiln.model import JsonSchema


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
"""What differs when a value is written rather than read."""

LISTS = {
    "builtins.list": "list",
    "typing.List": "list",
    "collections.abc.MutableSequence": "list",
    "typing.MutableSequence": "list",
    "collections.deque": "deque",
    "typing.Deque": "deque",
    "collections.abc.Sequence": "sequence",
    "typing.Sequence": "sequence",
    "collections.abc.Iterable": "generator",
    "typing.Iterable": "generator",
    "collections.abc.Generator": "generator",
    "typing.Generator": "generator",
}
SETS = {
    "builtins.set": "set",
    "typing.Set": "set",
    "collections.abc.MutableSet": "set",
    "typing.MutableSet": "set",
    "builtins.frozenset": "frozenset",
    "typing.FrozenSet": "frozenset",
    "collections.abc.Set": "frozenset",
    "typing.AbstractSet": "frozenset",
}
MAPPINGS = {
    "builtins.dict": "dict",
    "typing.Dict": "dict",
    "collections.abc.Mapping": "dict",
    "typing.Mapping": "dict",
    "collections.abc.MutableMapping": "dict",
    "typing.MutableMapping": "dict",
    "collections.OrderedDict": "ordered-dict",
    "typing.OrderedDict": "ordered-dict",
    "collections.defaultdict": "lax-or-strict",
    "typing.DefaultDict": "lax-or-strict",
}
COUNTERS = {"collections.Counter", "typing.Counter"}
TUPLES = {"builtins.tuple", "typing.Tuple"}
BUILTINS = {
    name
    for table in (SCALARS, LISTS, SETS, MAPPINGS, TUPLES)
    for name in table
    if name.startswith("builtins.")
}


def reason(name: str) -> str:
    """Why a type from outside the folder has no schema."""
    if name.partition(".")[0] in sys.stdlib_module_names:
        return "JSON has no such thing"
    return "it comes from another package"
