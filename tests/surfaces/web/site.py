"""The whole server on a free port of this machine, and a browser's view of it."""

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from toolkiln.config import Settings
from toolkiln.kiln import Kiln
from toolkiln.model.identity import Privilege
from toolkiln.surfaces.http.server import HttpServer, open_listener, url_of

SOON = 30.0
_AXE = Path(__file__).parents[3] / "web/node_modules/axe-core/axe.min.js"
expect.set_options(timeout=SOON * 1_000)
_SERIOUS = ("serious", "critical")


class Site:
    """A server over a folder whose files are served as they are; it can be restarted."""

    def __init__(self, folder: Path, files: Mapping[str, str], **settings: Any) -> None:
        self.tools = folder / "tools"
        self.tools.mkdir(parents=True, exist_ok=True)
        for name, source in files.items():
            self.write(name, source)
        given = {"state": folder / "state", "environ": dict(os.environ), "dev": True, **settings}
        self._settings = Settings(**given)
        self._port = 0
        self.url = ""
        self.kiln: Kiln
        self.loop: asyncio.AbstractEventLoop

    def write(self, name: str, source: str) -> None:
        """Put a file into the folder."""
        place = self.tools / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source, "utf-8")

    def admit(self, *names: str) -> None:
        """Admit files as they are."""
        admissions = self.kiln.services.admissions
        candidates = [admissions.candidate(name) for name in names]
        admissions.admit(candidates, self.kiln.security.decision())

    @contextmanager
    def running(self) -> Iterator["Site"]:
        """Serve as long as the block runs; the second time on the same port."""
        with open_listener("127.0.0.1", self._port) as listener:
            self.url = url_of(listener)
            self._port = listener.getsockname()[1]
            ready = threading.Event()
            thread = threading.Thread(target=lambda: asyncio.run(self._serve(listener, ready)))
            thread.start()
            assert ready.wait(SOON)
            try:
                yield self
            finally:
                self.loop.call_soon_threadsafe(self._end)
                thread.join(SOON)
                assert not thread.is_alive()

    async def _serve(self, listener: Any, ready: threading.Event) -> None:
        async with Kiln(self.tools, settings=self._settings, surface="http") as kiln:
            self.kiln, self.loop = kiln, asyncio.get_running_loop()
            self.server = HttpServer(kiln, lambda _: None)
            serving = asyncio.create_task(self.server.run_on(listener))
            while not self.server.started and not serving.done():
                await asyncio.sleep(0.005)
            ready.set()
            await serving

    def _end(self) -> None:
        self.server.should_exit = self.server.force_exit = True

    def sign_in(self, page: Page, *, outlives: bool = False) -> None:
        """Sign a browser in with the start-up link, or with a session that outlives the server."""
        if not outlives:
            link = self.server.sign_in_url(self.url)
            assert link is not None
            page.goto(link)
            return
        made = self.kiln.security.sessions.create("chief", privileges=list(Privilege), seconds=600)
        cookie = {"name": f"toolkiln-{self._port}", "value": made.token, "url": self.url}
        page.context.add_cookies([{**cookie, "httpOnly": True, "sameSite": "Strict"}])  # type: ignore[typeddict-item]

    @contextmanager
    def client(self, token: str | None = None) -> Iterator[httpx2.Client]:
        """A client of the API: by default the local person's; an empty token is no credential."""
        shown = self.kiln.security.operator if token is None else token
        headers = {"authorization": f"Bearer {shown}"} if shown else {}
        with httpx2.Client(
            base_url=self.url, headers=headers, timeout=SOON, trust_env=False
        ) as client:
            yield client


@dataclass
class View:
    """A page in a browser, and what it did."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    """Errors and warnings in the console, what nobody caught, and what the policy forbade."""
    elsewhere: list[str] = field(default_factory=list)
    """Addresses of other servers that it asked for something."""
    forgiven: tuple[str, ...] = ()
    """Parts of complaints that a test provokes, such as of a server that is away."""

    def open(self, path: str) -> Page:
        """Go to an address below `/ui`."""
        self.page.goto(f"{self.url}/ui{path}")
        expect(self.page.locator("main")).to_be_visible()
        return self.page

    def hear(self, message: ConsoleMessage) -> None:
        """Note what the console says."""
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def check(self) -> None:
        """Fails if the page complained, or asked anybody but its own server."""
        unforgiven = [
            text for text in self.complaints if not any(part in text for part in self.forgiven)
        ]
        assert unforgiven == []
        assert self.elsewhere == []

    def check_access(self) -> None:
        """Fails if axe finds something serious on the page as it is."""
        self.page.evaluate(_AXE.read_text("utf-8"))
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious = [one for one in found["violations"] if one["impact"] in _SERIOUS]
        told = [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in serious]
        assert told == [], json.dumps(told, indent=1)


Look = Callable[..., View]


@contextmanager
def looking(
    browser: Browser,
    site: Site,
    *,
    url: str = "",
    signed_in: bool = True,
    outlives: bool = False,
    **options: Any,
) -> Iterator[View]:
    """A browser window of its own, with its own cookies, and a check at the end.

    It is signed in as the local person, unless it sends another credential. `url`: how the browser
    calls the server.
    """
    context = browser.new_context(**options)
    try:
        page = context.new_page()
        page.set_default_timeout(SOON * 1_000)
        if signed_in and "extra_http_headers" not in options:
            site.sign_in(page, outlives=outlives)
        view = View(page, url or site.url)
        page.on("console", view.hear)
        page.on("pageerror", lambda error: view.complaints.append(str(error)))
        page.on("request", lambda request: _note(view, request.url))
        yield view
        view.check()
    finally:
        context.close()


def _note(view: View, url: str) -> None:
    if not url.startswith((view.url, "data:", f"blob:{view.url}")):
        view.elsewhere.append(url)
