"""The settings page: sessions, keys, privileges, rules, and what the server stands on."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from toolkiln.model.identity import Privilege
from toolkiln.security.authentication import KeyScope
from toolkiln.security.sessions import LOCAL_OPERATOR

from .site import Look, Site

pytestmark = pytest.mark.browser

PAY = '''
from toolkiln import tool


@tool(needs_approval=True, requires_secrets=["BANK"])
def pay(amount: int) -> int:
    """Pay an amount."""
    return amount
'''
RULES = (
    {"effect": "ask", "groups": ("staff",), "tools": ("pay",), "reason": "money is at stake"},
    {"effect": "allow", "groups": ("staff",)},
    {"effect": "deny", "groups": ("staff",)},
)
ANSWERED = "the server responded with a status of "
"""What the console says of a refusal, with its status."""
BUSY_SECTIONS = ("Keys", "Rules", "Sandbox", "Settings in force")
HOSTILE = "<img src=x onerror=alert(1)>\u202e"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(
        tmp_path_factory.mktemp("settings"),
        {"pay.py": PAY},
        policy="deny",
        rules=RULES,
        privileges={"group:staff": ("APPROVE",)},
        audit_key="not to be seen by anybody",
    )
    with site.running():
        yield site


def go(page: Page, section: str) -> None:
    page.get_by_role("navigation", name="Settings").get_by_role("link", name=section).click()
    expect(page.get_by_role("heading", name=section, exact=True)).to_be_visible()


def test_a_key_is_made_shown_once_used_and_revoked(look: Look) -> None:
    view, other = look("/settings?section=keys"), look("/login")
    view.forgiven, other.forgiven = (f"{ANSWERED}400",), (f"{ANSWERED}401",)
    page = view.page

    page.get_by_role("button", name="Create key").click()
    view.check_access()
    page.get_by_label("Name").fill("of Ann")
    page.get_by_label("User").fill("a:b")
    page.get_by_role("dialog").get_by_role("button", name="Create key").click()
    refused = page.get_by_role("alert")
    expect(refused).to_contain_text("must not contain a colon")
    page.get_by_label("User").fill("ann")
    page.get_by_label("APPROVE").check()
    page.get_by_label("Until it is revoked").check()
    page.get_by_role("dialog").get_by_role("button", name="Create key").click()
    key = page.get_by_role("dialog").locator(".secret code").inner_text()
    page.get_by_role("button", name="I have copied it").click()
    row = page.get_by_role("row", name="of Ann")
    expect(row).to_contain_text("until it is revoked")

    other.page.get_by_label("API key").fill(key)
    other.page.keyboard.press("Enter")
    other.page.wait_for_url("**/ui/")
    other.page.get_by_role("link", name="ann").click()
    sections = other.page.get_by_role("navigation", name="Settings").get_by_role("link")
    expect(sections).to_have_text(["You", "About"])
    expect(other.page.locator(".facts").first).to_contain_text("ann")
    go(page, "Sessions")
    expect(page.get_by_role("row", name="ann")).to_contain_text("APPROVE")

    go(page, "Keys")
    row.get_by_role("button", name="Revoke of Ann").click()
    page.get_by_role("button", name="Revoke key").click()
    expect(row).to_contain_text("revoked")
    expect(page.get_by_text(key)).to_have_count(0)
    # Its stream of events ends with the session.
    expect(other.page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_session_is_ended_and_hostile_names_are_text(look: Look, site: Site) -> None:
    made = site.kiln.security.sessions.create(HOSTILE, seconds=5000)
    page = look("/settings?section=sessions").page

    row = page.get_by_role("row", name=made.trace_id)
    expect(row).to_contain_text("<img src=x onerror=alert(1)>\\u202e")
    row.get_by_role("button").click()
    page.get_by_role("button", name="End session").click()

    expect(row).to_have_count(0)
    with site.client(made.token) as client:
        assert client.get("/v1/sessions/own").status_code == 401


def test_rules_are_explained_in_words(look: Look) -> None:
    view = look("/settings?section=rules")
    view.forgiven = (f"{ANSWERED}404",)
    page = view.page

    page.get_by_label("User").fill("bea")
    page.get_by_label("Groups").fill("night, staff")
    page.get_by_label("Tool").fill("pay")
    page.keyboard.press("Enter")
    told = page.locator(".explanation")
    expect(told).to_contain_text("bea may run pay, once a person approves the call.")
    expect(told).to_contain_text("Rule 1 decides")
    expect(told).to_contain_text("The call lacks a value for the secret BANK.")
    page.get_by_label("Groups").fill("")
    page.keyboard.press("Enter")
    expect(told).to_contain_text("bea may not run pay.")
    page.get_by_label("Tool").fill("nope")
    page.keyboard.press("Enter")

    expect(page.get_by_role("alert")).to_contain_text("nope")
    expect(page.get_by_text("It never decides: rule 2 matches every call")).to_be_visible()


def test_every_section_is_accessible_and_fits_a_narrow_screen(look: Look, site: Site) -> None:
    scope = KeyScope(user_id="zoe", privileges=[Privilege.ADMIN], days=None)
    site.kiln.security.keys.create("of Zoe", scope, LOCAL_OPERATOR)
    view = look("/settings", viewport={"width": 360, "height": 740})
    page = view.page
    told = {
        "Sessions": "newest first",
        "Keys": "of Zoe",
        "Privileges": "everyone in staff",
        "Rules": "money is at stake",
        "Environments": "No environments",
        "Sandbox": "in use",
        "Settings in force": "set, not shown",
        "About": "Toolkiln 0",
    }

    for section, words in told.items():
        go(page, section)
        expect(page.locator(".settings > section")).to_contain_text(words)
        if section in BUSY_SECTIONS:
            view.check_access()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, section

    expect(page.get_by_text("not to be seen")).to_have_count(0)
