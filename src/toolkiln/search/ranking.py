"""Ranking: scores by words and by vectors to one order.

Pure functions over arrays: one row for each part of the query, the first for the whole of
it, one column for each document. Where the scores come from is `index`'s business.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Lots = NDArray[np.uint64]
"""One number for each place, drawn once: an order that favours nobody."""
Permission = Callable[[int], bool]
"""Whether the document in a place may be found."""

_SEMANTIC_SHARE = 0.5
"""The share of vectors where words say little …"""
_SEMANTIC_LOSS = 0.3
"""… and what it loses where they say much:"""
_LITTLE, _MUCH = 4.0, 12.0
_CLAUSE_SHARE = 0.6
"""What answering one clause well is worth beside answering the whole prompt."""
_CONTENTED = 0.2
"""What a clause is worth less once it has been answered as well as can be."""
_COVERED = 16
"""How many places are given out so; the rest follow by their scores."""


class Ranked(NamedTuple):
    """One document's place: its column, and what each way of looking adds to its score."""

    column: int
    lexical: float
    semantic: float
    clause: float
    name: float
    best_clause: int | None
    """Counted from 0; None if the prompt is one clause."""


def ranked(lexical: Floats, semantic: Floats | None, named: Floats, k: int) -> Iterator[Ranked]:
    """The k best documents, best first; of equal ones the one in the first column.

    Words are weighed against vectors in each part of the query, and the clauses against the
    whole. All but the name adds up to 1 at most.
    """
    by_words, by_vectors = _weighed(lexical, semantic)
    clauses = by_words[1:] + by_vectors[1:]
    share = _CLAUSE_SHARE / (1 + _CLAUSE_SHARE) if len(clauses) else 0.0
    words, vectors = (1 - share) * by_words[0], (1 - share) * by_vectors[0]
    whole = words + vectors + named
    for column, clause in _covering(whole, share * clauses, k):
        best_clause = int(clauses[:, column].argmax()) if len(clauses) else None
        yield Ranked(
            column,
            float(words[column]),
            float(vectors[column]),
            clause,
            float(named[column]),
            best_clause,
        )


def _weighed(lexical: Floats, semantic: Floats | None) -> tuple[Floats, Floats]:
    """The shares of words and of vectors, which are 1 together for what is best at both."""
    strongest = lexical.max(axis=1, initial=0.0)[:, np.newaxis]
    by_words = lexical / np.maximum(strongest, 1e-6)
    if semantic is None:
        return by_words, np.zeros_like(by_words)
    said = np.clip((strongest - _LITTLE) / (_MUCH - _LITTLE), 0.0, 1.0)
    share = _SEMANTIC_SHARE - _SEMANTIC_LOSS * said
    nearest = semantic.max(axis=1, initial=0.0)[:, np.newaxis]
    by_vectors = np.maximum(semantic, 0.0) / np.maximum(nearest, 1e-6)
    return (1 - share) * by_words, share * by_vectors


def _covering(whole: Floats, clauses: Floats, k: int) -> Iterator[tuple[int, float]]:
    """Columns and what their best clause adds, best first.

    What answers a clause makes the next answer to the same clause worth less, so that the
    first few cover all clauses.
    """
    part = clauses.max(axis=0, initial=0.0)
    total = np.round(whole + part, 6)
    if len(clauses):
        answered = clauses / max(float(clauses.max(initial=0.0)), 1e-6)
        wanted = np.ones((len(clauses), 1), np.float32)
        for _ in range(min(k, _COVERED, len(total))):
            column = int(total.argmax())
            if total[column] <= 0:
                return
            yield column, float(part[column])
            k -= 1
            wanted *= 1 - _CONTENTED * answered[:, column, np.newaxis] ** 4
            part = (clauses * wanted).max(axis=0)
            taken = total < 0
            total = np.round(whole + part, 6)
            total[taken] = total[column] = -1
    for column in np.argsort(-total, kind="stable")[:k].tolist():
        if total[column] > 0:
            yield column, float(part[column])


def certainty(covered: Floats, semantic: Floats | None) -> float:
    """How sure it is that a document fits at all, by the part of the query it fits best.

    `covered` is the share of what its words could score at most, `semantic` its nearness.
    """
    missed = 1 - covered
    if semantic is not None:
        missed = missed * (1 - semantic)
    return round(float(np.clip(1 - missed.min(), 0.0, 1.0)), 4)


def best(scores: Floats, count: int, lots: Lots, permitted: Permission | None = None) -> list[int]:
    """The `count` best places among those permitted; `lots` decide among equal ones.

    A score of 0 is none. Asks for permission no more often than it must.
    """
    wanted = count
    while True:
        found, exhausted = _highest(scores, wanted, lots)
        if permitted is None:
            return found
        kept = [place for place in found if permitted(place)]
        if len(kept) >= count or exhausted:
            return kept
        wanted *= 4


def _highest(scores: Floats, count: int, lots: Lots) -> tuple[list[int], bool]:
    """The places of the `count` highest scores, and whether these are all above 0."""
    top = scores.max(initial=0.0)
    for share in (0.6, 0.3, 0.0):  # most lie far below the top: it is cheaper to look there first
        found = np.flatnonzero(scores > share * top)
        if len(found) >= count:
            break
    if len(found) <= count:
        return found.tolist(), share == 0.0
    reached = scores[found]
    least = np.partition(reached, len(found) - count)[len(found) - count]
    above, equal = found[reached > least], found[reached == least]
    missing = count - len(above)
    if len(equal) > missing:
        equal = equal[np.argpartition(lots[equal], missing - 1)[:missing]]
    return [*above.tolist(), *equal.tolist()], False
