"""Names for types: aliases, NewType and type variables."""

from .case import sheet

_IMPORTS = """
import typing
import typing as t
from collections.abc import Sequence
from enum import Enum
from typing import (
    Annotated, Any, Dict, Generic, List, Literal, NewType, Optional, TypeAlias, TypeVar, Union,
)

from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType
from typing_extensions import TypeVar as DefaultTypeVar
"""

CASES = sheet(
    "alias",
    _IMPORTS,
    r"""
### of types | tuple[Plain, Parametrised, United, Nested]
Plain = int
Parametrised = dict[str, list[int]]
United = int | str | None
Nested = Parametrised | None

### TypeAlias | tuple[Plain, Model]
Plain: TypeAlias = dict[str, int]
Model: TypeAlias = "dict[str, Later]"

class Later(BaseModel):
    a: int

### annotated | tuple[Described, dict[str, Model] | list[Model], Annotated[Model, Field(lt=5)]]
Described = Annotated[int, Field(gt=0, description="d")]
Model = Annotated[int, Field(gt=0)]

### of a class
class Real(BaseModel):
    a: int

Model = Real

### of an enum | Model = Model.A
class Real(Enum):
    A = 1

Model = Real

### TypeAliasType
Model = TypeAliasType("Model", list[int])

### TypeAliasType twice | tuple[Model, Model]
Model = TypeAliasType("Model", dict[str, int])

### TypeAliasType in a list | list[Model] | None
Model = TypeAliasType("Model", Annotated[int, Field(gt=0, description="d")])

### TypeAliasType recursive
Model = TypeAliasType("Model", "dict[str, Model] | list[Model] | int | None")

### TypeAliasType generic | Model[int]
T = TypeVar("T")
Model = TypeAliasType("Model", list[T] | None, type_params=(T,))

### TypeAliasType of a model
class Real(BaseModel):
    a: int

Model = TypeAliasType("Model", Real)

### TypeAliasType with annotation | Annotated[Model, Field(description="d")]
Model = TypeAliasType("Model", int)

### generic alias | tuple[Mapping[int], United[int], Described[int]]
T = TypeVar("T")
Mapping = dict[str, T]
United = Union[T, list[T]]
Described = Annotated[list[T], Field(min_length=1)]

### generic alias unparametrised
T = TypeVar("T")
Model = List[T]

### tuple of aliases
A = int
B = str
Model = tuple[A, B]

### alias defined under if
if True:
    Model = int
else:
    Model = str

### NewType
Whole = NewType("Whole", int)
Text = NewType("Text", str)
Mapping = NewType("Mapping", dict[str, int])
Again = t.NewType("Again", Whole)

def tool(
    mapping: Mapping,
    again: Again,
    texts: list[Text],
    constrained: Annotated[Whole, Field(gt=0)],
    whole: Whole = Whole(3),
) -> Whole: ...

### NewType of a model
class Real(BaseModel):
    a: int

Model = NewType("Model", Real)

### TypeVar | tuple[Free, Bound, United, Either, list[Three]]
Free = TypeVar("Free")
Bound = TypeVar("Bound", bound=int)
United = TypeVar("United", bound=Union[int, str])
Either = TypeVar("Either", int, str)
Three = TypeVar("Three", int, str, list[int])

### TypeVar bound by text
Model = TypeVar("Model", bound="Later")

class Later(BaseModel):
    a: int

### TypeVar bound to a model | Sequence[Model]
class Real(BaseModel):
    a: int

Model = TypeVar("Model", bound=Real)

### TypeVar of another module | tuple[Defaulting, dict[str, Model]]
Defaulting = DefaultTypeVar("Defaulting", default=int)
Model = typing.TypeVar("Model", bound=float)
""",
)
