"""The search index: queries, changes, and its file."""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tables import each_row
from toolkiln.model.search import SearchResult
from toolkiln.model.spec import Dialect, ToolSpec
from toolkiln.search import index as index_module
from toolkiln.search.bundled_embedder import BundledEmbedder
from toolkiln.search.documents import SearchDocument
from toolkiln.search.index import Rows, SearchIndex

from .bags import Bags, tool

TOOLS = [
    tool("get_weather", "The current temperature and rain at a place."),
    tool("convert_currency", "Convert an amount between currencies.", parameters="amount target"),
    tool("sendEmail", "Send a message to a mail address.", parameters="recipient subject"),
    tool("translate", "Translate a text into another language."),
    tool("search", "Look something up on the web."),
    tool("book_flight", "Reserve a seat on a plane.", parameters="departure arrival"),
    tool("resize_image", "Change the width and height of a picture."),
]


@pytest.fixture
def index() -> SearchIndex:
    return SearchIndex.build(TOOLS, Bags())


@pytest.fixture(scope="module")
def bundled() -> SearchIndex:
    return SearchIndex.build(TOOLS, BundledEmbedder())


def keys(answer: SearchResult) -> list[str]:
    return [hit.key for hit in answer.hits]


@each_row(
    "query, first",
    [
        ("how much rain is there today", "get_weather"),
        ("converting currencies", "convert_currency"),
        ("I want to message a recipient", "sendEmail"),
        ("flights", "book_flight"),
        ("images", "resize_image"),
    ],
)
def test_words_are_found_in_any_field_and_form(index: SearchIndex, query: str, first: str) -> None:
    assert keys(index.query(query, 3))[0] == first


@each_row(
    "query, first",
    [
        ("will it be sunny in Paris", "get_weather"),
        ("how many euros are fifty dollars", "convert_currency"),
        ("I need airline tickets", "book_flight"),
        ("make this photo smaller", "resize_image"),
    ],
)
def test_meaning_is_found_without_a_common_word(
    bundled: SearchIndex, query: str, first: str
) -> None:
    assert keys(bundled.query(query, 3))[0] == first


@each_row(
    "query",
    [
        "get_weather",
        "getWeather",
        " Get Weather ",
        "call get_weather to convert currency amounts between currencies",
        "please use `get_weather`, then translate a text into another language",
    ],
)
def test_what_a_query_names_comes_first(index: SearchIndex, query: str) -> None:
    answer = index.query(query, 3)

    assert answer.hits[0].key == "get_weather"
    assert answer.hits[0].parts["name"] >= 1
    assert answer.confidence == 1


@each_row(
    "query, first",
    [
        ("search", "search"),
        ("search flights with a departure and arrival", "book_flight"),
        ("`search` flights with a departure and arrival", "search"),
    ],
)
def test_a_name_that_is_an_everyday_word_must_be_the_whole_query_or_marked(
    index: SearchIndex, query: str, first: str
) -> None:
    assert keys(index.query(query, 1)) == [first]


@each_row("name", ["get_bmi", "getBMI", "get_BMI", "GetBmi"])
def test_of_names_that_differ_in_spelling_the_one_written_comes_first(name: str) -> None:
    index = SearchIndex.build([tool(n) for n in ("get_bmi", "getBMI", "get_BMI", "GetBmi")], Bags())

    assert keys(index.query(name, 1)) == [name]
    assert keys(index.query(f"Call {name}.", 1)) == [name]


def test_a_compound_is_a_name_only_where_a_document_spells_it_so() -> None:
    prompt = "the state of my car-rental project and its start"
    project = tool("project_state", "The state and the start of a project.")
    rented = SearchIndex.build([project, tool("car_rental", "Rent a car.")], Bags())
    spelt = rented.apply([tool("car-rental", "Rent a car.")], ["car_rental"])

    assert keys(rented.query(prompt, 1)) == ["project_state"]
    assert keys(rented.query("car-rental", 1)) == ["car_rental"]
    assert keys(rented.query(prompt.replace("car-rental", "`car-rental`"), 1)) == ["car_rental"]
    assert keys(spelt.query(prompt, 1)) == ["car-rental"]


