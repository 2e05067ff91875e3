"""URI templates."""

from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.model.base import uri_problem, uri_values, uri_variables


@each_row(
    "template, uri, values",
    [
        ("notes://today", "notes://today", {}),
        ("notes://{name}", "notes://a", {"name": "a"}),
        ("notes://{year}/{name}", "notes://2026/a%20b", {"year": "2026", "name": "a b"}),
        ("notes://{name}.{kind}", "notes://a.tar.gz", {"name": "a", "kind": "tar.gz"}),
        ("notes://{name}", "notes://%2Fetc%2Fpasswd", {"name": "/etc/passwd"}),
        ("notes://x?q={word}", "notes://x?q=gr%C3%BC%C3%9Fe", {"word": "grüße"}),
        ("notes://[x].*{name}", "notes://[x].*1", {"name": "1"}),
    ],
)
def test_a_uri_has_the_values_of_its_template(
    template: str, uri: str, values: dict[str, str]
) -> None:
    assert uri_values(template, uri) == values


@each_row(
    "template, uri",
    [
        ("notes://today", "notes://tomorrow"),
        ("notes://{name}", "notes://"),
        ("notes://{name}", "notes://a/b"),
        ("notes://{name}", "notes://a?b"),
        ("notes://{name}", "notes://a\nb/"),
        ("notes://{name}/data", "notes://a/data/"),
        ("notes://{name}", "Notes://a"),
        ("notes://{name}", f"notes://{'a' * 5_000}"),
    ],
)
def test_a_uri_of_another_form_has_none(template: str, uri: str) -> None:
    assert uri_values(template, uri) is None


@given(st.text(min_size=1, max_size=50), st.text(min_size=1, max_size=50))
def test_escaped_values_are_unescaped(year: str, name: str) -> None:
    year, name = (text.encode("utf-8", "replace").decode() for text in (year, name))
    uri = f"notes://{quote(year, safe='')}/{quote(name, safe='')}"

    assert uri_values("notes://{year}/{name}", uri) == {"year": year, "name": name}


def test_matching_a_uri_does_not_backtrack() -> None:
    template = "x:" + "-".join(f"{{a{number}}}" for number in range(40))

    assert uri_problem(template) is None
    assert uri_values(template, "x:" + "a-" * 1_000 + "/") is None


@each_row(
    "uri, word",
    [
        ("notes://today", None),
        ("x:{a}", None),
        ("file:///{a}/{b}?c={c}#d", None),
        ("", "scheme"),
        ("today", "scheme"),
        ("notes:", "scheme"),
        ("notes://a b", "scheme"),
        ("x:" + "a" * 5_000, "scheme"),
        ("{scheme}://a", "scheme"),
        ("a{b}c://d", "scheme"),
        ("notes://{a", "{name}"),
        ("notes://{+a}", "{name}"),
        ("notes://{a,b}", "{name}"),
        ("notes://{}", "{name}"),
        ("notes://{a}{b}", "separator"),
        ("notes://{a}/{a}", "once"),
        ("toolkiln://tools/a", "reserved"),
    ],
)
def test_a_uri_or_template_is_valid_or_has_a_reason(uri: str, word: str | None) -> None:
    problem = uri_problem(uri)

    assert problem is None if word is None else word in (problem or "")


def test_variables_are_in_order() -> None:
    assert uri_variables("x:{b}/{a}") == ("b", "a")
