"""`toolkiln install`: an entry for the server in a client's own file, and nothing else in it.

A client that connects by URL gets an API key of its own, in the entry's headers. A file is
replaced in one step, by one with its permissions; where it is a link, what it leads to. A file
that cannot be understood stays as it is.
"""

import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from toolkiln.app import Scope, is_loopback
from toolkiln.config import project_settings
from toolkiln.errors import InputError, nearest_hint
from toolkiln.model import Privilege
from toolkiln.surfaces.cli.clients import CLIENTS, Client, Entry, place
from toolkiln.surfaces.cli.opening import open_kiln, require, tools_path
from toolkiln.surfaces.cli.tables import one_line, print_table
from toolkiln.surfaces.cli.terminal import print_json, say, talk

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_SCOPES = ("user", "project")
_BOM = b"\xef\xbb\xbf"
_NAME_OF_SERVER = "toolkiln"
_EXAMPLE_KEY = "tk_…"


@dataclass(frozen=True)
class Order:
    """Which client is to know what, as somebody said it."""

    client: str
    tools: Path | None
    name: str
    scope: str
    url: str | None
    key: bool | None = None
    """Whether a client with a URL gets a key; None: if the URL leads to this machine."""

    @property
    def wants_key(self) -> bool:
        """Whether an API key is created."""
        if self.url is None:
            return False
        return is_loopback(urlsplit(self.url).hostname or "") if self.key is None else self.key

    @property
    def key_name(self) -> str:
        """The name of the key: the client's, and what tells several entries of it apart."""
        parts = [self.client]
        parts += ["project"] if self.scope == "project" else []
        parts += [self.name] if self.name != _NAME_OF_SERVER else []
        return "-".join(parts)


@dataclass(frozen=True)
class _Plan:
    """The same, checked."""

    client: Client
    file: Path
    keys: tuple[str, ...]
    entry: Entry
    first: Entry
    stale: tuple[str, ...]

    def edited(self, text: str, key: str | None = None) -> str:
        """A text with the entry, which sends a key if there is one.

        Raises:
            ValueError: it cannot be put in.
        """
        known = self.client.format.entry(text, self.keys)
        entry = {**self.first, **self.entry} if known is None else self.entry
        if key is not None:
            entry = {**entry, self.client.headers: self.headers(known or {}, key)}
        return self.client.format.put(text, self.keys, entry, self.stale)

    def headers(self, known: Entry, key: str) -> Entry:
        """The headers of an entry with those of a key."""
        found = known.get(self.client.headers)
        others = found if isinstance(found, dict) else {}
        return {**others, "Authorization": f"Bearer {key}"}


def list_clients(*, as_json: bool) -> None:
    """Print the clients and their files."""
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


def show(order: Order, *, as_json: bool) -> None:
    """Print what an order would put where."""
    plan = _plan(order)
    key = _EXAMPLE_KEY if order.wants_key else None
    if as_json:
        entry = {**plan.first, **plan.entry}
        entry |= {plan.client.headers: plan.headers({}, key)} if key else {}
        print_json({"file": str(plan.file), "keys": plan.keys, "entry": entry})
    else:
        say(plan.edited("", key).removesuffix("\n"))
        say(f"note: this goes into {plan.file}", err=True)
        if key is not None:
            create = f"toolkiln keys create {order.key_name} --user {order.client}"
            say(f"note: `{create}` makes a key to put in place of {key}", err=True)


def install(order: Order, *, as_json: bool) -> None:
    """Put the entry into the client's file."""
    plan = _plan(order)
    before = _read(plan.file)
    mark = _BOM if before and before.startswith(_BOM) else b""
    try:
        text = (before or b"").removeprefix(mark).decode()
        old = plan.client.format.entry(text, plan.keys)
        after = mark + plan.edited(text, _EXAMPLE_KEY if order.wants_key else None).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{str(plan.file)!r} cannot be changed: {one_line(str(error))}",
            hint="mend it, or put in by hand what `--print` prints",
        ) from error
    outcome = "unchanged" if after == before else "added" if old is None else "changed"
    with _new_key(order) if order.wants_key else nullcontext(None) as key:
        if key is not None:
            after = mark + plan.edited(text, key).encode()
        if outcome != "unchanged":
            _write(plan.file, before, after, private=key is not None)
    key_name = order.key_name if order.wants_key else None
    if as_json:
        told = {"outcome": outcome, "file": str(plan.file), "name": order.name, "key": key_name}
        print_json(told)
        return
    say(f"{outcome}: {plan.file}: {order.name}")
    if old is not None and outcome == "changed":
        say(f"note: until now it was {_address(old)}; --name keeps servers apart", err=True)
    if key_name is not None:
        _tell_of_key(key_name, plan.file, order.tools)
    elif order.url is not None:
        say("note: the entry has no API key; the server may need one", err=True)
    if outcome != "unchanged":
        say(f"next: in {plan.client.title}, {plan.client.then}", err=True)


@contextmanager
def _new_key(order: Order) -> Iterator[str]:
    """A key for the client, in place of the one that it had; revoked if the block fails."""
    with open_kiln(order.tools) as kiln:
        session = require(kiln, Privilege.ADMIN, "key.create")
        keys = kiln.guarding.keys
        for key in keys.list():
            if key.name == order.key_name and key.revoked is None:
                keys.revoke(key.id, session)
        made = keys.create(order.key_name, Scope(user_id=order.client), session)
        try:
            yield made.text
        except BaseException:  # whatever it was, a key that is in no file stays useless
            keys.revoke(made.key.id, session)
            raise


def _tell_of_key(name: str, file: Path, tools: Path | None) -> None:
    talk(f"note: the file holds the API key {name}, without privileges, valid for 90 days")
    if project_settings(tools).require_key == "auto":
        say(
            "note: the project has API keys, so requests without a credential are refused", err=True
        )
    if file.stat().st_mode & 0o077:
        talk(f"note: other accounts can read {file}; `chmod 600` prevents that")
    talk("note: do not commit the file; `toolkiln keys revoke` ends the key")


def _plan(order: Order) -> _Plan:
    client = CLIENTS.get(order.client)
    if client is None:
        hint = nearest_hint(order.client, CLIENTS) or f"one of {', '.join(CLIENTS)}"
        raise InputError(f"there is no client {order.client[:100]!r}", hint=hint)
    if not _NAME.fullmatch(order.name):
        hint = "letters, digits, _ and -, a letter first, at most 64"
        raise InputError(f"{order.name[:100]!r} is no name for a server", hint=hint)
    if order.scope not in _SCOPES:
        raise InputError(f"there is no scope {order.scope[:100]!r}", hint="user or project")
    if order.scope == "project" and not client.project:
        hint = "leave out --scope"
        raise InputError(f"{client.title} has no file for a project", hint=hint)
    return _Plan(
        client=client,
        file=_file(client.project if order.scope == "project" else client.user),
        keys=(*client.keys, order.name),
        entry=_entry(client, order),
        first=client.first(order.name),
        stale=client.stale(remote=order.url is not None),
    )


def _entry(client: Client, order: Order) -> Entry:
    if order.url is None:
        return client.started(_command(order.tools))
    if not re.fullmatch(r"https?://[!-~]+", order.url):
        hint = "such as http://127.0.0.1:8181/mcp"
        raise InputError(f"{order.url[:100]!r} is no URL of a server", hint=hint)
    if client.reached is None:
        hint = "leave out --url, or add a connector in the client itself"
        raise InputError(f"{client.title} takes no URL in its file", hint=hint)
    return client.reached(order.url)


def _command(tools: Path | None) -> list[str]:
    """What starts the server for the tools at hand, wherever it is run."""
    path = tools_path(tools).resolve()
    if not path.exists():
        hint = "name it with --tools PATH, or write a tool with `toolkiln new NAME`"
        raise InputError(f"there is nothing at {str(path)!r}", hint=hint)
    ours = Path(sys.executable).with_name("toolkiln")
    program = [str(ours)] if ours.exists() else [sys.executable, "-m", "toolkiln"]
    # The settings that count are those that lie here, not where the client is at work.
    command = [*program, "-C", str(Path.cwd()), "mcp", "--tools", str(path)]
    try:
        "".join(command).encode()
    except UnicodeEncodeError:
        raise InputError(f"{str(path)!r} is not UTF-8", hint="rename the folder") from None
    return command


def _file(templates: Sequence[str]) -> Path:
    return place(templates, Path.cwd(), project_settings().environ)


def _address(entry: Entry) -> str:
    """How an entry reaches its server; no variable or header, which may be secret."""
    for key in ("url", "httpUrl", "uri"):
        if entry.get(key):
            return one_line(str(entry[key]))
    command = entry.get("command") or entry.get("cmd") or "nothing"
    parts = [*(command if isinstance(command, list) else [command]), *(entry.get("args") or [])]
    return one_line(" ".join(map(str, parts)))


def _read(file: Path) -> bytes | None:
    """What is in a file; None if there is none."""
    try:
        if file.exists() and not file.is_file():
            raise InputError(f"{str(file)!r} is no file", hint="move it out of the way")
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be read: {error.strerror}") from error


def _write(file: Path, before: bytes | None, after: bytes, *, private: bool) -> None:
    """Put a file in the place of another: all of it or nothing, with the same permissions.

    A new file that is `private` can be read by its owner only.
    """
    try:
        target = file.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as output:
                _take_after(descriptor, target, private=private)
                output.write(after)
                output.flush()
                os.fsync(descriptor)
            if _read(target) != before:
                raise InputError(f"{str(file)!r} was changed meanwhile", hint="try again")
            Path(name).replace(target)
        except BaseException:  # whatever it was, no copy of the file stays behind
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror}") from error


def _take_after(descriptor: int, target: Path, *, private: bool) -> None:
    """Give a file the owner and the permissions of another, or of one that is new."""
    try:
        status = target.stat()
    except FileNotFoundError:
        mask = os.umask(0o077)  # there is no other way to ask for it
        os.umask(mask)
        os.fchmod(descriptor, 0o600 if private else 0o666 & ~mask)
        return
    with suppress(PermissionError):  # whoever may write it need not be able to give it away
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
