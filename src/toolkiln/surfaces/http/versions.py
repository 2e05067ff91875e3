"""`/v1/tools/{name}/versions`: what was served before, and the way back to it."""

from typing import Annotated

from pydantic import Field

from toolkiln.app import errands
from toolkiln.model import Value
from toolkiln.surfaces.http import cursors
from toolkiln.surfaces.http.operations import Answer, Operation, Visit
from toolkiln.surfaces.http.preconditions import expected, tag
from toolkiln.surfaces.http.shapes import Body, Page, Query


class VersionList(Value):
    """A part of a tool's history, newest first."""

    items: tuple[errands.KeptVersion, ...]
    next_cursor: str | None


class VersionQuery(Query):
    """What to show of a version."""

    since: Annotated[str | None, Field(min_length=1, max_length=64)] = None
    """Another version, to show what changed."""


class RollbackBody(Body):
    """Which version to serve again."""

    version: Annotated[str, Field(min_length=1, max_length=64)] | Annotated[int, Field(ge=1)]
    """Its number, or how its digest begins."""
    discard: bool = False
    """Whether changes on disk may go that nobody admitted."""


async def list_versions(visit: Visit, query: Page) -> VersionList:
    """The admitted versions of a tool's file."""
    found = await visit.kiln.tend(errands.ListVersions(name=visit.path["name"]), visit.session)
    items, following = cursors.part(
        "versions", found, lambda one: (float(one.version), ""), query.cursor, query.limit
    )
    return VersionList(items=tuple(items), next_cursor=following)


async def get_version(visit: Visit, query: VersionQuery) -> errands.VersionDetails:
    """One version, with its source."""
    errand = errands.ShowVersion(
        name=visit.path["name"], version=visit.path["version"], since=query.since
    )
    return await visit.kiln.tend(errand, visit.session)


async def roll_back(visit: Visit, body: RollbackBody) -> Answer:
    """Serve an earlier version again."""
    errand = errands.RollBack(
        name=visit.path["name"],
        version=str(body.version),
        discard=body.discard,
        match=expected(visit),
    )
    version = await visit.kiln.tend(errand, visit.session)
    return Answer(version, headers={"etag": tag(version.digest)})


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/tools/{name}/versions",
        name="list_versions",
        summary="List the versions of a tool, newest first",
        handle=list_versions,
        group="tools",
        query=Page,
        answers={200: VersionList},
    ),
    Operation(
        method="GET",
        path="/v1/tools/{name}/versions/{version}",
        name="get_version",
        summary="Get a version with its source",
        description="Takes the privilege WRITE_TOOLS.",
        handle=get_version,
        group="tools",
        query=VersionQuery,
        answers={200: errands.VersionDetails},
    ),
    Operation(
        method="POST",
        path="/v1/tools/{name}/rollback",
        name="roll_back",
        summary="Serve an earlier version again",
        description="Takes the privilege ADMIN. Brings back a tool that was removed, too.",
        handle=roll_back,
        group="tools",
        body=RollbackBody,
        answers={200: errands.KeptVersion},
        problems=(409,),
        preconditions=("If-Match",),
        idempotent_by_key=True,
        examples={"first": {"version": 1}},
    ),
)
