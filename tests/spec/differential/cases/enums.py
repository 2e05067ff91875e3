"""Enumerations, in every way that Python lets one write them down."""

from .case import sheet

_IMPORTS = """
import enum
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum, auto, unique
"""

CASES = sheet(
    "enum",
    _IMPORTS,
    r'''
### plain strings
class Kind(Enum):
    A = "a"
    B = "b"

### plain integers
class Kind(Enum):
    A = 1
    B = -2

### floats
class Kind(Enum):
    A = 1.5
    B = 2.0

### mixed values
class Kind(Enum):
    A = "a"
    B = 1
    C = None

### booleans
class Kind(Enum):
    A = True
    B = False

### str mixin
class Kind(str, Enum):
    A = "a"
    B = "b"

### str mixin with other values
class Kind(str, Enum):
    A = 1
    B = "b"

### int mixin
class Kind(int, Enum):
    A = 1
    B = 2

### int mixin of text
class Kind(int, Enum):
    A = "1"
    B = "2"

### float mixin
class Kind(float, Enum):
    A = 1.5
    B = 2.5

### StrEnum
class Kind(StrEnum):
    A = "a"
    B = "b"

### IntEnum
class Kind(IntEnum):
    A = 1
    B = 2

### module attribute base
class Kind(enum.Enum):
    A = "a"

### enum.StrEnum with enum.auto
class Kind(enum.StrEnum):
    ONE = enum.auto()

### auto in Enum
class Kind(Enum):
    A = auto()
    B = auto()

### auto after a number
class Kind(Enum):
    A = 5
    B = auto()
    C = auto()

### auto after a smaller number
class Kind(Enum):
    A = 5
    B = 2
    C = auto()

### auto in StrEnum
class Kind(StrEnum):
    FIRST = auto()
    SecondOne = auto()

### auto in IntEnum
class Kind(IntEnum):
    A = auto()
    B = auto()

### auto in int mixin
class Kind(int, Enum):
    A = auto()
    B = auto()

### auto in str mixin
class Kind(str, Enum):
    A = auto()
    B = auto()

### auto after an alias
class Kind(Enum):
    A = 1
    B = 1
    C = auto()

### auto with _generate_next_value_
class Kind(Enum):
    @staticmethod
    def _generate_next_value_(name, start, count, last_values):
        return name.lower()

    FIRST = auto()
    SECOND = "2"

### Flag
class Kind(Flag):
    A = auto()
    B = auto()
    C = auto()

### IntFlag
class Kind(IntFlag):
    A = 1
    B = 2
    AB = 3

### alias of a member
class Kind(Enum):
    A = 1
    B = 2
    ALSO_A = 1

### member by name
class Kind(Enum):
    A = 1
    B = A + 1
    C = A

### single member
class Kind(Enum):
    ONLY = "only"

### single integer member
class Kind(IntEnum):
    ONLY = 7

### docstring
class Kind(Enum):
    """What kind.

    Long.
    """

    A = 1

### docstring of StrEnum
class Kind(StrEnum):
    """What kind."""

    A = "a"

### tuple values
class Kind(Enum):
    A = (1, "a")
    B = (2, "b")

### tuple assignment
class Kind(Enum):
    A, B = 1, 2

### list values
class Kind(Enum):
    A = [1]
    B = [2]

### unique
@unique
class Kind(Enum):
    A = 1
    B = 2

### private and dunder names
class Kind(Enum):
    _x = 1
    A = 2
    __y = 3

### ignored names
class Kind(Enum):
    _ignore_ = ["tmp"]
    tmp = 1
    A = 2

### annotated members
class Kind(Enum):
    label: str
    A = 1

### concatenated text
P = "x-"

class Kind(str, Enum):
    A = P + "a"
    B = "b" "c"

### arithmetic
class Kind(IntEnum):
    A = 1 << 3
    B = 2 * 8 + 1
    C = -(4)

### methods and properties
class Kind(str, Enum):
    A = "a"
    B = "b"

    @property
    def label(self) -> str:
        return self.value.upper()

    @classmethod
    def parse(cls, text: str) -> "Kind":
        return cls(text)

    def __str__(self) -> str:
        return self.value

### constructor that sets the value
class Kind(Enum):
    A = ("a", 1)
    B = ("b", 2)

    def __init__(self, code, number):
        self.code = code

### member-less base class
class Base(str, Enum):
    def shout(self) -> str:
        return self.value.upper()

class Kind(Base):
    A = "a"
    B = "b"

### mixin class
class Labelled:
    def label(self) -> str:
        return "x"

class Kind(Labelled, Enum):
    A = 1
    B = 2

### constants of the module
FIRST = "first"
SECOND = FIRST + "-2"

class Kind(Enum):
    A = FIRST
    B = SECOND

### functional, names in text
Kind = Enum("Kind", "A B C")

### functional, names in a list
Kind = Enum("Kind", ["A", "B"])

### functional, pairs
Kind = Enum("Kind", [("A", "x"), ("B", "y")])

### functional, mapping
Kind = Enum("Kind", {"A": "x", "B": "y"})

### functional StrEnum
Kind = StrEnum("Kind", ["A", "B"])

### functional with type
Kind = Enum("Kind", {"A": "x"}, type=str)

### functional with start
Kind = IntEnum("Kind", "A B", start=5)

### default member | Kind = Kind.B
class Kind(Enum):
    A = "a"
    B = "b"

### default member by value | Kind = Kind('a')
class Kind(Enum):
    A = "a"

### default member by key | Kind = Kind['A']
class Kind(Enum):
    A = "a"

### default member's value | str = Kind.A.value
class Kind(str, Enum):
    A = "a"

### default IntEnum member | Kind = Kind.A
class Kind(IntEnum):
    A = 1

### default Flag union | Kind = Kind.A | Kind.B
class Kind(IntFlag):
    A = 1
    B = 2

### default alias | Kind = Kind.B
class Kind(Enum):
    A = 1
    B = 1

### default None | Kind | None = None
class Kind(StrEnum):
    A = auto()

### default auto member | Kind = Kind.A
class Kind(StrEnum):
    A = auto()

### list of members | list[Kind] = [Kind.A]
class Kind(Enum):
    A = "a"

### keys | dict[Kind, set[Kind]]
class Kind(StrEnum):
    A = "a"

### set of integer members | set[Kind]
class Kind(IntEnum):
    A = 1
''',
    "Kind",
)
