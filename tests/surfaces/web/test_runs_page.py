"""The page Runs: calls watched as they happen, looked into, and stopped."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from .site import SOON, Look, Site, looking

pytestmark = pytest.mark.browser

TOOLS = '''
import time

from toolkiln import Context, tool

HOSTILE = "<img src=x onerror=alert(1)>"


@tool(timeout=120)
def bake(minutes: float, oven_password: str, ctx: Context) -> str:
    """Bake something, in two steps."""
    ctx.log(f"lit {HOSTILE}")
    ctx.call("heat", minutes=0)
    ctx.call("heat", minutes=minutes)
    return HOSTILE


@tool(timeout=120)
def heat(minutes: float, ctx: Context) -> str:
    """Heat the oven."""
    ctx.report_progress(1, 3, "warming up")
    time.sleep(minutes * 60)
    return "x" * 60_000
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("runs"), {"baking.py": TOOLS})
    with site.running():
        yield site


class Baking:
    """A call that somebody else makes meanwhile."""

    def __init__(self, site: Site, minutes: float) -> None:
        self._site, self._minutes = site, minutes
        self._thread = threading.Thread(target=self._call)
        self._thread.start()

    def _call(self) -> None:
        given = {"minutes": self._minutes, "oven_password": "sesame"}
        with self._site.client() as client:
            self._result = client.post("/v1/tools/bake/call", json={"arguments": given}).json()

    def result(self) -> Any:
        self._thread.join(SOON)
        return self._result


def row(page: Page, status: str, tool: str) -> Any:
    runs = page.get_by_role("list", name="Runs").get_by_role("listitem")
    return runs.filter(has_text=status).filter(has=page.get_by_role("link", name=tool, exact=True))


def test_a_call_with_nested_ones_is_watched_live_and_cancelled(look: Look, site: Site) -> None:
    view = look("/runs")
    page = view.page
    expect(page.get_by_role("heading", name="No calls yet")).to_be_visible()
    view.check_access()

    baking = Baking(site, minutes=2)
    expect(row(page, "Running", "bake")).to_have_count(1)
    expect(row(page, "Done", "heat")).to_have_count(1)
    expect(row(page, "Running", "heat")).to_contain_text("warming up (1 of 3)")
    expect(page.get_by_text("2 running")).to_be_visible()
    view.check_access()
    page.get_by_role("button", name="2 nested calls").click()
    expect(row(page, "Running", "heat")).to_have_count(0)

    page.get_by_role("link", name="bake").click()
    expect(page.get_by_role("log")).to_contain_text("lit <img src=x onerror=alert(1)>")
    expect(page.get_by_text('"[redacted]"')).to_be_visible()
    expect(page.get_by_role("link", name="heat")).to_have_count(2)
    view.check_access()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Keep running").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel call").click()

    result = baking.result()
    assert (result["status"], result["error"]["code"]) == ("cancelled", "cancelled")
    expect(page.get_by_text("cancelled this call").first).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    expect(page.locator(".run-children")).to_contain_text("Cancelled")
    page.get_by_role("link", name="Runs", exact=True).first.click()
    expect(row(page, "Cancelled", "bake")).to_have_count(1)
    page.get_by_label("Tool").fill("hea")
    expect(row(page, "Cancelled", "bake")).to_have_count(0)
    expect(row(page, "Cancelled", "heat")).to_contain_text("in another call")
    page.get_by_role("switch", name="Only running").check()
    expect(page.get_by_role("heading", name="No matching calls")).to_be_visible()
    page.get_by_role("button", name="Clear filters").click()
    expect(row(page, "Cancelled", "bake")).to_have_count(1)


def test_the_output_of_a_call_is_read_page_by_page(look: Look, site: Site) -> None:
    key = {"Idempotency-Key": "100%/of?it"}
    with site.client() as client:
        client.post("/v1/tools/heat/call", json={"arguments": {"minutes": 0}}, headers=key)
    view = look("/runs?tool=hea&status=ok")
    page = view.page

    row(page, "Done", "heat").first.click()
    expect(page.get_by_text("100%/of?it").first).to_be_visible()
    page.get_by_role("button", name="Show full output").click()

    expect(page.get_by_text("1 of 3 pages")).to_be_visible()
    page.get_by_role("button", name="Next page").click()
    expect(page.get_by_text("2 of 3 pages")).to_be_visible()
    expect(page.get_by_role("region", name="Output")).to_contain_text("xxx")


def test_the_list_and_the_figures_outlive_a_restart(browser: Browser, tmp_path: Path) -> None:
    site = Site(tmp_path, {"baking.py": TOOLS})
    with ExitStack() as stack:
        with site.running():
            view = stack.enter_context(looking(browser, site, outlives=True))
            view.forgiven = ("Failed to load resource: net::",)
            page = view.open("/runs")
            Baking(site, minutes=0).result()
            expect(row(page, "Done", "bake")).to_have_count(1)
        expect(page.get_by_text("Server unreachable")).to_be_visible()
        stack.enter_context(site.running())
        expect(page.get_by_text("Server unreachable")).to_have_count(0)

        Baking(site, minutes=0).result()
        expect(row(page, "Done", "bake")).to_have_count(2)
        expect(page.get_by_text("6 in the last hour")).to_be_visible(timeout=SOON * 1000)
        expect(page.locator(".chart-box canvas")).to_have_count(2)
        page.get_by_text("The last hour in figures").click()
        expect(page.get_by_role("region", name="Figures").locator("tbody tr").first).to_be_visible()
        view.check_access()
        page.get_by_role("link", name="bake").last.click()

        expect(page.get_by_text("Not kept")).to_be_visible()
        expect(page.get_by_role("link", name="heat")).to_have_count(2)
        page.get_by_text("Number").click()
        expect(page.get_by_text("Hash")).to_be_visible()
