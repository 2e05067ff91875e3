"""Generic models and root models."""

from .case import PYDANTIC, sheet

CASES = sheet(
    "generic",
    PYDANTIC,
    r'''
### generic | Model[int]
T = TypeVar("T")

class Model(BaseModel, Generic[T]):
    v: T
    l: list[T]

### generic unparametrised
T = TypeVar("T")

class Model(BaseModel, Generic[T]):
    v: T

### generic bound unparametrised
T = TypeVar("T", bound=int)

class Model(BaseModel, Generic[T]):
    v: T

### generic constrained unparametrised
T = TypeVar("T", int, str)

class Model(BaseModel, Generic[T]):
    v: T

### generic twice | Model[int] | Model[str]
T = TypeVar("T")

class Model(BaseModel, Generic[T]):
    v: T

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

### generic subclass
T = TypeVar("T")

class Base(BaseModel, Generic[T]):
    v: T

class Model(Base[int]):
    w: str

### generic subclass stays generic | Model[date]
T = TypeVar("T")

class Base(BaseModel, Generic[T]):
    v: T

class Model(Base[T], Generic[T]):
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

### RootModel
class Model(RootModel[list[int]]):
    pass

### RootModel of text
class Model(RootModel[str]):
    """A text."""

### RootModel annotation
class Model(RootModel):
    root: dict[str, int]

### RootModel default
class Model(RootModel[list[int]]):
    root: list[int] = [1]

### RootModel Field
class Model(RootModel[int]):
    root: int = Field(gt=0, description="d")

### RootModel in a model
class R(RootModel[list[str]]):
    pass

class Model(BaseModel):
    r: R
    s: R | None = None

### RootModel inline | RootModel[list[int]]

### RootModel alias
Model = RootModel[dict[str, int]]

### RootModel recursive
class Model(RootModel[Union[int, list["Model"]]]):
    pass

### RootModel of a model
class I(BaseModel):
    a: int

class Model(RootModel[I]):
    pass
''',
)
