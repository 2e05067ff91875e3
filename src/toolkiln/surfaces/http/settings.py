"""`/v1/tools/{name}/settings`: what a tool is handed with its calls. Secrets are never shown."""

import asyncio
from typing import Annotated, Any

from pydantic import Field

from toolkiln.model import JsonSchema, Privilege, ToolSpec, Value
from toolkiln.surfaces.http.operations import Operation, Visit
from toolkiln.surfaces.http.shapes import Body, Flag, Name, Query
from toolkiln.surfaces.http.tools import seen


class SettingsQuery(Query):
    """Whose settings."""

    own: Flag = False
    """The caller's own instead of the operator's."""
    user: Name | None = None
    """Those of a user; of others than oneself it takes ADMIN."""


class ToolSettings(Value):
    """The settings of a tool, for the operator or one user."""

    tool: str
    user: str | None
    """Null: the operator's."""
    parameters: JsonSchema
    """JSON Schema of the values."""
    values: dict[str, Any]
    """What is set; a secret is there as `(secret, set)`."""
    missing: str | None
    """What keeps the tool from running, in words."""


class SettingsPatch(Body):
    """What to set; what is left out stays."""

    values: dict[str, Any] = Field(default_factory=dict)
    unset: Annotated[list[str], Field(max_length=200)] = Field(default_factory=list)
    """The names of values to be forgotten."""


async def get_settings(visit: Visit, query: SettingsQuery) -> ToolSettings:
    """What is set."""

    def got() -> ToolSettings:
        spec, user = seen(visit, visit.path["name"]), _whose(visit, query)
        if user != visit.caller.who:
            visit.kiln.guarding.require(visit.session, Privilege.ADMIN, "settings")
        return _settings(visit, spec, user)

    return await asyncio.to_thread(got)


async def patch_settings(visit: Visit, query: SettingsQuery, body: SettingsPatch) -> ToolSettings:
    """Set some values."""

    def patched() -> ToolSettings:
        spec, user = seen(visit, visit.path["name"]), _whose(visit, query)
        visit.kiln.guarding.set_tool(
            spec, body.values, removed=frozenset(body.unset), user=user, session=visit.session
        )
        return _settings(visit, spec, user)

    return await asyncio.to_thread(patched)


def _whose(visit: Visit, query: SettingsQuery) -> str:
    """The user as settings name them; empty for the operator."""
    return query.user or (visit.caller.who if query.own else "")


def _settings(visit: Visit, spec: ToolSpec, user: str) -> ToolSettings:
    settings = visit.kiln.guarding.tool_settings
    return ToolSettings(
        tool=spec.name,
        user=user or None,
        parameters=settings.schema(spec, user),
        values=settings.shown(spec, user),
        missing=settings.missing(spec, user),
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/tools/{name}/settings",
        name="get_settings",
        summary="Get the settings of a tool, secrets masked",
        description="The operator's take ADMIN; with `own=true` one's own.",
        handle=get_settings,
        group="tools",
        query=SettingsQuery,
        answers={200: ToolSettings},
    ),
    Operation(
        method="PATCH",
        path="/v1/tools/{name}/settings",
        name="patch_settings",
        summary="Set what a tool is handed with its calls",
        description="The operator's take ADMIN; with `own=true` one's own.",
        handle=patch_settings,
        group="tools",
        query=SettingsQuery,
        body=SettingsPatch,
        answers={200: ToolSettings},
        idempotent_by_key=True,
        examples={"set": {"values": {"unit": "celsius"}, "unset": ["city"]}},
    ),
)
