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
### plain
Model = int

### parametrised
Model = dict[str, list[int]]

### union
Model = int | str | None

### of an alias
Inner = list[int]
Model = Inner | None

### TypeAlias
Model: TypeAlias = dict[str, int]

### TypeAlias with text
Model: TypeAlias = "dict[str, Later]"

class Later(BaseModel):
    a: int

### annotated
Model = Annotated[int, Field(gt=0, description="d")]

### annotated reused | dict[str, Model] | list[Model]
Model = Annotated[int, Field(gt=0)]

### annotated with more | Annotated[Model, Field(lt=5)]
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

### generic alias | Model[int]
T = TypeVar("T")
Model = dict[str, T]

### generic union alias | Model[int]
T = TypeVar("T")
Model = Union[T, list[T]]

### generic annotated alias | Model[int]
T = TypeVar("T")
Model = Annotated[list[T], Field(min_length=1)]

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
Model = NewType("Model", int)

### NewType of text | list[Model]
Model = NewType("Model", str)

### NewType of a container
Model = NewType("Model", dict[str, int])

### NewType of a NewType
Inner = NewType("Inner", int)
Model = t.NewType("Model", Inner)

### NewType of a model
class Real(BaseModel):
    a: int

Model = NewType("Model", Real)

### NewType constrained | Annotated[Model, Field(gt=0)]
Model = NewType("Model", int)

### NewType default | Model = Model(3)
Model = NewType("Model", int)

### TypeVar
Model = TypeVar("Model")

### TypeVar bound
Model = TypeVar("Model", bound=int)

### TypeVar bound to a union
Model = TypeVar("Model", bound=Union[int, str])

### TypeVar bound by text
Model = TypeVar("Model", bound="Later")

class Later(BaseModel):
    a: int

### TypeVar constraints
Model = TypeVar("Model", int, str)

### TypeVar three constraints | list[Model]
Model = TypeVar("Model", int, str, list[int])

### TypeVar bound to a model | Sequence[Model]
class Real(BaseModel):
    a: int

Model = TypeVar("Model", bound=Real)

### TypeVar default
Model = DefaultTypeVar("Model", default=int)

### typing.TypeVar | dict[str, Model]
Model = typing.TypeVar("Model", bound=float)
""",
)
