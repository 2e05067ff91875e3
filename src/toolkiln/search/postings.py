"""Postings: for each word the slots of the documents that have it, with its weight there.

A generation shares the lists of all words that it leaves alone with the one before, and the
numbering of words with all others. What the weights mean is `weighing`'s business.
"""

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Vocabulary:
    """Numbers words; a number once given stays."""

    __slots__ = ("_lock", "_numbers")

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._numbers = {word: number for number, word in enumerate(words)}
        self._lock = Lock()

    def number(self, word: str) -> int | None:
        """None if no document has ever had the word."""
        return self._numbers.get(word)

    def numbered(self, words: Iterable[str]) -> list[int]:
        """The numbers of words, given to them if need be."""
        numbers = self._numbers
        with self._lock:
            return [numbers.setdefault(word, len(numbers)) for word in words]

    def words(self) -> list[str]:
        """All words, in the order of their numbers."""
        with self._lock:
            return list(self._numbers)


class Terms(NamedTuple):
    """The words of one document by number, with their weights."""

    numbers: NDArray[np.int32]
    weights: NDArray[np.float32]


class Posting(NamedTuple):
    """The documents that have one word."""

    slots: NDArray[np.int64]
    weights: NDArray[np.float32]


_NONE = Posting(np.zeros(0, np.int64), np.zeros(0, np.float32))
Documents = Mapping[int, Terms]
"""By slot."""
Lists = list[Posting | None]
"""By number of the word."""


def changed(lists: Lists, gone: Documents, added: Documents) -> Lists:
    """The lists without some documents and with others; its cost grows with their number."""
    lists = lists.copy()
    for slot, terms in gone.items():
        for number in terms.numbers.tolist():
            slots, weights = lists[number] or _NONE
            rest = slots != slot
            lists[number] = Posting(slots[rest], weights[rest]) if rest.any() else None
    for slot, terms in added.items():
        lists += [None] * (int(terms.numbers.max(initial=-1)) + 1 - len(lists))
        for at, number in enumerate(terms.numbers.tolist()):
            slots, weights = lists[number] or _NONE
            lists[number] = Posting(np.append(slots, slot), np.append(weights, terms.weights[at]))
    return lists


def inverted(documents: Documents) -> Lists:
    """The lists of all documents, at once."""
    if not documents:
        return []
    slots = np.repeat(
        np.fromiter(documents, np.int64), [len(terms.numbers) for terms in documents.values()]
    )
    numbers = np.concatenate([terms.numbers for terms in documents.values()])
    weights = np.concatenate([terms.weights for terms in documents.values()])
    order = np.argsort(numbers, kind="stable")
    slots, weights = slots[order], weights[order]
    ends = np.cumsum(np.bincount(numbers)).tolist() if len(numbers) else []
    return [
        Posting(slots[start:end], weights[start:end]) if end > start else None
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
