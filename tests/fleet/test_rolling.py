"""A deploy that rolls over a fleet: two versions of a tool in one pool, at the same time."""

import asyncio
from pathlib import Path

from toolkiln.catalog.folder import read_sources
from toolkiln.config import Settings
from toolkiln.fleet.publisher import Publisher
from toolkiln.fleet.remote_catalog import CatalogReader
from toolkiln.kiln import Kiln
from toolkiln.model.call import Event, Result
from toolkiln.model.catalog import Admission, FileVersion, ServedVersion

from .servers import Server
from .test_catalog import put
from .workers import BOUND, asking, until, worker

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


def files(version: str) -> dict[str, bytes]:
    """A tool whose versions differ in a helper as well."""
    words = f'def greeting():\n    return "{version}"\n'
    return {"greet.py": SOURCE.replace("{0}", version).encode(), "words.py": words.encode()}


def served(version: str) -> ServedVersion:
    """The tool as another machine serves it."""
    reading = read_sources(files(version), Path("greet.py"))
    admission = Admission(
        sha256=reading.digest, version=1, admitted_by="", admitted_at="", since=""
    )
    return ServedVersion("greet.py", FileVersion(reading, files(version)), admission)


async def test_a_worker_runs_the_version_that_its_caller_saw(
    server: Server, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, data in files("one").items():
        (tools / name).write_bytes(data)
    with worker(server.url, tools):
        async with asking(server) as asker:
            published = CatalogReader(asker.pipe, asker.key)
            await published.refresh()
            old = published.snapshot.tools["greet"].digest
            await put(Publisher(asker.pipe, asker.key, "default", "another"), served("two"))
            await published.refresh()
            new = published.snapshot.tools["greet"].digest
            calls = [asker.call("greet", digest=digest) for digest in (old, new) * 3]
            results = await asyncio.gather(*calls)

    assert old != new
    assert [result.value for result in results] == ["one", "two"] * 3


async def test_of_two_workers_with_two_versions_either_ends_what_the_other_began(
    server: Server, tmp_path: Path
) -> None:
    folders = {version: tmp_path / version / "tools" for version in ("one", "two")}
    for version, folder in folders.items():
        folder.mkdir(parents=True)
        (folder / "last.py").write_text(LASTING.replace("{0}", version), "utf-8")
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
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "last.py").write_text(LASTING.replace("{0}", "one"), "utf-8")
    admit(tools, "last.py")
    (tools / "other.py").write_text(LASTING.replace("{0}", "two").replace("last", "other"), "utf-8")
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


async def test_a_worker_without_dev_does_not_run_a_version_that_was_not_admitted(
    server: Server, tmp_path: Path
) -> None:
    folders = {version: tmp_path / version / "tools" for version in ("one", "two")}
    for version, folder in folders.items():
        folder.mkdir(parents=True)
        (folder / "last.py").write_text(LASTING.replace("{0}", version), "utf-8")
    admit(folders["one"], "last.py")
    async with asking(server) as asker:
        published = CatalogReader(asker.pipe, asker.key)
        with worker(server.url, folders["two"]):
            await published.refresh()
            new = published.snapshot.tools["last"].digest
        with worker(server.url, folders["one"], dev=False):
            strict = await asker.call("last", digest=new)
            own = await asker.call("last")
        with worker(server.url, folders["one"]):
            lax = await asker.call("last", digest=new)

    assert strict.error is not None
    assert (strict.value, strict.error.code) == (None, "stale")
    assert (own.value, own.dev) == ("one", False)
    assert (lax.value, lax.dev) == ("two", True)


def admit(tools: Path, file: str) -> None:
    """Admit a file of a worker's folder."""
    with Kiln(tools, settings=Settings(state=tools.parent / "state")) as kiln:
        kiln.services.admissions.admit(
            [kiln.services.admissions.candidate(file)], kiln.security.decision()
        )


async def begun(kiln: Kiln, seconds: float) -> "asyncio.Task[Result]":
    """A call that some worker has begun."""
    started = asyncio.Event()

    def observe(_: Event) -> None:
        started.set()

    running = asyncio.create_task(kiln.call("last", {"seconds": seconds}, observe=observe))
    await asyncio.wait_for(started.wait(), BOUND)
    return running
