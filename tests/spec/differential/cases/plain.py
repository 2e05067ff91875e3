"""Builtins, collections, unions and literals: types without any definition of their own."""

from .case import rows

SCALARS = rows(
    "scalar",
    """
    import typing
    from typing import Any, AnyStr, Text, Type
    """,
    """
    str; int; float; bool; None; Any; object; typing.Any; bytes; Text; complex; AnyStr; type[int]
    Type[int]; type(None)
    """,
)

LISTS = rows(
    "list",
    """
    import collections
    import collections.abc
    import typing
    from collections import deque
    from typing import Any, Deque, List, Sequence, MutableSequence
    """,
    """
    list; list[int]; list[Any]; list[None]; list[list[list[str]]]; List; List[int]
    typing.List[typing.List[int]]; Sequence; Sequence[int]; collections.abc.Sequence
    collections.abc.Sequence[str]; collections.abc.MutableSequence
    collections.abc.MutableSequence[int]; MutableSequence[int]; deque; deque[int]; Deque
    Deque[str]; collections.deque[float]; list[int] = []; list[int] = [1, 2]; list[int] = None
    list[int] | None = None; Sequence[str] = (); Sequence[str] = ("a", "b")
    """,
)

SETS = rows(
    "set",
    """
    import collections.abc
    import typing
    from typing import AbstractSet, Any, FrozenSet, MutableSet, Set
    """,
    """
    set; set[int]; Set; Set[str]; frozenset; frozenset[int]; FrozenSet; FrozenSet[int]
    AbstractSet; AbstractSet[int]; MutableSet[int]; collections.abc.Set; collections.abc.Set[int]
    collections.abc.MutableSet; collections.abc.MutableSet[str]; set[int] = {1}; set[str] = set()
    set[int] = {3, 1, 2}; frozenset[int] = frozenset(); frozenset[int] = frozenset({1})
    set[tuple[int, str]]
    """,
)

TUPLES = rows(
    "tuple",
    """
    import typing
    from typing import Annotated, Any, Tuple
    from pydantic import Field
    """,
    """
    tuple; Tuple; tuple[()]; Tuple[()]; tuple[int]; tuple[int, ...]; tuple[Any, ...]
    Tuple[int, ...]; tuple[int, str, float]; Tuple[int, str]
    typing.Tuple[int, typing.Tuple[str, ...]]; tuple[int, str] = (1, "a"); tuple[int, ...] = ()
    tuple[int, None]; tuple[tuple[int, int], ...]; tuple[int | None, str | int]
    """,
)

MAPPINGS = rows(
    "mapping",
    """
    import collections
    import collections.abc
    import typing
    from collections import Counter, OrderedDict, defaultdict
    from datetime import date
    from enum import Enum
    from typing import Annotated, Any, DefaultDict, Dict, Literal, Mapping, MutableMapping
    from uuid import UUID
    from pydantic import Field, StringConstraints

    class Colour(str, Enum):
        RED = "red"
        BLUE = "blue"
    """,
    """
    dict; dict[str, int]; dict[str, Any]; dict[Any, Any]; dict[str, object]; dict[int, str]
    dict[float, int]; dict[bool, int]; dict[str, dict[str, list[int]]]; dict[str, None]; Dict
    Dict[str, int]; Mapping; Mapping[str, int]; MutableMapping; MutableMapping[str, int]
    collections.abc.Mapping; collections.abc.Mapping[str, Any]
    collections.abc.MutableMapping[str, int]; OrderedDict; OrderedDict[str, int]
    typing.OrderedDict[str, int]; defaultdict[str, int]; defaultdict[str, list[int]]
    DefaultDict[str, int]; Counter; Counter[str]; typing.Counter[str]; collections.Counter[str]
    dict[Literal["a", "b"], int]; dict[Colour, int]; dict[UUID, int]; dict[date, int]
    dict[Annotated[str, Field(pattern="^a")], int]; dict[Annotated[str, Field(pattern="^a")], Any]
    dict[Annotated[str, StringConstraints(min_length=2)], int]
    dict[Annotated[str, Field(min_length=1, max_length=3)], int]
    dict[str, Annotated[int, Field(gt=0)]]; dict[tuple[int, str], int]; dict[str | int, int]
    dict[str, int] = {}; dict[str, int] = {"a": 1, "title": 2}; dict[int, str] = {1: "a"}
    dict[str, int] | None = None; Counter[str] = {"a": 1}
    """,
)

