"""The Kiln of a command, and the session that the command acts in.

The Kiln has the settings of the current folder, and the tools or the fleet that were named.
A command acts for the local operator, or for the user of a session token or an API key.
"""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from toolkiln.config import Settings, check_setting, project_settings
from toolkiln.errors import InputError
from toolkiln.kiln import Kiln
from toolkiln.model.identity import Privilege
from toolkiln.model.spec import ToolSpec
from toolkiln.security.sessions import (
    LOCAL_OPERATOR,
    Credential,
    SessionToken,
    account_name,
    find_credential,
)
from toolkiln.surfaces.cli.terminal import say

if TYPE_CHECKING:
    from toolkiln.operations.operation import Operation
    from toolkiln.security.authentication import Authenticator

I = TypeVar("I")  # noqa: E741 - the input of an operation
O = TypeVar("O")  # noqa: E741 - its output
M = TypeVar("M", bound=BaseModel)
_MOST_DAYS = 36_500.0


def tools_path(given: Path | None, settings: Settings | None = None) -> Path:
    """Return the tools folder as given or as set, relative to the current folder if below it."""
    if given is not None:
        return given
    tools, here = (settings or project_settings()).tools, Path.cwd()
    return tools.relative_to(here) if tools.is_relative_to(here) else tools


def open_folder(tools: Path | None = None, *, dev: bool = False) -> Kiln:
    """Return the Kiln of a folder of tools, even if the settings name a fleet."""
    settings = project_settings(tools)
    return Kiln(tools_path(tools, settings), settings=settings, dev=dev, surface="cli")


def open_kiln(
    tools: Path | None = None,
    redis: str | None = None,
    *,
    dev: bool = False,
    surface: str = "cli",
    **overrides: Any,
) -> Kiln:
    """Return the Kiln of a fleet, if one is named or set, else that of a folder of tools.

    `overrides` that are not None replace settings.

    Raises:
        InputError: both a fleet and tools are named.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    if redis is not None:
        given["fleet"] = redis
    options = {"fleet": "--redis"}
    values = {n: check_setting(n, value, options.get(n, f"--{n}")) for n, value in given.items()}
    settings = replace(project_settings(tools), **values)
    is_folder = tools is not None or dev
    if is_folder and redis is not None:
        hint = "drop --tools" if tools is not None else "drop --dev"
        raise InputError("--redis names a fleet, which has tools of its own", hint=hint)
    if settings.fleet and not is_folder:
        return Kiln.connect(settings.fleet, settings=settings, surface=surface)
    return Kiln(tools_path(tools, settings), settings=settings, dev=dev, surface=surface)


def note_no_worker(kiln: Kiln) -> None:
    """Print to stderr that the fleet has no tools because it never had a worker."""
    if (missing := kiln.services.no_worker) is not None:
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


def handle_signals(stop: Callable[[], object]) -> None:
    """Call a function on Ctrl-C and SIGTERM while the event loop runs."""
    import asyncio
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def note_unadmitted(kiln: Kiln) -> None:
    """Print to stderr how many tools are served without an admission."""
    registry = kiln.services.registry
    if unadmitted := sum(map(registry.is_dev, registry.specs)):
        say(f"note: dev: {unadmitted:,} of them served as on disk, without an admission", err=True)


def authenticate(kiln: Kiln, token: str | None = None) -> SessionToken:
    """Return the session to act in: that of the credential, else LOCAL_OPERATOR.

    `token` is the value of `--token`. A refused credential is recorded.

    Raises:
        InputError: the credential is malformed, unknown, expired or revoked.
    """
    credential = find_credential(kiln.settings.environ, token)
    if credential is None:
        return LOCAL_OPERATOR
    from toolkiln.security.authentication import Authenticator

    return open_session(Authenticator(kiln.security, kiln.settings), credential)


def open_session(authenticator: "Authenticator", credential: Credential) -> str:
    """Return the session of a credential. A refused one is recorded as a denied login.

    Raises:
        NoSession: the credential is unknown, expired or revoked.
    """
    from toolkiln.security.sessions import NoSession

    try:
        return authenticator.session(credential.text)
    except NoSession as error:
        authenticator.record_refusal(f"{credential.source} of {account_name()}")
        raise NoSession(f"{credential.source}: {error.message}", hint=error.hint) from None


def require(kiln: Kiln, privilege: Privilege, act: str) -> SessionToken:
    """Return the session to act in, whose caller holds a privilege; the operator holds all.

    `act` names the act in the record of a denial.

    Raises:
        InputError: as for `authenticate`.
        NotAllowed: the caller lacks the privilege.
    """
    session = authenticate(kiln)
    if session is not LOCAL_OPERATOR:
        kiln.security.require(session, privilege, act)
    return session


def visible_tool(kiln: Kiln, name: str, session: SessionToken) -> ToolSpec:
    """Return a tool that the caller may see; the operator sees all.

    Raises:
        UnknownTool: there is no such tool, or the rules hide it from the caller.
    """
    if session is LOCAL_OPERATOR:
        return kiln.tool(name)
    from toolkiln.operations import tools

    return kiln.services.wait(
        kiln.run_operation(tools.tool_state, tools.ToolName(name=name), session)
    ).spec


def run_operation(
    operation: "Operation[I, O]",
    request: I,
    *,
    tools: Path | None = None,
    token: str | None = None,
) -> O:
    """Run an operation for the caller of a command, on the Kiln of the settings."""
    with open_kiln(tools) as kiln:
        return kiln.run_operation_sync(operation, request, authenticate(kiln, token))


def run_in_folder(operation: "Operation[I, O]", request: I, tools: Path | None = None) -> O:
    """Run an operation on the folder of tools, even if the settings name a fleet."""
    with open_folder(tools) as kiln:
        return kiln.run_operation_sync(operation, request, authenticate(kiln))


def checked_request(model: type[M], fields: dict[str, Any]) -> M:
    """Return the input of an operation.

    Raises:
        InputError: a field does not fit.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"{place}: {first['msg']}") from None


def checked_days(days: float) -> float:
    """Return the value of `--older-than`.

    Raises:
        InputError: it is out of range.
    """
    if not 0 <= days <= _MOST_DAYS:
        raise InputError(f"--older-than is not between 0 and {_MOST_DAYS:g} days")
    return days
