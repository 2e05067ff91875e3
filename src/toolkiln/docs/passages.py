"""Pages to passages for retrieval, split at headings, then between blocks, never in a fence."""

import re
from collections.abc import Iterator
from dataclasses import replace

from toolkiln.docs.blocks import (
    Block,
    Blocks,
    Bullets,
    CodeBlock,
    Inline,
    PageSection,
    Paragraph,
    TextSpan,
    blocks_markdown,
    clean,
    words,
)
from toolkiln.docs.pages import page_name, page_of
from toolkiln.model.search import DocPassage
from toolkiln.model.spec import Dialect, ToolSpec

_MAX_PASSAGE = 1_200
_MAX_PIECE = 380
"""Maximum characters of an indivisible text; it fits even when escaped or fenced."""
_PLAIN = ToolSpec(
    name="plain",
    description="Plain.",
    parameters={},
    dialect=Dialect.FUNCTION,
    entry="plain",
    display_name="Plain",
    digest="",
    path="plain.py",
    line=1,
)
_BOILERPLATE = frozenset(page_of(_PLAIN).sections)
"""Sections that are the same for most tools."""


def passages(spec: ToolSpec) -> tuple[DocPassage, ...]:
    """Split the page of a tool into passages of at most 1,200 characters."""
    page = page_of(spec)
    file = f"{page_name(spec.name)}.md"
    found: list[DocPassage] = []
    taken: set[str] = set()
    for section in (PageSection(page.title, page.opening), *page.sections):
        anchor = _anchor(section.title, taken)
        if section in _BOILERPLATE or section.title == "Version":
            continue
        for number, text in enumerate(_texts(section.blocks), 1):
            key = f"{file}#{anchor}" + (f"~{number}" if number > 1 else "")
            found.append(
                DocPassage(
                    tool=spec.name, page=file, heading=clean(section.title), text=text, key=key
                )
            )
    return tuple(found)


def _anchor(title: str, taken: set[str]) -> str:
    base = re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") or "section"
    anchor, number = base, 0
    while anchor in taken:
        number += 1
        anchor = f"{base}-{number}"
    taken.add(anchor)
    return anchor


def _texts(blocks: Blocks) -> Iterator[str]:
    """Render as many neighbouring blocks together as fit."""
    whole = blocks_markdown(blocks)
    if len(whole) <= _MAX_PASSAGE:
        if whole:
            yield whole
        return
    pending: list[Block] = []
    size = 0
    for block in _split_blocks(blocks):
        length = len(blocks_markdown((block,))) + 2
        if pending and size + length > _MAX_PASSAGE:
            yield blocks_markdown(_merged(pending))
            pending, size = [], 0
        pending.append(block)
        size += length
    if pending:
        yield blocks_markdown(_merged(pending))


def _split_blocks(blocks: Blocks) -> Iterator[Block]:
    for block in blocks:
        if len(blocks_markdown((block,))) + 2 <= _MAX_PASSAGE:
            yield block
        elif isinstance(block, CodeBlock):
            cleaned = "\n".join(clean(line) for line in block.text.split("\n"))
            for text in _pieces(cleaned):
                yield CodeBlock(text, block.language)
        elif isinstance(block, Paragraph):
            yield from _sentences(block)
        else:
            for item in block.items:
                single = Bullets((item,), block.ordered)
                fits = len(blocks_markdown((single,))) + 2 <= _MAX_PASSAGE
                yield from (single,) if fits else _split_blocks(item)


def _sentences(paragraph: Paragraph) -> Iterator[Paragraph]:
    line: list[Inline] = []
    for part in paragraph.line:
        text = words(part.text) if isinstance(part, TextSpan) else clean(part.text)
        for piece in _pieces(text):
            inline = replace(part, text=piece)
            longer = Paragraph((*line, inline))
            if line and len(blocks_markdown((longer,))) + 2 > _MAX_PASSAGE:
                yield Paragraph(tuple(line))
                line = []
            line.append(inline)
    if line:
        yield Paragraph(tuple(line))


def _pieces(text: str) -> Iterator[str]:
    """Split a text after a line, else after a word, else anywhere."""
    start = 0
    while len(text) - start > _MAX_PIECE:
        cuts = (text.rfind(sign, start, start + _MAX_PIECE) + 1 for sign in "\n ")
        end = next((cut for cut in cuts if cut), start + _MAX_PIECE)
        yield text[start:end]
        start = end
    yield text[start:]


def _merged(blocks: list[Block]) -> Blocks:
    """Rejoin neighbouring items of one list."""
    found: list[Block] = []
    for block in blocks:
        last = found[-1] if found else None
        # Not ordered lists: their numbers, and with them the passage, would grow.
        if isinstance(last, Bullets) and isinstance(block, Bullets):
            if not (last.ordered or block.ordered):
                found[-1] = Bullets((*last.items, *block.items))
                continue
        found.append(block)
    return tuple(found)
