"""The form that is made from a schema: what it judges, what it sends, what it shows."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from toolkiln.schema.arguments import ArgumentChecker, Checked

from .site import Look, Site

KINDS = '''
import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field


class Cat(BaseModel):
    kind: Literal["cat"]
    name: str
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str
    tricks: list[str] = []


class Place(BaseModel):
    street: str
    inside: "Place | None" = None


def order(
    count: Annotated[int, Field(ge=1, le=2**53 + 1)],
    when: datetime.date,
    mode: Literal["fast", "slow"],
    pet: Annotated[Cat | Dog, Field(discriminator="kind")],
    stops: list[Place],
    prices: dict[str, float],
    code: Annotated[str, Field(pattern="(?i)^[a-z]+$")] = "abc",
    note: str | None = "none",
    anything: object = None,
    constructor: str = "new",
) -> str:
    """Order something.

    Args:
        count: How many are wanted.
    """
    return "ordered"


def nothing() -> str:
    """Do nothing."""
    return "nothing"
'''
REQUIRED = {
    "count": 1,
    "when": "2026-01-31",
    "mode": "fast",
    "stops": [],
    "prices": {},
    "pet": {"kind": "cat", "name": "Tom"},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("form"), {"order.py": KINDS})
    with site.running():
        yield site


def entry(page: Page, name: str) -> Any:
    """The part of the form that is about one parameter."""
    return page.locator(".entry", has=page.locator(f".entry-name:text-is('{name}')")).last


def sent(page: Page) -> dict[str, Any]:
    """Run the tool, and what was sent as its arguments."""
    with page.expect_request("**/call") as asked:
        page.keyboard.press("Control+Enter")
    body: dict[str, Any] = json.loads(asked.value.post_data or "")
    arguments: dict[str, Any] = body["arguments"]
    expect(page.get_by_role("region", name="Result")).to_be_visible()
    return arguments


def test_a_form_sends_what_it_shows_and_fits_a_narrow_screen(look: Look) -> None:
    view = look("/tools/order")
    page, run = view.page, view.page.get_by_role("button", name="Run")
    expect(run).to_be_disabled()
    view.check_access()

    count = entry(page, "count").get_by_role("textbox")
    count.fill("many")
    expect(count).to_have_attribute("aria-invalid", "true")
    expect(count).to_have_accessible_description(
        "How many are wanted. At least 1, at most 9007199254740993. Is not a number"
    )
    count.fill("9007199254740993")
    expect(entry(page, "count")).to_contain_text("sent exactly as you typed")
    entry(page, "when").locator("input").fill("2026-01-31")
    page.get_by_role("button", name="enter it as text").click()
    page.keyboard.press("End")
    page.keyboard.type("T00:00")
    page.get_by_role("radio", name="slow").check()
    entry(page, "name").get_by_role("textbox").fill("Rex")
    page.get_by_label("Kind of pet").select_option("dog")
    expect(entry(page, "name").get_by_role("textbox")).to_have_value("Rex")
    for street in ("First", "Second"):
        page.get_by_role("button", name="Add item to stops").click()
        page.keyboard.type(street)
    page.get_by_role("button", name="Move item 2 up").click()
    page.get_by_role("button", name="Add entry").click()
    page.keyboard.press("Control+A")
    page.keyboard.type("pear")
    page.get_by_label("Value of pear").fill("1.50")
    entry(page, "note").get_by_role("radio", name="null").check()
    page.set_viewport_size({"width": 360, "height": 740})

    expect(run).to_be_enabled()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert sent(page) == {
        "count": 9007199254740993,
        "when": "2026-01-31T00:00",
        "mode": "slow",
        "pet": {"kind": "dog", "name": "Rex"},
        "stops": [{"street": "Second"}, {"street": "First"}],
        "prices": {"pear": 1.5},
        "note": None,
    }
    expect(page.get_by_role("region", name="Result")).to_contain_text("Done")


def test_left_out_null_and_given_are_three_things(look: Look) -> None:
    page = look("/tools/order").page
    page.get_by_role("tab", name="JSON").click()
    text = page.get_by_label("Arguments as JSON")
    text.fill(json.dumps(REQUIRED))
    page.get_by_role("tab", name="Form").click()
    note = entry(page, "note")

    assert "note" not in sent(page)
    note.get_by_role("textbox").fill("some")
    expect(note.get_by_role("radio", name="value")).to_be_checked()
    assert sent(page)["note"] == "some"
    note.get_by_role("radio", name="null").check()
    assert sent(page)["note"] is None
    note.get_by_role("radio", name="value").check()
    note.get_by_role("textbox").fill("")
    expect(note).to_contain_text("An empty text is sent.")
    assert sent(page)["note"] == ""
    note.get_by_role("radio", name="default").check()
    assert sent(page) == REQUIRED


def test_text_that_is_no_json_is_kept_with_the_place_of_its_error(look: Look) -> None:
    page = look("/tools/order").page
    page.get_by_role("tab", name="JSON").click()
    text = page.get_by_label("Arguments as JSON")

    text.fill('{"count": 1,\n "pet": }')

    expect(page.get_by_text("Line 2, column 9")).to_be_visible()
    expect(page.get_by_role("button", name="Run")).to_be_disabled()
    page.get_by_role("tab", name="Form").click()
    expect(text).to_have_value('{"count": 1,\n "pet": }')
    text.fill('{"count": 0, "other": 12345678901234567890}')
    expect(page.locator(".json-text .problem")).to_contain_text("count is less than 1")
    expect(page.locator(".json-text .problem")).to_contain_text("other is not a known property")
    page.get_by_role("tab", name="Form").click()
    expect(page.get_by_label("Value of other")).to_have_value("12345678901234567890")
    page.get_by_role("button", name="Remove other").click()
    expect(entry(page, "count")).to_contain_text("Is less than 1")


def test_what_only_the_server_can_judge_is_shown_at_its_field(look: Look) -> None:
    page = look("/tools/order").page
    page.get_by_role("tab", name="JSON").click()
    page.get_by_label("Arguments as JSON").fill(json.dumps({**REQUIRED, "code": "12"}))
    page.get_by_role("tab", name="Form").click()

    sent(page)

    code = entry(page, "code")
    expect(code.locator(".problem")).to_contain_text("does not match the pattern")
    expect(page.get_by_role("region", name="Result")).to_contain_text("Arguments refused")
    code.get_by_role("textbox").fill("ab")
    expect(code.locator(".problem")).to_have_count(0)


def test_a_tool_without_parameters_can_be_run_at_once(look: Look) -> None:
    page = look("/tools/nothing", viewport={"width": 360, "height": 740}).page
    expect(page.get_by_text("This tool takes no arguments.")).to_be_visible()

    page.get_by_role("button", name="Run").click()

    expect(page.get_by_role("region", name="Result")).to_contain_text("nothing")


_NODE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "inner": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
    },
    "required": ["name"],
}
_TAGGED = [
    {"type": "object", "properties": {"kind": {"const": kind}, name: {"type": type_}},
     "required": ["kind", name]}
    for kind, name, type_ in (("cat", "lives", "integer"), ("dog", "name", "string"))
]  # fmt: skip
JUDGED: list[Any] = [
    {"type": "integer"},
    {"type": "integer", "minimum": 1, "maximum": 9},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"maximum": 2**64},
    {"type": "integer", "multipleOf": 5},
    {"type": "string", "minLength": 2, "maxLength": 3},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "time"},
    {"type": "string", "format": "duration"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "email"},
    {"type": "string", "format": "uri"},
    {"type": "string", "format": "ipv4"},
    {"enum": ["fast", 3, None, 1.0, [1], {"a": 1}]},
    {"const": 1},
    {"type": ["boolean", "null"]},
    {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
    {"type": "array", "uniqueItems": True},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "number"}, "maxProperties": 1},
    {
        "anyOf": [
            {"type": "integer"},
            {"type": "array", "items": {"type": "integer"}},
            {"type": "null"},
        ]
    },
    {"oneOf": _TAGGED, "discriminator": {"propertyName": "kind"}},
    {"allOf": [{"type": "integer"}, {"minimum": 2}]},
    {"$ref": "#/$defs/Node"},
    {},
]
"""Schemas of which the form sees every violation in `VALUES`."""
LEFT: list[Any] = [
    {"type": "string", "format": "date"},
    {"type": "string", "pattern": "^[a-z]+$"},
    {"pattern": "^a.b$"},
    {"pattern": "(?i)^A$"},
    {"pattern": "^(a+)+$"},
    {"multipleOf": 0.1},
    {"type": "string", "format": "ipv6"},
    {"type": "string", "format": "byte"},
    {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False},
    {"propertyNames": {"pattern": "^a"}},
    {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 3}]},
    {"not": {"type": "string"}},
    {"if": {"type": "string"}, "then": {"minLength": 3}},
]
"""Schemas that are left to the server in part."""
VALUES: list[Any] = [
    None, True, False, 0, 1, 1.0, 2, 3, 5, 9, 10, -1, 0.5, 0.3, 19.9,
    2**53 + 1, 2**64, 2**64 + 1, -(2**70), 1e300,
    "", "a", "ab", "abc", "abcd", "A", "é", "😀", "😀😀", "a\rb", "aXb", "fast", "1",
    "2026-01-31", "2026-02-30", "2026-1-1", "20260131", "2026-01-31T00:00:00", "2026-01-31T09:30",
    "2026-01-31 09:30:00.5+02:00", "2026-01-31t09:30z", "2026-01-31T25:00", "2026-01-31_09:30",
    "09:30", "9:30", "09:30:61", "T09:30", "0930", "12:00Z",
    "PT1H", "P1D", "P", "1:30:00", "1 day, 2:00",
    "12345678-1234-5678-1234-567812345678", "{12345678123456781234567812345678}", "1234",
    "urn:uuid:12345678-1234-5678-1234-567812345678",
    "a@b.c", "a@b", "http://x", " x:y ",
    "1.2.3.4", "01.2.3.4", "256.1.1.1", "::1", "YQ==", "YQ",
    [], [1], [1, 2], [1, 2, 3], [1, 1.0], [1, True],
    ["a"], [1, "a"], ["a", 1], [1, "a", 2], [{"a": 1}, {"a": 1.0}],
    {}, {"a": 1}, {"a": "x"}, {"a": 1.5, "b": 2}, {"b": 1},
    {"kind": "cat"}, {"kind": "cat", "lives": 3}, {"kind": "cow"},
    {"kind": "dog", "name": "x"}, {"kind": "dog", "lives": 3}, {"__proto__": 1}, {"toString": 1},
    {"name": "x", "inner": [{"name": "y", "inner": []}]}, {"name": "x", "inner": [{"inner": []}]},
]  # fmt: skip
_CHECK = """async ([schemas, values]) => {
  const base = document.querySelector("script[type=module]").src;
  const { check } = await import(new URL("form/check.js", base));
  const { parse } = await import(new URL("form/json.js", base));
  const isTaken = (root) => (value) => check(root, { x: value }).length === 0;
  return schemas.map((schema) => parse(values).map(isTaken(parse(schema))));
}"""


def _root(schema: Any) -> dict[str, Any]:
    described = {"x": schema}
    return {"type": "object", "properties": described, "required": ["x"], "$defs": {"Node": _NODE}}


def test_the_form_refuses_nothing_that_the_server_takes(look: Look) -> None:
    schemas = [_root(schema) for schema in (*JUDGED, *LEFT)]
    page = look("/tools/nothing").page

    taken = page.evaluate(_CHECK, [[json.dumps(root) for root in schemas], json.dumps(VALUES)])

    refused, missed = [], []
    for place, (root, verdicts) in enumerate(zip(schemas, taken, strict=True)):
        checker = ArgumentChecker(root)
        for value, is_taken in zip(VALUES, verdicts, strict=True):
            checked = checker.check({"x": value})
            # Text that the server would take for a number is for models, not for forms.
            is_valid = isinstance(checked, Checked) and not checked.notes
            if is_valid and not is_taken:
                refused.append((root["properties"], value))
            if is_taken and not is_valid and place < len(JUDGED):
                missed.append((root["properties"], value))
    assert refused == []
    assert missed == []
