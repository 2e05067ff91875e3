"""Conversion without pydantic, compared with what pydantic makes of the same JSON."""

import collections
import collections.abc
import dataclasses
import datetime
import enum
import fractions
import ipaddress
import json
import os
import pathlib
import re
import typing
import uuid
import zoneinfo
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, Generic, Literal, NamedTuple, NewType, NotRequired, Required, TypeVar

import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tables import each_row
from toolkiln.runtime.binder import Binder
from toolkiln.runtime.conversion_scalars import BindingError

T = TypeVar("T")
Bound = TypeVar("Bound", bound=date)
Constrained = TypeVar("Constrained", date, int)
Day = NewType("Day", date)
Days = typing_extensions.TypeAliasType("Days", list[date])
Pairs = typing_extensions.TypeAliasType("Pairs", dict[str, T], type_params=(T,))
Tree = typing_extensions.TypeAliasType("Tree", "dict[str, Tree] | date")


class Colour(enum.Enum):
    RED = "red"
    ONE = 1
    PAIR = (1, 2)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    A = "a"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Forgiving(enum.Enum):
    ONE = 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return cls.ONE if value == "uno" else None


@dataclasses.dataclass
class Point:
    x: int
    y: float = 2.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    at: datetime.datetime
    tags: frozenset[str] = frozenset()


@dataclasses.dataclass
class Base:
    day: date
    seen: list[date] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Derived(Base):
    amount: Decimal = Decimal(0)
    hidden: int = dataclasses.field(default=5, init=False)
    scale: dataclasses.InitVar[int] = 1
    kind: typing.ClassVar[str] = "d"

    def __post_init__(self, scale: int) -> None:
        self.amount *= scale


@dataclasses.dataclass
class Node:
    day: date
    children: "list[Node]" = dataclasses.field(default_factory=list)
    parent: "Node | None" = None


@dataclasses.dataclass
class Box(Generic[T]):
    item: T
    items: list[T]


class Pair(NamedTuple):
    day: date
    name: str = "x"


Untyped = collections.namedtuple("Untyped", "a b", defaults=[1])


class Options(typing_extensions.TypedDict, total=False):
    day: Required[date]
    amount: Decimal


class More(Options):
    limit: NotRequired[timedelta]
    name: str


class Other(typing_extensions.TypedDict):
    x: int


def of(generic: Any, *arguments: Any) -> Any:
    return generic[arguments if len(arguments) > 1 else arguments[0]]


def bound(annotation: Any, value: Any) -> Any:
    def tool(x: Any) -> None: ...

    tool.__annotations__ = {"x": annotation}
    _, keywords = Binder(tool, pydantic=None).bind({"x": value}, {})
    return keywords["x"]


def expected(annotation: Any, value: Any) -> Any:
    return TypeAdapter(annotation).validate_json(json.dumps(value))


def alike(one: Any, other: Any) -> bool:
    return bool(one == other) and shape(one) == shape(other)


def shape(value: Any) -> Any:
    """The types in a value, all the way down."""
    if isinstance(value, dict):
        return type(value), [(shape(k), shape(v)) for k, v in value.items()]
    if isinstance(value, list | tuple | collections.deque):
        return type(value), [shape(item) for item in value]
    if dataclasses.is_dataclass(value):
        return type(value), [
            shape(getattr(value, field.name)) for field in dataclasses.fields(value)
        ]
    return type(value)


