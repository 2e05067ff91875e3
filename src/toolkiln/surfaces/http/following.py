"""`/v1/events`: what changes for the caller, all in one stream: tools, runs, approvals.

One for everything, because a browser holds few connections to a server. Runs are told in
portions, so that many short ones cost little. What a call tells while it runs `streams` has.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from toolkiln.app import NoSession, Run, Seen
from toolkiln.errors import ToolkilnError
from toolkiln.model import Caller, Value
from toolkiln.surfaces.http.operations import Answer, Operation, Visit
from toolkiln.surfaces.http.runs import RunItem, item
from toolkiln.surfaces.http.shapes import Query
from toolkiln.surfaces.http.streams import Lost

_PORTION = 0.2
"""Seconds for which runs are collected before they are told."""
_LOOK = 1.0
"""Seconds between looks at what waits for a person, perhaps in another process."""

Events = AsyncIterator[tuple[str, BaseModel]]


class CatalogState(Value):
    """That changes are told from here on."""

    tools: int
    """How many the caller may run."""


class CatalogChange(Value):
    """What is different for the caller: files, switches or rules have changed."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    """With another version."""
    removed: tuple[str, ...]


class ApprovalsWaiting(Value):
    """That other calls than before wait for the caller's decision."""

    pending: int
    """How many."""


class FollowQuery(Query):
    """How long to follow."""

    seconds: Annotated[float | None, Field(ge=0, le=86_400, allow_inf_nan=False)] = None
    """After how many the stream ends; without, it does not end by itself."""


async def follow_catalog(visit: Visit, query: FollowQuery) -> Answer:
    """What changes for the caller."""
    return Answer(events=_changes(visit, query.seconds))


async def _changes(visit: Visit, seconds: float | None) -> Events:
    loop = asyncio.get_running_loop()
    end = None if seconds is None else loop.time() + seconds
    followed = _Followed(visit)
    # Listening has to begin before the first look, or what comes between would be missed.
    forget = visit.kiln.changes.listen(lambda _: followed.catalog_changed())
    try:
        with visit.kiln.runs.following(followed.run_changed) as runs:
            before = await _visible(visit)
            yield "ready", CatalogState(tools=len(before))
            while await followed.came(end):
                if followed.is_catalog_changed():
                    after = await _visible(visit)
                    if after != before:
                        yield "catalog", _difference(before, after)
                    before = after
                if (caller := await _caller(visit)) is None:
                    continue
                changed, lost = runs.take()
                for run in followed.moved(caller, changed):
                    yield "run", run
                if lost:
                    yield "lost", Lost(count=lost)
                if (waiting := await followed.waiting(caller)) is not None:
                    yield "approvals", ApprovalsWaiting(pending=waiting)
    except NoSession:
        return  # it ended or expired, and whoever held it is told nothing more
    finally:
        forget()
        followed.close()


class _Followed:
    """What one client was told, and what there may be to tell."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._loop = asyncio.get_running_loop()
        self._came = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._is_catalog_changed = False
        self._pending: dict[Run, str] = {}
        """The runs that may change without a sign of it, as they were told."""
        self._waiting: frozenset[str] = frozenset()

    def catalog_changed(self) -> None:
        """Tools may be others."""
        self._is_catalog_changed = True
        self._came.set()

    def run_changed(self) -> None:
        """There is something to tell of runs, in a moment."""
        if self._timer is None:
            self._timer = self._loop.call_later(_PORTION, self._came.set)

    async def came(self, end: float | None) -> bool:
        """Wait until there may be something to tell; False: it is time to end."""
        left = _LOOK if end is None else min(_LOOK, end - self._loop.time())
        try:
            async with asyncio.timeout(max(0.0, left)):
                await self._came.wait()
        except TimeoutError:
            if end is not None and self._loop.time() >= end:
                return False
        self._came.clear()
        self.close()
        return True

    def is_catalog_changed(self) -> bool:
        """Whether tools may be others than at the last question."""
        is_changed, self._is_catalog_changed = self._is_catalog_changed, False
        return is_changed

    def moved(self, caller: Caller, changed: Sequence[Run]) -> list[RunItem]:
        """The runs that are others than they were told, of those that the caller may see."""
        may_see = self._visit.kiln.history.may_see(caller)
        answered = [run for run, told in self._pending.items() if run.status != told]
        items = []
        for run in dict.fromkeys((*changed, *answered)):
            self._pending.pop(run, None)
            seen = Seen(run.record, run)
            if may_see(seen.record):
                items.append(item(seen))
                if run.approval is not None and run.is_running:
                    self._pending[run] = seen.status
        return items

    async def waiting(self, caller: Caller) -> int | None:
        """How many calls wait for the caller's decision; None: the same as before."""
        try:
            is_local = self._visit.kiln.guarding.is_local_person(self._visit.session)
            found = await self._visit.kiln.awaited.by(caller, is_local=is_local)
        except ToolkilnError:  # the store is away: nobody can decide anything either
            return None
        if found == self._waiting:
            return None
        self._waiting = found
        return len(found)

    def close(self) -> None:
        """Stop the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def _caller(visit: Visit) -> Caller | None:
    """Who listens, with the privileges of this moment; None: that cannot be found out now."""
    try:
        return await visit.kiln.guarding.guard.caller(visit.session)
    except NoSession:
        raise
    except ToolkilnError:  # the store is away; what there is to tell waits
        return None


async def _visible(visit: Visit) -> dict[str, str]:
    """The digest of each tool, prompt or resource that the caller may run, by name."""

    def seen() -> dict[str, str]:
        try:
            found = visit.kiln.visible(visit.session, None)
        except NoSession:
            raise
        except ToolkilnError:  # nothing is served at present
            return {}
        return {name: spec.digest for name, spec in found.items()}

    return await asyncio.to_thread(seen)


def _difference(before: Mapping[str, str], after: Mapping[str, str]) -> CatalogChange:
    both = before.keys() & after.keys()
    return CatalogChange(
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(sorted(name for name in both if before[name] != after[name])),
        removed=tuple(sorted(before.keys() - after.keys())),
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/events",
        name="follow_catalog",
        summary="Follow what changes: the tools that the caller may run, runs, approvals",
        description="Always a stream, which begins with `ready`. A `run` is told when it begins, "
        "tells something or ends, a few times a second at most.",
        handle=follow_catalog,
        group="tools",
        query=FollowQuery,
        answers={200: None},
        events={
            "ready": CatalogState,
            "catalog": CatalogChange,
            "run": RunItem,
            "lost": Lost,
            "approvals": ApprovalsWaiting,
        },
    ),
)
