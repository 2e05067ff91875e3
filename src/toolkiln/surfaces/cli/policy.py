"""Commands for rules and approvals."""

import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolkiln.errors import InputError
from toolkiln.surfaces.cli.app import JsonOption, TokenOption, ToolsOption, app, command
from toolkiln.surfaces.cli.identities import GroupOption, PlatformOption, PrivilegeOption
from toolkiln.surfaces.cli.terminal import (
    exact_json,
    one_line,
    print_json,
    print_outcome,
    print_table,
    say,
    when,
)

if TYPE_CHECKING:
    from toolkiln.model.policy import Approval

ApprovalArgument = Annotated[str, typer.Argument(help="The id, or its first characters.")]
ReasonOption = Annotated[str, typer.Option(help="Shown to the caller and in the audit log.")]
_LONGEST = 1000

policy_app = typer.Typer(help="Explain and check the rules.", no_args_is_help=True)
app.add_typer(policy_app, name="policy")
approvals_app = typer.Typer(help="Decide on calls that wait for approval.", no_args_is_help=True)
app.add_typer(approvals_app, name="approvals")


@command(policy_app, "explain")
def policy_explain(
    user: Annotated[str, typer.Argument(help="The caller.")],
    tool: Annotated[str, typer.Argument(help="The name of the tool.")],
    groups: GroupOption = None,
    privileges: PrivilegeOption = None,
    platform: PlatformOption = None,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Explain whether a user may run a tool, by which rule, and what else is needed."""
    from toolkiln.operations import policy
    from toolkiln.surfaces.cli.session import checked_request, run_operation

    fields = {
        "tool": tool,
        "user": user,
        "group": groups or [],
        "privilege": privileges or [],
        "platform": platform or None,
    }
    request = checked_request(policy.ExplainRules, fields)
    explanation = run_operation(policy.explain_rules, request, tools=tools)
    if as_json:
        print_json(explanation.model_dump(mode="json"))
    else:
        say(explanation.effect)
        if explanation.text is not None:
            say(f"rule {explanation.rule}: {one_line(explanation.text, _LONGEST)}")
        say(f"why: {one_line(explanation.why, _LONGEST)}")
        for line in explanation.approvals:
            say(f"asks a person: {one_line(line, _LONGEST)}")
        for need in explanation.needs:
            say(f"{'has' if need.there else 'lacks'}: {one_line(need.what)}")
    if explanation.effect == "deny":
        raise typer.Exit(1)


@command(policy_app, "check")
def policy_check(as_json: JsonOption = False) -> None:
    """Show the rules in their order, and those that never decide."""
    from toolkiln.operations import policy
    from toolkiln.operations.operation import Nothing
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    with open_kiln() as kiln:
        listed = kiln.run_operation_sync(policy.list_rules, Nothing(), authenticate(kiln))
        tables = kiln.services.current_settings.rules
    rules = list(zip(listed.items, tables, strict=True))
    if as_json:
        items = [
            {"place": rule.place, **table, "shadowed_by": rule.shadowed_by} for rule, table in rules
        ]
        print_json({"rules": items, "policy": listed.policy})
        return
    for rule, table in rules:
        say(f"{rule.place}: {one_line(policy.rule_text(table), _LONGEST)}")
    say(f"otherwise: {listed.policy}")
    for rule, _ in rules:
        if rule.shadowed_by is not None:
            why = f"rule {rule.shadowed_by} matches everything that it matches"
            say(f"warning: rule {rule.place} never decides: {why}", err=True)


@command(approvals_app, "list")
def approvals_list(
    everything: Annotated[bool, typer.Option("--all", help="Include decided ones.")] = False,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """List calls that wait for approval, newest first."""
    from toolkiln.operations import approvals
    from toolkiln.surfaces.cli.session import run_operation

    request = approvals.ApprovalQuery(state="all" if everything else "pending", limit=100)
    found = run_operation(approvals.list_approvals, request, token=token).items
    if as_json:
        print_json([approval.model_dump(mode="json") for approval in found])
    elif not found:
        say("no approvals" if everything else "no pending approvals", err=True)
    else:
        print_table(
            ("id", "state", "tool", "user", "until", "why"),
            [(a.id, a.state, a.tool, a.user, when(a.expires), a.why) for a in found],
        )


@command(approvals_app, "show")
def approvals_show(
    approval: ApprovalArgument, token: TokenOption = None, as_json: JsonOption = False
) -> None:
    """Show a request for approval: the caller, the reason, the exact arguments."""
    from toolkiln.operations import approvals
    from toolkiln.surfaces.cli.session import run_operation

    request = approvals.ApprovalRef(id=approval)
    found = run_operation(approvals.get_approval, request, token=token)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    for name, value in _facts(found).items():
        say(f"{name}: {one_line(value)}")
    say(f"arguments:\n{exact_json(found.arguments)}")
    if found.edited is not None:
        say(f"run with:\n{exact_json(found.edited)}")


@command(approvals_app, "approve")
def approvals_approve(
    approval: ApprovalArgument,
    edit: Annotated[
        str | None,
        typer.Option(
            metavar="'{json}' | @FILE", help="Run with these arguments instead.", show_default=False
        ),
    ] = None,
    reason: ReasonOption = "",
    remember: Annotated[
        Literal["session", "arguments"] | None,
        typer.Option(help="Approve these without asking again.", show_default=False),
    ] = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Approve a call."""
    from toolkiln.operations import approvals
    from toolkiln.surfaces.cli.calls import parse_object
    from toolkiln.surfaces.cli.session import checked_request, run_operation

    arguments = None if edit is None else parse_object(edit)
    if edit is not None and arguments is None:
        raise InputError("--edit takes all arguments", hint="""'{"city": "Paris"}', or @FILE""")
    fields = {"id": approval, "arguments": arguments, "reason": reason, "remember": remember}
    request = checked_request(approvals.ApproveCall, fields)
    _print_decision(
        run_operation(approvals.approve, request, tools=tools, token=token), as_json=as_json
    )


@command(approvals_app, "reject")
def approvals_reject(
    approval: ApprovalArgument,
    reason: ReasonOption = "",
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reject a call."""
    from toolkiln.operations import approvals
    from toolkiln.surfaces.cli.session import checked_request, run_operation

    request = checked_request(approvals.RejectCall, {"id": approval, "reason": reason})
    _print_decision(run_operation(approvals.reject, request, token=token), as_json=as_json)


@command(approvals_app, "forget")
def approvals_forget(
    approval: ApprovalArgument, token: TokenOption = None, as_json: JsonOption = False
) -> None:
    """Forget a remembered approval, so that a person is asked again."""
    from toolkiln.operations import approvals
    from toolkiln.surfaces.cli.session import run_operation

    request = approvals.ApprovalRef(id=approval)
    if not run_operation(approvals.forget_approval, request, token=token).forgotten:
        raise InputError(
            f"nothing is remembered of {approval[:100]!r}",
            hint="see `toolkiln approvals list --all`",
        )
    print_outcome(
        {"id": approval, "forgotten": True}, f"forgotten: {one_line(approval)}", as_json=as_json
    )


def _facts(approval: "Approval") -> dict[str, str]:
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


def _print_decision(approval: "Approval", *, as_json: bool) -> None:
    if as_json:
        print_json(approval.model_dump(mode="json"))
    else:
        call = one_line(f"{approval.tool} for {approval.user}")
        say(f"{approval.state}: {approval.id}: {call}")
