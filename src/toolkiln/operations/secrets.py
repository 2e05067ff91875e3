"""Operations on secrets and on the settings of tools: values that tools get with their calls.

No operation returns the value of a secret.
"""

from collections import defaultdict
from typing import Annotated, Any

from pydantic import Field

from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model.base import JsonSchema, Value
from toolkiln.model.identity import Privilege
from toolkiln.model.spec import ToolSpec
from toolkiln.operations.operation import Flag, Nothing, OperationContext, operation
from toolkiln.operations.tools import visible_tool


class SecretName(Value):
    """Names a secret."""

    name: str


class SetSecret(Value):
    """Sets a secret in the secrets file."""

    name: str
    value: str


class SecretInfo(Value):
    """A secret, without its value."""

    name: str
    source: str
    """Where calls get it from: a variable, the secrets file or the keyring."""


class SecretList(Value):
    """The secrets that exist, and those without a value that tools request."""

    sources: dict[str, str]
    """Where each comes from."""
    missing: dict[str, tuple[str, ...]]
    """The tools that request a secret without a value."""
    problems: tuple[str, ...]
    """Tools or secrets that cannot be read."""


@operation("secrets.list", privilege=Privilege.ADMIN, act="secret", read_only=True)
def list_secrets(context: OperationContext, _: Nothing) -> SecretList:
    """Return the names of secrets, where they come from, and which are missing."""
    secrets = context.services.security.secrets
    requests: dict[str, list[str]] = defaultdict(list)
    problems: list[str] = []
    try:
        for spec in context.services.registry.specs.values():
            for name in spec.rights.secrets:
                requests[name].append(spec.name)
    except InputError as error:  # there can be secrets without tools
        problems.append(error.message)
    sources = secrets.sources()
    missing: dict[str, tuple[str, ...]] = {}
    for name, tools in sorted(requests.items()):
        try:
            has_value = secrets.get(name) is not None
        except ToolkilnError as error:
            problems.append(error.message)
            has_value = False
        if not has_value:
            missing[name] = tuple(tools)
    return SecretList(sources=sources, missing=missing, problems=tuple(problems))


@operation("secrets.set", privilege=Privilege.ADMIN, act="secret")
def set_secret(context: OperationContext, request: SetSecret) -> SecretInfo:
    """Set a secret; a variable of the environment still takes precedence."""
    security = context.services.security
    security.set_secret(request.name, request.value, context.session)
    return SecretInfo(name=request.name, source=security.secrets.sources().get(request.name, ""))


@operation("secrets.remove", privilege=Privilege.ADMIN, act="secret")
def remove_secret(context: OperationContext, request: SecretName) -> None:
    """Remove a secret from the secrets file.

    Raises:
        InputError: it does not exist, or a variable sets it.
    """
    security, name = context.services.security, request.name
    if name not in security.secrets.sources():
        raise InputError(f"there is no secret {name[:100]!r}", hint="see `toolkiln secrets list`")
    security.set_secret(name, None, context.session)
    if (source := security.secrets.sources().get(name)) is not None:
        raise InputError(f"{name} is set by {source}", hint="unset the variable where it is set")


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
