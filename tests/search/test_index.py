"""What is found, in which order, and what an answer says of it."""

import pytest

from tables import each_row
from toolkiln.model.search import SearchResult
from toolkiln.model.spec import Dialect, ToolSpec
from toolkiln.search.bundled_embedder import BundledEmbedder
from toolkiln.search.documents import SearchDocument
from toolkiln.search.index import SearchIndex

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


def test_a_name_that_is_an_everyday_word_must_be_the_whole_query(index: SearchIndex) -> None:
    assert keys(index.query("search", 1)) == ["search"]
    assert keys(index.query("search flights with a departure and arrival", 1)) == ["book_flight"]


def test_a_marked_word_is_a_name(index: SearchIndex) -> None:
    assert keys(index.query("`search` flights with a departure and arrival", 1)) == ["search"]


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


def test_past_prompts_teach_a_tool_its_words() -> None:
    plain, taught = tool("alpha", "Does one thing."), tool("beta", "Does one thing.")
    taught = SearchDocument("beta", taught.fields, ("umbrella needed tomorrow",))

    index = SearchIndex.build([plain, taught], Bags())

    assert keys(index.query("umbrella", 2)) == ["beta"]


@each_row("count, found", [(2, []), (3, ["beta"])])
def test_from_three_past_prompts_on_their_meaning_counts(count: int, found: list[str]) -> None:
    usages = ["forecast abroad", "local climate", "forecast overseas"][:count]

    index = SearchIndex.build([tool("alpha", "Tides."), tool("beta", "Sums.", *usages)], Bags())

    assert keys(index.query("weather", 2)) == found


def test_filters_apply_before_the_cut() -> None:
    many = [tool(f"weather_{number:03}", "weather " * 5) for number in range(500)]
    index = SearchIndex.build(
        [*many, tool("last", "Something about weather and much else.")], Bags()
    )

    answer = index.query("weather", 3, lambda key: key in {"last", "weather_499"})

    assert keys(answer) == ["weather_499", "last"]


def test_a_filter_holds_for_literal_names_too(index: SearchIndex) -> None:
    assert "get_weather" not in keys(
        index.query("get_weather", 7, lambda key: key != "get_weather")
    )


def test_a_filter_that_allows_nothing_finds_nothing(index: SearchIndex) -> None:
    assert index.query("weather", 5, lambda _: False).hits == ()


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


@each_row("k", [0, -1])
def test_no_hits_are_given_if_none_are_wanted(index: SearchIndex, k: int) -> None:
    assert index.query("weather", k) == SearchResult()


def test_more_hits_than_documents_cannot_be_had(index: SearchIndex) -> None:
    found = keys(index.query("a tool to convert, send, translate or look up text", 1_000))

    assert len(found) == len(set(found)) <= len(TOOLS)


def test_an_empty_index_finds_nothing() -> None:
    assert SearchIndex.build([], Bags()).query("weather", 5) == SearchResult()


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


def test_passages_of_documentation_can_be_searched_too() -> None:
    passages = [
        SearchDocument(
            "guide#start", {"title": "Getting started", "text": "Install the package first."}
        ),
        SearchDocument(
            "guide#limits", {"title": "Limits", "text": "A call may take thirty seconds."}
        ),
    ]

    answer = SearchIndex.build(passages, Bags()).query("how long may calls take?", 1)

    assert keys(answer) == ["guide#limits"]


def test_of_two_documents_with_one_key_the_last_counts() -> None:
    index = SearchIndex.build([tool("a", "apple"), tool("a", "pear")], Bags())

    assert len(index) == 1
    assert keys(index.query("pear", 1)) == ["a"]
    assert index.query("apple", 1).hits == ()


def test_tools_are_documents_and_the_bundled_vectors_the_default() -> None:
    tools = [
        ToolSpec(
            name=name,
            description=text,
            parameters={"type": "object", "properties": {}},
            dialect=Dialect.FUNCTION,
            entry=name,
            display_name=name,
            digest="0" * 64,
            path="x.py",
            line=1,
        )
        for name, text in {"fly": "Book a flight.", "sleep": "Find a hotel."}.items()
    ]

    answer = SearchIndex.build(tools).query("a place to stay the night", 2)

    assert [hit.key for hit in answer] == ["sleep", "fly"]
    assert len(answer) == 2
