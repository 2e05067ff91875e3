"""What `eval search` prints: a table, bars, a drawing, JSON, and what changed since."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from toolkiln.errors import InputError
from toolkiln.surfaces.cli import terminal
from toolkiln.surfaces.cli.search import EvaluationOptions, evaluate_search

TOOLS = ["get_weather", "send_mail", "convert"]
CASES: list[dict[str, object]] = [
    {"query": "will it rain", "gold": ["get_weather"]},
    {"query": "write to Ann\x1b[31m\nand  convert " + "x" * 200, "gold": ["send_mail", "convert"]},
]


def weather(query: str, k: int) -> Sequence[str]:
    """A search that always finds the weather first."""
    return TOOLS[:k]


def mail(query: str, k: int) -> Sequence[str]:
    """A search that always finds the mail first."""
    return ["send_mail", "get_weather"]


def nothing(query: str, k: int) -> Sequence[str]:
    return []


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    return write(tmp_path / "cases.jsonl", CASES)


def write(file: Path, cases: list[dict[str, object]]) -> Path:
    file.write_text("".join(json.dumps(case) + "\n" for case in cases), "utf-8")
    return file


def kept(cases: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The JSON of a run that finds the weather first."""
    evaluate_search(cases, weather, TOOLS, EvaluationOptions(as_json=True))
    file = cases.with_name("old.json")
    file.write_text(capsys.readouterr().out, "utf-8")
    return file


def printed(
    file: Path, capsys: pytest.CaptureFixture[str], search: Any = weather, **options: Any
) -> tuple[str, str]:
    """Evaluate a search; what goes to stdout and to stderr."""
    evaluate_search(file, search, TOOLS, EvaluationOptions(**options))
    return capsys.readouterr()


class TestOneRun:
    def test_a_table_bars_and_the_worst_queries_are_printed(
        self, cases: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out, err = printed(cases, capsys)

        lines = out.splitlines()
        assert lines[0] == "2 queries, 3 tools"
        assert lines[2].split() == ["recall@1", "recall@3", "recall@5", "recall@10", "NDCG@10"]
        assert lines[3].split() == ["0.500", "1.000", "1.000", "1.000", "0.847"]
        assert f"\n 1  {'█' * 20}{' ' * 20} 0.500\n" in out
        assert f"\n 2  {'█' * 30}{' ' * 10} 0.750\n" in out
        assert f"\n10  {'█' * 40} 1.000\n" in out
        worst = out.split("\nworst\n")[1].splitlines()
        assert worst[0].startswith("  0.69  write to Ann\x1b[31m and convert xxx")
        assert worst[0].endswith("x…")
        assert [line.split() for line in worst[1:]] == [
            ["wanted", "send_mail,", "convert"],
            ["found", "get_weather,", "send_mail,", "convert"],
        ]
        assert err == ""

    def test_a_search_without_results_says_so(
        self, cases: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out, _ = printed(cases, capsys, nothing)

        assert "█" not in out
        assert "found  nothing" in out

    def test_a_perfect_run_lists_no_worst(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out, _ = printed(write(tmp_path / "one", CASES[:1]), capsys)

        assert "worst" not in out

    def test_gold_that_is_no_tool_is_reported_on_stderr(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = write(tmp_path / "cases", [*CASES, {"query": "q", "gold": ["gone"]}])

        out, err = printed(file, capsys)

        assert "not counted: gone\n" in err
        assert "1 left out" in err
        assert out.startswith("2 queries")

    def test_json_holds_every_outcome_and_nothing_else_is_printed(
        self, cases: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out, err = printed(cases, capsys, as_json=True)

        result = json.loads(out)
        assert [outcome["query"] for outcome in result["outcomes"]] == [c["query"] for c in CASES]
        assert result["recall"][0] == 0.5
        assert err == ""

    def test_on_a_terminal_progress_comes_and_goes_and_tricks_are_shown(
        self, cases: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(terminal, "is_terminal", lambda *, err: True)

        out, err = printed(cases, capsys)

        assert "[##########          ] searching" in err
        assert err.endswith("\r\x1b[2K")
        assert "Ann\\x1b[31m" in out


class TestComparing:
    def test_both_runs_their_change_and_the_queries_that_lost_are_printed(
        self, cases: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        old = kept(cases, capsys)

        out, _ = printed(cases, capsys, mail, against=old)
        as_json, _ = printed(cases, capsys, mail, against=old, as_json=True)

        rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[3:6]}
        assert rows["before"][:2] == ["0.500", "1.000"]
        assert rows["after"][:2] == ["0.250", "0.750"]
        assert rows["change"][:2] == ["-0.250", "-0.250"]
        assert "0.250  (was 0.500)\n" in out
        assert "\nbetter: 0 queries\n" in out
        assert "\nworse: 2 queries\n  -0.37  will it rain\n         wanted get_weather\n" in out
        result = json.loads(as_json)
        assert (result["before"]["recall"][0], result["after"]["recall"][0]) == (0.5, 0.25)
        assert len(result["worse"]) == 2

    def test_queries_of_one_run_only_are_reported_on_stderr(
        self, cases: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        old = kept(cases, capsys)

        out, err = printed(write(cases, CASES[:1]), capsys, against=old)

        assert out.startswith("1 query, 3 tools\n")
        assert "1 left out: only one of the two runs" in err

    def test_a_file_that_is_no_run_is_refused_before_anything_is_searched(
        self, cases: Path
    ) -> None:
        def refuse(query: str, k: int) -> Sequence[str]:
            raise AssertionError("searched")

        with pytest.raises(InputError, match="not an evaluation"):
            evaluate_search(cases, refuse, TOOLS, EvaluationOptions(against=cases))


class TestDrawing:
    def test_the_drawing_has_a_line_that_rises_for_each_run(
        self, cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        printed(cases, capsys, mail, svg=tmp_path / "plot.svg", against=kept(cases, capsys))

        root = ElementTree.parse(tmp_path / "plot.svg").getroot()
        lines = list(root.iter("{http://www.w3.org/2000/svg}polyline"))
        assert ["stroke-dasharray" in line.attrib for line in lines] == [True, False]
        for line in lines:
            heights = [float(point.split(",")[1]) for point in line.attrib["points"].split()]
            assert len(heights) == 10
            assert heights == sorted(heights, reverse=True)
            assert heights[0] > heights[-1]

    def test_a_place_that_cannot_be_written_is_refused(self, cases: Path, tmp_path: Path) -> None:
        options = EvaluationOptions(svg=tmp_path / "no" / "plot.svg")

        with pytest.raises(InputError, match="cannot be written"):
            evaluate_search(cases, weather, TOOLS, options)
