"""`toolkiln serve`: the admitted tools over HTTP and MCP. All that it says goes to stderr."""

from pathlib import Path
from socket import socket

from toolkiln.app import Kiln, ManifestError
from toolkiln.errors import InputError
from toolkiln.surfaces.cli.admitting import unconfirmed_note
from toolkiln.surfaces.cli.opening import note_no_worker, open_kiln, run_in_main_thread
from toolkiln.surfaces.cli.terminal import talk
from toolkiln.surfaces.http.server import Server, listening, refuse_without_keys, url_of


def serve(
    tools: Path | None, redis: str | None = None, *, host: str | None, port: int | None
) -> None:
    """Serve until somebody interrupts, which is the way to end it.

    Raises:
        InputError: the address cannot be used, or needs a key that nobody made.
    """
    with open_kiln(tools, redis, surface="http", host=host, port=port) as kiln:
        refuse_without_keys(kiln)
        with listening(kiln.settings.host, kiln.settings.port) as listener:
            _tell_tools(kiln)
            run_in_main_thread(kiln, _serve(kiln, listener))


def tell_urls(server: Server, url: str) -> None:
    """Print the authentication mode and the addresses.

    Raises:
        StoreError: the API keys cannot be looked up.
    """
    talk(f"auth: {server.entrance.authentication.mode()}")
    link = server.sign_in_url(url)
    talk(f"Page {link or f'{url}/ui/'}")
    if link is not None:
        talk("     (this link signs you in, once; keep it private)")
    talk(f"HTTP {url}/v1, described at {url}/docs")
    talk(f"MCP  {url}/mcp")


def _tell_tools(kiln: Kiln) -> None:
    try:
        count = len(kiln.specs)
    except (ManifestError, InputError) as unserved:  # it may be mended while this runs
        talk(f"note: no tools yet: {unserved.message}")
        if unserved.hint:
            talk(f"note: {unserved.hint}")
        return
    talk(f"{count:,} tool{'' if count == 1 else 's'} of {kiln.place}; Ctrl-C ends it")
    if unadmitted := sum(map(kiln.is_dev, kiln.specs)):
        talk(f"note: dev: {unadmitted:,} of them served as on disk, without an admission")
    served = kiln.snapshot.served.values()
    if unconfirmed := {s.file for s in served if s.admission and s.admission.is_unconfirmed}:
        talk(f"warning: {unconfirmed_note(len(unconfirmed))}")
    note_no_worker(kiln)


async def _serve(kiln: Kiln, listener: socket) -> None:
    server = Server(kiln, talk)
    with server.heeding_signals():
        tell_urls(server, url_of(listener))
        await server.run_on(listener)
