"""Stand-in for the modules of Suna that its toolkits use: base classes, results, logger.

`core.agentpress.tool` and `agentpress.tool`, `core.sandbox.tool_base`, `core.utils.config` and
`core.utils.logger` share it. What needs Suna's database, its sandboxes or its configuration is
unavailable.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from toolkiln.define import method_metadata, openapi_schema, tool_metadata
from toolkiln.frameworks.unavailable import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

__all__ = [
    "SandboxToolsBase", "Tool", "ToolResult", "config", "logger", "method_metadata",
    "openapi_schema", "tool_metadata", "usage_example", "xml_schema",
]  # fmt: skip

config = Unavailable(
    "core.utils.config.config", "a tool reads keys from ctx.secrets and options from ctx.settings"
)


@dataclass
class ToolResult:
    """What a method returns; the call's result has its output."""

    success: bool
    output: Any


class Tool:
    """Base class of a toolkit."""

    def success_response(self, data: Any) -> ToolResult:
        """Return a successful result; dicts and lists become JSON."""
        is_json = isinstance(data, dict | list)
        return ToolResult(True, json.dumps(data) if is_json else str(data))

    def fail_response(self, msg: str) -> ToolResult:
        """Return a failed result."""
        return ToolResult(False, msg)


class SandboxToolsBase(Tool):
    """Base class of a toolkit that works in a sandbox of Suna, which calls here do not have."""

    workspace_path = "/workspace"

    def __init__(self, project_id: Any, thread_manager: Any = None) -> None:
        self.project_id = project_id
        self.thread_manager = thread_manager

    async def _ensure_sandbox(self) -> Any:
        return await self.sandbox

    @property
    def sandbox(self) -> Any:
        """Placeholder for Suna's sandbox."""
        hint = "use the files of the current folder"
        return Unavailable(f"{type(self).__name__}.sandbox", hint)

    sandbox_id = sandbox_url = sandbox

    def clean_path(self, path: str) -> str:
        """Return a path relative to the workspace."""
        workspace = self.workspace_path.strip("/") + "/"
        return path.strip("/").removeprefix(workspace)


def usage_example(_: str) -> Callable[[T], T]:
    """Mark nothing: it shows how a model called the method in Suna's XML."""
    return lambda decorated: decorated


def xml_schema(*_: object, **__: object) -> Callable[[T], T]:
    """Mark nothing: it maps Suna's XML to the parameters of the method."""
    return lambda decorated: decorated


class _Logger:
    """Writes to the standard error output of the call; debug messages are left out."""

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def bind(self, **fields: object) -> _Logger:
        return _Logger(**self._fields | fields)

    def debug(self, event: object, *_: object, **__: object) -> None:
        pass

    def info(self, event: object, *arguments: object, **fields: object) -> None:
        self._write("info", event, arguments, fields)

    def warning(self, event: object, *arguments: object, **fields: object) -> None:
        self._write("warning", event, arguments, fields)

    def error(self, event: object, *arguments: object, **fields: object) -> None:
        self._write("error", event, arguments, fields)

    warn, exception, critical, fatal = warning, error, error, error

    def _write(
        self, level: str, event: object, arguments: tuple[object, ...], fields: dict[str, object]
    ) -> None:
        text = str(event) % arguments if arguments else str(event)
        fields = self._fields | fields
        fields.pop("exc_info", None)  # where to find the exception, which the text names
        details = (f" {name}={value}" for name, value in fields.items())
        sys.stderr.write(f"{level}: {text}{''.join(details)}\n")


logger = _Logger()
