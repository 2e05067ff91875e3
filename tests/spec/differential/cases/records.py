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

### forms of the decorator | tuple[Empty, Called, Attribute, Model, KeywordOnly]
@dataclass
class Empty:
    pass

@dataclass()
class Called:
    a: int

@dataclasses.dataclass(frozen=True)
class Attribute:
    a: int = dataclasses.field(default=1)

@dataclass(slots=True, order=True, eq=True)
class Model:
    """A record.

    At length.
    """

    a: int
    b: int = 2

    def __post_init__(self): ...

    @property
    def twice(self) -> int:
        return self.a * 2

@dataclass(kw_only=True)
class KeywordOnly:
    a: int = 1
    b: str

### keyword-only fields | tuple[Marked, Model]
@dataclass
class Marked:
    a: int
    _: KW_ONLY
    b: str = "x"
    c: int

@dataclass
class Model:
    a: int = field(default=1, kw_only=True)
    b: str = "x"

### init=False, InitVar, ClassVar
@dataclass
class Model:
    K: ClassVar[int] = 3
    a: int
    seed: InitVar[int]
    b: int = field(init=False, default=3)
    c: list[int] = field(init=False, default_factory=list)
    salt: InitVar[str] = "x"
    plain = 5

### field details
@dataclass
class Model:
    a: int = field(default=1, repr=False, compare=False, metadata={"description": "unused"})
    b: Annotated[int, Field(gt=0, description="d")] = 2
    c: int = Field(3, description="d")
    d: int = Field(4, alias="sea")
    e: int = Field(gt=0)
    f: int = Field(alias="eff")

### inheritance
@dataclass
class Base:
    a: int
    b: int = 1

@dataclass
class Model(Base):
    c: str = "x"
    a: str = "y"

### undecorated subclass and base | tuple[Heir, Model]
@dataclass
class Base:
    a: int

class Heir(Base):
    b: int

class Plain:
    a: int

@dataclass
class Model(Plain):
    b: int

### nested, recursive
@dataclass
class Inner:
    a: int = 1

@dataclass
class Model:
    i: Inner
    l: list[Inner] = field(default_factory=list)
    o: Inner | None = None
    next: Optional["Model"] = None

### instance as default | Model = Model(1)
@dataclass(frozen=True)
class Model:
    a: int
    b: str = "x"

### of a model, in a model
class Inner(BaseModel):
    a: int = Field(gt=0)

@dataclass
class Record:
    i: Inner
    a: int = 1

class Model(BaseModel):
    i: Record
    j: Record = Record(i=Inner(a=2), a=2)

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

### pydantic dataclass by attribute, with a computed field
@pydantic.dataclasses.dataclass
class Model:
    """A record."""

    a: int

    @computed_field
    @property
    def b(self) -> int:
        return 1

### pydantic dataclass with config
@pydantic_dataclass(config=ConfigDict(extra="forbid", alias_generator=to_camel))
class Model:
    first_name: int

### pydantic dataclass inheritance, aliases, init=False, keyword only | tuple[Model, Keyword]
@pydantic_dataclass
class Base:
    a: int = Field(alias="x")

@pydantic_dataclass
class Model(Base):
    b: int = Field(1, validation_alias="v", serialization_alias="s")
    c: int = Field(3, init=False)

@pydantic_dataclass(kw_only=True, frozen=True)
class Keyword:
    a: int = 1
    b: int
''',
)

TYPED_DICTS = sheet(
    "TypedDict",
    _IMPORTS,
    r'''
### fields
class Model(TypedDict):
    """A dictionary."""

    a: int
    b: str | None
    title: str

### requirements | tuple[Partial, Model]
class Partial(TypedDict, total=False):
    a: Required[int]
    b: str

class Model(TypedDict):
    a: int
    b: NotRequired[str]
    c: NotRequired[Annotated[int, Field(gt=0)]]
    d: Annotated[NotRequired[int], Field(description="d")]
    e: ReadOnly[int]
    f: ReadOnly[NotRequired[int]]

### inheritance | tuple[Model, Total]
class Base(TypedDict):
    a: int

class Model(Base, total=False):
    b: int

class Total(Model):
    c: int

### two bases
class A(TypedDict):
    a: int

class B(TypedDict, total=False):
    b: int

class Model(A, B):
    c: int

### functional, empty | tuple[Model, Partial, Empty]
Model = TypedDict("Model", {"a": int, "b": "list[str]", "in": str, "x-y": NotRequired[int]})
Partial = TypedDict("Partial", {"a": int, "b": Required[str]}, total=False)

class Empty(TypedDict):
    pass

### nested, recursive, constraints
class Inner(TypedDict):
    a: int

class Model(TypedDict):
    i: Inner
    l: list[Inner]
    next: NotRequired["Model"]
    a: Annotated[int, Field(gt=0, description="d", alias="b")]
    c: Annotated[str, "text"]

### configured, closed | tuple[Forbid, Allow, Closed]
class Forbid(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid")
    a: int

@with_config(ConfigDict(extra="allow"))
class Allow(TypedDict):
    a: int

class Closed(TypedDict, closed=True):
    a: int

### generic | Model[int]
T = TypeVar("T")

class Model(TypedDict, Generic[T]):
    a: T

### in containers, as a default | list[Model] | dict[str, Model] | Model = {"a": 1}
class Model(TypedDict):
    a: int
''',
)

NAMED_TUPLES = sheet(
    "NamedTuple",
    _IMPORTS,
    r'''
### fields and defaults | tuple[Plain, Model, AllDefaults, Attribute]
class Plain(NamedTuple):
    a: int
    b: str

class Model(NamedTuple):
    """A tuple."""

    a: int
    b: str = "x"
    c: list[int] | None = None

    def total(self) -> int:
        return self.a

class AllDefaults(NamedTuple):
    a: int = 1

class Attribute(typing.NamedTuple):
    a: int

### functional | tuple[Typed, Listed, Text, Defaults]
Typed = NamedTuple("Typed", [("a", int), ("b", "str")])
Listed = namedtuple("Listed", ["a", "b"])
Text = collections.namedtuple("Text", "a b, c")
Defaults = namedtuple("Defaults", "a b", defaults=[1])

### nested, recursive, constraints
class Inner(NamedTuple):
    a: int

class Model(NamedTuple):
    i: Inner
    j: list[Inner]
    a: Annotated[int, Field(gt=0, description="d")]
    b: Annotated[str, Field(min_length=1)] = "x"
    next: "Model | None" = None

### generic | Model[int]
T = TypeVar("T")

class Model(NamedTuple, Generic[T]):
    a: T
    b: list[T]

### defaults
class Model(NamedTuple):
    a: int
    b: str

def tool(instance: Model = Model(1, "x"), optional: Model | None = None) -> Model: ...
''',
)

CASES = [*DATACLASSES, *TYPED_DICTS, *NAMED_TUPLES]
