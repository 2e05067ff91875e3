"""Binding for tools that have imported pydantic: models, fields, aliases, validators."""

# ruff: noqa: B008 - `= Field(…)` is what is tested

import dataclasses
import enum
import typing
from collections.abc import Callable, Generator, Iterable
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import pydantic
import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    Field,
    SecretStr,
    StringConstraints,
    field_validator,
)

from tables import each_row
from toolkiln.runtime.binder import Binder
from toolkiln.runtime.conversion_scalars import BindingError


class Colour(enum.Enum):
    RED = "red"


class Model(BaseModel):
    day: date
    amount: Decimal = Field(default=Decimal(1), alias="from")

    @field_validator("day")
    @classmethod
    def _recent(cls, day: date) -> date:
        if day.year < 1970:
            raise ValueError("too long ago")
        if day.year > 2100:
            raise LookupError("the author's own mistake")
        return day


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


@dataclasses.dataclass
class Record:
    model: Model
    days: set[date] = dataclasses.field(default_factory=set)


class Held(typing.TypedDict):
    model: Model
    name: Annotated[str, AfterValidator(str.upper)]


class Opaque:
    pass


def bound(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    _, keywords = Binder(function).bind(arguments, {})
    return keywords


def one(annotation: Any, value: Any) -> Any:
    def tool(x: Any) -> None: ...

    tool.__annotations__ = {"x": annotation}
    return bound(tool, {"x": value})["x"]


DAY = date(1970, 1, 1)


@each_row(
    "annotation, value, made",
    [
        (Model, {"day": 0, "from": "2"}, Model.model_validate({"day": DAY, "from": 2})),
        (list[Model] | None, [{"day": 0}], [Model(day=DAY)]),
        (Record, {"model": {"day": 0}, "days": [0]}, Record(Model(day=DAY), {DAY})),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "dog"}, Dog(kind="dog")),
        (Annotated[str, StringConstraints(strip_whitespace=True)], " a ", "a"),
        (Annotated[int, AfterValidator(lambda x: x + 1)], 1, 2),
        (list[Annotated[int, BeforeValidator(lambda x: x + 1)]], [1], [2]),
        (Annotated[int, Field(ge=1)], 1.0, 1),
        (Annotated[int, Field(description="a number")], 1.0, 1),
        (SecretStr, "a", SecretStr("a")),
        (date | str, "1970-01-01", DAY),
        (dict[date, bytes], {"1970-01-01": "é"}, {DAY: "é".encode()}),
        (set[tuple[int, ...]], [[1], [1]], {(1,)}),
        (Literal[Colour.RED] | None, "red", Colour.RED),
        (Iterable[Model], [{"day": 0}], [Model(day=DAY)]),
        (Opaque, {"a": 1}, {"a": 1}),
        (dict[date, Opaque], {"1970-01-01": 1}, {DAY: 1}),
        (Held, {"model": {"day": 0}, "name": "a"}, {"model": Model(day=DAY), "name": "A"}),
        (list[Held], [], []),
        (float, "\ud800", None),
        (bytes | Model, "\ud800", None),
    ],
)
def test_a_typed_value_is_read_as_pydantic_reads_json(
    annotation: Any, value: Any, made: Any
) -> None:
    if made is None:
        with pytest.raises(BindingError):
            one(annotation, value)
    else:
        assert one(annotation, value) == made
        assert type(one(annotation, value)) is type(made)


def test_a_generator_is_read_before_the_call() -> None:
    annotation = Generator[Model, None, None]

    assert next(one(annotation, [{"day": 0}])) == Model(day=DAY)
    with pytest.raises(BindingError, match=r"^x\[1\]\.day: "):
        one(annotation, [{"day": 0}, {"day": "x"}])


def test_every_problem_that_pydantic_finds_is_reported_with_its_path() -> None:
    with pytest.raises(BindingError) as raised:
        one(list[Model], [{"from": "x"}, {"day": "1960-01-01"}])

    assert str(raised.value) == (
        "x[0].day: Field required; x[0].from: Input should be a valid decimal; "
        "x[1].day: too long ago"
    )


def test_a_type_error_of_a_validator_is_reported_and_other_exceptions_propagate() -> None:
    def refuse(value: Any) -> Any:
        raise TypeError("not like this")

    with pytest.raises(BindingError, match=r"^x: not like this$"):
        one(Annotated[int, AfterValidator(refuse)], 1)
    with pytest.raises(LookupError):
        one(Model, {"day": "2200-01-01"})


def test_arguments_arrive_under_the_names_that_the_schema_has() -> None:
    def tool(
        a: int = Field(alias="from"),
        b: Annotated[int, Field(alias="to")] = 2,
        c: int = Field(3, alias="no", validation_alias="yes"),
        d: int = Field(4, validation_alias=AliasChoices(AliasPath("deep", 0), "flat", "other")),
        e: int = Field(5, validation_alias=AliasPath("deep", 0)),
        f: int = Field(6, validation_alias=AliasPath("single")),
        g: int = Field(7, serialization_alias="out"),
    ) -> None: ...

    sent = {"from": 10, "to": 20, "yes": 30, "flat": 40, "e": 50, "single": 60, "g": 70}

    assert list(bound(tool, sent).values()) == [10, 20, 30, 40, 50, 60, 70]
    assert list(bound(tool, sent)) == list("abcdefg")


def test_defaults_of_fields_are_their_values_and_fresh() -> None:
    def tool(
        a: int = Field(5, ge=1),
        b: list[int] = Field(default_factory=list),
        c: list[int] = Field([1]),
        d: Annotated[list[int], Field(default=[2])] = Field(description="a list"),
        e: Annotated[int, Field(default=3)] = 4,
        f: Model = Model(day=DAY),
        g: list[int] = Field(default_factory=lambda data: [data["a"]]),
        h: int | None = Field(None),
    ) -> None: ...

    binder = Binder(tool)
    (_, first), (_, second) = binder.bind({}, {}), binder.bind({}, {})

    expected = {"a": 5, "b": [], "c": [1], "d": [2], "f": Model(day=DAY), "g": [5], "h": None}
    assert first == second == expected
    assert all(first[name] is not second[name] for name in "bcdfg")
    assert bound(tool, {"h": None})["h"] is None


@each_row("value", [None, "x"])
def test_a_field_with_a_factory_is_still_checked(value: Any) -> None:
    def tool(days: list[date] = Field(default_factory=list)) -> None: ...

    with pytest.raises(BindingError, match=r"^days: "):
        bound(tool, {"days": value})


def test_a_field_without_a_default_is_required() -> None:
    def tool(a: int = Field(description="needed"), b: int = Field(..., alias="x")) -> None: ...

    with pytest.raises(BindingError, match=r"^a: missing; x: missing$"):
        bound(tool, {})


def test_a_pydantic_without_adapters_is_not_used() -> None:
    def tool(x: date) -> None: ...

    half_imported = type(pydantic)("pydantic")

    assert Binder(tool, pydantic=half_imported).bind({"x": 0}, {}) == ((), {"x": DAY})
