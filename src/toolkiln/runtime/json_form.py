"""JSON forms of non-JSON values, one step at a time: dates, models, arrays, data frames.

Each conversion makes a value simpler and may raise; `serialise` repeats until the value is JSON
and enforces the limits. The forms equal pydantic's where it has one. No module is imported for
its types: a value of a type exists only if its module is loaded. Conversions use the methods of
the known base type, not those that a subclass overrides.
"""

from __future__ import annotations

import sys
from binascii import b2a_base64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Conversion = Callable[[Any, Any], object]

MAX_REPR = 1_000
_MAX_NAME = 100

_loaded = sys.modules
_mro = type.__dict__["__mro__"].__get__
_namespace = type.__dict__["__dict__"].__get__
_name_of = type.__dict__["__name__"].__get__
_inherits = type.__subclasscheck__
_ADDRESS = r" at 0x[0-9A-Fa-f]+| id='[0-9]+'"


class ArrayContent:
    """The items of an array, read once, and their number if known."""

    __slots__ = ("length", "steps")

    def __init__(self, steps: Iterator[object], length: int | None = None) -> None:
        self.steps = steps
        self.length = length


class ObjectContent:
    """The keys and values of an object, read once, and their number if known."""

    __slots__ = ("length", "steps")

    def __init__(self, steps: Iterator[tuple[object, object]], length: int | None = None) -> None:
        self.steps = steps
        self.length = length


class Noted:
    """A value with a note about the information it lost."""

    __slots__ = ("note", "value")

    def __init__(self, value: object, note: str) -> None:
        self.value = value
        self.note = note


class Failed:
    """Placeholder for a value that could not be read; `reason` is the exception's type."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


def attempt(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function that may run the tool's code; return its result or `Failed`."""
    try:
        return function(*arguments)
    except BaseException as error:  # hostile code may raise anything
        return Failed(type_name(type(error)))


