"""The tools that Toolkiln brings along, for agents: finding, calling and writing tools,
tasks, and outputs that were cut.

They are ordinary tools by their specs, read from this file like any other, and run inline
on the `Kiln` they belong to.
"""

from asyncio import to_thread
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toolkiln.app.authoring import Authored, Draft
from toolkiln.app.offer import BUILTIN_NAMES
from toolkiln.app.selection import refuse_other_roles
from toolkiln.define import Context, ToolError, tool, tool_metadata
from toolkiln.errors import InputError, ToolkilnError, UnknownTool
from toolkiln.execution import acting_session
from toolkiln.model import Task

if TYPE_CHECKING:
    from toolkiln.app import Kiln

_MOST_SECONDS = 600.0


@tool_metadata(display_name="Toolkiln", icon="wrench")
class Builtin:
    """Tools for finding, calling and writing tools, and for what calls leave."""

    def __init__(self, kiln: "Kiln") -> None:
        self._kiln = kiln

    @tool(read_only=True, open_world=False)
    async def check_task(self, task_id: str) -> dict[str, Any]:
        """Tell how a task in the background stands, with its result if it has ended.

        Args:
            task_id: The id that the call returned.
        """
        with _in_plain_words():
            return _told(await self._kiln.check_task(task_id, acting_session()))

    @tool(timeout=610, read_only=True, open_world=False)
    async def await_task(self, task_id: str, seconds: float = 30.0) -> dict[str, Any]:
        """Wait for a task in the background to end, and tell its result.

        Args:
            task_id: The id that the call returned.
            seconds: How long to wait at most; then the task goes on all the same.
        """
        patience = max(0.0, min(seconds, _MOST_SECONDS))
        with _in_plain_words():
            return _told(await self._kiln.await_task(task_id, acting_session(), timeout=patience))

    @tool(destructive=True, idempotent=True, open_world=False)
    async def cancel_task(self, task_id: str) -> dict[str, Any]:
        """Stop a task in the background.

        Args:
            task_id: The id that the call returned.
        """
        with _in_plain_words():
            return _told(await self._kiln.cancel_task(task_id, acting_session()))

    @tool(read_only=True, open_world=False)
    async def read_output(
        self, handle: str, offset: int = 0, limit: int = 20_000
    ) -> dict[str, Any]:
        """Read on in an output that was cut.

        Args:
            handle: The handle that the cut output names.
            offset: The character to start from.
            limit: How many characters to read, 40,000 at most.
        """
        most = max(1, min(limit, 40_000))
        with _in_plain_words():
            page = await self._kiln.read_output(handle, acting_session(), offset=offset, limit=most)
        return page.model_dump(mode="json")

    @tool(parallel=True, read_only=True, open_world=False)
    async def search_tools(self, query: str, k: int = 5) -> dict[str, Any]:
        """Find the tools that can do something, by what they are for.

        Args:
            query: What is to be done, in plain words; several things at once are fine.
            k: How many tools to name, 50 at most.
        """
        most, session = max(1, min(k, 50)), acting_session()
        with _in_plain_words():
            answer = await to_thread(self._kiln.search, query, most, session)
            found = [self._kiln.tool(hit.key) for hit in answer.hits]
        told: dict[str, Any] = {
            "tools": [{"name": spec.name, "description": spec.description} for spec in found],
            "confidence": round(answer.confidence, 2),
        }
        return told | ({"note": answer.note} if answer.note else {})

    @tool(parallel=True, read_only=True, open_world=False)
    async def describe_tool(self, name: str) -> dict[str, Any]:
        """Tell how to call a tool: its parameters, what it returns, how to use it well.

        Args:
            name: The name of the tool.
        """
        with _in_plain_words():
            session = acting_session()
            visible = self._kiln.visible(session)
            may_see = self._kiln.guarding.may_see(session)
            is_own = name in BUILTIN_NAMES and may_see(self._kiln.tool(name))
            if name not in visible and not is_own:
                raise UnknownTool(name, visible)
            spec = self._kiln.tool(name)
            guide = self._kiln.library.guide(name)
        seen = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        return {**seen, "guide": guide}

    @tool(timeout=610, destructive=True, open_world=True)
    def call_tool(
        self,
        name: str,
        ctx: Context,
        arguments: dict[str, Any] | None = None,
        prompt: str | None = None,
    ) -> Any:
        """Call a tool that `search_tools` has found.

        Args:
            name: The name of the tool.
            arguments: What it takes, as `describe_tool` says.
            prompt: What the user asked for, so that the tool is found better next time.
        """
        with _in_plain_words():
            refuse_other_roles(self._kiln, name)
        given = ctx.call(name, **(arguments or {}))
        if prompt:
            self._kiln.learn(name, prompt)
        return given

    @tool(parallel=True, read_only=True, open_world=False)
    async def rag_search(self, query: str, k: int = 5) -> dict[str, Any]:
        """Search the documentation of all tools, and cite page and heading.

        Args:
            query: What you want to know.
            k: How many passages to give, 20 at most.
        """
        most, session = max(1, min(k, 20)), acting_session()
        with _in_plain_words():
            hits = await to_thread(self._kiln.search_docs, query, most, session)
        return {
            "passages": [
                {
                    "page": hit.passage.page,
                    "heading": hit.passage.heading,
                    "citation": hit.passage.citation,
                    "text": hit.passage.text,
                }
                for hit in hits
            ]
        }

    @tool(timeout=300, destructive=True)
    async def write_python_tool(
        self,
        tool_code: str,
        tool_name: str,
        description: str | None = None,
        overwrite: bool = False,
    ) -> dict[str, Any]:
        """Write a tool in Python, so that it can be called from then on.

        The code is checked, imported and tried out in the sandbox first: a function with
        type hints, a docstring with an `Args:` section, and `>>>` examples that pass. If
        something is wrong, the reply says in which line and how to mend it.

        Args:
            tool_code: The Python source: one or more functions.
            tool_name: The name of its file, such as convert_temperature.
            description: Becomes the docstring of functions that have none.
            overwrite: Replace a tool of that name; its earlier versions are kept.
        """
        draft = Draft(tool_code, tool_name, description or "", overwrite)
        with _in_plain_words():
            return _reply(await self._kiln.author(draft, acting_session()))


@contextmanager
def _in_plain_words() -> Iterator[None]:
    """Let the model read what Toolkiln says of its request."""
    try:
        yield
    except ToolkilnError as error:
        said = f"{error.message} ({error.hint})" if error.hint else error.message
        raise ToolError(said, retryable=not isinstance(error, InputError)) from error


def _reply(authored: Authored) -> dict[str, Any]:
    """What an agent is told: only what has to do with how it ended."""
    own = {"error", "validation_errors"}
    kept = own | {"success", "warnings", "stages"}
    fields = authored.model_dump(mode="json", exclude={"code"})
    return {k: v for k, v in fields.items() if (k not in own if authored.success else k in kept)}


def _told(task: Task) -> dict[str, Any]:
    told: dict[str, Any] = {"id": task.id, "tool": task.tool, "state": task.state}
    if task.progress:
        told["progress"] = task.progress
    if task.result is not None:
        told["status"] = task.result.status.value
        told["result"] = task.result.text
    return told
