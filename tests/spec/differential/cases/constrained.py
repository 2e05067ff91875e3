"""`Annotated`, `Field` and annotated-types on every base type, the unlikely ones too."""

from .case import rows

_IMPORTS = """
    import annotated_types
    import annotated_types as at
    import pydantic
    import re
    import typing as t
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime, time, timedelta
    from decimal import Decimal
    from enum import Enum
    from pathlib import Path
    from typing import Annotated, Any, List, Literal, Optional, Union
    from uuid import UUID
    from annotated_types import (
        Ge, Gt, Interval, Le, Len, LowerCase, Lt, MaxLen, MinLen, MultipleOf, Predicate, Timezone,
    )
    from pydantic import AfterValidator, BaseModel, Field, Strict, StringConstraints

    class Colour(Enum):
        RED = "red"
        BLUE = "blue"

    class Model(BaseModel):
        a: int

    Positive = Annotated[int, Field(gt=0)]
    Name = Annotated[str, Field(min_length=1, description="A name.")]
    LIMIT = 10
"""

NUMBERS = rows(
    "number",
    _IMPORTS,
    """
    Annotated[int, Gt(0)]; Annotated[int, Ge(0)]; Annotated[int, Lt(10)]; Annotated[int, Le(10)]
    Annotated[int, Gt(0), Lt(10)]; Annotated[int, Gt(-5)]; Annotated[int, Interval(ge=1, le=5)]
    Annotated[int, Interval(gt=1, lt=5)]; Annotated[int, MultipleOf(3)]
    Annotated[int, Field(gt=0)]; Annotated[int, Field(ge=1, le=LIMIT)]
    Annotated[int, Field(gt=1, ge=2, lt=9, le=8)]; Annotated[int, Field(multiple_of=5)]
    Annotated[int, Field(gt=0), Field(lt=5)]; Annotated[int, Field(gt=0), Field(gt=5)]
    Annotated[int, Field(gt=5), Gt(0)]; Annotated[int, Gt(0), Gt(5)]
    Annotated[Annotated[int, Gt(0)], Lt(5)]; Annotated[Positive, Field(lt=100)]
    Annotated[Positive, Field(gt=100)]; Annotated[float, Field(gt=0.5, le=1.5)]
    Annotated[float, Ge(-1.5)]; Annotated[float, Field(ge=0, le=1)]
    Annotated[float, Field(multiple_of=0.5)]; Annotated[float, Field(allow_inf_nan=False)]
    Annotated[bool, Strict()]; Annotated[int, Strict()]; Annotated[int, Field(strict=True)]
    Annotated[Decimal, Field(gt=0)]; Annotated[Decimal, Field(gt=Decimal("0.5"), lt=Decimal(10))]
    Annotated[Decimal, Field(max_digits=5, decimal_places=2)]
    Annotated[Decimal, Field(max_digits=3)]; Annotated[Decimal, Field(decimal_places=2)]
    Annotated[Decimal, Field(multiple_of=2, ge=0)]; Annotated[int | None, Field(gt=0)]
    Annotated[Optional[int], Field(gt=0, lt=9)]; Annotated[Optional[int], Gt(0)] = None
    Annotated[int | None, Field(gt=0)] = 5; Annotated[Optional[float], Interval(ge=0, le=1)]
    Annotated[int | float, Field(gt=0)]; Annotated[Union[int, float, None], Field(ge=0)]
    Optional[Annotated[int, Gt(0)]]; list[Annotated[int, Field(ge=0, le=255)]]
    dict[str, Annotated[float, Gt(0)]]; tuple[Annotated[int, Gt(0)], Annotated[str, MinLen(1)]]
    Annotated[Any, Field(gt=0)]; Annotated[Literal[1, 2], Field(description="d")]
    t.Annotated[int, pydantic.Field(gt=0)]; t.Annotated[int, annotated_types.Gt(0)]
    t.Annotated[int, at.Interval(gt=0)]; Annotated[int, Predicate(bool)]
    Annotated[int, AfterValidator(abs)]; Annotated[int, AfterValidator(abs), Field(gt=0)]
    Annotated[int, Field(gt=0), AfterValidator(abs), Field(lt=9)]
    Annotated[int, Field(gt=2 ** 10, lt=10 * LIMIT)]; Positive; Positive = 3
    list[Positive] | None = None
    """,
)

