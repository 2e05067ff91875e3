"""Commands for API keys and sessions.

A key or token is printed once, when it is created. Tokens are read from an argument, from a
variable or from stdin.
"""

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkiln.errors import InputError
from toolkiln.surfaces.cli.app import JsonOption, app, command
from toolkiln.surfaces.cli.terminal import (
    hidden,
    listed,
    one_line,
    print_json,
    print_outcome,
    print_table,
    say,
    when,
)

if TYPE_CHECKING:
    from toolkiln.kiln import Kiln
    from toolkiln.model.identity import SessionRecord
    from toolkiln.operations import identities

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
    float | None, typer.Option(help="Lifetime. Default: the setting.", show_default=False)
]
TokenArgument = Annotated[
    str | None,
    typer.Argument(help="Default: $TOOLKILN_TOKEN, else stdin.", show_default=False),
]
KeyArgument = Annotated[str, typer.Argument(help="Its id or name.")]
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

keys_app = typer.Typer(help="Manage API keys.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")
sessions_app = typer.Typer(help="Manage sessions.", no_args_is_help=True)
app.add_typer(sessions_app, name="sessions")


@command(keys_app, "create")
def keys_create(
    name: Annotated[str, typer.Argument(help="A label for people.")],
    user: Annotated[str, typer.Option(help="The user it acts for.")],
    groups: GroupOption = None,
    privileges: PrivilegeOption = None,
    globs: Annotated[
        list[str] | None,
        typer.Option(
            "--tool", metavar="GLOB", help="Limit it to tools; may be repeated.", show_default=False
        ),
    ] = None,
    days: Annotated[
        float | None, typer.Option(help="Lifetime in days. Default: 90.", show_default=False)
    ] = None,
    no_expiry: Annotated[
        bool, typer.Option("--no-expiry", help="Valid until it is revoked.")
    ] = False,
    for_ever: Annotated[bool, typer.Option("--for-ever", hidden=True)] = False,
    as_json: JsonOption = False,
) -> None:
    """Create an API key and print it. The key is shown only once."""
    from toolkiln.operations import identities
    from toolkiln.surfaces.cli.session import checked_request, run_operation

    is_unlimited = no_expiry or for_ever
    if is_unlimited and days is not None:
        raise InputError("--days cannot be combined with --no-expiry")
    fields: dict[str, Any] = {
        "name": name,
        "user_id": user,
        "groups": groups or [],
        "privileges": privileges or [],
        "tools": globs or ["*"],
    }
    if is_unlimited or days is not None:
        fields["days"] = days
    key = run_operation(identities.create_key, checked_request(identities.CreateKey, fields))
    until = when(key.expires, "it is revoked")
    _print_new_key(
        key, f"{key.id} is valid until {until}; the key cannot be shown again", as_json=as_json
    )


@command(keys_app, "list")
def keys_list(as_json: JsonOption = False) -> None:
    """List API keys, newest first."""
    keys = _all_keys()
    if as_json:
        print_json([_key_json(key) for key in keys])
    elif not keys:
        say("no keys", err=True)
    else:
        titles = ("id", "name", "user", "groups", "privileges", "tools", "created", "expires")
        print_table(
            (*titles, "last used", "state"),
            [
                (
                    key.id,
                    key.name,
                    key.user,
                    listed(key.groups),
                    listed(key.privileges),
                    listed(key.tools),
                    when(key.created),
                    when(key.expires, "never"),
                    when(key.last_used, "never"),
                    _state(key),
                )
                for key in keys
            ],
        )


