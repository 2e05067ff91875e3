"""Docstrings into blocks."""

from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.docs import blocks
from toolkiln.docs.blocks import (
    Block,
    Bullets,
    CodeBlock,
    CodeSpan,
    Paragraph,
    Strong,
    TextSpan,
    paragraph,
)


def bullets(*items: str, ordered: bool = False) -> Bullets:
    return Bullets(tuple((paragraph(item),) for item in items), ordered)


@each_row(
    "text, expected",
    [
        ("", ()),
        (" \n\t\n", ()),
        ("one\ntwo\n\nthree", (paragraph("one two"), paragraph("three"))),
        ("- a\n- b", (bullets("a", "b"),)),
        ("so:\n* a\n  more\n* b\nend", (paragraph("so:"), bullets("a more", "b end"))),
        ("1. a\n2. b", (bullets("a", "b", ordered=True),)),
        ("- a\n\nend", (bullets("a"), paragraph("end"))),
        ("- a\n\n- b", (bullets("a", "b"),)),
        ("- a\n1. b", (bullets("a"), bullets("b", ordered=True))),
        (
            "- a\n  - b\n  - c\n- d",
            (Bullets(((paragraph("a"), bullets("b", "c")), (paragraph("d"),))),),
        ),
        ("```py\nx\n\ny\n```\nend", (CodeBlock("x\n\ny", "py"), paragraph("end"))),
        ("~~~\nx\n```\ny", (CodeBlock("x\n```\ny"),)),
        (
            "a\n\n    code\n\n    more\n\nb",
            (paragraph("a"), CodeBlock("code\n\nmore"), paragraph("b")),
        ),
        (
            "a:\n>>> f()\n1\n\nb",
            (paragraph("a:"), CodeBlock(">>> f()\n1", "pycon"), paragraph("b")),
        ),
        ("| a | b |\n|---|---|\nend", (CodeBlock("| a | b |\n|---|---|"), paragraph("end"))),
        ("## Title ##\ntext", (Paragraph((Strong("Title"),)), paragraph("text"))),
        ("use `x` or ``y``", (paragraph("use ", CodeSpan("x"), " or ", CodeSpan("y")),)),
        ("**Note** this", (paragraph(Strong("Note"), " this"),)),
        ("a * b ** c `d", (paragraph("a * b ** c `d"),)),
        ("a\r\nb\rc", (paragraph("a b c"),)),
    ],
)
def test_the_habits_of_docstrings_are_known(text: str, expected: tuple[Block, ...]) -> None:
    assert blocks.blocks(text) == expected


@given(st.text(st.sampled_from("`~*-+#>|1. ab\n\t"), max_size=80))
def test_no_word_is_lost(text: str) -> None:
    found = "".join(_words(block) for block in blocks.blocks(text))

    assert found.count("a") == text.count("a")


def _words(block: Block) -> str:
    if isinstance(block, Bullets):
        return "".join(_words(inner) for item in block.items for inner in item)
    if isinstance(block, CodeBlock):
        return block.language + block.text
    return "".join(part.text for part in block.line)


@each_row(
    "text, expected",
    [
        ("Convert money. At once.", "Convert money."),
        ("Uses e.g. euros. And more", "Uses e.g. euros."),
        ("Version 2.5 of it", "Version 2.5 of it"),
        ("One\nline\n\nTwo", "One line"),
        ("转换货币。立即。", "转换货币。"),
        ("", ""),
        ("x" * 500, "x" * 119 + "…"),
        ("hidden\u202e text. More", "hidden\\u202e text."),
    ],
)
def test_the_first_sentence_is_one_line(text: str, expected: str) -> None:
    assert blocks.first_sentence(text) == expected


@each_row(
    "text",
    [
        "a" + "`" * 50_000,
        "**a" * 20_000,
        "- " * 20_000,
        "# " + "#" * 50_000 + "x",
        "#" * 50_000,
        "> " * 9,
    ],
)
def test_long_runs_of_signs_are_read_in_one_go(text: str) -> None:
    assert blocks.blocks(text)


def test_white_space_that_does_not_show_is_a_space() -> None:
    assert blocks.clean("a\u00a0b\u2003c") == "a b c"


def test_words_between_marks_stay_words() -> None:
    assert tuple(blocks.inlines("a **b** c")) == (TextSpan("a "), Strong("b"), TextSpan(" c"))
