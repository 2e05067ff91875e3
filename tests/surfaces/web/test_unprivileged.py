"""Every page for a caller without privileges: nothing breaks, and nothing of others is shown."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from .site import Look, Site, View

pytestmark = pytest.mark.browser

GREET = '''
def greet(name: str) -> str:
    """Greet a person."""
    return f"Hello {name}"
'''
HIDDEN = GREET.replace("greet", "whisper")
OPERATORS_WORD = "word-of-the-operator"
TABS = ("Documentation", "As models see it", "Health", "Permissions", "Versions", "Calls", "Use it")
SECTIONS = (
    "sessions", "keys", "privileges", "rules", "environments", "sandbox", "values", "fleet",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    rules = ({"effect": "deny", "users": ("eve",), "tools": ("whisper",)},)
    files = {"greet.py": GREET, "whisper.py": HIDDEN}
    folder = tmp_path_factory.mktemp("unprivileged")
    with Site(folder, files, dev=False, rules=rules, authoring="propose").running() as site:
        site.admit(*files)
        yield site


@pytest.fixture
def runs(site: Site) -> dict[str, str]:
    """The ids of one call of each caller."""
    made = {}
    own = site.kiln.security.sessions.create("eve").token
    for who, token, name in (("operator", None, OPERATORS_WORD), ("eve", own, "Eve")):
        given = {"arguments": {"name": name}}
        with site.client(token) as client:
            made[who] = client.post("/v1/tools/greet/call", json=given).json()["call_id"]
    return made


def eve(look: Look, site: Site, path: str) -> View:
    """A window of a caller without privileges; all requests of a page have to be allowed."""
    token = site.kiln.security.sessions.create("eve").token
    return look(path, extra_http_headers={"authorization": f"Bearer {token}"})


def test_writing_says_once_which_privilege_it_needs_and_asks_the_server_nothing(
    look: Look, site: Site
) -> None:
    view = eve(look, site, "/")
    asked: list[str] = []
    view.page.on("request", lambda request: asked.append(request.url))
    for path in ("/write", "/write?tool=greet", "/write?tool=whisper"):
        page = view.open(path)

        expect(page.get_by_text("requires WRITE_TOOLS")).to_have_count(1)
        expect(page.get_by_text("An operator can give you")).to_be_visible()
        expect(page.get_by_role("textbox")).to_have_count(0)
        expect(page.get_by_role("button", name="Save")).to_have_count(0)
    view.check_access()
    assert [url for url in asked if "/v1/schema" in url or "/v1/tools/" in url] == []


def test_the_bar_offers_no_page_that_the_caller_may_not_use(look: Look, site: Site) -> None:
    theirs = eve(look, site, "/").page.get_by_role("navigation", name="Pages")
    own = look("/").page.get_by_role("navigation", name="Pages")

    pages = ["Catalog", "Runs", "Approvals", "Settings"]
    expect(theirs.get_by_role("link")).to_have_text(pages)
    expect(own.get_by_role("link", name=re.compile("Write|Audit"))).to_have_count(2)


def test_every_part_of_a_tool_opens_and_offers_nothing_that_would_be_refused(
    look: Look, site: Site, runs: dict[str, str]
) -> None:
    page = eve(look, site, "/tools/greet").page

    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel", name=tab)).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.locator("main a[href*='/ui/write']")).to_have_count(0)
        forbidden = re.compile("Grant|Admit|Roll back|Source|Changes")
        expect(page.get_by_role("button", name=forbidden)).to_have_count(0)
        assert OPERATORS_WORD not in page.content()


def test_a_hidden_tool_and_the_calls_of_others_look_as_if_they_did_not_exist(
    look: Look, site: Site, runs: dict[str, str]
) -> None:
    view = eve(look, site, "/")
    view.forgiven = ("404",)
    page = view.page
    expect(page.get_by_role("article")).to_have_count(1)
    assert "whisper" not in page.content()

    view.open("/runs")
    expect(page.get_by_role("list", name="Runs").get_by_role("listitem")).not_to_have_count(0)
    assert OPERATORS_WORD not in page.content()
    shown = []
    for known, unknown in (
        ("/tools/whisper", "/tools/nothing"),
        (f"/runs/{runs['operator']}", f"/runs/{runs['operator'][::-1]}"),
    ):
        for path in (known, unknown):
            view.open(path)
            expect(page.get_by_text(re.compile("does not exist|Run not found"))).to_be_visible()
            shown.append(page.locator("main").inner_text().replace(path.split("/")[-1], "NAME"))

    assert shown[0] == shown[1]
    assert shown[2] == shown[3]


def test_sections_for_operators_name_the_privilege_that_they_need(look: Look, site: Site) -> None:
    view = eve(look, site, "/settings")
    for section in SECTIONS:
        page = view.open(f"/settings?section={section}")

        expect(page.get_by_text("This section requires ADMIN")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)


def test_who_is_not_signed_in_sees_no_page_that_breaks(look: Look) -> None:
    view = look("/", signed_in=False)
    for path in ("/", "/write", "/runs", "/approvals", "/audit", "/settings", "/tools/greet"):
        page = view.open(path)

        expect(page.locator("main h1").first).to_be_visible()
        expect(page.get_by_text("You are not signed in").first).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