@each_row("query", ["the time zone of Rome", "the timezone of Rome"])
def test_words_that_follow_each_other_in_a_name_count_together(query: str) -> None:
    index = SearchIndex.build([tool("get_zone_time"), tool("show_time_zone")], Bags())

    assert keys(index.query(query, 1)) == ["show_time_zone"]


def test_a_tool_that_takes_what_the_query_gives_comes_before_its_like() -> None:
    bags = Bags()
    plain = tool("get_weather", "The weather.", parameters="units language")
    placed = tool("show_weather", "The weather.", parameters="city date")
    index = SearchIndex.build([plain, placed], bags)
    bags.broken = True  # so that words alone decide

    assert keys(index.query("weather", 1)) == ["get_weather"]
    assert keys(index.query("weather in Petaluma", 1)) == ["show_weather"]
    assert keys(index.query("weather tomorrow", 1)) == ["show_weather"]


def test_what_a_query_only_suggests_makes_it_no_less_certain(index: SearchIndex) -> None:
    plain, placed = (index.query(f"rain in {place}", 1) for place in ("rome", "Rome"))

    assert placed.confidence == plain.confidence > 0


def test_a_name_of_little_words_can_be_found() -> None:
    index = SearchIndex.build([*TOOLS, tool("do_it"), tool("next")], Bags())

    assert keys(index.query("do it", 1)) == ["do_it"]
    assert keys(index.query("show next", 1)) == ["next"]


def test_a_prompt_that_needs_several_tools_finds_all_of_them(index: SearchIndex) -> None:
    similar = [tool(f"rain_{n}", "The current temperature and rain at a place.") for n in range(20)]
    index = index.apply(similar, [])
    prompt = (
        "What are the current temperature and the rain at this place, the temperature of today? "
        "Then translate the text into German and finally send a message to my mail address."
    )

    answer = index.query(prompt, 5)

    assert {"translate", "sendEmail"} <= set(keys(answer))
    clauses = {hit.key: hit.clause for hit in answer.hits}
    assert clauses["translate"] == "Then translate the text into German"
    assert clauses["sendEmail"] == "finally send a message to my mail address."


def test_a_clause_that_has_been_answered_makes_room_for_the_next() -> None:
    rainy = [tool(f"rain_{n}", "Rain at the harbour tomorrow.") for n in range(9)]
    index = SearchIndex.build([*rainy, tool("mail", "Mails harbour reports.")], Bags())

    answer = index.query("How much rain is at the harbour tomorrow and mail harbour a letter", 9)

    assert "mail" in keys(answer)[:3]


def test_a_tool_without_a_description_is_found_by_its_name() -> None:
    described = tool("audit", "Audits a report on tides, storms and other news of the sea.")
    index = SearchIndex.build([tool("storm_tides"), described], Bags())

    assert keys(index.query("storm tides report", 1)) == ["storm_tides"]


def test_a_name_says_more_than_a_parameter() -> None:
    by_parameter = tool("alpha", "Does something.", arguments="the tides of a harbour")
    by_name = tool("tides", "Does something.")

    assert keys(SearchIndex.build([by_parameter, by_name], Bags()).query("tides", 2))[0] == "tides"


@each_row(
    "query, count, found",
    [("overseas", 2, []), ("climate", 2, ["beta"]), ("weather", 2, []), ("weather", 3, ["beta"])],
)
def test_past_prompts_teach_their_words_and_from_three_on_their_meaning(
    query: str, count: int, found: list[str]
) -> None:
    usages = ["forecast abroad", "local climate", "forecast overseas"][:count]

    index = SearchIndex.build([tool("alpha", "Tides."), tool("beta", "Sums.", *usages)], Bags())

    assert keys(index.query(query, 2)) == found