ID = "12345678-1234-5678-1234-567812345678"
SAME: list[tuple[Any, list[Any]]] = [
    (int, [5, 5.0, "5", " 5 ", "5.0", "1_000", "+5", True, 10**30]),
    (float, [5, 1.5, "5", "1e5", "inf", True]),
    (list[int], [[1, 2.0, "3"], []]),
    (list[float], [[1, 2.5]]),
    (dict[str, float], [{"a": 1}]),
    (int | None, [None, 1, 1.0]),
    (tuple[bool, ...], [[True, 0, 1.0, "yes", "OFF", "t"]]),
    (list[bytes], [["é", ""]]),
    (complex, ["1+2j", 1, 1.5]),
    (Decimal, [1, 1.0, 1.1, 0.1, "1.1", " 1 ", "1e5", "1_000", 10**30, -2.5]),
    (fractions.Fraction, ["1/3", 1, 0.5]),
    (uuid.UUID, [ID, ID.replace("-", ""), f"{{{ID}}}", f"urn:uuid:{ID}"]),
    (
        date,
        ["2024-02-29", "2024-01-01T00:00:00", "2024-01-01T00:00:00Z", 0, -86400, 1704067200,
         1704067200000, "1704067200", "0001-01-01"],
    ),
    (
        datetime.datetime,
        ["2024-01-01", "2024-01-01T10:00", "2024-01-01 10:00:00.5", "2024-01-01t10:00:00z",
         "2024-01-01_10:00", "2024-01-01T10:00:00.1234567", "2024-01-01T10:00+0100",
         "2024-01-01T10:00:00-05:30", "2024-01-01T10:00:00,5", 0, -1.5, 1704067200.123456,
         20_000_000_000, 20_000_000_001, 253402300799000, "1704067200.5", "-1", "+1"],
    ),
    (time, ["10:00", "10:00:59.5", "10:00Z", "10:00:00+01:00", 0, 3600.5, 86399]),
    (
        timedelta,
        ["P1D", "PT1H30M", "P1Y2M3W4DT5H6M7S", "-P1D", "+P1D", "P1.5D", "PT1,5S", "P1DT", "P1M2Y",
         "10:00", "-10:00", "100:00:00.25", "1 day", "3d", "2 days 10:00:00", "1 days, 10:00",
         "-1 days, 10:00:00", 5, 1.5, -1.5, 10**12],
    ),
    (pathlib.Path, ["a/b", ""]),
    (pathlib.PurePath, ["a"]),
    (pathlib.PureWindowsPath, ["a\\b"]),
    (os.PathLike, ["a"]),
    (os.PathLike[str], ["a"]),
    (ipaddress.IPv4Address, ["1.2.3.4", 1]),
    (ipaddress.IPv6Address, ["::1"]),
    (ipaddress.IPv4Network, ["10.0.0.0/8"]),
    (ipaddress.IPv6Interface, ["::1/64"]),
    (re.Pattern, ["a+"]),
    (re.Pattern[str], ["a+"]),
    (zoneinfo.ZoneInfo, ["UTC"]),
    (Colour, ["red", 1, 1.0]),
    (Level, [1, "2", 1.0]),
    (Word, ["a"]),
    (Access, [1, 3]),
    (Forgiving, [1, "uno"]),
    (Literal["a", 1, None], ["a", 1, 1.0, None]),
    (tuple, [[1, "a"], []]),
    (tuple[()], [[]]),
    (tuple[int, date], [[1, "2024-01-01"], ["1", 0]]),
    (tuple[date, ...], [[], ["2024-01-01", 0]]),
    (set, [[1, 1]]),
    (set[int], [[1, "1", 2]]),
    (frozenset[tuple[int, int]], [[[1, 2], [1, 2]]]),
    (collections.abc.Set[int], [[1]]),
    (collections.abc.MutableSet[int], [[1]]),
    (collections.abc.Sequence[date], [["2024-01-01"]]),
    (collections.abc.MutableSequence[date], [["2024-01-01"]]),
    (collections.abc.Mapping[int, date], [{"1": "2024-01-01"}]),
    (typing.Dict[int, date], [{"1": 0}]),  # noqa: UP006
    (typing.List[date], [[0]]),  # noqa: UP006
    (typing.Tuple[date, ...], [[0]]),  # noqa: UP006
    (collections.deque[int], [["1", 2]]),
    (collections.OrderedDict[int, date], [{"2": 0, "1": 0}]),
    (collections.Counter[str], [{"a": 1}]),
    (collections.defaultdict[str, list[date]], [{"a": [0]}]),
    (collections.defaultdict[str, int], [{"a": 1}]),
    (dict[uuid.UUID, list[tuple[date, Decimal]]], [{ID: [["2024-01-01", "1.5"]]}]),
    (dict[bool, int], [{"true": 1, "no": 2}]),
    (dict[float, int], [{"1.5": 1}]),
    (dict[Level, int], [{"1": 1}]),
    (dict[Colour, date], [{"red": 0}]),
    (dict[date | str, int], [{"2024-01-01": 1, "x": 2}]),
    (dict[uuid.UUID | str, int], [{ID: 1, "x": 2}]),
    (dict[Decimal | int, int], [{"1": 1}]),
    (dict[bytes, set[int]], [{"a": [1]}]),
    (Point, [{"x": 1}, {"x": "1", "y": 2}, {"x": 1, "z": 3}]),
    (Stamped, [{"at": "2024-01-01T10:00"}, {"at": 0, "tags": ["a", "a"]}]),
    (Derived, [{"day": 0}, {"day": 0, "seen": [0], "amount": "2", "scale": 3, "hidden": 9}]),
    (Node, [{"day": 0, "children": [{"day": 0, "children": []}], "parent": {"day": 86400}}]),
    (list[Point] | None, [None, [], [{"x": 1}]]),
    (Box[date], [{"item": 0, "items": ["2024-01-01"]}]),
    (Box[Box[date]], [{"item": {"item": 0, "items": []}, "items": []}]),
    (Box[Any], [{"item": 0, "items": ["2024-01-01"]}]),
    (Pair, [["2024-01-01"], ["2024-01-01", "y"], {"day": 0}]),
    (Untyped, [["a"], ["a", [1]]]),
    (Options, [{"day": 0}, {"day": 0, "amount": 1.5, "more": 1}]),
    (More, [{"day": 0, "name": "a"}, {"day": 0, "name": "a", "limit": "PT1S"}]),
    (Bound, ["2024-01-01"]),
    (Constrained, ["2024-01-01", 1]),
    (list[T], [[1, "a"]]),  # type: ignore[valid-type]
    (Day, ["2024-01-01"]),
    (Days, [["2024-01-01"]]),
    (Pairs[date], [{"a": "2024-01-01"}]),
    (typing.Annotated[date, "when"], ["2024-01-01"]),
    (dict[str, typing.Annotated[list[typing.Annotated[date, 1]], 2]], [{"a": [0]}]),
    (typing.Final[date], ["2024-01-01"]),
]  # fmt: skip


