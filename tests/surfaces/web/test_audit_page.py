"""The page Audit: records are listed, found, verified and exported."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from toolkiln.model.audit import AuditRecord

from .site import Look, Site

pytestmark = pytest.mark.browser

GREET = '''
def greet(name: str) -> str:
    """Greet a person."""
    return f"Hello {name}"
'''
MANY = 230
HOSTILE = "<img src=x onerror=alert(1)>\u202eback"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("audit"), {"greet.py": GREET})
    with site.running():
        recorder = site.kiln.security.recorder
        for number in range(MANY):
            recorder.add(recorded("switch", f"number {number}"))
        recorder.commit(recorded("settings", HOSTILE))
        yield site


def recorded(act: str, detail: str) -> AuditRecord:
    return AuditRecord(time.time(), act, "ok", user="bea", tool="greet", detail=detail)


def test_records_are_filtered_paged_and_shown_in_detail(look: Look) -> None:
    view = look("/audit")
    page = view.page
    records = page.get_by_role("list", name="Records")
    expect(records.get_by_role("button", name="settings").first).to_be_visible()
    view.check_access()

    page.get_by_label("Act").fill("switch")
    page.get_by_label("Act").press("Enter")
    expect(records.get_by_role("button").first).to_contain_text(f"number {MANY - 1}")
    assert page.url.endswith("/ui/audit?act=switch")
    for count in (200, MANY):
        page.locator(".records-end").scroll_into_view_if_needed()
        expect(records.get_by_role("listitem").first).to_have_attribute("aria-setsize", str(count))
    page.locator(".records-end").scroll_into_view_if_needed()
    expect(page.get_by_text(f"End of log: {MANY} records")).to_be_visible()
    expect(records.get_by_role("button").last).to_contain_text("number 0")

    records.get_by_role("button").last.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("number 0")
    view.check_access()
    dialog.get_by_role("button", name="Only this user").click()
    assert page.url.endswith("/ui/audit?user=bea&act=switch")


def test_records_are_text_in_which_nothing_hides(look: Look) -> None:
    page = look("/audit?act=settings").page
    record = page.get_by_role("list", name="Records").get_by_role("button").first

    expect(record).to_contain_text("<img src=x onerror=alert(1)>\\u202eback")
    assert page.locator("main .records img").count() == 0


def test_the_log_is_verified_also_against_a_stored_head(look: Look) -> None:
    page = look("/audit").page
    verdict = page.get_by_role("region", name="Verification").get_by_role("status")
    expect(verdict).to_contain_text("records are intact")
    head = page.locator(".verification .head code").inner_text()

    page.get_by_role("button", name="Verify with a stored head").click()
    noted = page.get_by_label("Stored head")
    noted.fill(head)
    noted.press("Enter")
    expect(verdict).to_contain_text("and match the stored head")
    noted.fill(f"{head.partition(':')[0]}:{'0' * 64}")
    noted.press("Enter")

    expect(verdict).to_contain_text("Records were changed or are missing")


def test_records_that_fit_are_exported_as_lines_of_json(look: Look, tmp_path: Path) -> None:
    page = look("/audit?act=switch").page

    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    download.value.save_as(tmp_path / "audit.jsonl")

    lines = (tmp_path / "audit.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == MANY
    assert {json.loads(line)["act"] for line in lines} == {"switch"}


def test_others_see_which_privilege_they_lack(look: Look, site: Site) -> None:
    token = site.kiln.security.sessions.create("ann").token
    headers = {"authorization": f"Bearer {token}"}

    audit = look("/audit", extra_http_headers=headers).page
    approvals = look("/approvals", extra_http_headers=headers).page

    expect(audit.get_by_text("The audit log requires ADMIN")).to_be_visible()
    expect(approvals.get_by_text("you need the privilege ADMIN")).to_be_visible()
