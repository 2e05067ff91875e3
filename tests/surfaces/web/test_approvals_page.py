"""The page Approvals: calls of one window are decided in another, and tools admitted."""

import re
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Page, expect

from toolkiln.model.identity import Privilege

from .site import SOON, Look, Site

pytestmark = pytest.mark.browser

RISKY = '''
from toolkiln import tool


@tool(needs_approval=True)
def pay(amount: int, note: str = "") -> str:
    """Pay an amount."""
    return f"{amount} for {note!r}"
'''
TRIPLE = '''
def triple(number: int) -> int:
    """Multiply a number by three."""
    return number * 3
'''
ASKING = '''
from toolkiln import tool


@tool(network=["example.com"])
def fetch() -> str:
    """Fetch something."""
    return "nothing"
'''

NOTIFIED = """
window.Notification = class {
  static permission = "default";
  static async requestPermission() { this.permission = "granted"; }
  constructor(title, { body }) { document.documentElement.dataset.told = body; }
};
"""
"""Stands in for the desktop, which a browser without a screen does not have."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site where written tools are only proposed."""
    site = Site(tmp_path_factory.mktemp("approvals"), {"risky.py": RISKY}, authoring="propose")
    with site.running():
        yield site


@pytest.fixture
def bea(site: Site) -> Iterator[httpx2.Client]:
    """A caller whose calls wait, and who proposes tools."""
    token = site.kiln.security.sessions.create("bea", privileges=[Privilege.WRITE_TOOLS]).token
    with site.client(token) as client, site.client() as operator:
        yield client
        for left in operator.get("/v1/approvals").json()["items"]:  # of a test that failed
            operator.post(f"/v1/approvals/{left['id']}/reject", json={})


class Paying:
    """A call of `pay` that waits for a person."""

    def __init__(self, client: httpx2.Client, **arguments: Any) -> None:
        self._client, self._arguments = client, arguments
        self._thread = threading.Thread(target=self._pay)
        self._thread.start()

    def _pay(self) -> None:
        sent = {"arguments": self._arguments}
        self._result = self._client.post("/v1/tools/pay/call", json=sent).json()

    def result(self) -> Any:
        self._thread.join(SOON)
        return self._result


def entry(page: Page, text: str) -> Any:
    """One of what waits."""
    return (
        page.get_by_role("list", name="Pending requests")
        .get_by_role("button")
        .filter(has_text=text)
    )


def test_a_call_of_one_window_is_edited_and_approved_in_another(look: Look, site: Site) -> None:
    token = site.kiln.security.sessions.create("cid").token
    caller = look("/tools/pay", extra_http_headers={"authorization": f"Bearer {token}"}).page
    view = look("/approvals")
    page = view.page
    expect(page.get_by_text("No pending requests")).to_be_visible()
    caller.get_by_label("amount").fill("1000")
    caller.get_by_role("button", name="Run", exact=True).click()
    expect(entry(page, "pay")).to_contain_text("cid")
    expect(page).to_have_title("(1) Approvals · Toolkiln")
    view.check_access()

    page.keyboard.press("e")
    amount = page.get_by_label("amount")
    expect(amount).to_be_focused()
    amount.fill("much")
    expect(page.get_by_role("button", name="Approve edited call")).to_be_disabled()
    amount.fill("10")
    amount.press("Control+Enter")

    expect(page.locator(".verdict")).to_contain_text("Approved with edited arguments")
    expect(caller.get_by_text("10 for ''")).to_be_visible()
    expect(page).to_have_title("Approvals · Toolkiln")


