"""The page at `/docs`, in a real browser."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from toolkiln.surfaces.http.routes import ROUTES

from .serving import SOON, Serving


@dataclass
class Opened:
    """A page, and what it did."""

    page: Page
    asked: list[str] = field(default_factory=list)
    """The addresses of all that it loaded, or tried to."""
    complaints: list[str] = field(default_factory=list)
    """Errors and warnings in the console, and uncaught exceptions."""

    def hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no browser: install Debian's `chromium` package")
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium) as launched,
    ):
        yield launched


@pytest.fixture
def opened(browser: Browser, api: Serving) -> Iterator[Opened]:
    with browser.new_page() as page:
        page.set_default_timeout(SOON * 1_000)
        found = Opened(page)
        page.on("request", lambda request: found.asked.append(request.url))
        page.on("console", found.hear)
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        credential = f"Bearer {api.kiln.security.operator}"
        page.set_extra_http_headers({"authorization": credential})
        page.goto(f"{api.url}/docs")
        expect(page.get_by_role("status")).to_contain_text("operations")
        yield found


def test_every_operation_is_shown_without_a_complaint_or_a_request_elsewhere(
    opened: Opened, api: Serving
) -> None:
    shown = opened.page.locator("details.operation")
    for number in range(shown.count()):
        shown.nth(number).locator("> summary").click()

    expect(shown.get_by_role("button", name="Send")).to_have_count(shown.count())
    identifiers = {one.get_attribute("id") for one in shown.all()}
    assert {operation.name for operation in ROUTES} <= identifiers
    assert opened.complaints == []
    assert opened.asked == [f"{api.url}/docs", f"{api.url}/openapi.json"]


def test_an_operation_is_found_by_words(opened: Opened) -> None:
    opened.page.get_by_label("Show operations with these words").fill("post calls cancel")

    shown = opened.page.locator("details.operation:visible")
    expect(opened.page.get_by_role("status")).to_have_text(f"{shown.count()} operations")
    assert {one.get_attribute("id") for one in shown.all()} == {"cancel_call"}


def test_an_operation_is_tried_and_its_answer_shown(opened: Opened, api: Serving) -> None:
    operation = opened.page.locator("#call_tool")
    operation.locator("> summary").click()
    operation.get_by_label("name (path, required)").fill("double")
    operation.get_by_role("button", name="Send").click()

    answer = operation.get_by_role("log")
    expect(answer).to_contain_text("200 OK")
    expect(answer).to_contain_text('"value": 42')
    assert opened.asked[-1] == f"{api.url}/v1/tools/double/call"
    assert opened.complaints == []
