"""Telling clients of the server: an entry in each one's own file, and nothing else in it.

A file is replaced in one step, by one with its permissions; where it is a link, what it
leads to. A file that cannot be understood stays as it is.
"""

import os
import re
import stat
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from toolkiln.config import project_settings
from toolkiln.errors import InputError, nearest_hint
from toolkiln.surfaces.cli.clients import CLIENTS, Client, Entry, place
from toolkiln.surfaces.cli.opening import tools_path
from toolkiln.surfaces.cli.tables import one_line, print_table
from toolkiln.surfaces.cli.terminal import print_json, say

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_SCOPES = ("user", "project")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Order:
    """Which client is to know what, as somebody said it."""

    client: str
    tools: Path | None
    name: str
    scope: str
    url: str | None


@dataclass(frozen=True)
class _Plan:
    """The same, checked."""

    client: Client
    file: Path
    keys: tuple[str, ...]
    entry: Entry
    first: Entry
    stale: tuple[str, ...]

    def edited(self, text: str) -> str:
        """A text with the entry.

        Raises:
            ValueError: it cannot be put in.
        """
        known = self.client.format.entry(text, self.keys)
        entry = {**self.first, **self.entry} if known is None else self.entry
        return self.client.format.put(text, self.keys, entry, self.stale)


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
    if as_json:
        entry = {**plan.first, **plan.entry}
        print_json({"file": str(plan.file), "keys": plan.keys, "entry": entry})
    else:
        say(plan.edited("").removesuffix("\n"))
        say(f"note: this goes into {plan.file}", err=True)


def install(order: Order, *, as_json: bool) -> None:
    """Put the entry into the client's file."""
    plan = _plan(order)
    before = _read(plan.file)
    mark = _BOM if before and before.startswith(_BOM) else b""
    try:
        text = (before or b"").removeprefix(mark).decode()
        old = plan.client.format.entry(text, plan.keys)
        after = mark + plan.edited(text).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{str(plan.file)!r} cannot be changed: {one_line(str(error))}",
            hint="mend it, or put in by hand what `--print` prints",
        ) from error
    outcome = "unchanged" if after == before else "added" if old is None else "changed"
    if outcome != "unchanged":
        _write(plan.file, before, after)
    if as_json:
        print_json({"outcome": outcome, "file": str(plan.file), "name": order.name})
        return
    say(f"{outcome}: {plan.file}: {order.name}")
    if old is not None and outcome == "changed":
        say(f"note: until now it was {_address(old)}; --name keeps servers apart", err=True)
    if outcome != "unchanged":
        say(f"next: in {plan.client.title}, {plan.client.then}", err=True)


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


def _write(file: Path, before: bytes | None, after: bytes) -> None:
    """Put a file in the place of another: all of it or nothing, with the same permissions."""
    try:
        target = file.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as output:
                _take_after(descriptor, target)
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


def _take_after(descriptor: int, target: Path) -> None:
    """Give a file the owner and the permissions of another, or of one that is new."""
    try:
        status = target.stat()
    except FileNotFoundError:
        mask = os.umask(0o077)  # there is no other way to ask for it
        os.umask(mask)
        os.fchmod(descriptor, 0o666 & ~mask)
        return
    with suppress(PermissionError):  # whoever may write it need not be able to give it away
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
