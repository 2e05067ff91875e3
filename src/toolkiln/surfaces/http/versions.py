"""`/v1/tools/{name}/versions`: what was served before, and the way back to it."""

import asyncio
from typing import Annotated

from pydantic import Field

from toolkiln.app import Caretaking
from toolkiln.errors import InputError
from toolkiln.model import Privilege, Value, Version
from toolkiln.surfaces.http import cursors
from toolkiln.surfaces.http.operations import Answer, Operation, Visit
from toolkiln.surfaces.http.preconditions import expected, tag
from toolkiln.surfaces.http.shapes import Body, Page, Query
from toolkiln.surfaces.http.tools import seen


class KeptVersion(Value):
    """One version of a tool's file."""

    version: int
    digest: str
    action: str
    """`admit`, `rollback` or `dev`."""
    by: str
    at: str
    """UTC, ISO 8601."""
    tools: tuple[str, ...]
    """The tools that it declares."""
    note: str
    served: bool
    """Whether it is the one that calls run."""


class VersionList(Value):
    """A part of a tool's history, newest first."""

    items: tuple[KeptVersion, ...]
    next_cursor: str | None


class VersionDetails(KeptVersion):
    """A version with its source."""

    sources: dict[str, str]
    """The file, first, and its helper modules, by name."""
    diff: str | None
    """What changed since the version that was asked for."""


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

    def listed() -> VersionList:
        name = visit.path["name"]
        _refuse_unseen(visit, name)
        found = visit.kiln.admissions.history(name)
        items, following = cursors.part(
            "versions", found, lambda one: (float(one.number), ""), query.cursor, query.limit
        )
        shown = tuple(_kept(visit, name, version) for version in items)
        return VersionList(items=shown, next_cursor=following)

    return await asyncio.to_thread(listed)


async def get_version(visit: Visit, query: VersionQuery) -> VersionDetails:
    """One version, with its source."""

    def got() -> VersionDetails:
        name, admissions = visit.path["name"], visit.kiln.admissions
        visit.kiln.guarding.require(visit.session, Privilege.WRITE_TOOLS, "source.show")
        _refuse_unseen(visit, name)
        version = admissions.version(name, visit.path["version"])
        sources = {
            file: data.decode("utf-8", "replace")
            for file, data in admissions.sources(version).items()
        }
        diff = None
        if query.since is not None:
            diff = admissions.diff(name, query.since, str(version.number))
        kept = _kept(visit, name, version)
        return VersionDetails(**kept.model_dump(), sources=sources, diff=diff)

    return await asyncio.to_thread(got)


async def roll_back(visit: Visit, body: RollbackBody) -> Answer:
    """Serve an earlier version again."""

    def rolled_back() -> KeptVersion:
        name, kiln = visit.path["name"], visit.kiln
        kiln.guarding.require(visit.session, Privilege.ADMIN, "rollback")
        served = kiln.catalog.snapshot.served.get(name)
        digest = expected(visit, served.read.digest if served else None)
        version = Caretaking(kiln, visit.session).rollback(
            name, str(body.version), digest=digest, discard=body.discard
        )
        return _kept(visit, name, version)

    version = await asyncio.to_thread(rolled_back)
    return Answer(version, headers={"etag": tag(version.digest)})


def _refuse_unseen(visit: Visit, name: str) -> None:
    """People with ADMIN also look back at tools that are not served any more."""
    try:
        seen(visit, name)
    except InputError:
        if Privilege.ADMIN not in visit.caller.privileges:
            raise


def _kept(visit: Visit, name: str, version: Version) -> KeptVersion:
    served = visit.kiln.catalog.snapshot.served.get(name)
    return KeptVersion(
        version=version.number,
        digest=version.digest,
        action=version.action,
        by=version.by,
        at=version.at,
        tools=version.tools,
        note=version.note,
        served=served is not None and served.admission.version == version.number,
    )


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
        answers={200: VersionDetails},
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
        answers={200: KeptVersion},
        problems=(409,),
        preconditions=("If-Match",),
        idempotent_by_key=True,
        examples={"first": {"version": 1}},
    ),
)
