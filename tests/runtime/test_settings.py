"""Settings classes convert values, and reject them without repeating secrets."""

from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel, Field, SecretStr, field_validator
from pydantic_core import PydanticCustomError

from tables import each_row
from toolkiln.define import tool
from toolkiln.runtime.loader import BadSettings, new_settings, typed_settings


class Unit(Enum):
    METRIC = "metric"


class Model(BaseModel):
    retries: int = Field(3, ge=0)
    key: SecretStr = SecretStr("none")
    url: str = Field("https://example.org", alias="address")
    since: date | None = None

    @field_validator("key")
    @classmethod
    def long_enough(cls, key: SecretStr) -> SecretStr:
        if key.get_secret_value().startswith("short"):
            raise ValueError(f"{key.get_secret_value()} is too short")
        if key.get_secret_value().startswith("odd"):
            raise PydanticCustomError("odd_key", f"{key.get_secret_value()} is odd")
        return key


@dataclass
class Record:
    unit: Unit = Unit.METRIC
    since: date = date(2020, 1, 1)
    names: list[str] = field(default_factory=list)
    key: str = ""

    def __post_init__(self) -> None:
        if self.key.startswith("short"):
            raise ValueError(self.key)


@dataclass(slots=True)
class Slotted:
    unit: Unit = Unit.METRIC


class Table(TypedDict, total=False):
    retries: int


class Plain:
    def __init__(self, retries: int = 3) -> None:
        self.retries = retries


def of(cls: Any, values: dict[str, Any]) -> Any:
    @tool(settings=cls)
    def f() -> None: ...

    return typed_settings(f, values)


@each_row(
    "cls, given, values",
    [
        (Model, {}, {"retries": 3, "key": SecretStr("none"), "url": "https://example.org",
                     "since": None}),
        (Model, {"retries": 1, "key": "k", "address": "x", "since": "2024-02-29"},
         {"retries": 1, "key": SecretStr("k"), "url": "x", "since": date(2024, 2, 29)}),
        (Record, {}, {"unit": Unit.METRIC, "since": date(2020, 1, 1), "names": [], "key": ""}),
        (Record, {"unit": "metric", "since": "2024-02-29", "names": ["a"]},
         {"unit": Unit.METRIC, "since": date(2024, 2, 29), "names": ["a"], "key": ""}),
        (Slotted, {"unit": "metric"}, {"unit": Unit.METRIC}),
        (Table, {"retries": 1}, {"retries": 1}),
        (Plain, {}, {"retries": 3}),
    ],
)  # fmt: skip
def test_values_are_typed_and_defaults_filled_in(
    cls: type, given: dict[str, Any], values: dict[str, Any]
) -> None:
    assert of(cls, given) == values


def test_a_function_without_a_class_gets_the_values_as_they_are() -> None:
    values = {"retries": "3"}

    assert typed_settings(lambda: None, values) is values
    assert typed_settings(tool(lambda: None), values) is values


def test_two_calls_share_no_values() -> None:
    of(Record, {})["names"].append("changed")

    assert of(Record, {})["names"] == []


@each_row(
    "cls, given, told",
    [
        (Model, {"retries": -1}, "retries (greater than equal)"),
        (Model, {"retries": "s3cret", "key": []}, "retries (int parsing), key (string type)"),
        (Model, {"key": "short s3cret"}, "key (value error)"),
        (Model, {"key": "odd s3cret"}, "key (odd key)"),
        (Record, {"since": "s3cret"}, "since (BindingError)"),
        (Record, {"key": "short s3cret"}, "Record rejects the settings"),
        (Plain, {"s3cret": 1}, "the whole (TypeError)"),
    ],
)
def test_a_rejection_names_the_problem_and_repeats_no_value(
    cls: type, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(BadSettings) as raised:
        new_settings(cls, given)

    assert told in str(raised.value)
    assert "s3cret" not in str(raised.value)
    assert raised.value.__suppress_context__
