"""What tools are to models and their providers: schemas, and arguments that fit them or not."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from toolkiln import schema
from toolkiln.model import Health, ToolSpec

T = TypeVar("T")

_MOST_KEPT = 50_000


class Presented(ABC):
    """Tools, as others see them."""

    @abstractmethod
    def tool(self, name: str) -> ToolSpec:
        """One tool."""

    def health(self, tool: str | ToolSpec) -> Health:
        """Whether models can be held to a tool's schema."""
        return schema.health((self.tool(tool) if isinstance(tool, str) else tool).parameters)

    def made_of(self, spec: ToolSpec, make: Callable[[ToolSpec], T]) -> T:
        """What a function makes of a tool, once for each version: lists of thousands ask again."""
        kept, key = self._kept, (make, spec.name, spec.digest)
        made: T | None = kept.get(key)
        if made is None:
            made = make(spec)
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            kept[key] = made
        return made

    def compiled(self, tool: str | ToolSpec, provider: str) -> schema.Compiled:
        """A tool as one provider wants it, with what was lost on the way."""
        return schema.compile_tool(self.tool(tool) if isinstance(tool, str) else tool, provider)

    def check_arguments(self, name: str, arguments: object) -> schema.Checked | schema.Problems:
        """Whether these arguments may be passed to a tool, all problems at once."""
        return schema.check(self.tool(name), arguments)

    @cached_property
    def _kept(self) -> dict[tuple[Callable[[ToolSpec], Any], str, str], Any]:
        return {}
