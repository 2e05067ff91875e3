"""The page: what the first view of the catalog costs, and whether 10,000 tools can be looked at.

A real `toolkiln dev` serves a folder, and Debian's Chromium opens its page. Bytes are counted
as they are sent, headers included. Tasks of the browser's main thread are measured while the
same things are done to a large and to a small catalog, in turns, of which the best counts:
scrolling, jumping, filtering, searching.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, CDPSession, Page, expect, sync_playwright

from bench.timing import Figure

_ROOT = Path(__file__).parent.parent
_BUNDLE = _ROOT / "src/toolkiln/surfaces/web/static/vendor/.made"
_EXAMPLES = _ROOT / "examples/tools"
_MOST_BYTES = 150_000
_LONGEST_TASK = 200
_SHORTEST_TASK = 50
"""Milliseconds: what is shorter is not reported by browsers."""
MANY = 10_000
FEW = 100
_OF_ONE_FILE = 50
_PATIENCE = 600_000
_SCROLLS = 60
_TURNS = 3
_QUIET = 500
"""Milliseconds without a request after which a view is complete."""
_TOOLKIT = '''

@tool_metadata(visible=True, icon="{icon}", color="{color}")
class Station{number}:
    """Measures what station number {number} sees."""
'''
_METHOD = '''
    @method_metadata()
    def measure_{number}(self, city: str, days: int = 3) -> dict[str, float]:
        """Measure the {what} in a city, by instrument number {number}.

        Args:
            city: Name of the city.
            days: How many days back.
        """
        return {{}}
'''
_FUNCTION = '''

@tool(read_only={is_even}, icon="{icon}")
def lookup_{number}(city: str, units: str = "metric") -> dict[str, float]:
    """Look up forecast number {number} of the {what} for a city.

    Args:
        city: Name of the city.
        units: metric or imperial.
    """
    return {{}}
'''
_LOOKS = (("sun", "amber"), ("wind", "sky"), ("cloud-rain", "blue"), ("thermometer", "red"))
_WHATS = ("temperature", "wind speed", "rainfall", "air pressure", "sunshine", "snow depth")
_WATCH = """
globalThis.longTasks = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) longTasks.push(entry.duration);
}).observe({type: "longtask", buffered: true});
"""
_FRAME = "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"


class _Used(NamedTuple):
    """What looking at a catalog took, of the browser's main thread."""

    opening: float
    """Milliseconds of the longest task until the cards are there; 0: none was long."""
    using: float
    """The same, of what was done then."""
    seconds: float
    """Of all tasks of what was done then."""


def figures() -> Iterator[Figure]:
    """Bytes and requests of the first view, then tasks with 10,000 tools and with 100."""
    chromium = shutil.which("chromium")
    if chromium is None or not _BUNDLE.exists():
        why = "no chromium" if chromium is None else "`make web` was not run"
        yield Figure("the page (not measured)", why, "", None)
        return
    expect.set_options(timeout=_PATIENCE)  # the first search of 10,000 tools makes its index
    with (
        tempfile.TemporaryDirectory() as scratch,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium) as browser,
    ):
        folder = Path(scratch)
        shutil.copytree(_EXAMPLES, folder / "examples/tools")
        with _served(folder / "examples") as url:
            name = "first view of the catalog page, compressed as sent"
            yield _first_view(browser, url, name, _MOST_BYTES)
        with (
            _served(_folder(folder / "few", FEW)) as few,
            _served(_folder(folder / "many", MANY)) as many,
        ):
            yield _first_view(browser, many, f"the same with {MANY:,} tools", None)
            used = {FEW: _Used(*[inf] * 3), MANY: _Used(*[inf] * 3)}
            for _ in range(_TURNS):
                for count, url in ((FEW, few), (MANY, many)):
                    used[count] = _Used(*map(min, used[count], _use(browser, url, count)))
    yield _longest(f"the page with {MANY:,} tools, opened", used[MANY].opening, used[FEW].opening)
    yield _longest(
        f"the page with {MANY:,} tools, scrolled, filtered, searched",
        used[MANY].using,
        used[FEW].using,
    )
    times = used[MANY].seconds / used[FEW].seconds
    yield Figure(
        f"scrolling, filtering and searching the page: {MANY:,} tools / {FEW}",
        f"{times:.1f} × ({used[MANY].seconds:.2f} / {used[FEW].seconds:.2f} s of the main thread)",
        "",
        True,
    )


def _longest(name: str, many: float, few: float) -> Figure:
    def told(task: float) -> str:
        return f"{task:.0f} ms" if task else f"< {_SHORTEST_TASK} ms"

    return Figure(
        f"{name}: longest task",
        f"{told(many)} (with {FEW}: {told(few)})",
        f"≤ {_LONGEST_TASK} ms",
        many <= _LONGEST_TASK,
    )


def _first_view(browser: Browser, url: str, name: str, most: int | None) -> Figure:
    with browser.new_page() as page:
        traffic = _Traffic(page)
        page.goto(f"{url}/ui/")
        expect(page.get_by_role("article").first).to_be_visible()
        traffic.settle()
        sent, asked = traffic.sent, len(traffic.asked)
    return Figure(
        name,
        f"{sent / 1000:.0f} kB in {asked} requests",
        f"< {most / 1000:.0f} kB" if most else "",
        most is None or sent < most,
    )


