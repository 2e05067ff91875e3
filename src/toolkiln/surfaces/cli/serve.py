"""Commands that serve tools until they are stopped: serve, dev, mcp.

`dev` prints changes and findings to stdout, everything else goes to stderr. In `mcp` stdout
belongs to the protocol.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkiln.errors import InputError
from toolkiln.surfaces.cli.app import DevOption, RedisOption, ToolsOption, app, command
from toolkiln.surfaces.cli.terminal import counted, is_terminal, say, talk

if TYPE_CHECKING:
    from socket import socket

    from toolkiln.config import Settings
    from toolkiln.kiln import Kiln
    from toolkiln.model.catalog import CatalogChange
    from toolkiln.surfaces.http.server import HttpServer

HostOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Default: the setting, 127.0.0.1.", show_default=False),
]
PortOption = Annotated[
    int | None,
    typer.Option(help="0: any free port. Default: the setting, 8420.", show_default=False),
]
_DEV_HOST = "127.0.0.1"
"""Unadmitted tools are only for this machine."""
_REDIRECT = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Toolkiln</title>
<p><a href="{url}">Open Toolkiln</a></p>
"""


@command(app)
def serve(
    host: HostOption = None,
    port: PortOption = None,
    tools: ToolsOption = None,
    redis: RedisOption = None,
) -> None:
    """Serve the admitted tools over HTTP and MCP, until Ctrl-C."""
    from toolkiln.surfaces.cli.session import open_kiln, run_in_main_thread
    from toolkiln.surfaces.http.server import open_listener, refuse_without_keys

    with open_kiln(tools, redis, surface="http", host=host, port=port) as kiln:
        refuse_without_keys(kiln)
        with open_listener(kiln.settings.host, kiln.settings.port) as listener:
            _print_tools(kiln)
            run_in_main_thread(kiln, _serve(kiln, listener))


@command(app)
def dev(
    port: PortOption = None,
    no_serve: Annotated[
        bool, typer.Option("--no-serve", help="Only watch and print changes; no HTTP, no MCP.")
    ] = False,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Do not open the page in a browser.")
    ] = False,
    tools: ToolsOption = None,
) -> None:
    """Serve the files on disk while you edit them, until Ctrl-C."""
    from asyncio import CancelledError
    from io import TextIOWrapper

    from toolkiln.surfaces.cli.session import open_folder, open_kiln, run_in_main_thread

    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    if no_serve:
        with open_folder(tools, dev=True) as kiln, suppress(CancelledError):
            run_in_main_thread(kiln, _watch(kiln))
        return
    with (
        open_kiln(tools, dev=True, surface="http", host=_DEV_HOST, port=port) as kiln,
        _listening(kiln, is_port_named=port is not None) as listener,
    ):
        opens = not no_open and _is_desktop(kiln.settings)
        run_in_main_thread(kiln, _serve_and_watch(kiln, listener, opens=opens))


@command(app)
def mcp(tools: ToolsOption = None, dev: DevOption = False, redis: RedisOption = None) -> None:
    """Speak MCP over stdin and stdout, until the client closes them."""
    import gc

    gc.disable()  # a client waits, and there is no garbage yet; `_serve_mcp` turns it on
    from asyncio import CancelledError

    from toolkiln.surfaces.cli.session import open_kiln, run_in_main_thread

    opened = open_kiln(tools, redis, dev=dev, surface="mcp")
    with opened as kiln, suppress(CancelledError):
        run_in_main_thread(kiln, _serve_mcp(kiln))


async def _serve(kiln: "Kiln", listener: "socket") -> None:
    from toolkiln.surfaces.http.server import HttpServer, url_of

    server = HttpServer(kiln, talk)
    with server.handle_signals():
        print_urls(server, url_of(listener))
        await server.run_on(listener)


def print_urls(server: "HttpServer", url: str) -> None:
    """Print the authentication mode and the addresses to stderr."""
    talk(f"auth: {server.authenticator.authentication.mode()}")
    link = server.sign_in_url(url)
    talk(f"Page {link or f'{url}/ui/'}")
    if link is not None:
        talk("     (this link signs you in, once; keep it private)")
    talk(f"HTTP {url}/v1, described at {url}/docs")
    talk(f"MCP  {url}/mcp")


def _print_tools(kiln: "Kiln") -> None:
    from toolkiln.surfaces.cli.catalog import unconfirmed_note
    from toolkiln.surfaces.cli.session import note_no_worker, note_unadmitted

    registry = kiln.services.registry
    try:
        count = len(registry.specs)
    except InputError as error:  # it may be repaired while the server runs
        talk(f"note: no tools yet: {error.message}")
        if error.hint:
            talk(f"note: {error.hint}")
        return
    talk(f"{counted(count, 'tool')} of {kiln.services.location}; Ctrl-C ends it")
    note_unadmitted(kiln)
    served = registry.snapshot.served.values()
    if unconfirmed := {s.file for s in served if s.admission and s.admission.is_unconfirmed}:
        talk(f"warning: {unconfirmed_note(len(unconfirmed))}")
    note_no_worker(kiln)


