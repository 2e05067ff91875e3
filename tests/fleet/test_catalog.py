"""What the fleet's catalog promises to those who publish tools and those who present them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from toolkiln.catalog.folder import read_sources
from toolkiln.fleet import keys, published_tool
from toolkiln.fleet.address import read_address
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.message_auth import FleetKeys, seal_bytes
from toolkiln.fleet.published_tool import write_entry
from toolkiln.fleet.publisher import Announcements, Publisher, announce
from toolkiln.fleet.remote_catalog import CatalogReader, fetch
from toolkiln.fleet.supervisor import open_pipe
from toolkiln.model.call import Grant
from toolkiln.model.catalog import Admission, FileVersion, ServedVersion, Snapshot, Tools

from .servers import Server

KEY = FleetKeys(b"k" * 32)
OPEN: Mapping[str, Any] = {"policy": "allow", "rules": [], "privileges": {}, "rates": {}}


def served_version(file: str, sources: Mapping[str, bytes]) -> ServedVersion:
    """These sources, as a catalog serves them."""
    reading = read_sources(sources, Path(f"/srv/tools/{file}"))
    admission = Admission(
        sha256=reading.digest, version=1, admitted_by="ann", admitted_at="", since=""
    )
    return ServedVersion(file, FileVersion(reading, sources), admission)


def served(name: str, text: str = "Say hello.", **helpers: bytes) -> ServedVersion:
    """A file with one tool, as a catalog serves it."""
    imports = "".join(f"from {helper} import greeting\n" for helper in helpers)
    source = f'{imports}def {name}(to: str) -> str:\n    """{text}"""\n    return to\n'
    sources = {f"{one}.py": data for one, data in helpers.items()}
    return served_version(f"{name}.py", {f"{name}.py": source.encode(), **sources})


def snapshot(*files: ServedVersion) -> Snapshot:
    by_name = {name: one for one in files for name in one.read.names}
    return Snapshot(1, Tools(by_name), by_name)


async def put(publisher: Publisher, *files: ServedVersion, **changed: Any) -> int:
    """Publishes these files, by default with no grants."""
    made = snapshot(*files)
    grants = {name: Grant() for name in made.tools} | changed.get("grants", {})
    return await publisher.publish(made, grants, changed.get("permissions", OPEN))


@pytest.fixture
def ann(pipe: RedisPipe) -> Publisher:
    return Publisher(pipe, KEY, "default", "ann:/srv/tools")


@pytest.fixture
def bob(pipe: RedisPipe) -> Publisher:
    return Publisher(pipe, KEY, "default", "bob:/srv/tools")


@pytest.fixture
def published(pipe: RedisPipe) -> CatalogReader:
    return CatalogReader(pipe, KEY)


async def names(published: CatalogReader) -> set[str]:
    await published.refresh()
    return set(published.snapshot.tools)


async def test_data_files_travel_with_the_version_byte_for_byte(
    ann: Publisher, pipe: RedisPipe, behind: Any
) -> None:
    source = b"from toolkiln import tool\n@tool(files=['data/*'])\ndef rates(): ...\n"
    large = bytes(range(256)) * 30_000
    sources = {"rates.py": source, "data/a.bin": b"\x00\xff\r\n", "data/b.bin": large}
    file = served_version("rates.py", sources)
    digest = file.reading.digest
    await put(ann, file)

    found = await fetch(pipe, KEY, "rates", digest)
    behind.set(keys.source(published_tool.digest_of(b"\x00\xff\r\n")), b"other")
    damaged = await fetch(pipe, KEY, "rates", digest)

    assert file.reading.data_files == ("data/a.bin", "data/b.bin")
    assert found is not None
    assert found.sources == sources
    assert damaged is None


async def test_what_is_published_is_presented_as_it_is(
    ann: Publisher, published: CatalogReader
) -> None:
    hello, grant = served("hello"), Grant(network=("api.example.com",))
    await put(ann, hello, grants={"hello": grant}, permissions={**OPEN, "policy": "deny"})
    changed = await published.refresh()

    found = published.snapshot
    assert changed
    assert found.tools["hello"] == hello.read.tool("hello").model_copy(update={"path": "hello.py"})
    assert found.served["hello"].grants == {"hello": grant}
    assert found.pool("hello") == "default"
    assert found.permissions == {**OPEN, "policy": "deny"}
    assert found.tools.get("other") is None


async def test_nothing_is_read_again_that_has_not_changed(
    ann: Publisher, published: CatalogReader, behind: Any
) -> None:
    await put(ann, served("hello"), served("bye"))
    await published.refresh()
    kept = published.snapshot.tools["hello"]
    await put(ann, served("hello"), served("bye", "See you."))
    behind.config_resetstat()
    again = [await published.refresh() for _ in range(2)]

    assert again == [True, False]
    assert published.snapshot.tools["hello"] is kept
    assert published.snapshot.tools["bye"].description == "See you."
    assert behind.info("commandstats")["cmdstat_mget"]["calls"] == 1


async def test_a_publication_sends_what_has_changed_and_nothing_else(
    ann: Publisher, behind: Any
) -> None:
    many = [served(f"tool_{number}") for number in range(50)]
    first = await put(ann, *many)
    behind.config_resetstat()
    second = await put(ann, *many[:-1], served("tool_49", "Say bye."))
    sent = behind.info("commandstats")["cmdstat_set"]["calls"]
    third = await put(ann, *many[:-1], served("tool_49", "Say bye."))

    assert (first, second, third) == (1, 2, 2)
    assert sent == 3, "an entry, a file, and where the version is"


async def test_a_look_at_everything_finds_nothing_where_nothing_is_left(
    ann: Publisher, published: CatalogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.fleet.remote_catalog._FULL_REFRESH_SECONDS", 0.0)
    await put(ann, served("hello"))
    before = await names(published)
    await ann.withdraw()

    assert before == {"hello"}
    assert await names(published) == set()


async def test_publishers_at_once_do_not_undo_each_other(
    ann: Publisher, bob: Publisher, published: CatalogReader
) -> None:
    ours, theirs = served("ours"), served("theirs")
    await asyncio.gather(put(ann, ours), put(bob, theirs))
    both = await names(published)
    await asyncio.gather(put(ann, ours, served("more")), put(bob))

    assert both == {"ours", "theirs"}
    assert await names(published) == {"ours", "more"}


async def test_of_two_versions_the_last_published_counts_until_it_is_dropped(
    ann: Publisher, bob: Publisher, published: CatalogReader
) -> None:
    old, new = served("hello", "Old."), served("hello", "New.")
    said = []
    for publisher, files in ((ann, [old]), (bob, [new]), (ann, [old]), (bob, [])):
        await put(publisher, *files)
        await published.refresh()
        said.append(published.snapshot.tools["hello"].description)

    assert said == ["Old.", "New.", "New.", "Old."]


async def test_the_pool_that_has_a_name_keeps_it(
    ann: Publisher, pipe: RedisPipe, published: CatalogReader
) -> None:
    other = Publisher(pipe, KEY, "gpu", "ann:/srv/tools")
    pools = []
    for publisher, files in ((ann, [served("hello")]), (other, [served("hello")]), (ann, [])):
        await put(publisher, *files)
        await published.refresh()
        pools.append(published.snapshot.pool("hello"))

    assert pools == ["default", "default", "gpu"]


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_publishers_do_callers_see_what_they_have(
    pipe: RedisPipe, seed: int
) -> None:
    chance = Random(seed)
    versions = {(n, text): served(n, text) for n in ("a", "b", "c") for text in ("Old.", "New.")}
    having: dict[tuple[str, str], dict[str, str]] = {
        (pool, who): {} for pool in ("one", "two") for who in ("ann", "bob")
    }
    publishers = {key: Publisher(pipe, KEY, *key) for key in having}
    published = CatalogReader(pipe, KEY)
    for _ in range(40):
        key = chance.choice(list(having))
        having[key] = {n: chance.choice(["Old.", "New."]) for n in "abc" if chance.random() < 0.6}
        if chance.random() < 0.2:
            publishers[key] = Publisher(pipe, KEY, *key)
        await put(publishers[key], *(versions[one] for one in having[key].items()))
        await published.refresh()

        listed = published.snapshot
        assert set(listed.tools) == {name for tools in having.values() for name in tools}
        for name, spec in listed.tools.items():
            pool = listed.pool(name)
            assert spec.description in {
                tools.get(name) for (of, _), tools in having.items() if of == pool
            }
    fresh = CatalogReader(pipe, KEY)
    await fresh.refresh()
    assert fresh.snapshot.tools == published.snapshot.tools


async def test_a_publisher_that_restarts_with_fewer_tools_drops_the_others(
    ann: Publisher, pipe: RedisPipe, published: CatalogReader, behind: Any
) -> None:
    await put(ann, served("hello"), served("bye"))
    before = await names(published)
    restarted = Publisher(pipe, KEY, "default", "ann:/srv/tools")
    behind.config_resetstat()
    await put(restarted, served("hello"))
    sent = behind.info("commandstats")["cmdstat_set"]["calls"]

    assert before == {"hello", "bye"}
    assert await names(published) == {"hello"}
    assert sent == 1, "only where the version is"


async def test_two_processes_of_one_publisher_agree(
    ann: Publisher, pipe: RedisPipe, published: CatalogReader
) -> None:
    twin = Publisher(pipe, KEY, "default", "ann:/srv/tools")
    await put(ann, served("hello"))
    await put(twin, served("hello"), served("more"))
    await put(ann, served("hello"), served("more"), served("last"))

    assert await names(published) == {"hello", "more", "last"}


async def test_many_processes_of_one_publisher_start_at_once(
    pipe: RedisPipe, published: CatalogReader
) -> None:
    many = [Publisher(pipe, KEY, "default", "ann:/srv/tools") for _ in range(12)]
    files = [served("hello"), served("bye")]
    numbers = await asyncio.gather(*(put(one, *files) for one in many))
    again = await asyncio.gather(*(one.refresh() for one in many))

    assert {*numbers, *again} == {1}
    assert await names(published) == {"hello", "bye"}


def silence(behind: Any, minutes: int) -> None:
    """Let ann have been silent for so long."""
    publisher = keys.publisher("default", "ann:/srv/tools")
    behind.zincrby(keys.PUBLISHERS, -minutes * 60_000, publisher)


async def test_a_publisher_without_a_heartbeat_lapses_and_comes_back(
    ann: Publisher, bob: Publisher, published: CatalogReader, behind: Any
) -> None:
    await put(ann, served("hello"))
    await put(bob, served("bye"))
    silence(behind, minutes=6)
    await bob.refresh()
    without = await names(published)
    await ann.refresh()

    assert without == {"bye"}
    assert await names(published) == {"hello", "bye"}


async def test_a_pool_without_workers_keeps_its_tools_for_a_day(
    ann: Publisher, pipe: RedisPipe, published: CatalogReader, behind: Any
) -> None:
    other = Publisher(pipe, KEY, "gpu", "bob")
    await put(ann, served("hello"))
    await put(other, served("bye"))
    left = []
    for minutes in (60, 1440):
        silence(behind, minutes)
        await other.refresh()
        left.append(await names(published))

    assert left == [{"hello", "bye"}, {"bye"}]


async def test_what_redis_has_lost_is_published_again_and_kept_meanwhile(
    ann: Publisher, published: CatalogReader, behind: Any
) -> None:
    await put(ann, served("hello"))
    await published.refresh()
    behind.flushall()
    meanwhile = await names(published)
    await ann.refresh()
    await put(ann, served("hello", "Anew."))
    await published.refresh()

    assert meanwhile == {"hello"}
    assert published.snapshot.tools["hello"].description == "Anew."


async def test_a_catalog_that_went_back_is_read_as_a_whole(
    ann: Publisher, published: CatalogReader, behind: Any
) -> None:
    await put(ann, served("hello"))
    old = {key: behind.dump(key) for key in behind.scan_iter()}
    await put(ann, served("hello"), served("lost"))
    before = await names(published)
    behind.flushall()
    for key, value in old.items():
        behind.restore(key, 0, value)

    assert before == {"hello", "lost"}
    assert await names(published) == {"hello"}


async def test_many_names_that_came_and_went_are_forgotten_and_readers_notice(
    ann: Publisher, published: CatalogReader, behind: Any
) -> None:
    await put(ann, served("hello"), served("bye"))
    await published.refresh()
    await put(ann, served("hello"))
    number = int(behind.hget(keys.CATALOG, "number") or 0)
    behind.zadd(keys.CATALOG_CHANGES, {f"old_{i}": number for i in range(10_001)})
    await put(ann, served("hello"), served("more"))

    assert behind.zcard(keys.CATALOG_CHANGES) < 6_000
    assert await names(published) == {"hello", "more"}


async def test_a_forged_or_damaged_entry_is_left_out_with_a_warning(
    ann: Publisher, pipe: RedisPipe, behind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hello, other = served("hello"), served("other")
    await put(ann, hello, served("bye"))
    [entry] = [key for key in behind.keys("toolkiln:entry:*") if b"hello" in behind.get(key)]
    data = behind.get(entry)

    for damaged in (
        data[:-1] + bytes([data[-1] ^ 1]),
        b"",
        seal_bytes(FleetKeys(b"another key"), "entry", data[32:]),
        seal_bytes(KEY, "permissions", data[32:]),
        seal_bytes(KEY, "entry", b"\xff\xff"),
        seal_bytes(KEY, "entry", data[32:].replace(b"hello", b"jello")),
        write_entry(KEY, "default", other, other.read.tool("other"), Grant()),
    ):
        caplog.clear()
        behind.set(entry, damaged)
        published = CatalogReader(pipe, KEY)

        assert await names(published) == {"bye"}
        assert "hello" in caplog.text
        assert await fetch(pipe, KEY, "hello", hello.read.digest) is None


async def test_an_entry_that_is_gone_is_left_out_until_it_is_back(
    ann: Publisher,
    published: CatalogReader,
    behind: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await put(ann, served("hello"))
    behind.delete(*behind.keys("toolkiln:entry:*"))
    without = [await names(published) for _ in range(3)]
    monkeypatch.setattr("toolkiln.fleet.publisher._DOCUMENT_REFRESH_SECONDS", 0.0)
    await ann.refresh()

    assert without == [set(), set(), set()]
    assert await names(published) == {"hello"}
    assert caplog.text.count("1 published tools (hello): missing from Redis") == 1


async def test_forged_permissions_leave_those_that_were_read_before(
    ann: Publisher, published: CatalogReader, behind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await put(ann, served("hello"), permissions={"policy": "deny"})
    await published.refresh()
    behind.hset(keys.CATALOG, "permissions", b"allow everything")
    number = behind.hincrby(keys.CATALOG, "number", 1)
    behind.hset(keys.CATALOG, "permitted", str(number))
    await published.refresh()

    assert published.snapshot.permissions == {"policy": "deny"}
    assert "published permissions: not sealed" in caplog.text


async def test_what_a_later_toolkiln_says_of_a_tool_is_left_out(
    ann: Publisher, published: CatalogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def later(key: FleetKeys, pool: str, file: ServedVersion, spec: Any, grant: Grant) -> bytes:
        """As a worker would write it that knows more fields."""
        fields = {"colour": "red", **spec.model_dump(exclude_defaults=True)}
        fields["documentation"] = {"text": "Long.", "moods": ["calm"]}
        fields["toolkit"] = {
            "name": "t", "display_name": "T", "description": "", "sections": [{"x": 1}]
        }  # fmt: skip
        dumping = spec.model_copy()
        object.__setattr__(dumping, "model_copy", lambda **_: dumping)
        object.__setattr__(dumping, "model_dump", lambda **_: fields)
        return write_entry(key, pool, file, dumping, grant)

    monkeypatch.setattr("toolkiln.fleet.published_tool.write_entry", later)
    await put(ann, served("hello"))
    await published.refresh()

    spec = published.snapshot.tools["hello"]
    assert spec.documentation.text == "Long."
    assert spec.toolkit
    assert spec.toolkit.name == "t"


async def test_a_version_is_fetched_with_its_sources_and_its_grant(
    ann: Publisher, pipe: RedisPipe
) -> None:
    grant = Grant(secrets=("TOKEN",))
    old = served("hello", "Old.", helper=b'greeting = "hi"\n')
    await put(ann, old, grants={"hello": grant})
    await put(ann, served("hello", "New."))
    found = await fetch(pipe, KEY, "hello", old.read.digest)

    assert found
    assert dict(found.sources) == dict(old.sources)
    assert next(iter(found.sources)) == "hello.py"
    assert found.reading.digest == old.read.digest
    assert found.read.tool("hello").description == "Old."
    assert found.grants == {"hello": grant}


async def test_no_version_is_run_whose_files_are_gone_or_damaged(
    ann: Publisher, pipe: RedisPipe, behind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    digest = served("hello").read.digest
    await put(ann, served("hello"))
    (source,) = behind.keys("toolkiln:source:*")
    behind.set(source, b'def hello(to: str) -> str:\n    """Steal."""\n    return ""\n')
    damaged = await fetch(pipe, KEY, "hello", digest)
    behind.delete(source)
    gone = await fetch(pipe, KEY, "hello", digest)

    assert (damaged, gone) == (None, None)
    assert "are damaged" in caplog.text
    assert await fetch(pipe, KEY, "hello", "0" * 64) is None
    assert await fetch(pipe, KEY, "bye", digest) is None


async def test_a_file_cannot_lead_out_of_its_folder(ann: Publisher, pipe: RedisPipe) -> None:
    hello = served("hello")
    away = {"hello.py": b"", "../../evil.py": b""}
    leading = ServedVersion(hello.file, FileVersion(hello.reading, away), hello.admission)
    await put(ann, leading)

    assert await fetch(pipe, KEY, "hello", hello.read.digest) is None


async def test_odd_text_in_a_tool_survives(ann: Publisher, published: CatalogReader) -> None:
    hello = served("hello")
    odd = hello.read.tool("hello").model_copy(
        update={"description": "\ud800\0😀", "parameters": {"x": 2**70}}
    )
    reading = hello.reading.model_copy(update={"tools": (odd,)})
    await put(
        ann, ServedVersion("h\udcff.py", FileVersion(reading, hello.sources), hello.admission)
    )
    await published.refresh()

    spec = published.snapshot.tools["hello"]
    assert (spec.description, spec.parameters, spec.path) == (
        "\ud800\0😀",
        {"x": 2**70},
        "h\udcff.py",
    )


@pytest.fixture
async def listening(server: Server) -> AsyncIterator[RedisPipe]:
    """A connection of its own, which blocks."""
    async with open_pipe(RedisPipe(read_address(server.url))) as opened:
        yield opened


async def test_a_subscribed_caller_is_notified_of_a_publication(
    ann: Publisher, pipe: RedisPipe, listening: RedisPipe
) -> None:
    heard: asyncio.Queue[set[str]] = asyncio.Queue()
    published = CatalogReader(pipe, KEY, lambda listing: heard.put_nowait(set(listing.tools)))
    following = asyncio.create_task(published.follow(listening))
    await put(ann, served("hello"))
    async with asyncio.timeout(10):
        first = await heard.get()
        await put(ann, served("hello"), served("bye"))
        second = await heard.get()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)

    assert first == {"hello"}
    assert second == {"hello", "bye"}


async def test_what_is_announced_reaches_those_who_wait(
    pipe: RedisPipe, listening: RedisPipe
) -> None:
    news = Announcements(listening)
    await announce(pipe, "catalog")
    await news.begin()
    waiting = asyncio.create_task(news.wait(10))
    await announce(pipe, "config")

    assert await waiting == {"config"}


async def test_everything_that_is_published_expires(ann: Publisher, behind: Any) -> None:
    await put(ann, served("hello"))

    assert [key for key in behind.scan_iter() if behind.ttl(key) < 0] == []
