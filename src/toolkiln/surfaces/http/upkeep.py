"""What a server stands on: its sandbox, environments, settings, and the fleet it belongs to."""

import asyncio
from datetime import timedelta
from importlib.metadata import version
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from toolkiln.app import LIVE, Diagnosis, Entry, operating
from toolkiln.config import described
from toolkiln.model import Caller, Privilege, Value
from toolkiln.surfaces.http.operations import Operation, Visit
from toolkiln.surfaces.http.shapes import Body


class ShownEnvironment(Value):
    """Packages that were installed for tools."""

    key: str
    packages: dict[str, str]
    """The version of each."""
    size: int
    """Bytes."""
    built: float
    last_used: float
    requirements: tuple[tuple[str, ...], ...]
    """The sets of requirements that lead to it."""


class EnvironmentList(Value):
    """All environments, last used first."""

    items: tuple[ShownEnvironment, ...]


class PruneBody(Body):
    """Which environments are removed."""

    days: Annotated[float, Field(ge=0, le=36_500)]
    """Those that nobody has used for so long, and nobody uses."""


class _State(Value):
    """What is read off a state of the fleet's own."""

    model_config = ConfigDict(from_attributes=True)


class ShownPool(_State):
    """The calls of one pool."""

    name: str
    waiting: int
    oldest: float
    """Seconds for which the first of them waits."""
    running: int
    """Calls that workers hold, those of workers that died among them."""
    dead: int
    """Calls that were given up."""


class ShownWorker(_State):
    """One worker."""

    name: str
    pool: str
    state: str
    """`running`, or `draining` when it takes no more calls."""
    running: int
    """Calls that it holds."""
    slots: int
    version: str
    host: str
    pid: int
    seconds: float
    """Since it started."""


class ShownFleet(_State):
    """The fleet at one moment."""

    server: str
    version: str
    """Of Redis."""
    memory: int
    """Bytes that Redis uses."""
    tools: int
    warnings: tuple[str, ...]
    pools: tuple[ShownPool, ...]
    workers: tuple[ShownWorker, ...]


class FleetAnswer(Value):
    """Whether there is a fleet, and how it stands."""

    state: ShownFleet | None
    """Null: no Redis is set."""


class ShownSetting(Value):
    """One setting."""

    name: str
    value: Any
    """Null where it is hidden."""
    hidden: bool
    """Whether it is set and not shown, since it holds a password."""
    origin: str
    """A file, a variable, `default`, or `program`: an option, or whoever started the server."""
    live: bool
    """Whether a change of the file counts without a restart."""


class SettingList(Value):
    """All settings in force."""

    version: str
    """Of Toolkiln."""
    file: str | None
    """The settings file, whether it is there or not."""
    items: tuple[ShownSetting, ...]


async def diagnose(visit: Visit) -> Diagnosis:
    """Every mode of the sandbox, tried out."""
    await _admin(visit, "doctor")
    return await visit.kiln.doctor()


async def list_environments(visit: Visit) -> EnvironmentList:
    """What is installed."""
    await _admin(visit, "environment.list")
    found = await visit.kiln.engine.environments.entries()
    return EnvironmentList(items=tuple(map(_environment, found)))


async def prune_environments(visit: Visit, body: PruneBody) -> EnvironmentList:
    """Remove what nobody has used for long; told is what was removed."""
    admin = await _admin(visit, "environment.prune")
    detail = f"unused for {body.days:g} days"
    await asyncio.to_thread(visit.kiln.guarding.record, "environment.prune", admin, detail=detail)
    removed = await visit.kiln.engine.environments.prune(timedelta(days=body.days))
    return EnvironmentList(items=tuple(map(_environment, removed)))


async def show_fleet(visit: Visit) -> FleetAnswer:
    """How the fleet stands."""
    await _admin(visit, "fleet.show")
    settings = visit.kiln.settings
    url = settings.fleet or settings.redis
    if not url:
        return FleetAnswer(state=None)
    async with operating(url) as operator:
        return FleetAnswer(state=ShownFleet.model_validate(await operator.state()))


async def list_settings(visit: Visit) -> SettingList:
    """What is set, and where."""

    def listed() -> SettingList:
        visit.kiln.guarding.require(visit.session, Privilege.ADMIN, "settings.list")
        settings = visit.kiln.guarding.live.current()
        items = (
            ShownSetting(
                name=one.name,
                value=one.value,
                hidden=one.is_hidden,
                origin=one.origin,
                live=one.name in LIVE,
            )
            for one in described(settings)
        )
        file = None if settings.source is None else str(settings.source)
        return SettingList(version=version("toolkiln"), file=file, items=tuple(items))

    return await asyncio.to_thread(listed)


async def _admin(visit: Visit, what: str) -> Caller:
    require = visit.kiln.guarding.require
    return await asyncio.to_thread(require, visit.session, Privilege.ADMIN, what)


def _environment(entry: Entry) -> ShownEnvironment:
    return ShownEnvironment(
        key=entry.key,
        packages=entry.packages,
        size=entry.size,
        built=entry.built.timestamp(),
        last_used=entry.last_used.timestamp(),
        requirements=entry.requirements,
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/doctor",
        name="diagnose",
        summary="Try every mode of the sandbox on the server's machine",
        description="Takes the privilege ADMIN, and some seconds.",
        handle=diagnose,
        group="operating",
        answers={200: Diagnosis},
    ),
    Operation(
        method="GET",
        path="/v1/environments",
        name="list_environments",
        summary="List the packages that were installed for tools, last used first",
        description="Takes the privilege ADMIN.",
        handle=list_environments,
        group="operating",
        answers={200: EnvironmentList},
    ),
    Operation(
        method="POST",
        path="/v1/environments/prune",
        name="prune_environments",
        summary="Remove environments that nobody has used for long, and tell which",
        description="Takes the privilege ADMIN. They are built again when a tool needs them.",
        handle=prune_environments,
        group="operating",
        body=PruneBody,
        answers={200: EnvironmentList},
        idempotent_by_key=True,
        examples={"month": {"days": 30}},
    ),
    Operation(
        method="GET",
        path="/v1/fleet",
        name="show_fleet",
        summary="Tell how the fleet stands: its pools and workers",
        description="Takes the privilege ADMIN.",
        handle=show_fleet,
        group="operating",
        answers={200: FleetAnswer},
    ),
    Operation(
        method="GET",
        path="/v1/settings",
        name="list_settings",
        summary="List the settings in force, and where each comes from",
        description="Takes the privilege ADMIN. Passwords are hidden.",
        handle=list_settings,
        group="operating",
        answers={200: SettingList},
    ),
)
