"""Characters that a model reads and a person does not see.

Zero-width and bidirectional controls, tag characters, variation selectors, control and
private-use characters, and letters of one alphabet that pose as another's. What scripts
and emoji need is left alone: joiners in Persian or Hindi words, ZWJ and VS16 in emoji.
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import groupby

Position = tuple[int, str]
"""Index and character (or word)."""

_SHOWN = 5
_VISIBLE_FORMAT = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2")
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")  # letters that show nothing
_JOINERS = "\u200c\u200d"
_MARKS_OF_DIRECTION = "\u200e\u200f\u061c"
_JOINING_SCRIPTS = ((0x0600, 0x08FF), (0x0900, 0x0DFF), (0x0F00, 0x109F), (0x1780, 0x18AF))
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_FLAGS = re.compile(  # England, Scotland and Wales are spelt in tag characters
    "\U0001f3f4(?:"
    + "|".join(
        "".join(chr(0xE0000 + ord(letter)) for letter in region)
        for region in ("gbeng", "gbsct", "gbwls")
    )
    + ")\U000e007f"
)
_LOOK_ALIKES = dict(
    zip(
        "АВЕКМНОРСТХУІЈЅԌԚԜаеорсхуіјѕһԁԛԝӏΑΒΕΖΗΙΚΜΝΟΡΤΥΧοϲϳ",
        "ABEKMHOPCTXYIJSGQWaeopcxyijshdqwlABEZHIKMNOPTYXocj",
        strict=True,
    )
)
_TO_LATIN = str.maketrans(_LOOK_ALIKES)
_WORD = re.compile(r"[^\W\d_]+")
_LATIN = re.compile("[A-Za-z]")
_OTHER_ALPHABET = re.compile("[\u0370-\u03ff\u0400-\u052f]")


def hidden(text: str) -> list[Position]:
    """The characters that do not show, but for those that a script or an emoji needs."""
    if not any(map(_may_hide, set(text))):
        return []
    flags = {index for flag in _FLAGS.finditer(text) for index in range(*flag.span())}
    needed = _MARKS_OF_DIRECTION if _RIGHT_TO_LEFT.search(text) else ""
    return [
        (index, char)
        for index, char in enumerate(text)
        if _may_hide(char)
        and index not in flags
        and char not in needed
        and not _is_needed(text, index)
    ]


def look_alikes(text: str) -> list[Position]:
    """The words in which letters of another alphabet pose as Latin ones."""
    if not _OTHER_ALPHABET.search(text):
        return []
    honest = any(
        char not in _LOOK_ALIKES for char in _OTHER_ALPHABET.findall(text) if char.isalpha()
    )
    return [(word.start(), word[0]) for word in _WORD.finditer(text) if _poses(word[0], honest)]


def is_smuggling(char: str) -> bool:
    """Whether the character has no use in prose but to carry or disguise other text."""
    code = ord(char)
    return (
        0xE0000 <= code <= 0xE01EF
        or 0x202A <= code <= 0x202E
        or 0x2066 <= code <= 0x2069
        or char in "\0\x1b"
        or unicodedata.category(char) in ("Cs", "Co")
    )


def listed(found: Sequence[Position]) -> str:
    """Names, code points and positions (counted from 1), the first few of them."""
    shown = [f"{_named(what)} at {index + 1}" for index, what in found[:_SHOWN]]
    more = len(found) - _SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def as_read(text: str) -> str:
    """The text with its disguises off: what a model may well make of it."""
    return shown(text).translate(_TO_LATIN)


def shown(text: str) -> str:
    """The text in one form and without hidden characters, each letter in its own alphabet."""
    kept = []
    for char in text:
        code = ord(char)
        if 0xE0020 <= code <= 0xE007E:
            kept.append(chr(code - 0xE0000))
        elif not _may_hide(char):
            kept.append(char)
    return unicodedata.normalize("NFKC", "".join(kept))


def _may_hide(char: str) -> bool:
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
        return in_emoji or _joins(before)
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


def _joins(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in _JOINING_SCRIPTS)


def _poses(word: str, honest: bool) -> bool:
    """Whether a word pretends to be Latin; `honest` if the text has other Cyrillic or Greek."""
    alphabets = ["".join(run) for _, run in groupby(word, key=lambda c: bool(_LATIN.match(c)))]
    if not any(char in _LOOK_ALIKES for char in word):
        return False
    if any(_OTHER_ALPHABET.match(char) and char not in _LOOK_ALIKES for char in word):
        return False
    if not _LATIN.search(word):
        return not honest and len(word) > 1
    is_ending = len(alphabets) == 2 and bool(_LATIN.match(word))  # "URLа" in a Russian sentence
    return not (honest and is_ending)


def _named(what: str) -> str:
    if len(what) > 1:
        posing = [f"U+{ord(char):04X}" for char in what if char in _LOOK_ALIKES]
        return f"{what!r} ({', '.join(dict.fromkeys(posing))})"
    name = unicodedata.name(what, "") or _UNNAMED.get(unicodedata.category(what), "")
    return f"U+{ord(what):04X} {name}".rstrip()


_UNNAMED = {"Cc": "CONTROL CHARACTER", "Co": "PRIVATE USE", "Cs": "LONE SURROGATE"}
