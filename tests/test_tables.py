"""A table of rows fails as its rows would as tests of their own."""

import os
from pathlib import Path

import pytest

from tables import each_row


@each_row("value, limit", [(1, 2), (3, 2), pytest.param(4, 2, id="four"), (0, 2)])
def over_numbers(value: int, limit: int) -> None:
    assert value < limit


@each_row("value", [1, "x"])
async def over_awaited(value: int) -> None:
    assert value + 1


def test_every_row_that_fails_is_reported_with_its_reason() -> None:
    with pytest.raises(AssertionError) as caught:
        over_numbers()

    report = str(caught.value)
    assert report.startswith("2 of 4 rows failed")
    assert "row 1: value=3, limit=2\nAssertionError: assert 3 < 2" in report
    assert "row 2: four\nAssertionError: assert 4 < 2" in report
    assert "row 0" not in report
    assert "row 3" not in report


async def test_rows_are_awaited() -> None:
    with pytest.raises(AssertionError, match=r"1 of 2 rows failed\s+row 1: value='x'\s+TypeError"):
        await over_awaited()


def test_a_row_that_should_raise_and_does_not_is_a_failure() -> None:
    @each_row("text", ["1", "x"])
    def numbers_are_refused(text: str) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            int(text)

    with pytest.raises(AssertionError, match=r"1 of 2 rows failed\s+row 0: text='1'\s+Failed"):
        numbers_are_refused()


def test_a_row_that_cannot_be_shown_is_reported_like_others() -> None:
    @each_row("value", [10**5000, None])
    def fail(value: object) -> None:
        raise ValueError("no")

    with pytest.raises(AssertionError, match=r"2 of 2 rows failed\s+row 0: value=<int>"):
        fail()


def test_rows_of_a_method_share_its_instance() -> None:
    class Counter:
        @each_row("value", [1, 2])
        def add(self, value: int) -> None:
            totals.append((self, value))

    totals: list[tuple[Counter, int]] = []
    counter = Counter()

    counter.add()

    assert totals == [(counter, 1), (counter, 2)]


def test_stacked_tables_run_every_pair() -> None:
    pairs = []

    @each_row("left", "ab")
    @each_row("right", [1, 2])
    def remember(left: str, right: int) -> None:
        pairs.append((left, right))

    remember()

    assert sorted(pairs) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(AssertionError, match="a table needs rows"):
        each_row("value", [])


def test_rows_see_neither_the_files_nor_the_patches_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @each_row("value", ["1", "2"])
    def leave_traces(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert list(tmp_path.iterdir()) == []
        assert "TRACE_OF_A_ROW" not in os.environ
        (tmp_path / "file").write_text(value)
        monkeypatch.setenv("TRACE_OF_A_ROW", value)

    leave_traces(tmp_path=tmp_path, monkeypatch=monkeypatch)


def test_batches_cover_all_rows_once() -> None:
    seen = []

    @each_row("value", range(10), batches=3)
    def remember(value: int) -> None:
        seen.append(value)

    for batch in range(3):
        remember(batch=batch)

    assert sorted(seen) == list(range(10))
    (mark,) = remember.pytestmark  # type: ignore[attr-defined]
    assert mark.args == ("batch", range(3))
