"""Weighing: a document's words with the weight each has in it, and its text for a vector.

The weight is the document's share of BM25F, with fixed lengths in place of the averages of a
catalog: it depends on the document alone, so that a catalog can change without any weight of
another document changing. How rare a word is comes in with the query, in `index`.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain, islice
from typing import NamedTuple

from toolkiln.search.analysis import Words, joined, pairs, squeezed, words, words_or_all
from toolkiln.search.documents import Document


class _Field(NamedTuple):
    weight: float
    length: int
    """The number of words at which a field counts with exactly its weight."""


_SELF_EVIDENT = ""
"""The field that stands in for a missing description."""
_FIELDS = {
    "name": _Field(3.0, 4),
    "title": _Field(1.0, 4),
    "toolkit": _Field(1.0, 4),
    "description": _Field(1.2, 12),
    "parameters": _Field(0.5, 5),
    "arguments": _Field(0.5, 20),
    _SELF_EVIDENT: _Field(2.4, 12),
}
_NAMES = ("name", "title")
"""Fields whose neighbouring words make up one notion."""
_OTHER = _Field(0.4, 80)
_USAGES = _Field(1.5, 30)
_LENGTH_SHARE = 0.6
"""How far a long field counts less: BM25's b."""
_SATURATION = 3.0
"""The weight at which a word is worth half of what it can be: BM25's k1."""
_LONGEST_EMBEDDED = 100
"""Words: what comes later changes a vector little, and blurs it."""
_NO_WORDS = Words([], [], [])


class Weighed(NamedTuple):
    """A document as search keeps it."""

    weights: dict[str, float]
    """Between 0 and 1 by stemmed word."""
    text: str
    """What its vector is made of."""


def weigh(document: Document) -> Weighed:
    """Count and weigh all of a document's words."""
    said = {name: words(text) for name, text in document.fields.items()}
    said["name"] = words_or_all(document.fields.get("name", ""))
    if "title" in said and said["title"] == said["name"]:
        del said["title"]
    if not said.get("description", _NO_WORDS).terms:
        # Without it, a tool that is well named would lose to one that is well described.
        said[_SELF_EVIDENT] = joined([said["name"], said.get("toolkit", _NO_WORDS)])
    totals: defaultdict[str, float] = defaultdict(float)
    for name, found in said.items():
        _add(totals, found, _FIELDS.get(name, _OTHER), pairs(found) if name in _NAMES else ())
    _add(totals, joined([_NO_WORDS, *map(words, document.usages)]), _USAGES)
    weights = {term: total / (_SATURATION + total) for term, total in totals.items()}
    weights[literal(document.key)] = 1.0
    told = sorted(said.keys() - {"toolkit", _SELF_EVIDENT}, key=_place)
    spoken = chain.from_iterable(said[name].spoken for name in told)
    return Weighed(weights, " ".join(islice(spoken, _LONGEST_EMBEDDED)))


def literal(name: str) -> str:
    """The word that stands for a whole name in any spelling; no text has such a word."""
    return f"={squeezed(name)}"


def _place(name: str) -> tuple[float, str]:
    return -_FIELDS.get(name, _OTHER).weight, name


def _add(
    totals: defaultdict[str, float], found: Words, field: _Field, more: Iterable[str] = ()
) -> None:
    length = len(found.terms) / field.length
    share = field.weight / (1 - _LENGTH_SHARE + _LENGTH_SHARE * length)
    for term in chain(found.terms, more):
        totals[term] += share