def test_keys_decide_one_thing_at_a_time(look: Look, bea: httpx2.Client) -> None:
    first, second = Paying(bea, amount=1), Paying(bea, amount=2)
    page = look("/approvals").page
    expect(entry(page, "pay")).to_have_count(2)

    for _ in range(3):
        page.keyboard.press("a")
    expect(page.locator(".verdict.done")).to_be_visible()
    expect(entry(page, "left")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("r")
    reason = page.get_by_label("Reason for rejecting")
    expect(reason).to_be_focused()
    page.keyboard.type("a dear one")
    page.keyboard.press("Enter")
    expect(page.locator(".verdict")).to_contain_text("Rejected by")

    ended = {paying.result()["status"] for paying in (first, second)}
    assert ended == {"ok", "denied"}
    page.get_by_role("tab", name="Decided").click()
    decided = page.get_by_role("list", name="Decisions")
    expect(decided.get_by_role("listitem").first).to_contain_text("a dear one")


def test_a_decision_made_elsewhere_is_shown(look: Look, site: Site, bea: httpx2.Client) -> None:
    page = look("/approvals").page
    paying = Paying(bea, amount=3)
    expect(entry(page, "pay")).to_be_visible()

    with site.client() as operator:
        (waiting,) = operator.get("/v1/approvals").json()["items"]
        operator.post(f"/v1/approvals/{waiting['id']}/reject", json={})

    expect(page.locator(".verdict")).to_contain_text("Rejected by")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    assert paying.result()["status"] == "denied"


def test_a_remembered_approval_is_used_again_until_it_is_forgotten(
    look: Look, bea: httpx2.Client
) -> None:
    first = Paying(bea, amount=6)
    page = look("/approvals").page
    page.get_by_label("Remember").select_option("arguments")
    page.get_by_role("button", name="Approve", exact=True).click()
    assert first.result()["status"] == "ok"
    assert Paying(bea, amount=6).result()["status"] == "ok"

    page.get_by_role("tab", name="Decided").click()
    page.get_by_role("list", name="Decisions").get_by_text("Approved").first.click()
    page.get_by_role("button", name="Forget approval").click()
    expect(page.get_by_text("The next call asks for approval again")).to_be_visible()
    again = Paying(bea, amount=6)
    page.get_by_role("tab", name="Pending").click()
    page.get_by_role("button", name="Approve", exact=True).click()

    assert again.result()["status"] == "ok"


def test_a_person_who_allowed_it_is_notified_while_the_page_is_hidden(
    look: Look, site: Site, bea: httpx2.Client
) -> None:
    page = look("/").page
    page.add_init_script(NOTIFIED)
    page.goto(f"{site.url}/ui/approvals")
    assert page.evaluate("Notification.permission") == "default"

    page.get_by_role("button", name="Notify me").click()
    expect(page.get_by_role("button", name="Notifications are on")).to_be_visible()
    page.evaluate("Object.defineProperty(document, 'visibilityState', {get: () => 'hidden'})")
    paying = Paying(bea, amount=5)

    # Other tests may have left something that waits, too.
    expect(page.locator("html")).to_have_attribute(
        "data-told", re.compile("waits? for your decision")
    )
    expect(page.locator("link[rel=icon]")).to_have_attribute("href", re.compile("waiting"))
    entry(page, "pay").click()
    page.keyboard.press("a")
    assert paying.result()["status"] == "ok"


def test_hostile_arguments_are_text_in_which_nothing_hides(look: Look, bea: httpx2.Client) -> None:
    hostile = "<img src=x onerror=alert(1)>\n<script>alert(2)</script>\u202eevil" + "\nmore" * 500
    paying = Paying(bea, amount=4, note=hostile)
    view = look("/approvals")
    page = view.page

    note = page.get_by_label("note", exact=True)
    expect(note).to_contain_text("<script>alert(2)</script>\\u202eevil")
    assert page.locator("main img, main script").count() == 0
    page.get_by_role("button", name="more characters").click()
    expect(page.get_by_role("button", name="Show less")).to_be_visible()
    page.keyboard.press("a")

    assert paying.result()["status"] == "ok"


def test_a_proposed_tool_is_reviewed_and_admitted(
    look: Look, site: Site, bea: httpx2.Client
) -> None:
    bea.put("/v1/tools/triple", json={"source": TRIPLE})
    view = look("/approvals")
    page = view.page
    expect(entry(page, "triple")).to_contain_text("by bea")
    expect(page.get_by_role("region", name="Changes")).to_contain_text("return number * 3")
    view.check_access()

    page.keyboard.press("a")
    expect(page.locator(".verdict")).to_contain_text("Admitted as version 1: triple")
    bea.put("/v1/tools/triple", json={"source": TRIPLE.replace("* 3", "* 4 - number")})
    entry(page, "change").click()
    changed = page.get_by_role("region", name="Changes")

    expect(changed.locator("tr.removed")).to_contain_text("return number * 3")
    expect(changed.locator("tr.added")).to_contain_text("return number * 4 - number")
    page.keyboard.press("r")
    page.keyboard.type("the same")
    page.keyboard.press("Enter")
    expect(page.locator(".verdict")).to_contain_text("the previous version is still served")
    with site.client() as operator:
        called = operator.post("/v1/tools/triple/call", json={"arguments": {"number": 5}})
        told = operator.get("/v1/audit", params={"act": "reject"}).json()["items"][0]
    assert called.json()["value"] == 15
    assert told["detail"] == "triple.py: the same"


def test_a_proposal_that_changed_meanwhile_is_not_admitted_unseen(
    look: Look, site: Site, bea: httpx2.Client
) -> None:
    bea.put("/v1/tools/fetch", json={"source": ASKING})
    view = look("/approvals")
    view.forgiven = ("412",)
    page = view.page
    expect(page.get_by_text("network: example.com")).to_be_visible()
    page.get_by_label("Grant everything it requests").check()
    with site.client() as operator:
        seen = operator.get("/v1/proposals").json()
    page.route("**/v1/proposals?*", lambda route: route.fulfill(json=seen))  # nothing newer

    bea.put("/v1/tools/fetch", json={"source": ASKING.replace("nothing", "something")})
    page.keyboard.press("a")
    expect(page.get_by_role("article").get_by_role("alert")).to_contain_text("is at version")
    page.unroute_all(behavior="ignoreErrors")
    page.reload()
    page.get_by_label("Grant everything it requests").check()
    page.get_by_role("button", name="Admit and grant").click()

    expect(page.locator(".verdict")).to_contain_text("Admitted")
    with site.client() as operator:
        granted = operator.get("/v1/tools/fetch").json()["granted"]
    assert granted["network"] == ["example.com"]
