"""The fields of pydantic models: defaults, constraints, aliases, what is no field."""

from .case import PYDANTIC, sheet

CASES = sheet(
    "field",
    PYDANTIC,
    r'''
### empty | tuple[Empty, Model]
class Empty(BaseModel):
    pass

class Model(BaseModel):
    """Nothing here."""

### defaults
class Model(BaseModel):
    required: int
    a: int = 1
    b: str = "x"
    c: list[int] = []
    d: dict = {"a": 1}
    e: int = Field(1)
    f: int = Field(default=2, gt=0)
    g: list[int] = Field(default_factory=list)
    h: int = Field(default_factory=lambda: 3, gt=0)

### optional
class Model(BaseModel):
    a: int | None
    b: Optional[str]
    c: int | None = None
    d: Optional[str] = "x"
    e: int | None = Field(None, gt=0)

### required
class Model(BaseModel):
    a: int = Field(...)
    b: int = Field(gt=0)
    c: int = ...

### constraints
class Model(BaseModel):
    a: int = Field(gt=0, le=9)
    b: float = Field(multiple_of=0.5)
    c: str = Field(min_length=1, max_length=3, pattern="^a")
    d: list[int] = Field(min_length=1, max_length=3)

### Annotated
class Model(BaseModel):
    a: Annotated[int, Field(gt=0, description="d")] = 3
    b: Annotated[int, Field(gt=0)] = Field(3, lt=9, title="T")
    c: Annotated[int, "not a description"]

### details
class Model(BaseModel):
    a: int = Field(description="An a.")
    b: str = Field("", description="B")
    c: int = Field(examples=[1, 2])
    d: int = Field(1, deprecated=True)
    e: int = Field(1, deprecated="no")
    f: int = Field(json_schema_extra={"unit": "m", "title": "A"})
    g: int = Field(3, frozen=True)
    h: int = Field(exclude=True)

### named like keywords
class Model(BaseModel):
    title: str
    type: int = 3
    properties: dict
    required: bool

### ClassVar, Final and private attributes
class Model(BaseModel):
    K: ClassVar[int] = 3
    L: ClassVar = 3
    F: Final[int] = 3
    _p: int = 3
    _q: str = PrivateAttr("x")
    a: int

### alias
class Model(BaseModel):
    a: int = Field(alias="theA")
    b: int = Field(1, alias="the b")
    c: int = Field(validation_alias="vc")
    d: int = Field(serialization_alias="sd")
    e: int = Field(validation_alias="ve", serialization_alias="se")
    f: int = Field(alias="af", validation_alias="vf")
    g: int = Field(validation_alias=AliasChoices("x", "y"))
    h: int = Field(validation_alias=AliasPath("z", 0))
    i: int = Field(validation_alias=AliasChoices(AliasPath("p", 1), "q"))

### enum, date and decimal as defaults
class Model(BaseModel):
    class K(Enum):
        A = "a"
    k: K = K.A
    a: date = date(2024, 1, 2)
    b: Decimal = Decimal("1.5")

### validators, methods and properties
class Model(BaseModel):
    a: int
    b: int
    @field_validator("a")
    @classmethod
    def after(cls, v): return v
    @field_validator("b", mode="before")
    @classmethod
    def before(cls, v): return v
    @model_validator(mode="after")
    def whole(self): return self
    def method(self): ...
    @property
    def p(self) -> int: ...
    @field_serializer("a")
    def s(self, v) -> str: return str(v)

### computed fields
class Model(BaseModel):
    a: int
    @computed_field
    @property
    def p(self) -> int: return 1
    @computed_field(description="Twice.", alias="twice")
    @property
    def q(self) -> list[int] | None:
        """Doc."""
        return None
    @computed_field
    @property
    def r(self) -> int:
        """Doc."""
        return 1

### quoted annotation
class Model(BaseModel):
    a: "int"
    b: "list[Model] | None" = None
    c: list["Other"]

class Other(BaseModel):
    d: int
''',
)
