"""The fields of pydantic models: defaults, constraints, aliases, what is no field."""

from .case import PYDANTIC, sheet

CASES = sheet(
    "field",
    PYDANTIC,
    r'''
### empty
class Model(BaseModel):
    pass

### docstring only
class Model(BaseModel):
    """Nothing here."""

### one field
class Model(BaseModel):
    a: int

### defaults
class Model(BaseModel):
    a: int = 1
    b: str = "x"
    c: list[int] = []
    d: dict = {"a": 1}

### optional without default
class Model(BaseModel):
    a: int | None
    b: Optional[str]

### optional with default
class Model(BaseModel):
    a: int | None = None
    b: Optional[str] = "x"

### Field default
class Model(BaseModel):
    a: int = Field(1)
    b: int = Field(default=2, gt=0)

### Field required
class Model(BaseModel):
    a: int = Field(...)
    b: int = Field(gt=0)
    c: int = ...

### default_factory
class Model(BaseModel):
    a: list[int] = Field(default_factory=list)

### default_factory lambda
class Model(BaseModel):
    a: int = Field(default_factory=lambda: 3, gt=0)

### number constraints
class Model(BaseModel):
    a: int = Field(gt=0, le=9)
    b: float = Field(multiple_of=0.5)

### text constraints
class Model(BaseModel):
    a: str = Field(min_length=1, max_length=3, pattern="^a")

### list constraints
class Model(BaseModel):
    a: list[int] = Field(min_length=1, max_length=3)

### optional constraints
class Model(BaseModel):
    a: int | None = Field(None, gt=0)

### Annotated field
class Model(BaseModel):
    a: Annotated[int, Field(gt=0, description="d")] = 3

### Annotated and Field
class Model(BaseModel):
    a: Annotated[int, Field(gt=0)] = Field(3, lt=9, title="T")

### Annotated text
class Model(BaseModel):
    a: Annotated[int, "not a description"]

### descriptions
class Model(BaseModel):
    a: int = Field(description="An a.")
    b: str = Field("", description="B")

### examples
class Model(BaseModel):
    a: int = Field(examples=[1, 2])

### deprecated
class Model(BaseModel):
    a: int = Field(1, deprecated=True)
    b: int = Field(1, deprecated="no")

### json_schema_extra
class Model(BaseModel):
    a: int = Field(json_schema_extra={"unit": "m", "title": "A"})

### exclude
class Model(BaseModel):
    a: int = Field(exclude=True)
    b: int

### frozen field
class Model(BaseModel):
    a: int = Field(3, frozen=True)

### named like keywords
class Model(BaseModel):
    title: str
    type: int = 3
    properties: dict
    required: bool

### ClassVar
class Model(BaseModel):
    K: ClassVar[int] = 3
    L: ClassVar = 3
    a: int

### Final
class Model(BaseModel):
    a: Final[int] = 3
    b: int

### private attributes
class Model(BaseModel):
    _a: int = 3
    _b: str = PrivateAttr("x")
    c: int

### alias
class Model(BaseModel):
    a: int = Field(alias="theA")
    b: int = Field(1, alias="the b")

### validation_alias
class Model(BaseModel):
    a: int = Field(validation_alias="v")

### serialization_alias
class Model(BaseModel):
    a: int = Field(serialization_alias="s")

### both aliases
class Model(BaseModel):
    a: int = Field(validation_alias="v", serialization_alias="s")

### alias and validation_alias
class Model(BaseModel):
    a: int = Field(alias="x", validation_alias="v")

### AliasChoices
class Model(BaseModel):
    a: int = Field(validation_alias=AliasChoices("x", "y"))

### AliasPath
class Model(BaseModel):
    a: int = Field(validation_alias=AliasPath("x", 0))

### AliasChoices of paths
class Model(BaseModel):
    a: int = Field(validation_alias=AliasChoices(AliasPath("p", 1), "q"))

### enum default
class Model(BaseModel):
    class K(Enum):
        A = "a"
    k: K = K.A

### date default
class Model(BaseModel):
    a: date = date(2024, 1, 2)
    b: Decimal = Decimal("1.5")

### validators
class Model(BaseModel):
    a: int
    @field_validator("a")
    @classmethod
    def c(cls, v): return v

### before validator
class Model(BaseModel):
    a: int
    @field_validator("a", mode="before")
    @classmethod
    def c(cls, v): return v

### model validator
class Model(BaseModel):
    a: int
    @model_validator(mode="after")
    def c(self): return self

### methods and properties
class Model(BaseModel):
    a: int
    def m(self): ...
    @property
    def p(self) -> int: ...

### computed field
class Model(BaseModel):
    a: int
    @computed_field
    @property
    def p(self) -> int: return 1

### computed field with details
class Model(BaseModel):
    a: int
    @computed_field(description="Twice.", alias="twice")
    @property
    def p(self) -> list[int] | None:
        """Doc."""
        return None

### computed field docstring
class Model(BaseModel):
    @computed_field
    @property
    def p(self) -> int:
        """Doc."""
        return 1

### field serializer
class Model(BaseModel):
    a: int
    @field_serializer("a")
    def s(self, v) -> str: return str(v)

### quoted annotation
class Model(BaseModel):
    a: "int"
    b: "list[Model] | None" = None
    c: list["Other"]

class Other(BaseModel):
    d: int
''',
)
