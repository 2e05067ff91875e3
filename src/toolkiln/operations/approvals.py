"""Approval operations: calls that wait for a person, and the decisions about them.

Callers see the requests of their own calls; those of others require APPROVE. Who may decide is
checked by `security`.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from toolkiln.errors import NotFound
from toolkiln.model.base import Page, Value
from toolkiln.model.identity import Privilege
from toolkiln.model.policy import Approval, Remember
from toolkiln.operations.operation import OperationContext, PageQuery, operation, page_of

_MOST_LISTED = 10_000
Reason = Annotated[str, Field(max_length=2_000)]


class ApprovalQuery(PageQuery):
    """Selects requests for approval."""

    state: Literal["pending", "all"] = "pending"
    """The pending ones, or all that are still stored."""


class ApprovalRef(Value):
    """Names a request for approval."""

    id: str
    """Its id, or at least the first six characters."""


class ApproveCall(ApprovalRef):
    """Approves a call."""

    arguments: dict[str, Any] | None = None
    """Other arguments to run with."""
    reason: Reason = ""
    remember: Remember | None = None
    """What to approve without asking again: any call of this version in the session, or calls
    with exactly these arguments."""


class RejectCall(ApprovalRef):
    """Rejects a call."""

    reason: Reason = ""


class ForgottenApproval(Value):
    """Whether an approval was remembered. It is not any more."""

    id: str
    forgotten: bool


@operation("approvals.list", read_only=True)
def list_approvals(context: OperationContext, request: ApprovalQuery) -> Page[Approval]:
    """Return the requests that the caller may see, newest first."""
    security = context.services.security
    may_see = security.approvals_for(context.session)
    approvals = security.approvals
    read = approvals.history if request.state == "all" else approvals.waiting
    items, following = page_of(
        "approvals",
        [approval for approval in read(_MOST_LISTED) if may_see(approval)],
        lambda approval: (approval.created, approval.id),
        request.cursor,
        request.limit,
    )
    return Page(items=tuple(items), next_cursor=following)


@operation("approvals.get", read_only=True)
def get_approval(context: OperationContext, request: ApprovalRef) -> Approval:
    """Return a request that the caller may see."""
    return context.services.security.approval(request.id, context.session)


@operation("approvals.approve", act="approve")
def approve(context: OperationContext, request: ApproveCall) -> Approval:
    """Approve a pending call, with its own arguments or with others."""
    security = context.services.security
    return security.approve(
        _visible(context, request.id, "approve").id,
        session=context.session,
        arguments=request.arguments,
        reason=request.reason,
        remember=request.remember,
    )


@operation("approvals.reject", act="reject")
def reject(context: OperationContext, request: RejectCall) -> Approval:
    """Reject a pending call."""
    approval = _visible(context, request.id, "reject")
    return context.services.security.reject(
        approval.id, session=context.session, reason=request.reason
    )


@operation("approvals.forget", privilege=Privilege.APPROVE, act="approval.forget")
def forget_approval(context: OperationContext, request: ApprovalRef) -> ForgottenApproval:
    """Ask a person again about calls that a remembered approval covered."""
    approval = _visible(context, request.id, "approval.forget")
    forgotten = context.services.security.forget_approval(approval.id, context.session)
    return ForgottenApproval(id=approval.id, forgotten=forgotten)


def _visible(context: OperationContext, approval_id: str, act: str) -> Approval:
    """Return a request that the caller may see; the audit log records a denial as `act`."""
    security = context.services.security
    try:
        return security.approval(approval_id, context.session)
    except NotFound:
        if security.approvals.get(approval_id) is not None:
            security.recording.denied(act, context.caller, f"lacks {Privilege.APPROVE}")
        raise
