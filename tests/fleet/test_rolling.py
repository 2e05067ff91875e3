"""A deploy that rolls over a fleet: two versions of a tool in one pool, at the same time."""

import asyncio
from pathlib import Path

from toolkiln.catalog import read_sources
from toolkiln.fleet import Published, Publisher
from toolkiln.model import Admission, Read, Served

from .servers import Server
from .test_catalog import put
from .workers import asking, worker

SOURCE = '''
from toolkiln import tool
from words import greeting

@tool
def greet() -> str:
    """Greet in the words of version {0}."""
    return greeting()
'''


def files(version: str) -> dict[str, bytes]:
    """A tool whose versions differ in a helper as well."""
    words = f'def greeting():\n    return "{version}"\n'
    return {"greet.py": SOURCE.replace("{0}", version).encode(), "words.py": words.encode()}


def served(version: str) -> Served:
    """The tool as another machine serves it."""
    reading = read_sources(files(version), Path("greet.py"))
    admission = Admission(
        sha256=reading.digest, version=1, admitted_by="", admitted_at="", since=""
    )
    return Served("greet.py", Read(reading, files(version)), admission)


async def test_a_worker_runs_the_version_that_its_caller_saw(
    server: Server, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, data in files("one").items():
        (tools / name).write_bytes(data)
    with worker(server.url, tools):
        async with asking(server) as asker:
            published = Published(asker.pipe, asker.key)
            await published.refresh()
            old = published.snapshot.tools["greet"].digest
            await put(Publisher(asker.pipe, asker.key, "default", "another"), served("two"))
            await published.refresh()
            new = published.snapshot.tools["greet"].digest
            calls = [asker.call("greet", digest=digest) for digest in (old, new) * 3]
            results = await asyncio.gather(*calls)

    assert old != new
    assert [result.value for result in results] == ["one", "two"] * 3
