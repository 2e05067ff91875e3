"""Long descriptions assembled from documentation, and URI templates."""

from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.model.base import uri_problem, uri_values, uri_variables
from toolkiln.model.spec import DocstringSection, Documentation, ParameterDoc, detailed_description


def sections(*titles: str) -> Documentation:
    return Documentation(
        text="Do it.",
        sections=tuple(DocstringSection(title=title, body=f"({title})") for title in titles),
    )


def test_parts_come_once_each_in_a_fixed_order() -> None:
    documentation = Documentation(
        text="Do it.",
        sections=(
            DocstringSection(title="Key differences", body="Faster than y."),
            DocstringSection(title="See Also", body="y"),
            DocstringSection(title="Use cases", body="- one\n- two"),
            DocstringSection(title="When to use", body="Often."),
            DocstringSection(title="Important", body="Never twice."),
            DocstringSection(title="Warning", body="It is slow."),
        ),
        parameters=(
            ParameterDoc(name="a", text="One of:\n- x\n- y"),
            ParameterDoc(name="b", text=""),
        ),
        examples=">>> f()",
    )

    assert detailed_description(documentation, "Fallback.") == (
        "Do it.\n\n"
        "**Important**\nNever twice.\n\n"
        "**Use cases**\n- one\n- two\n\n"
        "**Key differences**\nFaster than y.\n\n"
        "**Parameters**\n- a: One of:\n  - x\n  - y\n- b\n\n"
        "**Examples**\n```\n>>> f()\n```"
    )


@each_row(
    "titles, shown",
    [
        (["Important Note"], ["Important Note"]),
        (["WARNING"], ["WARNING"]),
        (["⚠️ Security warning!"], ["⚠️ Security warning!"]),
        (["Note", "Caution"], ["Caution"]),
        (["Notes"], ["Notes"]),
        (["When To Use"], ["When To Use"]),
        (["When to use this tool"], ["When to use this tool"]),
        (["Use this when"], ["Use this when"]),
        (["Usage notes", "Note"], ["Note", "Usage notes"]),
        (["Difference from X"], ["Difference from X"]),
        (["Important differences", "Important"], ["Important", "Important differences"]),
        (["When NOT to use"], ["When NOT to use"]),
        (["grep vs. find"], ["grep vs. find"]),
        (["Footnotes", "Reuse cases", "Unimportant", "Todo"], []),
    ],
)
def test_sections_are_known_by_the_words_of_their_title(
    titles: list[str], shown: list[str]
) -> None:
    text = detailed_description(sections(*titles), "")

    assert text == "\n\n".join(["Do it.", *(f"**{title}**\n({title})" for title in shown)])


def test_the_fallback_replaces_a_missing_text() -> None:
    assert detailed_description(Documentation(), "Run it.") == "Run it."
    assert detailed_description(Documentation(examples="f()"), "") == "**Examples**\n```\nf()\n```"


def test_examples_that_bring_their_own_fence_are_left_alone() -> None:
    documentation = Documentation(text="Do it.", examples="```python\nf()\n```")

    assert detailed_description(documentation, "") == (
        "Do it.\n\n**Examples**\n```python\nf()\n```"
    )


# URIs


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
