"""A request as the parts that answer it see it: who makes it, and in which era."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mcp.server.context import ServerRequestContext
from mcp_types import ClientCapabilities
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

TASKS = "io.modelcontextprotocol/tasks"
"""The extension by which long calls are polled in the modern era."""

Context = ServerRequestContext[Any, Any]
P = TypeVar("P", bound=BaseModel, covariant=True)


@dataclass(frozen=True, slots=True)
class Request(Generic[P]):
    """What a client wants, on whose behalf."""

    context: Context
    params: P
    session: str

    @property
    def is_modern(self) -> bool:
        """Whether it stands for itself, without a handshake."""
        return is_modern(self.context)

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """What its client can do."""
        return self.context.session.client_capabilities

    @property
    def has_tasks(self) -> bool:
        """Whether a client of the modern era polls long calls by itself."""
        extensions = self.capabilities.extensions if self.capabilities else None
        return self.is_modern and TASKS in (extensions or {})


def is_modern(context: Context) -> bool:
    """Whether a request belongs to the era without handshakes."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS
