"""Lists in pages, while the catalog changes between them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from .functions import add
from .served import BOUND, Served, serving
from .wire import Legacy, modern

pytestmark = pytest.mark.asyncio(loop_scope="module")
COUNT, PAGE = 24, 5


def source(name: str) -> str:
    return f'def {name}() -> int:\n    """Give a number."""\n    return 1\n'


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("method", "key"), [("tools/list", "tools"), ("resources/list", "resources")]
)
async def test_what_stays_is_on_one_page_whatever_comes_and_goes_meanwhile(
    client: httpx.AsyncClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    key: str,
) -> None:
    monkeypatch.setattr("toolkiln.surfaces.mcp.tools.TOOLS_PAGE_SIZE", PAGE)
    monkeypatch.setattr("toolkiln.surfaces.mcp.tools.PAGE_SIZE", PAGE)
    tools = tmp_path / "tools"
    tools.mkdir()
    names = [f"tool_{number:02}" for number in range(COUNT)]
    for name in names:
        (tools / f"{name}.py").write_text(source(name))
    gone, late, early = {names[2], names[PAGE - 1], names[12]}, "tool_20_late", "tool_01_early"

    async with serving(tmp_path / "state", (add,), tools=tools) as served:
        legacy = Legacy(client, served.url)
        await legacy.start()

        async def page(cursor: str | None, number: int) -> dict[str, Any]:
            given: dict[str, Any] = {"cursor": cursor} if cursor else {}
            is_odd = number % 2  # a cursor is good in either era
            result: dict[str, Any] = (
                await legacy.ask(method, **given)
                if is_odd
                else await modern(client, served.url, method, **given)
            )["result"]
            return result

        pages = [await page(None, 0)]
        for name in gone:  # one that was shown, the one that the cursor names, one to come
            (tools / f"{name}.py").unlink()
        for name in (early, late):
            (tools / f"{name}.py").write_text(source(name))
        await until(lambda: {early, late} <= served.kiln.services.registry.specs.keys())
        await until(lambda: not gone & served.kiln.services.registry.specs.keys())
        while cursor := pages[-1].get("nextCursor"):
            pages.append(await page(cursor, len(pages)))

    shown = [item["name"] for page in pages for item in page[key]]
    assert [len(page[key]) for page in pages[:-1]] == [PAGE] * (len(pages) - 1)
    assert len(shown) == len(set(shown))
    assert set(names) - gone <= set(shown)
    assert late in shown
    assert names[12] not in shown
    assert early not in shown


async def test_more_tools_than_a_page_holds_are_all_listed_in_one_order(
    served: Served, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.surfaces.mcp.tools.TOOLS_PAGE_SIZE", 2)

    async def listed() -> list[str]:
        shown: list[str] = []
        given: dict[str, Any] = {}
        while True:
            page = (await modern(client, served.url, "tools/list", **given))["result"]
            shown += [tool["name"] for tool in page["tools"]]
            if (cursor := page.get("nextCursor")) is None:
                return shown
            given = {"cursor": cursor}

    first, second = await listed(), await listed()

    assert first == second
    assert len(first) == len(set(first))
    assert {"add", "pair", "await_task"} <= set(first)
    assert first.index("risky") < first.index("await_task")
