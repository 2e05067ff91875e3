"""The page of one tool: trying it, rights and settings, models' view, versions, texts to copy."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Dialog, Page, expect

from ..conftest import BOUND, COMMAND
from .site import Look, Site

pytestmark = pytest.mark.browser

SHIP = '''
from typing import Annotated, Literal

from pydantic import BaseModel, Field, SecretStr

from toolkiln import Context, tool


class Address(BaseModel):
    street: str
    floor: int | None = None


class ByMail(BaseModel):
    kind: Literal["mail"]
    to: Address


class ByHand(BaseModel):
    kind: Literal["hand"]
    name: str


class Service(BaseModel):
    key: SecretStr
    retries: int = Field(3, ge=0)


@tool(icon="truck", color="sky", workspace="write", settings=Service)
def ship(
    item: str,
    by: ByMail | ByHand,
    ctx: Context,
    pieces: Annotated[int, Field(ge=1, le=20)] = 2,
    note: str | None = None,
) -> dict[str, object]:
    """Ship something to somebody, piece by piece.

    Args:
        item: What is shipped.
        by: Which way it goes.
        pieces: How many.
        note: A word with it.

    Examples:
        >>> ship("book", {"kind": "hand", "name": "Ada"}, pieces=3)
    """
    for number in range(pieces):
        ctx.report_progress(number + 1, pieces, f"piece {number + 1}")
        ctx.log(f"packed {item}")
    return {"by": by.kind, "pieces": pieces, "note": note, "tries": ctx.settings["retries"]}
'''
HOSTILE = '''
from toolkiln import ToolError, tool


@tool(display_name="<img src=x onerror=alert(1)>", read_only=True)
def strange(word: str = "<b>bold</b>", fails: bool = False) -> str:
    """Give <script>alert(2)</script> and [a link](javascript:alert(3)).

    # <img src=x onerror=alert(4)>

    Args:
        word: <iframe src="javascript:alert(5)"></iframe>
        fails: **</p><script>alert(6)</script>**

    Examples:
        >>> strange("<svg onload=alert(7)>'; rm -rf / #")
    """
    if fails:
        raise ToolError("<img src=x onerror=alert(8)>")
    print("<script>alert(9)</script>")
    return f"<script>alert(10)</script>{word}"
'''
GREET = '''
def greet(name: str, anything: dict) -> str:
    """Greet a person.

    Args:
        name: Who is greeted.
    """
    return f"{greeting} {name}"
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    files = {"ship.py": SHIP, "hostile.py": HOSTILE, "greet.py": GREET.replace("greeting", "'Hi'")}
    with Site(tmp_path_factory.mktemp("tool"), files).running() as site:
        site.admit(*files)
        yield site


def show(page: Page, tab: str) -> None:
    page.get_by_role("tablist", name="About this tool").get_by_role(
        "tab", name=re.compile(f"^{tab}")
    ).click()
    expect(page.locator("#tool-part")).to_have_role("tabpanel")


def test_a_tool_is_set_up_and_tried_out_with_live_progress(look: Look) -> None:
    view = look("/tools/ship")
    page = view.page

    page.get_by_role("button", name="Show permissions").click()
    expect(page.get_by_text("not granted", exact=True)).to_be_visible()
    page.get_by_role("button", name="Grant requested permissions").click()
    page.get_by_role("dialog").get_by_role("button", name="Grant").click()
    expect(page.get_by_text("granted", exact=True)).to_be_visible()
    settings = page.get_by_role("region", name="Settings for all users")
    expect(settings.get_by_text("not set up")).to_be_visible()
    settings.get_by_label("key").fill("k-4711")
    settings.get_by_role("button", name="Save").click()
    expect(settings.get_by_text("It is set. It is never shown.")).to_be_visible()
    expect(settings.get_by_role("textbox", name="key")).to_have_value("")
    expect(settings.get_by_text("not set up")).to_have_count(0)
    view.check_access()
    show(page, "Try it")
    run = page.get_by_role("button", name="Run")
    expect(run).to_be_disabled()
    page.get_by_role("button", name="Fill in the example").click()
    expect(run).to_be_enabled()
    view.check_access()
    run.click()

    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text('"hand"')
    expect(result).to_contain_text("tries: 3")
    expect(page.get_by_role("log")).to_contain_text("packed book")
    show(page, "Calls")
    expect(page.locator(".calls").get_by_role("link")).to_contain_text("Done")
    show(page, "Try it")
    expect(result).to_contain_text('"hand"')


def test_texts_of_a_hostile_tool_are_text_and_nothing_else(look: Look) -> None:
    view = look("/tools/strange")
    page = view.page
    alerts: list[str] = []

    def dismissed(dialog: Dialog) -> None:
        alerts.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismissed)

    expect(page.get_by_role("heading", level=1)).to_have_text("<img src=x onerror=alert(1)>")
    page.get_by_role("button", name="Run").click()
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text("<script>alert(10)</script><b>bold</b>")
    page.get_by_role("radio", name="true").check()
    page.get_by_role("button", name="Run").click()
    expect(result).to_contain_text("<img src=x onerror=alert(8)>")
    for tab in ("Documentation", "As models see it", "Health", "Permissions", "Versions", "Use it"):
        show(page, tab)
        expect(page.locator("#tool-part")).to_contain_text(re.compile(r"\w"))

    assert alerts == []
    assert page.locator("main :is(script, iframe, img, svg[onload])").count() == 0
    assert page.locator("main a[href^='javascript:']").count() == 0


def test_versions_are_compared(look: Look, site: Site) -> None:
    view = look("/tools/greet?show=versions")
    page = view.page
    expect(page.get_by_role("heading", name="Version 1")).to_be_visible()

    site.write("greet.py", GREET.replace("greeting", "'Good day'"))
    expect(page.get_by_title("this version is not admitted")).to_have_text("dev")
    site.admit("greet.py")
    page.get_by_role("button", name="Changes of version 2").click()

    changes = page.get_by_role("region", name="Changes of version 2")
    expect(changes.locator("tr.added")).to_contain_text("Good day")
    expect(changes.locator("tr.removed")).to_contain_text("Hi")
    view.check_access()


def test_losses_of_each_provider_and_fixes_of_findings_are_shown(look: Look) -> None:
    view = look("/tools/greet?show=models")
    page = view.page

    page.get_by_role("button", name=re.compile("^openai-strict")).click()
    expect(page.locator("#tool-part")).to_contain_text("anything")
    expect(page.get_by_role("region", name="Losses").locator("tbody tr").first).to_be_visible()
    view.check_access()
    show(page, "Health")

    expect(page.get_by_text("undescribed-parameter")).to_be_visible()
    expect(page.get_by_text(re.compile("under `Args:`"))).to_be_visible()
    view.check_access()


def test_copied_texts_call_the_tool_as_they_are(look: Look, site: Site) -> None:
    view = look("/tools/strange?show=use", permissions=["clipboard-read", "clipboard-write"])
    page = view.page
    copied = {}

    for title in ("Command line", "curl", "MCP", "Python"):
        page.get_by_role("button", name=f"Copy: {title}").click()
        expect(page.get_by_text("Copied").last).to_be_visible()
        copied[title] = page.evaluate("navigator.clipboard.readText()")
    by_curl = subprocess.run(
        ["sh", "-c", f"{copied['curl']} --silent --noproxy '*'"], capture_output=True, timeout=BOUND
    )
    command = copied["Command line"].replace("toolkiln", shlex.quote(str(COMMAND)), 1)
    environ = {**os.environ, "XDG_STATE_HOME": str(site.tools.parent), "TOOLKILN_DEV": "1"}
    here: dict[str, Any] = {"cwd": site.tools.parent, "env": environ}
    here |= {"capture_output": True, "timeout": BOUND}
    by_command = subprocess.run(["sh", "-c", command], **here)
    by_python = subprocess.run([sys.executable, "-c", copied["Python"]], **here)

    given = "<script>alert(10)</script><svg onload=alert(7)>'; rm -rf / #"
    assert json.loads(by_curl.stdout)["value"] == given
    assert by_command.stdout.decode().strip().endswith(given)
    assert json.loads(copied["MCP"])["mcpServers"]["toolkiln"]["url"] == f"{site.url}/mcp"
    assert by_python.stdout.decode().strip().endswith(given)


def test_a_disabled_tool_cannot_be_tried_and_comes_back(look: Look) -> None:
    view = look("/tools/greet")
    page = view.page
    switch = page.get_by_role("switch", name="Enable Greet")

    switch.click()
    expect(page.get_by_role("heading", name="This tool is disabled")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="This tool is disabled")).to_be_visible()
    view.check_access()
    switch.click()

    expect(page.get_by_role("button", name="Run")).to_be_visible()


def test_it_is_accessible_at_night_on_a_narrow_screen_and_by_keyboard(look: Look) -> None:
    view = look("/tools/ship", color_scheme="dark", viewport={"width": 360, "height": 740})
    page = view.page
    tabs = page.get_by_role("tablist", name="About this tool")

    tabs.get_by_role("tab", name="Try it").focus()
    for key, title in (("ArrowRight", "Documentation"), ("End", "Use it"), ("ArrowLeft", "Calls")):
        page.keyboard.press(key)
        expect(tabs.get_by_role("tab", name=title)).to_be_focused()
    for tab in ("Try it", "Documentation", "Permissions", "Versions", "Use it"):
        show(page, tab)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        view.check_access()


def test_an_unknown_tool_leads_back_to_all_of_them(look: Look) -> None:
    view = look("/tools/no_such_tool")
    view.forgiven = ("404",)

    expect(view.page.get_by_text("Tool no_such_tool does not exist")).to_be_visible()
    view.page.get_by_role("link", name="All tools").click()

    expect(view.page).to_have_url(re.compile("/ui/$"))
