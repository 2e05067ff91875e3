"""Words, stems and clauses."""

from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.search.analysis import (
    clauses,
    normalize_name,
    pairs,
    parse_query,
    stem,
    words,
    words_or_all,
)


@each_row(
    "text, expected",
    [
        ("snake_case_name", "snake case name"),
        ("kebab-case/path.name", "kebab case path name"),
        ("camelCase", "camelcase camel case"),
        ("HTTPServer", "httpserver http server"),
        ("APIs", "apis"),
        ("YouTube", "youtube tube"),
        ("base64", "base64 base 64"),
        ("v2_beta", "v2 v 2 beta"),
        ("Café ＡＢＣ", "cafe abc"),
        ("курс валют", "курс валют"),
        ("سِعر الصرف", "سعر الصرف"),
        ("天气预报", "天气 气预 预报"),
        ("날씨", "날씨"),
        ("天", "天"),
        ("東京のweather", "東京 京の weather"),
        ("can you please show me the weather", "weather"),
        ("", ""),
        ("\x00\x07\u202e ?!", ""),
        ("_", ""),
    ],
)
def test_text_becomes_words_that_carry_meaning(text: str, expected: str) -> None:
    assert words(text).written == expected.split()


def test_a_joined_name_is_spoken_in_parts_only() -> None:
    assert words("getUserReport").spoken == ["user", "report"]


@each_row(
    "forms",
    [
        "convert converts converting converted",
        "calculate calculates calculating calculated",
        "city cities",
        "box boxes",
        "plan planned planning",
        "search searches",
        "rent rents renting rental rentals",
        "education educational",
    ],
)
def test_the_forms_of_a_word_share_a_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


@each_row("word", ["bus", "address", "analysis", "sing", "red", "gas", "天気s"])
def test_a_word_that_only_looks_inflected_stays(word: str) -> None:
    assert stem(word) == word


def test_an_animal_is_no_anime() -> None:
    assert stem("animals") != stem("anime")


@each_row(
    "text, expected",
    [
        ("the time zone", ["timezone"]),
        ("copy editing", ["copyediting"]),
        ("the number of open issues", ["numberopen", "openissues"]),
        ("weather", []),
        ("", []),
    ],
)
def test_neighbouring_words_are_one_word_too(text: str, expected: list[str]) -> None:
    assert pairs(words(text)) == [stem(word) for word in expected]


@each_row(
    "text, hints",
    [
        ("weather on 2024-05-01", {"date"}),
        ("weather on 5/1/2024", {"date"}),
        ("weather on May 3", {"date"}),
        ("weather on the 3rd", {"date"}),
        ("weather tomorrow", {"date"}),
        ("weather next Friday", {"date"}),
        ("weather in Petaluma", {"location", "city"}),
        ("weather near San Jose on Monday", {"location", "city", "date"}),
        ("the weather in general", set()),
        ("the date and the city in Peru", {"location"}),
    ],
)
def test_a_value_hints_at_the_parameter_that_takes_it(text: str, hints: set[str]) -> None:
    asked = parse_query(text).whole

    assert set(asked.hints).difference(pairs(asked.words)) == set(map(stem, hints))


@each_row(
    "text, expected",
    [
        ("open https://example.com/weather?city=rome.", "open"),
        ("open 'www.example.com/weather', then resize it", "open resize"),
        ("write to weather.report+news@mail.example.org.", "write email"),
        ("@ home@ a@b", "home b"),
    ],
)
def test_the_words_of_an_address_are_not_asked_for(text: str, expected: str) -> None:
    assert parse_query(text).whole.words.spoken == expected.split()


def test_a_query_that_is_only_an_address_is_read_as_words() -> None:
    assert parse_query("https://example.com/weather").whole.words.spoken[-1] == "weather"


def test_a_text_of_little_words_alone_keeps_them_where_asked() -> None:
    assert words("get_next").terms == []
    assert words_or_all("get_next").terms == ["get", "next"]


@each_row("spelling", ["get_weather", "getWeather", "Get weather", "GET-WEATHER", "get.weather"])
def test_spellings_of_a_name_are_squeezed_into_one(spelling: str) -> None:
    assert normalize_name(spelling) == "getweather"


@each_row(
    "text, expected",
    [
        (
            "Book a flight to Rome tomorrow and send the invoice to accounting",
            ["Book a flight to Rome tomorrow", "send the invoice to accounting"],
        ),
        (
            "Convert dollars into euros. Translate this German sentence!",
            ["Convert dollars into euros.", "Translate this German sentence!"],
        ),
        ("salt and pepper", []),
        ("Compare red, green and blue paint", []),
        ("weather in Rome", []),
        ("", []),
    ],
)
def test_a_prompt_is_split_where_something_else_is_asked_for(
    text: str, expected: list[str]
) -> None:
    assert [part.text for part in parse_query(text).clauses] == expected


def test_clauses_have_all_words_of_the_prompt() -> None:
    text = "Find hotels near the beach, then rent a small car and also check the weather forecast"

    found = [term for _, part in clauses(text) for term in part.terms]

    assert found == words(text).terms


def test_of_a_very_long_query_the_start_and_the_end_count() -> None:
    asked = parse_query("weather " + "lorem ipsum. " * 10_000 + "currency")

    assert {"weather", "currenci"} <= set(asked.whole.words.terms)
    assert len(asked.whole.text) < 10_000
    assert len(asked.clauses) <= 8


@given(st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    asked = parse_query(text)

    for part in (asked.whole, *asked.clauses):
        assert len(part.words.terms) == len(part.words.written)
        assert all(part.words.terms)
