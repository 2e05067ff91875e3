"""A page as structure: sections of paragraphs, lists and listings, each line of a few parts.

What tools say about themselves is in here as it was read. Nothing is escaped or cleaned:
that is for `markdown` and `rst`, which alone know what is special in their language.
"""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Text:
    """Words."""

    text: str


@dataclass(frozen=True, slots=True)
class Code:
    """A name or value, to be shown letter by letter."""

    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    """Words that stand out."""

    text: str


@dataclass(frozen=True, slots=True)
class Link:
    """Words that lead to another page, named without its ending."""

    text: str
    page: str


Inline: TypeAlias = Text | Code | Strong | Link


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One line of parts."""

    line: tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines to be shown as they are."""

    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list whose items hold blocks of their own."""

    items: "tuple[tuple[Block, ...], ...]"
    ordered: bool = False


Block: TypeAlias = Paragraph | Listing | Bullets
Blocks: TypeAlias = tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class Page:
    """A title, an opening, and sections."""

    title: str
    opening: Blocks
    sections: tuple[Section, ...]


def paragraph(*parts: str | Inline) -> Paragraph:
    """A paragraph of parts; strings are words."""
    return Paragraph(tuple(Text(part) if isinstance(part, str) else part for part in parts))


def joined(lines: list[list[Inline]], separator: str) -> list[Inline]:
    """Lines as one, with words between them."""
    found: list[Inline] = []
    for line in lines:
        if found:
            found.append(Text(separator))
        found += line
    return found


def labelled(label: list[Inline], blocks: Blocks) -> Blocks:
    """Blocks with a label in front of the first words."""
    if blocks and isinstance(blocks[0], Paragraph):
        return (Paragraph((*label, Text(": "), *blocks[0].line)), *blocks[1:])
    return (Paragraph(tuple(label)), *blocks)
