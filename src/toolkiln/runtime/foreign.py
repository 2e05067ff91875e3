"""What values that are not JSON become, one step at a time: dates, models, arrays, frames.

Each conversion makes a value simpler and may raise; `serialise` asks again until the value is
plain, and keeps the bounds. The forms are pydantic's wherever it has one. No module is
imported for its types: a value of a type can only exist if its module is loaded. Values are
taken by the methods of the type that we know, not by those that a subclass put over them.
"""

from __future__ import annotations

import sys
from binascii import b2a_base64

TYPE_CHECKING = False  # `typing` is slow to import, and this starts with every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Conversion = Callable[[Any, Any], object]

MOST_OF_A_REPR = 1_000
_LONGEST_NAME = 100

_loaded = sys.modules
_mro = type.__dict__["__mro__"].__get__
_namespace = type.__dict__["__dict__"].__get__
_name_of = type.__dict__["__name__"].__get__
_inherits = type.__subclasscheck__
_ADDRESS = r" at 0x[0-9A-Fa-f]+| id='[0-9]+'"


class Items:
    """The content of an array, read once; its length if it is known."""

    __slots__ = ("length", "steps")

    def __init__(self, steps: Iterator[object], length: int | None = None) -> None:
        self.steps = steps
        self.length = length


class Pairs:
    """The content of an object, read once; its length if it is known."""

    __slots__ = ("length", "steps")

    def __init__(self, steps: Iterator[tuple[object, object]], length: int | None = None) -> None:
        self.steps = steps
        self.length = length


class Noted:
    """A value that says less than the one it stands for, and what to say about that."""

    __slots__ = ("note", "value")

    def __init__(self, value: object, note: str) -> None:
        self.value = value
        self.note = note


class Failed:
    """Stands for a value that could not be had; `reason` is the type of what was raised."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


def attempt(ask: Callable[..., Any], *arguments: object) -> Any:
    """What the call returns, or `Failed`; for everything that may run the tool's code."""
    try:
        return ask(*arguments)
    except BaseException as error:  # hostile code may raise anything
        return Failed(type_name(type(error)))