def is_well_formed(text: str) -> bool:
    """Return whether the text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def type_name(kind: type) -> str:
    """Return the real name of a type, which its metaclass may hide."""
    return str.__str__(_name_of(kind))[:_MAX_NAME]


def as_repr(value: object, _: object = None) -> Noted:
    """Return the repr, for values without a better form; without addresses, to be reproducible."""
    name = type_name(type(value))
    text = attempt(repr, value)
    if type(text) is Failed:
        return Noted(f"<unprintable {name}>", f"neither {name} nor its repr can be sent as JSON")
    import re  # rarely needed

    text = re.sub(_ADDRESS, "", str.__str__(text)[: 4 * MAX_REPR])
    if len(text) > MAX_REPR:
        text = text[: MAX_REPR - 1] + "…"
    return Noted(text, f"{name} cannot be sent as JSON; its repr was sent")


def conversion_for(kind: type) -> tuple[Conversion, object]:
    """Return the function that simplifies values of a type, and its second argument."""
    cached = _CACHE.get(id(kind))
    if cached:
        return cached[1]
    found = attempt(_find, kind)
    return (as_repr, None) if type(found) is Failed else found


def _find(kind: type) -> tuple[Conversion, object]:
    for attribute, convert in _BY_ATTRIBUTE:
        for base in _mro(kind):
            if attribute in _namespace(base):
                return convert, _namespace(base)[attribute]
    for module, name, convert in _BY_TYPE:
        base = attempt(getattr, _loaded.get(module), name)
        if _inherits(type, type(base)) and _inherits(base, kind):
            if base is kind:
                _CACHE[id(kind)] = kind, (convert, base)
            return convert, base
    for name, convert in _BY_INTERFACE:
        if attempt(issubclass, kind, getattr(_loaded["_collections_abc"], name)) is True:
            return convert, None
    return as_repr, None


def _model(value: Any, serializer: Any) -> object:
    for mode in ("json", "python"):  # "python" keeps values that pydantic cannot serialise
        dumped = attempt(lambda m: serializer.to_python(value, mode=m, warnings=False), mode)
        if type(dumped) is not Failed:
            return dumped
    content = object.__getattribute__(value, "__dict__")
    note = f"{type_name(type(value))} could not be serialised ({dumped.reason}); fields were sent"
    return Noted(_mapping(content, dict), note)


def _attributes(value: Any, names: list[str]) -> ObjectContent:
    return ObjectContent(((n, attempt(getattr, value, n)) for n in names), len(names))


def _dataclass(value: Any, _: object) -> ObjectContent:
    return _attributes(value, [f.name for f in _loaded["dataclasses"].fields(type(value))])


def _attrs(value: Any, declared: Any) -> ObjectContent:
    return _attributes(value, [a.name for a in declared])


def _mapping(value: Any, base: Any) -> ObjectContent:
    content = list(base.items(value))  # a copy: other threads may change it
    return ObjectContent(iter(content), len(content))


def _any_mapping(value: Any, _: object) -> ObjectContent:
    return ObjectContent((key, attempt(lambda k: value[k], key)) for key in iter(value))


def _sequence(value: Any, base: Any) -> ArrayContent:
    return ArrayContent(base.__iter__(value), base.__len__(value))


def _set(value: Any, base: Any) -> ArrayContent:
    content = list(base.__iter__(value))
    ordered = attempt(sorted, content)
    if type(ordered) is Failed:
        ordered = attempt(lambda: sorted(content, key=lambda item: str(as_repr(item).value)))
    return ArrayContent(iter(content if type(ordered) is Failed else ordered), len(content))


def _iterable(value: Any, _: object) -> ArrayContent:
    return ArrayContent(iter(value))


def _own_text(value: Any, base: Any) -> object:
    return base.__str__(value)


def _bytes(value: Any, base: Any) -> object:
    data = base.tobytes(value) if base is memoryview else value
    text = attempt(bytearray.decode if base is bytearray else bytes.decode, data)
    if type(text) is not Failed:
        return text
    encoded = b2a_base64(data, newline=False).decode("ascii")
    return Noted(encoded, "bytes that are not UTF-8; sent as base64")


def _moment(value: Any, base: Any) -> object:
    text = base.isoformat(value)
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def _duration(value: Any, base: Any) -> str:
    micro = (base.days.__get__(value) * 86_400 + base.seconds.__get__(value)) * 1_000_000
    micro += base.microseconds.__get__(value)
    seconds, fraction = divmod(abs(micro), 1_000_000)
    days, seconds = divmod(seconds, 86_400)
    date = [(days // 365, "Y"), (days % 365, "D")]
    time = [(seconds // 3600, "H"), (seconds // 60 % 60, "M")]
    text = "".join(f"{n}{unit}" for n, unit in date if n)
    clock = "".join(f"{n}{unit}" for n, unit in time if n)
    if seconds % 60 or fraction or not (text or clock):
        clock += f"{seconds % 60}.{fraction:06}".rstrip("0").removesuffix(".") + "S"
    return f"{'-' if micro < 0 else ''}P{text}{'T' if clock else ''}{clock}"


def _missing(value: object, _: object) -> Noted:
    return Noted(None, f"{as_repr(value).value} is not JSON; sent as null")


def _exception(value: Any, _: object) -> ObjectContent:
    fields = [("type", type_name(type(value))), ("message", attempt(str, value))]
    return ObjectContent(iter(fields), 2)


def _numpy_scalar(value: Any, _: object) -> object:
    letter = value.dtype.kind
    if letter in "mM" and value != value:  # only NaT differs from itself
        return Noted(None, "NaT is not JSON; sent as null")
    if letter == "M":
        return str(value)
    if letter == "m":
        exact = value.astype("timedelta64[us]")
        return exact.item() if exact == value else str(value)
    if letter == "V" and value.dtype.names:
        names = value.dtype.names
        return ObjectContent(((name, value[name]) for name in names), len(names))
    # `item` returns a long double unchanged
    return {"f": float, "c": complex}.get(letter, lambda v: v.item())(value)


def _numpy_array(value: Any, _: object) -> object:
    array = _loaded["numpy"].asarray(value)  # a row of a matrix would be a matrix again
    if array.ndim == 0:
        return array[()]
    if array.ndim > 1 or array.dtype.kind in "mMV":
        return ArrayContent(iter(array), len(array))
    pieces = (array[at : at + 1024].tolist() for at in range(0, len(array), 1024))
    return ArrayContent((item for piece in pieces for item in piece), len(array))


def _has_row_numbers(index: Any) -> bool:
    """Return whether a pandas index contains nothing but row numbers."""
    return index.dtype.kind in "iu" and index.name is None


def _frame(value: Any, _: object) -> object:
    frame = value if _has_row_numbers(value.index) else attempt(value.reset_index)
    if type(frame) is Failed:
        return Noted(_records(value), "the index has the name of a column; it was omitted")
    return _records(frame)


def _records(frame: Any) -> ArrayContent:
    columns = list(frame.columns)
    rows = frame.itertuples(index=False, name=None)
    records = (ObjectContent(zip(columns, row, strict=True), len(columns)) for row in rows)
    return ArrayContent(records, len(frame))


def _series(value: Any, _: object) -> object:
    if _has_row_numbers(value.index):
        return ArrayContent(iter(value), len(value))
    if value.index.is_unique:
        return ObjectContent(iter(value.items()), len(value))
    return value.reset_index()


_BY_ATTRIBUTE: tuple[tuple[str, Conversion], ...] = (
    ("__pydantic_serializer__", _model),
    ("__dataclass_fields__", _dataclass),
    ("__attrs_attrs__", _attrs),
)
_BY_TYPE: tuple[tuple[str, str, Conversion], ...] = (
    ("enum", "Enum", lambda value, _: object.__getattribute__(value, "_value_")),
    ("numpy", "generic", _numpy_scalar),
    ("builtins", "str", _own_text),
    ("builtins", "int", lambda value, base: base.__int__(value)),
    ("builtins", "float", lambda value, base: base.__float__(value)),
    ("collections", "OrderedDict", _mapping),
    ("builtins", "dict", _mapping),
    ("builtins", "list", _sequence),
    ("builtins", "tuple", _sequence),
    ("builtins", "set", _set),
    ("builtins", "frozenset", _set),
    ("builtins", "range", _sequence),
    ("collections", "deque", _sequence),
    ("builtins", "bytes", _bytes),
    ("builtins", "bytearray", _bytes),
    ("builtins", "memoryview", _bytes),
    ("builtins", "complex", lambda value, base: base.__repr__(value).strip("()")),
    ("builtins", "BaseException", _exception),
    ("pandas._libs.tslibs.nattype", "NaTType", _missing),
    ("pandas._libs.missing", "NAType", _missing),
    ("pandas", "Timestamp", _moment),
    ("pandas", "Period", _own_text),
    ("datetime", "datetime", _moment),
    ("datetime", "date", _moment),
    ("datetime", "time", _moment),
    ("datetime", "timedelta", _duration),
    ("uuid", "UUID", _own_text),
    ("decimal", "Decimal", _own_text),
    ("fractions", "Fraction", _own_text),
    ("pathlib", "PurePath", _own_text),
    ("ipaddress", "_IPAddressBase", lambda value, _: str(value)),
    ("re", "Pattern", lambda value, base: base.pattern.__get__(value)),
    ("zoneinfo", "ZoneInfo", _own_text),
    ("collections", "UserString", _own_text),
    (
        "sqlite3",
        "Row",
        lambda value, _: ObjectContent(zip(value.keys(), value, strict=True), len(value)),
    ),
    ("pydantic.types", "_SecretBase", lambda value, _: str(value)),
    ("pydantic.networks", "_BaseUrl", _own_text),
    ("pydantic.networks", "_BaseMultiHostUrl", _own_text),
    ("pydantic_core", "Url", _own_text),
    ("pydantic.v1.main", "BaseModel", lambda value, _: _mapping(value.__dict__, dict)),
    ("pydantic.main", "BaseModel", lambda value, _: _mapping(value.__dict__, dict)),  # version 1
    ("numpy.ma", "MaskedArray", lambda value, _: value.tolist()),
    ("numpy", "ndarray", _numpy_array),
    ("pandas", "DataFrame", _frame),
    ("pandas", "Series", _series),
    ("pandas", "Index", _iterable),
    ("pandas.api.extensions", "ExtensionArray", _iterable),
    ("_io", "_IOBase", as_repr),  # else it would be read, as an iterator
)
_CACHE: dict[int, tuple[type, tuple[Conversion, object]]] = {}
"""Only the types listed above: classes of tools must not outlive their call."""
_BY_INTERFACE: tuple[tuple[str, Conversion], ...] = (
    ("Mapping", _any_mapping),
    ("Iterator", _iterable),
    ("Sequence", _iterable),
    ("Set", _iterable),
    ("MappingView", _iterable),
)
