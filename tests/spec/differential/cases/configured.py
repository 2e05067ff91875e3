"""Models whose configuration changes their schema."""

from .case import PYDANTIC, sheet

CASES = sheet(
    "config",
    PYDANTIC,
    r'''
### extra | tuple[Forbid, Allow, Ignore, Written]
class Forbid(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int

class Allow(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int

class Ignore(BaseModel):
    model_config = ConfigDict(extra="ignore")
    a: int

class Written(BaseModel):
    model_config = {"extra": "forbid"}
    a: int

### typed extra
class Model(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]
    a: int

### title, frozen, json_schema_extra
class Model(BaseModel):
    model_config = ConfigDict(
        title="Other", frozen=True, json_schema_extra={"examples": [{"a": 1}]}
    )
    a: int

### alias generator | tuple[Model, Pascal]
class Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    first_name: str
    x_1: int = 1
    last_name: str = Field(alias="ln")

class Pascal(BaseModel):
    model_config = ConfigDict(alias_generator=to_pascal)
    first_name: str

### AliasGenerator
class Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=AliasGenerator(validation_alias=to_camel, serialization_alias=to_pascal),
    )
    first_name: str

### names and aliases | tuple[Populated, Serialized]
class Populated(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    a: int = Field(alias="b")

class Serialized(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    a: int = Field(alias="b")

### use_enum_values
class Model(BaseModel):
    model_config = ConfigDict(use_enum_values=True)
    a: Literal["x"] = "x"

### attribute docstrings | tuple[Model, Unused]
class Model(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)
    a: int
    """The a."""
    b: int = Field(1, description="d")
    """The b."""

class Unused(BaseModel):
    a: int
    """The a."""

### defaults required when serialising
class Model(BaseModel):
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)
    a: int = 1

### strict and more
class Model(BaseModel):
    model_config = ConfigDict(strict=True, validate_default=True, str_max_length=5)
    a: str = "x"

### text configuration
class Model(BaseModel):
    model_config = ConfigDict(str_min_length=2, str_strip_whitespace=True)
    a: str
    b: list[str]

### class keywords | tuple[Forbid, Model]
class Forbid(BaseModel, extra="forbid"):
    a: int

class Model(BaseModel, frozen=True, title="T", extra="allow"):
    a: int

### inherited config
class Base(BaseModel):
    model_config = ConfigDict(extra="forbid")

class Model(Base):
    a: int

### config merged over bases
class Base(BaseModel):
    model_config = ConfigDict(extra="forbid", title="T")

class Model(Base):
    model_config = ConfigDict(extra="allow")
    a: int

### config of the outer model
class Inner(BaseModel):
    a: int

class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")
    i: Inner
''',
)
