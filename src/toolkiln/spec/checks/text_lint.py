"""Lint of text that a model reads: hidden characters, instructions, thin descriptions.

Models obey descriptions, so text is checked as a model reads it: homoglyphs, full-width
forms and invisible characters are normalised first. A text without remarks may still be
harmful. Remarks carry no position; the caller knows where a text comes from.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, groupby
from typing import NamedTuple
from unicodedata import east_asian_width

from toolkiln.model.source import Severity
from toolkiln.spec.checks.model_instructions import (
    Instruction,
    english_instructions,
    foreign_instructions,
)

Position = tuple[int, str]
"""Index and character (or word)."""

_MAX_LISTED = 5
_VISIBLE_FORMAT = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2")
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")  # letters without a glyph
_JOINERS = "\u200c\u200d"
_DIRECTION_MARKS = "\u200e\u200f\u061c"
_JOINING_SCRIPTS = ((0x0600, 0x08FF), (0x0900, 0x0DFF), (0x0F00, 0x109F), (0x1780, 0x18AF))
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_FLAGS = re.compile(  # England, Scotland and Wales are spelled in tag characters
    "\U0001f3f4(?:"
    + "|".join(
        "".join(chr(0xE0000 + ord(letter)) for letter in region)
        for region in ("gbeng", "gbsct", "gbwls")
    )
    + ")\U000e007f"
)
_HOMOGLYPHS = dict(
    zip(
        "АВЕКМНОРСТХУІЈЅԌԚԜаеорсхуіјѕһԁԛԝӏΑΒΕΖΗΙΚΜΝΟΡΤΥΧοϲϳ",
        "ABEKMHOPCTXYIJSGQWaeopcxyijshdqwlABEZHIKMNOPTYXocj",
        strict=True,
    )
)
_TO_LATIN = str.maketrans(_HOMOGLYPHS)
_LETTERS = re.compile(r"[^\W\d_]+")
_LATIN = re.compile("[A-Za-z]")
_GREEK_OR_CYRILLIC = re.compile("[\u0370-\u03ff\u0400-\u052f]")


def hidden_characters(text: str) -> list[Position]:
    """Return the invisible characters, except those that a script or an emoji needs."""
    if not any(map(_is_invisible, set(text))):
        return []
    flags = {index for flag in _FLAGS.finditer(text) for index in range(*flag.span())}
    needed = _DIRECTION_MARKS if _RIGHT_TO_LEFT.search(text) else ""
    return [
        (index, char)
        for index, char in enumerate(text)
        if _is_invisible(char)
        and index not in flags
        and char not in needed
        and not _is_needed(text, index)
    ]


def _homoglyph_words(text: str) -> list[Position]:
    """Return the words in which Greek or Cyrillic letters imitate Latin ones."""
    letters = [char for char in _GREEK_OR_CYRILLIC.findall(text) if char.isalpha()]
    if not letters:
        return []
    is_foreign = any(char not in _HOMOGLYPHS for char in letters)
    words = ((word.start(), word[0]) for word in _LETTERS.finditer(text))
    return [(index, word) for index, word in words if _imitates_latin(word, is_foreign=is_foreign)]


def _can_smuggle(char: str) -> bool:
    """Return whether a character's only use in prose is to carry or disguise other text."""
    code = ord(char)
    return (
        0xE0000 <= code <= 0xE01EF
        or 0x202A <= code <= 0x202E
        or 0x2066 <= code <= 0x2069
        or char in "\0\x1b"
        or unicodedata.category(char) in ("Cs", "Co")
    )


def list_positions(positions: Sequence[Position]) -> str:
    """List the first few characters or words with code points and positions (from 1)."""
    listed = [f"{_name(found)} at {index + 1}" for index, found in positions[:_MAX_LISTED]]
    more = len(positions) - _MAX_LISTED
    return ", ".join(listed) + (f" and {more} more" if more > 0 else "")


def deobfuscate(text: str) -> str:
    """Return the text as a model may read it: normalised, with Latin letters for homoglyphs."""
    return _without_hidden(text).translate(_TO_LATIN)


def _without_hidden(text: str) -> str:
    chars = []
    for char in text:
        code = ord(char)
        if 0xE0020 <= code <= 0xE007E:
            chars.append(chr(code - 0xE0000))
        elif not _is_invisible(char):
            chars.append(char)
    return unicodedata.normalize("NFKC", "".join(chars))


def _is_invisible(char: str) -> bool:
    if char in "\n\t" or " " <= char <= "~":
        return False
    code = ord(char)
    if 0xFE00 <= code <= 0xFE0F or 0xE0000 <= code <= 0xE0FFF or 0x180B <= code <= 0x180F:
        return True
    category = unicodedata.category(char)
    if category == "Cf":
        return char not in _VISIBLE_FORMAT
    return category in ("Cc", "Co", "Cs", "Zl", "Zp") or char in _BLANK


