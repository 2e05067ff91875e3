"""`prompts/*`, and calls of prompts and resources.

A prompt returns text, which becomes one user message, or a list of messages. Anything else is
an error, because clients do not check the messages of a server.
"""

from base64 import b64decode
from collections.abc import Callable
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    GetPromptRequestParams,
    InputResponseRequestParams,
    PaginatedRequestParams,
    PromptMessage,
)
from pydantic import ValidationError

from toolkiln.errors import InputError, nearest_hint
from toolkiln.kiln import Kiln
from toolkiln.model.call import Result, Status, Task
from toolkiln.model.spec import Role, ToolSpec
from toolkiln.surfaces.mcp.calls import file_block
from toolkiln.surfaces.mcp.interaction import CallInteraction, CallResponses
from toolkiln.surfaces.mcp.requests import McpRequest, invalid_params
from toolkiln.surfaces.mcp.tools import icons, paged, served_specs, wire_name


class McpCatalog:
    """The catalog by role, and calls of its prompts and resources."""

    def __init__(self, kiln: Kiln, interaction: CallInteraction) -> None:
        self._kiln = kiln
        self._interaction = interaction

    def visible(self, session: str, role: Role) -> dict[str, ToolSpec]:
        """Return the tools, prompts or resources that a caller may run, by name."""
        try:
            return self._kiln.specs(session, role)
        except InputError:  # nothing is served yet
            return {}

    def all(self) -> dict[str, ToolSpec]:
        """Return the specs of all roles, for all callers."""
        return served_specs(self._kiln)

    async def call(
        self,
        request: McpRequest[InputResponseRequestParams],
        spec: ToolSpec,
        arguments: dict[str, str],
        present: Callable[[Result], dict[str, Any]],
    ) -> dict[str, Any]:
        """Run a prompt or resource; `present` converts a successful result to a response.

        Raises:
            MCPError: the call failed.
        """

        def respond(result: Result) -> dict[str, Any]:
            if result.status is not Status.OK:
                raise _error(result)
            return present(result)

        responses = CallResponses(respond, _refuse_task, can_continue=False)
        return await self._interaction.call(
            request, spec.name, arguments, responses, called=spec.name
        )


def _error(result: Result) -> MCPError:
    code = INVALID_PARAMS if result.status is Status.INVALID else INTERNAL_ERROR
    error = result.error
    if error is None:
        return MCPError(code, result.text)
    return MCPError(code, error.message, {"code": error.code, "hint": error.hint or ""})


def _refuse_task(_: McpRequest[Any], task: Task) -> dict[str, Any]:
    """Raise an error: only tools can continue as tasks."""
    raise MCPError(INTERNAL_ERROR, f"{task.tool} needs an approval that this client cannot give")


def descriptive_fields(spec: ToolSpec) -> dict[str, Any]:
    """Return the fields that list entries of prompts and resources share."""
    return {"title": spec.display_name, "description": spec.description, **icons(spec)}


class Prompts:
    """The handlers of `prompts/*`."""

    def __init__(self, catalog: McpCatalog) -> None:
        self._catalog = catalog

    async def list_prompts(self, request: McpRequest[PaginatedRequestParams]) -> dict[str, Any]:
        """Return one page of the caller's prompts."""
        prompts = self._by_wire_name(request.session)
        names, next_cursor = paged(prompts, request.params.cursor)
        return {"prompts": [_list_entry(name, prompts[name]) for name in names], **next_cursor}

    async def get(self, request: McpRequest[GetPromptRequestParams]) -> dict[str, Any]:
        """Run a prompt and return its messages.

        Raises:
            MCPError: the prompt is unknown, failed, or did not return messages.
        """
        spec = self.find(request.params.name, request.session)

        def present(result: Result) -> dict[str, Any]:
            return {"description": spec.description, "messages": _messages(result)}

        arguments = request.params.arguments or {}
        return await self._catalog.call(request, spec, arguments, present)

    def find(self, name: str, session: str) -> ToolSpec:
        """Return a prompt by name.

        Raises:
            MCPError: the caller has no prompt of that name.
        """
        prompts = self._by_wire_name(session)
        spec = prompts.get(name) or prompts.get(wire_name(name))
        if spec is None:
            raise invalid_params(f"Unknown prompt: {name}", nearest_hint(name, prompts))
        return spec

    def _by_wire_name(self, session: str) -> dict[str, ToolSpec]:
        prompts = self._catalog.visible(session, Role.PROMPT)
        return {wire_name(name): spec for name, spec in prompts.items()}


def _list_entry(name: str, spec: ToolSpec) -> dict[str, Any]:
    required = spec.parameters.get("required", ())
    arguments = [
        {
            "name": argument,
            **({"description": schema["description"]} if "description" in schema else {}),
            "required": argument in required,
        }
        for argument, schema in spec.parameters["properties"].items()
    ]
    return {"name": name, **descriptive_fields(spec), "arguments": arguments}


def _messages(result: Result) -> list[dict[str, Any]]:
    """Return the messages of a prompt; files that it sent come first, as user messages."""
    files = [_user_message(file_block(result.call_id, file)) for file in result.files]
    value = result.value
    if isinstance(value, str):
        return [*files, _user_message({"type": "text", "text": value})]
    if value is None and files:
        return files
    if not isinstance(value, list):
        raise _invalid(result, "neither text nor a list of messages")
    return [*files, *(_message(result, number, item) for number, item in enumerate(value, 1))]


def _message(result: Result, number: int, value: Any) -> dict[str, Any]:
    content = value.get("content") if isinstance(value, dict) else None
    if isinstance(content, str):
        value = {**value, "content": {"type": "text", "text": content}}
    try:
        message = PromptMessage.model_validate(value, by_name=False)
        encoded = message.model_dump(mode="json", by_alias=True, exclude_none=True)
        block = encoded["content"]
        for data in (block.get("data"), block.get("resource", {}).get("blob")):
            b64decode(data or "", validate=True)
    except (ValidationError, ValueError):
        raise _invalid(result, f"a message {number} without a valid role and content") from None
    return encoded


def _user_message(block: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": block}


def _invalid(result: Result, what: str) -> MCPError:
    return MCPError(INTERNAL_ERROR, f"The prompt {result.tool} returned {what}")
