"""Pages → passages for retrieval: by heading, then at block boundaries, never in a fence."""

import re
from collections.abc import Iterator
from dataclasses import replace

from toolkiln.docs.blocks import Block, Blocks, Bullets, Inline, Listing, Paragraph, Section, Text
from toolkiln.docs.markdown import blocks_markdown
from toolkiln.docs.pages import page_name, page_of
from toolkiln.docs.prose import clean, words
from toolkiln.model import Dialect, Passage, ToolSpec

_LONGEST = 1_200
_PIECE = 380
"""Characters of a text without boundaries; escaped or fenced they still fit."""
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
_COMMONPLACE = frozenset(page_of(_PLAIN).sections)
"""What pages say of thousands of tools answers no question about one."""


def passages(spec: ToolSpec) -> tuple[Passage, ...]:
    """The passages of the page about a tool, each of at most 1,200 characters."""
    page = page_of(spec)
    file = f"{page_name(spec.name)}.md"
    found: list[Passage] = []
    taken: set[str] = set()
    for section in (Section(page.title, page.opening), *page.sections):
        anchor = _anchor(section.title, taken)
        if section in _COMMONPLACE or section.title == "Version":
            continue
        for number, text in enumerate(_texts(section.blocks), 1):
            key = f"{file}#{anchor}" + (f"~{number}" if number > 1 else "")
            found.append(
                Passage(tool=spec.name, page=file, heading=clean(section.title), text=text, key=key)
            )
    return tuple(found)


def _anchor(title: str, taken: set[str]) -> str:
    """The name under which Markdown viewers find a heading."""
    base = re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") or "section"
    anchor, number = base, 0
    while anchor in taken:
        number += 1
        anchor = f"{base}-{number}"
    taken.add(anchor)
    return anchor


def _texts(blocks: Blocks) -> Iterator[str]:
    """Markdown of neighbouring blocks, as many together as fit."""
    whole = blocks_markdown(blocks)
    if len(whole) <= _LONGEST:
        if whole:
            yield whole
        return
    kept: list[Block] = []
    size = 0
    for block in _small(blocks):
        length = len(blocks_markdown((block,))) + 2
        if kept and size + length > _LONGEST:
            yield blocks_markdown(_merged(kept))
            kept, size = [], 0
        kept.append(block)
        size += length
    if kept:
        yield blocks_markdown(_merged(kept))


def _small(blocks: Blocks) -> Iterator[Block]:
    """The same blocks, those that are too long in pieces."""
    for block in blocks:
        if len(blocks_markdown((block,))) + 2 <= _LONGEST:
            yield block
        elif isinstance(block, Listing):
            shown = "\n".join(clean(line) for line in block.text.split("\n"))
            for text in _pieces(shown):
                yield Listing(text, block.language)
        elif isinstance(block, Paragraph):
            yield from _sentences(block)
        else:
            for item in block.items:
                one = Bullets((item,), block.ordered)
                fits = len(blocks_markdown((one,))) + 2 <= _LONGEST
                yield from (one,) if fits else _small(item)


def _sentences(paragraph: Paragraph) -> Iterator[Paragraph]:
    line: list[Inline] = []
    for part in paragraph.line:
        text = words(part.text) if isinstance(part, Text) else clean(part.text)
        for piece in _pieces(text):
            inline = replace(part, text=piece)
            longer = Paragraph((*line, inline))
            if line and len(blocks_markdown((longer,))) + 2 > _LONGEST:
                yield Paragraph(tuple(line))
                line = []
            line.append(inline)
    if line:
        yield Paragraph(tuple(line))


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces, parted after a line, else after a word, else anywhere."""
    start = 0
    while len(text) - start > _PIECE:
        cuts = (text.rfind(sign, start, start + _PIECE) + 1 for sign in "\n ")
        end = next((cut for cut in cuts if cut), start + _PIECE)
        yield text[start:end]
        start = end
    yield text[start:]


def _merged(blocks: list[Block]) -> Blocks:
    """Neighbouring items of what was one list, as one list again."""
    found: list[Block] = []
    for block in blocks:
        last = found[-1] if found else None
        # Numbers would grow, and the passage with them.
        if isinstance(last, Bullets) and isinstance(block, Bullets):
            if not (last.ordered or block.ordered):
                found[-1] = Bullets((*last.items, *block.items))
                continue
        found.append(block)
    return tuple(found)