@each_row(
    "annotation, value",
    [(annotation, value) for annotation, values in SAME for value in values],
)
def test_a_value_becomes_what_pydantic_makes_of_it(annotation: Any, value: Any) -> None:
    made = bound(annotation, value)

    assert alike(made, expected(annotation, value)), made


MEMBERS: list[Any] = [
    *(int, float, bool, str, bytes, complex, Decimal, fractions.Fraction, uuid.UUID, date, time),
    *(zoneinfo.ZoneInfo, datetime.datetime, timedelta, pathlib.Path, re.Pattern),
    *(ipaddress.IPv4Address, None, Any),
    *(Level, Word, Forgiving, Literal["a", "2024-01-01"], Literal[2]),
    *(list[int], list[str], list[Any], set[int], tuple[int, ...], tuple[str, int]),
    *(frozenset[str], collections.deque[int], list[date], list[list[int]]),
    *(dict[str, int], dict[int, str], dict[str, Any], dict[date, int], dict[str, float]),
    *(Point, Base, Options, Other, Pair, list[Point], dict[str, Point], Box[int]),
]
VALUES: list[Any] = [
    *(None, True, 0, 1, 2, -5, 1.0, 1.5, 86400, 10**12),
    *("", "a", "1", "1.5", "true", "2024-01-01", "2024-01-01T00:00:00", "2024-01-01T10:00Z"),
    *("10:00", "PT1H", "1 day", ID, "1.2.3.4", "1/3", "1+2j", "uno", "(", "UTC"),
    *([], [1, 2], ["1", "2"], ["a", 1], [1.0], [1.5], ["2024-01-01"], [["1"]], [{"x": 1}]),
    *({}, {"x": 1}, {"x": "1"}, {"x": 1, "y": 2}, {"day": 0}, {"day": "2024-01-01", "amount": 1}),
    *({"a": {"x": 1}}, {"2024-01-01": 1}, {"1": "a"}, {"item": 1, "items": [1]}),
]


