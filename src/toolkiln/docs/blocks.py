"""Page structure: sections, paragraphs, lists and code blocks; docstring text to blocks; blocks to
CommonMark.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class CodeSpan:
    """A name or value in code font."""

    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    """Bold text."""

    text: str


@dataclass(frozen=True, slots=True)
class PageLink:
    """A link to another page, named without its suffix."""

    text: str
    page: str


Inline: TypeAlias = TextSpan | CodeSpan | Strong | PageLink


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph: one line of inline parts."""

    line: tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """Preformatted lines."""

    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list whose items consist of blocks."""

    items: "tuple[tuple[Block, ...], ...]"
    ordered: bool = False


Block: TypeAlias = Paragraph | CodeBlock | Bullets
Blocks: TypeAlias = tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class PageSection:
    """A heading with its blocks."""

    title: str
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class DocPage:
    """A page: title, opening and sections."""

    title: str
    opening: Blocks
    sections: tuple[PageSection, ...]


def paragraph(*parts: str | Inline) -> Paragraph:
    """Build a paragraph; strings are plain text."""
    return Paragraph(tuple(TextSpan(part) if isinstance(part, str) else part for part in parts))


def joined(lines: list[list[Inline]], separator: str) -> list[Inline]:
    """Join lines with a separator."""
    found: list[Inline] = []
    for line in lines:
        if found:
            found.append(TextSpan(separator))
        found += line
    return found


def labelled(label: list[Inline], blocks: Blocks) -> Blocks:
    """Put a label in front of the first block."""
    if blocks and isinstance(blocks[0], Paragraph):
        return (Paragraph((*label, TextSpan(": "), *blocks[0].line)), *blocks[1:])
    return (Paragraph(tuple(label)), *blocks)


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,}) *([A-Za-z0-9_+-]{0,20})[^`]*$")
_ITEM = re.compile(r"( {0,3})([-*+•]|\d{1,3}[.)]) +(?=\S)")
_HEADING = re.compile(r"#{1,6} +(?=[^ #])")
_INLINE = re.compile(
    r"(?<!`)(?P<tick>`{1,2})(?!`)(?P<code>[^`\n]{1,500})(?P=tick)(?!`)"
    r"|\*\*(?=[^\s*])(?P<strong>[^*\n]{1,500})(?<=\S)\*\*"
)
_SPACES = re.compile(r"\s+")
_MAX_DEPTH = 5
_MAX_TITLE = 120
_SENTENCE = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)[.!?](?=\s)|[。！？]")


def clean(text: str) -> str:
    """Escape hidden and control characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _visible(c) for c in text)


def words(text: str) -> str:
    """Like `clean`, with white space collapsed to single spaces."""
    if text.isprintable() and "  " not in text:
        return text
    return clean(_SPACES.sub(" ", text))


def one_line(text: str, max_length: int = _MAX_TITLE) -> str:
    """Format a text as one line for a title or an index, truncated when long."""
    line = words(text).strip()
    return line if len(line) <= max_length else f"{line[: max_length - 1].rstrip()}…"


def first_sentence(text: str, max_length: int = _MAX_TITLE) -> str:
    """Return the first sentence of a text as one line, truncated when long."""
    opening = text.strip().split("\n\n", 1)[0]
    end = _SENTENCE.search(opening)
    return one_line(opening[: end.end()] if end else opening, max_length)


