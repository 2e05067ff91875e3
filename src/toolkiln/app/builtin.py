"""The tools that Toolkiln brings along, for agents: tasks, and outputs that were cut.

They are ordinary tools by their specs, read from this file like any other, and run inline
on the `Kiln` they belong to.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toolkiln.define import Context, ToolError, tool, tool_metadata
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model import Caller, Task

if TYPE_CHECKING:
    from toolkiln.app import Kiln

_MOST_SECONDS = 600.0


@tool_metadata(display_name="Toolkiln", icon="wrench")
class Builtin:
    """Tools for tasks in the background and for outputs that were cut."""

    def __init__(self, kiln: "Kiln") -> None:
        self._kiln = kiln

    @tool
    async def check_task(self, task_id: str, ctx: Context) -> dict[str, Any]:
        """Tell how a task in the background stands, with its result if it has ended.

        Args:
            task_id: The id that the call returned.
        """
        with _in_plain_words():
            return _told(await self._kiln.check_task(task_id, _caller(ctx)))

    @tool(timeout=610)
    async def await_task(self, task_id: str, ctx: Context, seconds: float = 30.0) -> dict[str, Any]:
        """Wait for a task in the background to end, and tell its result.

        Args:
            task_id: The id that the call returned.
            seconds: How long to wait at most; then the task goes on all the same.
        """
        patience = max(0.0, min(seconds, _MOST_SECONDS))
        with _in_plain_words():
            return _told(await self._kiln.await_task(task_id, _caller(ctx), timeout=patience))

    @tool
    async def cancel_task(self, task_id: str, ctx: Context) -> dict[str, Any]:
        """Stop a task in the background.

        Args:
            task_id: The id that the call returned.
        """
        with _in_plain_words():
            return _told(await self._kiln.cancel_task(task_id, _caller(ctx)))

    @tool
    async def read_output(
        self, handle: str, ctx: Context, offset: int = 0, limit: int = 20_000
    ) -> dict[str, Any]:
        """Read on in an output that was cut.

        Args:
            handle: The handle that the cut output names.
            offset: The character to start from.
            limit: How many characters to read, 40,000 at most.
        """
        most = max(1, min(limit, 40_000))
        with _in_plain_words():
            page = await self._kiln.read_output(handle, _caller(ctx), offset=offset, limit=most)
        return page.model_dump(mode="json")


@contextmanager
def _in_plain_words() -> Iterator[None]:
    """Let the model read what Toolkiln says of its request."""
    try:
        yield
    except ToolkilnError as error:
        said = f"{error.message} ({error.hint})" if error.hint else error.message
        raise ToolError(said, retryable=not isinstance(error, InputError)) from error


def _caller(ctx: Context) -> Caller:
    return Caller(user_id=ctx.user_id, agent_id=ctx.agent_id)


def _told(task: Task) -> dict[str, Any]:
    told: dict[str, Any] = {"id": task.id, "tool": task.tool, "state": task.state}
    if task.progress:
        told["progress"] = task.progress
    if task.result is not None:
        told["status"] = task.result.status.value
        told["result"] = task.result.text
    return told