@given(st.lists(st.sampled_from(MEMBERS), min_size=2, max_size=4), st.sampled_from(VALUES))
def test_of_a_union_the_member_is_chosen_that_pydantic_chooses(
    members: list[Any], value: Any
) -> None:
    annotation = of(tuple, of(typing.Union, *members), ...)
    try:
        wanted = expected(annotation, [value])
    except ValueError:
        with pytest.raises(BindingError):
            bound(annotation, [value])
    else:
        assert alike(bound(annotation, [value]), wanted)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Containers of what `inner` makes: annotations with values of them."""
    return st.one_of(
        inner.map(lambda one: (of(list, one[0]), [one[1], one[1]])),
        inner.map(lambda one: (of(dict, str, one[0]), {"a": one[1]})),
        inner.map(lambda one: (of(typing.Optional, one[0]), one[1])),
        inner.map(lambda one: (of(tuple, one[0], ...), [one[1]])),
        inner.map(lambda one: (of(Box, one[0]), {"item": one[1], "items": [one[1]]})),
        st.tuples(inner, inner).map(
            lambda two: (of(tuple, two[0][0], two[1][0]), [two[0][1], two[1][1]])
        ),
    )


SCALARS = st.one_of(
    st.tuples(st.just(date), st.dates().map(str)),
    st.tuples(st.just(datetime.datetime), st.datetimes().map(datetime.datetime.isoformat)),
    st.tuples(st.just(time), st.times().map(str)),
    st.tuples(st.just(timedelta), st.integers(-(10**9), 10**9)),
    st.tuples(st.just(uuid.UUID), st.uuids().map(str)),
    st.tuples(st.just(Decimal), st.decimals(allow_nan=False, allow_infinity=False).map(str)),
    st.tuples(st.just(Decimal), st.floats(allow_nan=False, allow_infinity=False, width=32)),
    st.tuples(st.just(ipaddress.IPv6Address), st.ip_addresses(v=6).map(str)),
    st.tuples(st.just(int), st.integers().map(str)),
    st.tuples(st.just(float), st.integers(-(2**60), 2**60)),
    st.tuples(st.just(bytes), st.text(st.characters(exclude_categories=["Cs"]))),
    st.tuples(st.just(Colour), st.sampled_from(["red", 1])),
)


@given(st.recursive(SCALARS, nested, max_leaves=5))
def test_nested_types_become_what_pydantic_makes_of_them(case: tuple[Any, Any]) -> None:
    annotation, value = case

    assert alike(bound(annotation, value), expected(annotation, value))


@given(
    st.integers(-(10**11), 10**11) | st.floats(-1e11, 1e11).map(lambda seconds: round(seconds, 3))
)
def test_timestamps_are_read_as_pydantic_reads_them(stamp: float) -> None:
    difference = bound(datetime.datetime, stamp) - expected(datetime.datetime, stamp)

    assert abs(difference) <= timedelta(microseconds=1)  # they round differently


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from([annotation for annotation, _ in SAME] + MEMBERS), JSON)
def test_any_value_raises_only_binding_errors(annotation: Any, value: Any) -> None:
    with suppress(BindingError):
        bound(annotation, value)


@each_row(
    "annotation, value, made",
    [
        (Literal[Colour.RED], "red", Colour.RED),
        (Literal[Colour.RED, "red"], "red", "red"),
        (Literal[Colour.RED] | None, "red", Colour.RED),
        (Colour, [1, 2], Colour.PAIR),
        (bytearray, "é", bytearray("é".encode())),
        (Iterable[date], ["2024-01-01"], [date(2024, 1, 1)]),
        (collections.abc.Collection[int], ["1"], [1]),
        (collections.defaultdict, {"a": 1}, {"a": 1}),
        (Tree, {"a": {"b": "2024-01-01"}}, {"a": {"b": date(2024, 1, 1)}}),
        (datetime.datetime, "2024-01-01T10", datetime.datetime(2024, 1, 1, 10)),
        (timedelta, "p1dt1h", timedelta(days=1, hours=1)),
    ],
)
def test_what_the_schema_allows_is_bound_where_pydantic_would_refuse(
    annotation: Any, value: Any, made: Any
) -> None:
    assert bound(annotation, value) == made


@each_row("annotation", [Iterator[date], Generator[date, None, None]])
def test_an_iterator_annotation_gets_an_iterator(annotation: Any) -> None:
    assert next(bound(annotation, ["2024-01-01"])) == date(2024, 1, 1)


def test_a_typed_dict_of_the_standard_library_is_bound() -> None:
    class Plain(typing.TypedDict):
        day: date
        amount: NotRequired[Decimal]

    assert bound(Plain, {"day": 0, "more": 1}) == {"day": date(1970, 1, 1)}
    with pytest.raises(BindingError, match=r"^x\.day: missing$"):
        bound(Plain, {"amount": 1})


class Opaque:
    pass


@each_row(
    "annotation",
    [
        *(str, bool, None, Any, object, list, dict, list[str], dict[str, Any], str | None),
        *(Literal["a"], list[dict[str, list[str]]], collections.abc.Sequence[str]),
        *(Opaque, list[Opaque], collections.abc.Callable[..., int], type[int], Opaque | None),
        *(typing.LiteralString, typing.Protocol, 5, Ellipsis),
    ],
)
@each_row("value", [["a"], {"a": ["b"]}, "a", 1.5])
def test_values_without_a_conversion_are_passed_unchanged(annotation: Any, value: Any) -> None:
    if annotation in (list[Opaque],) and value != ["a"]:
        return  # an array it must be

    assert bound(annotation, value) == value


@each_row(
    "annotation, value, message",
    [
        (date, "x", "x: not a date: 'x'"),
        (date, "2024-01-01T10:00", "x: a moment, not a date: '2024-01-01T10:00'"),
        (date, None, "x: not a date: null"),
        (list[date], ["2024-01-01", True], "x[1]: not a date: true"),
        (dict[str, date], {"a b": "y"}, "x['a b']: not a date: 'y'"),
        (dict[date, int], {"y": 1}, "x.y: not a date: 'y'"),
        (Point, {"x": "a"}, "x.x: not an integer: 'a'"),
        (Point, {}, "x.x: missing"),
        (Point, [1], "x: not an object: an array of 1"),
        (Base, {"seen": ["a", 0]}, "x.day: missing; x.seen[0]: not a date: 'a'"),
        (date | int, "x", "x: not a date: 'x', not an integer: 'x'"),
        (date | None, "x", "x: not a date: 'x'"),
        (Pair, {"day": 0, "other": 1}, "x.other: no such field"),
        (Colour, "blue", "x: not one of the values of Colour: 'blue'"),
        (tuple[int, int], [1], "x: has 1 items instead of 2"),
        (tuple[int, int], [1, "a"], "x[1]: not an integer: 'a'"),
        (set[Any], [[1]], "x: has items that cannot be in a set"),
        (Decimal, "NaN", "x: not a finite number: 'NaN'"),
        (int, "1" * 5000, "x: not an integer: '1111"),
        (bytes, "\ud800", "x: not text that UTF-8 can encode: '\\ud800'"),
        (re.Pattern, "(", "x: not a regular expression: '('"),
    ],
)
def test_what_cannot_be_converted_is_named_with_its_place(
    annotation: Any, value: Any, message: str
) -> None:
    with pytest.raises(BindingError) as raised:
        bound(annotation, value)

    assert str(raised.value).startswith(message)
    assert len(str(raised.value)) < 200


def test_a_long_list_of_problems_is_cut() -> None:
    Wide = dataclasses.make_dataclass("Wide", [f"f{n}" for n in range(40)])

    with pytest.raises(BindingError, match=r"f9: missing; and 30 more$"):
        bound(Wide, {})


@each_row("kind", [ValueError, TypeError, AssertionError])
def test_errors_of_a_dataclass_are_reported(kind: type[Exception]) -> None:
    @dataclasses.dataclass
    class Picky:
        a: int

        def __post_init__(self) -> None:
            raise kind("must be odd")

    with pytest.raises(BindingError, match=r"^x\[0\]: must be odd$"):
        bound(list[Picky], [{"a": 2}])


def test_another_exception_of_a_dataclass_is_its_own() -> None:
    @dataclasses.dataclass
    class Broken:
        a: int

        def __post_init__(self) -> None:
            raise LookupError("no")

    with pytest.raises(LookupError):
        bound(Broken, {"a": 2})


def test_a_value_too_deep_for_python_is_refused() -> None:
    value: Any = {"day": 0}
    for _ in range(100_000):
        value = {"day": 0, "parent": value}

    with pytest.raises(BindingError, match="x: nested too deeply"):
        bound(Node, value)


@dataclasses.dataclass
class Left:
    inner: "Left | Right | None" = None


@dataclasses.dataclass
class Right:
    inner: "Left | Right | None" = None
    day: date | None = None


def test_unions_inside_of_unions_do_not_multiply_the_work() -> None:
    value: dict[str, Any] = {"day": 0}
    for _ in range(60):  # 2 ** 60 attempts, if each level made two of the next
        value = {"inner": value}
    wrong = {"inner": {"inner": {**value, "day": "x"}}}

    made = bound(Left | Right, value)
    for _ in range(60):
        made = made.inner

    assert made == Right(day=date(1970, 1, 1))
    assert bound(Left | Right, wrong) == bound(Left, wrong)


def test_equal_parts_of_a_union_are_objects_of_their_own() -> None:
    first, second = bound(tuple[Left | Right, ...], [{}, {}])

    assert first is not second


def test_a_fraction_beyond_memory_is_refused() -> None:
    with pytest.raises(BindingError, match="not a fraction of reasonable size"):
        bound(fractions.Fraction, "1e999999999")
