"""One browser for all tests of the page, and windows in it."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from .site import Look, Site, View, looking

_QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


# Not for the whole session: as long as it is open no test can have an event loop.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no browser: install Debian's `chromium` package")
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=_QUIET) as launched,
    ):
        yield launched


@pytest.fixture
def look(browser: Browser, site: Site) -> Iterator[Look]:
    """Opens windows on the module's `site`; each is checked when the test is done."""
    with ExitStack() as windows:

        def opened(path: str = "/", **options: Any) -> View:
            view = windows.enter_context(looking(browser, site, **options))
            view.open(path)
            return view

        yield opened
