"""Questions of a running tool to its caller, and their answers.

All sizes are limited, because questions come from a sandbox and answers from a client.
Authors write questions with `define`; surfaces present them.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from toolkiln.model.base import Value

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
    """The JSON Schema keywords that clients support in forms."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, allow_inf_nan=False
    )


class FormChoice(_Keywords):
    """A value to choose, with its label."""

    const: _Name
    title: _Text


_Titled = Annotated[tuple[FormChoice, ...], Field(min_length=1, max_length=200)]


class Choices(_Keywords):
    """Options of a multiple choice."""

    type: Literal["string"] | None = None
    enum: _Choices | None = None
    any_of: _Titled | None = None

    @property
    def is_known(self) -> bool:
        """Whether it lists the options."""
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
    def _check_consistency(self) -> Self:
        # Clients reject a whole form because of one inconsistent field.
        if self.default is not None and type(self.default) not in _VALUES[self.type]:
            raise ValueError(f"the default is not of type {self.type}")
        if self.type == "array" and (self.items is None or not self.items.is_known):
            raise ValueError("an array needs items with an enum, or anyOf with titles")
        return self


class FormQuestion(Value):
    """A form for a person to fill in."""

    kind: Literal["form"] = "form"
    name: _Name = ""
    """The author's name for the question; optional."""
    message: Annotated[str, Field(max_length=10_000)]
    fields: Annotated[dict[_Name, FormField], Field(max_length=50)]
    required: Annotated[tuple[_Name, ...], Field(max_length=50)] = ()

    @property
    def form_schema(self) -> dict[str, Any]:
        """JSON Schema of the form's content."""
        fields = {
            name: field.model_dump(mode="json", by_alias=True, exclude_none=True)
            for name, field in self.fields.items()
        }
        schema = {"type": "object", "properties": fields}
        return schema | ({"required": list(self.required)} if self.required else {})


class Message(Value):
    """One message of a conversation with a model."""

    role: Literal["user", "assistant"]
    text: Annotated[str, Field(max_length=200_000)]


class SampleQuestion(Value):
    """A conversation for the caller's model to continue."""

    kind: Literal["sample"] = "sample"
    name: _Name = ""
    messages: Annotated[tuple[Message, ...], Field(min_length=1, max_length=100)]
    system: Annotated[str, Field(max_length=200_000)] = ""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)]


class RootsQuestion(Value):
    """A request for the caller's working folders."""

    kind: Literal["roots"] = "roots"
    name: _Name = ""


Question = FormQuestion | SampleQuestion | RootsQuestion


class FormAnswer(Value):
    """A person's response to a form."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] = Field(default_factory=dict, max_length=1_000)


class SampleAnswer(Value):
    """A model's response."""

    text: Annotated[str, Field(max_length=4_000_000)]
    model: _Text = ""
    stop_reason: _Text = ""


class RootFolder(Value):
    """A working folder of the caller."""

    uri: Annotated[str, Field(max_length=10_000)]
    name: _Text = ""


class RootsAnswer(Value):
    """The caller's working folders."""

    roots: Annotated[tuple[RootFolder, ...], Field(max_length=1_000)] = ()


Reply = FormAnswer | SampleAnswer | RootsAnswer
