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
### values | Texts | Integers | Floats | Mixed | Booleans
class Texts(Enum):
    A = "a"
    B = "b"

class Integers(Enum):
    A = 1
    B = -2

class Floats(Enum):
    A = 1.5
    B = 2.0

class Mixed(Enum):
    A = "a"
    B = 1
    C = None

class Booleans(Enum):
    A = True
    B = False

### mixins | tuple[Text, Converted, Whole, Parsed, Real]
class Text(str, Enum):
    A = "a"
    B = "b"

class Converted(str, Enum):
    A = 1
    B = "b"

class Whole(int, Enum):
    A = 1
    B = 2

class Parsed(int, Enum):
    A = "1"
    B = "2"

class Real(float, Enum):
    A = 1.5
    B = 2.5

### module attribute bases | tuple[Kind, Text]
class Kind(enum.Enum):
    A = "a"

class Text(enum.StrEnum):
    ONE = enum.auto()

### auto in Enum | tuple[Plain, AfterNumber, AfterSmaller, AfterAlias]
class Plain(Enum):
    A = auto()
    B = auto()

class AfterNumber(Enum):
    A = 5
    B = auto()
    C = auto()

class AfterSmaller(Enum):
    A = 5
    B = 2
    C = auto()

class AfterAlias(Enum):
    A = 1
    B = 1
    C = auto()

### auto in other enumerations | tuple[Texts, Integers, IntMixin, StrMixin]
class Texts(StrEnum):
    FIRST = auto()
    SecondOne = auto()

class Integers(IntEnum):
    A = auto()
    B = auto()

class IntMixin(int, Enum):
    A = auto()
    B = auto()

class StrMixin(str, Enum):
    A = auto()
    B = auto()

### auto with _generate_next_value_
class Kind(Enum):
    @staticmethod
    def _generate_next_value_(name, start, count, last_values):
        return name.lower()

    FIRST = auto()
    SECOND = "2"

### flags | tuple[Automatic, Kind]
class Automatic(Flag):
    A = auto()
    B = auto()
    C = auto()

class Kind(IntFlag):
    A = 1
    B = 2
    AB = 3

### members by name, aliases
class Kind(Enum):
    A = 1
    B = A + 1
    C = A
    ALSO_A = 1

### single members | Text | Integer
class Text(Enum):
    ONLY = "only"

class Integer(IntEnum):
    ONLY = 7

### docstrings | Kind | Texts
class Kind(Enum):
    """What kind.

    Long.
    """

    A = 1
    B = 2

class Texts(StrEnum):
    """What texts."""

    A = "a"
    B = "b"

### tuples and lists | tuple[Tuples, Lists, Unpacked]
class Tuples(Enum):
    A = (1, "a")
    B = (2, "b")

class Lists(Enum):
    A = [1]
    B = [2]

@unique
class Unpacked(Enum):
    A, B = 1, 2

### what is no member
class Kind(Enum):
    _ignore_ = ["tmp"]
    label: str
    tmp = 1
    _x = 1
    A = 2
    __y = 3
    B = 4

### computed values | tuple[Text, Whole]
FIRST = "first"

class Text(str, Enum):
    A = FIRST
    B = FIRST + "-2"
    C = "b" "c"

class Whole(IntEnum):
    A = 1 << 3
    B = 2 * 8 + 1
    C = -(4)

### methods and properties | tuple[Kind, Constructed]
class Kind(str, Enum):
    A = "a"
    B = "b"

    @property
    def label(self) -> str: return self.value.upper()

    @classmethod
    def parse(cls, text: str) -> "Kind": return cls(text)

    def __str__(self) -> str: return self.value

class Constructed(Enum):
    A = ("a", 1)
    B = ("b", 2)

    def __init__(self, code, number): self.code = code

### member-less base and mixin class | tuple[Derived, Mixed]
class Base(str, Enum):
    def shout(self) -> str: return self.value.upper()

class Derived(Base):
    A = "a"
    B = "b"

class Labelled:
    def label(self) -> str: return "x"

class Mixed(Labelled, Enum):
    A = 1
    B = 2

### functional | tuple[InText, InList, Pairs, Mapping, Texts, Typed, Started]
InText = Enum("InText", "A B C")
InList = Enum("InList", ["A", "B"])
Pairs = Enum("Pairs", [("A", "x"), ("B", "y")])
Mapping = Enum("Mapping", {"A": "x", "B": "y"})
Texts = StrEnum("Texts", ["A", "B"])
Typed = Enum("Typed", {"A": "x"}, type=str)
Started = IntEnum("Started", "A B", start=5)

### defaults
class Kind(Enum):
    A = "a"
    B = "b"
    ALIAS = "b"

class Text(str, Enum):
    A = "a"

class Whole(IntEnum):
    A = 1

class Bits(IntFlag):
    A = 1
    B = 2

class Automatic(StrEnum):
    A = auto()

def tool(
    member: Kind = Kind.B,
    by_value: Kind = Kind('a'),
    by_key: Kind = Kind['A'],
    value: str = Text.A.value,
    whole: Whole = Whole.A,
    flags: Bits = Bits.A | Bits.B,
    alias: Kind = Kind.ALIAS,
    none: Automatic | None = None,
    automatic: Automatic = Automatic.A,
    listed: list[Kind] = [Kind.A],
) -> Kind: ...

### keys | dict[Kind, set[Kind]]
class Kind(StrEnum):
    A = "a"

### set of integer members | set[Kind]
class Kind(IntEnum):
    A = 1
''',
    "Kind",
)
