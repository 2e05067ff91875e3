import json
import math
from collections import OrderedDict
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from properties import examples
from tables import each_row
from toolkiln.schema.argument_problems import ArgumentProblem, unknown_tool
from toolkiln.schema.arguments import ArgumentChecker, Checked, Problems, check
from toolkiln.schema.document import JsonLimits
from toolkiln.schema.fast_check import FORMAT_PATTERNS
from toolkiln.schema.validator_options import FORMATS

from .shapes import JSON, Shape, parameters
from .specs import params, spec

CURRENCY = {"enum": ["EUR", "USD", "GBP"]}
CONVERT = spec(params(("amount", "to"), amount={"type": "number", "minimum": 0}, to=CURRENCY))


def problems(schema: Any, value: Any) -> list[tuple[str, str, str | None]]:
    found = check(spec(params(x=schema)), {"x": value})
    assert isinstance(found, Problems)
    return [(item.path, item.message, item.hint) for item in found.problems]


def coerced(schema: Any, value: Any) -> Any:
    root = {**params(x=schema), "$defs": {"Id": {"type": "string"}, "Count": {"type": "integer"}}}
    found = check(spec(root), {"x": value})
    return found.arguments["x"] if isinstance(found, Checked) else found


def test_valid_arguments_come_back_without_notes() -> None:
    sent = {"amount": 10, "to": "EUR"}

    assert check(CONVERT, sent) == Checked({"amount": 10, "to": "EUR"})


def test_a_wrong_choice_is_answered_with_the_nearest() -> None:
    assert check(CONVERT, {"amount": 10, "to": "EURO"}) == Problems(
        (
            ArgumentProblem(
                "/to", "to: 'EURO' is not one of 'EUR', 'USD', 'GBP'", "did you mean 'EUR'?"
            ),
        )
    )


def test_all_problems_are_reported_at_once() -> None:
    found = check(CONVERT, {"amout": 1, "amount": -1})

    assert isinstance(found, Problems)
    assert sorted((p.message, p.hint) for p in found.problems) == [
        ("amount: -1 is less than 0, the smallest allowed", None),
        ("amout: is not a known parameter", "did you mean 'amount'?"),
        ("to: is required, but missing", None),
    ]


def test_a_long_list_of_problems_says_that_it_was_cut() -> None:
    found = problems({"type": "array", "items": {"type": "integer"}}, ["x"] * 200)

    assert len(found) == 51
    assert found[-1][1] == "arguments: only the first 50 problems are listed"


def test_an_unknown_tool_is_answered_with_the_nearest() -> None:
    found = unknown_tool("convrt", ["convert", "search"])

    assert found == ArgumentProblem(
        "", "there is no tool named 'convrt'", "did you mean 'convert'?"
    )


