"""Finding tools on the command line, and measuring how well they are found."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .conftest import ADMITTED, Shell

SETTINGS = ""
TOOLS = {
    "weather.py": '''
def get_weather(city: str) -> str:
    """Get the weather forecast for a city: rain, sun, temperature.

    Args:
        city: The city.
    """
    return city
''',
    "mail.py": '''
def send_mail(to: str, text: str) -> str:
    """Send an email to a person.

    Args:
        to: The address.
        text: What to say.
    """
    return to
''',
    "money.py": '''
def convert_currency(amount: float, to: str) -> float:
    """Convert an amount of money to another currency.

    Args:
        amount: How much.
        to: The currency.
    """
    return amount
''',
}
CASES = [
    {"query": "will it rain in Oslo tomorrow", "gold": ["get_weather"]},
    {"query": "how many dollars are 10 euros", "gold": ["convert_currency"]},
]


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    file = tmp_path / "cases.jsonl"
    file.write_text("\n".join(map(json.dumps, CASES)))
    return file


class TestSearch:
    def test_the_tool_that_fits_comes_first(self, shell: Shell) -> None:
        done = shell.run("search", "write a message to Ann", "-k", "2")

        first, second = done.out.splitlines()
        assert (done.code, done.err) == (0, "")
        assert first.split("  ")[0].strip() == "send_mail"
        assert first.endswith("  Send an email to a person. (dev)")
        assert second

    def test_descriptions_are_aligned(self, shell: Shell) -> None:
        done = shell.invoke("search", "send the weather", "-k", "2")

        weather, mail = sorted(done.out.splitlines())
        assert weather.index("  Get") == mail.index("  Send")

    def test_a_number_that_makes_no_sense_is_refused(self, shell: Shell) -> None:
        for k in ("0", "-1", "1001", "many", ""):
            shell.misused("search", "weather", "-k", k)
        assert shell.invoke("search", "weather", "-k", "1000").code == 0

    def test_why_shows_what_the_scores_are_made_of(self, shell: Shell) -> None:
        done = shell.invoke("search", "weather in a city", "-k", "1", "--why")

        name, reason = done.out.splitlines()
        assert name.startswith("get_weather")
        assert "lexical" in reason
        assert "words: weather" in reason
        assert done.err.startswith("confidence: ")

    def test_why_names_the_clause_that_a_tool_answers(self, shell: Shell) -> None:
        prompt = "convert 10 dollars to euros, and then send an email to Ann"

        done = shell.invoke("search", prompt, "--why")

        assert "; for: '" in done.out

    def test_json_has_everything_and_no_more_than_wanted(self, shell: Shell) -> None:
        done = shell.invoke("search", "weather", "-k", "2", "--json", "--why")

        found = done.json()
        best = found["hits"][0]
        assert done.err == ""
        assert best["name"] == "get_weather"
        assert best["score"] == pytest.approx(sum(best["parts"].values()), abs=0.01)
        assert 0 <= found["confidence"] <= 1
        assert len(found["hits"]) <= 2

    def test_an_empty_query_finds_nothing(self, shell: Shell) -> None:
        for query in ("", "   ", "?!", "\n"):
            done = shell.invoke("search", query)

            assert (done.code, done.out, done.err) == (1, "", "nothing found\n")

    def test_odd_prompts_are_prompts(self, shell: Shell) -> None:
        for query in ("ü" * 5000, "Wetter\x1b[31m", "天気", "\U0001f327", "-- x"):
            done = shell.invoke("search", "--json", "--", query)

            assert done.code in (0, 1)
            assert isinstance(done.json()["hits"], list)

    def test_a_disabled_or_unadmitted_tool_is_not_found(self, tmp_path: Path) -> None:
        desk = Shell(tmp_path, {"TOOLKILN_DEV": "0"})
        (tmp_path / "tools").mkdir()
        for name, source in TOOLS.items():
            (tmp_path / "tools" / name).write_text(source)

        assert "toolkiln admit" in desk.refused("search", "weather")
        desk.invoke(*ADMITTED)
        before = desk.invoke("search", "weather", "--json").json()["hits"]
        desk.invoke("disable", "get_weather")
        after = desk.invoke("search", "weather", "--json").json()["hits"]

        assert before[0]["name"] == "get_weather"
        assert "get_weather" not in {hit["name"] for hit in after}


class TestEval:
    def test_recall_is_shown_for_every_query_whose_tools_exist(
        self, shell: Shell, cases: Path
    ) -> None:
        done = shell.run("eval", "search", str(cases))

        assert done.code == 0
        assert done.out.startswith("2 queries, 3 tools\n")
        assert "NDCG@10" in done.out
        assert "\x1b" not in done.out + done.err

    def test_a_run_is_compared_with_an_earlier_one(
        self, shell: Shell, cases: Path, tmp_path: Path
    ) -> None:
        earlier = tmp_path / "earlier.json"
        earlier.write_text(shell.invoke("eval", "search", str(cases), "--json").out)

        done = shell.invoke("eval", "search", str(cases), "--against", str(earlier))

        assert done.code == 0
        assert "before" in done.out
        assert "better: 0 queries" in done.out

    def test_the_plot_is_a_picture(self, shell: Shell, cases: Path, tmp_path: Path) -> None:
        done = shell.invoke("eval", "search", str(cases), "--svg", str(tmp_path / "plot.svg"))

        assert done.code == 0
        assert ElementTree.parse(tmp_path / "plot.svg").getroot().tag.endswith("svg")

    def test_a_file_that_is_no_list_of_queries_is_a_clear_error(
        self, shell: Shell, tmp_path: Path
    ) -> None:
        file = tmp_path / "bad.jsonl"
        for content in (
            b"", b"\n", b"{", b"[]", b"\xff", b'{"query": "x"}', b'{"query": 1, "gold": ["a"]}',
            b'{"query": "x", "gold": "get_weather"}', b"[" * 100_000,
        ):  # fmt: skip
            file.write_bytes(content)

            shell.refused("eval", "search", str(file))

    def test_a_line_that_is_wrong_is_named(self, shell: Shell, cases: Path) -> None:
        cases.write_text(cases.read_text() + "\n{oops}\n")

        assert "line 3" in shell.refused("eval", "search", str(cases))

    def test_files_that_cannot_be_used_are_clear_errors(self, shell: Shell, cases: Path) -> None:
        place = "nowhere/at/all"
        for files in ([place], [str(cases), "--against", place], [str(cases), "--svg", place]):
            assert place in shell.refused("eval", "search", *files)


class TestUsages:
    def test_prompts_are_kept_with_consent_listed_and_forgotten(self, tmp_path: Path) -> None:
        desk = Shell(tmp_path, {"TOOLKILN_DEV": "0", "TOOLKILN_LEARN_USAGES": "1"})
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "weather.py").write_text(TOOLS["weather.py"])
        desk.invoke(*ADMITTED)
        desk.invoke("call", "get_weather", "city=Oslo", "--prompt", "need an umbrella?")

        listed = desk.invoke("usages", "list")
        as_json = desk.invoke("usages", "list", "--json").json()
        cleared = desk.invoke("usages", "clear", "get_weather")

        assert (listed.code, listed.out) == (0, "get_weather: need an umbrella?\n")
        assert as_json == {"get_weather": ["need an umbrella?"]}
        assert cleared.code == 0
        assert desk.invoke("usages", "list").out == ""
