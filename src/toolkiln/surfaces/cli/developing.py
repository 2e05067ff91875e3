"""`toolkiln dev`: serve a folder as it is, and tell what becomes of each edit.

Changes and findings go to stdout; how many tools there are, where they are served, why
nothing is and what concerns watching itself go to stderr. What is served is decided by the
catalog, and how by `surfaces.http`.
"""

import asyncio
import os
import signal
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, contextmanager, suppress
from html import escape
from io import TextIOWrapper
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from threading import Thread

from toolkiln.app import Change, Kiln, Report, not_granted
from toolkiln.config import Settings
from toolkiln.errors import InputError
from toolkiln.model import Reading
from toolkiln.surfaces.cli import output
from toolkiln.surfaces.cli.opening import open_folder, open_kiln, run_in_main_thread
from toolkiln.surfaces.cli.terminal import is_terminal, say, talk

_HOST = "127.0.0.1"
"""What nobody has admitted is for nobody else."""
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")
_REDIRECT = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Toolkiln</title>
<p><a href="{url}">Open Toolkiln</a></p>
"""


def dev(
    tools: Path | None, port: int | None = None, *, serves: bool = True, opens: bool = False
) -> int:
    """Print what changes until somebody interrupts, which is the way to end it.

    With `opens` the page is opened in a browser, if this is a terminal on a desktop.

    Raises:
        InputError: the port that was named cannot be used.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    if not serves:
        with open_folder(tools, dev=True) as kiln, suppress(asyncio.CancelledError):
            run_in_main_thread(kiln, _watch(kiln))
        return 0
    with (
        open_kiln(tools, dev=True, surface="http", host=_HOST, port=port) as kiln,
        _listening(kiln, is_port_named=port is not None) as listener,
    ):
        work = _serve(kiln, listener, opens=opens and _is_desktop(kiln.settings))
        run_in_main_thread(kiln, work)
    return 0


def _listening(kiln: Kiln, *, is_port_named: bool) -> socket:
    from toolkiln.surfaces.http.server import listening

    try:
        return listening(_HOST, kiln.settings.port)
    except InputError as error:
        if is_port_named:
            raise
        talk(f"note: {error.message}; another one is taken")
        return listening(_HOST, 0)


async def _watch(kiln: Kiln) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    is_first = True
    async with aclosing(kiln.watch(talk)) as changes:
        async for change in changes:
            _print(kiln, change, is_first=is_first)
            is_first = False


async def _serve(kiln: Kiln, listener: socket, *, opens: bool) -> None:
    from toolkiln.surfaces.cli.serving import tell_urls
    from toolkiln.surfaces.http.server import Server, url_of

    server, has_begun, url = Server(kiln, talk), asyncio.Event(), url_of(listener)

    async def tell() -> None:
        async with aclosing(kiln.changes.stream()) as changes:
            async for change in changes:
                _print(kiln, change, is_first=not has_begun.is_set())
                has_begun.set()

    telling = asyncio.create_task(tell())
    telling.add_done_callback(lambda _: server.stop())  # nobody reads what is told
    try:
        with server.heeding_signals(), ExitStack() as stack:
            async with kiln.changes.running():
                waiting = asyncio.create_task(has_begun.wait())
                await asyncio.wait((telling, waiting), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                tell_urls(server, url)
                link = server.sign_in_url(url)
                if opens and link is not None:
                    _open(stack.enter_context(redirect_file(link)))
                await server.run_on(listener)
    finally:
        if not telling.done():
            telling.cancel()
            await asyncio.wait((telling,))
    if not telling.cancelled():
        telling.result()


def _is_desktop(settings: Settings) -> bool:
    """Whether somebody sits at a screen that a browser could open on."""
    has_screen = any(settings.environ.get(name) for name in _SCREENS)
    return has_screen and is_terminal(err=True)


@contextmanager
def redirect_file(url: str) -> Iterator[str]:
    """A page, for this account only, that leads a browser to a URL; gives the page's address.

    Arguments of a process are visible to all accounts, and the URL holds the start-up token.
    """
    with TemporaryDirectory(prefix="toolkiln-") as folder:
        file = Path(folder, "open.html")
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as output:
            output.write(_REDIRECT.format(url=escape(url)))
        yield file.as_uri()


def _open(url: str) -> None:
    """Open a browser; some stay until they are closed, so nobody waits for it."""
    Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _print(kiln: Kiln, change: Change, *, is_first: bool) -> None:
    if is_first:
        count = len(change.snapshot.tools)
        talk(f"{count:,} tool{'' if count == 1 else 's'} of {kiln.path}; Ctrl-C ends it")
    if change.error is not None:
        talk(f"waiting: {change.error.message}")
        if change.error.hint:
            talk(f"hint: {change.error.hint}")
        return
    arrived = (*change.added, *change.changed)
    for name in () if is_first else arrived:
        served = change.snapshot.served[name]
        version = "dev" if served.dev else f"v{served.version}"
        if name in change.changed:
            say(f"~ {name} ({version})  {change.seconds * 1000:.0f} ms")
        else:
            say(f"+ {name} ({version})")
    for name in change.removed:
        say(f"- {name}")
    for name in arrived:
        if missing := ", ".join(not_granted(kiln, name)):
            say(f"  {name} is not granted {missing}")
    for path, findings in change.refused.items():
        reading = Reading(path=path, digest="", findings=findings)
        output.print_report(Report(reading=reading, health={}))