def test_filters_apply_before_the_cut() -> None:
    many = [tool(f"weather_{number:03}", "weather " * 5) for number in range(500)]
    index = SearchIndex.build(
        [*many, tool("last", "Something about weather and much else.")], Bags()
    )

    answer = index.query("weather", 3, lambda key: key in {"last", "weather_499"})

    assert keys(answer) == ["weather_499", "last"]


def test_a_filter_applies_to_literal_names_too(index: SearchIndex) -> None:
    found = keys(index.query("get_weather", 7, lambda key: key != "get_weather"))

    assert "get_weather" not in found
    assert index.query("get_weather", 5, lambda _: False).hits == ()


def test_a_filter_is_asked_about_the_likely_ones_only() -> None:
    many = [tool(f"t{n}", "weather " * (n % 40) + "rain " * (n // 40)) for n in range(2_000)]
    index = SearchIndex.build(many, Bags())
    asked: list[str] = []

    def allow(key: str) -> bool:
        asked.append(key)
        return True

    index.query("weather", 5, allow)

    assert len(asked) == len(set(asked)) < 500


def test_equal_documents_come_in_the_order_of_their_keys() -> None:
    names = [f"tool_{letter}" for letter in "dbeac"]
    index = SearchIndex.build(
        [SearchDocument(name, {"description": "weather"}) for name in names], Bags()
    )

    assert keys(index.query("weather", 5)) == sorted(names)


def test_no_limit_and_no_documents_give_no_hits(index: SearchIndex) -> None:
    assert index.query("weather", 0) == index.query("weather", -1) == SearchResult()
    assert SearchIndex.build([], Bags()).query("weather", 5) == SearchResult()


def test_more_hits_than_documents_cannot_be_had(index: SearchIndex) -> None:
    found = keys(index.query("a tool to convert, send, translate or look up text", 1_000))

    assert len(found) == len(set(found)) <= len(TOOLS)


@each_row("query", ["", "   ", "what is it for", "\x00\x1b[31m", "?!.,;", "\ud800"])
def test_a_query_without_content_is_answered(bundled: SearchIndex, query: str) -> None:
    answer = bundled.query(query, 3)

    assert len(answer.hits) <= 3
    assert 0 <= answer.confidence <= 1


@each_row("filler", ["x", "A", "a, b and ", "天气", "a_b.", " ", "\n", "\x00"])
def test_a_query_of_a_hundred_kilobytes_is_answered(bundled: SearchIndex, filler: str) -> None:
    padding = filler * (100_000 // len(filler))

    answer = bundled.query(f"{padding} convert currency amount", 3)

    assert "convert_currency" in keys(answer)


@each_row(
    "description, query",
    [
        ("查询城市的天气预报", "明天的天气"),
        ("Прогноз погоды в городе", "прогноз на завтра"),
        ("توقعات الطقس في المدينة", "الطقس غدا"),
        ("शहर का मौसम", "मौसम"),
        ("天気予報を調べる", "明日の天気予報"),
        ("도시의 날씨", "오늘 날씨"),
        ("Météo de la ville", "meteo"),
    ],
)
def test_other_scripts_match(description: str, query: str) -> None:
    index = SearchIndex.build([*TOOLS, tool("local", description)], Bags())

    hit = index.query(query, 1).hits[0]

    assert hit.key == "local"
    assert hit.parts["lexical"] > 0


def test_a_hit_says_why(index: SearchIndex) -> None:
    hit = index.query("current rain forecasts", 1).hits[0]

    assert hit.key == "get_weather"
    assert hit.words == ("current", "rain")
    assert hit.parts.keys() == {"lexical", "semantic"}
    assert hit.score == pytest.approx(sum(hit.parts.values()), abs=1e-5)


def test_scores_fall_from_hit_to_hit(bundled: SearchIndex) -> None:
    prompt = "Convert my dollars into euros, send them by mail and book a flight to Rome for me."

    scores = [hit.score for hit in bundled.query(prompt, 7).hits]

    assert scores == sorted(scores, reverse=True)
    assert 0 < scores[0] <= 1


def test_confidence_is_higher_where_something_fits(bundled: SearchIndex) -> None:
    fitting = bundled.query("convert an amount between two currencies", 3).confidence
    unfitting = bundled.query("feed the neighbour's hamster", 3).confidence

    assert 0 <= unfitting < 0.6 < fitting <= 1


def test_without_embeddings_words_rank_and_the_answer_says_so() -> None:
    embedder = Bags()
    index = SearchIndex.build(TOOLS, embedder)
    embedder.broken = True

    answer = index.query("current rain", 3)

    assert keys(answer)[0] == "get_weather"
    assert answer.note == "the embeddings endpoint does not answer; ranked by words only"
    assert "semantic" not in answer.hits[0].parts


def test_a_document_without_a_vector_is_found_and_counts_as_changed() -> None:
    embedder = Bags()
    index = SearchIndex.build(TOOLS, embedder)
    embedder.broken = True
    index = index.apply([tool("tides", "When the sea is high.")], [])
    embedder.broken = False

    answer = index.query("high sea", 1)

    assert keys(answer) == ["tides"]
    assert answer.note is not None
    assert index.fingerprints["tides"] == ""
    mended = index.apply([tool("tides", "When the sea is high.")], [])
    assert mended.query("high sea", 1).note is None
    assert all(mended.fingerprints.values())


def test_tools_are_documents_and_the_bundled_vectors_the_default() -> None:
    fixed: dict[str, Any] = {
        "dialect": Dialect.FUNCTION,
        "digest": "0" * 64,
        "path": "x.py",
        "line": 1,
    }
    tools = [
        ToolSpec(name=name, description=text, parameters={}, entry=name, display_name=name, **fixed)
        for name, text in {"fly": "Book a flight.", "sleep": "Find a hotel."}.items()
    ]

    answer = SearchIndex.build(tools).query("a place to stay the night", 2)

    assert [hit.key for hit in answer] == ["sleep", "fly"]
    assert len(answer) == 2


RAIN = [tool(f"tool_{n}", f"weather rain number{n}", "a", "b", "c") for n in range(30)]
RAIN_QUERIES = ["weather", "tool_7", "rain and much more weather, then number3 and number4 please"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "index.npz"
    SearchIndex.build(RAIN, Bags()).save(path)
    return path


def test_a_loaded_index_answers_like_the_saved_one_and_embeds_nothing(file: Path) -> None:
    embedder = Bags()
    loaded = SearchIndex.load(file, embedder)
    embedded = list(embedder.texts)

    built = SearchIndex.build(RAIN, Bags())
    assert embedded == []
    assert len(loaded) == len(RAIN)
    assert loaded.fingerprints == built.fingerprints
    for text in RAIN_QUERIES:
        assert loaded.query(text, 9) == built.query(text, 9)


def test_a_loaded_index_can_be_changed_and_saved_again(file: Path) -> None:
    changed = SearchIndex.load(file, Bags()).apply([tool("fresh", "mail")], ["tool_1"])
    changed.save(file)

    loaded = SearchIndex.load(file, Bags())

    assert loaded.fingerprints == changed.fingerprints
    assert loaded.query("mail", 1).hits[0].key == "fresh"
    assert "tool_1" not in {hit.key for hit in loaded.query("weather", 99).hits}


def test_words_that_no_document_has_are_not_saved(tmp_path: Path) -> None:
    SearchIndex.build([tool("one", "rain")], Bags()).save(tmp_path / "small")
    changed = SearchIndex.build([*RAIN, tool("one", "rain")], Bags())

    changed.apply([], [document.key for document in RAIN]).save(tmp_path / "changed")

    assert (tmp_path / "changed").stat().st_size == (tmp_path / "small").stat().st_size


def test_an_empty_index_can_be_saved_and_no_file_is_one(tmp_path: Path) -> None:
    SearchIndex(Bags()).save(tmp_path / "empty")

    for file in (tmp_path / "empty", tmp_path / "none", tmp_path):
        assert len(SearchIndex.load(file, Bags())) == 0


def test_odd_keys_survive(tmp_path: Path) -> None:
    names = ["a\nb", "\ud800", "名前", "a" * 5_000, ""]
    SearchIndex.build([tool(name, "rain") for name in names], Bags()).save(tmp_path / "odd")

    assert SearchIndex.load(tmp_path / "odd", Bags()).fingerprints.keys() == set(names)


def test_a_file_of_another_embedder_or_of_other_code_is_not_used(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Bags()
    other.name = "others"
    of_others = SearchIndex.load(file, other)
    monkeypatch.setattr(index_module, "_SOURCES", ("analysis.py",))

    assert len(of_others) == len(SearchIndex.load(file, Bags())) == 0


def test_a_file_that_was_cut_off_is_an_empty_index(file: Path) -> None:
    whole = file.read_bytes()

    for share in (0.0, 0.001, 0.3, 0.7, 0.999):
        file.write_bytes(whole[: int(len(whole) * share)])
        assert len(SearchIndex.load(file, Bags())) == 0, share


def test_a_file_with_a_flipped_byte_is_whole_or_not_used(file: Path) -> None:
    whole = file.read_bytes()
    expected = SearchIndex.load(file, Bags()).query("weather", 9)

    for place in range(0, len(whole), 97):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        index = SearchIndex.load(file, Bags())
        assert not len(index) or index.query("weather", 9) == expected


@each_row(
    "change",
    [
        {"vectors": np.zeros((3, 64), np.float32)},
        {"vectors": np.zeros((30, 5), np.float32)},
        {"numbers": np.full(10_000, 10**6, np.int32)},
        {"lengths": np.full(30, 10**6)},
        {"texts": np.frombuffer(b"[[], [], []]", np.uint8)},
        {"texts": np.frombuffer(b"{}", np.uint8)},
        {"vectors": np.array(["x"] * 30)},
    ],
)
def test_arrays_that_do_not_fit_together_are_not_used(
    file: Path, tmp_path: Path, change: dict[str, np.ndarray]
) -> None:
    with np.load(file) as arrays, (tmp_path / "changed").open("wb") as stream:
        np.savez(stream, **{**arrays, **change})

    assert len(SearchIndex.load(tmp_path / "changed", Bags())) == 0


def test_saving_leaves_no_other_file_behind(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    before = file.read_bytes()
    monkeypatch.setattr(np, "savez", full)

    with pytest.raises(OSError, match="No space"):
        SearchIndex.build(RAIN[:1], Bags()).save(file)

    assert list(file.parent.iterdir()) == [file]
    assert file.read_bytes() == before


def test_importing_search_loads_no_numpy() -> None:
    code = (
        "import sys, toolkiln.operations.library, toolkiln.search.documents\n"
        "assert 'numpy' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


WORDS = ["weather", "forecast", "rain", "currency", "money", "mail", "send", "translate"]
QUERIES = ["weather", "send money", "t1", "rain in the forecast, and then send currency by mail"]


@st.composite
def documents(draw: st.DrawFn) -> SearchDocument:
    key = f"t{draw(st.integers(0, 9))}"
    text = " ".join(draw(st.lists(st.sampled_from(WORDS), max_size=6)))
    usages = draw(st.lists(st.sampled_from(WORDS), max_size=4))
    return SearchDocument(key, {"name": key, "description": text}, tuple(usages))


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


def test_a_change_embeds_and_reads_the_changed_documents_only() -> None:
    embedder = Bags()
    index = SearchIndex.build([tool(f"t{n}", "rain") for n in range(100)], embedder)
    embedder.texts.clear()

    index.apply([tool("t5", "mail")], ["t6"])

    assert embedder.texts == ["5 mail"]


def test_the_array_of_an_embedder_is_not_written_to() -> None:
    class Remembering(Bags):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            rows = super().embed(texts)
            rows.flags.writeable = False
            return rows

    index = SearchIndex.build([tool("a", "x", "rain", "weather", "snow")], Remembering())

    assert index.query("snow", 1).hits[0].key == "a"


def test_many_changes_do_not_make_the_matrix_grow() -> None:
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
