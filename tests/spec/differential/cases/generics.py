"""Generic models and root models."""

from .case import PYDANTIC, sheet

CASES = sheet(
    "generic",
    PYDANTIC,
    r'''
### generic | tuple[Model[int], Model, Bound, Either] | Model[str]
T = TypeVar("T")
B = TypeVar("B", bound=int)
E = TypeVar("E", int, str)

class Model(BaseModel, Generic[T]):
    v: T
    l: list[T]

class Bound(BaseModel, Generic[B]):
    v: B

class Either(BaseModel, Generic[E]):
    v: E

### generic nested | Model[Model[int]]
T = TypeVar("T")

class Model(BaseModel, Generic[T]):
    v: T

### generic two parameters | Model[int, list[str]]
K = TypeVar("K")
V = TypeVar("V")

class Model(BaseModel, Generic[K, V]):
    k: K
    v: dict[str, V] = {}

### generic subclass | tuple[Model, Again[date]]
T = TypeVar("T")

class Base(BaseModel, Generic[T]):
    v: T

class Model(Base[int]):
    w: str

class Again(Base[T], Generic[T]):
    w: list[T]

### generic renamed parameter | Model[int]
T = TypeVar("T")
S = TypeVar("S")

class Base(BaseModel, Generic[T]):
    v: T

class Model(Base[list[S]], Generic[S]):
    w: S

### generic field of a model
T = TypeVar("T")

class Page(BaseModel, Generic[T]):
    items: list[T]
    next: int | None = None

class Model(BaseModel):
    p: Page[int]
    q: Page["Model"] | None = None

### generic of constrained | Model[Annotated[int, Field(gt=0)]]
T = TypeVar("T")

class Model(BaseModel, Generic[T]):
    v: T = Field(description="d")

### generic recursive | Model[int]
T = TypeVar("T")

class Model(BaseModel, Generic[T]):
    v: T
    n: "Model[T] | None" = None

### RootModel | tuple[Numbers, Text, Annotation, Default, Described, RootModel[list[int]], Alias]
class Numbers(RootModel[list[int]]):
    pass

class Text(RootModel[str]):
    """A text."""

class Annotation(RootModel):
    root: dict[str, int]

class Default(RootModel[list[int]]):
    root: list[int] = [1]

class Described(RootModel[int]):
    root: int = Field(gt=0, description="d")

Alias = RootModel[dict[str, int]]

### RootModel in a model
class R(RootModel[list[str]]):
    pass

class I(BaseModel):
    a: int

class OfModel(RootModel[I]):
    pass

class Model(BaseModel):
    r: R
    s: R | None = None
    m: OfModel

### RootModel recursive
class Model(RootModel[Union[int, list["Model"]]]):
    pass
''',
)
