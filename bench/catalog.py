"""Loading a folder of 10,000 tools, and the way from saving a file to being callable."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.timing import Figure
from toolkiln.catalog.admission import Admissions
from toolkiln.catalog.catalog import Catalog, CatalogOptions
from toolkiln.catalog.files import tool_files
from toolkiln.config import Settings
from toolkiln.kiln import Kiln
from toolkiln.model.admission import AdmissionDecision
from toolkiln.store.store import open_store

FILES = 10_000
FEW = 100
_SAVES = 15
_SOURCE = '''"""Tool number {number}."""

from toolkiln import tool


@tool
def lookup_{number}(city: str, days: int = 3, units: str = "metric") -> dict[str, float]:
    """Look up forecast number {number} for a city.

    Args:
        city: Name of the city.
        days: How many days ahead.
        units: metric or imperial.

    Returns:
        Temperatures by day.
    """
    return {{}}
'''


def figures() -> Iterator[Figure]:
    """Start-up with and without the cache, then saves in a small and in a large folder."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        many = _folder(folder / "many", FILES)
        yield _start(folder, many)
        few = _folder(folder / "few", FEW)
        small = asyncio.run(_save_to_callable(few, folder / "few-state"))
        large = asyncio.run(_save_to_callable(many, folder / "many-state"))
    yield Figure(
        f"save → callable, {FILES:,} files / {FEW} files",
        f"{large / small:.2f} × ({large * 1e3:.0f} ms / {small * 1e3:.0f} ms)",
        "≤ 1.5 ×",
        large <= 1.5 * small,
    )


def _start(folder: Path, tools: Path) -> Figure:
    store = open_store(folder / "store.db")
    admissions = Admissions(Catalog(tools, lambda: store.archive))
    files = [file.relative_to(tools).as_posix() for file in tool_files([tools])]
    admissions.admit([admissions.candidate(file) for file in files], AdmissionDecision("bench"))
    cache = folder / "cache"
    anew = min(_load(tools, None) for _ in range(2))
    _load(tools, cache)
    cached = min(_load(tools, cache) for _ in range(5))
    measured = anew / cached
    return Figure(
        f"load {FILES:,} unchanged tools: reading again / from the cache",
        f"{measured:.1f} × ({anew:.2f} s / {cached:.2f} s)",
        "≥ 10 ×",
        measured >= 10,
    )


def _load(tools: Path, cache: Path | None) -> float:
    def no_store() -> None:
        raise AssertionError("unchanged tools need no store")

    started = time.process_time()
    catalog = Catalog(tools, no_store, CatalogOptions(cache=cache))  # type: ignore[arg-type]
    assert len(catalog.snapshot.tools) == FILES
    return time.process_time() - started


async def _save_to_callable(tools: Path, state: Path) -> float:
    """Seconds from a file's being written to its version's being served, at the median."""
    taken = []
    async with Kiln(tools, settings=Settings(state=state), dev=True) as kiln:
        changes = kiln.services.watch()
        await anext(changes)  # what was there
        for turn in range(_SAVES):
            text = _SOURCE.format(number=7).replace("forecast", f"forecast in round {turn}")
            started = time.perf_counter()
            (tools / "part-7" / "lookup_7.py").write_text(text)
            while f"round {turn}" not in kiln.tool("lookup_7").description:
                await anext(changes)
            taken.append(time.perf_counter() - started)
        await changes.aclose()
    return median(taken)


def _folder(folder: Path, count: int) -> Path:
    for number in range(count):
        file = folder / f"part-{number % 50}" / f"lookup_{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_SOURCE.format(number=number))
    return folder
