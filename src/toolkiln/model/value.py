"""The base of all values that travel between layers."""

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen value with no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