@each_row(
    "schema, value, message",
    [
        ({"type": "integer"}, "x", "x: 'x' is not an integer"),
        ({"type": ["integer", "null"]}, [], "x: [] is not an integer or null"),
        ({"type": "string", "minLength": 3}, "ab", "x: 'ab' is shorter than 3 characters"),
        ({"type": "array", "maxItems": 1}, [1, 2], "x: has more than 1 items"),
        ({"type": "number", "multipleOf": 5}, 3, "x: 3 is not a multiple of 5"),
        ({"type": "string", "pattern": "^a"}, "b", "x: 'b' does not match the pattern '^a'"),
        ({"type": "string", "format": "date"}, "b", "x: 'b' is not a valid date"),
        ({"const": "a"}, 1, "x: 1 is not 'a'"),
        ({"type": "array", "uniqueItems": True}, [1, 1], "x: has duplicate items"),
        (
            {"type": "array", "items": {"type": "object", "required": ["a b"]}},
            [{}],
            "x[0]['a b']: is required, but missing",
        ),
        (
            {"anyOf": [{"type": "integer"}, {"type": "array"}, {"type": "null"}]},
            "y",
            "x: 'y' is not an integer, an array or null",
        ),
        (
            {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
            ["y"],
            "x[0]: 'y' is not an integer",
        ),
        (
            {"anyOf": [{"const": "a"}, {"enum": ["b", "c"]}]},
            "z",
            "x: 'z' is not one of 'a', 'b', 'c'",
        ),
        (
            {"type": "object", "propertyNames": {"maxLength": 1}},
            {"ab": 1},
            "x: a key is not allowed: 'ab' is longer than 1 characters",
        ),
    ],
)
def test_problems_are_one_short_sentence(schema: Any, value: Any, message: str) -> None:
    assert [said for _, said, _ in problems(schema, value)] == [message]


def test_the_matching_branch_of_a_tagged_union_is_explained() -> None:
    cat = params(("kind",), kind={"const": "cat"}, lives={"type": "integer"})
    dog = params(("kind",), kind={"const": "dog"}, name={"type": "string"})
    schema = {"oneOf": [cat, dog]}

    assert problems(schema, {"kind": "dgo"}) == [
        ("/x/kind", "x.kind: 'dgo' is not one of 'cat', 'dog'", "did you mean 'dog'?")
    ]
    assert problems(schema, {"kind": "dog", "nam": "Rex"}) == [
        ("/x/nam", "x.nam: is not a known property", "did you mean 'name'?")
    ]


@each_row(
    "schema, value, expected",
    [
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
        ({"type": "array", "items": {"type": "integer"}}, ["1"], [1]),
        ({"type": "integer"}, "5", 5),
        ({"type": "boolean"}, "true", True),
        ({"type": ["integer", "null"]}, "null", None),
        ({"anyOf": [{"$ref": "#/$defs/Count"}, {"type": "null"}]}, "7", 7),
        ({"enum": [1, 2]}, "2", 2),
        ({"const": 1}, "1", 1),
        ({"allOf": [{"type": "integer"}]}, "1", 1),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, '{"a": "1"}', {"a": 1}),
        (
            {"anyOf": [{"type": "null"}, params(("n",), n={"type": "integer"})]},
            {"n": "5"},
            {"n": 5},
        ),
        ({"type": "array", "prefixItems": [{"type": "integer"}]}, ["5"], [5]),
    ],
)
def test_json_text_is_parsed_where_strings_are_excluded(
    schema: Any, value: Any, expected: Any
) -> None:
    assert coerced(schema, value) == expected


@each_row(
    "schema",
    [
        {},
        {"type": "string"},
        {"type": ["integer", "string"]},
        {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/Id"}]},
        {"enum": [5, "5"]},
        {"oneOf": [{"type": "array"}, {"type": "string", "pattern": "5"}]},
        {"type": "string", "format": "json-string"},
    ],
)
def test_json_text_stays_text_where_a_string_is_acceptable(schema: Any) -> None:
    assert coerced(schema, "5") == "5"


def test_a_string_that_is_merely_a_wrong_string_is_not_parsed() -> None:
    schema = {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 0}]}

    assert isinstance(coerced(schema, "5"), Problems)


def test_every_coercion_is_noted() -> None:
    found = check(spec(params(a={"type": "integer"}, b={"type": "array"})), '{"a": "1", "b": []}')

    assert found == Checked(
        {"a": 1, "b": []},
        ("arguments: JSON text was parsed", "a: JSON text in a string was parsed"),
    )


@each_row("sent", ["", b"", "  ", "{}", b"{}", bytearray(b"{}")])
def test_text_without_arguments_means_none(sent: Any) -> None:
    found = check(spec(params()), sent)

    assert isinstance(found, Checked)
    assert found.arguments == {}
    assert found.notes


