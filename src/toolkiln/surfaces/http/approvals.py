"""`/v1/approvals`: calls that wait for a person, and the answers.

Everybody sees the requests that their own calls made; those of others take APPROVE.
"""

import asyncio
from typing import Any, Literal

from toolkiln.model import Approval, Remember, Value
from toolkiln.surfaces.http import cursors
from toolkiln.surfaces.http.operations import Operation, Visit
from toolkiln.surfaces.http.shapes import Body, Page, Reason

_MOST_KNOWN = 10_000


class ApprovalsQuery(Page):
    """Which requests."""

    state: Literal["pending", "all"] = "pending"
    """Those that wait, or all that are still kept."""


class ApprovalList(Value):
    """A part of the requests, newest first."""

    items: tuple[Approval, ...]
    next_cursor: str | None


class ApproveBody(Body):
    """How a call is approved."""

    arguments: dict[str, Any] | None = None
    """Other arguments to run with."""
    reason: Reason = ""
    remember: Remember | None = None
    """Not to ask again: about any call of this version in the session, or about exactly
    these arguments."""


class RejectBody(Body):
    """Why a call may not run."""

    reason: Reason = ""


class Forgotten(Value):
    """Whether an answer was remembered, which it is no longer."""

    id: str
    forgotten: bool


async def list_approvals(visit: Visit, query: ApprovalsQuery) -> ApprovalList:
    """The requests that the caller may look at."""

    def listed() -> ApprovalList:
        guarding = visit.kiln.guarding
        may_see = guarding.approvals_for(visit.session)
        known = guarding.approvals
        found = (known.history if query.state == "all" else known.waiting)(_MOST_KNOWN)
        seen = [*filter(may_see, found)]
        items, following = cursors.part(
            "approvals", seen, lambda one: (one.created, one.id), query.cursor, query.limit
        )
        return ApprovalList(items=tuple(items), next_cursor=following)

    return await asyncio.to_thread(listed)


async def get_approval(visit: Visit) -> Approval:
    """One request."""
    return await asyncio.to_thread(visit.kiln.guarding.approval, visit.path["id"], visit.session)


async def approve(visit: Visit, body: ApproveBody) -> Approval:
    """Let a call run."""

    def approved() -> Approval:
        guarding = visit.kiln.guarding
        known = guarding.approval(visit.path["id"], visit.session)
        return guarding.approve(
            known.id,
            session=visit.session,
            arguments=body.arguments,
            reason=body.reason,
            remember=body.remember,
        )

    return await asyncio.to_thread(approved)


async def reject(visit: Visit, body: RejectBody) -> Approval:
    """Keep a call from running."""

    def rejected() -> Approval:
        guarding = visit.kiln.guarding
        known = guarding.approval(visit.path["id"], visit.session)
        return guarding.reject(known.id, session=visit.session, reason=body.reason)

    return await asyncio.to_thread(rejected)


async def forget(visit: Visit) -> Forgotten:
    """Ask again about what an approval was remembered for."""

    def forgotten() -> Forgotten:
        guarding = visit.kiln.guarding
        known = guarding.approval(visit.path["id"], visit.session)
        return Forgotten(id=known.id, forgotten=guarding.forget_approval(known.id, visit.session))

    return await asyncio.to_thread(forgotten)


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/approvals",
        name="list_approvals",
        summary="List calls that wait for a person, newest first",
        handle=list_approvals,
        group="approvals",
        query=ApprovalsQuery,
        answers={200: ApprovalList},
    ),
    Operation(
        method="GET",
        path="/v1/approvals/{id}",
        name="get_approval",
        summary="Get a call that waits: who makes it, why it waits, its exact arguments",
        description="The first six characters of an id, or more, serve as well.",
        handle=get_approval,
        group="approvals",
        answers={200: Approval},
    ),
    Operation(
        method="POST",
        path="/v1/approvals/{id}/approve",
        name="approve",
        summary="Let a call run",
        description="Takes the privilege APPROVE. Callers approve their own calls only where a "
        "rule says `approve_own = true`; the local person may unless it says `false`.",
        handle=approve,
        group="approvals",
        body=ApproveBody,
        answers={200: Approval},
        problems=(409,),
        idempotent_by_key=True,
        examples={"edited": {"arguments": {"amount": 10}, "reason": "not more than that"}},
    ),
    Operation(
        method="POST",
        path="/v1/approvals/{id}/reject",
        name="reject",
        summary="Keep a call from running",
        description="Takes the privilege APPROVE.",
        handle=reject,
        group="approvals",
        body=RejectBody,
        answers={200: Approval},
        problems=(409,),
        idempotent_by_key=True,
    ),
    Operation(
        method="POST",
        path="/v1/approvals/{id}/forget",
        name="forget_approval",
        summary="Ask again about what an approval was remembered for",
        description="Takes the privilege APPROVE.",
        handle=forget,
        group="approvals",
        answers={200: Forgotten},
        idempotent_by_key=True,
    ),
)
