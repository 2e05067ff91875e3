"""Dataclasses, typed dictionaries and named tuples."""

from .case import sheet

_IMPORTS = """
import collections
import dataclasses
import typing
from collections import namedtuple
from dataclasses import KW_ONLY, InitVar, dataclass, field
from datetime import date
from typing import Annotated, Any, ClassVar, Generic, List, NamedTuple, Optional, TypeVar

import pydantic
import pydantic.dataclasses
from pydantic import BaseModel, ConfigDict, Field, computed_field, with_config
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import NotRequired, ReadOnly, Required, TypedDict
"""

DATACLASSES = sheet(
    "dataclass",
    _IMPORTS,
    r'''
### fields
@dataclass
class Model:
    a: int
    b: str = "x"
    c: list[int] = field(default_factory=list)
    d: int = field(default=3)

### empty
@dataclass
class Model:
    pass

### called decorator
@dataclass()
class Model:
    a: int

### module attribute
@dataclasses.dataclass(frozen=True)
class Model:
    a: int = dataclasses.field(default=1)

### docstring
@dataclass
class Model:
    """A record.

    At length.
    """

    a: int

### keyword only
@dataclass(kw_only=True)
class Model:
    a: int = 1
    b: str

### KW_ONLY marker
@dataclass
class Model:
    a: int
    _: KW_ONLY
    b: str = "x"
    c: int = 3

### keyword-only field
@dataclass
class Model:
    a: int = field(default=1, kw_only=True)
    b: str = "x"

### init=False
@dataclass
class Model:
    a: int
    b: int = field(init=False, default=3)
    c: list[int] = field(init=False, default_factory=list)

### InitVar
@dataclass
class Model:
    a: int
    seed: InitVar[int]
    salt: InitVar[str] = "x"

### ClassVar
@dataclass
class Model:
    K: ClassVar[int] = 3
    a: int = 1
    plain = 5

### slots and order
@dataclass(slots=True, order=True, eq=True)
class Model:
    a: int
    b: int = 2

### field details
@dataclass
class Model:
    a: int = field(default=1, repr=False, compare=False, metadata={"description": "unused"})
    b: Annotated[int, Field(gt=0, description="d")] = 2

### Field as default
@dataclass
class Model:
    a: int = Field(gt=0)
    b: int = Field(3, description="d")
    c: int = Field(alias="sea")

### inheritance
@dataclass
class Base:
    a: int
    b: int = 1

@dataclass
class Model(Base):
    c: str = "x"
    a: str = "y"

### undecorated subclass
@dataclass
class Base:
    a: int

class Model(Base):
    b: int

### undecorated base
class Base:
    a: int

@dataclass
class Model(Base):
    b: int

### nested
@dataclass
class Inner:
    a: int = 1

@dataclass
class Model:
    i: Inner
    l: list[Inner] = field(default_factory=list)
    o: Inner | None = None

### instance as default | Model = Model(1)
@dataclass(frozen=True)
class Model:
    a: int
    b: str = "x"

### recursive
@dataclass
class Model:
    v: int
    next: Optional["Model"] = None

### of a model
class Inner(BaseModel):
    a: int = Field(gt=0)

@dataclass
class Model:
    i: Inner

### in a model
@dataclass
class Inner:
    a: int = 1

class Model(BaseModel):
    i: Inner
    j: Inner = Inner(a=2)

### methods and properties
@dataclass
class Model:
    a: int

    def __post_init__(self): ...

    @property
    def twice(self) -> int:
        return self.a * 2

### generic | Model[int]
T = TypeVar("T")

@dataclass
class Model(Generic[T]):
    a: T
    b: list[T]

### pydantic config on a plain dataclass
@dataclass
class Model:
    __pydantic_config__ = ConfigDict(extra="forbid")
    a: int

### pydantic dataclass
@pydantic_dataclass
class Model:
    a: int
    b: str = Field("x", min_length=1)
    c: list[int] = Field(default_factory=list)
    d: list[int] = field(default_factory=list)

### pydantic dataclass by attribute
@pydantic.dataclasses.dataclass
class Model:
    """A record."""

    a: int

### pydantic dataclass with config
@pydantic_dataclass(config=ConfigDict(extra="forbid", alias_generator=to_camel))
class Model:
    first_name: int

### pydantic dataclass keyword only
@pydantic_dataclass(kw_only=True, frozen=True)
class Model:
    a: int = 1
    b: int

### pydantic dataclass aliases
@pydantic_dataclass
class Model:
    a: int = Field(alias="x")
    b: int = Field(1, validation_alias="v", serialization_alias="s")

### pydantic dataclass init=False
@pydantic_dataclass
class Model:
    a: int
    b: int = Field(3, init=False)

### pydantic dataclass inheritance
@pydantic_dataclass
class Base:
    a: int

@pydantic_dataclass
class Model(Base):
    b: int

### pydantic dataclass computed field
@pydantic_dataclass
class Model:
    a: int

    @computed_field
    @property
    def b(self) -> int:
        return 1
''',
)

