"""What all pages share: the shell, its files, icons and the bar."""

from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import expect

from toolkiln.surfaces.web.app import build_assets

from .site import Look, Site

GREET = '''
def greet(name: str) -> str:
    """Greet a person."""
    return f"Hello {name}"
'''
PAGES = 6


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("frame"), {"greet.py": GREET})
    with site.running():
        yield site


@pytest.fixture
def client(site: Site) -> Iterator[httpx2.Client]:
    with site.client() as client:
        yield client


def test_the_address_of_the_server_leads_to_the_page(client: httpx2.Client) -> None:
    answer = client.get("/")

    assert answer.status_code == 307
    assert answer.headers["location"] == "/ui/"


def test_files_may_be_cached_for_ever_and_the_shell_not(client: httpx2.Client) -> None:
    shell = client.get("/ui/tools/anything")
    script = shell.text.partition('src="')[2].partition('"')[0]
    file = client.get(script)

    assert shell.headers["cache-control"] == "no-cache"
    assert "immutable" in file.headers["cache-control"]
    assert file.headers["content-encoding"] == "gzip"
    assert client.get(script.replace("app.js", "other.js")).status_code == 404
    assert client.post("/ui/").status_code == 405


def test_pages_and_icons_may_load_nothing_from_elsewhere_and_run_nothing_inline(
    client: httpx2.Client,
) -> None:
    icon = client.get("/ui/icons/wrench.svg")

    assert icon.headers["content-type"] == "image/svg+xml"
    for name in ("no-such-thing", "..%2f..%2fapp.py"):
        assert client.get(f"/ui/icons/{name}.svg").status_code == 404
    for answer in (client.get("/ui/"), icon):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy


def test_a_page_without_its_bundle_says_what_to_do() -> None:
    files = {"index.html": b"whole", "incomplete.html": b"run make web", "app.js": b""}

    assert build_assets(files).shell.content == b"run make web"
    assert build_assets({**files, "vendor/preact.js": b""}).shell.content == b"whole"


def test_every_page_opens_from_the_bar_and_is_accessible_by_day_and_night_on_any_screen(
    look: Look,
) -> None:
    view = look("/", color_scheme="light")
    page, width = view.page, "document.documentElement.scrollWidth"
    wide = page.viewport_size
    assert wide is not None
    links = page.get_by_role("navigation", name="Pages").get_by_role("link")
    expect(links).to_have_count(PAGES)

    for link in links.all():
        link.click()
        expect(link).to_have_attribute("aria-current", "page")
        expect(page.locator("main h1").first).to_be_visible()
        view.check_access()
        page.emulate_media(color_scheme="dark")
        view.check_access()
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate(width) <= 360
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(wide)


def test_the_bar_shows_the_current_page_on_a_narrow_screen_too(look: Look) -> None:
    bar = look("/settings", viewport={"width": 360, "height": 740}).page.locator("header.bar")

    expect(bar.get_by_role("link", name="Settings")).to_be_in_viewport(ratio=1)


def test_an_address_without_a_page_leads_back_to_the_catalog(look: Look) -> None:
    view = look("/no/such/page", viewport={"width": 360, "height": 740})
    expect(view.page.get_by_text("Page /no/such/page does not exist")).to_be_visible()
    view.check_access()

    view.page.get_by_role("link", name="All tools").click()

    expect(view.page.get_by_role("heading", level=1, name="Catalog")).to_be_visible()
