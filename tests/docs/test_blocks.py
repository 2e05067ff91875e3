"""Text to blocks, and blocks to Markdown and reStructuredText."""

import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.docs import blocks
from toolkiln.docs.blocks import (
    Block,
    Bullets,
    CodeBlock,
    CodeSpan,
    DocPage,
    PageLink,
    PageSection,
    Paragraph,
    Strong,
    TextSpan,
    clean,
    markdown,
    paragraph,
    words,
)
from toolkiln.docs.site import rst

from .rendering import HOSTILE, doctree, headings, kinds, shown, tokens


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
def test_the_usual_forms_of_docstrings_are_parsed(text: str, expected: tuple[Block, ...]) -> None:
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


_SIGNS = st.text(
    st.sampled_from("\\`*_[]<>()#+-=.!|~&;:/'\"{}$1a Aé中\n\t•\u202e\x00"), max_size=40
)
TEXTS = _SIGNS | st.text(max_size=40) | st.sampled_from(HOSTILE)


def of(*blocks: Block) -> DocPage:
    return DocPage("Title", blocks, (PageSection("After", (paragraph("end"),)),))


def visible(text: str) -> str:
    return words(text).strip()


@given(TEXTS)
@example("1. x")
@example("a  &amp; b")
@example("x\\")
def test_words_in_markdown_are_shown_as_they_are(text: str) -> None:
    found = markdown(of(paragraph("so: ", text)))

    assert headings(found) == ["Title", "After"]
    assert kinds(found) <= {"heading", "paragraph", "inline", "text", "text_special"}
    assert shown(found).split("\n")[1] == f"so: {words(text)}".strip()


@given(TEXTS.filter(lambda text: visible(text) != ""))
def test_words_at_the_start_of_a_line_of_markdown_are_shown_as_they_are(text: str) -> None:
    found = markdown(of(paragraph(text)))

    assert kinds(found) <= {"heading", "paragraph", "inline", "text", "text_special"}
    assert shown(found).split("\n") == ["Title", visible(text), "After", "end"]


@given(TEXTS)
def test_code_in_markdown_is_shown_as_it_is(text: str) -> None:
    found = markdown(of(paragraph("a", CodeSpan(text), "b")))

    (code,) = (token for token in tokens(found) if token.type == "code_inline")
    # A single space at both ends is the one thing that a viewer may take away.
    assert code.content in {clean(text) or '""', f" {clean(text)} "}
    assert headings(found) == ["Title", "After"]


@given(TEXTS.filter(lambda text: text.strip("\n") != ""))
def test_a_listing_in_markdown_is_shown_as_it_is(text: str) -> None:
    found = markdown(of(Bullets(((paragraph("x"), CodeBlock(text)),)), CodeBlock(text)))

    fences = [token.content for token in tokens(found) if token.type == "fence"]
    lines = "\n".join(clean(line) for line in text.split("\n")) + "\n"
    assert [re.sub(r" +\n", "\n", fence) for fence in fences] == [re.sub(r" +\n", "\n", lines)] * 2
    assert headings(found) == ["Title", "After"]


@given(TEXTS.filter(lambda text: visible(text) != ""))
def test_titles_stay_titles_in_markdown(text: str) -> None:
    found = markdown(DocPage(text, (), (PageSection(text, (paragraph("x"),)),)))

    assert headings(found) == [visible(text)] * 2
    assert kinds(found) <= {"heading", "paragraph", "inline", "text", "text_special"}


def complaints(tree: Any) -> list[str]:
    return [node.astext() for node in tree.findall() if node.tagname == "system_message"]


def names(tree: Any) -> list[str]:
    return [node.tagname for node in tree.findall() if node.tagname != "#text"]


@given(TEXTS.filter(lambda text: visible(text) != ""))
@example("\\" * 10)
@example(".. raw:: html")
@example("literal::")
def test_words_in_rst_are_shown_as_they_are(text: str) -> None:
    tree = doctree(rst(of(paragraph(text), paragraph("so: ", text))))

    bare = [node.astext() for node in tree.findall() if node.tagname == "paragraph"]
    assert bare == [visible(text), f"so: {words(text)}".strip(), "end"]
    assert set(names(tree)) <= {"document", "section", "title", "paragraph"}


