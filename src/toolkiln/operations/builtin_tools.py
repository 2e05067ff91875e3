"""The built-in tools for agents: search, describe, call and write tools, manage tasks and
read truncated outputs.

Their specs are read from this file like those of any tool; they run inline.
"""

from asyncio import to_thread
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from toolkiln.define import Context, ToolError, tool, tool_metadata
from toolkiln.docs.pages import behaviour
from toolkiln.errors import InputError, ToolkilnError, UnknownTool
from toolkiln.model.admission import AdmissionResult, PipRequirement
from toolkiln.model.call import Task
from toolkiln.model.search import PassageHit, SearchResult
from toolkiln.model.spec import BUILTIN_NAMES
from toolkiln.operations.library import refuse_other_roles
from toolkiln.operations.tool_files import WriteFile, write_file
from toolkiln.security.sessions import SessionToken, acting_session

if TYPE_CHECKING:
    from toolkiln.operations.services import Services

_MAX_SECONDS = 600.0


@tool_metadata(display_name="Toolkiln", icon="wrench")
class Builtin:
    """Tools to search, call and write tools, manage tasks and read truncated outputs."""

    def __init__(self, services: "Services") -> None:
        self._services = services

    @tool(read_only=True, open_world=False)
    async def check_task(self, task_id: str) -> dict[str, Any]:
        """Return the state of a background task, with its result if it has ended.

        Args:
            task_id: The task id returned by the call.
        """
        with _errors_for_model():
            return _task_json(await self._services.tasks.get(task_id, acting_session()))

    @tool(timeout=610, read_only=True, open_world=False)
    async def await_task(self, task_id: str, seconds: float = 30.0) -> dict[str, Any]:
        """Wait for a background task to end and return its result.

        Args:
            task_id: The task id returned by the call.
            seconds: The maximum time to wait; after it the task continues to run.
        """
        patience = max(0.0, min(seconds, _MAX_SECONDS))
        with _errors_for_model():
            return _task_json(
                await self._services.tasks.wait(task_id, acting_session(), timeout=patience)
            )

    @tool(destructive=True, idempotent=True, open_world=False)
    async def cancel_task(self, task_id: str) -> dict[str, Any]:
        """Stop a background task.

        Args:
            task_id: The task id returned by the call.
        """
        with _errors_for_model():
            return _task_json(await self._services.tasks.cancel(task_id, acting_session()))

    @tool(read_only=True, open_world=False)
    async def read_output(
        self, handle: str, offset: int = 0, limit: int = 20_000
    ) -> dict[str, Any]:
        """Read more of an output that was truncated.

        Args:
            handle: The handle given in the truncated output.
            offset: The character to start from.
            limit: The number of characters to read, at most 40,000.
        """
        limit = max(1, min(limit, 40_000))
        with _errors_for_model():
            page = await self._services.tasks.read_output(
                handle, acting_session(), offset=offset, limit=limit
            )
        return page.model_dump(mode="json")

    @tool(parallel=True, read_only=True, open_world=False)
    async def search_tools(self, query: str, k: int = 5) -> dict[str, Any]:
        """Find tools that can do a task.

        Args:
            query: The task in plain words; it may consist of several steps.
            k: The number of tools to return, at most 50.
        """
        k, session = max(1, min(k, 50)), acting_session()
        with _errors_for_model():
            answer = await to_thread(self._search, query, k, session)
            found = [self._services.registry.spec(hit.key) for hit in answer.hits]
        result: dict[str, Any] = {
            "tools": [{"name": spec.name, "description": spec.description} for spec in found],
            "confidence": round(answer.confidence, 2),
        }
        return result | ({"note": answer.note} if answer.note else {})

    @tool(parallel=True, read_only=True, open_world=False)
    async def describe_tool(self, name: str) -> dict[str, Any]:
        """Describe how to call a tool: its parameters, what it returns and how to use it.

        Args:
            name: The name of the tool.
        """
        with _errors_for_model():
            session = acting_session()
            visible = self._services.visible(session)
            may_see = self._services.security.may_see(session)
            is_builtin = name in BUILTIN_NAMES and may_see(self._services.registry.spec(name))
            if name not in visible and not is_builtin:
                raise UnknownTool(name, visible)
            spec = self._services.registry.spec(name)
        return {
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.parameters,
            "guide": spec.detailed_description(),
            "behaviour": behaviour(spec),
        }

    @tool(timeout=610, destructive=True, open_world=True)
    def call_tool(
        self,
        name: str,
        ctx: Context,
        arguments: dict[str, Any] | None = None,
        prompt: str | None = None,
    ) -> Any:
        """Call a tool found with `search_tools`.

        Args:
            name: The name of the tool.
            arguments: The arguments of the tool, as described by `describe_tool`.
            prompt: The request of the user; it improves later searches for the tool.
        """
        with _errors_for_model():
            refuse_other_roles(self._services, name)
        result = ctx.call(name, **(arguments or {}))
        if prompt:
            self._services.learn(name, prompt)
        return result

    @tool(parallel=True, read_only=True, open_world=False)
    async def rag_search(self, query: str, k: int = 5) -> dict[str, Any]:
        """Search the documentation of all tools; results cite page and heading.

        Args:
            query: The question in plain words.
            k: The number of passages to return, at most 20.
        """
        k, session = max(1, min(k, 20)), acting_session()
        with _errors_for_model():
            hits = await to_thread(self._search_docs, query, k, session)
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
        json_schema: dict[str, Any] | None = None,
        pip_requirements: list[str] | None = None,
        enable_parallel_execution: bool | None = None,
        return_char_limit: int | None = None,
    ) -> dict[str, Any]:
        """Write a new tool in Python, to be called from then on.

        The code is checked, imported and tested in the sandbox first. Write functions with type
        hints, a docstring with an `Args:` section, and `>>>` examples that pass. If something is
        wrong, the reply gives the line and how to fix it.

        Args:
            tool_code: The Python source: one or more functions.
            tool_name: The name of its file, such as convert_temperature.
            description: The docstring for functions, or a file with `TOOL_NAME`, without one.
            overwrite: Replace a tool of that name; its earlier versions are kept.
            json_schema: The schema of the parameters, if the signature should not decide.
            pip_requirements: The packages that it imports, such as httpx>=0.27.
            enable_parallel_execution: Whether it may run at the same time as other calls.
            return_char_limit: The number of characters of its result to return.
        """
        with _errors_for_model():
            request = WriteFile(
                name=tool_name,
                code=tool_code,
                description=description or "",
                overwrite=overwrite,
                json_schema=json_schema,
                pip_requirements=[PipRequirement(name=item) for item in pip_requirements or ()],
                enable_parallel_execution=enable_parallel_execution,
                return_char_limit=return_char_limit,
            )
            return _reply(await self._services.run(write_file, request, acting_session()))

    def _search(self, query: str, k: int, session: SessionToken) -> SearchResult:
        return self._services.library.search(query, k, self._services.may_see(session))

    def _search_docs(self, query: str, k: int, session: SessionToken) -> list[PassageHit]:
        return self._services.library.search_docs(query, k, self._services.may_see(session))


@contextmanager
def _errors_for_model() -> Iterator[None]:
    """Turn errors into results that the model can read."""
    try:
        yield
    except ValidationError as error:
        problem = error.errors()[0]
        raise ToolError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
    except ToolkilnError as error:
        text = f"{error.message} ({error.hint})" if error.hint else error.message
        raise ToolError(text, retryable=not isinstance(error, InputError)) from error


def _reply(result: AdmissionResult) -> dict[str, Any]:
    """Return the fields that matter to an agent for a success or for a failure."""
    of_failure = {"error", "validation_errors"}
    of_both = {"success", "warnings", "stages"}
    fields = result.model_dump(mode="json", exclude={"code"})
    if result.success:
        return {name: value for name, value in fields.items() if name not in of_failure}
    return {name: value for name, value in fields.items() if name in of_failure | of_both}


def _task_json(task: Task) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": task.id, "tool": task.tool, "state": task.state}
    if task.progress:
        fields["progress"] = task.progress
    if task.result is not None:
        fields["status"] = task.result.status.value
        fields["result"] = task.result.text
    return fields
