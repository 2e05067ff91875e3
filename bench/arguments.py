"""Argument checking, against a bare pydantic-core validation of the same arguments."""

import datetime
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from bench.timing import Figure, at_most, ratio
from toolkiln.schema.arguments import Checked, check
from toolkiln.spec.reader import read


class Convert(TypedDict):
    amount: float
    to: Literal["EUR", "USD", "GBP"]
    date: Annotated[str | None, Field(max_length=10)]
    tags: list[str]


class Address(TypedDict):
    street: str
    city: str
    zip: Annotated[str, Field(pattern=r"^\d{5}$")]


class Order(TypedDict):
    customer: str
    address: Address
    quantities: dict[str, int]
    express: bool
    notes: list[str]


class Booking(TypedDict):
    day: datetime.date
    id: uuid.UUID
    guest: str


_PRELUDE = """
import datetime, uuid
from typing import Annotated, Literal
from pydantic import Field
from typing_extensions import TypedDict
class Address(TypedDict):
    street: str
    city: str
    zip: Annotated[str, Field(pattern=r"^\\d{5}$")]
"""
_CASES: list[tuple[str, Any, str, dict[str, Any]]] = [
    (
        "four flat arguments",
        Convert,
        "def f(amount: float, to: Literal['EUR', 'USD', 'GBP'], "
        "date: Annotated[str | None, Field(max_length=10)], tags: list[str]): ...",
        {"amount": 10.5, "to": "EUR", "date": "2024-01-01", "tags": ["a", "b"]},
    ),
    (
        "a date and a UUID",
        Booking,
        "def f(day: datetime.date, id: uuid.UUID, guest: str): ...",
        {"day": "2024-01-01", "id": "12345678-1234-5678-1234-567812345678", "guest": "Ada"},
    ),
    (
        "a nested order",
        Order,
        "def f(customer: str, address: Address, quantities: dict[str, int], express: bool, "
        "notes: list[str]): ...",
        {
            "customer": "Ada",
            "address": {"street": "Main 1", "city": "London", "zip": "12345"},
            "quantities": {"apple": 3, "pear": 2, "plum": 7},
            "express": True,
            "notes": ["ring twice", "leave at the door"],
        },
    ),
]


def figures() -> Iterator[Figure]:
    """Each case on its own."""
    for name, model, source, arguments in _CASES:
        (spec,) = read(_PRELUDE + source, "<bench>").tools
        validate = TypeAdapter(model).validator.validate_python
        assert isinstance(check(spec, arguments), Checked)
        measured = ratio(
            partial(check, spec, arguments),
            partial(validate, arguments),
            rounds=500,
            repeat=100,
        )
        yield at_most(f"check {name} / pydantic-core", measured, 3)
