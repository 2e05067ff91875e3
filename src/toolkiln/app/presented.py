"""What tools are to models and their providers: schemas, and arguments that fit them or not."""

from abc import ABC, abstractmethod

from toolkiln import schema
from toolkiln.model import Health, ToolSpec


class Presented(ABC):
    """Tools, as others see them."""

    @abstractmethod
    def tool(self, name: str) -> ToolSpec:
        """One tool."""

    def health(self, tool: str | ToolSpec) -> Health:
        """Whether models can be held to a tool's schema."""
        return schema.health((self.tool(tool) if isinstance(tool, str) else tool).parameters)

    def compiled(self, tool: str | ToolSpec, provider: str) -> schema.Compiled:
        """A tool as one provider wants it, with what was lost on the way."""
        return schema.compile_tool(self.tool(tool) if isinstance(tool, str) else tool, provider)

    def check_arguments(self, name: str, arguments: object) -> schema.Checked | schema.Problems:
        """Whether these arguments may be passed to a tool, all problems at once."""
        return schema.check(self.tool(name), arguments)