def _listening(kiln: "Kiln", *, is_port_named: bool) -> "socket":
    from toolkiln.surfaces.http.server import open_listener

    try:
        return open_listener(_DEV_HOST, kiln.settings.port)
    except InputError as error:
        if is_port_named:
            raise
        talk(f"note: {error.message}; using a free port")
        return open_listener(_DEV_HOST, 0)


async def _watch(kiln: "Kiln") -> None:
    from contextlib import aclosing

    _cancel_on_signals()
    is_first = True
    async with aclosing(kiln.services.watch(talk)) as changes:
        async for change in changes:
            _print_change(kiln, change, is_first=is_first)
            is_first = False


async def _serve_and_watch(kiln: "Kiln", listener: "socket", *, opens: bool) -> None:
    import asyncio
    from contextlib import ExitStack, aclosing

    from toolkiln.surfaces.http.server import HttpServer, url_of

    server, has_begun, url = HttpServer(kiln, talk), asyncio.Event(), url_of(listener)

    async def print_changes() -> None:
        async with aclosing(kiln.services.changes.stream()) as changes:
            async for change in changes:
                _print_change(kiln, change, is_first=not has_begun.is_set())
                has_begun.set()

    printing = asyncio.create_task(print_changes())
    printing.add_done_callback(lambda _: server.stop())  # stdout was closed
    try:
        with server.handle_signals(), ExitStack() as stack:
            async with kiln.services.changes.running():
                waiting = asyncio.create_task(has_begun.wait())
                await asyncio.wait((printing, waiting), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                print_urls(server, url)
                link = server.sign_in_url(url)
                if opens and link is not None:
                    _open_browser(stack.enter_context(redirect_file(link)))
                await server.run_on(listener)
    finally:
        if not printing.done():
            printing.cancel()
            await asyncio.wait((printing,))
    if not printing.cancelled():
        printing.result()


async def _serve_mcp(kiln: "Kiln") -> None:
    import gc
    from contextlib import AsyncExitStack

    from toolkiln.security.authentication import Authenticator
    from toolkiln.security.sessions import find_credential
    from toolkiln.surfaces.cli.session import open_session
    from toolkiln.surfaces.mcp.server import McpServer
    from toolkiln.surfaces.mcp.stdio import stdio_streams
    from toolkiln.surfaces.tracing import Tracing, exporter, is_traced

    _cancel_on_signals()
    credential = find_credential(kiln.settings.environ)
    authenticator = Authenticator(kiln.security, kiln.settings)
    if credential is not None:
        open_session(authenticator, credential)  # refuse a wrong one before serving anything
    service = McpServer(kiln, authenticator, credential and credential.text)
    gc.freeze()  # objects made by the start stay: collections need not visit them
    gc.enable()
    async with AsyncExitStack() as stack:
        if is_traced(kiln.settings):
            tracing = Tracing(exporter(kiln.settings))
            await stack.enter_async_context(tracing.running(kiln))
        incoming, outgoing = await stack.enter_async_context(stdio_streams())
        await stack.enter_async_context(service.running())
        options = service.server.create_initialization_options()
        await service.server.run(incoming, outgoing, options)


def _cancel_on_signals() -> None:
    import asyncio

    from toolkiln.surfaces.cli.session import handle_signals

    task = asyncio.current_task()
    assert task is not None
    handle_signals(task.cancel)


def _is_desktop(settings: "Settings") -> bool:
    has_screen = any(settings.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return has_screen and is_terminal(err=True)


@contextmanager
def redirect_file(url: str) -> Iterator[str]:
    """Yield the address of a page, readable by this account only, that redirects to a URL.

    Arguments of a process are visible to all accounts, and the URL contains the start-up token.
    """
    import os
    from html import escape
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="toolkiln-") as folder:
        file = Path(folder, "open.html")
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as output:
            output.write(_REDIRECT.format(url=escape(url)))
        yield file.as_uri()


def _open_browser(url: str) -> None:
    """Open a browser in a thread: some return only when they are closed."""
    import webbrowser
    from threading import Thread

    Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _print_change(kiln: "Kiln", change: "CatalogChange", *, is_first: bool) -> None:
    from toolkiln.operations.policy import not_granted
    from toolkiln.surfaces.cli.tools import print_findings

    if is_first:
        count = len(change.snapshot.tools)
        talk(f"{counted(count, 'tool')} of {kiln.services.path}; Ctrl-C ends it")
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
        if missing := ", ".join(not_granted(kiln.services, name)):
            say(f"  {name} is not granted {missing}")
    for path, findings in change.refused.items():
        print_findings(path, findings)
