"""Recall and NDCG on files of questions, good and bad, and two runs compared."""

import json
from collections.abc import Sequence
from math import log2
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.errors import InputError
from toolkiln.model.evaluation import DEPTH, SearchFunction
from toolkiln.search.evaluation import Case, compare, evaluate, read_cases, read_evaluation

TOOLS = [f"tool_{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]


def case(query: str, *gold: str) -> Case:
    return Case(query=query, gold=gold)


def always(*names: str) -> SearchFunction:
    """A search that finds the same every time."""
    return lambda query, k: names[:k]


def write(folder: Path, *lines: object) -> Path:
    file = folder / "cases.jsonl"
    file.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines), "utf-8")
    return file


def test_cases_are_read_in_order(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {"id": 7, "query": "rain?", "gold": ["tool_a", "tool_b", "tool_a"]},
        "",
        {"query": "caf\u00e9 \U0001f642", "gold": ["tool_c"]},
    )

    assert read_cases(file) == (
        case("rain?", "tool_a", "tool_b"),
        case("caf\u00e9 \U0001f642", "tool_c"),
    )


def test_a_mark_at_the_start_and_windows_line_ends_are_no_matter(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    line = b'{"query": "q", "gold": ["tool_a"]}\r\n'
    file.write_bytes(b"\xef\xbb\xbf" + line + b"\r\n" + line)

    assert read_cases(file) == (case("q", "tool_a"),) * 2


@each_row(
    "line, reason",
    [
        ("not json", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"query": "q"', "not JSON"),
        ("[]", "not an object"),
        ("null", "not an object"),
        ({"gold": ["tool_a"]}, "'query' is missing"),
        ({"query": "q"}, "'gold' is missing"),
        ({"query": 1, "gold": ["tool_a"]}, "'query' is not a text"),
        ({"query": " ", "gold": ["tool_a"]}, "'query' is not a text"),
        ({"query": "q", "gold": "tool_a"}, "'gold' is not a list"),
        ({"query": "q", "gold": []}, "'gold' is not a list"),
        ({"query": "q", "gold": [1]}, "'gold' is not a list"),
        ({"query": "\ud800", "gold": ["tool_a"]}, "lone surrogate"),
        ({"query": "q", "gold": ["\ud800"]}, "lone surrogate"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, line: object, reason: str) -> None:
    good = {"query": "q", "gold": ["tool_a"]}

    with pytest.raises(InputError, match=f"line 3: .*{reason}"):
        read_cases(write(tmp_path, good, "", line, good))


@each_row(
    "content, reason",
    [
        (b"", "no queries"),
        (b"\n \n", "no queries"),
        (b'{"query": "\xff", "gold": ["tool_a"]}', "line 1: this is not JSON"),
    ],
)
def test_a_file_without_text_or_queries_is_refused(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_bytes(content)

    with pytest.raises(InputError, match=reason):
        read_cases(file)


@each_row("read", [read_cases, read_evaluation])
@each_row("name", ["missing.jsonl", "."])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, read: Any, name: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / name)


@each_row(
    "gold, found, recall, ndcg",
    [
        (["tool_a"], ["tool_a", "tool_b"], [1] * DEPTH, 1),
        (["tool_c"], TOOLS, [0, 0, *[1] * (DEPTH - 2)], 1 / log2(4)),
        (
            ["tool_a", "tool_c", "tool_z"],
            TOOLS,
            [1 / 3, 1 / 3, *[2 / 3] * (DEPTH - 2)],
            1.5 / (1 + 1 / log2(3) + 0.5),
        ),
        (["tool_a"], [], [0] * DEPTH, 0),
        (TOOLS, TOOLS, [k / len(TOOLS) for k in range(1, DEPTH + 1)], 1),
    ],
)
def test_ranks_give_recall_and_ndcg(
    gold: list[str], found: list[str], recall: list[float], ndcg: float
) -> None:
    result = evaluate([case("q", *gold)], always(*found), TOOLS)

    assert result.recall == pytest.approx(tuple(recall))
    assert result.recall_at(DEPTH) == result.recall[-1]
    assert result.ndcg == pytest.approx(ndcg)
    assert len(result.worst(5)) == (ndcg < 1)


def test_queries_count_alike() -> None:
    cases = [case("q", "tool_a"), case("q2", "tool_y", "tool_z")]

    result = evaluate(cases, always("tool_a"), TOOLS)

    assert (result.recall_at(1), result.ndcg) == (0.5, 0.5)
    assert [outcome.query for outcome in result.worst(5)] == ["q2"]


def test_names_that_come_twice_or_too_late_do_not_count() -> None:
    def talkative(query: str, k: int) -> Sequence[str]:
        return ["tool_z", "tool_z", *TOOLS]

    result = evaluate([case("q", "tool_a"), case("q", "tool_k")], talkative, TOOLS)

    assert [outcome.recall[1] for outcome in result.outcomes] == [1, 0]
    assert result.outcomes[1].recall[-1] == 0
    assert result.outcomes[0].found == ("tool_z", *TOOLS[: DEPTH - 1])


@given(
    gold=st.lists(st.sampled_from(TOOLS), min_size=1, unique=True),
    found=st.permutations(TOOLS),
)
def test_measures_are_shares_and_recall_never_falls(gold: list[str], found: list[str]) -> None:
    result = evaluate([case("q", *gold)], always(*found), TOOLS)

    assert list(result.recall) == sorted(result.recall)
    assert 0 <= result.ndcg <= 1
    assert (result.ndcg == 1) == (set(found[: min(len(gold), DEPTH)]) <= set(gold))


def test_progress_is_reported_for_every_query() -> None:
    reported: list[tuple[int, int]] = []
    cases = [case("q", "tool_a"), case("q", "unknown")]

    evaluate(cases, always(), TOOLS, lambda done, total: reported.append((done, total)))

    assert reported == [(1, 2), (2, 2)]


def test_gold_that_is_no_tool_is_counted_and_left_out() -> None:
    cases = [case("q", "tool_a", "gone"), case("q2", "gone"), case("q3", "lost")]

    result = evaluate(cases, always("tool_a"), TOOLS)

    assert result.unknown == {"gone": 2, "lost": 1}
    assert result.skipped == 2
    assert result.recall_at(1) == 1


def test_a_file_for_other_tools_is_refused_with_a_near_name() -> None:
    with pytest.raises(InputError) as caught:
        evaluate([case("q", "tool_aa")], always("tool_a"), TOOLS)

    assert "did you mean 'tool_a' instead of 'tool_aa'" in (caught.value.hint or "")


def test_an_empty_catalog_is_refused() -> None:
    with pytest.raises(InputError, match="no gold name"):
        evaluate([case("q", "tool_a")], always(), [])


def test_gains_and_losses_are_separated() -> None:
    cases = [case("up", "tool_b"), case("down", "tool_a"), case("same", "tool_c")]
    before = evaluate(cases, always("tool_a", "tool_b", "tool_c"), TOOLS)
    after = evaluate(cases, always("tool_b", "tool_a", "tool_c"), TOOLS)

    result = compare(before, after)

    assert [change.before.query for change in result.better] == ["up"]
    assert [change.after.query for change in result.worse] == ["down"]
    assert result.better[0].gain == pytest.approx(1 - 1 / log2(3))
    assert result.unmatched == 0


def test_only_queries_with_the_same_gold_are_compared() -> None:
    before = evaluate([case("q", "tool_a"), case("x", "tool_b")], always("tool_a"), TOOLS)
    after = evaluate([case("q", "tool_a"), case("x", "tool_c")], always("tool_a"), TOOLS)

    result = compare(before, after)

    assert (result.before.recall_at(1), result.after.recall_at(1)) == (1, 1)
    assert result.unmatched == 2


def test_the_largest_changes_come_first() -> None:
    cases = [case("small", "tool_b"), case("large", "tool_c")]
    before = evaluate(cases, always("tool_a", "tool_b"), TOOLS)
    after = evaluate(cases, lambda q, k: ["tool_b", "tool_c"], TOOLS)

    result = compare(before, after)
    back = compare(after, before)

    assert [change.after.query for change in result.better] == ["large", "small"]
    assert [change.after.query for change in back.worse] == ["large", "small"]


def test_nothing_in_common_is_refused() -> None:
    before = evaluate([case("q", "tool_a")], always(), TOOLS)
    after = evaluate([case("r", "tool_a")], always(), TOOLS)

    with pytest.raises(InputError, match="in common"):
        compare(before, after)


def test_an_evaluation_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = evaluate([case("q", "tool_b", "gone")], always(*TOOLS), TOOLS)
    file = tmp_path / "old.json"
    file.write_text(result.model_dump_json(), "utf-8")

    assert read_evaluation(file) == result


GOOD = evaluate([case("q", "tool_b")], always(*TOOLS), TOOLS).model_dump(mode="json")


@each_row(
    "content",
    [
        *(b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"recall": [NaN]}'),
        json.dumps({**GOOD, "recall": [0.5]}).encode(),
        json.dumps({**GOOD, "ndcg": "NaN"}).encode(),
        json.dumps({**GOOD, "ndcg": 2}).encode(),
        json.dumps({**GOOD, "outcomes": []}).encode(),
    ],
)
def test_a_file_that_is_no_evaluation_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "old.json"
    file.write_bytes(content)

    with pytest.raises(InputError, match="not an evaluation"):
        read_evaluation(file)