class _Traffic:
    """What a page loads, as the browser's own tools count it."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.asked: set[str] = set()
        self._open: set[str] = set()
        self.sent = 0.0
        devtools = page.context.new_cdp_session(page)
        devtools.on("Network.requestWillBeSent", self._begin)
        devtools.on("Network.loadingFinished", self._end)
        devtools.send("Network.enable")

    def _begin(self, event: dict[str, Any]) -> None:
        self.asked.add(event["requestId"])
        if not event["request"]["url"].endswith("/v1/events"):  # which has no end
            self._open.add(event["requestId"])

    def _end(self, event: dict[str, Any]) -> None:
        self._open.discard(event["requestId"])
        self.sent += event["encodedDataLength"]

    def settle(self) -> None:
        """Wait until nothing is loaded any more."""
        known = -1
        while self._open or known != len(self.asked):
            known = len(self.asked)
            self._page.wait_for_timeout(_QUIET)


def _use(browser: Browser, url: str, count: int) -> _Used:
    with browser.new_page() as page:
        page.set_default_timeout(_PATIENCE)
        page.add_init_script(_WATCH)
        page.goto(f"{url}/ui/")
        shown = page.locator("main").get_by_role("status").first
        expect(shown).to_contain_text(f"{count:,} tools")
        devtools = page.context.new_cdp_session(page)
        # Not by the clock: what else the machine does would count.
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.wait_for_timeout(_QUIET)
        opening = _long_task(page)
        before = _task_seconds(devtools)
        _scroll(page)
        _filter(page, count)
        page.wait_for_timeout(_QUIET)
        return _Used(opening, _long_task(page), _task_seconds(devtools) - before)


def _scroll(page: Page) -> None:
    page.mouse.move(600, 500)
    for step in range(_SCROLLS):  # down and up again: a small catalog has an end
        page.mouse.wheel(0, 700 if step % 8 < 4 else -700)
        page.evaluate(_FRAME)
    for part in (0.5, 1, 0.25, 0):
        page.evaluate("(part) => scrollTo(0, part * document.body.scrollHeight)", part)
        page.evaluate(_FRAME)
    expect(page.get_by_role("article").first).to_be_in_viewport()


def _filter(page: Page, count: int) -> None:
    shown = page.locator("main").get_by_role("status").first
    page.get_by_role("button", name="Read-only").click()
    expect(shown).to_contain_text(f"{count // 4:,} tools")
    page.get_by_role("button", name="Read-only").click()
    page.get_by_label("Toolkit").select_option(index=1)
    expect(shown).to_contain_text(f"{_OF_ONE_FILE} tools")
    page.get_by_label("Toolkit").select_option(index=0)
    expect(shown).to_contain_text(f"{count:,} tools")
    field = page.get_by_role("searchbox")
    for text in ("look", "look up", "look up the rainfall", "measure"):
        field.fill(text)
        expect(shown).to_contain_text(f"for “{text}”")
        page.evaluate(_FRAME)
    field.fill("")
    expect(shown).to_contain_text(f"{count:,} tools")


def _long_task(page: Page) -> float:
    """The longest since the last time that this was asked."""
    found = page.evaluate("longTasks.splice(0)")
    return max(map(float, found), default=0.0)


def _task_seconds(devtools: CDPSession) -> float:
    metrics = devtools.send("Performance.getMetrics")["metrics"]
    return next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The address of a server over the tools of a folder."""
    process = subprocess.Popen(
        [Path(sys.executable).with_name("toolkiln"), "dev", "--port", "0"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.match(r"MCP +(http://\S+)/mcp", line):
                yield found[1]
                break
        else:
            raise RuntimeError(f"the server of {folder} ended with {process.wait()}")
    finally:
        process.kill()
        process.communicate()


def _folder(folder: Path, count: int) -> Path:
    """Half of the tools are methods of toolkits, the others stand alone."""
    tools = folder / "tools"
    tools.mkdir(parents=True)
    for first in range(0, count, 2 * _OF_ONE_FILE):
        number = first // (2 * _OF_ONE_FILE)
        icon, color = _LOOKS[number % len(_LOOKS)]
        parts = ["from toolkiln import method_metadata, tool, tool_metadata\n"]
        parts.append(_TOOLKIT.format(number=number, icon=icon, color=color))
        numbers = range(first // 2, first // 2 + _OF_ONE_FILE)
        whats = {one: _WHATS[one % len(_WHATS)] for one in numbers}
        parts += [_METHOD.format(number=one, what=what) for one, what in whats.items()]
        parts += [
            _FUNCTION.format(number=one, what=what, icon=icon, is_even=one % 2 == 0)
            for one, what in whats.items()
        ]
        (tools / f"station_{number}.py").write_text("".join(parts))
    return folder


if __name__ == "__main__":
    for figure in figures():
        print(*figure, sep=" | ", flush=True)