def _is_needed(text: str, index: int) -> bool:
    char = text[index]
    before = text[index - 1] if index else ""
    after = text[index + 1 : index + 2]
    if char == "\r":
        return after == "\n"
    if not before:
        return False
    code = ord(char)
    if char in _JOINERS:
        in_emoji = char == "\u200d" and _is_pictograph(before) and _is_pictograph(after)
        return in_emoji or any(low <= ord(before) <= high for low, high in _JOINING_SCRIPTS)
    if 0xFE00 <= code <= 0xFE0F:
        return (
            _is_pictograph(before, selector=False)
            or _is_ideograph(before)
            or (before in "0123456789#*" and after == "\u20e3")
        )
    if 0x180B <= code <= 0x180F:
        return 0x1800 <= ord(before) <= 0x18AF
    return 0xE0100 <= code <= 0xE01EF and _is_ideograph(before)


def _is_pictograph(char: str, *, selector: bool = True) -> bool:
    if not char:
        return False
    if char == "\ufe0f" or 0x1F3FB <= ord(char) <= 0x1F3FF:  # after VS16 or a skin tone
        return selector
    return unicodedata.category(char) in ("So", "Sm", "Po") and ord(char) > 0x7F


def _is_ideograph(char: str) -> bool:
    code = ord(char)
    return 0x2E80 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF


def _imitates_latin(word: str, *, is_foreign: bool) -> bool:
    """Return whether a word imitates Latin; `is_foreign` if the text is Greek or Cyrillic."""
    runs = [key for key, _ in groupby(word, key=lambda char: bool(_LATIN.match(char)))]
    if not any(char in _HOMOGLYPHS for char in word):
        return False
    if any(_GREEK_OR_CYRILLIC.match(char) and char not in _HOMOGLYPHS for char in word):
        return False
    if not _LATIN.search(word):
        return not is_foreign and len(word) > 1
    has_ending = runs == [True, False]  # "URLа" in a Russian sentence
    return not (is_foreign and has_ending)


def _name(found: str) -> str:
    if len(found) > 1:
        codes = [f"U+{ord(char):04X}" for char in found if char in _HOMOGLYPHS]
        return f"{found!r} ({', '.join(dict.fromkeys(codes))})"
    name = unicodedata.name(found, "") or _UNNAMED.get(unicodedata.category(found), "")
    return f"U+{ord(found):04X} {name}".rstrip()


_UNNAMED = {"Cc": "CONTROL CHARACTER", "Co": "PRIVATE USE", "Cs": "LONE SURROGATE"}

_OPENAI_LIMIT = 1_024
"""Characters per description that OpenAI accepts, by observation."""
_CLAUDE_CODE_LIMIT = 2_048
"""Characters after which Claude Code truncates a description."""


class TextRemark(NamedTuple):
    """A finding about a text, without its position."""

    rule: str
    severity: Severity
    message: str
    fix: str


_MENTION = re.compile(r"`([A-Za-z][\w-]*)(?:\(\))?`|(?<![\w./-])([A-Za-z]\w*_\w*)(?![\w-])")
_TOOL_NAME = r"(?P<quote>`)?(?P<name>[A-Za-z][\w-]*)(?:\(\))?`?(?P<tool>\s+tool\b)?"
_ORDER_ABOUT_TOOL = re.compile(
    r"\b(?:instead\s+of|rather\s+than|in\s+place\s+of|replaces|supersedes|before|after|never|do\s+not"
    r"|don't|must\s+not|avoid|stop"
    r"|when(?:ever)?\s+(?:you\s+)?(?:use|using|call|calling|invoke|invoking|run|running))\s+"
    r"(?:(?:ever|you|using|use|calling|call|invoking|invoke|running|run|the|tool|any)\s+){0,4}"
    + _TOOL_NAME,
    re.IGNORECASE,
)
_CLAIMS = (
    *("deprecated", "obsolete", "broken", "unsafe", "insecure", "disabled", "outdated"),
    *("replaced", "superseded", "compromised"),
)
_CLAIM_ABOUT_TOOL = re.compile(
    rf"(?<![\w`-]){_TOOL_NAME}\s+(?:is|was|has\s+been)\s+(?:now\s+)?(?:{'|'.join(_CLAIMS)})\b",
    re.IGNORECASE,
)
"""A claim that makes a model avoid another tool. It may start at any word, so only texts with one
of the claims are searched."""
_FILLER = {
    *("a", "an", "and", "for", "from", "function", "functionality", "in", "is", "it", "method"),
    *("of", "on", "or", "that", "the", "this", "to", "tool", "use", "used", "uses", "utility"),
    "with",
}
_WORD = re.compile(r"\w+")
_ENOUGH_WORDS = 12
"""A description with this many words says more than the name."""


