"""Patterns, unions and arguments that are expensive to check: the work stays bounded."""

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


class TooManyCalls(BaseException):
    """The work under test does not end in time."""


@contextmanager
def calls_limited_to(limit: int) -> Iterator[None]:
    count = 0

    def profile(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"
        if count > limit:
            raise TooManyCalls

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def recursive_union(keyword: str) -> dict[str, Any]:
    """Two models whose field `child` is either of them, as pydantic describes them."""
    either = {keyword: [{"$ref": "#/$defs/Left"}, {"$ref": "#/$defs/Right"}]}

    def model(own: str) -> dict[str, Any]:
        properties = {"child": either, own: {"type": "integer"}, "size": {"type": "integer"}}
        return {"type": "object", "properties": properties}

    definitions = {"Left": model("left"), "Right": model("right")}
    return {"type": "object", "properties": {"tree": either}, "$defs": definitions}


def nested(depth: int, leaf: Any) -> dict[str, Any]:
    for _ in range(depth):
        leaf = {"child": leaf}
    return {"tree": leaf}


@each_row("keyword", ["anyOf", "oneOf"])
def test_a_deep_value_that_fits_no_branch_is_explained_in_bounded_work(keyword: str) -> None:
    """Before, 230 bytes took a minute, and each further level twice as long."""
    checker = ArgumentChecker(recursive_union(keyword))

    with calls_limited_to(1_000_000):
        answer = checker.check(nested(60, {"size": "large"}))

    assert isinstance(answer, Problems)
    assert answer.problems[0].message.startswith("tree: ")


def test_a_shallow_value_that_fits_no_branch_is_explained_exactly() -> None:
    checker = ArgumentChecker(recursive_union("anyOf"))

    answer = checker.check(nested(3, {"size": "large"}))

    assert isinstance(answer, Problems)
    assert [problem.message for problem in answer.problems] == [
        "tree.child.child.child.size: 'large' is not an integer"
    ]


@each_row("depth", [3, 60])
def test_json_text_inside_a_union_is_parsed_at_any_depth(depth: int) -> None:
    checker = ArgumentChecker(recursive_union("anyOf"))

    with calls_limited_to(1_000_000):
        answer = checker.check(nested(depth, {"size": "5"}))

    assert isinstance(answer, Checked)
    assert answer.arguments == nested(depth, {"size": 5})


def test_the_invalid_members_of_a_large_list_are_named() -> None:
    rows = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Count"}}, "required": ["a"]}
    checker = ArgumentChecker(
        {
            "type": "object",
            "properties": {"rows": {"type": "array", "items": rows}, "name": {"type": "string"}},
            "required": ["rows", "name"],
            "additionalProperties": False,
            "$defs": {"Count": {"type": "integer", "minimum": 0}},
        }
    )
    values: list[dict[str, Any]] = [{"a": index} for index in range(50_000)]
    values[777] = {"a": -1}
    values[40_000] = {}

    answer = checker.check({"rows": values, "nam": "x"})

    assert isinstance(answer, Problems)
    assert {(problem.message, problem.hint) for problem in answer.problems} == {
        ("rows[777].a: -1 is less than 0, the smallest allowed", None),
        ("rows[40000].a: is required, but missing", None),
        ("name: is required, but missing", None),
        ("nam: is not a known parameter", "did you mean 'name'?"),
    }


def checker_of_rows(alternatives: int) -> ArgumentChecker:
    """Of an array whose members are any of many objects."""
    branches = [
        {"type": "object", "properties": {f"k{i}": {"type": "integer"}}, "required": [f"k{i}"]}
        for i in range(alternatives)
    ]
    rows = {"type": "array", "items": {"anyOf": branches}}
    return ArgumentChecker({"type": "object", "properties": {"rows": rows}})


def test_many_members_that_fit_none_of_many_branches_are_explained_in_bounded_work() -> None:
    """Before, 400 kB took three minutes."""
    checker = checker_of_rows(100)

    with calls_limited_to(3_000_000):
        answer = checker.check({"rows": [{} for _ in range(100_000)]})

    assert isinstance(answer, Problems)
    assert answer.problems[0].message == "rows[0].k0: is required, but missing"
    assert len(answer.problems) == 51


def test_many_values_for_many_alternatives_are_refused() -> None:
    """The validator would hold the interpreter's lock for seconds."""
    checker = checker_of_rows(900)

    few = checker.check({"rows": [{"k899": 1}] * 500})
    many = checker.check({"rows": [{"k899": 1}] * 50_000})

    assert isinstance(few, Checked)
    assert isinstance(many, Problems)
    assert many.problems[0].message == (
        "arguments: too many values for the alternatives of the schema"
    )
