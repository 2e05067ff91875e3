"""A deploy that rolls over a fleet: two versions of a tool in one pool, at the same time."""

import asyncio
from dataclasses import replace
from pathlib import Path

from toolkiln.config import Settings
from toolkiln.fleet.publisher import Publisher
from toolkiln.fleet.remote_catalog import CatalogReader
from toolkiln.kiln import Kiln
from toolkiln.model.call import Event, Result
from toolkiln.model.catalog import ServedVersion

from .servers import Server
from .test_catalog import put, served_version
from .workers import BOUND, admit, asking, tools_folder, until, worker

SOURCE = '''
from toolkiln import tool
from words import greeting

@tool
def greet() -> str:
    """Greet in the words of version {0}."""
    return greeting()
'''

LASTING = '''
import time
from toolkiln import Context, tool

@tool(read_only=True)
def last(ctx: Context, seconds: float = 0.0) -> str:
    """Take some time, in version {0}."""
    ctx.report_progress(0, None, "it runs")
    time.sleep(seconds)
    return "{0}"
'''


def written(version: str) -> dict[str, str]:
    """A tool whose versions differ in a helper as well."""
    words = f'def greeting():\n    return "{version}"\n'
    return {"greet": SOURCE.replace("{0}", version), "words": words}


def served(version: str) -> ServedVersion:
    """The tool as another machine serves it, without an admission."""
    sources = {f"{name}.py": text.encode() for name, text in written(version).items()}
    return replace(served_version("greet.py", sources), admission=None)


async def test_of_two_workers_with_two_versions_either_ends_what_the_other_began(
    server: Server, tmp_path: Path
) -> None:
    folders = {
        version: tools_folder(tmp_path / version, last=LASTING.replace("{0}", version))
        for version in ("one", "two")
    }
    with worker(server.url, folders["one"], "--slots", "1"):
        async with asking(server) as asker:
            published = CatalogReader(asker.pipe, asker.key)
            await published.refresh()
            old = published.snapshot.tools["last"].digest
            with worker(server.url, folders["two"], "--slots", "1") as newer:
                settings = Settings(state=tmp_path / "front")
                async with Kiln.connect(server.url, settings=settings) as kiln:
                    both = [await begun(kiln, 0.7) for _ in range(2)]
                    newer.kill()
                    ended = await asyncio.gather(*both)
                    afterwards = await kiln.call("last")
            before = await asker.call("last", digest=old)

    assert [result.value for result in ended] == ["two", "two"]
    assert (afterwards.value, before.value) == ("two", "one")


async def test_what_a_worker_serves_without_admission_is_marked_for_its_callers(
    server: Server, tmp_path: Path
) -> None:
    other = LASTING.replace("{0}", "two").replace("last", "other")
    tools = tools_folder(tmp_path, last=LASTING.replace("{0}", "one"), other=other)
    admit(tools, "last.py")
    with worker(server.url, tools) as running:
        async with Kiln.connect(server.url, settings=Settings(state=tmp_path / "front")) as kiln:
            marks = {
                name: kiln.services.registry.is_dev(name) for name in kiln.services.registry.specs
            }
            results = [await kiln.call(name) for name in ("last", "other")]
            admit(tools, "other.py")
            until(lambda: not kiln.services.registry.is_dev("other"))
            results.append(await kiln.call("other"))

    assert marks == {"last": False, "other": True}
    assert [(result.value, result.dev) for result in results] == [
        ("one", False),
        ("two", True),
        ("two", False),
    ]
    assert "note: dev: 1 of them served as on disk, without an admission" in running.said


async def test_a_worker_runs_the_version_that_its_caller_saw(
    server: Server, tmp_path: Path
) -> None:
    old, new = (served(version).reading.digest for version in ("one", "two"))
    with worker(server.url, tools_folder(tmp_path, **written("one"))):
        async with asking(server) as asker:
            await put(Publisher(asker.pipe, asker.key, "default", "another"), served("two"))
            calls = [asker.call("greet", digest=digest) for digest in (old, new) * 3]
            results = await asyncio.gather(*calls)

    assert [(result.value, result.dev) for result in results] == [("one", True), ("two", True)] * 3


async def test_a_worker_without_dev_does_not_run_a_version_that_was_not_admitted(
    server: Server, tmp_path: Path
) -> None:
    tools = tools_folder(tmp_path, **written("one"))
    admit(tools, "greet.py")
    async with asking(server) as asker:
        await put(Publisher(asker.pipe, asker.key, "default", "another"), served("two"))
        with worker(server.url, tools, dev=False):
            strict = await asker.call("greet", digest=served("two").reading.digest)
            own = await asker.call("greet")

    assert strict.error is not None
    assert (strict.value, strict.error.code) == (None, "stale")
    assert (own.value, own.dev) == ("one", False)


async def begun(kiln: Kiln, seconds: float) -> "asyncio.Task[Result]":
    """A call that some worker has begun."""
    started = asyncio.Event()

    def observe(_: Event) -> None:
        started.set()

    running = asyncio.create_task(kiln.call("last", {"seconds": seconds}, observe=observe))
    await asyncio.wait_for(started.wait(), BOUND)
    return running