@given(TEXTS.filter(lambda text: text.strip() != ""))
def test_code_and_strong_words_in_rst_are_shown_as_they_are(text: str) -> None:
    tree = doctree(rst(of(paragraph("a", CodeSpan(text), "b", Strong(f"x{text}x"), TextSpan("c")))))

    literal, strong = (n for n in tree.findall() if n.tagname in {"literal", "strong"})
    assert literal.astext() == visible(text)
    assert strong.astext() == visible(f"x{text}x")
    assert complaints(tree) == []


@given(TEXTS.filter(lambda text: text.strip() != ""))
def test_a_listing_in_rst_stays_in_its_place(text: str) -> None:
    listing = CodeBlock(f"first\n{text}\nlast", "brainfuck")
    tree = doctree(rst(of(Bullets(((paragraph("x"), listing),)), listing)))

    blocks = [n.astext() for n in tree.findall() if n.tagname == "literal_block"]
    lines = "\n".join(clean(line) for line in listing.text.split("\n"))
    assert [re.sub(r" +\n", "\n", block) for block in blocks] == [re.sub(r" +\n", "\n", lines)] * 2
    assert complaints(tree) == []


@given(TEXTS.filter(lambda text: visible(text) != ""))
def test_titles_stay_titles_in_rst(text: str) -> None:
    tree = doctree(
        rst(DocPage(text, (), (PageSection(text, (paragraph("x"),)), PageSection("y", ()))))
    )

    assert [n.astext() for n in tree.findall() if n.tagname == "title"] == [
        *[visible(text)] * 2,
        "y",
    ]
    assert all("Duplicate implicit target" in text for text in complaints(tree))  # a mere note


def test_blank_words_at_the_end_of_a_line_do_no_harm_in_rst() -> None:
    tree = doctree(rst(of(paragraph(" ", CodeSpan("x"), " "), paragraph("next"))))

    found = [node.astext() for node in tree.findall() if node.tagname == "paragraph"]
    assert found == ["x", "next", "end"]
    assert complaints(tree) == []


def test_lists_contain_lists_in_both_languages() -> None:
    inner = Bullets(((paragraph("two"),), (CodeBlock("a\n\n  b"),)), ordered=True)
    page = of(Bullets(((paragraph("one"), inner, paragraph("more")), (paragraph("three"),))))

    items = [token.level for token in tokens(markdown(page)) if token.type == "list_item_open"]
    tree = doctree(rst(page))
    assert items == [1, 3, 3, 1]
    assert names(tree).count("list_item") == 4
    assert [n.astext() for n in tree.findall() if n.tagname == "literal_block"] == ["a\n\n  b"]
    assert complaints(tree) == []


def test_a_link_leads_to_a_page() -> None:
    page = of(Paragraph((PageLink("a]b_c", "tools/abc"),)))

    (link,) = (token for token in tokens(markdown(page)) if token.type == "link_open")
    assert link.attrs["href"] == "tools/abc.md"
    assert shown(markdown(page)).split("\n")[1] == "a]b_c"
    assert ":doc:`a\\]b\\_c </tools/abc>`" in rst(page)


@each_row("character", ["\u202e", "\u200b", "\x1b", "\x00", "\x9b", "\ud800"])
def test_hidden_characters_are_escaped(character: str) -> None:
    found = markdown(of(paragraph(f"a{character}b"), CodeBlock(f"c{character}d")))

    assert character not in found + rst(of(paragraph(f"a{character}b")))
    assert shown(found).count(ascii(character)[1:-1]) == 2


def test_words_without_a_special_sign_are_left_alone() -> None:
    text = "Sends snake_case_names, 2.5 % of (x - y) & more; see https://example.org/a_b?c=d!"

    assert markdown(of(paragraph(text))).split("\n")[2] == text
