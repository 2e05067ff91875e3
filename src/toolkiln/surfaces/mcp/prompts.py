"""`prompts/*`: what people choose and models read, each a function of the catalog.

A prompt returns text, which is one message of the user, or a list of messages. Whatever
else it returns is refused here: clients trust what a server tells them.
"""

from base64 import b64decode
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    GetPromptRequestParams,
    PaginatedRequestParams,
    PromptMessage,
)
from pydantic import ValidationError

from toolkiln.errors import nearest_hint
from toolkiln.model import Result, Role, ToolSpec
from toolkiln.surfaces.mcp.answers import file_block
from toolkiln.surfaces.mcp.functions import Functions, described
from toolkiln.surfaces.mcp.names import wire_name
from toolkiln.surfaces.mcp.paging import paged
from toolkiln.surfaces.mcp.requests import Request


class Prompts:
    """The prompts of one Kiln."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    async def list_prompts(self, request: Request[PaginatedRequestParams]) -> dict[str, Any]:
        """Those that the caller may have, by name."""
        prompts = self.named(request.session)
        names, following = paged(prompts, request.params.cursor)
        return {"prompts": [_listed(name, prompts[name]) for name in names], **following}

    async def get(self, request: Request[GetPromptRequestParams]) -> dict[str, Any]:
        """The messages that a prompt makes of its arguments.

        Raises:
            MCPError: there is no such prompt, or it gave no messages, and why.
        """
        spec = self.find(request.params.name, request.session)

        def form(result: Result) -> dict[str, Any]:
            return {"description": spec.description, "messages": _messages(result)}

        arguments = request.params.arguments or {}
        return await self._functions.answer(request, spec, arguments, form)

    def named(self, session: str) -> dict[str, ToolSpec]:
        """The prompts that a caller may have, by the names that clients are told."""
        found = self._functions.of(session, Role.PROMPT)
        return {wire_name(name): spec for name, spec in found.items()}

    def find(self, name: str, session: str) -> ToolSpec:
        """One prompt.

        Raises:
            MCPError: there is none of that name for this caller.
        """
        prompts = self.named(session)
        spec = prompts.get(name) or prompts.get(wire_name(name))
        if spec is None:
            hint = nearest_hint(name, prompts)
            raise MCPError(
                INVALID_PARAMS, f"Unknown prompt: {name}", {"hint": hint} if hint else None
            )
        return spec


def _listed(name: str, spec: ToolSpec) -> dict[str, Any]:
    required = spec.parameters.get("required", ())
    arguments = [
        {
            "name": argument,
            **({"description": schema["description"]} if "description" in schema else {}),
            "required": argument in required,
        }
        for argument, schema in spec.parameters["properties"].items()
    ]
    return {"name": name, **described(spec), "arguments": arguments}


def _messages(result: Result) -> list[dict[str, Any]]:
    """What a prompt gave as messages: files that it sent come first, from the user.

    Raises:
        MCPError: it is not what a prompt may return.
    """
    files = [_said(file_block(result.call_id, file)) for file in result.files]
    value = result.value
    if isinstance(value, str):
        return [*files, _said({"type": "text", "text": value})]
    if value is None and files:
        return files
    if not isinstance(value, list):
        raise _refused(result, "neither text nor a list of messages")
    return [*files, *(_message(result, number, one) for number, one in enumerate(value, 1))]


def _message(result: Result, number: int, given: Any) -> dict[str, Any]:
    content = given.get("content") if isinstance(given, dict) else None
    if isinstance(content, str):
        given = {**given, "content": {"type": "text", "text": content}}
    try:
        message = PromptMessage.model_validate(given, by_name=False)
        found = message.model_dump(mode="json", by_alias=True, exclude_none=True)
        block = found["content"]
        for data in (block.get("data"), block.get("resource", {}).get("blob")):
            b64decode(data or "", validate=True)
    except (ValidationError, ValueError):
        raise _refused(
            result, f"something else than a role and content as message {number}"
        ) from None
    return found


def _said(block: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": block}


def _refused(result: Result, what: str) -> MCPError:
    return MCPError(INTERNAL_ERROR, f"The prompt {result.tool} returned {what}")