LENGTHS = rows(
    "length",
    _IMPORTS,
    """
    Annotated[str, MinLen(1)]; Annotated[str, MaxLen(5)]; Annotated[str, Len(1, 5)]
    Annotated[str, Len(2)]; Annotated[str, Len(min_length=1, max_length=3)]
    Annotated[str, Field(min_length=1, max_length=5)]
    Annotated[str, Field(min_length=1), Field(max_length=5)]; Annotated[str, Field(min_length=0)]
    Annotated[str, Field(pattern=r"^\\d+$")]; Annotated[str, Field(pattern=re.compile("a+"))]
    Annotated[str, Field(pattern="a", min_length=1)]
    Annotated[str, StringConstraints(min_length=1, pattern="^x", to_lower=True)]
    Annotated[str, StringConstraints(strip_whitespace=True)]
    Annotated[str, StringConstraints(pattern="a"), Field(max_length=5)]
    Annotated[str, StringConstraints(min_length=2), StringConstraints(max_length=5)]
    Annotated[str, Strict()]; Annotated[str, LowerCase]; Annotated[str, Predicate(str.islower)]
    Annotated[str | None, Field(min_length=1)]
    Annotated[Optional[str], Field(max_length=5)] = None
    Annotated[Optional[str], StringConstraints(max_length=5)]
    Annotated[str | int, Field(description="d")]; Annotated[str | bytes, Field(min_length=1)]
    Annotated[str | list[int], Field(min_length=1)]; Annotated[Optional[str], Field(pattern="^a")]
    Annotated[bytes, Field(min_length=1, max_length=9)]; Annotated[bytes, Len(1, 9)]
    Annotated[list[int], MinLen(1)]; Annotated[list[int], Field(min_length=1, max_length=3)]
    Annotated[list[int], Len(1, 3)]; Annotated[list, Len(1)]; Annotated[List[int], MaxLen(3)]
    Annotated[list[Annotated[str, Field(min_length=2)]], Field(min_length=1)]
    Annotated[list[int] | None, Field(min_length=1)]
    Annotated[Optional[list[str]], Field(max_length=3)] = None
    Annotated[Sequence[int], Field(min_length=1)]
    Annotated[set[int], Field(min_length=1, max_length=4)]; Annotated[frozenset[str], MinLen(1)]
    Annotated[tuple[int, ...], Field(min_length=1, max_length=4)]
    Annotated[tuple[int, str], Field(min_length=1)]
    Annotated[dict[str, int], Field(min_length=1, max_length=4)]
    Annotated[dict[str, int] | None, MinLen(1)]; Annotated[Mapping[str, int], MinLen(1)]
    Annotated[Any, Field(min_length=1)]; Name; Name | None; list[Name]; dict[Name, Name]
    Annotated[Name, Field(max_length=9)]; Annotated[Name, Field(description="Another.")]
    """,
)

OTHERS = rows(
    "constrained",
    _IMPORTS,
    """
    Annotated[date, Field(ge=date(2020, 1, 1))]; Annotated[date, Gt(date(2020, 1, 1))]
    Annotated[datetime, Field(lt=datetime(2020, 1, 1))]; Annotated[datetime, Timezone(...)]
    Annotated[datetime, Timezone(None)]; Annotated[timedelta, Field(gt=timedelta(seconds=5))]
    Annotated[time, Field(description="d")]; Annotated[UUID, Field(description="d")]
    Annotated[Path, Field(description="d")]; Annotated[Colour, Field(description="d")]
    Annotated[Colour, Field(description="d")] = Colour.RED
    Annotated[Colour | None, Field(description="d")] = None
    Annotated[Model, Field(description="d")]; Annotated[Model | None, Field(description="d")]
    Annotated[list[Model], Field(min_length=1, description="d")]
    list[Annotated[Model, Field(description="inner")]]
    list[Annotated[Colour, Field(description="inner", examples=["red"])]]
    """,
)

TEXTS = rows(
    "annotation",
    _IMPORTS,
    """
    Annotated[int, Field(description="How many.")]
    Annotated[int, Field(description="How " "many.")]
    Annotated[int, Field(description="a"), Field(description="b")]
    Annotated[int, Field(title="Count")]; Annotated[int, Field(examples=[1, 2])]
    Annotated[int, Field(examples=[])]; Annotated[dict, Field(examples=[{"title": "x"}])]
    Annotated[int, Field(deprecated=True)]; Annotated[int, Field(deprecated="Use y.")]
    Annotated[int, Field(deprecated=False)]
    Annotated[int, Field(json_schema_extra={"unit": "m", "x-y": [1, None]})]
    Annotated[int, Field(json_schema_extra={"minimum": 3})]
    Annotated[int, Field(json_schema_extra={"a": 1}), Field(json_schema_extra={"b": 1})]
    Annotated[int, Field(default=3)]; Annotated[int, Field(default=3)] = 4
    Annotated[int, Field(3)]; Annotated[int, Field(...)]
    Annotated[list[int], Field(default_factory=list)]; Annotated[int, Field(alias="count")]
    Annotated[int, Field(validation_alias="count")]
    Annotated[int, Field(serialization_alias="count")]
    Annotated[int, Field(alias="a", validation_alias="b")]
    Annotated[int, Field(repr=False, init=True, frozen=True, exclude=True)]
    Annotated[int, 5, ("a", 1), None, Colour.RED]; int = Field(3)
    int = Field(3, gt=0, description="d"); int = Field(gt=0); int = Field(..., gt=0)
    int = Field(default=..., description="d"); int | None = Field(None, description="d")
    int | None = Field(default=None, ge=0); list[int] = Field(default_factory=list)
    list[int] = Field(default_factory=list, min_length=1)
    str = Field("x", alias="name", min_length=1); str = pydantic.Field("x", max_length=LIMIT)
    Annotated[int, Field(gt=0)] = Field(3, lt=5)
    Annotated[int, Field(description="a")] = Field(3, description="b")
    Model = Field(description="d"); Model | None = Field(None, description="d")
    Positive = Field(3, description="d")
    """,
)

CASES = [*NUMBERS, *LENGTHS, *OTHERS, *TEXTS]
