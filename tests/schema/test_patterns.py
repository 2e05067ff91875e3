"""Patterns and arguments that are written to be expensive: matching them stays linear."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tables import each_row
from toolkiln.schema.arguments import ArgumentChecker, Checked, Problems, check, is_quick
from toolkiln.schema.validator_options import (
    BACKTRACKING,
    LINEAR,
    MAX_BACKTRACKED_LENGTH,
    engine_of,
)

from .specs import spec as spec_of


def checker(pattern: str) -> ArgumentChecker:
    items = {"type": "array", "items": {"type": "string", "pattern": pattern}}
    return ArgumentChecker({"type": "object", "properties": {"a": items}})


@contextmanager
def counted(name: str) -> Iterator[list[None]]:
    """One item for each call of a function of this name."""
    found: list[None] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == name:
            found.append(None)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(before)


@each_row("pattern", ["^(a+)+$", "(a|a)*b", r"^\d{3}-\w+$", "(x+x+)+y"])
def test_a_pattern_without_look_around_runs_in_the_linear_engine(pattern: str) -> None:
    assert engine_of(pattern) is LINEAR


@each_row("pattern", [r"^(?!\s*$).+", r"(a)\1", "(?<=x)y"])
def test_look_around_and_back_references_run_in_an_engine_that_gives_up(pattern: str) -> None:
    assert engine_of(pattern) is BACKTRACKING


@each_row("pattern", ["(", "(a{0,300}){0,300}b"])
def test_what_does_not_compile_in_a_megabyte_is_no_pattern(pattern: str) -> None:
    assert engine_of(pattern) is None


def test_patterns_that_backtrack_match_short_strings_only() -> None:
    blank = checker(r"^(?!\s*$).+")

    fits = blank.check({"a": ["text"]})
    empty = blank.check({"a": ["  "]})
    long = blank.check({"a": ["x" * (MAX_BACKTRACKED_LENGTH + 1)]})

    assert isinstance(fits, Checked)
    assert isinstance(empty, Problems)
    assert isinstance(long, Problems)
    assert "1000 characters" in long.problems[0].message


def test_strings_that_make_a_pattern_backtrack_end_in_a_problem() -> None:
    """Before, each took a million steps: 2 kB of arguments took ten seconds."""
    answer = checker(r"^(a*)*\1b$").check({"a": ["a" * 60 + "c"] * 200})

    assert isinstance(answer, Problems)


def test_large_arguments_and_schemas_that_are_not_compiled_are_checked_in_a_thread() -> None:
    spec = spec_of({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}})
    small, large = {"a": [1, 2]}, {"a": [*range(5_000)]}

    before = is_quick(spec, small)
    check(spec, small)

    assert (before, is_quick(spec, small), is_quick(spec, large)) == (False, True, False)
    assert not is_quick(spec, {"a": "x" * 100_000})
    assert not is_quick(spec, "x" * 100_000)


def test_wrong_values_of_a_long_enumeration_are_not_compared_with_each_of_its_values() -> None:
    """Before, fifty wrong values took a hundred thousand comparisons on the event loop."""
    values = {"type": "array", "items": {"enum": [f"option number {i}" for i in range(2_000)]}}
    made = ArgumentChecker({"type": "object", "properties": {"a": values}})

    with counted("ratio") as count:
        answer = made.check({"a": ["opshun numbr"] * 40 + ["OPTION NUMBER 7"]})

    assert isinstance(answer, Problems)
    assert answer.problems[-1].hint == "did you mean 'option number 7'?"
    assert not count


def test_unexpected_names_get_few_hints_and_few_problems() -> None:
    properties = {f"name_{i}": {"type": "integer"} for i in range(200)}
    made = ArgumentChecker(
        {"type": "object", "properties": properties, "additionalProperties": False}
    )

    with counted("real_quick_ratio") as count:
        answer = made.check({f"nam_{i}": 1 for i in range(5_000)})

    assert isinstance(answer, Problems)
    assert len(answer.problems) == 51
    assert len(count) <= 10 * 100
