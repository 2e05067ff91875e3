"""Writing tools on the page: from the first line to a call, with what can come between."""

import doctest
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Locator, Page, expect

from toolkiln.kiln import PROVIDERS
from toolkiln.operations.sources import read_source
from toolkiln.surfaces import web

from .site import Look, Site, looking

pytestmark = pytest.mark.browser

STATIC = Path(web.__file__).parent / "static"
GREET = '''def greet(name: str) -> str:
    """Greet a person by name.

    Args:
        name: Who is greeted.
    """
    return f"Hello {name}"
'''
HALF = '''def half(number) -> float:
    """Halve a number, whether it is even or odd.

    Args:
        number: What is halved.
    """
    return number / 2
'''
HELPED = {
    "polite.py": "from .words import WORD\n\n\n" + GREET.replace("greet", "polite"),
    "words.py": 'WORD = "Dear"\n\n\ndef _unused() -> None: ...\n',
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("write"), {"greet.py": GREET, **HELPED})
    with site.running():
        yield site


def editor(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Source", exact=False)


def write(page: Page, source: str) -> None:
    """Put a source in the place of all that is in the editor."""
    editor(page).press("ControlOrMeta+a")
    page.keyboard.insert_text(source)


def findings(page: Page) -> Locator:
    return page.get_by_role("list", name="Findings").get_by_role("listitem")


def test_a_flaw_is_marked_mended_and_saved(look: Look) -> None:
    view = look("/write")
    page = view.page
    expect(page.get_by_text("No findings")).to_be_visible()

    write(page, HALF)
    flaw = findings(page).filter(has_text="missing-annotation")
    expect(flaw).to_contain_text("Line 1")
    expect(page.locator(".cm-gutter-lint .cm-lint-marker-warning")).to_have_count(1)
    expect(page.locator(".cm-lintRange-warning").first).to_contain_text("def")
    view.check_access()

    flaw.get_by_role("button", name="Add a type").click()
    page.keyboard.type("float")
    expect(page.get_by_text("No findings")).to_be_visible()
    expect(page.locator(".cm-line").first).to_have_text("def half(number: float) -> float:")

    page.get_by_role("button", name="Save half").click()
    expect(page.get_by_text("Saved as version 1")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/ui/write\?tool=half$"))
    expect(page.get_by_role("link", name="Open tool")).to_have_attribute("href", "/ui/tools/half")


def test_the_panes_beside_the_editor_follow_it(look: Look) -> None:
    page = look("/write").page
    write(
        page, GREET.replace("greet", "welcome").replace("name: str", "name: str, title: str = ''")
    )

    page.get_by_role("tab", name="Schema").click()
    expect(page.get_by_role("tabpanel", name="Schema")).to_contain_text("title")
    page.get_by_role("tab", name="Documentation").click()
    expect(page.get_by_role("heading", name="Welcome")).to_be_visible()
    page.get_by_role("tab", name="As the model sees it").click()
    page.get_by_label("Provider").select_option("anthropic")
    expect(page.get_by_role("tabpanel")).to_contain_text("input_schema")

    write(page, "def (")
    expect(findings(page)).to_contain_text("syntax-error")
    expect(page.get_by_role("tabpanel")).to_contain_text("welcome")
    expect(page.get_by_role("button", name="Save")).to_be_disabled()


def test_an_example_that_fails_is_mended_by_keyboard(look: Look) -> None:
    view = look("/write")
    view.forgiven = ("422",)
    page = view.page
    example = '    Examples:\n        >>> bow("Ada")\n        \'Bye Ada\'\n    """\n    return'
    write(page, GREET.replace("greet", "bow").replace('    """\n    return', f"\n{example}"))

    page.get_by_role("button", name="Save bow").click()

    expect(page.get_by_role("alert")).to_contain_text("Not saved")
    expect(findings(page)).to_contain_text("example-fails")
    expect(page.locator(".cm-lint-marker-error")).to_have_count(1)
    findings(page).get_by_role("button", name="Line 8").press("Enter")
    expect(editor(page)).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.press("Tab")
    page.keyboard.type("# doctest: +SKIP")
    expect(page.get_by_text("No findings")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(editor(page)).not_to_be_focused()


def test_the_slower_author_sees_the_difference_and_chooses(look: Look, site: Site) -> None:
    view = look("/write?tool=greet")
    page = view.page
    expect(page.locator(".cm-content")).to_contain_text("Hello {name}")
    newer = GREET.replace("Hello", "Hi")

    editor(page).press("ControlOrMeta+End")
    page.keyboard.insert_text("# mine\n")
    with site.client() as client:
        assert client.put("/v1/tools/greet", json={"source": newer}).status_code == 200

    expect(page.get_by_role("alert")).to_contain_text("newer version of greet")
    expect(page.get_by_role("region", name="Newer version and your version")).to_contain_text(
        "# mine"
    )
    page.get_by_role("button", name="Keep mine").click()
    page.get_by_role("button", name="Save greet").click()
    expect(page.get_by_text("Saved as version")).to_be_visible()
    assert "# mine" in (site.tools / "greet.py").read_text("utf-8")

    with site.client() as client:
        client.put("/v1/tools/greet", json={"source": newer})
    expect(page.locator(".cm-content")).to_contain_text("Hi {name}")


def test_saving_keeps_helpers_and_the_text_that_is_typed_meanwhile(look: Look, site: Site) -> None:
    page = look("/write?tool=polite").page
    expect(page.get_by_text("This tool has helper modules")).to_contain_text("words.py")
    expect(page.get_by_text("No findings")).to_be_visible()

    editor(page).press("ControlOrMeta+End")
    page.keyboard.insert_text("# mine\n")
    page.get_by_role("button", name="Save polite").click()
    editor(page).press("ControlOrMeta+End")
    page.keyboard.type("# typed meanwhile")

    expect(page.get_by_text("version 1", exact=True)).to_be_visible()
    expect(page.locator(".cm-content")).to_contain_text("# typed meanwhile")
    expect(page.get_by_text("not saved")).to_be_visible()
    assert (site.tools / "polite.py").read_text("utf-8").endswith("# mine\n")


def test_a_name_that_is_taken_is_shown_before_it_is_saved(look: Look) -> None:
    view = look("/write")
    view.forgiven = ("412",)
    page = view.page

    write(page, GREET)
    expect(page.get_by_text("A tool named greet already exists")).to_be_visible()
    page.get_by_role("button", name="Save greet").click()
    page.get_by_role("link", name="open that tool").click()

    expect(page.get_by_role("heading", name="Edit greet")).to_be_visible()


def test_unsaved_work_survives_reloads_and_other_pages(look: Look) -> None:
    page = look("/write").page
    asked: list[str] = []

    def leave(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", leave)
    write(page, GREET.replace("greet", "precious"))
    expect(page.get_by_role("button", name="Save precious")).to_be_enabled()

    page.reload()
    expect(page.get_by_text("Restored work from")).to_be_visible()
    pages = page.get_by_role("navigation", name="Pages")
    pages.get_by_role("link", name="Audit").click()
    expect(editor(page)).to_have_count(0)
    pages.get_by_role("link", name="Write").click()
    expect(page.locator(".cm-content")).to_contain_text("def precious")
    assert asked == ["beforeunload"]

    page.get_by_role("button", name="Discard").click()
    expect(page.locator(".cm-content")).to_contain_text("def add_tax")
    expect(page.get_by_text("Restored work from")).to_have_count(0)


def test_work_survives_a_restart_of_the_server_and_becomes_a_proposal(
    browser: Browser, tmp_path: Path
) -> None:
    site = Site(tmp_path, {"greet.py": GREET}, authoring="propose")
    with ExitStack() as window:
        with site.running():
            view = window.enter_context(looking(browser, site, outlives=True))
            view.forgiven = ("ERR_",)
            page = view.open("/write")
            write(page, GREET.replace("greet", "early"))
            expect(page.get_by_role("button", name="Propose early")).to_be_enabled()
        write(page, GREET.replace("greet", "late"))
        expect(page.get_by_text("Not checked")).to_be_visible()
        with site.running():
            page.get_by_role("button", name="Propose late").click()

            expect(page.get_by_text("late is proposed")).to_contain_text("ADMIN")
            assert not (site.tools / "late.py").exists()


def test_where_authoring_is_off_the_page_says_so_at_once(browser: Browser, tmp_path: Path) -> None:
    with (
        Site(tmp_path, {}, authoring="off").running() as off,
        looking(browser, off) as view,
    ):
        page = view.open("/write")

        expect(page.get_by_text("but not save")).to_contain_text("disabled")
        expect(page.get_by_role("button", name="Save")).to_be_disabled()


def test_examples_to_start_from_have_no_findings_and_do_what_they_say() -> None:
    script = (STATIC / "pages/write/starters.js").read_text("utf-8")
    sources = re.findall(r"source: `(.*?)`,\n", script, re.DOTALL)

    assert len(sources) == 4
    for source in sources:
        names: dict[str, object] = {}
        exec(compile(source, "starter", "exec"), names)
        for test in doctest.DocTestFinder().find(names, "starter", extraglobs=names):
            assert doctest.DocTestRunner(verbose=False).run(test).failed == 0
        assert read_source(source).reading.findings == ()


def test_every_provider_can_be_chosen() -> None:
    script = (STATIC / "pages/write/panes.js").read_text("utf-8")
    listed = script.partition("PROVIDERS = [")[2].partition("]")[0]

    assert tuple(re.findall(r'"([a-z-]+)"', listed)) == PROVIDERS
