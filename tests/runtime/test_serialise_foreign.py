"""JSON forms of values of other types: those of pydantic, where it has one."""

import array
import collections
import contextlib
import datetime as dt
import decimal
import enum
import fractions
import io
import ipaddress
import json
import pathlib
import re
import sqlite3
import types
import uuid
import zoneinfo
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AnyUrl, BaseModel, Field, RootModel, SecretStr, TypeAdapter, field_serializer
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from tables import each_row
from toolkiln.define import ToolResult
from toolkiln.runtime.serialise import SerialiseLimits, to_json

from .test_serialise import strict


def named(value: object) -> str:
    """A name for a case that is the same in every process: no address, no order of a set."""
    return type(value).__name__


class Colour(enum.Enum):
    RED = "red"
    AT = dt.date(2024, 1, 2)
    PAIR = (1, 2)


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    on: dt.date


class Movie(TypedDict):
    title: str
    seen: set[dt.date]


@dataclass
class Plain:
    a: int
    when: dt.datetime
    tags: set[str] = field(default_factory=set, repr=False)
    _hidden: int = 3


@dataclass(frozen=True, slots=True)
class Slotted:
    inner: Plain
    by_id: dict[uuid.UUID, decimal.Decimal]


@pydantic.dataclasses.dataclass
class Checked:
    a: int
    b: dt.timedelta = Field(default=dt.timedelta(hours=1), alias="bee")


class Model(BaseModel):
    a: int = Field(default=1, serialization_alias="A")
    secret: SecretStr = SecretStr("x")
    excluded: int = Field(default=2, exclude=True)
    url: AnyUrl = AnyUrl("http://example.org")
    at: dt.datetime = dt.datetime(2024, 1, 2, tzinfo=dt.UTC)
    colour: Colour = Colour.RED
    blob: bytes = b"abc"

    @field_serializer("at", when_used="json")
    def _year(self, at: dt.datetime) -> int:
        return at.year

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.a


class Roots(RootModel[list[Model]]):
    pass


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    content: T


NOON = dt.datetime(2024, 1, 2, 12, 0, 0, 1)
AWARE = [
    dt.UTC, dt.timezone(dt.timedelta(hours=-5, minutes=-30)), zoneinfo.ZoneInfo("Europe/London"),
    zoneinfo.ZoneInfo("Asia/Kathmandu"),
]  # fmt: skip
AS_PYDANTIC: list[tuple[Any, Any]] = [
    (dt.date, dt.date(1, 2, 3)),
    (dt.datetime, NOON),
    *((dt.datetime, NOON.replace(tzinfo=zone)) for zone in AWARE),
    (dt.time, dt.time(1, 2)),
    *((dt.time, dt.time(1, 2, 3, 4, tzinfo=zone)) for zone in AWARE),
    (dt.timedelta, dt.timedelta(hours=1)),
    (uuid.UUID, uuid.UUID(int=5)),
    (decimal.Decimal, decimal.Decimal("1.50")),
    (decimal.Decimal, decimal.Decimal("NaN")),
    (decimal.Decimal, decimal.Decimal("1E+9")),
    (fractions.Fraction, fractions.Fraction(1, 3)),
    (complex, 1 + 2j),
    (complex, complex(0, -2.5)),
    (pathlib.Path, pathlib.Path("/a/b")),
    (bytes, b"caf\xc3\xa9"),
    (re.Pattern[str], re.compile("a+")),
    (ipaddress.IPv6Address, ipaddress.ip_address("::1")),
    (ipaddress.IPv4Network, ipaddress.ip_network("10.0.0.0/8")),
    (zoneinfo.ZoneInfo, zoneinfo.ZoneInfo("Europe/London")),
    (AnyUrl, AnyUrl("http://example.org/a?b")),
    (SecretStr, SecretStr("hush")),
    (Colour, Colour.RED),
    (Colour, Colour.AT),
    (Colour, Colour.PAIR),
    (Level, Level.LOW),
    (Word, Word.YES),
    (Right, Right.READ | Right.WRITE),
    (Point, Point(1, dt.date(2024, 1, 2))),
    (Movie, Movie(title="x", seen={dt.date(2024, 1, 2)})),
    (Plain, Plain(1, NOON, {"t"})),
    (Slotted, Slotted(Plain(1, NOON), {uuid.UUID(int=5): decimal.Decimal(2)})),
    (Checked, Checked(a=1)),
    (list[Checked], [Checked(a=1)]),
    (Model, Model()),
    (dict[str, Model], {"m": Model(a=2)}),
    (Roots, Roots([Model()])),
    (Box[Plain], Box[Plain](content=Plain(1, NOON))),
    (tuple[int, ...], (1, 2)),
    (set[int], {3, 1, 2}),
    (frozenset[str], frozenset(["a"])),
    (collections.deque[int], collections.deque([1, 2])),
    (collections.OrderedDict[str, int], collections.OrderedDict(a=1)),
    (collections.defaultdict[str, int], collections.defaultdict(int, a=1)),
    (collections.Counter[str], collections.Counter("aab")),
    (ToolResult, ToolResult(True, "out", meta={"n": 1})),
]
KEYS = [
    1, 10**30, 1.0, 1.5, 1e100, float("nan"), float("-inf"), True, False, None, Colour.RED,
    Colour.AT, Colour.PAIR, Level.LOW, Word.YES, dt.date(2024, 1, 2), NOON, dt.timedelta(hours=1),
    uuid.UUID(int=5), (1, 2), (1, (2, "a")), (), ("a", None, True, dt.date(2024, 1, 2)),
    decimal.Decimal("1.50"), b"a", pathlib.Path("/a"), 1 + 2j, fractions.Fraction(1, 2),
    Point(1, dt.date(2024, 1, 2)),
]  # fmt: skip