def blocks(text: str) -> Blocks:
    """Parse a text into blocks."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4).split("\n")
    return tuple(_blocks(lines, 0))


def inlines(text: str) -> Iterator[Inline]:
    """Parse code spans and bold text in a line."""
    start = 0
    for found in _INLINE.finditer(text):
        if found.start() > start:
            yield TextSpan(text[start : found.start()])
        code = found["code"]
        if code is None:
            yield Strong(found["strong"])
        elif code.strip():
            yield CodeSpan(code.strip())
        start = found.end()
    if start < len(text):
        yield TextSpan(text[start:])


def _blocks(lines: list[str], depth: int) -> Iterator[Block]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif fence := _FENCE.match(line):
            end = _end(lines, at + 1, partial(_inside_fence, fence[1]))
            yield from _code_block(lines[at + 1 : end], fence[2].lower())
            at = end + 1
        elif line.lstrip().startswith(">>>"):
            end = _end(lines, at, lambda line: bool(line.strip()))
            yield from _code_block(lines[at:end], "pycon")
            at = end
        elif line.startswith("    "):
            end = _end(lines, at, lambda line: line.startswith("    ") or not line.strip())
            yield from _code_block(lines[at:end], "")
            at = end
        elif line.startswith("|"):
            end = _end(lines, at, lambda line: line.startswith("|"))
            yield from _code_block(lines[at:end], "")
            at = end
        elif (item := _ITEM.match(line)) and depth < _MAX_DEPTH:
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
        or (depth < _MAX_DEPTH and bool(_ITEM.match(line)))
    )


def _end(lines: list[str], start: int, continues: Callable[[str], bool]) -> int:
    return next((at for at in range(start, len(lines)) if not continues(lines[at])), len(lines))


def _inside_fence(fence: str, line: str) -> bool:
    bare = line.strip()
    return len(bare) < len(fence) or bool(bare.strip(fence[0]))


def _item_end(lines: list[str], start: int, item: re.Match[str]) -> int:
    # An item ends at unindented text that follows a blank line or starts a block.
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


def _code_block(lines: list[str], language: str) -> Iterator[CodeBlock]:
    text = "\n".join(_dedented(lines)).strip("\n").rstrip()
    if text.strip():
        yield CodeBlock(text, language)


def _visible(character: str) -> str:
    return " " if character.isspace() and character > "\x7f" else ascii(character)[1:-1]


# An underscore within a word is not emphasis, and a lone ampersand is not an entity.
_ACTIVE = re.compile(r"[\\`*\[\]<~]|(?<![^\W_])_|_(?![^\W_])|&(?=[#\w])")
_NUMBER = re.compile(r"\d{1,9}(?=[.)])")
_TICKS = re.compile(r"`+")


def markdown(page: DocPage) -> str:
    """Render a page as Markdown."""
    title = _text(page.title).strip().replace("#", "\\#")
    parts = [f"# {title}", *(_block(block) for block in page.opening)]
    parts += [section_markdown(section) for section in page.sections]
    return "\n\n".join(part for part in parts if part) + "\n"


def section_markdown(section: PageSection) -> str:
    """Render a section with its heading."""
    title = _text(section.title).strip().replace("#", "\\#")
    return f"## {title}\n\n{blocks_markdown(section.blocks)}"


def blocks_markdown(blocks: Blocks) -> str:
    """Render blocks, separated by blank lines."""
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: Block) -> str:
    if isinstance(block, CodeBlock):
        return _fenced(block)
    if isinstance(block, Bullets):
        return "\n".join(_items(block))
    return _line(block.line)


def _items(bullets: Bullets) -> Iterator[str]:
    for number, item in enumerate(bullets.items, 1):
        marker = f"{number}. " if bullets.ordered else "- "
        margin = "\n" + " " * len(marker)
        text = blocks_markdown(item).replace("\n", margin)
        yield marker + re.sub(r"\n +(?=\n)", "\n", text)


def _line(line: tuple[Inline, ...]) -> str:
    text = "".join(_inline(part) for part in line).strip()
    if not line or not isinstance(line[0], TextSpan):
        return text
    number = _NUMBER.match(text)
    at = number.end() if number else 0
    return f"{text[:at]}\\{text[at:]}" if number or text[:1] in set("#+-=>|:") else text


def _inline(part: Inline) -> str:
    if isinstance(part, CodeSpan):
        return _code(part.text)
    if isinstance(part, Strong):
        return f"**{_text(part.text).strip()}**"
    if isinstance(part, PageLink):
        return f"[{_text(part.text).strip()}]({part.page}.md)"
    return _text(part.text)


def _text(text: str) -> str:
    return _ACTIVE.sub(_escaped, words(text))


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


def _code(text: str) -> str:
    shown = clean(text) or '""'
    ticks = "`" * (max((len(run) for run in _TICKS.findall(shown)), default=0) + 1)
    padding = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{ticks}{padding}{shown}{padding}{ticks}"


def _fenced(block: CodeBlock) -> str:
    lines = [clean(line) for line in block.text.split("\n")]
    longest = max((len(run) for line in lines for run in _TICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{block.language}", *lines, fence])
