"""`completion/complete`: suggested values for arguments of prompts and resource templates.

The suggestions come from schemas (`Literal` and enum values) and from the names of the tools.
No tool code runs to complete an argument.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CompleteRequestParams, PromptReference

from toolkiln.model.spec import Role, ToolSpec
from toolkiln.surfaces.mcp.prompts import McpCatalog, Prompts
from toolkiln.surfaces.mcp.requests import McpRequest
from toolkiln.surfaces.mcp.resources import PAGE_TEMPLATE, Resources

_MAX_VALUES = 100
"""The limit of the protocol."""
_MAX_DEPTH = 10


class Completion:
    """The handler of `completion/complete`."""

    def __init__(self, catalog: McpCatalog, prompts: Prompts, resources: Resources) -> None:
        self._catalog = catalog
        self._prompts = prompts
        self._resources = resources

    async def complete(self, request: McpRequest[CompleteRequestParams]) -> dict[str, Any]:
        """Return the values that start with the client's text.

        Raises:
            MCPError: the prompt, template or argument is unknown.
        """
        prefix = request.params.argument.value.casefold()
        values = [value for value in self._values(request) if value.casefold().startswith(prefix)]
        return {
            "completion": {
                "values": values[:_MAX_VALUES],
                "total": len(values),
                "hasMore": len(values) > _MAX_VALUES,
            }
        }

    def _values(self, request: McpRequest[CompleteRequestParams]) -> Iterable[str]:
        reference, name = request.params.ref, request.params.argument.name
        spec: ToolSpec | None
        if isinstance(reference, PromptReference):
            spec = self._prompts.find(reference.name, request.session)
        elif reference.uri == PAGE_TEMPLATE and name == "name":
            return sorted(self._catalog.visible(request.session, Role.TOOL))
        else:
            spec = self._resources.find_template(reference.uri, request.session)
        schema = spec.parameters["properties"].get(name) if spec else None
        if spec is None or schema is None:
            raise MCPError(INVALID_PARAMS, f"There is no argument {name!r} to complete")
        return dict.fromkeys(_choices(schema, spec.parameters.get("$defs", {})))


def _choices(schema: Any, definitions: dict[str, Any], depth: int = 0) -> Iterator[str]:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
    if schema.get("type") == "boolean":
        values += ["true", "false"]
    yield from (str(value) for value in values if isinstance(value, str | int | float))
    inner = [*schema.get("anyOf", ()), *schema.get("allOf", ())]
    if "$ref" in schema:
        inner.append(definitions.get(schema["$ref"].rpartition("/")[2]))
    for subschema in inner:
        yield from _choices(subschema, definitions, depth + 1)
