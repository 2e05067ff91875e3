"""What a running tool asks its caller, and what it is answered.

The sizes here are bounds: a question comes out of a sandbox, an answer from a client. How
authors write questions is `define`'s business; what puts them to somebody a surface's.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from toolkiln.model.value import Value

QuestionKind = Literal["form", "sample", "roots"]

_Name = Annotated[str, Field(max_length=100)]
_Text = Annotated[str, Field(max_length=2_000)]
_Count = Annotated[int, Field(ge=0, le=1_000_000)]
_Choices = Annotated[tuple[_Name, ...], Field(min_length=1, max_length=200)]
_VALUES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (tuple,),
}


class _Keywords(BaseModel):
    """A part of a JSON Schema: the keywords that clients show forms by, and no others."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, allow_inf_nan=False
    )


class Choice(_Keywords):
    """One value to choose, and what a person reads."""

    const: _Name
    title: _Text


_Titled = Annotated[tuple[Choice, ...], Field(min_length=1, max_length=200)]


class Choices(_Keywords):
    """What several can be chosen of."""

    type: Literal["string"] | None = None
    enum: _Choices | None = None
    any_of: _Titled | None = None

    @property
    def is_known(self) -> bool:
        """Whether it says what can be chosen."""
        return self.enum is not None or self.any_of is not None


class FormField(_Keywords):
    """One field of a form."""

    type: Literal["string", "integer", "number", "boolean", "array"]
    title: _Text | None = None
    description: _Text | None = None
    default: bool | int | float | _Text | _Choices | None = None
    enum: _Choices | None = None
    enum_names: Annotated[tuple[_Text, ...], Field(max_length=200)] | None = None
    one_of: _Titled | None = None
    min_length: _Count | None = None
    max_length: _Count | None = None
    format: Literal["email", "uri", "date", "date-time"] | None = None
    minimum: int | float | None = None
    maximum: int | float | None = None
    items: Choices | None = None
    min_items: _Count | None = None
    max_items: _Count | None = None

    @model_validator(mode="after")
    def _can_be_shown(self) -> Self:
        """Clients refuse a whole form for one field that contradicts itself."""
        if self.default is not None and type(self.default) not in _VALUES[self.type]:
            raise ValueError(f"the default is no {self.type}")
        if self.type == "array" and (self.items is None or not self.items.is_known):
            raise ValueError("an array has items with an enum, or anyOf with titles")
        return self


class FormQuestion(Value):
    """Fields for a person to fill in."""

    kind: Literal["form"] = "form"
    name: _Name = ""
    """What the author calls the question; empty if it needs no name."""
    message: Annotated[str, Field(max_length=10_000)]
    fields: Annotated[dict[_Name, FormField], Field(max_length=50)]
    required: Annotated[tuple[_Name, ...], Field(max_length=50)] = ()

    @property
    def form_schema(self) -> dict[str, Any]:
        """The JSON Schema of what is filled in."""
        fields = {
            name: field.model_dump(mode="json", by_alias=True, exclude_none=True)
            for name, field in self.fields.items()
        }
        found = {"type": "object", "properties": fields}
        return found | ({"required": list(self.required)} if self.required else {})


class Message(Value):
    """Something said to a model, or by one."""

    role: Literal["user", "assistant"]
    text: Annotated[str, Field(max_length=200_000)]


class SampleQuestion(Value):
    """A conversation that the caller's model is to go on with."""

    kind: Literal["sample"] = "sample"
    name: _Name = ""
    messages: Annotated[tuple[Message, ...], Field(min_length=1, max_length=100)]
    system: Annotated[str, Field(max_length=200_000)] = ""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)]


class RootsQuestion(Value):
    """Which folders the caller works in."""

    kind: Literal["roots"] = "roots"
    name: _Name = ""


Question = FormQuestion | SampleQuestion | RootsQuestion


class FormAnswer(Value):
    """What a person did with a form."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] = Field(default_factory=dict, max_length=1_000)


class SampleAnswer(Value):
    """What a model said."""

    text: Annotated[str, Field(max_length=4_000_000)]
    model: _Text = ""
    stop_reason: _Text = ""


class RootFolder(Value):
    """A folder of the caller's."""

    uri: Annotated[str, Field(max_length=10_000)]
    name: _Text = ""


class RootsAnswer(Value):
    """The folders that a caller works in."""

    roots: Annotated[tuple[RootFolder, ...], Field(max_length=1_000)] = ()


Reply = FormAnswer | SampleAnswer | RootsAnswer
"""What a question is answered with."""
