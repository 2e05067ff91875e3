"""Events and output of a call on the page: all of it is text."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from .site import Look, Site

pytestmark = pytest.mark.browser

TOOLS = '''
import time
from pathlib import Path

from toolkiln import Context, ToolError

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360f8cfc0f01f0005010201fb75d0640000000049454e44ae426082"
)
DRAWING = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="10">'
    '<script>document.title = "hacked"</script><rect width="20" height="10"/></svg>'
)


def hostile() -> dict:
    """Return what could do harm on a page."""
    print("<img src=x onerror='document.title=1'>\\x1b[2J")
    return {
        "<b>bold</b>": "<script>document.title = 'hacked'</script>",
        "turned": "invoice\\u202efdp.exe",
        "line": "one\\u2028two",
        "__proto__": {"polluted": True},
        "whole": 2**70,
        "long": "y" * 3_000_000,
    }


def table(count: int) -> list[dict]:
    """Return rows."""
    parts = [None if n % 2 else n / 3 for n in range(count)]
    return [{"id": n, "name": f"<i>{n % 7}</i>", "part": part} for n, part in enumerate(parts)]


def tree(count: int) -> dict:
    """Return many values."""
    return {"items": list(range(count))}


def long(ctx: Context, count: int) -> str:
    """Return much text."""
    return "\\n".join(f"line {n}" for n in range(count))


def works(ctx: Context, seconds: float) -> str:
    """Report progress, and send files."""
    ctx.report_progress(1, 4, "beginning <b>")
    ctx.log("a warning", 30)
    print("printed", flush=True)
    ctx.send_message({"said": "<u>hello</u>"})
    ctx.inject_tools("table")
    time.sleep(seconds)
    Path("/tmp/dot.png").write_bytes(PIXEL)
    Path("/tmp/drawing.svg").write_text(DRAWING)
    Path("/tmp/page.html").write_text("<script>document.title = 1</script>")
    for name in ("dot.png", "drawing.svg", "page.html"):
        ctx.send_file(f"/tmp/{name}")
    return "made"


def fails() -> str:
    """Fail."""
    raise ToolError("the <b>stove</b> is cold", retryable=True)

'''
PAYS = '''
from toolkiln import tool


@tool(needs_approval=True)
def pays(amount: int) -> str:
    """Pay an amount."""
    return "paid"
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("result"), {"kitchen.py": TOOLS, "pays.py": PAYS})
    with site.running():
        yield site


def result_of(page: Page, **arguments: object) -> Locator:
    """The result of a tool, on its page."""
    begin(page, **arguments)
    return ended(page)


def begin(page: Page, **arguments: object) -> None:
    for name, value in arguments.items():
        page.get_by_label(re.compile(rf"^{name}\b")).fill(str(value))
    page.get_by_role("button", name="Run").click()


def ended(page: Page) -> Locator:
    result = page.get_by_role("region", name="Result")
    expect(result).to_be_visible()
    return result


def test_hostile_output_is_shown_as_text_and_does_nothing(look: Look) -> None:
    view = look("/tools/hostile")
    page = view.page

    result = result_of(page)

    tree = result.locator(".tree")
    expect(tree).to_contain_text("<b>bold</b>")
    expect(tree).to_contain_text("<script>document.title = 'hacked'</script>")
    expect(tree).to_contain_text("invoice\\u202efdp.exe")
    expect(tree).to_contain_text("one\\u2028two")
    expect(tree).to_contain_text(str(2**70))
    expect(tree).to_contain_text("2,999,000 more characters")
    expect(result.get_by_role("region", name="standard output")).to_contain_text(
        "<img src=x onerror="
    )
    expect(result.get_by_role("region", name="standard output")).to_contain_text("\\x1b[2J")
    result.get_by_role("tab", name="As the model reads it").click()
    expect(result.get_by_role("region", name="text")).to_contain_text("<script>")
    assert page.title() == "hostile · Toolkiln"
    assert page.evaluate("({}).polluted") is None
    assert result.locator("img, script, b").count() == 0
    view.check_access()


def test_a_table_of_many_rows_is_sorted_and_only_what_is_seen_exists(look: Look) -> None:
    view = look("/tools/table")
    result = result_of(view.page, count=100_000)
    rows = result.locator("tbody tr:not(.space)")

    expect(result).to_contain_text("100,000 rows")
    expect(rows.first).to_contain_text("<i>0</i>")
    result.get_by_role("button", name="part").click()
    result.get_by_role("button", name="part").click()
    expect(result.get_by_role("columnheader", name="part")).to_have_attribute(
        "aria-sort", "descending"
    )
    expect(rows.first.locator("td").first).to_have_text("99998")
    result.get_by_role("region", name="Table").evaluate(
        "box => { box.scrollTop = box.scrollHeight }"
    )
    expect(rows.last.locator("td").first).to_have_text("99999")
    assert rows.count() < 50
    view.check_access()


def test_a_tree_of_many_values_unfolds_step_by_step(look: Look) -> None:
    page = look("/tools/tree").page

    tree = result_of(page, count=100_000).locator(".tree")

    tree.get_by_text("items", exact=True).click()
    tree.get_by_text("90,000 … 99,999").click()
    tree.get_by_text("99,900 … 99,999").click()
    expect(tree).to_contain_text("99999")
    assert tree.locator("details").count() < 1_000


def test_files_of_a_call_are_shown_and_saved(look: Look, tmp_path: Path) -> None:
    view = look("/tools/works")
    page = view.page

    begin(page, seconds=0)
    result = ended(page)

    expect(result).to_contain_text("Done")
    for name in ("dot.png", "drawing.svg"):
        picture = result.get_by_role("img", name=name)
        expect(picture).to_have_js_property("complete", True)
        assert picture.evaluate("picture => picture.naturalWidth") > 0
    with page.expect_download() as saved:
        result.get_by_role("link", name="page.html").click()
    assert saved.value.suggested_filename == "page.html"
    saved.value.save_as(tmp_path / "saved")
    assert (tmp_path / "saved").read_text() == "<script>document.title = 1</script>"
    expect(result).to_contain_text("<u>hello</u>")
    expect(result.get_by_role("link", name="table")).to_have_attribute("href", "/ui/tools/table")
    view.check_access()


def test_a_call_is_watched_while_it_runs_and_can_be_stopped(look: Look) -> None:
    page = look("/tools/works").page

    begin(page, seconds=60)
    expect(page.get_by_role("progressbar")).to_have_attribute("value", "0.25")
    expect(page.get_by_text("beginning <b>")).to_be_visible()
    expect(page.get_by_role("log")).to_contain_text("warninga warning")
    expect(page.get_by_role("log")).to_contain_text("printed")
    expect(page.get_by_role("log")).to_contain_text('message{"said":"<u>hello</u>"}')
    expect(page.get_by_role("log")).to_contain_text("offers table")
    page.get_by_role("button", name="Stop").click()

    expect(page.get_by_text("Stopped: the call was cancelled.")).to_be_visible()
    expect(page.get_by_role("button", name="Run")).to_be_enabled()


def test_all_of_a_text_that_was_cut_can_be_read(look: Look) -> None:
    page = look("/tools/long").page

    result = result_of(page, count=30_000)

    expect(result).to_contain_text(re.compile(r"The model reads [\d,]+ of 318,889 characters"))
    result.get_by_role("button", name="Show full output").click()
    whole = result.get_by_role("region", name="whole output")
    expect(whole).to_contain_text("line 1\nline 2\n")
    result.get_by_role("button", name="Next page").click()
    expect(result.get_by_text("2 of 16 pages")).to_be_visible()
    expect(whole).to_contain_text("line 2500\n")


def test_a_failure_is_explained_in_words(look: Look) -> None:
    result = result_of(look("/tools/fails").page)

    expect(result).to_contain_text("Failed")
    expect(result).to_contain_text("the <b>stove</b> is cold")
    expect(result).to_contain_text("The same call may work later")


def test_a_call_that_needs_approval_leads_there(look: Look) -> None:
    page = look("/tools/pays").page

    begin(page, amount=5)

    expect(page.get_by_role("link", name="open approvals")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped")).to_be_visible()
