"""Pages in passages, for retrieval."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.docs.pages import page
from toolkiln.docs.passages import passages
from toolkiln.model.spec import (
    DocstringSection,
    Documentation,
    Hints,
    Permissions,
    RaisesDoc,
    ToolSpec,
)

from .rendering import HOSTILE, headings, kinds, params, shown, spec

LONGEST = 1_200


def documented(**parts: Any) -> ToolSpec:
    return spec(documentation=Documentation(**parts))


def test_a_passage_is_cited_by_page_and_heading() -> None:
    tool = spec(parameters=params("x", x={"type": "string"}))

    found = {passage.heading: passage for passage in passages(tool)}

    assert list(found) == ["Convert", "Parameters"]
    assert found["Parameters"].citation == "convert.md#parameters"
    assert found["Parameters"].page == "convert.md"
    assert found["Parameters"].tool == "convert"
    assert found["Parameters"].text == "- `x` (string; required)"


def test_what_all_pages_say_is_no_passage_and_what_one_says_is() -> None:
    plain = passages(spec())
    special = passages(spec(hints=Hints(destructive=True), rights=Permissions(secrets=("KEY",))))

    assert {passage.heading for passage in plain} == {"Convert", "Parameters"}
    assert {passage.heading for passage in special} >= {"Behaviour", "Rights"}


def test_a_long_section_is_parted_at_its_paragraphs() -> None:
    paragraphs = [f"Paragraph {number} {'word ' * 60}".strip() for number in range(10)]
    tool = documented(text="\n\n".join(["Convert money.", *paragraphs]))

    found = [passage for passage in passages(tool) if passage.heading == "Convert"]

    assert len(found) > 3
    assert {passage.citation for passage in found} == {"convert.md#convert"}
    assert len({passage.key for passage in found}) == len(found)
    starts = {text.partition("\n")[0] for passage in found for text in [passage.text]}
    assert all(start.startswith(("Name:", "Paragraph")) for start in starts)
    assert all(any(p in passage.text for passage in found) for p in paragraphs)


def test_a_long_list_is_parted_at_its_items() -> None:
    many = {f"parameter_{n}": {"type": "string", "description": "What. " * 9} for n in range(60)}

    found = [p for p in passages(spec(parameters=params(**many))) if p.heading == "Parameters"]

    assert len(found) > 3
    assert all(passage.text.startswith("- `parameter_") for passage in found)
    assert all(sum(f"`{name}`" in p.text for p in found) == 1 for name in many)


def test_a_long_listing_is_fenced_in_every_part() -> None:
    tool = documented(examples="\n".join(f"call({number})  # `````" for number in range(200)))

    found = [passage for passage in passages(tool) if passage.heading == "Examples"]

    assert len(found) > 2
    assert all(kinds(passage.text) == {"fence"} for passage in found)
    assert shown("\n\n".join(passage.text for passage in found)).count("call(") == 200


def test_headings_of_one_name_are_cited_apart() -> None:
    sections = tuple(
        DocstringSection(title=t, body="b") for t in ("Notes", "Parameters", "Notes", "!!!")
    )

    keys = [passage.key for passage in passages(documented(sections=sections))]

    assert len(set(keys)) == len(keys)
    assert {"convert.md#notes", "convert.md#notes-1", "convert.md#section"} <= set(keys)
    assert {"convert.md#parameters", "convert.md#parameters-1"} <= set(keys)


@each_row("text", HOSTILE)
def test_no_text_makes_a_passage_too_long_or_breaks_out_of_it(text: str) -> None:
    tool = spec(
        description=text,
        parameters=params(text, **{text or "x": {"description": text, "default": text}}),
        documentation=Documentation(
            text=text,
            sections=(DocstringSection(title="Notes", body=text),),
            examples=text,
            raises=(RaisesDoc(type=text, text=text),),
        ),
        requirements=(text,),
    )

    for passage in passages(tool):
        assert 0 < len(passage.text) <= LONGEST
        assert headings(passage.text) == []
        assert not kinds(passage.text) & {"html_block", "html_inline", "link", "image", "table"}


@example("```\n<<<<<<<", 2)
@given(st.text(st.sampled_from("ab *`_\\<\u202e\U000e0041\n-"), max_size=3_000), st.integers(1, 9))
def test_every_word_of_a_page_is_in_a_passage(text: str, times: int) -> None:
    tool = documented(text=f"{text}{'word ' * 200 * times}")

    found = passages(tool)

    assert all(len(passage.text) <= LONGEST for passage in found)
    in_page, in_passages = page(tool).count("word"), sum(p.text.count("word") for p in found)
    assert in_passages == in_page


def test_a_page_with_an_awkward_name_is_cited_by_its_file() -> None:
    (first, *_) = passages(spec(name="../../x"))

    assert "/" not in first.page
    assert first.page.endswith(".md")
    assert first.tool == "../../x"
