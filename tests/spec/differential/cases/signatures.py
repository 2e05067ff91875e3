"""Kinds of parameters and defaults of every kind."""

from .case import rows, sheet

_DEFAULTS = """
    import math
    from dataclasses import dataclass
    from datetime import date, timedelta
    from decimal import Decimal
    from enum import Enum
    from typing import Annotated, Any, Final, Literal, Optional
    from pydantic import BaseModel, Field, SecretStr

    LIMIT = 10
    LIMITS: Final = {"a": LIMIT, "b": [1, 2]}
    NAME = "x" + "y"
    NEGATIVE = -LIMIT
    A, B = 1, 2

    class Colour(Enum):
        RED = "red"
        TWO = 2

    class Settings:
        size = 5
        NAME: str = "n"

    class Model(BaseModel):
        a: int = 1
        b: str = Field("x", alias="bee")

    @dataclass
    class Record:
        a: int = 1
"""

DEFAULTS = rows(
    "default",
    _DEFAULTS,
    r"""
    int = 1; int = -1; int = +1; int = 0x1F; int = 1_000; int = ~5; int = True; bool = False
    bool = not True; float = 1.5; float = -0.5; float = 1e-3; float = 1; float = 1.0; complex = 1j
    str = "a"; str = ""; str = "a" "b"; str = "a" + "b"; str = "a" * 3; str = "\u00e9\n\"'"
    str = r"\d"; str = "%s-%d" % ("a", 1); str = f"{LIMIT}-x"; str = f"plain"; bytes = b"abc"
    bytes = b""; None = None; int = None; Any = None; Any = ...; list[int] = []
    list[int] = [1, 2, 3]; list[list[int]] = [[1], []]; list = list(); list[str] = ["a"] + ["b"]
    list[int] = [0] * 3; list[int] = [*[1, 2], 3]; tuple[int, ...] = (); tuple[int, int] = (1, 2)
    tuple[int, tuple[str]] = (1, ("a",)); tuple = tuple(); set[int] = {1}; set[int] = {3, 2, 1}
    set[str] = set(); frozenset[str] = frozenset(("a",)); dict[str, int] = {}
    dict[str, int] = {"a": 1}; dict = dict(); dict[str, int] = dict(a=1)
    dict[str, Any] = {"a": [1, {"b": None}], "c": (1, 2)}; dict[int, str] = {1: "a"}
    dict[str, int] = {**{"a": 1}, "b": 2}; Colour = Colour.RED; Colour | None = Colour.TWO
    list[Colour] = [Colour.RED, Colour.TWO]; dict[str, Colour] = {"a": Colour.RED}
    str = Colour.RED.value; str = Colour.RED.name; Literal["a", "b"] = "b"; int = LIMIT
    int = LIMIT * 2 + 1; int = 60 * 60 * 24; int = 2 ** 10; int = 7 // 2; float = 7 / 2
    int = 7 % 4; int = 1 << 4; int = NEGATIVE; str = NAME; dict = LIMITS; int = LIMITS["a"]
    int = A; int = B; int = Settings.size; str = Settings.NAME; int = len("abc"); int = int("3")
    float = float("1.5"); str = str(5); float = math.pi; int = max(1, 2); int = 1 if True else 2
    set[int] = {*()}
    bool = 1 < 2; bool = None or True; Model = Model(); Model = Model(a=2)
    list[Model] = [Model(a=1)]; Record = Record(); Record = Record(2)
    dict[str, Record] = {"r": Record()}; SecretStr = SecretStr("x")
    timedelta = timedelta(minutes=LIMIT); Decimal = Decimal(LIMIT); int = (1); str = ("a" "b")
    """,
)

KINDS = sheet(
    "signature",
    """
from datetime import date
from typing import Annotated, Any, Optional
from pydantic import BaseModel, Field

class Model(BaseModel):
    a: int
""",
    r"""
### positional-only
def tool(a: int, b: str = "x", /) -> int: ...

### positional-only and others
def tool(a: int, /, b: str, *, c: float = 1.5) -> int: ...

### keyword-only
def tool(*, a: int, b: str = "x", c: Model) -> int: ...

### keyword-only after positional
def tool(a: int = 1, *, b: str) -> int: ...

### variadic
def tool(*args: int) -> int: ...

### variadic of models
def tool(a: Model, *args: Model) -> int: ...

### variadic of constrained
def tool(*args: Annotated[int, Field(gt=0)]) -> int: ...

### variadic untyped
def tool(*args) -> int: ...

### variadic then keyword-only
def tool(a: int, *rest: str, b: bool = False) -> int: ...

### keywords
def tool(**kwargs: int) -> int: ...

### keywords of models
def tool(a: int, **kwargs: Model) -> int: ...

### keywords of unions
def tool(**options: int | None) -> int: ...

### keywords of anything
def tool(a: int, **kwargs: Any) -> int: ...

### keywords untyped
def tool(a: int, **kwargs) -> int: ...

### everything
def tool(a: int, /, b: str, *args: float, c: bool, d: date = date(2024, 1, 2), **kwargs: Model): ...

### unannotated
def tool(a, b=1, *, c=None, d="x") -> int: ...

### nothing at all
def tool() -> None: ...

### defaults in the middle
def tool(a: int, b: int = 1, c: Optional[str] = None, *, d: int, e: int = 2) -> int: ...

### one model twice
def tool(a: Model, b: Model, c: list[Model] = []) -> Model: ...

### aliased parameters
def tool(a: int = Field(alias="x"), b: Annotated[str, Field(alias="y")] = "z") -> int: ...

### names like keywords of a schema
def tool(title: str, type: int, properties: dict, required: bool = True, items: str = ""): ...

### default on a reference
def tool(a: Model = Model(a=1), b: Model | None = None, c: Model = None) -> int: ...

### variadic quoted
from __future__ import annotations

def tool(*args: list[Later], **kwargs: Later) -> Later: ...

class Later: ...

Later = dict[str, int]
""",
)

CASES = [*DEFAULTS, *KINDS]
