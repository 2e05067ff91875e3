"""The catalog in a browser: cards, search, filters, switches, and what changes meanwhile."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from .site import Look, Site, looking

pytestmark = pytest.mark.browser

TOOLS = '''
from toolkiln import method_metadata, prompt, tool, tool_metadata


@tool(weight=5, is_core=True, read_only=True, icon="scale", color="sky", network=["example.org"])
def weigh(things: list[str]) -> float:
    """Weigh <b>things</b> together."""
    return 1.0


@tool(visible=False)
def whisper(words: dict) -> str:
    """Say something quietly."""
    return ""


@tool
def convert_currency(amount: float) -> float:
    """Convert an amount of money into another currency."""
    return amount


@prompt
def summarize(text: str) -> str:
    """Ask for a summary of a text."""
    return text


@tool_metadata(display_name="The Desk", visible=True)
class Desk:
    """Things on a desk."""

    @method_metadata()
    def light(self) -> str:
        """Make the desk bright."""
        return ""

    @method_metadata()
    def clear(self) -> str:
        """Take everything away from the desk."""
        return ""
'''
MANY = '''
def wait_{number}(seconds: float) -> float:
    """Wait for a while, in the way of number {number}."""
    return seconds
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("catalog"), {"tools.py": TOOLS})
    with site.running():
        yield site


def card(page: Page, name: str) -> Locator:
    return page.get_by_role("article").filter(has=page.get_by_text(name, exact=True))


def titles(page: Page) -> list[str]:
    return page.locator("article h3 a").all_inner_texts()


def test_cards_are_grouped_and_describe_their_tools(look: Look) -> None:
    view = look("/")
    page = view.page

    expect(page.locator("main").get_by_role("status").first).to_have_text("5 tools · 1 toolkit")
    headings = page.get_by_role("list", name="Tools").get_by_role("heading", level=2)
    assert headings.all_inner_texts() == ["The Desk", "Single tools"]
    assert titles(page) == ["Clear", "Light", "Weigh", "Convert Currency", "Summarize"]
    expect(card(page, "weigh")).to_contain_text("Weigh <b>things</b> together.")
    expect(card(page, "weigh")).to_contain_text("Core")
    expect(card(page, "weigh").get_by_title("this version is not admitted")).to_have_text("dev")
    expect(card(page, "weigh").get_by_label("Requests network: example.org")).to_be_visible()
    expect(card(page, "weigh").get_by_role("switch")).to_be_disabled()
    expect(card(page, "summarize")).to_contain_text("Prompt")
    view.check_access()
    page.get_by_role("button", name="Show hidden").click()
    expect(card(page, "whisper")).to_contain_text("Hidden")
    expect(card(page, "whisper")).to_contain_text("Not strict")
    card(page, "weigh").get_by_role("link").click()
    expect(page).to_have_url(re.compile("/ui/tools/weigh$"))


def test_search_follows_the_typed_words_and_shows_why(look: Look) -> None:
    view = look("/")
    page = view.page
    expect(card(page, "weigh")).to_be_visible()

    page.keyboard.press("/")
    page.keyboard.type("exchange ")
    expect(page).to_have_url(re.compile(r"\?q=exchange$"))
    page.keyboard.type("money")
    found = card(page, "convert_currency")
    expect(found.locator("mark")).to_have_text("money")
    expect(found).to_contain_text(re.compile(r"meaning \d+"))
    assert titles(page)[0] == "Convert Currency"
    expect(page).to_have_url(re.compile(r"\?q=exchange\+money$"))
    view.check_access()
    page.keyboard.press("ArrowDown")
    expect(found.get_by_role("link")).to_be_focused()
    page.get_by_role("searchbox").fill("summ")
    expect(card(page, "summarize")).to_contain_text("in its name")
    assert titles(page) == ["Summarize"]
    page.get_by_role("searchbox").press("Escape")
    expect(page.get_by_role("heading", name="The Desk")).to_be_visible()


def test_filters_are_kept_in_the_address(look: Look) -> None:
    page = look("/").page

    page.get_by_role("searchbox").fill("weigh")  # it waits for the next key when the filter comes
    page.get_by_role("button", name="Read-only").click()
    expect(page).to_have_url(re.compile(r"\?q=weigh&only=read_only$"))
    page.get_by_role("searchbox").fill("")
    expect(page.get_by_role("article")).to_have_count(1)
    page.reload()
    expect(page.get_by_role("button", name="Read-only")).to_have_attribute("aria-pressed", "true")
    assert titles(page) == ["Weigh"]
    page.get_by_label("Toolkit").select_option("The Desk")
    expect(page.get_by_text("No matching tools")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    expect(page.get_by_role("article")).to_have_count(5)


def test_without_the_search_service_words_are_matched_and_the_page_says_so(look: Look) -> None:
    view = look("/")
    page, view.forgiven = view.page, ("503",)
    held: list[Route] = []
    page.route("**/v1/search?q=desk*", lambda route: held.append(route))
    page.route(
        "**/v1/search?q=bright*",
        lambda route: route.fulfill(status=503, json={"detail": "it rests"}),
    )

    with page.expect_request("**/v1/search?q=desk*"):
        page.get_by_role("searchbox").fill("desk")
    page.get_by_role("searchbox").fill("bright")

    expect(page.get_by_text("Search failed (it rests).")).to_be_visible()
    expect(card(page, "light")).to_contain_text("in its description")
    assert titles(page) == ["Light"]
    assert len(held) == 1  # whose answer would come too late


def test_tools_and_toolkits_are_switched_only_by_administrators(look: Look, site: Site) -> None:
    page = look("/").page

    card(page, "light").get_by_role("switch").click()
    expect(card(page, "light")).to_contain_text("Disabled")
    expect(page.get_by_text("1 of 2 on")).to_be_visible()
    with site.client() as client:
        assert client.get("/v1/tools/light").json()["enabled"] is False
    page.get_by_role("switch", name="Enable all of The Desk").click()
    expect(page.get_by_text("0 of 2 on")).to_be_visible()
    page.get_by_role("switch", name="Enable all of The Desk").click()
    expect(card(page, "light").get_by_role("switch")).to_be_checked()
    token = site.kiln.security.sessions.create("ann").token
    theirs = look("/", extra_http_headers={"authorization": f"Bearer {token}"}).page
    expect(card(theirs, "light")).to_be_visible()
    expect(theirs.get_by_role("switch")).to_have_count(0)


def test_files_that_come_and_go_are_seen_without_a_reload(look: Look, site: Site) -> None:
    page = look("/").page
    expect(card(page, "weigh")).to_be_visible()

    site.write("more.py", MANY.format(number=1))
    expect(card(page, "wait_1")).to_be_visible()
    (site.tools / "more.py").unlink()
    expect(card(page, "wait_1")).to_have_count(0)


def test_a_long_catalog_is_walked_through_by_keys(look: Look, site: Site) -> None:
    site.write("many.py", "".join(MANY.format(number=number) for number in range(400)))
    page = look("/", viewport={"width": 900, "height": 600}).page
    expect(page.locator("main").get_by_role("status").first).to_contain_text("405 tools")

    drawn = page.get_by_role("article").count()
    page.locator("article h3 a").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("link", name="Light")).to_be_focused()
    page.keyboard.press("End")
    expect(page.get_by_role("link", name="Wait 99")).to_be_focused()
    page.mouse.wheel(0, -1_000_000)
    expect(page.get_by_role("heading", name="Catalog")).to_be_in_viewport()
    expect(card(page, "weigh")).to_be_visible()
    page.keyboard.press("ArrowUp")
    expect(page.locator(":focus")).to_be_in_viewport()
    item = page.locator("[role=listitem]:has(:focus)")
    assert (item.get_attribute("aria-setsize"), drawn < 60) == ("405", True)
    (site.tools / "many.py").unlink()


def test_an_empty_catalog_says_how_to_begin(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = Site(tmp_path_factory.mktemp("empty"), {})
    with empty.running(), looking(browser, empty) as view:
        page = view.open("/")
        expect(page.get_by_text("No tools yet")).to_be_visible()
        expect(page.get_by_text("toolkiln new greet")).to_be_visible()
        view.check_access()
        empty.write("first.py", MANY.format(number=1))
        expect(card(page, "wait_1")).to_be_visible()
