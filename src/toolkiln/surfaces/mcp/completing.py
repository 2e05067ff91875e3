"""`completion/complete`: values that an argument of a prompt or of an address may have.

Only what the source says is known: the values of a `Literal` or an enum, and the names of
tools for their pages. No code runs to complete an argument.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CompleteRequestParams, PromptReference

from toolkiln.model import Role, ToolSpec
from toolkiln.surfaces.mcp.documents import TEMPLATE
from toolkiln.surfaces.mcp.functions import Functions
from toolkiln.surfaces.mcp.prompts import Prompts
from toolkiln.surfaces.mcp.requests import Request
from toolkiln.surfaces.mcp.resources import Resources

_MOST = 100
"""What the protocol lets an answer hold."""
_DEEPEST = 10


class Completing:
    """Completes arguments."""

    def __init__(self, functions: Functions, prompts: Prompts, resources: Resources) -> None:
        self._functions = functions
        self._prompts = prompts
        self._resources = resources

    async def complete(self, request: Request[CompleteRequestParams]) -> dict[str, Any]:
        """The values that begin with what was typed.

        Raises:
            MCPError: there is no such prompt, address or argument.
        """
        typed = request.params.argument.value.casefold()
        values = [one for one in self._values(request) if one.casefold().startswith(typed)]
        found = {"values": values[:_MOST], "total": len(values), "hasMore": len(values) > _MOST}
        return {"completion": found}

    def _values(self, request: Request[CompleteRequestParams]) -> Iterable[str]:
        reference, name = request.params.ref, request.params.argument.name
        spec: ToolSpec | None
        if isinstance(reference, PromptReference):
            spec = self._prompts.find(reference.name, request.session)
        elif reference.uri == TEMPLATE and name == "name":
            return sorted(self._functions.of(request.session, Role.TOOL))
        else:
            spec = self._resources.template(reference.uri, request.session)
        schema = spec.parameters["properties"].get(name) if spec else None
        if spec is None or schema is None:
            raise MCPError(INVALID_PARAMS, f"There is no argument {name!r} to be completed")
        return dict.fromkeys(_choices(schema, spec.parameters.get("$defs", {})))


def _choices(schema: Any, definitions: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """The values that a schema names, as text."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return
    values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
    if schema.get("type") == "boolean":
        values += ["true", "false"]
    yield from (str(value) for value in values if isinstance(value, str | int | float))
    inner = [*schema.get("anyOf", ()), *schema.get("allOf", ())]
    if "$ref" in schema:
        inner.append(definitions.get(schema["$ref"].rpartition("/")[2]))
    for one in inner:
        yield from _choices(one, definitions, depth + 1)