def lint(text: str, where: str, other_tools: Collection[str] = ()) -> list[TextRemark]:
    """Check a text that a model reads.

    `where` names the text in messages, such as "the description"; `other_tools` are the
    names of the other tools of the file.
    """
    is_plain = text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()
    remarks = [] if is_plain else list(_hidden_remarks(text, where))
    visible = text if is_plain else _without_hidden(text)
    latin = text if is_plain else visible.translate(_TO_LATIN)
    for instruction in (*english_instructions(latin), *foreign_instructions(visible)):
        remarks.append(_instruction_remark(instruction, where))
    remarks += shadowing_remarks(latin, where, other_tools)
    if other_tools and ("_" in text or "`" in text):
        remarks += _mention_remarks(text, where, other_tools)
    return remarks


def lint_description(description: str, name: str) -> list[TextRemark]:
    """Check that a tool's description is informative and not too long."""
    size = len(description)
    if _is_thin(description, name):
        message = "the description is empty"
        if description.strip():
            message = f"the description {description.strip()!r} says little more than the name"
        fix = "describe in a sentence or two what the tool does, when to use it, what it returns"
        return [TextRemark("description-thin", Severity.WARNING, message, fix)]
    if size > _OPENAI_LIMIT:
        consequence = f"some providers accept no more than {_OPENAI_LIMIT:,}"
        if size > _CLAUDE_CODE_LIMIT:
            consequence = f"Claude Code truncates it at {_CLAUDE_CODE_LIMIT:,}"
        message = f"the description has {size:,} characters; {consequence}"
        fix = "keep what a model needs to choose the tool, move the rest to titled sections"
        return [TextRemark("description-long", Severity.WARNING, message, fix)]
    return []


def _hidden_remarks(text: str, where: str) -> Iterator[TextRemark]:
    if found := hidden_characters(text):
        yield TextRemark(
            "hidden-characters",
            Severity.ERROR if any(_can_smuggle(char) for _, char in found) else Severity.WARNING,
            f"{where} has characters that people do not see: {list_positions(found)}",
            "delete them, or replace them with visible characters",
        )
    if words := _homoglyph_words(text):
        yield TextRemark(
            "hidden-characters",
            Severity.WARNING,
            f"{where} has letters that look like Latin ones but are not: {list_positions(words)}",
            "retype these words in one alphabet",
        )


def _instruction_remark(instruction: Instruction, where: str) -> TextRemark:
    words = " ".join(instruction.quote.split())
    quote = words if len(words) <= 60 else f"{words[:59]}…"
    return TextRemark(
        "model-instructions",
        instruction.severity,
        f"{where} {instruction.effect}: {quote!r}",
        "describe the tool and its parameters; do not instruct the model",
    )


def _mention_remarks(text: str, where: str, other_tools: Collection[str]) -> Iterator[TextRemark]:
    names = (quoted or bare for quoted, bare in _MENTION.findall(text))
    for name in dict.fromkeys(names):
        if name in other_tools:
            yield TextRemark(
                "mentions-other-tool",
                Severity.INFO,
                f"{where} mentions the tool {name!r}",
                "describe only this tool: the other one may be missing or differ elsewhere",
            )


def shadowing_remarks(text: str, where: str, other_tools: Collection[str]) -> Iterator[TextRemark]:
    """Find instructions about other tools: those listed, and names that the text calls a tool."""
    reported = set()
    folded = text.casefold()
    has_claim = any(claim in folded for claim in _CLAIMS)
    claims = _CLAIM_ABOUT_TOOL.finditer(text) if has_claim else ()
    for match in chain(_ORDER_ABOUT_TOOL.finditer(text), claims):
        name, is_quoted, is_tool = match["name"], match["quote"], match["tool"]
        is_name = bool(is_quoted or is_tool or "_" in name)
        is_listed = is_name and name in other_tools
        if name not in reported and (is_listed or (is_tool and (is_quoted or "_" in name))):
            reported.add(name)
            words = " ".join(match[0].split())
            yield TextRemark(
                "shadows-other-tool",
                Severity.WARNING,
                f"{where} instructs the model about the tool {name!r}: {words[:60]!r}",
                "describe only this tool; the other one has its own description",
            )


def _is_thin(description: str, name: str) -> bool:
    if len(description) > 60 + 4 * len(name):
        return False
    wide = 0
    if not description.isascii():
        wide = sum(east_asian_width(char) in "WF" for char in description)
    words = _WORD.findall(description.lower())
    if len(words) + wide // 2 < 3 or len(description.strip()) + wide < 20:
        return True
    if len(words) >= _ENOUGH_WORDS:
        return False
    snake_case = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    stems = {_stem(word) for word in re.findall(r"[^\W\d_]+|\d+", snake_case)}
    return all(word in _FILLER or _stem(word) in stems for word in words)


def _stem(word: str) -> str:
    for ending in ("ing", "es", "ed", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word
