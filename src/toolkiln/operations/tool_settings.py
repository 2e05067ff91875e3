"""Operations on the settings of tools: values that a tool gets with its calls."""

from typing import Annotated, Any

from pydantic import Field

from toolkiln.model.base import JsonSchema, Value
from toolkiln.model.identity import Privilege
from toolkiln.model.spec import ToolSpec
from toolkiln.operations.operation import OperationContext, operation
from toolkiln.operations.pages import Flag
from toolkiln.operations.tools import visible_tool


class ToolSettings(Value):
    """The settings of a tool, of the operator or one user."""

    tool: str
    user: str | None
    """Null: the operator's."""
    parameters: JsonSchema
    """JSON Schema of the values."""
    values: dict[str, Any]
    """The values that are set; a secret appears as `(secret, set)`."""
    missing: str | None
    """What keeps the tool from running, in words."""


class GetToolSettings(Value):
    """Names settings of a tool."""

    name: str
    user: str = ""
    """Empty: the operator's."""


class UpdateToolSettings(Value):
    """Sets and removes settings of a tool."""

    name: str
    values: dict[str, Any]
    unset: tuple[str, ...] = ()
    """Names of values to remove."""
    user: str = ""
    """Empty: the operator's."""


class ShowToolSettings(Value):
    """Names settings of a tool: the operator's, the caller's own, or those of a user."""

    name: str
    own: Flag = False
    """The caller's own instead of the operator's."""
    user: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Those of a user; other users require ADMIN."""


class SetToolSettings(ShowToolSettings):
    """Sets and removes settings of a tool; omitted ones stay."""

    values: dict[str, Any] = Field(default_factory=dict)
    unset: Annotated[list[str], Field(max_length=200)] = Field(default_factory=list)
    """Names of values to remove."""


@operation("tool_settings.show", read_only=True)
async def show_tool_settings(context: OperationContext, request: ShowToolSettings) -> ToolSettings:
    """Return the settings of a tool; those of others require ADMIN."""
    user = _user(context, request)
    return await context.run(get_tool_settings, GetToolSettings(name=request.name, user=user))


@operation("tool_settings.set")
async def set_tool_settings(context: OperationContext, request: SetToolSettings) -> ToolSettings:
    """Set settings of a tool; those of others require ADMIN."""
    update = UpdateToolSettings(
        name=request.name,
        values=request.values,
        unset=tuple(request.unset),
        user=_user(context, request),
    )
    return await context.run(update_tool_settings, update)


def _user(context: OperationContext, request: ShowToolSettings) -> str:
    """Return whose settings are requested; empty for the operator's."""
    return request.user or (context.caller.who if request.own else "")


@operation("tool_settings.get", read_only=True, timeout=15.0, routing="worker")
def get_tool_settings(context: OperationContext, request: GetToolSettings) -> ToolSettings:
    """Return the settings of a tool; those of others require ADMIN."""
    spec = visible_tool(context, request.name)
    if request.user != context.caller.who:
        context.require(Privilege.ADMIN, "settings")
    return _settings(context, spec, request.user)


@operation("tool_settings.update", routing="worker")
def update_tool_settings(context: OperationContext, request: UpdateToolSettings) -> ToolSettings:
    """Set settings of a tool; those of others require ADMIN."""
    spec, removed = visible_tool(context, request.name), frozenset(request.unset)
    context.services.security.change_tool_settings(
        spec, request.values, removed=removed, user=request.user, session=context.session
    )
    return _settings(context, spec, request.user)


def _settings(context: OperationContext, spec: ToolSpec, user: str) -> ToolSettings:
    settings = context.services.security.tool_settings
    served = context.services.registry.snapshot.served.get(spec.name)
    withheld = "a person with ADMIN has to admit this version, which a caller wrote"
    is_withheld = served is not None and not served.is_reviewed
    return ToolSettings(
        tool=spec.name,
        user=user or None,
        parameters=settings.schema(spec, user),
        values=settings.masked_values(spec, user),
        missing=withheld if is_withheld else settings.missing(spec, user),
    )


OPERATIONS = (show_tool_settings, set_tool_settings, get_tool_settings, update_tool_settings)