def well_formed(text: str) -> bool:
    """Whether the text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def type_name(kind: type) -> str:
    """The name of a type, whatever its metaclass says."""
    return str.__str__(_name_of(kind))[:_LONGEST_NAME]


def described(value: object, _: object = None) -> Noted:
    """The repr, for what has no better form; without addresses, so that it repeats."""
    name = type_name(type(value))
    text = attempt(repr, value)
    if type(text) is Failed:
        return Noted(f"<unprintable {name}>", f"{name} cannot be sent as JSON, nor could its repr")
    import re  # most values are never shown as their repr

    text = re.sub(_ADDRESS, "", str.__str__(text)[: 4 * MOST_OF_A_REPR])
    if len(text) > MOST_OF_A_REPR:
        text = text[: MOST_OF_A_REPR - 1] + "…"
    return Noted(text, f"{name} cannot be sent as JSON; its repr was sent")


def conversion(kind: type) -> tuple[Conversion, object]:
    """How values of this type get simpler: a function, and what it takes beside the value."""
    remembered = _REMEMBERED.get(id(kind))
    if remembered:
        return remembered[1]
    found = attempt(_find, kind)
    return (described, None) if type(found) is Failed else found


def _find(kind: type) -> tuple[Conversion, object]:
    for mark, convert in _MARKS:
        for base in _mro(kind):
            if mark in _namespace(base):
                return convert, _namespace(base)[mark]
    for module, name, convert in _TYPES:
        known = attempt(getattr, _loaded.get(module), name)
        if _inherits(type, type(known)) and _inherits(known, kind):
            if known is kind:
                _REMEMBERED[id(kind)] = kind, (convert, known)
            return convert, known
    for name, convert in _INTERFACES:
        if attempt(issubclass, kind, getattr(_loaded["_collections_abc"], name)) is True:
            return convert, None
    return described, None


def _model(value: Any, serializer: Any) -> object:
    for mode in ("json", "python"):  # "python" leaves alone what pydantic cannot serialise
        dumped = attempt(lambda m: serializer.to_python(value, mode=m, warnings=False), mode)
        if type(dumped) is not Failed:
            return dumped
    content = object.__getattribute__(value, "__dict__")
    note = f"{type_name(type(value))} could not be serialised ({dumped.reason}); fields were sent"
    return Noted(_mapping(content, dict), note)


def _attributes(value: Any, names: list[str]) -> Pairs:
    return Pairs(((n, attempt(getattr, value, n)) for n in names), len(names))


def _dataclass(value: Any, _: object) -> Pairs:
    return _attributes(value, [f.name for f in _loaded["dataclasses"].fields(type(value))])


def _attrs(value: Any, declared: Any) -> Pairs:
    return _attributes(value, [a.name for a in declared])


def _mapping(value: Any, base: Any) -> Pairs:
    content = list(base.items(value))  # a copy: the tool's threads may still change it
    return Pairs(iter(content), len(content))


def _any_mapping(value: Any, _: object) -> Pairs:
    return Pairs((key, attempt(lambda k: value[k], key)) for key in iter(value))


def _sequence(value: Any, base: Any) -> Items:
    return Items(base.__iter__(value), base.__len__(value))


def _set(value: Any, base: Any) -> Items:
    content = list(base.__iter__(value))
    ordered = attempt(sorted, content)
    if type(ordered) is Failed:
        ordered = attempt(lambda: sorted(content, key=lambda item: str(described(item).value)))
    return Items(iter(content if type(ordered) is Failed else ordered), len(content))


def _iterable(value: Any, _: object) -> Items:
    return Items(iter(value))


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
    return Noted(None, f"{described(value).value} is not JSON; sent as null")


def _exception(value: Any, _: object) -> Pairs:
    said = [("type", type_name(type(value))), ("message", attempt(str, value))]
    return Pairs(iter(said), 2)


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
        return Pairs(((name, value[name]) for name in names), len(names))
    # `item` gives a long double back as it is
    return {"f": float, "c": complex}.get(letter, lambda v: v.item())(value)


def _numpy_array(value: Any, _: object) -> object:
    array = _loaded["numpy"].asarray(value)  # a row of a matrix would be a matrix again
    if array.ndim == 0:
        return array[()]
    if array.ndim > 1 or array.dtype.kind in "mMV":
        return Items(iter(array), len(array))
    pieces = (array[at : at + 1024].tolist() for at in range(0, len(array), 1024))
    return Items((item for piece in pieces for item in piece), len(array))


def _row_numbers(index: Any) -> bool:
    """Whether an index of pandas says nothing but the place of a row."""
    return index.dtype.kind in "iu" and index.name is None


def _frame(value: Any, _: object) -> object:
    kept = value if _row_numbers(value.index) else attempt(value.reset_index)
    if type(kept) is Failed:
        return Noted(_records(value), "the index has the name of a column; it was left out")
    return _records(kept)


def _records(frame: Any) -> Items:
    columns = list(frame.columns)
    rows = frame.itertuples(index=False, name=None)
    records = (Pairs(zip(columns, row, strict=True), len(columns)) for row in rows)
    return Items(records, len(frame))


def _series(value: Any, _: object) -> object:
    if _row_numbers(value.index):
        return Items(iter(value), len(value))
    if value.index.is_unique:
        return Pairs(iter(value.items()), len(value))
    return value.reset_index()


_MARKS: tuple[tuple[str, Conversion], ...] = (
    ("__pydantic_serializer__", _model),
    ("__dataclass_fields__", _dataclass),
    ("__attrs_attrs__", _attrs),
)
_TYPES: tuple[tuple[str, str, Conversion], ...] = (
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
    ("sqlite3", "Row", lambda value, _: Pairs(zip(value.keys(), value, strict=True), len(value))),
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
    ("_io", "_IOBase", described),  # else it would be read, as an iterator
)
_REMEMBERED: dict[int, tuple[type, tuple[Conversion, object]]] = {}
"""The types named above, once met; classes of tools are not held beyond a call."""
_INTERFACES: tuple[tuple[str, Conversion], ...] = (
    ("Mapping", _any_mapping),
    ("Iterator", _iterable),
    ("Sequence", _iterable),
    ("Set", _iterable),
    ("MappingView", _iterable),
)
