"""The command `install`: add the server to the settings file of an MCP client.

A client that connects by URL gets its own API key, in the entry's headers. The file is replaced
atomically and keeps its permissions; a link is followed. A file that cannot be parsed is not
changed.
"""

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from toolkiln.errors import InputError, nearest_hint
from toolkiln.surfaces.cli.app import JsonOption, ToolsOption, app, command
from toolkiln.surfaces.cli.terminal import one_line, print_json, print_table, say, talk

if TYPE_CHECKING:
    from toolkiln.surfaces.cli.mcp_clients import Entry, McpClientApp

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_SCOPES = ("user", "project")
_BOM = b"\xef\xbb\xbf"
_NAME_OF_SERVER = "toolkiln"
_EXAMPLE_KEY = "tk_…"


@dataclass(frozen=True)
class InstallRequest:
    """The options of the command."""

    client: str
    tools: Path | None
    name: str
    scope: str
    url: str | None
    key: bool | None = None
    """Whether a client with a URL gets a key; None: if the URL is loopback."""

    @property
    def creates_key(self) -> bool:
        """Whether an API key is created."""
        if self.url is None:
            return False
        from toolkiln.security.authentication import is_loopback

        return is_loopback(urlsplit(self.url).hostname or "") if self.key is None else self.key

    @property
    def key_name(self) -> str:
        """The name of the key: that of the client, and what distinguishes several entries."""
        parts = [self.client]
        parts += ["project"] if self.scope == "project" else []
        parts += [self.name] if self.name != _NAME_OF_SERVER else []
        return "-".join(parts)


@dataclass(frozen=True)
class _Plan:
    """The validated request."""

    client: "McpClientApp"
    file: Path
    keys: tuple[str, ...]
    entry: "Entry"
    first: "Entry"
    stale: tuple[str, ...]

    def edited(self, text: str, key: str | None = None) -> str:
        """Return a text with the entry, which contains the key if there is one.

        Raises:
            ValueError: the text cannot be parsed or changed.
        """
        known = self.client.format.entry(text, self.keys)
        entry = {**self.first, **self.entry} if known is None else self.entry
        if key is not None:
            entry = {**entry, self.client.headers: self.headers(known or {}, key)}
        return self.client.format.put(text, self.keys, entry, self.stale)

    def headers(self, known: "Entry", key: str) -> "Entry":
        """Return the headers of an entry with a key."""
        found = known.get(self.client.headers)
        others = found if isinstance(found, dict) else {}
        return {**others, "Authorization": f"Bearer {key}"}


