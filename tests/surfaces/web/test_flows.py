"""The whole story in one go: a tool is written, tried, watched, approved and rolled back."""

from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from .site import Site, View, looking

DRAFT = '''from toolkiln import Context, tool


@tool(icon="flame")
def fire(pot: str, degrees, ctx: Context) -> str:
    """Fire a pot in the kiln.

    Args:
        pot: What is fired.
        degrees: How hot.
    """
    ctx.log(f"{pot} is in the kiln")
    return f"{pot} was fired at {degrees}"
'''
AWAY = ("net::ERR_", "503 (Service Unavailable)")
"""What a browser says of a server that is away, or about to go."""


def test_a_tool_is_written_mended_run_watched_approved_and_rolled_back(
    browser: Browser, tmp_path: Path
) -> None:
    site, serving = Site(tmp_path, {}), ExitStack()
    with serving:
        serving.enter_context(site.running())
        token = site.kiln.security.sessions.create("cid").token
        theirs = {"authorization": f"Bearer {token}"}
        with (
            looking(browser, site, outlives=True) as own,
            looking(browser, site, extra_http_headers=theirs) as other,
        ):
            own.forgiven = other.forgiven = AWAY
            own.open("/")
            _write_the_first_tool(own.page)
            _call_it(own.page, "It", "was fired at 900")
            _restart(site, serving, own)
            _let_it_ask(own.page)
            other.open("/tools/fire")
            _ask_and_approve(own.page, other.page)
            _roll_back(own.page)
            expect(other.page.get_by_text("needs approval")).to_have_count(0)
            _call_it(other.page, "Last", "Last was fired at 900")

            assert own.page.evaluate("window.isTheSame"), "the page was loaded anew"


def _write_the_first_tool(page: Page) -> None:
    page.evaluate("window.isTheSame = true")
    page.get_by_role("link", name="Write", exact=True).click()
    expect(page.get_by_text("No findings")).to_be_visible()
    _type(page, DRAFT)
    findings = page.get_by_role("list", name="Findings").get_by_role("listitem")
    flaw = findings.filter(has_text="missing-annotation")
    flaw.get_by_role("button", name="Add a type").click()
    page.keyboard.type("int")
    expect(page.get_by_text("No findings")).to_be_visible()
    _call_it(page, "Draft", "Draft was fired at 900")
    page.get_by_role("button", name="Save fire").click()
    expect(page.get_by_text("Saved as version 1")).to_be_visible()
    page.get_by_role("link", name="Open tool").click()
    expect(page.get_by_role("heading", level=1, name="Fire")).to_be_visible()


def _type(page: Page, source: str) -> None:
    page.get_by_role("textbox", name="Source", exact=False).press("ControlOrMeta+a")
    page.keyboard.insert_text(source)


def _call_it(page: Page, pot: str, outcome: str) -> None:
    _start(page, pot)
    expect(page.get_by_role("region", name="Result")).to_contain_text(outcome)


def _start(page: Page, pot: str) -> None:
    page.get_by_role("textbox", name="pot").fill(pot)
    page.get_by_role("textbox", name="degrees").fill("900")
    page.get_by_role("button", name="Run", exact=True).click()


def _restart(site: Site, serving: ExitStack, view: View) -> None:
    serving.close()
    expect(view.page.get_by_text("Server unreachable")).to_be_visible()
    serving.enter_context(site.running())
    expect(view.page.get_by_text("Server unreachable")).to_have_count(0)


def _let_it_ask(page: Page) -> None:
    page.get_by_role("link", name="Edit").click()
    expect(page.locator(".cm-content")).to_contain_text("was fired at")
    _type(
        page,
        DRAFT.replace("degrees,", "degrees: int,").replace(
            '"flame"', '"flame", needs_approval=True'
        ),
    )
    page.get_by_role("button", name="Save fire").click()
    expect(page.get_by_text("Saved as version 2")).to_be_visible()


def _ask_and_approve(page: Page, other: Page) -> None:
    expect(other.get_by_text("needs approval")).to_be_visible()
    _start(other, "Vase")
    expect(other.get_by_text("A person has to approve this call")).to_be_visible()
    page.get_by_role("link", name="Runs", exact=True).click()
    runs = page.get_by_role("list", name="Runs").get_by_role("listitem")
    expect(runs.first).to_contain_text("cid")
    page.get_by_role("link", name="Approvals").click()
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator(".verdict")).to_contain_text("Approved")
    expect(other.get_by_role("region", name="Result")).to_contain_text("Vase was fired at 900")
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(runs.first).to_contain_text("Done")


def _roll_back(page: Page) -> None:
    page.get_by_role("link", name="Catalog").click()
    page.get_by_role("article").get_by_role("link", name="Fire").click()
    page.get_by_role("tab", name="Versions").click()
    page.get_by_role("button", name="Roll back to version 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(page.locator("li.served")).to_contain_text("Version 3")
    expect(page.get_by_text("needs approval")).to_have_count(0)
