"""`/v1/tools/{name}/settings`: what a tool is handed with its calls. Secrets are never shown."""

from typing import Annotated, Any

from pydantic import Field

from toolkiln.app import errands
from toolkiln.surfaces.http.operations import Operation, Visit
from toolkiln.surfaces.http.shapes import Body, Flag, Name, Query


class SettingsQuery(Query):
    """Whose settings."""

    own: Flag = False
    """The caller's own instead of the operator's."""
    user: Name | None = None
    """Those of a user; of others than oneself it takes ADMIN."""


class SettingsPatch(Body):
    """What to set; what is left out stays."""

    values: dict[str, Any] = Field(default_factory=dict)
    unset: Annotated[list[str], Field(max_length=200)] = Field(default_factory=list)
    """The names of values to be forgotten."""


async def get_settings(visit: Visit, query: SettingsQuery) -> errands.ToolSettings:
    """What is set."""
    errand = errands.ShowSettings(name=visit.path["name"], user=_whose(visit, query))
    return await visit.kiln.tend(errand, visit.session)


async def patch_settings(
    visit: Visit, query: SettingsQuery, body: SettingsPatch
) -> errands.ToolSettings:
    """Set some values."""
    errand = errands.SetTool(
        name=visit.path["name"],
        values=body.values,
        unset=tuple(body.unset),
        user=_whose(visit, query),
    )
    return await visit.kiln.tend(errand, visit.session)


def _whose(visit: Visit, query: SettingsQuery) -> str:
    """The user as settings name them; empty for the operator."""
    return query.user or (visit.caller.who if query.own else "")


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
        answers={200: errands.ToolSettings},
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
        answers={200: errands.ToolSettings},
        idempotent_by_key=True,
        examples={"set": {"values": {"unit": "celsius"}, "unset": ["city"]}},
    ),
)
