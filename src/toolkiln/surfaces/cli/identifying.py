"""Commands about who may make calls: API keys, and sessions.

A key or a token is printed once, when it is made, and never read from the command line's
own words alone: a variable or stdin does as well.
"""

import re
import time
from typing import Any

from toolkiln.app import TOKEN_VARIABLE, Kiln, MadeKey, Scope
from toolkiln.errors import InputError
from toolkiln.model import ApiKey, Privilege, Session
from toolkiln.surfaces.cli.opening import authenticate, open_kiln, require
from toolkiln.surfaces.cli.prompting import hidden
from toolkiln.surfaces.cli.tables import listed, one_line, print_table, when
from toolkiln.surfaces.cli.terminal import print_json, say

_MOST_LISTED = 10_000

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def keys_create(
    name: str, scope: dict[str, Any], days: float | None, *, for_ever: bool, as_json: bool
) -> None:
    """Make a key, and print it."""
    if for_ever and days is not None:
        raise InputError("--days does not go with --for-ever")
    if for_ever or days is not None:
        scope = {**scope, "days": days}
    with open_kiln() as kiln:
        session = authenticate(kiln)
        made: MadeKey = kiln.guarding.keys.create(name, Scope(**scope), session)
    if as_json:
        print_json({"key": made.text, **_key_json(made.key)})
    else:
        say(made.text)
    until = when(made.key.expires, "it is revoked")
    say(f"{made.key.id} holds until {until}; the key cannot be shown again", err=True)


def keys_rotate(which: str, keep: str, *, as_json: bool) -> None:
    """Replace a key, and print the new one."""
    seconds = _seconds(keep)
    with open_kiln() as kiln:
        made: MadeKey = kiln.guarding.keys.rotate(which, seconds, authenticate(kiln))
    if as_json:
        print_json({"key": made.text, **_key_json(made.key)})
    else:
        say(made.text)
    old = f"stays valid for {keep}" if seconds else "is revoked"
    say(f"{made.key.id} replaces {which}, which {old}; the key cannot be shown again", err=True)


def _seconds(duration: str) -> float:
    """Return the seconds of a duration such as `24h`."""
    found = re.fullmatch(r"([0-9]{1,6})([smhd])|0", duration)
    if found is None:
        raise InputError(
            f"{duration!r} is not a duration", hint="a number and s, m, h or d, such as 24h; or 0"
        )
    return int(found[1]) * _UNITS[found[2]] if found[1] else 0.0


def keys_list(*, as_json: bool) -> None:
    """Print all keys, but not what they are."""
    with open_kiln() as kiln:
        require(kiln, Privilege.ADMIN, "key.list")
        keys = kiln.guarding.keys.list()
    if as_json:
        print_json([_key_json(key) for key in keys])
        return
    if not keys:
        say("no keys", err=True)
        return
    titles = ("id", "name", "user", "groups", "privileges", "tools", "created", "expires")
    print_table(
        (*titles, "last used", "state"),
        [
            (
                key.id,
                key.name,
                key.caller.who,
                listed(key.caller.groups),
                listed(key.caller.privileges),
                listed(key.caller.tools),
                when(key.created),
                when(key.expires, "never"),
                when(key.last_used, "never"),
                _state(key),
            )
            for key in keys
        ],
    )


def keys_revoke(which: str, *, as_json: bool) -> None:
    """Let a key hold no longer."""
    with open_kiln() as kiln:
        key = kiln.guarding.keys.revoke(which, authenticate(kiln))
    if as_json:
        print_json(_key_json(key))
    else:
        say(f"revoked: {key.id} {one_line(key.name)}")


def sessions_create(user: str, identity: dict[str, Any], *, as_json: bool) -> None:
    """Make a session, and print its token."""
    with open_kiln() as kiln:
        made = kiln.guarding.create_session(user, session=authenticate(kiln), **identity)
    if as_json:
        print_json(made._asdict())
    else:
        say(made.token)
    say(f"session {made.trace_id} holds for {made.seconds:g} s", err=True)


def sessions_list(*, as_json: bool) -> None:
    """Print the sessions that hold, but not their tokens."""
    with open_kiln() as kiln:
        require(kiln, Privilege.ADMIN, "session.list")
        found = kiln.sessions.alive(_MOST_LISTED)
    if as_json:
        print_json([_session_json(session, left) for session, left in found])
        return
    if not found:
        say("no sessions", err=True)
        return
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


def sessions_renew(token: str | None, seconds: float | None, *, as_json: bool) -> None:
    """Extend a session."""
    with open_kiln() as kiln:
        admin = require(kiln, Privilege.ADMIN, "session.renew")
        session = kiln.guarding.renew_session(_token(kiln, token), seconds, session=admin)
    if as_json:
        print_json({"trace_id": session.trace_id, "renewed": True})
    else:
        say(f"renewed: {session.trace_id}")


def sessions_end(token: str | None, *, as_json: bool) -> None:
    """End a session."""
    with open_kiln() as kiln:
        authenticate(kiln)
        kiln.guarding.end_session(_token(kiln, token))
    if as_json:
        print_json({"ended": True})
    else:
        say("ended")


def _token(kiln: Kiln, given: str | None) -> str:
    """Return the token of the session to renew or end: the argument, the variable, or stdin."""
    if given is None:
        given = kiln.settings.environ.get(TOKEN_VARIABLE)
    return given if given is not None else hidden("the token").strip()


def _state(key: ApiKey) -> str:
    if key.revoked is not None:
        return "revoked"
    return "expired" if key.expires is not None and key.expires <= time.time() else "valid"


def _key_json(key: ApiKey) -> dict[str, Any]:
    caller = key.caller
    return {
        **key.model_dump(mode="json", exclude={"caller"}),
        "user": caller.who,
        "groups": sorted(caller.groups),
        "privileges": sorted(caller.privileges),
        "tools": list(caller.tools),
        "state": _state(key),
    }


def _session_json(session: Session, left: float) -> dict[str, Any]:
    caller = session.caller.model_dump(mode="json", exclude={"session"})
    for name in ("groups", "privileges"):
        caller[name] = sorted(caller[name])
    return {"trace_id": session.trace_id, "key_id": session.key_id, **caller, "seconds": left}
