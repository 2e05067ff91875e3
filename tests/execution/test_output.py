"""What a model reads: its text, its limits, and that nothing is lost without a word."""

import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.execution.executor import ExecutionOutcome
from toolkiln.execution.output import TruncatedText, limit_of, model_text, render, truncate
from toolkiln.model.call import CallError, Status
from toolkiln.model.spec import Dialect, Limits, ToolSpec

MARKER = re.compile(r"\n\[… ([\d,]+) characters left out …\]\n")
CHARACTERS = ["\r\n", "e\u0301", "👍🏽", "👩\u200d👧", "🇳🇴", "\u1112\u1161\u11ab", "☎\ufe0f"]
"""What people see as one, made of several code points."""
PIECES = ["a", " ", "\n", "\ud800", *CHARACTERS]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=400).map("".join) | st.text(max_size=400)


def spec(limit: int = 50_000, **fields: Any) -> ToolSpec:
    return ToolSpec(
        name="probe", description="", parameters={}, dialect=Dialect.FUNCTION, entry="probe",
        display_name="Probe", digest="0", path="probe.py", line=1,
        limits=Limits(return_char_limit=limit), **fields,
    )  # fmt: skip


def tool_result(stdout: str = "", stderr: str = "", *, ok: bool = True) -> ExecutionOutcome:
    outcome = ExecutionOutcome(is_tool_result=True)
    outcome.value = {"ok": ok, "stdout": stdout, "stderr": stderr, "meta": {"seen": False}}
    if not ok:
        outcome.status = Status.FAILED
        outcome.error = CallError(code="tool_error", message=stderr or stdout or "it failed")
    return outcome


def parts(result: TruncatedText) -> tuple[str, int, str] | None:
    """Head, the count that is stated, tail."""
    found = MARKER.search(result.text)
    if found is None:
        return None
    count = int(found[1].replace(",", ""))
    return result.text[: found.start()], count, result.text[found.end() :]


@each_row(
    "value, text",
    [
        ("as it is\n", "as it is\n"),
        (None, ""),
        (True, "true"),
        (1.5, "1.5"),
        ({"city": "Zürich", "at": [1, None]}, '{"city": "Zürich", "at": [1, null]}'),
        ([], "[]"),
        ("", ""),
    ],
)
def test_text_stays_as_it_is_and_the_rest_becomes_json(value: object, text: str) -> None:
    assert render(value) == text


@each_row(
    "kind, limit",
    [
        ("knowledge", 60_000),
        ("file", 60_000),
        ("file_view", 60_000),
        ("execution_result", 8_000),
        ("error", 8_000),
        ("status", 2_000),
        (None, 50_000),
    ],
)
def test_a_kind_has_its_limit(kind: Any, limit: int) -> None:
    assert limit_of(spec(), kind) == limit


@each_row("kind", ["knowledge", "status", None])
@each_row("limit", [1, 49_999, 1_000_000])
def test_the_limit_of_the_author_wins_over_the_kind(kind: Any, limit: int) -> None:
    assert limit_of(spec(limit), kind) == limit


@given(TEXTS, st.integers(0, 500))
@example("x" * 1200, 1199)
@example("é" * 2000, 1000)
def test_a_cut_text_fits_and_counts_what_it_leaves_out(text: str, limit: int) -> None:
    result = truncate(text, limit)

    assert len(result.text) <= limit
    assert result.total == len(text)
    assert (result.text == text) == (len(text) <= limit)
    found = None if MARKER.search(text) else parts(result)
    if found:
        head, missing, tail = found
        assert text.startswith(head)
        assert text.endswith(tail)
        assert missing == len(text) - len(head) - len(tail)
        assert result.shown == len(head) + len(tail)
    else:
        assert text.startswith(result.text)
        assert result.shown == len(result.text)


@given(TEXTS, st.integers(0, 500))
def test_cutting_twice_changes_nothing(text: str, limit: int) -> None:
    once = truncate(text, limit).text

    assert truncate(once, limit) == TruncatedText(once, len(once), len(once))


@given(st.sampled_from(CHARACTERS), st.integers(100, 300), st.integers(0, 8))
def test_what_people_see_as_one_character_is_not_torn(one: str, limit: int, shift: int) -> None:
    found = parts(truncate("x" * shift + one * 400 + "x" * shift, limit))

    assert found
    assert len(found[0][shift:]) % len(one) == 0
    assert len(found[2].removesuffix("x" * shift)) % len(one) == 0


@each_row("character", ["\u0301", "\u200d", "🇳"])
def test_a_character_without_end_is_cut_all_the_same(character: str) -> None:
    result = truncate("a" + character * 100_000, 1000)

    assert 900 <= len(result.text) <= 1000