def _deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def _circular() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@each_row(
    "value, path, word",
    [
        (math.nan, "/x", "nan is not a JSON number"),
        ([math.inf], "/x/0", "inf is not a JSON number"),
        ("\ud800", "/x", "lone surrogate"),
        ({"\ud800": 1}, "/x", "lone surrogate"),
        ({1: 2}, "/x", "the key 1 is not a string"),
        (datetime(2024, 1, 1), "/x", "Python datetime"),
        ({"a": uuid4()}, "/x/a", "Python UUID"),
        (b"x", "/x", "Python bytes"),
        ({1, 2}, "/x", "Python set"),
        (object(), "/x", "Python object"),
        (_circular(), "/x/0", "contains itself"),
        (_deep(64), None, "deeper than 64"),
        (_deep(100_000), None, "deeper than 64"),
        ("x" * 1_000_001, "/x", "longer than 1,000,000 characters"),
        ([0] * 100_001, "/x", "more than 100,000 members"),
        (["x" * 900_000] * 5, "", "larger than 4,000,000 bytes"),
        (10**5000, "/x", "thousands of digits"),
    ],
)
def test_what_is_not_json_or_too_big_is_a_problem(value: Any, path: str | None, word: str) -> None:
    ((found_path, message, _),) = problems({}, value)

    assert path is None or found_path == path
    assert word in message


@each_row(
    "sent", [None, 5, [], "[]", "null", "{", "nope", b"\xff", '"\\ud800"', "[" * 100_000, object()]
)
def test_what_is_not_an_object_is_a_problem(sent: Any) -> None:
    found = check(CONVERT, sent)

    assert isinstance(found, Problems)
    assert found.problems[0].path == ""


def test_deep_json_text_in_a_string_is_left_alone() -> None:
    found = check(spec(params(x={"type": "array"})), {"x": "[" * 500 + "]" * 500})

    assert isinstance(found, Problems)


def test_sizes_can_be_chosen() -> None:
    checker = ArgumentChecker(params(x={}), JsonLimits(depth=2, string_length=3, items=2))

    assert isinstance(checker.check({"x": [1, "abc"]}), Checked)
    for value in ([[1]], "abcd", [1, 2, 3]):
        assert isinstance(checker.check({"x": value}), Problems)


def test_an_invalid_schema_is_a_problem_and_not_an_exception() -> None:
    found = check(spec(params(x={"$ref": "http://example.com/"})), {})

    assert isinstance(found, Problems)
    assert "schema is invalid at /properties/x" in found.problems[0].message


def test_an_unknown_member_below_an_empty_name_is_a_problem() -> None:
    either = {"anyOf": [params(p={"type": "integer"}), {"type": "integer"}]}

    found = check(spec({"type": "object", "properties": {"": either}}), {"": {"q": None}})

    assert isinstance(found, Problems)


def test_what_was_checked_is_a_copy() -> None:
    sent = {"x": ["a"]}
    found = check(spec(params(x={"type": "array", "items": {"type": "string"}})), sent)
    sent["x"].append("b")

    assert found == Checked({"x": ["a"]})


def test_specs_with_equal_digests_are_not_confused() -> None:
    for kind, value in (("integer", 1), ("string", "a"), ("integer", 2)):
        assert isinstance(check(spec(params(x={"type": kind})), {"x": value}), Checked)


def test_many_specs_can_be_checked() -> None:
    for number in range(1100):
        assert isinstance(check(spec(params(x={"const": number})), {"x": number}), Checked)


@examples(150, suppress_health_check=list(HealthCheck))
@given(shape=parameters(), data=st.data())
def test_accepted_arguments_come_back_equal(shape: Shape, data: st.DataObject) -> None:
    value = data.draw(shape.values)
    assume(jsonschema_rs.Draft202012Validator(shape.schema, offline=True).is_valid(value))

    assert check(spec(shape.schema), value) == Checked(value)


@examples(250, suppress_health_check=list(HealthCheck))
@given(shape=parameters(), data=st.data())
def test_made_up_arguments_never_raise_and_are_checked_truly(
    shape: Shape, data: st.DataObject
) -> None:
    names = shape.schema.get("properties", {})
    value = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(names, JSON)))

    found = check(spec(shape.schema), value)

    if isinstance(found, Checked):
        assert jsonschema_rs.is_valid(shape.schema, found.arguments)
        assert found.notes or found.arguments == value
    else:
        assert all(item.message and len(item.message) < 1200 for item in found.problems)


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):
    pass


class Letter(StrEnum):
    A = "a"


class Mixed(str, Enum):  # noqa: UP042
    A = "a"


