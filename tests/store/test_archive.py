"""What every archive promises, over SQLite and PostgreSQL."""

import os
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tables import each_row
from toolkiln.errors import StoreError
from toolkiln.model.catalog import Arrival, Version, VersionContent
from toolkiln.model.source import Finding, Reading, Severity
from toolkiln.store.store import Store
from toolkiln.store.version_archive import VersionArchive

from .archivist import ADMITTED, content, spec
from .conftest import Opener, count_rows, damage

ROLLED_BACK = Arrival(action="rollback", by="ben", at="2026-01-03T00:00:00Z")
ODD = st.text(st.characters(codec=None), max_size=40)  # with NUL and lone surrogates
same_archive = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)

_examples = count()


@pytest.fixture
def archive(store: Store) -> VersionArchive:
    """An empty archive of each kind."""
    return store.archive


def numbers(found: list[Version]) -> list[tuple[str, int]]:
    return [(version.file, version.number) for version in found]


def test_a_stored_version_is_found_with_its_sources_and_reading(
    archive: VersionArchive, place: str, opened: Opener
) -> None:
    given = content(tools=("greet", "wave"))

    version = archive.add("c", given, ADMITTED)

    digest = given.reading.digest
    assert version == Version(
        file="greet.py",
        number=1,
        digest=digest,
        action="admit",
        by="anna",
        at="2026-01-02T03:04:05Z",
        tools=("greet", "wave"),
        note="looks fine",
    )
    assert archive.history("c", "greet.py") == [version]
    assert archive.sources(digest, "greet.py") == {"greet.py": b"one"}
    assert archive.reading(digest, "greet.py") == given.reading
    assert opened(place).archive.history("c", "greet.py") == [version]


def test_what_was_never_stored_is_not_found(archive: VersionArchive) -> None:
    archive.add("c", content(), ADMITTED)
    digest = content().reading.digest

    assert archive.sources(digest, "other.py") is None
    assert archive.sources("other", "greet.py") is None
    assert archive.reading(digest, "other.py") is None
    assert archive.history("c", "other.py") == []
    assert archive.history_of_tool("c", "other") == []


def test_numbers_count_for_each_catalog_and_file(archive: VersionArchive) -> None:
    archive.add("c", content("one"), ADMITTED)
    archive.add("c", content("two"), ADMITTED)
    archive.add("c", content("one", file="other.py"), ADMITTED)
    archive.add("d", content("two", tools=()), ADMITTED)
    archive.add("a", content(file="b/c"), ADMITTED)

    assert archive.history("a/b", "c") == archive.history('a", "b', "c") == []
    assert numbers(archive.history("c", "greet.py")) == [("greet.py", 2), ("greet.py", 1)]
    assert numbers(archive.history("c", "other.py")) == [("other.py", 1)]
    assert numbers(archive.history("d", "greet.py")) == [("greet.py", 1)]


def test_the_same_version_by_the_same_action_is_stored_once(
    archive: VersionArchive, place: str
) -> None:
    first = archive.add("c", content(), ADMITTED)
    later = ADMITTED.model_copy(update={"by": "ben", "at": "2027-01-01T00:00:00Z"})

    assert archive.add("c", content(), later) == first
    assert archive.history("c", "greet.py") == [first]
    assert count_rows(place, "toolkiln_contents") == 1


def test_a_rollback_is_a_version_that_shares_the_stored_content(
    archive: VersionArchive, place: str
) -> None:
    archive.add("c", content("one"), ADMITTED)
    archive.add("c", content("two"), ADMITTED)
    back = archive.add("c", content("one"), ROLLED_BACK)
    again = archive.add("c", content("one"), ADMITTED)

    assert (back.number, back.action, back.by) == (3, "rollback", "ben")
    assert (again.number, again.action) == (4, "admit")
    assert count_rows(place, "toolkiln_contents") == 2


