"""Postings and vectors of the search index.

For each word, a posting lists the slots of documents with that word and its weights.
Successive indexes share unchanged postings and the vocabulary.
"""

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Vocabulary:
    """Numbers words; the number of a word never changes."""

    __slots__ = ("_lock", "_numbers")

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._numbers = {word: number for number, word in enumerate(words)}
        self._lock = Lock()

    def number(self, word: str) -> int | None:
        """Return the number of a word; None if no document ever had it."""
        return self._numbers.get(word)

    def numbered(self, words: Iterable[str]) -> list[int]:
        """Return the numbers of words, adding unknown words."""
        numbers = self._numbers
        with self._lock:
            return [numbers.setdefault(word, len(numbers)) for word in words]

    def words(self) -> list[str]:
        """Return all words in the order of their numbers."""
        with self._lock:
            return list(self._numbers)


class Terms(NamedTuple):
    """The word numbers of one document with their weights."""

    numbers: NDArray[np.int32]
    weights: NDArray[np.float32]


class Posting(NamedTuple):
    """The slots of documents with one word, and the word's weights."""

    slots: NDArray[np.int64]
    weights: NDArray[np.float32]


_EMPTY = Posting(np.zeros(0, np.int64), np.zeros(0, np.float32))
Documents = Mapping[int, Terms]
"""Slot to terms."""
Lists = list[Posting | None]
"""Postings by word number."""


def updated(lists: Lists, removed: Documents, added: Documents) -> Lists:
    """Remove and add documents; the cost grows with their number."""
    lists = lists.copy()
    for slot, terms in removed.items():
        for number in terms.numbers.tolist():
            slots, weights = lists[number] or _EMPTY
            rest = slots != slot
            lists[number] = Posting(slots[rest], weights[rest]) if rest.any() else None
    for slot, terms in added.items():
        lists += [None] * (int(terms.numbers.max(initial=-1)) + 1 - len(lists))
        for index, number in enumerate(terms.numbers.tolist()):
            slots, weights = lists[number] or _EMPTY
            weight = terms.weights[index]
            lists[number] = Posting(np.append(slots, slot), np.append(weights, weight))
    return lists


def inverted(documents: Documents) -> Lists:
    """Build the postings of all documents at once."""
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


_SPARE_ROWS = 32
"""Spare rows of a small matrix, so that few changes copy it."""


class Rows:
    """Matrix of vectors by slot, with its free slots."""

    __slots__ = ("_free", "_lock", "vectors")

    def __init__(self, vectors: NDArray[np.float32], free: list[int]) -> None:
        self.vectors = vectors
        self._free = sorted(free, reverse=True)
        self._lock = Lock()

    @classmethod
    def empty(cls, dimensions: int) -> "Rows":
        """Create a matrix without rows."""
        return cls(np.zeros((0, dimensions), np.float32), [])

    def with_vectors(
        self, vectors: NDArray[np.float32], is_used: NDArray[np.bool_]
    ) -> tuple["Rows", list[int]]:
        """Return a matrix that includes these vectors, and their slots."""
        rows, count = self, len(vectors)
        with self._lock:
            slots = [self._free.pop() for _ in range(count)] if count <= len(self._free) else []
        if len(slots) < count:
            rows = self._grow(count, is_used)
            slots = [rows._free.pop() for _ in range(count)]
        rows.vectors[slots] = vectors
        return rows, slots

    def _grow(self, count: int, is_used: NDArray[np.bool_]) -> "Rows":
        # Unused rows become free; a quarter more rows than needed are spare.
        old = len(is_used)
        needed = int(is_used.sum()) + count + _SPARE_ROWS
        vectors = np.zeros((max(old, needed + needed // 4), self.vectors.shape[1]), np.float32)
        vectors[:old] = self.vectors[:old]
        free = [*np.flatnonzero(~is_used).tolist(), *range(old, len(vectors))]
        return Rows(vectors, free)