@each_row("kind, value", AS_PYDANTIC)
def test_a_value_is_written_as_pydantic_writes_it(kind: Any, value: object) -> None:
    expected = TypeAdapter(kind).dump_python(value, mode="json")

    assert strict(value) == (expected, ())
    assert strict([{"in": value}]) == ([{"in": expected}], ())


@each_row("key", KEYS)
def test_a_key_is_written_as_pydantic_writes_it(key: Any) -> None:
    assert strict({key: 1}) == (to_jsonable_python({key: 1}), ())


@given(st.timedeltas())
def test_a_duration_is_written_as_pydantic_writes_it(value: dt.timedelta) -> None:
    assert to_json(value).value == to_jsonable_python(value)


@given(st.datetimes() | st.dates() | st.times() | st.decimals() | st.uuids() | st.fractions())
def test_scalars_of_the_standard_library_are_written_as_pydantic_writes_them(value: Any) -> None:
    assert to_json(value).value == to_jsonable_python(value)


@each_row(
    "value, expected",
    [
        (bytearray(b"abc"), "abc"),
        (memoryview(b"abc"), "abc"),
        (memoryview(b"abcdef")[::2], "ace"),
        (range(3), [0, 1, 2]),
        ((n for n in (1, 2)), [1, 2]),
        (map(str, [1]), ["1"]),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.items(), [["a", 1]]),
        ({"a": 1}.values(), [1]),
        (array.array("d", [1.5]), [1.5]),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (collections.ChainMap({"a": 1}, {"b": 2}), {"b": 2, "a": 1}),
        (collections.UserDict({1: 2}), {"1": 2}),
        (collections.UserList([1]), [1]),
        (collections.UserString("abc"), "abc"),
        (ValueError("bad"), {"type": "ValueError", "message": "bad"}),
        (KeyError("k"), {"type": "KeyError", "message": "'k'"}),
        ({"b", "a", "c"}, ["a", "b", "c"]),
        ({Colour.RED, Colour.PAIR}, [[1, 2], "red"]),
        ({1, "a", None}, ["a", 1, None]),
    ],
)
def test_what_pydantic_has_no_form_for_gets_a_sensible_one(value: Any, expected: Any) -> None:
    assert strict(value) == (expected, ())


def test_an_ordered_dict_keeps_its_own_order() -> None:
    value = collections.OrderedDict(a=1, b=2)
    value.move_to_end("a")

    assert list(strict(value)[0]) == ["b", "a"]