def test_sources_keep_their_order_and_bytes(archive: VersionArchive) -> None:
    files = {"z.py": b"\xff\0\r\n", "a.py": bytes(range(256)), "pkg/m.py": b"", "\udc80": b"x"}
    files |= {"greet.py": os.urandom(1 << 20), "text.py": "é\n".encode() * 500_000}
    given = content().model_copy(update={"sources": files})

    archive.add("c", given, ADMITTED)

    kept = archive.sources(given.reading.digest, "greet.py")
    assert kept
    assert list(kept.items()) == list(files.items())


@given(data=st.data())
@same_archive
def test_any_text_is_read_back_unchanged(archive: VersionArchive, data: st.DataObject) -> None:
    file, catalog, tool, text, digest = (data.draw(ODD) for _ in range(5))
    catalog += str(next(_examples))  # each example meets an empty catalog
    finding = Finding(rule=text, severity=Severity.INFO, message=text, fix=text)
    schema = {text: [text, {"default": data.draw(st.none() | st.integers() | ODD)}]}
    tools = (spec(tool, digest, description=text, parameters=schema),)
    reading = Reading(path=file, digest=digest, tools=tools, findings=(finding,))
    source = data.draw(st.binary(max_size=100))
    arrival = Arrival(action="dev", by=text, at=text, note=text)

    kept = VersionContent(file=file, reading=reading, sources={file: source})
    version = archive.add(catalog, kept, arrival)

    assert version in archive.history(catalog, file)
    assert version in archive.history_of_tool(catalog, tool)
    assert archive.reading(digest, file) == reading
    assert (version.file, version.digest, version.tools) == (file, digest, (tool,))


def test_a_pair_of_surrogates_stays_a_pair(archive: VersionArchive) -> None:
    pair = "\ud83d\ude00"

    version = archive.add("c", content(tools=(pair,)), ADMITTED)

    reading = archive.reading(version.digest, "greet.py")
    assert reading
    assert reading.tools[0].name == pair
    assert archive.history_of_tool("c", pair) == [version]
    assert archive.history_of_tool("c", "\U0001f600") == []


def test_the_history_of_a_tool_spans_files_and_leaves_out_versions_without_it(
    archive: VersionArchive,
) -> None:
    archive.add("c", content("1", "a.py", ("greet", "wave")), ADMITTED)
    archive.add("c", content("2", "a.py", ("wave",)), ADMITTED)
    archive.add("c", content("3", "b.py", ("greet",)), ADMITTED)
    archive.add("c", content("4", "a.py", ("greet",)), ADMITTED)
    archive.add("d", content("5", "d.py", ("greet",)), ADMITTED)

    assert numbers(archive.history_of_tool("c", "greet")) == [("a.py", 3), ("b.py", 1), ("a.py", 1)]
    assert numbers(archive.history_of_tool("c", "wave")) == [("a.py", 2), ("a.py", 1)]


def test_a_newer_reading_replaces_the_old_one(archive: VersionArchive) -> None:
    given = content()
    archive.add("c", given, ADMITTED)
    better = given.reading.model_copy(update={"helpers": ("more",)})

    archive.add("c", given.model_copy(update={"reading": better}), ADMITTED)

    assert archive.reading(better.digest, "greet.py") == better


def test_many_files_are_stored_like_single_ones(archive: VersionArchive) -> None:
    first = archive.add("c", content("0", "f0.py", ("t0",)), ADMITTED)
    files = [content(str(n), f"f{n}.py", (f"t{n}",)) for n in range(1200)]

    kept = archive.add_many("c", files, ADMITTED)

    assert kept[0] == first
    assert numbers(kept) == [(f"f{n}.py", 1) for n in range(1200)]
    assert archive.history("c", "f1199.py") == archive.history_of_tool("c", "t1199") == [kept[-1]]
    assert archive.sources(kept[700].digest, "f700.py") == {"f700.py": b"700"}
    assert archive.add_many("c", files, ADMITTED) == kept, "nothing changed"
    assert archive.add_many("c", [], ADMITTED) == []


def test_a_file_listed_twice_gets_two_numbers(archive: VersionArchive) -> None:
    files = [content("one"), content("two"), content("two"), content("one")]

    kept = archive.add_many("c", files, ADMITTED)

    assert [version.number for version in kept] == [1, 2, 2, 3]
    assert archive.history("c", "greet.py") == [kept[3], kept[1], kept[0]]


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