@command(app)
def install(
    client: Annotated[
        str | None,
        typer.Argument(help="The client. Default: list them.", show_default=False),
    ] = None,
    tools: ToolsOption = None,
    name: Annotated[str, typer.Option(help="The server's name in the client.")] = "toolkiln",
    scope: Annotated[
        str, typer.Option(help="user: in all your projects; project: in this folder.")
    ] = "user",
    url: Annotated[
        str | None,
        typer.Option(help="Use a running server instead of starting one.", show_default=False),
    ] = None,
    key: Annotated[
        bool | None,
        typer.Option(
            help="With --url: create an API key for the client. Default: if the URL is loopback.",
            show_default=False,
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--print", help="Print the entry and its file; change nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Add the tools to the settings of an MCP client."""
    if client is None:
        _list_clients(as_json=as_json)
        return
    request = InstallRequest(client, tools, name, scope, url, key)
    if show:
        _show(request, as_json=as_json)
    else:
        _install(request, as_json=as_json)


def _list_clients(*, as_json: bool) -> None:
    from toolkiln.surfaces.cli.mcp_clients import CLIENTS

    rows = [
        (name, _file(client.user), _file(client.project) if client.project else None)
        for name, client in CLIENTS.items()
    ]
    if as_json:
        print_json(
            [
                {"client": name, "user": str(user), "project": project and str(project)}
                for name, user, project in rows
            ]
        )
    else:
        print_table(
            ("client", "file in a project", "file of a user"),
            [(name, str(project or "-"), str(user)) for name, user, project in rows],
        )


def _show(request: InstallRequest, *, as_json: bool) -> None:
    plan = _plan(request)
    key = _EXAMPLE_KEY if request.creates_key else None
    if as_json:
        entry = {**plan.first, **plan.entry}
        entry |= {plan.client.headers: plan.headers({}, key)} if key else {}
        print_json({"file": str(plan.file), "keys": plan.keys, "entry": entry})
    else:
        say(plan.edited("", key).removesuffix("\n"))
        say(f"note: this goes into {plan.file}", err=True)
        if key is not None:
            create = f"toolkiln keys create {request.key_name} --user {request.client}"
            say(f"note: `{create}` makes a key to put in place of {key}", err=True)


def _install(request: InstallRequest, *, as_json: bool) -> None:
    plan = _plan(request)
    before = _read(plan.file)
    bom = _BOM if before and before.startswith(_BOM) else b""
    try:
        text = (before or b"").removeprefix(bom).decode()
        old = plan.client.format.entry(text, plan.keys)
        after = bom + plan.edited(text, _EXAMPLE_KEY if request.creates_key else None).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{str(plan.file)!r} cannot be changed: {one_line(str(error))}",
            hint="fix it, or add by hand what `--print` prints",
        ) from error
    outcome = "unchanged" if after == before else "added" if old is None else "changed"
    with _new_key(request) if request.creates_key else nullcontext(None) as key:
        if key is not None:
            after = bom + plan.edited(text, key).encode()
        if outcome != "unchanged":
            _write(plan.file, before, after, private=key is not None)
    key_name = request.key_name if request.creates_key else None
    if as_json:
        file = str(plan.file)
        print_json({"outcome": outcome, "file": file, "name": request.name, "key": key_name})
        return
    say(f"{outcome}: {plan.file}: {request.name}")
    if old is not None and outcome == "changed":
        say(f"note: it replaces {_address(old)}; use --name for a second server", err=True)
    if key_name is not None:
        _note_key(key_name, plan.file, request.tools)
    elif request.url is not None:
        say("note: the entry has no API key; the server may need one", err=True)
    if outcome != "unchanged":
        say(f"next: in {plan.client.title}, {plan.client.then}", err=True)


@contextmanager
def _new_key(request: InstallRequest) -> Iterator[str]:
    """Yield a new key that replaces the client's old one; revoke it if the block fails."""
    from toolkiln.model.identity import Privilege
    from toolkiln.security.authentication import KeyScope
    from toolkiln.surfaces.cli.session import open_kiln, require

    with open_kiln(request.tools) as kiln:
        session = require(kiln, Privilege.ADMIN, "key.create")
        keys = kiln.security.keys
        for key in keys.list():
            if key.name == request.key_name and key.revoked is None:
                keys.revoke(key.id, session)
        created = keys.create(request.key_name, KeyScope(user_id=request.client), session)
        try:
            yield created.text
        except BaseException:  # a key that is in no file is useless
            keys.revoke(created.key.id, session)
            raise


def _note_key(name: str, file: Path, tools: Path | None) -> None:
    from toolkiln.config import project_settings

    talk(f"note: the file contains the API key {name}, without privileges, valid for 90 days")
    if project_settings(tools).require_key == "auto":
        say(
            "note: the project has API keys, so requests without a credential are refused", err=True
        )
    if file.stat().st_mode & 0o077:
        talk(f"note: other accounts can read {file}; `chmod 600` prevents that")
    talk("note: do not commit the file; `toolkiln keys revoke` ends the key")


def _plan(request: InstallRequest) -> _Plan:
    from toolkiln.surfaces.cli.mcp_clients import CLIENTS

    client = CLIENTS.get(request.client)
    if client is None:
        hint = nearest_hint(request.client, CLIENTS) or f"one of {', '.join(CLIENTS)}"
        raise InputError(f"there is no client {request.client[:100]!r}", hint=hint)
    if not _NAME.fullmatch(request.name):
        hint = "letters, digits, _ and -, a letter first, at most 64"
        raise InputError(f"{request.name[:100]!r} is not a valid name for a server", hint=hint)
    if request.scope not in _SCOPES:
        raise InputError(f"there is no scope {request.scope[:100]!r}", hint="user or project")
    if request.scope == "project" and not client.project:
        hint = "leave out --scope"
        raise InputError(f"{client.title} has no file for a project", hint=hint)
    return _Plan(
        client=client,
        file=_file(client.project if request.scope == "project" else client.user),
        keys=(*client.keys, request.name),
        entry=_entry(client, request),
        first=client.first(request.name),
        stale=client.stale(remote=request.url is not None),
    )


def _entry(client: "McpClientApp", request: InstallRequest) -> "Entry":
    if request.url is None:
        return client.started(_command(request.tools))
    if not re.fullmatch(r"https?://[!-~]+", request.url):
        hint = "such as http://127.0.0.1:8181/mcp"
        raise InputError(f"{request.url[:100]!r} is not the URL of a server", hint=hint)
    if client.reached is None:
        hint = "leave out --url, or add a connector in the client itself"
        raise InputError(f"{client.title} does not support URLs in its file", hint=hint)
    return client.reached(request.url)


def _command(tools: Path | None) -> list[str]:
    """Return the command that starts the server, in any folder."""
    from toolkiln.surfaces.cli.session import tools_path

    path = tools_path(tools).resolve()
    if not path.exists():
        hint = "name it with --tools PATH, or write a tool with `toolkiln new NAME`"
        raise InputError(f"there is nothing at {str(path)!r}", hint=hint)
    ours = Path(sys.executable).with_name("toolkiln")
    program = [str(ours)] if ours.exists() else [sys.executable, "-m", "toolkiln"]
    # The settings are those of this folder, not of the client's working folder.
    command = [*program, "-C", str(Path.cwd()), "mcp", "--tools", str(path)]
    try:
        "".join(command).encode()
    except UnicodeEncodeError:
        raise InputError(f"{str(path)!r} is not UTF-8", hint="rename the folder") from None
    return command


def _file(templates: Sequence[str]) -> Path:
    from toolkiln.config import project_settings
    from toolkiln.surfaces.cli.mcp_clients import settings_file

    return settings_file(templates, Path.cwd(), project_settings().environ)


def _address(entry: "Entry") -> str:
    """Return the URL or command of an entry, without variables and headers: they may be secret."""
    for key in ("url", "httpUrl", "uri"):
        if entry.get(key):
            return one_line(str(entry[key]))
    command = entry.get("command") or entry.get("cmd") or "nothing"
    parts = [*(command if isinstance(command, list) else [command]), *(entry.get("args") or [])]
    return one_line(" ".join(map(str, parts)))


def _read(file: Path) -> bytes | None:
    """Return the content of a file; None if it does not exist."""
    try:
        if file.exists() and not file.is_file():
            raise InputError(f"{str(file)!r} is not a file", hint="move it away")
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be read: {error.strerror}") from error


def _write(file: Path, before: bytes | None, after: bytes, *, private: bool) -> None:
    """Replace a file atomically, with the same permissions; a new `private` one is the owner's."""
    import tempfile

    try:
        target = file.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as output:
                _copy_permissions(descriptor, target, private=private)
                output.write(after)
                output.flush()
                os.fsync(descriptor)
            if _read(target) != before:
                raise InputError(f"{str(file)!r} changed in the meantime", hint="try again")
            Path(name).replace(target)
        except BaseException:  # leave no copy of the file
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror}") from error


def _copy_permissions(descriptor: int, target: Path, *, private: bool) -> None:
    """Set the owner and permissions of an existing file, or those of a new one."""
    try:
        status = target.stat()
    except FileNotFoundError:
        mask = os.umask(0o077)  # there is no other way to read it
        os.umask(mask)
        os.fchmod(descriptor, 0o600 if private else 0o666 & ~mask)
        return
    with suppress(PermissionError):  # only root may give files away
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