class Digit(IntEnum):
    ONE = 1


class Members(dict[Any, Any]):
    def __len__(self) -> int:
        return 1


class Floating:
    def __float__(self) -> float:
        return 1.0

    def __index__(self) -> int:
        return 1


class Pretender:
    """Equal to every string, and found in the place of "a"."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("a")


class Unfriendly(list[Any]):
    def __iter__(self) -> Any:
        return iter((object(),))


HUGE = "😀" * 300_000
"""A text whose characters are within the default limits, while its bytes exceed the first one."""
# Strings, numbers and containers at every edge, and what Python takes for one of them.
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 10, 1.0, 1.5, -0.0, 2**53, 2**53 + 1, 2**63, 2**63 + 1),
    *(2**64, 10**400, 10**5000, 1e308, 5e-324, math.nan, math.inf, -math.inf),
    *("", "a", "b", "ab", "abc", "12345", "12345\n", "١٢٣٤٥", "a-b", "A_1", "é", "😀", "\0"),
    *("\ud800", "a\udfff", "x" * 5_000, HUGE, "1", "null", "[1]"),
    *(Text("a"), Text("\ud800"), Letter.A, Mixed.A, Digit.ONE, Whole(1), Real(1.5), Real("nan")),
    *(Decimal(1), Fraction(1, 2), 1j, Floating(), Pretender(), object(), b"a", bytearray(b"a")),
    *(datetime(2024, 1, 1), uuid4(), ..., NotImplemented, str, range(2), iter("a")),
    *([], ["a"], ["a", "b"], [1], [1.0], [True], [None], ["a"] * 31, ["a"] * 32, ["\ud800"]),
    *([math.nan], ("a",), {"a"}, frozenset("a"), Unfriendly("a"), [["a"]], [("a",)], [{}]),
    *({}, {"a": "a"}, {"a": 1}, {"a": True}, {"a": None}, {"a": math.inf}, {"a": "a", "z": 1}),
    *({"z": 1}, {"z": b""}, {1: "a"}, {None: 1}, {b"a": 1}, {"\ud800": "a"}, {"a": "\ud800"}),
    *({Text("a"): "a"}, {Letter.A: "a"}, {Pretender(): "a"}, {"a": "a", 1: 1}, {"a": {"a": "a"}}),
    *(OrderedDict(a="a"), Members(a="a", z=1), MappingProxyType({"a": "a"}), {}.keys()),
    *(_circular(), _deep(3), _deep(100)),
]
SCHEMAS: list[Any] = [
    *({}, True, False, {"title": "x"}, {"type": "string"}, {"type": "string", "minLength": 2}),
    *({"type": "string", "maxLength": 2}, {"type": "string", "minLength": 2, "maxLength": 1.0}),
    *({"type": "string", "enum": ["a", "b"]}, {"type": "string", "enum": ["a", 1]}),
    *({"type": "string", "enum": [1]}, {"type": "string", "enum": ["ab"], "maxLength": 1}),
    *({"enum": ["a", 1]}, {"enum": [1]}, {"enum": [True]}, {"const": "a"}, {"const": 0}),
    *({"type": "string", "const": "a"}, {"type": "string", "format": "date"}),
    *({"type": "string", "pattern": p} for p in (r"^\d{5}$", "^[a-z_-]+$", r"[\d]", "b?", "^.$")),
    *({"type": "string", "pattern": p} for p in (r"^\w$", r"\s", "^(a|b)$", "(?=a)", "^[^a]$")),
    *({"type": "string", "pattern": p} for p in (r"^\D", "a{0,1}$", "[A-Z][a-z]*", "^$", "-")),
    *({"type": kind} for kind in ("integer", "number", "boolean", "null", "array", "object")),
    *({"type": kind, "minimum": 1} for kind in ("integer", "number")),
    *({"type": kind, "maximum": 1.5} for kind in ("integer", "number")),
    *({"type": kind, "exclusiveMinimum": 1, "maximum": 2} for kind in ("integer", "number")),
    *({"type": kind, "exclusiveMaximum": 2**63} for kind in ("integer", "number")),
    *(
        {"type": "number", "minimum": 0, "exclusiveMinimum": 0},
        {"type": "integer", "multipleOf": 2},
    ),
    *({"type": ["string", "null"]}, {"type": ["string", "null"], "maxLength": 1}),
    *({"type": "array", "items": items} for items in ({"type": "string"}, {}, False)),
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1},
    {"type": "array", "minItems": 40},
    *({"type": "array", "uniqueItems": True}, {"type": "array", "prefixItems": [{"const": 1}]}),
    *({"type": "object", "additionalProperties": more} for more in ({"type": "string"}, False)),
    *({"type": "object", "required": ["a"]}, {"type": "object", "maxProperties": 1}),
    {"type": "object", "propertyNames": {"const": "a"}},
    {"type": "object", "patternProperties": {"a": {"type": "integer"}}},
    *({"type": "object", "properties": {"a": inner}} for inner in ({}, {"type": "string"}, False)),
    {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    {"properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]},
    {"type": "object", "properties": {"a": {}}, "dependentRequired": {"a": ["b"]}},
    {"type": "object", "properties": {"a": {"$ref": "#/properties/x"}}},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}], "not": {"const": "a"}},
    {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "integer"}}]},
    {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    {"allOf": [{"type": "string"}, {"minLength": 2}]},
    {"type": "string", "not": {"const": "a"}},
    {"type": "string", "if": {"const": "a"}, "then": False},
    {"$ref": "#/$defs/Text"},
    {"$ref": "#/$defs/Text", "minLength": 2},
    {"$ref": "#/$defs/Tree"},
]
DEFS = {
    "Text": {"type": "string", "maxLength": 3},
    "Tree": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
}
SLOW = JsonLimits(depth=19)
"""Too shallow for a shape to be made, and deep enough for everything here."""
TENTH = JsonLimits(string_length=100_000, items=10_000, total_bytes=400_000)
"""A tenth of the default limits: a tenth of `HUGE` takes the same path there, in less time."""


def outcome(checker: ArgumentChecker, sent: Any) -> str:
    found = checker.check(sent)
    if isinstance(found, Problems):
        return "problems"
    assert is_plain(found.arguments)
    return json.dumps([found.arguments, found.notes], sort_keys=True)


def is_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    if type(value) is list:
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


@each_row(
    "schema, closed",
    [*((schema, True) for schema in SCHEMAS), *((schema, False) for schema in SCHEMAS[::8])],
    batches=4,
)
def test_the_fast_path_says_what_the_slow_path_says(schema: Any, closed: bool) -> None:
    root = {**params(x=schema), "$defs": DEFS, "additionalProperties": not closed}
    usual = ArgumentChecker(root), ArgumentChecker(root, SLOW)
    tenth = ArgumentChecker(root, TENTH), ArgumentChecker(root, replace(TENTH, depth=16))

    for value in VALUES:
        (fast, slow), value = (tenth, value[:30_000]) if value is HUGE else (usual, value)
        for sent in ({"x": value}, {"x": value, "y": value}, {"x": value, 1: 2}):
            assert outcome(fast, sent) == outcome(slow, sent), value


def test_the_fast_path_says_what_the_slow_path_says_of_whole_arguments() -> None:
    root = params(("a",), a={"type": "string"}, z={})
    fast, slow = ArgumentChecker(root), ArgumentChecker(root, SLOW)

    for sent in VALUES:
        assert outcome(fast, sent) == outcome(slow, sent)


def test_small_parts_that_add_up_are_measured() -> None:
    rows = {"type": "array", "items": {"type": "string"}}
    checker = ArgumentChecker(params(x=rows), JsonLimits(total_bytes=100_000))

    for length in (10, 250, 500, 600, 1_500):
        sent = {"x": ["\0" * length] * 31}
        fits = len(json.dumps(sent, separators=(",", ":"))) <= 100_000
        assert isinstance(checker.check(sent), Checked) == fits


@st.composite
def spoiled(draw: st.DrawFn, value: Any) -> Any:
    """A value with something foreign in one place."""
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(list(value)))
        return {**value, key: draw(spoiled(value[key]))}
    if isinstance(value, list) and value and draw(st.integers(0, 5)):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], draw(spoiled(value[index])), *value[index + 1 :]]
    return draw(st.sampled_from(VALUES) | JSON)


@examples(250, deadline=None, suppress_health_check=list(HealthCheck))
@given(shape=parameters(), data=st.data())
def test_made_up_schemas_are_checked_alike_on_both_paths(shape: Shape, data: st.DataObject) -> None:
    fast, slow = ArgumentChecker(shape.schema), ArgumentChecker(shape.schema, SLOW)

    for _ in range(3):
        value = data.draw(shape.values)
        for sent in (value, data.draw(spoiled(value))):
            assert outcome(fast, sent) == outcome(slow, sent)


ACCEPTED = {
    "date-time": [
        "2024-01-01T10:00:00Z", "2024-01-01T10:00:00", "2024-01-01 10:00", "2024-01-01",
        "2024-01-01t10:00:00.123456+02:00",
    ],
    "date": ["2024-02-29", "2024-02-29T00:00:00"],
    "time": ["10:00", "10:00:00.5Z"],
    "duration": ["P1DT2H", "-PT0.5S", "12:30:00"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000"],
    "email": ["a@example.com"],
    "uri": ["https://example.com/a?b=c#d", "urn:isbn:1"],
    "ipv4": ["127.0.0.1"],
    "ipv6": ["::1"],
    "ipvanyaddress": ["::1"],
    "ipv4network": ["10.0.0.0/8"],
    "hostname": ["example.com"],
    "regex": [r"(?P<a>x)\Z"],
    **{
        name: ["anything at all"]
        for name in (
            "path", "binary", "json-string", "password", "base64", "zip", "base64url", "file-path",
        )
    },
}  # fmt: skip
REJECTED = {
    "date-time": ["tomorrow", "2024-13-01T10:00:00Z", "20240101"],
    "date": ["2023-02-29", "2024-02-29T01:00:00"],
    "time": ["25:00", "10"],
    "duration": ["P", "soon"],
    "uuid": ["123"],
    "email": ["a.example.com"],
    "uri": ["example.com/x"],
    "ipv4": ["256.0.0.1"],
    "ipv6": ["1.2.3.4"],
    "hostname": ["-x-"],
    "regex": ["("],
}


@each_row("name, text", [(name, text) for name, texts in ACCEPTED.items() for text in texts])
def test_formats_accept_what_tools_accept(name: str, text: str) -> None:
    tool = spec(params(x={"type": "string", "format": name}))

    assert check(tool, {"x": text}) == Checked({"x": text})


@each_row("name, text", [(name, text) for name, texts in REJECTED.items() for text in texts])
def test_formats_reject_other_texts(name: str, text: str) -> None:
    found = check(spec(params(x={"type": "string", "format": name})), {"x": text})

    assert isinstance(found, Problems)
    assert found.problems[0].message == f"x: {text!r} is not a valid {name}"


@each_row(
    "name, kind, values",
    [
        ("date-time", datetime, st.datetimes(timezones=st.none() | st.timezones())),
        ("date", date, st.dates()),
        ("time", time, st.times()),
        ("duration", timedelta, st.timedeltas(timedelta(-9999), timedelta(9999))),
    ],
)
def test_formats_accept_what_pydantic_writes(name: str, kind: Any, values: Any) -> None:
    adapter = TypeAdapter(kind)

    @given(values)
    def agrees(value: Any) -> None:
        assert FORMATS[name](adapter.dump_python(value, mode="json"))

    agrees()


@given(st.text())
def test_formats_never_raise(text: str) -> None:
    for accepts in FORMATS.values():
        assert accepts(text) in (True, False)


@pytest.mark.parametrize("name", FORMAT_PATTERNS)
@given(data=st.data())
def test_fast_check_is_narrower_than_the_format(name: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(FORMAT_PATTERNS[name], fullmatch=True))

    assert FORMATS[name](text)
