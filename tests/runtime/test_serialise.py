"""Serialisation: what passes unchanged, bounds, cycles, notes."""

import itertools
import json
import subprocess
import sys
import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.runtime.serialise import MAX_NOTES, SerialiseLimits, to_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
)  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
    | st.binary() | st.dates() | st.datetimes() | st.timedeltas() | st.uuids() | st.decimals()
    | st.complex_numbers() | st.fractions() | st.builds(object),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.lists(inner).map(iter)
    | st.dictionaries(
        st.integers() | st.text(st.characters()) | st.floats() | st.none() | st.dates()
        | st.tuples(st.integers(), st.text(st.characters())),
        inner,
    ),
)  # fmt: skip


def strict(value: object, **bounds: int) -> tuple[Any, tuple[str, ...]]:
    """The result of `to_json`, after a strict encoder accepted it."""
    result = to_json(value, limits=SerialiseLimits(**bounds))

    written = json.dumps([result.value, result.notes], allow_nan=False, ensure_ascii=False)
    assert json.loads(written.encode()) == [result.value, list(result.notes)]
    return result.value, result.notes


@given(JSON)
def test_json_comes_back_as_the_same_object_without_notes(value: object) -> None:
    result = to_json(value)

    assert result.value is value
    assert result.notes == ()


@given(ANYTHING)
def test_any_value_becomes_strict_json(value: object) -> None:
    strict(value)


@given(ANYTHING, st.integers(0, 200), st.integers(0, 4))
def test_no_bound_is_exceeded(value: object, characters: int, depth: int) -> None:
    sent, _ = strict(value, characters=characters, depth=depth)

    def deepest(item: object) -> int:
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        return max(map(deepest, inner), default=0) + isinstance(item, (dict, list))

    def text(item: object) -> int:
        if isinstance(item, dict):
            return sum(len(key) + text(inner) for key, inner in item.items())
        if isinstance(item, list):
            return sum(map(text, item))
        return len(item) if isinstance(item, str) else 0

    assert deepest(sent) <= depth
    assert text(sent) <= characters


NAN, INF = float("nan"), float("inf")
SHARED = (1,)
LOOP: dict[str, Any] = {"a": [1]}
LOOP["a"].append(LOOP)


@each_row(
    "value, sent, notes",
    [
        (
            {"items": [1, 2, 3, NAN, NAN], "high": INF, "low": [-INF]},
            {"items": [1, 2, 3, None, None], "high": None, "low": [None]},
            (
                "$.items[3]: nan is not JSON; sent as null (and 1 more)",
                "$.high: inf is not JSON; sent as null",
                "$.low[0]: -inf is not JSON; sent as null",
            ),
        ),
        (
            {"a\ud800": ["b\udfffc", "\ud83d\ude00"]},
            {"a�": ["b�c", "😀"]},
            ("$: lone surrogates are not valid Unicode; each was sent as U+FFFD (and 2 more)",),
        ),
        (LOOP, {"a": [1, None]}, ("$.a[1]: contains itself; sent as null",)),
        ([SHARED, SHARED], [[1], [1]], ()),
        (
            {1: "a", "1": "b"},
            {"1": "b"},
            ("$: several keys have the same text; the last one was sent",),
        ),
        (
            {"n": 10**5000, "m": -(10**4000)},
            {"n": hex(10**5000), "m": -(10**4000)},
            ("$.n: an integer with too many digits for JSON; sent as hexadecimal text",),
        ),
    ],
)
def test_a_change_is_noted_once_per_kind(value: object, sent: object, notes: object) -> None:
    assert strict(value) == (sent, notes)


def test_as_deep_as_the_bound_is_fine_and_deeper_is_cut() -> None:
    fits: Any = 1
    for _ in range(100):
        fits = [fits]

    assert to_json(fits).value is fits
    assert "nested deeper than 100; sent as null" in strict([fits])[1][0]
    assert len(strict([fits])[1][0]) < 200


@each_row(
    "levels, wrap",
    [
        (1_000_000, lambda v: [v]),
        (100_000, lambda v: {"k": v}),
        (100_000, lambda v: (v,)),
        (100_000, lambda v: {1: v}),
    ],
)
def test_a_million_levels_are_cut_without_a_recursion_error(levels: int, wrap: Any) -> None:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)

    assert "nested deeper" in strict(value)[1][0]


