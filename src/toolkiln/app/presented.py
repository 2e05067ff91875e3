"""What tools are to models and their providers: schemas, and arguments that fit them or not."""

from abc import ABC, abstractmethod
from functools import cached_property

from toolkiln import schema
from toolkiln.model import Health, HealthLevel, ToolSpec

_MOST_LEVELS = 50_000


class Presented(ABC):
    """Tools, as others see them."""

    @abstractmethod
    def tool(self, name: str) -> ToolSpec:
        """One tool."""

    def health(self, tool: str | ToolSpec) -> Health:
        """Whether models can be held to a tool's schema."""
        return schema.health((self.tool(tool) if isinstance(tool, str) else tool).parameters)

    def health_level(self, spec: ToolSpec) -> HealthLevel:
        """The level of a tool's health, found once for each version: lists of thousands ask."""
        levels, key = self._levels, (spec.name, spec.digest)
        level = levels.get(key)
        if level is None:
            if len(levels) >= _MOST_LEVELS:
                levels.clear()
            level = levels[key] = self.health(spec).level
        return level

    def compiled(self, tool: str | ToolSpec, provider: str) -> schema.Compiled:
        """A tool as one provider wants it, with what was lost on the way."""
        return schema.compile_tool(self.tool(tool) if isinstance(tool, str) else tool, provider)

    def check_arguments(self, name: str, arguments: object) -> schema.Checked | schema.Problems:
        """Whether these arguments may be passed to a tool, all problems at once."""
        return schema.check(self.tool(name), arguments)

    @cached_property
    def _levels(self) -> dict[tuple[str, str], HealthLevel]:
        return {}
