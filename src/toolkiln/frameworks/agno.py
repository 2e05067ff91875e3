"""Stand-in for agno: `Toolkit`, `@tool`, results with media, the logger, `RunContext`.

Agents, teams, models and databases are unavailable. The state of a session is the state of the
calling agent.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from toolkiln.define import ToolError
from toolkiln.frameworks.reply import File as _File
from toolkiln.frameworks.reply import Reply, as_stand_in
from toolkiln.frameworks.unavailable import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from toolkiln.define import Context

logger = logging.getLogger("agno")


class Function:
    """A function with a name."""

    def __init__(self, name: str = "", entrypoint: Any = None, **more: Any) -> None:
        self.__dict__.update(more)
        self.name, self.entrypoint = name, entrypoint

    @classmethod
    def from_callable(cls, function: Callable[..., Any], name: str | None = None) -> Function:
        """Return a function object."""
        return cls(name or function.__name__, function)


class Toolkit:
    """Base class of a toolkit; it keeps what its subclass registers."""

    def __init__(
        self,
        name: str = "toolkit",
        tools: Sequence[Any] | None = None,
        async_tools: Sequence[tuple[Any, str]] | None = None,
        instructions: str | None = None,
        add_instructions: bool = False,
        timeout: int | None = None,
        auto_register: bool = True,
        **more: Any,
    ) -> None:
        self.__dict__.update(more)
        self.name, self.instructions = name, instructions
        self.add_instructions = add_instructions
        self.tools = tools or []
        self.functions: dict[str, Function] = {}
        if timeout is not None or not hasattr(self, "timeout"):
            self.timeout = timeout
        if auto_register:
            self._register_tools()
            for function, given in async_tools or ():
                self.register(function, given)

    def _register_tools(self) -> None:
        for function in self.tools:
            self.register(function)

    def register(self, function: Any, name: str | None = None) -> None:
        """Keep a function under its name."""
        made = function if isinstance(function, Function) else Function.from_callable(function)
        self.functions[name or made.name] = made

    def connect(self) -> None:
        """Connect to nothing; subclasses may."""

    def close(self) -> None:
        """Close nothing; subclasses may."""

    def _check_path(
        self, file_name: str, base_dir: Path, restrict_to_base_dir: bool = True
    ) -> tuple[bool, Path]:
        try:
            return True, _inside(base_dir, file_name, restrict=restrict_to_base_dir)
        except PathSecurityError:
            return False, base_dir


def tool(*arguments: Any, **_: Any) -> Any:
    """Return a function unchanged, or a decorator that does."""
    return arguments[0] if arguments else lambda function: function


class CallingAgent:
    """The agent that makes the call, as far as a call knows it."""

    def __init__(self, ctx: Context) -> None:
        self.agent_id = self.id = ctx.agent_id
        self.user_id = ctx.user_id
        self.session_id = ctx.channel_id
        self.session_state = ctx.agent_state

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unavailable(f"agno.agent.Agent.{name}")


class RunContext:
    """What a tool knows of its run."""

    def __init__(self, ctx: Context) -> None:
        self.run_id = ""
        self.session_id = ctx.channel_id or ""
        self.user_id = ctx.user_id
        self.session_state = ctx.agent_state
        self.dependencies: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.knowledge_filters = self.output_schema = self.messages = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unavailable(f"agno.run.RunContext.{name}")


def session_state(ctx: Context) -> Any:
    """Return the state of the session."""
    return ctx.agent_state


class _Media(_File):
    suffix = "bin"

    def __init__(
        self,
        url: str | None = None,
        filepath: str | Path | None = None,
        content: bytes | str | None = None,
        format: str | None = None,  # noqa: A002 - the name that files pass
        **more: Any,
    ) -> None:
        self.__dict__.update(more)
        self.url, self.filepath, self.content, self.format = url, filepath, content, format
        name = Path(filepath).name if filepath else f"{type(self).__name__.lower()}"
        super().__init__(name if "." in name else f"{name}.{format or self.suffix}", b"")

    @property
    def file_data(self) -> bytes:
        """The bytes, read when they are sent."""
        if self.filepath is not None:
            return Path(self.filepath).read_bytes()
        return self.content.encode() if isinstance(self.content, str) else self.content or b""

    @file_data.setter
    def file_data(self, _: bytes) -> None: ...


class Image(_Media):
    """An image."""

    suffix = "png"


class Video(_Media):
    """A video."""

    suffix = "mp4"


class Audio(_Media):
    """A recording."""

    suffix = "mp3"


class File(_Media):
    """A document."""


class ToolResult(Reply):
    """A text with media; those that are only addresses are listed in the value."""

    def __init__(self, content: str = "", **media: Any) -> None:
        kinds = ("images", "videos", "audios", "files")
        listed = [as_stand_in(item) for kind in kinds for item in media.get(kind) or ()]
        self.content = content
        self.__dict__.update(media)
        self.reply_files = [item for item in listed if item.url is None]
        self.reply_value = "\n".join([content, *(item.url for item in listed if item.url)])


class AgentRunException(ToolError):
    """An error for the model."""

    def __init__(self, exc: object = "", *_: Any, **__: Any) -> None:
        super().__init__(str(exc))


class RetryAgentRun(AgentRunException):
    """An error after which the model should try again."""

    def __init__(self, exc: object = "", *_: Any, **__: Any) -> None:
        super().__init__(exc)
        self.retryable = True


class StopAgentRun(AgentRunException):
    """An error after which the model should stop."""


class PathSecurityError(Exception):
    """A path that leads out of its folder."""


def sanitize_filename(filename: str) -> str:
    """Return a name without folders and special characters."""
    name = re.sub(r"[^\w. -]", "_", filename.replace("\\", "/").rpartition("/")[2]).strip(" .")
    if not name:
        raise PathSecurityError(f"{filename!r} is no name of a file")
    return name


def safe_join_filename(directory: str | Path, filename: str) -> Path:
    """Return the path of a file directly in a folder."""
    return Path(directory).resolve() / sanitize_filename(filename)


def safe_join_relative_path(directory: str | Path, subpath: str) -> Path:
    """Return a path inside a folder."""
    return _inside(Path(directory), subpath)


def _inside(folder: Path, path: str, *, restrict: bool = True) -> Path:
    resolved = (folder / path).resolve()
    if restrict and not resolved.is_relative_to(folder.resolve()):
        raise PathSecurityError(f"{path!r} is outside of its folder")
    return resolved


def log_debug(msg: object, *_: Any, **__: Any) -> None:
    """Log for developers."""
    logger.debug("%s", msg)


def log_info(msg: object, *_: Any, **__: Any) -> None:
    """Log."""
    logger.info("%s", msg)


def log_warning(msg: object, *_: Any, **__: Any) -> None:
    """Log a warning."""
    logger.warning("%s", msg)


def log_error(msg: object, *_: Any, **__: Any) -> None:
    """Log an error."""
    logger.error("%s", msg)


def log_exception(msg: object, *_: Any, **__: Any) -> None:
    """Log an error with its traceback."""
    logger.exception("%s", msg)
