"""Ranking: word scores and vector scores combined into one order.

Pure functions over arrays with one column for each document and one row for each part of the
query; the first row is the whole query. `index` computes the scores.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Tiebreaks = NDArray[np.uint64]
"""A pseudo-random number for each slot that orders equal scores."""
Permission = Callable[[int], bool]
"""Whether the document in a slot may be returned."""

_SEMANTIC_SHARE = 0.5
"""Share of vectors when word scores are low."""
_SEMANTIC_LOSS = 0.3
"""How much less that share is when word scores are high."""
_LOW_SCORE, _HIGH_SCORE = 4.0, 12.0
_CLAUSE_SHARE = 0.6
"""Weight of the best clause relative to the whole prompt."""
_ANSWERED_DISCOUNT = 0.2
"""Discount on a clause that a higher-ranked document already answers."""
_DIVERSIFIED = 16
"""Number of ranks with that discount; the others follow by score."""


class Ranked(NamedTuple):
    """One ranked document: its column and the components of its score."""

    column: int
    lexical: float
    semantic: float
    clause: float
    name: float
    best_clause: int | None
    """Index of the clause; None if the prompt is a single clause."""


def ranked(lexical: Floats, semantic: Floats | None, named: Floats, k: int) -> Iterator[Ranked]:
    """Yield the k best documents; of equal ones, the first column comes first.

    Word and vector scores are combined for each part of the query, then clauses with the
    whole. All components but the name add up to at most 1.
    """
    by_words, by_vectors = _weighted(lexical, semantic)
    clauses = by_words[1:] + by_vectors[1:]
    share = _CLAUSE_SHARE / (1 + _CLAUSE_SHARE) if len(clauses) else 0.0
    words, vectors = (1 - share) * by_words[0], (1 - share) * by_vectors[0]
    whole = words + vectors + named
    for column, clause in _diversified(whole, share * clauses, k):
        best_clause = int(clauses[:, column].argmax()) if len(clauses) else None
        yield Ranked(
            column,
            float(words[column]),
            float(vectors[column]),
            clause,
            float(named[column]),
            best_clause,
        )


def _weighted(lexical: Floats, semantic: Floats | None) -> tuple[Floats, Floats]:
    # The two add up to 1 for a document that is best by words and by vectors.
    strongest = lexical.max(axis=1, initial=0.0)[:, np.newaxis]
    by_words = lexical / np.maximum(strongest, 1e-6)
    if semantic is None:
        return by_words, np.zeros_like(by_words)
    strength = np.clip((strongest - _LOW_SCORE) / (_HIGH_SCORE - _LOW_SCORE), 0.0, 1.0)
    share = _SEMANTIC_SHARE - _SEMANTIC_LOSS * strength
    nearest = semantic.max(axis=1, initial=0.0)[:, np.newaxis]
    by_vectors = np.maximum(semantic, 0.0) / np.maximum(nearest, 1e-6)
    return (1 - share) * by_words, share * by_vectors


def _diversified(whole: Floats, clauses: Floats, k: int) -> Iterator[tuple[int, float]]:
    """Yield columns, best first, with the score of their best clause.

    Each document discounts the clauses it answers, so that the first few cover all clauses.
    """
    part = clauses.max(axis=0, initial=0.0)
    total = np.round(whole + part, 6)
    if len(clauses):
        answered = clauses / max(float(clauses.max(initial=0.0)), 1e-6)
        unanswered = np.ones((len(clauses), 1), np.float32)
        for _ in range(min(k, _DIVERSIFIED, len(total))):
            column = int(total.argmax())
            if total[column] <= 0:
                return
            yield column, float(part[column])
            k -= 1
            unanswered *= 1 - _ANSWERED_DISCOUNT * answered[:, column, np.newaxis] ** 4
            part = (clauses * unanswered).max(axis=0)
            taken = total < 0
            total = np.round(whole + part, 6)
            total[taken] = total[column] = -1
    for column in np.argsort(-total, kind="stable")[:k].tolist():
        if total[column] > 0:
            yield column, float(part[column])


def certainty(covered: Floats, semantic: Floats | None) -> float:
    """Return the confidence that a document matches its best part of the query.

    `covered` is its share of the maximum word score, `semantic` its similarity.
    """
    missed = 1 - covered
    if semantic is not None:
        missed = missed * (1 - semantic)
    return round(float(np.clip(1 - missed.min(), 0.0, 1.0)), 4)


def best(
    scores: Floats, count: int, tiebreaks: Tiebreaks, permitted: Permission | None = None
) -> list[int]:
    """Return the `count` best permitted slots with a positive score.

    Checks the permission of as few slots as possible.
    """
    requested = count
    while True:
        found, exhausted = _highest(scores, requested, tiebreaks)
        if permitted is None:
            return found
        allowed = [slot for slot in found if permitted(slot)]
        if len(allowed) >= count or exhausted:
            return allowed
        requested *= 4


def _highest(scores: Floats, count: int, tiebreaks: Tiebreaks) -> tuple[list[int], bool]:
    """Return the slots of the highest scores, and whether these are all positive ones."""
    top = scores.max(initial=0.0)
    for share in (0.6, 0.3, 0.0):  # most scores are far below the top, so start there
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
        equal = equal[np.argpartition(tiebreaks[equal], missing - 1)[:missing]]
    return [*above.tolist(), *equal.tolist()], False
