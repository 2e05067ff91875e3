"""The long description assembled from documentation."""

import pytest

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


@pytest.mark.parametrize(
    ("titles", "shown"),
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


def test_fallback_stands_in_for_a_missing_text() -> None:
    assert detailed_description(Documentation(), "Run it.") == "Run it."
    assert detailed_description(Documentation(examples="f()"), "") == "**Examples**\n```\nf()\n```"


def test_examples_that_bring_their_own_fence_are_left_alone() -> None:
    documentation = Documentation(text="Do it.", examples="```python\nf()\n```")

    assert detailed_description(documentation, "") == (
        "Do it.\n\n**Examples**\n```python\nf()\n```"
    )
