"""An index that was changed answers as one that was built: at once, and for old readers."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tables import each_row
from toolkiln.search.documents import SearchDocument
from toolkiln.search.index import Rows, SearchIndex

from .bags import Bags, tool

WORDS = ["weather", "forecast", "rain", "currency", "money", "mail", "send", "translate"]
QUERIES = ["weather", "send money", "t1", "rain in the forecast, and then send currency by mail"]


@st.composite
def documents(draw: st.DrawFn) -> SearchDocument:
    key = f"t{draw(st.integers(0, 9))}"
    said = " ".join(draw(st.lists(st.sampled_from(WORDS), max_size=6)))
    usages = draw(st.lists(st.sampled_from(WORDS), max_size=4))
    return SearchDocument(key, {"name": key, "description": said}, tuple(usages))


steps = st.tuples(
    st.lists(documents(), max_size=4), st.lists(st.integers(0, 9).map("t{}".format), max_size=4)
)


@given(st.lists(steps, max_size=8))
def test_any_sequence_of_changes_equals_a_fresh_build(
    changes: list[tuple[list[SearchDocument], list[str]]],
) -> None:
    embedder = Bags()
    index = SearchIndex(embedder)
    expected: dict[str, SearchDocument] = {}
    for added, removed in changes:
        index = index.apply(added, removed)
        for key in removed:
            expected.pop(key, None)
        expected.update((document.key, document) for document in added)

    fresh = SearchIndex.build(expected.values(), embedder)

    assert len(index) == len(fresh)
    assert index.fingerprints == fresh.fingerprints
    for query in QUERIES:
        assert index.query(query, 5) == fresh.query(query, 5)


@each_row("count", [1, 300])
def test_an_index_stays_as_it_was_when_another_is_made_from_it(count: int) -> None:
    old = SearchIndex.build([tool("a", "rain"), tool("b", "mail")], Bags())
    before = [old.query(query, 5) for query in QUERIES]

    one = old.apply([tool(f"c{n}", "rain weather") for n in range(count)], ["a"])
    other = old.apply([tool(f"d{n}", "mail money") for n in range(count)], ["b"])

    assert [old.query(query, 5) for query in QUERIES] == before
    assert {hit.key[0] for hit in one.query("rain mail", 1_000).hits} == {"b", "c"}
    assert {hit.key[0] for hit in other.query("rain mail", 1_000).hits} == {"a", "d"}


def test_removing_what_is_not_there_changes_nothing() -> None:
    index = SearchIndex.build([tool("a", "rain")], Bags())

    assert index.apply([], ["b"]).fingerprints == index.fingerprints


def test_removing_everything_leaves_an_empty_index() -> None:
    index = SearchIndex.build([tool("a", "rain")], Bags()).apply([], ["a"])

    assert len(index) == 0
    assert index.query("rain", 5).hits == ()


def test_a_change_embeds_and_reads_the_changed_documents_only() -> None:
    embedder = Bags()
    index = SearchIndex.build([tool(f"t{n}", "rain") for n in range(100)], embedder)
    embedder.texts.clear()

    index.apply([tool("t5", "mail")], ["t6"])

    assert embedder.texts == ["5 mail"]


def test_what_an_embedder_hands_out_is_not_written_to() -> None:
    class Remembering(Bags):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            rows = super().embed(texts)
            rows.flags.writeable = False
            return rows

    index = SearchIndex.build([tool("a", "x", "rain", "weather", "snow")], Remembering())

    assert index.query("snow", 1).hits[0].key == "a"


def test_endless_changes_do_not_make_the_matrix_grow() -> None:
    index = SearchIndex.build([tool(f"t{n}", "rain") for n in range(100)], Bags())

    for round_ in range(1_000):
        index = index.apply([tool(f"t{round_ % 100}", f"rain {round_}")], [])

    assert len(index._rows.vectors) < 300
    assert len(index.query("rain", 1_000).hits) == 100


def test_rows_in_use_are_never_written_again() -> None:
    rows, first = Rows.empty(2).with_vectors(np.ones((3, 2), np.float32), np.zeros(0, np.bool_))
    living = np.ones(3, np.bool_)

    taken = [rows.with_vectors(np.zeros((1, 2), np.float32), living) for _ in range(20)]

    places = [(id(matrix), slot) for matrix, slots in taken for slot in slots]
    assert len(places) == len(set(places))
    assert (rows.vectors[first] == 1).all()


def test_readers_of_every_generation_are_right_while_others_are_made() -> None:
    index = SearchIndex.build([tool(f"old{n}", "rain weather") for n in range(50)], Bags())
    expected = index.query("rain and weather", 50)
    ready, done = Event(), Event()

    def read() -> int:
        count = 0
        while not done.is_set() or not count:
            assert index.query("rain and weather", 50) == expected
            ready.set()
            count += 1
        return count

    def write(letter: str) -> SearchIndex:
        mine = index
        for number in range(100):
            mine = mine.apply([tool(f"{letter}{number}", "rain mail")], [f"old{number}"])
        return mine

    with ThreadPoolExecutor(5) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        ready.wait(30)
        writers = [pool.submit(write, letter) for letter in "xy"]
        made = [writer.result(60) for writer in writers]
        done.set()
        assert all(reader.result(60) for reader in readers)

    for letter, one in zip("xy", made, strict=True):
        assert {hit.key for hit in one.query("rain", 1_000).hits} == {
            f"{letter}{number}" for number in range(100)
        }
