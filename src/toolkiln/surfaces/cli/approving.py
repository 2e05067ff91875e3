"""Commands about calls that wait for a person: which there are, what they would do, yes or no.

Who acts for the holder of a session sees the calls of others only with APPROVE; whether they
may answer is decided by `app`.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkiln.errors import InputError
from toolkiln.model import Approval, Remember
from toolkiln.surfaces.cli.arguments import parse_object
from toolkiln.surfaces.cli.opening import authenticate, open_kiln
from toolkiln.surfaces.cli.tables import exact_json, one_line, print_table, when
from toolkiln.surfaces.cli.terminal import print_json, say


@dataclass(frozen=True)
class Yes:
    """How a call is approved."""

    reason: str = ""
    edit: str | None = None
    remember: Remember | None = None


def approvals_list(token: str | None, *, everything: bool, as_json: bool) -> None:
    """Print the calls that wait, or all that are still known."""
    with open_kiln() as kiln:
        approvals = kiln.guarding.approvals
        may_see = kiln.guarding.approvals_for(authenticate(kiln, token))
        found = approvals.history() if everything else approvals.waiting()
        found = [approval for approval in found if may_see(approval)]
    if as_json:
        print_json([approval.model_dump(mode="json") for approval in found])
        return
    if not found:
        say("nothing is known" if everything else "nothing waits", err=True)
        return
    print_table(
        ("id", "state", "tool", "user", "until", "why"),
        [(a.id, a.state, a.tool, a.user, when(a.expires), a.why) for a in found],
    )


def show(approval_id: str, token: str | None, *, as_json: bool) -> None:
    """Print what somebody has to know who decides."""
    with open_kiln() as kiln:
        approval = kiln.guarding.approval(approval_id, authenticate(kiln, token))
    if as_json:
        print_json(approval.model_dump(mode="json"))
        return
    for name, value in _facts(approval).items():
        say(f"{name}: {one_line(value)}")
    say(f"arguments:\n{exact_json(approval.arguments)}")
    if approval.edited is not None:
        say(f"run with:\n{exact_json(approval.edited)}")


def approve(
    approval_id: str, yes: Yes, token: str | None, tools: Path | None, *, as_json: bool
) -> None:
    """Let a call run."""
    arguments = None if yes.edit is None else _edited(yes.edit)
    with open_kiln(tools) as kiln:
        approval = kiln.guarding.approve(
            approval_id,
            session=authenticate(kiln, token),
            arguments=arguments,
            reason=yes.reason,
            remember=yes.remember,
        )
    _tell(approval, as_json=as_json)


def reject(approval_id: str, reason: str, token: str | None, *, as_json: bool) -> None:
    """Keep a call from running."""
    with open_kiln() as kiln:
        session = authenticate(kiln, token)
        approval = kiln.guarding.reject(approval_id, session=session, reason=reason)
    _tell(approval, as_json=as_json)


def forget(approval_id: str, token: str | None, *, as_json: bool) -> None:
    """Ask people again."""
    with open_kiln() as kiln:
        if not kiln.guarding.forget_approval(approval_id, authenticate(kiln, token)):
            raise InputError(
                f"nothing is remembered of {approval_id[:100]!r}",
                hint="see `toolkiln approvals list --all`",
            )
    if as_json:
        print_json({"id": approval_id, "forgotten": True})
    else:
        say(f"forgotten: {one_line(approval_id)}")


def _facts(approval: Approval) -> dict[str, str]:
    facts = {
        "id": approval.id,
        "tool": f"{approval.tool} ({approval.digest[:12]})",
        "user": approval.user,
        "session": approval.session,
        "call": approval.call_id,
        "why": approval.why,
        "state": approval.state,
        "until": when(approval.expires),
    }
    if approval.state == "pending":
        facts["until"] += f", {max(0.0, approval.expires - time.time()):.0f} s left"
    if approval.decided is not None:
        facts["decided"] = f"{when(approval.decided)} by {approval.decided_by}"
    if approval.reason:
        facts["reason"] = approval.reason
    if approval.remember:
        facts["remembered for"] = approval.remember
    return facts


def _edited(text: str) -> dict[str, Any]:
    found = parse_object(text)
    if found is None:
        raise InputError("--edit takes all arguments", hint="""'{"city": "Paris"}', or @FILE""")
    return found


def _tell(approval: Approval, *, as_json: bool) -> None:
    if as_json:
        print_json(approval.model_dump(mode="json"))
    else:
        whose = one_line(f"{approval.tool} for {approval.user}")
        say(f"{approval.state}: {approval.id}: {whose}")