def test_a_caller_deep_in_its_stack_gets_the_same_answer() -> None:
    value: Any = []
    for _ in range(90):
        value = [value]
    answers = []

    def at(depth: int) -> None:
        if depth:
            at(depth - 1)
        else:
            answers.append(to_json(value).value)

    # A thread starts with an empty stack; the 40 frames left do not hold the 90 levels.
    thread = threading.Thread(target=at, args=(sys.getrecursionlimit() - 40,))
    thread.start()
    thread.join()

    assert answers == [value]
    assert answers[0] is not value


def test_a_dag_that_unfolds_without_end_is_cut() -> None:
    value: Any = ["x"]
    for _ in range(60):
        value = [value, value]

    sent, notes = strict(value, characters=10_000)

    assert "larger than 10,000 characters" in notes[0]
    assert len(json.dumps(sent)) < 20_000


def test_a_cut_notes_how_much_was_omitted() -> None:
    value, notes = strict({"n": list(range(1_000)), "rest": 1}, characters=408)

    assert value == {"n": list(range(len(value["n"])))}
    left_out = 1_001 - len(value["n"])
    assert notes == (
        f"$.n[{len(value['n']) - 1}]: the result is larger than 408 characters; "
        f"{left_out} values from here on were omitted",
    )


def test_an_endless_generator_is_read_as_far_as_there_is_room() -> None:
    value, notes = strict(itertools.count(), characters=404)

    assert value == list(range(100))
    assert notes == (
        "$[99]: the result is larger than 404 characters; more values from here on were omitted",
    )


def test_a_long_text_is_truncated_with_a_note() -> None:
    value, notes = strict(["é" * 1_000, 5], characters=108)

    assert value == ["é" * 100]
    assert notes[0] == "$[0]: a text of 1,000 characters was truncated to 100"
    assert "omitted" in notes[1]


def test_a_value_of_just_the_allowed_size_is_not_cut() -> None:
    def sizes_that_fit(value: object) -> list[int]:
        limits = (SerialiseLimits(characters=size) for size in range(60))
        return [each.characters for each in limits if not to_json(value, limits=each).notes]

    walked, unchanged = sizes_that_fit({"ab": ["c", (1, 2)]}), sizes_that_fit({"ab": ["c", [1, 2]]})

    assert walked == unchanged == list(range(walked[0], 60))


def test_a_lower_limit_of_digits_that_the_tool_set_applies() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        value, notes = strict([10**1000, 10**600])
    finally:
        sys.set_int_max_str_digits(before)

    assert value == [hex(10**1000), 10**600]
    assert len(notes) == 1


def test_many_large_integers_count_by_their_digits() -> None:
    sent, _ = strict([10**4000] * 100, characters=50_000)

    assert 10 <= len(sent) <= 13


def test_notes_are_bounded_and_one_of_a_cut_is_always_among_them() -> None:
    kinds = [type(f"Kind{n}", (), {})() for n in range(50)]

    _, notes = strict(kinds)
    _, with_cut = strict(kinds, characters=1_500)

    assert len(notes) == MAX_NOTES + 1
    assert notes[0] == "$[0]: Kind0 cannot be sent as JSON; its repr was sent"
    assert notes[-1] == "and 30 more changes"
    assert "omitted" in with_cut[-2]
    assert with_cut[-1].startswith("and ")


def test_records_that_need_no_change_are_not_copied() -> None:
    clean, other = {"a": [1, {"b": None}]}, {"a": float("nan")}

    value, _ = strict([clean, other])

    assert value[0] is clean
    assert value[1] == {"a": None}


def test_a_place_quotes_odd_keys_and_cuts_long_ones() -> None:
    nan = float("nan")

    assert strict({"a b\n": nan})[1][0].startswith(r"$['a b\n']: ")
    assert len(strict({"k" * 100_000: nan})[1][0]) < 100


def test_a_dict_that_another_thread_changes_is_sent_as_it_was_at_some_moment() -> None:
    shared: dict[str, Any] = {str(n): n for n in range(1_000)}
    done = threading.Event()

    def change() -> None:
        for n in itertools.count():
            if done.is_set():
                return
            shared[f"x{n % 500}"] = n
            shared.pop(f"x{(n * 7) % 500}", None)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(50):
            to_json(shared)
            to_json([shared, ()])
    finally:
        done.set()
        thread.join()


def test_nothing_heavy_is_imported() -> None:
    script = (
        "import sys, json\n"
        "before = set(sys.modules)\n"
        "import toolkiln.runtime.serialise\n"
        "print(*set(sys.modules) - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    outside = {name for name in done.stdout.split() if not name.startswith("toolkiln")}
    assert outside <= {"__future__", "binascii"}