@each_row("schema", [{"default": object()}, nested(100_000)])
def test_no_file_of_a_batch_is_stored_if_one_is_invalid(
    archive: VersionArchive, place: str, schema: dict[str, Any]
) -> None:
    good = content(file="good.py")
    tool = good.reading.tools[0].model_copy(update={"parameters": schema})
    reading = good.reading.model_copy(update={"tools": (tool,)})
    bad = content().model_copy(update={"reading": reading})

    with pytest.raises(StoreError, match=r"good\.py.*cannot be stored"):
        archive.add_many("c", [good, bad], ADMITTED)
    assert count_rows(place, "toolkiln_versions") == count_rows(place, "toolkiln_contents") == 0


def test_no_file_is_stored_if_the_caller_fails_while_listing_them(
    archive: VersionArchive, place: str
) -> None:
    def files() -> Iterator[VersionContent]:
        yield content()
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        archive.add_many("c", files(), ADMITTED)
    assert count_rows(place, "toolkiln_versions") == count_rows(place, "toolkiln_contents") == 0


def test_damaged_sources_are_reported_and_repaired_by_storing_them_again(
    archive: VersionArchive, place: str
) -> None:
    version = archive.add("c", content(), ADMITTED)
    damage(place, "contents", "sources", b"rubbish")
    damage(place, "contents", "reading", b"rubbish")

    assert archive.reading(version.digest, "greet.py") is None
    with pytest.raises(StoreError, match="cannot be read") as caught:
        archive.sources(version.digest, "greet.py")
    assert caught.value.hint
    archive.add("c", content(), ADMITTED)
    assert archive.sources(version.digest, "greet.py") == {"greet.py": b"one"}
    assert archive.reading(version.digest, "greet.py") == content().reading


def test_usages_are_given_the_newest_first_and_once(archive: VersionArchive) -> None:
    for minute, prompt in enumerate(["hello", "hi", "hello"]):
        archive.add_usage("c", "greet", prompt, f"2026-01-01T00:0{minute}:00Z")
    for prompt in "abc":  # of one moment, the last to arrive comes first
        archive.add_usage("c", "wave", prompt, "2026-01-01T00:00:00Z")
    archive.add_usage("d", "greet", "good day", "2026-01-01T00:00:00Z")

    assert archive.usages("c") == {"greet": ("hello", "hi"), "wave": ("c", "b", "a")}
    assert archive.usages("d") == {"greet": ("good day",)}
    assert archive.usages("e") == {}


def test_the_newest_usages_of_each_tool_are_kept(archive: VersionArchive, place: str) -> None:
    archive.add_usage("c", "wave", "bye", "2025-01-01T00:00:00Z")
    for number in range(60):
        archive.add_usage("c", "greet", str(number), f"2026-01-01T00:00:{number:02}Z")
    archive.add_usage("c", "greet", "too old", "2025-01-01T00:00:00Z")

    newest = tuple(str(number) for number in range(59, 9, -1))
    assert archive.usages("c") == {"greet": newest, "wave": ("bye",)}
    assert count_rows(place, "toolkiln_usages") == 51


def test_usages_are_forgotten_by_tool_or_all_together(archive: VersionArchive) -> None:
    for catalog, tool in [("c", "greet"), ("c", "wave"), ("d", "greet")]:
        archive.add_usage(catalog, tool, "hello", "2026-01-01T00:00:00Z")

    archive.clear_usages("c", "greet")
    assert archive.usages("c") == {"wave": ("hello",)}
    archive.clear_usages("c")
    assert archive.usages("c") == {}
    assert archive.usages("d") == {"greet": ("hello",)}


@given(catalog=ODD, tool=ODD, prompt=ODD)
@same_archive
def test_any_prompt_is_read_back_unchanged(
    archive: VersionArchive, catalog: str, tool: str, prompt: str
) -> None:
    archive.add_usage(catalog, tool, prompt, "2026-01-01T00:00:00Z")

    assert archive.usages(catalog)[tool][0] == prompt
    archive.clear_usages(catalog, tool)
    assert tool not in archive.usages(catalog)
