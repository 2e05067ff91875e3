"""Pictures of every page, for the README and docs/page.md: `make screenshots`.

A real `toolkiln serve` offers the example tools and a few of an office. People and an agent
call them, propose a tool and wait for approvals; Debian's Chromium looks at what is there.
Look at what it makes before it is committed: a script sees no ugliness.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

_ROOT = Path(__file__).parent.parent
_COMMAND = Path(sys.executable).with_name("toolkiln")
_PATIENCE = 60.0
_MOST_BYTES = 150_000
_WIDE: ViewportSize = {"width": 1280, "height": 800}
_NARROW: ViewportSize = {"width": 360, "height": 740}
_SETTINGS = """
tools = "tools"
authoring = "propose"

[privileges]
assistant = ["WRITE_TOOLS"]

[grants.convert_currency]
network = ["api.frankfurter.dev"]

[grants.rename_files]
workspace = "write"
"""
_OFFICE = '''"""Tools of a small office."""

import time

from toolkiln import Context, ToolError, tool


@tool(needs_approval=True, destructive=True, icon="credit-card", color="rose", weight=10)
def pay_invoice(number: str, amount: float, to: str) -> str:
    """Pay an invoice from the account of the office.

    Args:
        number: The number of the invoice.
        amount: How much, in euros.
        to: Who gets it.
    """
    return f"{to} got {amount:.2f} EUR for {number}"


@tool(read_only=True, icon="archive", color="violet", weight=20, timeout=300)
def index_archive(folders: int, ctx: Context) -> int:
    """Index the archive, folder by folder.

    Args:
        folders: How many.
    """
    for number in range(folders):
        ctx.report_progress(number, folders, f"folder {number + 1} of {folders}")
        ctx.log(f"folder {number + 1}: {17 * number % 40} documents")
        time.sleep(0.5)
    return folders


@tool(read_only=True, icon="file-chart-column", color="sky", weight=20)
def monthly_report(cities: list[str], ctx: Context) -> str:
    """Put the figures of a month together as a table.

    Args:
        cities: The branches that it is about.
    """
    if not cities:
        raise ToolError("a report needs at least one city")
    rows = [{"city": city, "letters": len(city)} for city in cities]
    return str(ctx.call("format_table", rows=rows))
'''
_PROPOSED = '''"""Opening hours of the office."""


def is_open(weekday: str, hour: int) -> bool:
    """Tell whether the office is open.

    Args:
        weekday: Its English name, such as Monday.
        hour: From 0 to 23.
    """
    return weekday not in ("Saturday", "Sunday") and 9 <= hour < 17
'''
_DRAFT = '''def split_bill(total: float, people: int, tip: int = 10) -> float:
    """Work out what each person pays for a meal.

    Args:
        total: The sum on the bill.
        people: How many share it.
    """
    return round(total * (100 + tip) / 100 / people, 2)
'''
_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("convert_units", {"value": 26.2, "source": "mi", "target": "km"}),
    ("compare_versions", {"first": "1.10", "second": "1.9"}),
    ("monthly_report", {"cities": ["Oslo", "Bergen", "Tromsø"]}),
    ("format_table", {"rows": [{"city": "Oslo", "people": 717710}]}),
    ("monthly_report", {"cities": []}),
    ("convert_units", {"value": 1, "source": "mi", "target": "parsec"}),
    ("explain_cron", {"expression": "30 9 * * mon-fri", "after": "2026-11-13T10:00:00"}),
    ("query_json", {"document": {"users": [{"name": "Ada"}]}, "path": "users[*].name"}),
]
_INVOICES: list[dict[str, Any]] = [
    {"number": "2026-118", "amount": 480.0, "to": "Paper & Co"},
    {"number": "2026-121", "amount": 96.5, "to": "Fjord Net"},
]


class Shot(NamedTuple):
    """A picture: what is looked at, and what is done before."""

    name: str
    path: str
    act: Callable[[Page], None] = lambda _: None
    is_dark: bool = False
    is_narrow: bool = False


def _run_example(page: Page) -> None:
    page.get_by_role("button", name="Fill in the example").click()
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("region", name="Result")).to_be_visible()
    page.evaluate("scrollTo(0, 0)")


def _compare(page: Page) -> None:
    page.get_by_role("button", name="Changes of version 2").click()
    expect(page.get_by_role("region", name="Changes of version 2")).to_be_visible()


def _write(page: Page) -> None:
    page.get_by_role("textbox", name="Source").press("Control+a")
    page.keyboard.insert_text(_DRAFT)
    expect(page.get_by_text("undescribed-parameter").first).to_be_visible()


def _wait_for_proposals(page: Page) -> None:
    expect(page.get_by_text("compare_versions").first).to_be_visible()


def _show_sandbox(page: Page) -> None:
    page.locator("main").get_by_text("Sandbox", exact=True).first.click()
    expect(page.get_by_text("bwrap").first).to_be_visible()


SHOTS = (
    Shot("catalog", "/"),
    Shot("tool", "/tools/query_csv", _run_example),
    Shot("versions", "/tools/monthly_report?show=versions", _compare, is_dark=True),
    Shot("write", "/write", _write),
    Shot("runs", "/runs", is_dark=True),
    Shot("approvals", "/approvals", _wait_for_proposals),
    Shot("audit", "/audit"),
    Shot("settings", "/settings", _show_sandbox, is_dark=True),
    Shot("narrow", "/", is_narrow=True),
    Shot("narrow-dark", "/tools/query_csv", _run_example, is_dark=True, is_narrow=True),
)


@contextmanager
def _serving(folder: Path) -> Iterator[tuple[str, str]]:
    """A server over the examples and the office: its address, and a cookie that is signed in."""
    shutil.copytree(_ROOT / "examples/tools", folder / "tools")
    (folder / "toolkiln.toml").write_text(_SETTINGS, "utf-8")
    mine = {name: text for name, text in os.environ.items() if not name.startswith("TOOLKILN_")}
    environ = {**mine, "TOOLKILN_STATE": str(folder / "state")}
    office = folder / "tools/office.py"
    for source in (_OFFICE.replace("figures of a month", "figures"), _OFFICE):
        office.write_text(source, "utf-8")
        subprocess.run(
            [_COMMAND, "admit", "--yes"], cwd=folder, env=environ, check=True, stdout=sys.stderr
        )
    with subprocess.Popen(
        [_COMMAND, "serve", "--port", "0"],
        cwd=folder,
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            found = None
            while found is None:
                found = re.search("Page ((.*)/ui/.*)", process.stderr.readline())
            answer = httpx2.get(found[1], trust_env=False)
            yield found[2], answer.headers["set-cookie"].partition(";")[0]
        finally:
            process.kill()  # it would wait for the call that runs


def _happen(url: str, cookie: str) -> None:
    """Let people and an agent do things."""
    headers = {"authorization": f"Bearer {cookie.partition('=')[2]}"}
    with httpx2.Client(
        base_url=url, headers=headers, timeout=_PATIENCE, trust_env=False
    ) as operator:

        def client(user: str) -> httpx2.Client:
            made = operator.post("/v1/sessions", json={"user_id": user}).raise_for_status()
            headers = {"authorization": f"Bearer {made.json()['token']}"}
            return httpx2.Client(base_url=url, headers=headers, timeout=_PATIENCE, trust_env=False)

        with client("ann") as ann, client("assistant") as assistant:
            for turn in range(3):
                for number, (tool, arguments) in enumerate(_CALLS):
                    who = (ann, assistant)[(number + turn) % 2]
                    _call(who, tool, arguments)
            _propose(assistant, operator)
            for invoice in _INVOICES:
                _call(assistant, "pay_invoice", invoice, background=True)
            _call(ann, "index_archive", {"folders": 400}, background=True)


def _call(client: httpx2.Client, tool: str, arguments: dict[str, Any], **options: Any) -> None:
    body = {"arguments": arguments, **options}
    client.post(f"/v1/tools/{tool}/call", json=body).raise_for_status()


def _propose(assistant: httpx2.Client, operator: httpx2.Client) -> None:
    assistant.put("/v1/tools/is_open", json={"source": _PROPOSED}).raise_for_status()
    found = operator.get("/v1/tools/compare_versions/versions/1").raise_for_status()
    source = next(iter(found.json()["sources"].values()))
    better = source.replace("compared with the second", "against the second, by PEP 440")
    assistant.put("/v1/tools/compare_versions", json={"source": better}).raise_for_status()


expect.set_options(timeout=_PATIENCE * 1000)


def _take(browser: Browser, site: tuple[str, str], shot: Shot, place: Path) -> None:
    url, cookie = site
    name, _, value = cookie.partition("=")
    with browser.new_context(
        viewport=_NARROW if shot.is_narrow else _WIDE,
        color_scheme="dark" if shot.is_dark else "light",
        reduced_motion="reduce",
        timezone_id="UTC",
    ) as context:
        context.add_cookies([{"name": name, "value": value, "url": url}])
        page = context.new_page()
        page.set_default_timeout(_PATIENCE * 1000)
        page.goto(f"{url}/ui{shot.path}")
        expect(page.locator("main h1").first).to_be_attached()
        shot.act(page)
        expect(page.locator(".busy")).to_have_count(0)
        expect(page.locator(".toast")).to_have_count(0)
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement?.blur()")
        place.mkdir(parents=True, exist_ok=True)
        file = place / f"{shot.name}.png"
        page.screenshot(path=file, animations="disabled")
        if file.stat().st_size > _MOST_BYTES:
            sys.exit(f"{file} has {file.stat().st_size:,} bytes; {_MOST_BYTES:,} are allowed")


def main() -> None:
    """Take the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="some of the pictures")
    parser.add_argument("--out", type=Path, default=_ROOT / "docs/images")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        _serving(Path(folder)) as site,
        sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        ) as browser,
    ):
        _happen(*site)
        for shot in SHOTS:
            if not given.names or shot.name in given.names:
                _take(browser, site, shot, given.out)


if __name__ == "__main__":
    main()