def test_a_cut_falls_between_two_lines_if_one_ends_nearby() -> None:
    lines = [f"line {number}" for number in range(10_000)]

    found = parts(truncate("\n".join(lines), 2000))

    assert found
    assert set(found[0].split("\n")) | set(found[2].split("\n")) <= set(lines)


def test_about_two_thirds_of_what_is_kept_is_the_head() -> None:
    found = parts(truncate("x" * 10_000, 3000))

    assert found
    assert 1.9 < len(found[0]) / len(found[2]) < 2.1
    assert truncate("\n" + "x" * 10_000, 2000).shown > 1950  # a line without an end
    assert truncate("abcdefghij" * 10, 5) == TruncatedText("abcde", 5, 100)  # no marker fits


def test_a_result_that_fits_has_nothing_to_page_through() -> None:
    assert model_text(ExecutionOutcome(value={"n": 1}), spec()) == ('{"n": 1}', None, 8, 8)
    assert model_text(ExecutionOutcome(), spec()) == ("", None, 0, 0)
    assert model_text(ExecutionOutcome(value="x" * 50_000), spec()).full is None


def test_a_result_that_does_not_fit_keeps_its_full_text() -> None:
    value = ["item"] * 20_000

    result = model_text(ExecutionOutcome(value=value), spec())

    assert len(result.text) <= 50_000
    assert result.full == render(value)
    assert 49_000 < result.shown < result.total == len(render(value))


def test_an_error_is_shown_with_its_hint_and_has_a_limit_of_its_own() -> None:
    short = CallError(code="tool_error", message="no such city", hint="try 'Oslo'")
    long = CallError(code="tool_error", message="x" * 100_000, hint="try less")
    large = spec(900_000, output_kind="knowledge")

    whole = model_text(ExecutionOutcome(Status.FAILED, error=short), spec())
    cut = model_text(ExecutionOutcome(Status.FAILED, error=long), large)

    assert (whole.text, whole.full) == ("error: no such city\nhint: try 'Oslo'", None)
    assert len(cut.text) <= 8_000
    assert cut.text.startswith("error: x")
    assert cut.text.endswith("\nhint: try less")
    assert cut.full == "error: " + "x" * 100_000 + "\nhint: try less"


@each_row(
    "outcome, text",
    [
        (tool_result("done"), "done"),
        (tool_result("done", "slow"), "done\nstderr: slow"),
        (tool_result(stderr="slow"), "stderr: slow"),
        (tool_result(), ""),
        (tool_result("3 of 4 passed", "exit 1", ok=False), "3 of 4 passed\nerror: exit 1"),
        (tool_result("broken", ok=False), "error: broken"),
        (tool_result(ok=False), "error: it failed"),
    ],
)
def test_a_tool_result_shows_its_streams(outcome: ExecutionOutcome, text: str) -> None:
    assert model_text(outcome, spec()) == (text, None, len(text), len(text))


def test_each_stream_has_the_limit_of_its_kind() -> None:
    streams = tool_result("o" * 50_000, "e" * 50_000)
    kinds = spec(output_kind="knowledge", stdout_kind="execution_result", stderr_kind="status")

    result = model_text(streams, kinds)

    assert 7_900 < result.text.count("o") <= 8_000
    assert 1_900 < result.text.count("e") <= 2_000 + 10
    assert result.full == "o" * 50_000 + "\nstderr: " + "e" * 50_000
    whole_would_fit = spec(output_kind="file", stdout_kind="status")
    result = model_text(tool_result("o" * 3_000), whole_would_fit)
    assert len(result.text) <= 2_000
    assert result.full == "o" * 3_000
    status = spec(output_kind="status", stdout_kind="status", stderr_kind="error")
    assert 7_000 < len(model_text(tool_result(stderr="e" * 9_000, ok=False), status).text) <= 8_000


def test_a_long_stream_does_not_push_the_other_out() -> None:
    short_error = model_text(tool_result("o" * 50_000, "the end"), spec(1_000))
    short_output = model_text(tool_result("the start", "e" * 50_000), spec(1_000))

    assert short_error.text.endswith("\nstderr: the end")
    assert short_error.text.count("o") > 900
    assert short_output.text.startswith("the start\nstderr: eee")
    assert short_output.text.count("e") > 900


@given(
    st.text(max_size=300), st.text(max_size=300), st.booleans(), st.integers(1, 400),
    st.sampled_from(["status", "error", "unheard of", None]),
)  # fmt: skip
def test_two_streams_fit_and_are_counted(
    stdout: str, stderr: str, ok: bool, limit: int, kind: Any
) -> None:
    outcome = tool_result(stdout, stderr, ok=ok)

    result = model_text(outcome, spec(limit, stderr_kind=kind))

    assert len(result.text) <= limit
    assert (result.full is None) == (result.shown == result.total)
    assert result.total == len(result.text if result.full is None else result.full)
    assert result.shown <= result.total
