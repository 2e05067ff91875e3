"""The page at `/docs`: every operation is shown and can be tried."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from toolkiln.surfaces.http.routes import ROUTES

from .site import Look, Site, View

DOUBLE = '''
def double(number: int) -> int:
    """Double a number."""
    return number * 2
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("docs"), {"double.py": DOUBLE})
    with site.running():
        yield site


@pytest.fixture
def docs(look: Look, site: Site) -> View:
    credential = f"Bearer {site.kiln.security.operator}"
    view = look("/", extra_http_headers={"authorization": credential})
    view.page.goto(f"{site.url}/docs")
    expect(view.page.get_by_role("status")).to_contain_text("operations")
    return view


def test_every_operation_is_shown_and_found_by_words(docs: View) -> None:
    page, shown = docs.page, docs.page.locator("details.operation")
    for number in range(shown.count()):
        shown.nth(number).locator("> summary").click()
    expect(shown.get_by_role("button", name="Send")).to_have_count(shown.count())
    identifiers = {one.get_attribute("id") for one in shown.all()}

    page.get_by_label("Show operations with these words").fill("post calls cancel")

    found = page.locator("details.operation:visible")
    expect(page.get_by_role("status")).to_have_text(f"{found.count()} operations")
    assert {one.get_attribute("id") for one in found.all()} == {"cancel_call"}
    assert {operation.name for operation in ROUTES} <= identifiers


def test_an_operation_is_tried_and_its_answer_shown(docs: View, site: Site) -> None:
    operation = docs.page.locator("#call_tool")
    operation.locator("> summary").click()
    operation.get_by_label("name (path, required)").fill("double")
    with docs.page.expect_request(f"{site.url}/v1/tools/double/call"):
        operation.get_by_role("button", name="Send").click()

    answer = operation.get_by_role("log")
    expect(answer).to_contain_text("200 OK")
    expect(answer).to_contain_text('"value": 42')
