"""Blocks → reStructuredText in which foreign text means nothing but itself.

Every sign that any of its rules could look at is escaped: hard on the eye, and nothing
to get wrong. People read `markdown`, or what Sphinx makes.
"""

import re
from string import punctuation

from toolkiln.docs.blocks import Block, Blocks, Bullets, Code, Inline, Link, Listing, Page, Strong
from toolkiln.docs.prose import clean, words

_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in f"{punctuation}•‣⁃"})
_BLANK = re.compile(r"\n +(?=\n)")
_LANGUAGES = frozenset({"bash", "json", "pycon", "python", "toml", "yaml"})
"""Those that Sphinx certainly knows; it warns of others."""


def rst(page: Page) -> str:
    """A page as reStructuredText."""
    parts = [_title(page.title, "="), *(_block(block) for block in page.opening)]
    for section in page.sections:
        parts += [_title(section.title, "-"), _blocks(section.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _title(title: str, sign: str) -> str:
    text = _started(_text(title).strip())
    # Wide characters count twice.
    return f"{text}\n{sign * max(4, 2 * len(text))}"


def _blocks(blocks: Blocks) -> str:
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: Block) -> str:
    if isinstance(block, Listing):
        language = block.language if block.language in _LANGUAGES else "text"
        lines = "\n   ".join(clean(line) for line in block.text.split("\n"))
        return _BLANK.sub("\n", f".. code-block:: {language}\n\n   {lines}")
    if isinstance(block, Bullets):
        marker = "#. " if block.ordered else "- "
        margin = "\n" + " " * len(marker)
        items = [marker + _blocks(item).replace("\n", margin) for item in block.items]
        return _BLANK.sub("\n", "\n\n".join(items))
    # An escaped space is none, and parts the markup of neighbours.
    return _started("\\ ".join(_inline(part) for part in block.line).strip())


def _started(line: str) -> str:
    """A line that is not taken for a rule, as one of nothing but backslashes is."""
    return f"\\ {line}" if line.startswith("\\\\") else line


def _inline(part: Inline) -> str:
    if isinstance(part, Code):
        shown = _text(part.text).strip() or '""'
        return f":literal:`{shown}`"
    if isinstance(part, Strong):
        return f"**{_text(part.text).strip()}**"
    if isinstance(part, Link):
        return f":doc:`{_text(part.text).strip()} </{part.page}>`"
    return _text(part.text)


def _text(text: str) -> str:
    return words(text).translate(_SIGNS)
