"""Where names come from: import styles, quoting, order of definition, conditions."""

from .case import sheet

CASES = sheet(
    "names",
    "from pydantic import BaseModel, Field",
    r'''
### typing by module
import typing
import typing as t

def whole(x: typing.Optional[typing.List[int]], y: typing.Dict[str, typing.Any]) -> typing.Tuple:
    ...

def short(x: t.Optional[t.List[int]], y: t.Annotated[int, "text"] = 1) -> t.Union[int, str]: ...

### names renamed
from typing import Optional as Opt, List as L
from datetime import date as Day
from pydantic import BaseModel as Base, Field as F

class Model(Base):
    a: int = F(gt=0)

def tool(x: Opt[L[int]], day: Day, m: Model) -> Opt[Model]: ...

### modules renamed
import collections.abc as cabc
import datetime as dt
import enum as e
import pydantic as p

class Colour(e.StrEnum):
    RED = e.auto()

class Model(p.BaseModel):
    when: dt.datetime
    colour: Colour = Colour.RED
    n: p.PositiveInt = p.Field(3, description="d")

def tool(x: cabc.Sequence[dt.date], m: Model) -> cabc.Mapping[str, Model]: ...

### star imports
from typing import *
from datetime import *
from pydantic import *

class Model(BaseModel):
    a: Optional[List[int]] = None
    d: date = Field(description="d")

def tool(x: Dict[str, Any], m: Model) -> Optional[Model]: ...

### typing_extensions
import typing_extensions as te
from typing_extensions import Annotated, Literal, Optional

def tool(x: Annotated[Optional[int], "text"], y: te.Literal["a"]) -> Literal["b"]: ...

### future annotations everywhere
from __future__ import annotations
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple, Optional
from pydantic import BaseModel, Field
from typing_extensions import NotRequired, TypedDict

def tool(a: A, b: B, c: C, d: Annotated[D, Field(description="d")], *args: A, **kwargs: B) -> A: ...

@dataclass
class A:
    b: B
    c: Optional[C] = None
    d: list[D] = field(default_factory=list)
    k: ClassVar[int] = 3

class B(TypedDict):
    c: C
    d: NotRequired[D]

class C(NamedTuple):
    d: D
    e: int | None = None

class D(BaseModel):
    a: A | None = None
    self: D | None = None
    n: Annotated[int, Field(gt=0)] = 3

### future annotations, already quoted
from __future__ import annotations
from typing import Optional

def tool(x: "int", y: Optional["str"] = None, z: "list['float']" = []) -> "Optional['int']": ...

### partly quoted
from typing import Annotated, Dict, List, Optional, Union
from pydantic import BaseModel, Field

def tool(
    a: list["Model"],
    b: Optional["Model"],
    c: Dict[str, "List[Model]"],
    d: Union["Model", "int", None],
    e: Annotated["Model", Field(description="d")],
    f: "Annotated[Model, Field(description='d')]",
    g: tuple["Model", ...],
    h: "Model",
    i: "list[Model]" = [],
) -> List["Model"]: ...

class Model(BaseModel):
    a: int

### quoted with blanks
def tool(x: "int ", y: """list[
    int
]""", z: "( int|None )") -> "int": ...

### TYPE_CHECKING
from __future__ import annotations
import typing as t
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date
    from decimal import Decimal

if t.TYPE_CHECKING:
    from uuid import UUID

def tool(x: Sequence[date], y: "t.Optional[UUID]" = None, z: Decimal | None = None) -> date: ...

### import below its use
def tool(x: "Decimal"): ...

from decimal import Decimal

### try import
try:
    from typing import Annotated
except ImportError:
    from typing_extensions import Annotated
from pydantic import Field

def tool(x: Annotated[int, Field(gt=0)]) -> Annotated[int, Field(gt=0)]: ...

### try import that falls back
try:
    from no_such_module_anywhere import Widget
except ImportError:
    Widget = int

def other(x: int) -> int: ...

### version condition
import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from backports.strenum import StrEnum

class Kind(StrEnum):
    A = "a"

def tool(x: Kind) -> Kind: ...

### version condition, other branch
import sys

if sys.version_info < (3, 9):
    from typing import List
    Names = List[str]
else:
    Names = list[str]

def tool(x: Names) -> Names: ...

### conditional class
import sys
from pydantic import BaseModel

if sys.version_info >= (3, 8):
    class Model(BaseModel):
        a: int
else:
    class Model(BaseModel):
        b: int

def tool(x: Model) -> Model: ...

### last definition wins
class Model(BaseModel):
    a: int

class Model(BaseModel):
    b: int

def tool(x: Model) -> Model: ...

### function redefined
def tool(x: int) -> int: ...

def tool(x: str, y: int = 1) -> str: ...

### a class that hides a builtin
class list(BaseModel):
    a: int

def tool(x: list) -> list: ...

### a class named like a typing name
from pydantic import BaseModel

class Optional(BaseModel):
    a: int

def tool(x: Optional) -> Optional: ...

### nested classes
class Outer:
    class Middle:
        class Model(BaseModel):
            a: int

def tool(x: Outer.Middle.Model, y: "Outer.Middle.Model") -> list[Outer.Middle.Model]: ...

### alias inside a class
from typing import ClassVar
from pydantic import BaseModel

class Outer(BaseModel):
    Names: ClassVar = dict[str, int]
    a: Names
    b: "list[Names]"

def tool(x: Outer, y: Outer.Names) -> Outer: ...

### parameter named like its type
import datetime
from datetime import date

def tool(date: date, str: str, list: list[int] = []) -> date: ...

### field named like its type
from __future__ import annotations
from datetime import date
from typing import Optional
from pydantic import BaseModel

class Model(BaseModel):
    when: date
    what: Optional[Other] = None

class Other(BaseModel):
    m: Optional[Model] = None

def tool(x: Model) -> Other: ...

### returns
async def asynchronous(x: int) -> str: ...

def without(x: int): ...

def none(x: int) -> None: ...

def quoted(x: int) -> "None": ...

def no_parameters() -> dict[str, int]: ...

### several tools
class Model(BaseModel):
    a: int

def first(x: Model) -> Model: ...

def second(y: list[Model] = []) -> int: ...

async def third() -> "Model | None": ...

def _private(x: Model): ...
''',
)
