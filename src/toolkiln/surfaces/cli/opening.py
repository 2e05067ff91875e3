"""A Kiln for a command, and whom the command acts for.

The Kiln has the settings of the current folder, and the tools or the fleet that were named.
A command acts for the local operator, or for the user of a session token or an API key.
"""

from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkiln.app import OWN, Credential, Kiln, SessionToken, account, find_credential
from toolkiln.config import Settings, checked, project_settings
from toolkiln.errors import InputError
from toolkiln.model import Privilege, ToolSpec
from toolkiln.surfaces.cli.terminal import say

if TYPE_CHECKING:
    from toolkiln.app import Entrance


def tools_path(given: Path | None, settings: Settings | None = None) -> Path:
    """Return the tools folder as given or as set, relative to the current folder if below it."""
    if given is not None:
        return given
    tools, here = (settings or project_settings()).tools, Path.cwd()
    return tools.relative_to(here) if tools.is_relative_to(here) else tools


def open_folder(tools: Path | None = None, *, dev: bool = False) -> Kiln:
    """The Kiln of the tools in a folder, whatever fleet there is; nothing is read yet."""
    known = project_settings(tools)
    return Kiln(tools_path(tools, known), settings=known, dev=dev, surface="cli")


def open_kiln(
    tools: Path | None = None,
    redis: str | None = None,
    *,
    dev: bool = False,
    surface: str = "cli",
    **given: Any,
) -> Kiln:
    """The Kiln of a fleet, if one is named or set, else of some tools; nothing is read yet.

    What is `given` and not None goes before the settings. Tools that are named, or as they
    are on disk, are those of a folder.

    Raises:
        InputError: both are named.
    """
    said = {name: value for name, value in {**given, "fleet": redis}.items() if value is not None}
    options = {"fleet": "--redis"}
    values = {n: checked(n, value, options.get(n, f"--{n}")) for n, value in said.items()}
    known = replace(project_settings(tools), **values)
    is_folder = tools is not None or dev
    if is_folder and redis is not None:
        hint = "drop --tools" if tools is not None else "drop --dev"
        raise InputError("--redis names a fleet, which has tools of its own", hint=hint)
    if known.fleet and not is_folder:
        return Kiln.connect(known.fleet, settings=known, surface=surface)
    return Kiln(tools_path(tools, known), settings=known, dev=dev, surface=surface)


def note_no_worker(kiln: Kiln) -> None:
    """Print to stderr that the fleet has no tools because it never had a worker."""
    if (missing := kiln.no_worker) is not None:
        say(f"note: {missing.message}", err=True)
        say(f"note: {missing.hint}", err=True)


def run_in_main_thread(kiln: Kiln, work: Coroutine[Any, Any, None]) -> None:
    """Run a server and close the Kiln: in this thread, which alone receives signals."""
    import asyncio

    async def run() -> None:
        try:
            await work
        finally:
            await kiln.close()

    asyncio.run(run())


def authenticate(kiln: Kiln, token: str | None = None) -> SessionToken:
    """Return the session to act in: that of the credential, or `OWN` where there is none.

    `token` is the value of `--token`. A refused credential is recorded.

    Raises:
        InputError: the credential is malformed, unknown, expired or revoked.
    """
    credential = find_credential(kiln.settings.environ, token)
    if credential is None:
        return OWN
    from toolkiln.app import Entrance

    return open_session(Entrance(kiln.guarding, kiln.settings), credential)


def open_session(entrance: "Entrance", credential: Credential) -> str:
    """Return the session of a credential. A refused one is recorded as a denied login.

    Raises:
        NoSession: the credential is unknown, expired or revoked.
    """
    from toolkiln.app import NoSession

    try:
        return entrance.session(credential.text)
    except NoSession as error:
        entrance.record_refusal(f"{credential.source} of {account()}")
        raise NoSession(f"{credential.source}: {error.message}", hint=error.hint) from None


def require(kiln: Kiln, privilege: Privilege, act: str) -> SessionToken:
    """Return the session to act in, whose caller holds a privilege; the operator holds all.

    `act` names the act in the record of a denial.

    Raises:
        InputError: as for `authenticate`.
        NotAllowed: the caller lacks the privilege.
    """
    session = authenticate(kiln)
    if session is not OWN:
        kiln.guarding.require(session, privilege, act)
    return session


def user_of(kiln: Kiln, session: SessionToken) -> str:
    """Return the user as records name them."""
    return account() if session is OWN else kiln.guarding.caller(session).who


def is_admin(kiln: Kiln, session: SessionToken) -> bool:
    """Return whether the caller holds ADMIN."""
    return session is OWN or Privilege.ADMIN in kiln.guarding.caller(session).privileges


def visible_tool(kiln: Kiln, name: str, session: SessionToken) -> ToolSpec:
    """Return a tool that the caller may see; the operator sees all.

    Raises:
        UnknownTool: there is no such tool, or the rules hide it from the caller.
    """
    if session is OWN:
        return kiln.tool(name)
    from toolkiln.app import errands

    return kiln.run_sync(kiln.tend(errands.Look(name=name), session)).spec
