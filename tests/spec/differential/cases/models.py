"""Models that refer to one another: inheritance, nesting, recursion, tagged unions."""

from .case import PYDANTIC, sheet

FAMILIES = sheet(
    "model",
    PYDANTIC,
    r'''
### docstring, not inherited | tuple[Model, Heir]
class Model(BaseModel):
    """A model.

    At length.
    """

    a: int

class Heir(Model):
    b: int

### inheritance and overriding | tuple[Model, Overriding, Defaulting]
class Base(BaseModel):
    a: int = Field(gt=0)
    b: int = 1

class Model(Base):
    c: str

class Overriding(Base):
    a: str = "x"
    b: str

class Defaulting(Base):
    a: int = 5

### multiple inheritance
class A(BaseModel):
    a: int
    s: int

class B(BaseModel):
    b: int
    s: str

class Model(A, B):
    c: int

### diamond
class R(BaseModel):
    r: int

class A(R):
    r: str

class B(R):
    b: int

class Model(B, A):
    pass

### plain mixin, module attribute base
class Mixin:
    def m(self): ...

class Model(Mixin, pydantic.BaseModel):
    a: int = pydantic.Field(gt=0)

### nested
class Inner(BaseModel):
    """Inner."""
    a: int

class Model(BaseModel):
    i: Inner
    l: list[Inner]
    o: Inner | None = None
    described: Inner = Field(description="The i.")
    d: dict[str, Inner]
    t: tuple[Inner, Inner]
    u: Inner | int

### nested class | tuple[Model, Model.Part]
class Model(BaseModel):
    class Part(BaseModel):
        a: int

    p: Part
    q: "Model.Part"

### two classes of one name
class A(BaseModel):
    class P(BaseModel):
        a: int
    p: P

class B(BaseModel):
    class P(BaseModel):
        b: int
    p: P

class Model(BaseModel):
    a: A
    b: B

### recursive
class Inner(BaseModel):
    a: int

class Model(BaseModel):
    v: int
    next: Optional["Model"] = None
    children: list["Model"] = []
    i: Inner
    m: dict[str, "Model"]

### mutually recursive, in a list | list[Model] | Model
class Model(BaseModel):
    children: "List[Model]"
    b: "B | None" = None

class B(BaseModel):
    a: "Model | None" = None
    c: list["B"]

### model default
class Inner(BaseModel):
    a: int = 1
    b: str = Field("x", alias="bee")

class Model(BaseModel):
    i: Inner = Inner()
    j: Inner = Inner(a=3)

### default of nested models | Model = Model(i=I(a=1))
class I(BaseModel):
    a: int

class Model(BaseModel):
    i: I
    l: list[I] = []

### fields in two modes
class Inner(BaseModel):
    a: int = 1

    @computed_field
    @property
    def c(self) -> int: return 1

class Model(BaseModel):
    i: Inner

### inherits from a nested class
class Outer:
    class Base(BaseModel):
        a: int

class Model(Outer.Base):
    b: int
''',
)

UNIONS = sheet(
    "tagged union",
    PYDANTIC,
    r"""
### discriminated by Field
class A(BaseModel):
    k: Literal["a"]

class B(BaseModel):
    k: Literal["b", "c"]

class Model(BaseModel):
    x: Union[A, B] = Field(discriminator="k")

### discriminated parameter | AB
class A(BaseModel):
    k: Literal["a"] = "a"

class B(BaseModel):
    k: Literal["b"] = "b"

AB = Annotated[A | B, Field(discriminator="k")]

### discriminated in place
class A(BaseModel):
    k: Literal["a"]

class B(BaseModel):
    k: Literal["b"]

def tool(
    listed: list[Annotated[A | B, Field(discriminator='k')]],
    by_discriminator: Annotated[A | B, Discriminator('k')],
    described: Annotated[A | B, Field(discriminator='k', description='d')],
    optional: Annotated[A | B | None, Field(discriminator='k')] = None,
) -> Annotated[A | B, Discriminator('k')]: ...

### discriminated by enum, integer and alias | tuple[ByEnum, ByInteger, ByAlias]
class K(Enum):
    A = "a"
    B = "b"

class A(BaseModel):
    k: Literal[K.A]
    n: Literal[1]
    l: Literal["a"] = Field(alias="kind")

class B(BaseModel):
    k: Literal[K.B]
    n: Literal[2]
    l: Literal["b"] = Field(alias="kind")

ByEnum = Annotated[A | B, Field(discriminator="k")]
ByInteger = Annotated[A | B, Field(discriminator="n")]
ByAlias = Annotated[A | B, Field(discriminator="l")]

### discriminated twice | Annotated[As | B, Field(discriminator='k')]
class A(BaseModel):
    k: Literal["a"]
    n: Literal[1]

class A2(BaseModel):
    k: Literal["a"]
    n: Literal[2]

class B(BaseModel):
    k: Literal["b"]

As = Annotated[A | A2, Field(discriminator="n")]

### discriminated recursive | AB
class A(BaseModel):
    k: Literal["a"]
    sub: list["AB"]

class B(BaseModel):
    k: Literal["b"]

AB = Annotated[A | B, Field(discriminator="k")]

### Discriminator function | Annotated[TaggedA | TaggedB, Discriminator(_kind)]
def _kind(v): return "a"

class A(BaseModel):
    a: int

class B(BaseModel):
    b: int

TaggedA = Annotated[A, Tag("a")]
TaggedB = Annotated[B, Tag("b")]
""",
)

CASES = [*FAMILIES, *UNIONS]
