"""Word pieces: text to the token numbers that the bundled vectors belong to.

It does what the tokeniser file of the wordllama package says, a byte-pair encoding with
bytes for unknown characters, and no more: no decoding, no offsets, no other kinds of
tokenisers. `vectors` looks the numbers up.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

_SPACE = "\u2581"
"""What a space is written as in the vocabulary."""
_WORD = re.compile(f"{_SPACE}*[^{_SPACE}]+|{_SPACE}+")
"""No token has a space after another character, so that words can be split one by one."""
_LONGEST = 500
"""Characters of a word that are split as one; merging takes the square of it."""
_REMEMBERED = 20_000
"""Words whose pieces are kept: about 4 MB."""
_APART = sys.maxsize
"""The rank of two pieces that do not belong together."""
_KIND = {"type": "BPE", "byte_fallback": True, "ignore_merges": False}
_SPELLING = [
    {"type": "Prepend", "prepend": _SPACE},
    {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE},
]


class WordPieces:
    """Splits text into numbered pieces; safe to be used by several threads at once."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        """Take over a tokeniser file's content.

        Raises:
            ValueError, TypeError, LookupError, AttributeError: It is no such description.
        """
        model = description["model"]
        if any(model[key] != value for key, value in _KIND.items()):
            raise ValueError("it is no byte-pair encoding of the kind that is known")
        if description["normalizer"]["normalizers"] != _SPELLING or description["pre_tokenizer"]:
            raise ValueError("it prepares text in a way that is not known")
        self._numbers: dict[str, int] = dict(model["vocab"])
        if min(self._numbers.values()) < 0:
            raise ValueError("it numbers pieces below zero")
        self._ranks = {str(merge): rank for rank, merge in enumerate(model["merges"])}
        self._bytes = [self._numbers[f"<0x{byte:02X}>"] for byte in range(256)]
        marks = [str(token["content"]) for token in description["added_tokens"]]
        if not marks or not self._numbers.keys() >= set(marks):
            raise ValueError("its marks have no numbers")
        self._marks = re.compile(f"({'|'.join(map(re.escape, marks))})")
        self._of_word = lru_cache(_REMEMBERED)(self._split)

    @property
    def count(self) -> int:
        """How many different pieces there are; their numbers are below it."""
        return max(self._numbers.values()) + 1

    def numbers(self, text: str) -> list[int]:
        """The numbers of the pieces of a text, in order."""
        found: list[int] = []
        for index, part in enumerate(self._marks.split(text)):
            if index % 2:
                found.append(self._numbers[part])
            elif part:
                for word in _WORD.findall(_SPACE + part.replace(" ", _SPACE)):
                    if len(word) <= _LONGEST:
                        found += self._of_word(word)
                    else:
                        for start in range(0, len(word), _LONGEST):
                            found += self._split(word[start : start + _LONGEST])
        return found

    def _split(self, word: str) -> Sequence[int]:
        """Merge neighbours, those of the lowest rank first, until no two belong together."""
        parts = list(word)
        ranks = [self._rank(a, b) for a, b in pairwise(parts)]
        while ranks and (best := min(ranks)) != _APART:
            index = ranks.index(best)
            parts[index : index + 2] = [parts[index] + parts[index + 1]]
            del ranks[index]
            if index > 0:
                ranks[index - 1] = self._rank(parts[index - 1], parts[index])
            if index < len(ranks):
                ranks[index] = self._rank(parts[index], parts[index + 1])
        numbers: list[int] = []
        for part in parts:
            number = self._numbers.get(part)
            if number is None:
                numbers += (self._bytes[byte] for byte in part.encode("utf-8", "replace"))
            else:
                numbers.append(number)
        return tuple(numbers)

    def _rank(self, left: str, right: str) -> int:
        return self._ranks.get(f"{left} {right}", _APART)