TYPED_DICTS = sheet(
    "TypedDict",
    _IMPORTS,
    r'''
### fields
class Model(TypedDict):
    a: int
    b: str | None

### total=False
class Model(TypedDict, total=False):
    a: int
    b: str

### Required
class Model(TypedDict, total=False):
    a: Required[int]
    b: str

### NotRequired
class Model(TypedDict):
    a: int
    b: NotRequired[str]
    c: NotRequired[Annotated[int, Field(gt=0)]]
    d: Annotated[NotRequired[int], Field(description="d")]

### ReadOnly
class Model(TypedDict):
    a: ReadOnly[int]
    b: ReadOnly[NotRequired[int]]

### docstring
class Model(TypedDict):
    """A dictionary."""

    a: int

### inheritance
class Base(TypedDict):
    a: int

class Model(Base, total=False):
    b: int

### inheritance the other way
class Base(TypedDict, total=False):
    a: int

class Model(Base):
    b: int

### two bases
class A(TypedDict):
    a: int

class B(TypedDict, total=False):
    b: int

class Model(A, B):
    c: int

### functional
Model = TypedDict("Model", {"a": int, "b": "list[str]", "in": str, "x-y": NotRequired[int]})

### functional total=False
Model = TypedDict("Model", {"a": int, "b": Required[str]}, total=False)

### empty
class Model(TypedDict):
    pass

### nested
class Inner(TypedDict):
    a: int

class Model(TypedDict):
    i: Inner
    l: list[Inner]

### recursive
class Model(TypedDict):
    v: int
    next: NotRequired["Model"]

### constraints
class Model(TypedDict):
    a: Annotated[int, Field(gt=0, description="d", alias="b")]
    c: Annotated[str, "text"]

### configured
class Model(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid")
    a: int

### configured by decorator
@with_config(ConfigDict(extra="allow"))
class Model(TypedDict):
    a: int

### closed
class Model(TypedDict, closed=True):
    a: int

### generic | Model[int]
T = TypeVar("T")

class Model(TypedDict, Generic[T]):
    a: T

### in containers | list[Model] | dict[str, Model]
class Model(TypedDict):
    a: int

### default | Model = {"a": 1}
class Model(TypedDict):
    a: int

### field called title
class Model(TypedDict):
    title: str
''',
)

NAMED_TUPLES = sheet(
    "NamedTuple",
    _IMPORTS,
    r'''
### fields
class Model(NamedTuple):
    a: int
    b: str

### defaults
class Model(NamedTuple):
    a: int
    b: str = "x"
    c: list[int] | None = None

### all defaults
class Model(NamedTuple):
    a: int = 1

### docstring
class Model(NamedTuple):
    """A tuple."""

    a: int

### typing attribute
class Model(typing.NamedTuple):
    a: int

### functional
Model = NamedTuple("Model", [("a", int), ("b", "str")])

### namedtuple
Model = namedtuple("Model", ["a", "b"])

### namedtuple of text
Model = collections.namedtuple("Model", "a b, c")

### namedtuple defaults
Model = namedtuple("Model", "a b", defaults=[1])

### nested
class Inner(NamedTuple):
    a: int

class Model(NamedTuple):
    i: Inner
    j: list[Inner]

### recursive
class Model(NamedTuple):
    v: int
    next: "Model | None" = None

### constraints
class Model(NamedTuple):
    a: Annotated[int, Field(gt=0, description="d")]
    b: Annotated[str, Field(min_length=1)] = "x"

### methods
class Model(NamedTuple):
    a: int

    def total(self) -> int:
        return self.a

### generic | Model[int]
T = TypeVar("T")

class Model(NamedTuple, Generic[T]):
    a: T
    b: list[T]

### default instance | Model = Model(1, "x")
class Model(NamedTuple):
    a: int
    b: str

### optional | Model | None = None
class Model(NamedTuple):
    a: int
''',
)

CASES = [*DATACLASSES, *TYPED_DICTS, *NAMED_TUPLES]