def test_a_row_of_a_database_is_sent_by_its_columns() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        rows = database.execute("select 1 as a, 'x' as b union select 2, null order by a")

        assert strict(rows) == ([{"a": 1, "b": "x"}, {"a": 2, "b": None}], ())


def test_bytes_that_are_no_text_are_sent_as_base64() -> None:
    for value in (b"\xff\xfe\xfd", bytearray(b"\xff\xfe\xfd"), memoryview(b"\xff\xfe\xfd")):
        assert strict({"b": value}) == (
            {"b": "//79"},
            ("$.b: bytes that are not UTF-8; sent as base64",),
        )


def test_a_model_with_what_pydantic_cannot_serialise_is_sent_all_the_same() -> None:
    class Loose(BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        blob: bytes = b"\xff"
        thing: Any = Field(default_factory=object)
        nan: float = float("nan")
        at: dt.date = dt.date(2024, 1, 2)

    value, notes = strict(Loose())

    assert value == {"blob": "/w==", "thing": "<object object>", "nan": None, "at": "2024-01-02"}
    assert len(notes) == 3


def test_a_model_that_is_not_fully_defined_yet_is_completed() -> None:
    class Outer(BaseModel):
        inner: "Inner | None" = None

    class Inner(BaseModel):
        n: int = 1

    Outer.model_rebuild(_types_namespace={"Inner": Inner})

    assert strict(Outer(inner=Inner())) == ({"inner": {"n": 1}}, ())


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_pydantic_1_is_sent_by_its_fields() -> None:
    v1 = pytest.importorskip("pydantic.v1")
    model = v1.create_model("Old", a=(int, 1), at=(dt.date, dt.date(2024, 1, 2)))

    assert strict(model()) == ({"a": 1, "at": "2024-01-02"}, ())


def test_an_attrs_class_is_sent_by_its_fields() -> None:
    attrs = pytest.importorskip("attrs")
    thing = attrs.make_class("Thing", {"a": attrs.field(), "_b": attrs.field(default=2)})

    assert strict(thing(a=dt.date(2024, 1, 2))) == ({"a": "2024-01-02", "_b": 2}, ())


@each_row(
    "value",
    [object(), int, len, lambda: 0, json, NotImplemented, ..., io.StringIO("a\nb"), Colour],
)
def test_anything_else_is_sent_as_its_repr_with_a_note(value: object) -> None:
    sent, notes = strict(value)

    assert isinstance(sent, str)
    assert notes == (f"$: {type(value).__name__} cannot be sent as JSON; its repr was sent",)


def test_numpy_scalars_become_what_they_mean() -> None:
    np = pytest.importorskip("numpy")

    value, notes = strict(
        [np.bool_(True), np.int8(-1), np.uint64(2**64 - 1), np.float16(0.5), np.float64(1.5),
         np.longdouble(2), np.complex64(1j), np.str_("s"), np.bytes_(b"b"),
         np.datetime64("2024-01-02"), np.datetime64("2024-01-02T03:04:05", "ns"),
         np.timedelta64(90, "m"), np.timedelta64(1, "ns"), np.clongdouble(1j)]
    )  # fmt: skip

    assert value == [
        True, -1, 2**64 - 1, 0.5, 1.5, 2.0, "1j", "s", "b", "2024-01-02",
        "2024-01-02T03:04:05.000000000", "PT1H30M", "1 nanoseconds", "1j",
    ]  # fmt: skip
    assert [type(v) for v in value[:4]] == [bool, int, int, float]
    assert notes == ()


def test_what_numpy_has_for_missing_is_null() -> None:
    np = pytest.importorskip("numpy")

    value, notes = strict(
        [np.float32("nan"), np.datetime64("NaT"), np.timedelta64("NaT"), np.ma.masked]
    )

    assert value == [None, None, None, None]
    assert notes == (
        "$[0]: nan is not JSON; sent as null",
        "$[1]: NaT is not JSON; sent as null (and 1 more)",
    )


def test_numpy_arrays_become_lists() -> None:
    np = pytest.importorskip("numpy")
    mixed = np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])
    cases = [
        (np.array(5), 5),
        (np.arange(6).reshape(2, 3), [[0, 1, 2], [3, 4, 5]]),
        (np.zeros((2, 0)), [[], []]),
        (np.arange(3000), list(range(3000))),
        (np.array([True, False]), [True, False]),
        (np.array(["a", "bc"]), ["a", "bc"]),
        (np.array([b"a"]), ["a"]),
        (np.array([1j]), ["1j"]),
        (np.array(["2024-01-02"], "datetime64[D]"), ["2024-01-02"]),
        (np.array([dt.date(2024, 1, 2), None], object), ["2024-01-02", None]),
        (mixed, [{"a": 1, "b": 2.5}]),
        (mixed[0], {"a": 1, "b": 2.5}),
        (np.rec.array(mixed), [{"a": 1, "b": 2.5}]),
        (np.ma.array([1, 2], mask=[False, True]), [1, None]),
        (np.array([[1, 2]]).view(np.matrix), [[1, 2]]),
        ({np.int64(1): np.float64(2)}, {"1": 2.0}),
        ({np.int64(2), np.int64(1)}, [1, 2]),
    ]

    for value, expected in cases:
        assert strict(value) == (expected, ())
    assert strict({"x": np.array([[1, float("nan")]])}) == (
        {"x": [[1.0, None]]},
        ("$.x[0][1]: nan is not JSON; sent as null",),
    )


