"""Stand-in for `atloop.tools`: its abstract `BaseTool`, `ToolResult` and `OutputSemanticType`.

Results are Toolkiln's own, so the host classifies them. The runtime of atloop, such as its
sandbox adapter, is not available.
"""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum

from toolkiln.define import BaseTool as _BaseTool
from toolkiln.define import ToolResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["BaseTool", "OutputSemanticType", "ToolResult"]


class OutputSemanticType(Enum):
    """What an output is; decides how much of it a model sees."""

    KNOWLEDGE_CONTENT = "knowledge_content"
    FILE_CONTENT = "file_content"
    FILE_VIEW_RESULT = "file_view_result"
    EXECUTION_RESULT = "execution_result"
    STATUS_MESSAGE = "status_message"
    ERROR_MESSAGE = "error_message"


class BaseTool(_BaseTool):
    """Base class of a tool; subclasses implement `name`, `description` and `execute`."""

    output_semantic_type: Any = OutputSemanticType.STATUS_MESSAGE
    stderr_semantic_type: Any = OutputSemanticType.ERROR_MESSAGE

    @property
    @abstractmethod
    def name(self) -> Any:
        """Name by which a model calls the tool."""

    @property
    @abstractmethod
    def description(self) -> Any:
        """Text that a model reads when it chooses a tool."""
