"""Blocks to CommonMark, with all text of tools escaped.

Every paragraph is one line, so text cannot start a line of its own. Headings, lists, links,
HTML and emphasis are escaped, and fences are longer than any fence inside.
"""

import re
from collections.abc import Iterator

from toolkiln.docs.blocks import (
    Block,
    Blocks,
    Bullets,
    CodeBlock,
    CodeSpan,
    DocPage,
    Inline,
    PageLink,
    PageSection,
    Strong,
    TextSpan,
    clean,
    words,
)

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