ITERABLES = rows(
    "iterable",
    """
    import collections.abc
    import typing
    from typing import Collection, Container, Generator, Iterable, Iterator, Reversible
    """,
    """
    Iterable; Iterable[int]; Iterable[str] = ("a",); typing.Iterable[typing.Any]
    collections.abc.Iterable; collections.abc.Iterable[str]; collections.abc.Iterable[list[int]]
    Generator[int, None, None]; collections.abc.Generator[int, None, None]; typing.Pattern
    typing.Pattern[str]
    """,
)

UNIONS = rows(
    "union",
    """
    import typing
    from datetime import date, datetime
    from typing import Annotated, Any, List, Literal, Optional, Union
    from pydantic import BaseModel, Field

    class Model(BaseModel):
        a: int
    """,
    """
    int | str; int | None; None | int; Optional[int]; Optional[None]; Optional[Any]; Union[int]
    Union[int, None]; Union[int, str, None]; Union[None, str]; Union[int, Union[str, None]]
    Union[int, int]; Union[int, str, int]; Optional[Optional[int]]; Optional[Union[int, str]]
    int | (str | None); int | bool | float; bool | int; str | bytes; datetime | date
    date | datetime | str; list[int] | int; list[int | None] | None; List[Optional[int]]
    Union[list[int], list[str], None]; list[int] | List[int]; dict[str, int] | list[int] | None
    Union[Model, int]; Model | None; Model | None = None; Optional[Model] = None
    Union[Model, dict[str, int]]; int | Any; Any | None; object | None; Literal["a"] | None
    Literal["a"] | Literal["b"]; Literal["a", None] | None; Optional[Literal["a", None]]
    Union[Literal[1], int]; typing.Union["int", "str"]; typing.Optional["Model"]; int | None = 3
    int | str = "a"; Optional[int] = None; Union[Annotated[int, Field(gt=1)], str]
    Annotated[int, Field(gt=1)] | None
    Union[Annotated[int, Field(gt=1)], Annotated[int, Field(gt=2)], None]
    Union[str, Annotated[str, Field(min_length=1)]]
    """,
)

LITERALS = rows(
    "literal",
    """
    import typing
    from enum import Enum, IntEnum
    from typing import Literal, Union

    class Colour(Enum):
        RED = "red"
        BLUE = 2

    class Level(IntEnum):
        LOW = 1
        HIGH = 2

    Modes = Literal["r", "w"]
    Binary = Literal["rb", "wb"]
    """,
    """
    Literal["a"]; Literal["a", "b"]; Literal[1]; Literal[1, 2]; Literal[-1, 0, +1]; Literal[True]
    Literal[True, False]; Literal[None]; Literal["a", None]; Literal["a", 1]
    Literal["a", 1, True]; Literal["a", 1, True, None]; Literal[1, True]; Literal[True, 1]
    Literal[0, False]; Literal["1", 1]; Literal[b"a"]; Literal[b"a", "b"]; Literal["a", "a", "b"]
    Literal[1, 1]; Literal[Literal["a"], Literal["b", "c"]]; Literal[Modes, Binary]
    Literal[Modes, "x"]; Literal[Colour.RED]; Literal[Colour.RED, Colour.BLUE]
    Literal[Colour.RED, "a"]; Literal[Level.LOW]; Literal[Level.LOW, 2]
    Literal[Level.LOW, Level.HIGH]; Literal[""]; Literal["it's", 'say "hi"', "tab\\there"]
    Literal["a" "b"]; Literal[0x10, 1_000]; typing.Literal["a"]; list[Literal["a", "b"]]
    set[Literal["a", 1]]; Union[Modes, Binary]; Modes | None = "r"; Literal["a", "b"] = "a"
    Literal[Colour.RED] = Colour.RED; Literal["title", "$ref"]
    """,
)

CASES = [*SCALARS, *LISTS, *SETS, *TUPLES, *MAPPINGS, *ITERABLES, *UNIONS, *LITERALS]