def test_an_array_that_contains_itself_and_a_huge_one_are_cut() -> None:
    np = pytest.importorskip("numpy")
    loop = np.empty(1, object)
    loop[0] = loop

    assert "contains itself" in strict(loop)[1][0]
    huge = np.broadcast_to(np.int8(1), (10**9, 10**6))
    assert "omitted" in to_json(huge, limits=SerialiseLimits(characters=1_000)).notes[0]


def test_a_data_frame_becomes_records() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"], "c": [0.5, float("nan"), 1]})
    frame["d"] = pd.to_datetime(["2024-01-02", None, "2024-01-03"])

    value, notes = strict(frame)

    assert value == [
        {"a": 1, "b": "x", "c": 0.5, "d": "2024-01-02T00:00:00"},
        {"a": 2, "b": None, "c": None, "d": None},
        {"a": 3, "b": "z", "c": 1.0, "d": "2024-01-03T00:00:00"},
    ]
    assert all("sent as null" in note for note in notes)
    assert strict(frame[frame.a > 2])[0] == value[2:]


def test_an_informative_index_is_kept() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"city": ["B", "A", "B"], "n": [1, 2, 3]})

    assert strict(frame.groupby("city").sum())[0] == [{"city": "A", "n": 2}, {"city": "B", "n": 4}]
    assert strict(frame.groupby("city")["n"].sum())[0] == {"A": 2, "B": 4}
    assert strict(frame.set_index("city")["n"])[0][0] == {"city": "B", "n": 1}
    clash = frame.set_index("city", drop=False)
    assert strict(clash)[0][0] == {"city": "B", "n": 1}
    assert "omitted" in strict(clash)[1][0]


def test_columns_of_a_data_frame_may_be_doubled_or_no_text() -> None:
    pd = pytest.importorskip("pandas")

    value, notes = strict(pd.DataFrame([[1, 2, 3, 4]], columns=["a", "a", 5, ("b", 1)]))

    assert value == [{"a": 2, "5": 3, "b,1": 4}]
    assert "keys have the same text" in notes[0]


def test_other_values_of_pandas_get_sensible_forms() -> None:
    pd = pytest.importorskip("pandas")

    value, notes = strict(
        [pd.Series([1, 2]), pd.Index(["a"]), pd.Timestamp("2024-01-02", tz="UTC"), pd.NaT, pd.NA,
         pd.Timedelta("1h"), pd.Period("2024-01"), pd.array([1, None], dtype="Int64"),
         pd.Categorical(["x"]), pd.Timestamp("2024-01-02T00:00:00.000000001")]
    )  # fmt: skip

    assert value == [
        [1, 2], ["a"], "2024-01-02T00:00:00Z", None, None, "PT1H", "2024-01", [1, None], ["x"],
        "2024-01-02T00:00:00.000000001",
    ]  # fmt: skip
    assert len(notes) == 2