@command(keys_app, "rotate")
def keys_rotate(
    key: KeyArgument,
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
    from toolkiln.operations import identities
    from toolkiln.surfaces.cli.session import run_operation

    seconds = _seconds(keep)
    new = run_operation(identities.rotate_key, identities.RotateKey(key=key, keep_seconds=seconds))
    old = f"stays valid for {keep}" if seconds else "is revoked"
    _print_new_key(
        new, f"{new.id} replaces {key}, which {old}; the key cannot be shown again", as_json=as_json
    )


@command(keys_app, "revoke")
def keys_revoke(key: KeyArgument, as_json: JsonOption = False) -> None:
    """Revoke an API key, and end its sessions."""
    from toolkiln.operations import identities
    from toolkiln.surfaces.cli.session import run_operation

    revoked = run_operation(identities.revoke_key, identities.KeyRef(key=key))
    print_outcome(
        _key_json(revoked), f"revoked: {revoked.id} {one_line(revoked.name)}", as_json=as_json
    )


@command(sessions_app, "create")
def sessions_create(
    user: Annotated[str, typer.Argument(help="The user it acts for.")],
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
    """Create a session and print its token. The token is shown only once."""
    from toolkiln.operations import identities
    from toolkiln.surfaces.cli.session import checked_request, run_operation

    fields = {
        "user_id": user,
        "groups": groups or [],
        "privileges": privileges or [],
        "platform": platform,
        "guild_id": guild,
        "channel_id": channel,
        "agent_id": agent,
        "workspace": workspace,
        "seconds": seconds,
    }
    session = run_operation(
        identities.create_session, checked_request(identities.CreateSession, fields)
    )
    if as_json:
        print_json(session.model_dump(mode="json"))
    else:
        say(session.token)
    say(f"session {session.trace_id} is valid for {session.seconds:g} s", err=True)


@command(sessions_app, "list")
def sessions_list(as_json: JsonOption = False) -> None:
    """List valid sessions, newest first."""
    from toolkiln.operations import identities
    from toolkiln.operations.operation import Nothing
    from toolkiln.surfaces.cli.session import run_operation

    found = run_operation(identities.list_session_records, Nothing())
    if as_json:
        print_json([_session_json(session, left) for session, left in found])
    elif not found:
        say("no sessions", err=True)
    else:
        print_table(
            ("session", "user", "groups", "privileges", "tools", "key", "workspace", "left"),
            [
                (
                    session.trace_id,
                    session.caller.who,
                    listed(session.caller.groups),
                    listed(session.caller.privileges),
                    listed(session.caller.tools),
                    session.key_id or "",
                    session.caller.workspace,
                    f"{left:.0f} s",
                )
                for session, left in found
            ],
        )


@command(sessions_app, "renew")
def sessions_renew(
    token: TokenArgument = None, seconds: SecondsOption = None, as_json: JsonOption = False
) -> None:
    """Extend a session."""
    from toolkiln.operations import identities
    from toolkiln.surfaces.cli.session import authenticate, checked_request, open_kiln

    with open_kiln() as kiln:
        caller = authenticate(kiln)
        fields = {"token": _token(kiln, token), "seconds": seconds}
        request = checked_request(identities.RenewSession, fields)
        session = kiln.run_operation_sync(identities.renew_session, request, caller)
    print_outcome(
        {"trace_id": session.trace_id, "renewed": True},
        f"renewed: {session.trace_id}",
        as_json=as_json,
    )


@command(sessions_app, "end")
def sessions_end(token: TokenArgument = None, as_json: JsonOption = False) -> None:
    """End a session, including for running calls."""
    from toolkiln.operations import identities
    from toolkiln.surfaces.cli.session import authenticate, checked_request, open_kiln

    with open_kiln() as kiln:
        caller = authenticate(kiln)
        request = checked_request(identities.EndSession, {"token": _token(kiln, token)})
        kiln.run_operation_sync(identities.end_session, request, caller)
    print_outcome({"ended": True}, "ended", as_json=as_json)


def _all_keys() -> "list[identities.ApiKey]":
    from toolkiln.operations import identities
    from toolkiln.operations.operation import PageQuery
    from toolkiln.surfaces.cli.session import authenticate, open_kiln

    keys: list[identities.ApiKey] = []
    cursor: str | None = None
    with open_kiln() as kiln:
        session = authenticate(kiln)
        while True:
            page = kiln.run_operation_sync(
                identities.list_keys, PageQuery(limit=200, cursor=cursor), session
            )
            keys += page.items
            cursor = page.next_cursor
            if cursor is None:
                return keys


def _print_new_key(key: "identities.NewKey", note: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"key": key.key, **_key_json(key)})
    else:
        say(key.key)
    say(note, err=True)


def _seconds(duration: str) -> float:
    """Return the seconds of a duration such as `24h`."""
    found = re.fullmatch(r"([0-9]{1,6})([smhd])|0", duration)
    if found is None:
        raise InputError(
            f"{duration!r} is not a duration", hint="a number and s, m, h or d, such as 24h; or 0"
        )
    return int(found[1]) * _UNITS[found[2]] if found[1] else 0.0


def _token(kiln: "Kiln", argument: str | None) -> str:
    """Return the token of a session: the argument, the variable, or stdin."""
    from toolkiln.security.sessions import TOKEN_VARIABLE

    if argument is None:
        argument = kiln.settings.environ.get(TOKEN_VARIABLE)
    return argument if argument is not None else hidden("the token").strip()


def _state(key: "identities.ApiKey") -> str:
    if key.revoked is not None:
        return "revoked"
    return "valid" if key.holds else "expired"


def _key_json(key: "identities.ApiKey") -> dict[str, Any]:
    fields = key.model_dump(mode="json", exclude={"holds", "key"})
    return {**fields, "state": _state(key)}


def _session_json(session: "SessionRecord", left: float) -> dict[str, Any]:
    caller = session.caller.model_dump(mode="json", exclude={"session"})
    for name in ("groups", "privileges"):
        caller[name] = sorted(caller[name])
    return {"trace_id": session.trace_id, "key_id": session.key_id, **caller, "seconds": left}
