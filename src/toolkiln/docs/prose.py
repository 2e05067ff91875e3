"""What a docstring says → blocks, by a few habits of docstrings; the rest is plain words.

Known are paragraphs, lists, fenced and indented listings, doctests, `code` and **strong**.
Headings, links, images, HTML and directives are not: whoever wrote the text has no say in
the layout of the page that it is shown on.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial

from toolkiln.docs.blocks import Block, Blocks, Bullets, Code, Inline, Listing, Paragraph, Strong
from toolkiln.docs.blocks import Text as Words

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,}) *([A-Za-z0-9_+-]{0,20})[^`]*$")
_ITEM = re.compile(r"( {0,3})([-*+•]|\d{1,3}[.)]) +(?=\S)")
_HEADING = re.compile(r"#{1,6} +(?=[^ #])")
_INLINE = re.compile(
    r"(?<!`)(?P<tick>`{1,2})(?!`)(?P<code>[^`\n]{1,500})(?P=tick)(?!`)"
    r"|\*\*(?=[^\s*])(?P<strong>[^*\n]{1,500})(?<=\S)\*\*"
)
_SPACES = re.compile(r"\s+")
_DEEPEST = 5
_LONGEST_TITLE = 120
_SENTENCE = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)[.!?](?=\s)|[。！？]")


def clean(text: str) -> str:
    """One line in which every character shows: hidden and control characters as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _visible(c) for c in text)


def words(text: str) -> str:
    """As `clean`, with single spaces for all white space."""
    if text.isprintable() and "  " not in text:
        return text
    return clean(_SPACES.sub(" ", text))


def one_line(text: str, longest: int = _LONGEST_TITLE) -> str:
    """A text as one line for a title or an index, cut when long."""
    line = words(text).strip()
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def first_sentence(text: str, longest: int = _LONGEST_TITLE) -> str:
    """The first sentence of a text as one line, cut when long."""
    opening = text.strip().split("\n\n", 1)[0]
    end = _SENTENCE.search(opening)
    return one_line(opening[: end.end()] if end else opening, longest)


def blocks(text: str) -> Blocks:
    """The blocks of a text."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4).split("\n")
    return tuple(_blocks(lines, 0))


def inlines(text: str) -> Iterator[Inline]:
    """The parts of a line."""
    start = 0
    for found in _INLINE.finditer(text):
        if found.start() > start:
            yield Words(text[start : found.start()])
        code = found["code"]
        if code is None:
            yield Strong(found["strong"])
        elif code.strip():
            yield Code(code.strip())
        start = found.end()
    if start < len(text):
        yield Words(text[start:])


def _blocks(lines: list[str], depth: int) -> Iterator[Block]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif fence := _FENCE.match(line):
            end = _end(lines, at + 1, partial(_within, fence[1]))
            yield from _listing(lines[at + 1 : end], fence[2].lower())
            at = end + 1
        elif line.lstrip().startswith(">>>"):
            end = _end(lines, at, lambda line: bool(line.strip()))
            yield from _listing(lines[at:end], "pycon")
            at = end
        elif line.startswith("    "):
            end = _end(lines, at, lambda line: line.startswith("    ") or not line.strip())
            yield from _listing(lines[at:end], "")
            at = end
        elif line.startswith("|"):
            end = _end(lines, at, lambda line: line.startswith("|"))
            yield from _listing(lines[at:end], "")
            at = end
        elif (item := _ITEM.match(line)) and depth < _DEEPEST:
            ordered = item[2][0].isdigit()
            items: list[Blocks] = []
            while at < len(lines) and (item := _ITEM.match(lines[at])):
                if item[2][0].isdigit() is not ordered:
                    break
                end = _item_end(lines, at + 1, item)
                inside = [lines[at][item.end() :], *_dedented(lines[at + 1 : end])]
                items.append(tuple(_blocks(inside, depth + 1)))
                at = end
            yield Bullets(tuple(items), ordered)
        elif heading := _HEADING.match(line):
            yield Paragraph((Strong(line[heading.end() :].rstrip(" #")),))
            at += 1
        else:
            end = _end(lines, at + 1, lambda line: not _starts_block(line, depth))
            yield Paragraph(tuple(inlines(" ".join(part.strip() for part in lines[at:end]))))
            at = end


def _starts_block(line: str, depth: int) -> bool:
    return (
        not line.strip()
        or line.lstrip().startswith(">>>")
        or line.startswith("|")
        or bool(_FENCE.match(line) or _HEADING.match(line))
        or (depth < _DEEPEST and bool(_ITEM.match(line)))
    )


def _end(lines: list[str], start: int, goes_on: Callable[[str], bool]) -> int:
    return next((at for at in range(start, len(lines)) if not goes_on(lines[at])), len(lines))


def _within(fence: str, line: str) -> bool:
    bare = line.strip()
    return len(bare) < len(fence) or bool(bare.strip(fence[0]))


def _item_end(lines: list[str], start: int, item: re.Match[str]) -> int:
    """Where an item ends: at text that is not indented and comes after a blank line or marks."""
    margin = len(item[1]) + 1
    for at in range(start, len(lines)):
        line = lines[at]
        indented = len(line) - len(line.lstrip()) >= margin
        if line.strip() and not indented:
            if not lines[at - 1].strip() or _starts_block(line, 0):
                return at
    return len(lines)


def _dedented(lines: list[str]) -> list[str]:
    margins = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    margin = min(margins, default=0)
    return [line[margin:] for line in lines]


def _listing(lines: list[str], language: str) -> Iterator[Listing]:
    text = "\n".join(_dedented(lines)).strip("\n").rstrip()
    if text.strip():
        yield Listing(text, language)


def _visible(character: str) -> str:
    return " " if character.isspace() and character > "\x7f" else ascii(character)[1:-1]
