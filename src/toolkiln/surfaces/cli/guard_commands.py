"""The commands for who may run what: keys, sessions, rules, approvals, secrets, settings."""

from typing import Annotated, Literal

import typer

from toolkiln.surfaces.cli.shell import JsonOption, TokenOption, ToolsOption, app, errors

GroupOption = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", help="May be repeated.", show_default=False),
]
PrivilegeOption = Annotated[
    list[str] | None,
    typer.Option("--privilege", metavar="NAME", help="May be repeated.", show_default=False),
]
PlatformOption = Annotated[
    str | None,
    typer.Option(help="Where the user is known, such as discord.", show_default=False),
]
SecondsOption = Annotated[
    float | None, typer.Option(help="How long it holds. Default: the setting.", show_default=False)
]
SessionToken = Annotated[
    str | None,
    typer.Argument(help="Default: $TOOLKILN_TOKEN, else stdin.", show_default=False),
]
ApprovalArgument = Annotated[str, typer.Argument(help="The id, or how it begins.")]
ReasonOption = Annotated[str, typer.Option(help="For whoever made the call, and the audit.")]
SecretArgument = Annotated[str, typer.Argument(help="The name of the secret.")]


keys_app = typer.Typer(help="Look after API keys.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")


@keys_app.command(name="create")
def keys_create(
    name: Annotated[str, typer.Argument(help="What people call it.")],
    user: Annotated[str, typer.Option(help="Whom it acts for.")],
    groups: GroupOption = None,
    privileges: PrivilegeOption = None,
    globs: Annotated[
        list[str] | None,
        typer.Option(
            "--tool", metavar="GLOB", help="Limit it to tools; may be repeated.", show_default=False
        ),
    ] = None,
    days: Annotated[
        float | None, typer.Option(help="How long it holds. Default: 90.", show_default=False)
    ] = None,
    for_ever: Annotated[
        bool, typer.Option("--for-ever", help="It holds until it is revoked.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make an API key, and print it: this once."""
    from toolkiln.surfaces.cli import identifying

    scope = {
        "user_id": user,
        "groups": groups or (),
        "privileges": privileges or (),
        "tools": globs or ("*",),
    }
    with errors():
        identifying.keys_create(name, scope, days, for_ever=for_ever, as_json=as_json)


@keys_app.command(name="list")
def keys_list(as_json: JsonOption = False) -> None:
    """List the API keys, newest first."""
    from toolkiln.surfaces.cli import identifying

    with errors():
        identifying.keys_list(as_json=as_json)


@keys_app.command(name="rotate")
def keys_rotate(
    key: Annotated[str, typer.Argument(help="Its id or name.")],
    keep: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="How long the old key stays valid, such as 30m, 24h or 7d; 0 revokes it at once.",
        ),
    ] = "24h",
    as_json: JsonOption = False,
) -> None:
    """Replace an API key: print a new one, and let the old one expire."""
    from toolkiln.surfaces.cli import identifying

    with errors():
        identifying.keys_rotate(key, keep, as_json=as_json)


@keys_app.command(name="revoke")
def keys_revoke(
    key: Annotated[str, typer.Argument(help="Its id or name.")], as_json: JsonOption = False
) -> None:
    """End a key, with all sessions that it made."""
    from toolkiln.surfaces.cli import identifying

    with errors():
        identifying.keys_revoke(key, as_json=as_json)


sessions_app = typer.Typer(help="Look after sessions.", no_args_is_help=True)
app.add_typer(sessions_app, name="sessions")


@sessions_app.command(name="create")
def sessions_create(
    user: Annotated[str, typer.Argument(help="Whom it acts for.")],
    groups: GroupOption = None,
    privileges: PrivilegeOption = None,
    platform: PlatformOption = None,
    guild: Annotated[str | None, typer.Option(show_default=False)] = None,
    channel: Annotated[str | None, typer.Option(show_default=False)] = None,
    agent: Annotated[str | None, typer.Option(show_default=False)] = None,
    workspace: Annotated[
        str, typer.Option(help="Whose files its calls share. Default: its own.", show_default=False)
    ] = "",
    seconds: SecondsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a session for somebody, and print its token: this once."""
    from toolkiln.surfaces.cli import identifying

    identity = {
        "groups": groups or (),
        "privileges": privileges or (),
        "platform": platform,
        "guild_id": guild,
        "channel_id": channel,
        "agent_id": agent,
        "workspace": workspace,
        "seconds": seconds,
    }
    with errors():
        identifying.sessions_create(user, identity, as_json=as_json)


@sessions_app.command(name="list")
def sessions_list(as_json: JsonOption = False) -> None:
    """List the sessions that hold, newest first."""
    from toolkiln.surfaces.cli import identifying

    with errors():
        identifying.sessions_list(as_json=as_json)


@sessions_app.command(name="renew")
def sessions_renew(
    token: SessionToken = None, seconds: SecondsOption = None, as_json: JsonOption = False
) -> None:
    """Let a session hold for longer."""
    from toolkiln.surfaces.cli import identifying

    with errors():
        identifying.sessions_renew(token, seconds, as_json=as_json)


@sessions_app.command(name="end")
def sessions_end(token: SessionToken = None, as_json: JsonOption = False) -> None:
    """End a session, for calls that run as well."""
    from toolkiln.surfaces.cli import identifying

    with errors():
        identifying.sessions_end(token, as_json=as_json)


policy_app = typer.Typer(help="Understand the rules.", no_args_is_help=True)
app.add_typer(policy_app, name="policy")


@policy_app.command(name="explain")
def policy_explain(
    user: Annotated[str, typer.Argument(help="Who would call.")],
    tool: Annotated[str, typer.Argument(help="The name of the tool.")],
    groups: GroupOption = None,
    privileges: PrivilegeOption = None,
    platform: PlatformOption = None,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Tell whether somebody may run a tool, which rule decides, and what else it takes."""
    from toolkiln.app import Who
    from toolkiln.surfaces.cli import explaining

    with errors():
        who = Who(user, groups or (), privileges or (), platform)
        raise typer.Exit(explaining.print_explanation(who, tool, tools, as_json=as_json))


@policy_app.command(name="check")
def policy_check(as_json: JsonOption = False) -> None:
    """Show the rules in their order, and those that never decide."""
    from toolkiln.surfaces.cli import explaining

    with errors():
        explaining.check(as_json=as_json)


approvals_app = typer.Typer(help="Decide about calls that wait for a person.", no_args_is_help=True)
app.add_typer(approvals_app, name="approvals")


@approvals_app.command(name="list")
def approvals_list(
    everything: Annotated[bool, typer.Option("--all", help="Show answered ones too.")] = False,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the calls that wait, newest first."""
    from toolkiln.surfaces.cli import approving

    with errors():
        approving.approvals_list(token, everything=everything, as_json=as_json)


@approvals_app.command(name="show")
def approvals_show(
    approval: ApprovalArgument, token: TokenOption = None, as_json: JsonOption = False
) -> None:
    """Show a call that waits: who makes it, why it waits, its exact arguments."""
    from toolkiln.surfaces.cli import approving

    with errors():
        approving.show(approval, token, as_json=as_json)


@approvals_app.command(name="approve")
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
        typer.Option(help="Do not ask again about these.", show_default=False),
    ] = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Let a call run."""
    from toolkiln.surfaces.cli import approving

    with errors():
        yes = approving.Yes(reason, edit, remember)
        approving.approve(approval, yes, token, tools, as_json=as_json)


@approvals_app.command(name="reject")
def approvals_reject(
    approval: ApprovalArgument,
    reason: ReasonOption = "",
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep a call from running."""
    from toolkiln.surfaces.cli import approving

    with errors():
        approving.reject(approval, reason, token, as_json=as_json)


@approvals_app.command(name="forget")
def approvals_forget(
    approval: ApprovalArgument, token: TokenOption = None, as_json: JsonOption = False
) -> None:
    """Ask again about what an approval was remembered for."""
    from toolkiln.surfaces.cli import approving

    with errors():
        approving.forget(approval, token, as_json=as_json)


secrets_app = typer.Typer(help="Look after secrets.", no_args_is_help=True)
app.add_typer(secrets_app, name="secrets")


@secrets_app.command(name="list")
def secrets_list(as_json: JsonOption = False, tools: ToolsOption = None) -> None:
    """List the names of secrets, where they come from, and which tools lack one."""
    from toolkiln.surfaces.cli import keeping

    with errors():
        keeping.secrets_list(tools, as_json=as_json)


@secrets_app.command(name="set")
def secrets_set(name: SecretArgument, as_json: JsonOption = False) -> None:
    """Keep a secret, from a hidden prompt or stdin."""
    from toolkiln.surfaces.cli import keeping

    with errors():
        keeping.secrets_set(name, as_json=as_json)


@secrets_app.command(name="remove")
def secrets_remove(name: SecretArgument, as_json: JsonOption = False) -> None:
    """Forget a secret."""
    from toolkiln.surfaces.cli import keeping

    with errors():
        keeping.secrets_remove(name, as_json=as_json)


@app.command()
def settings(
    tool: Annotated[str, typer.Argument(help="The name of the tool.")],
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="['{json}' | key=value …]",
            help="What to set; key=- asks for it, or takes it from stdin.",
            show_default=False,
        ),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="May be repeated.", show_default=False)
    ] = None,
    user: Annotated[str, typer.Option(help="Whose. Default: the operator's.")] = "",
    as_json: JsonOption = False,
    tools: ToolsOption = None,
) -> None:
    """Show or set what a tool is handed with its calls."""
    from toolkiln.surfaces.cli import setting

    with errors():
        setting.settings(tool, values or [], unset or [], user, tools, as_json=as_json)
