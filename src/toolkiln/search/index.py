"""The index: documents by what a text asks for.

An index never changes: `apply` makes another one that shares almost everything with it, and
readers of the old one go on undisturbed and without a lock. It knows nothing of catalogs,
permissions or where its cache lies; `kiln` asks and filters. Words are weighed in `weighing`,
scores combined in `ranking`, arrays kept in `rows` and `postings`.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from toolkiln.model import Answer, Hit, ToolSpec
from toolkiln.search import postings, saving
from toolkiln.search.analysis import words
from toolkiln.search.documents import Document
from toolkiln.search.documents import document as document_of
from toolkiln.search.embedder import Embedder, EmbeddingFailed
from toolkiln.search.postings import Lists, Posting, Terms, Vocabulary
from toolkiln.search.ranking import Floats, Permission, Ranked, best, certainty, ranked
from toolkiln.search.request import Request, request
from toolkiln.search.rows import Rows
from toolkiln.search.vectors import Bundled
from toolkiln.search.weighing import Weighed, literal, weigh

_FEWEST_USAGES = 3
"""Prompts from which their common direction says more than one of them alone misleads."""
_USAGE_SHARE = 0.6
"""The part of the vector that a document's usages then make up."""
_MANY = 64
"""Changed documents from which it is cheaper to make all lists of words anew, at once."""
_BY_WHOLE, _BY_CLAUSE = 50, 10
"""How many of the best by the whole query and by one clause are looked at closely."""
_HINTED = np.float32(0.2)
"""What a word is worth that the query only suggests."""
_INCOMPLETE = "the embeddings of some documents are missing; these are ranked by words only"


class _Entry(NamedTuple):
    key: str
    fingerprint: str
    """Empty if the vector is missing, so that the document counts as changed."""
    terms: Terms


class Index:
    """Documents that can be searched; frozen."""

    def __init__(self, embedder: Embedder | None = None) -> None:
        """Without a document; by the bundled vectors, if nothing else is given."""
        self._embedder = embedder = embedder or Bundled()
        self._vocabulary = Vocabulary()
        self._rows = Rows.empty(embedder.dimensions)
        self._lists: Lists = []
        self._entries: dict[int, _Entry] = {}
        self._slots: dict[str, int] = {}
        self._living = np.zeros(0, np.bool_)
        self._lots = np.zeros(0, np.uint64)
        self._unembedded = 0

    @classmethod
    def build(
        cls, documents: Iterable[Document | ToolSpec], embedder: Embedder | None = None
    ) -> "Index":
        """An index of these documents; a tool is one by what it says of itself."""
        return cls(embedder).apply(documents, ())

    @classmethod
    def load(cls, path: Path, embedder: Embedder) -> "Index":
        """The index that was saved there; empty if there is none that can be used.

        What is there may be damaged, or made by other code or with another embedder.
        """
        index = cls(embedder)
        saved = saving.read(path, embedder)
        if saved is None:
            return index
        index._vocabulary = Vocabulary(saved.words)
        entries = map(_Entry, saved.keys, saved.fingerprints, saved.terms)
        return index._with(list(entries), saved.vectors, [])

    def save(self, path: Path) -> None:
        """Keep it for `load`; who reads meanwhile finds the old file or this one, whole.

        Raises:
            OSError: It cannot be written.
        """
        entries = list(self._entries.values())
        saved = saving.Saved(
            [entry.key for entry in entries],
            [entry.fingerprint for entry in entries],
            self._vocabulary.words(),
            [entry.terms for entry in entries],
            self._rows.vectors[list(self._entries)],
        )
        saving.write(path, self._embedder, saved)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def is_whole(self) -> bool:
        """Whether every document has its vector."""
        return not self._unembedded

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """Of every document by key; empty where its vector could not be had."""
        return {entry.key: entry.fingerprint for entry in self._entries.values()}

    def apply(self, added: Iterable[Document | ToolSpec], removed: Iterable[str] = ()) -> "Index":
        """The index without some documents and with others, some in place of their earlier self."""
        given = (one if isinstance(one, Document) else document_of(one) for one in added)
        documents = {one.key: one for one in given}
        weighed = [weigh(document) for document in documents.values()]
        vectors = self._vectors(list(documents.values()), weighed)
        entries = [
            _Entry(
                document.key,
                "" if vectors is None else document.fingerprint,
                Terms(
                    np.array(self._vocabulary.numbered(one.weights), np.int32),
                    np.array(list(one.weights.values()), np.float32),
                ),
            )
            for document, one in zip(documents.values(), weighed, strict=True)
        ]
        if vectors is None:
            vectors = np.zeros((len(entries), self._embedder.dimensions), np.float32)
        gone = [self._slots[key] for key in {*removed, *documents} if key in self._slots]
        return self._with(entries, vectors, gone)

    def query(self, text: str, k: int, allow: Callable[[str], bool] | None = None) -> Answer:
        """The k best documents for a text, among those that `allow` says yes to."""
        if k <= 0 or not self._slots:
            return Answer()
        asked = request(text)
        lexical, possible = self._by_words(asked)
        vectors, note = self._embedded(asked)
        permitted = self._permission(allow)
        named = self._named(asked, permitted)
        chosen = named.keys() | self._promising(lexical, vectors, max(k, _BY_WHOLE), permitted)
        # By key, so that equal scores come in that order.
        slots = sorted(chosen, key=lambda slot: self._entries[slot].key)
        lexical = lexical[:, slots]
        semantic = None if vectors is None else vectors @ self._rows.vectors[slots].T
        names = np.array([named.get(slot, 0) for slot in slots], np.float32)
        places = list(ranked(lexical, semantic, names, k))
        if not places:
            return Answer(note=note)
        first = places[0].column
        near = None if semantic is None else semantic[:, first]
        sure = 1.0 if places[0].name else certainty(lexical[:, first] / possible, near)
        written = self._written(asked)
        hits = [_hit(asked, self._entries[slots[place.column]], place, written) for place in places]
        return Answer(tuple(hits), sure, note)

    def _promising(
        self, lexical: Floats, vectors: Floats | None, count: int, permitted: Permission | None
    ) -> set[int]:
        """The slots worth a closer look: the best by words, by each clause and by vectors."""
        chosen = set(best(lexical[0], count, self._lots, permitted))
        for scores in lexical[1:]:
            chosen.update(best(scores, _BY_CLAUSE, self._lots, permitted))
        if vectors is not None:
            nearness = self._rows.vectors[: len(self._living)] @ vectors[0]
            nearness[~self._living] = 0
            chosen.update(best(nearness, count, self._lots, permitted))
        return chosen

    def _by_words(self, asked: Request) -> tuple[Floats, Floats]:
        """What the words of the whole and of each clause score for each slot, and at most."""
        said = dict.fromkeys(asked.whole.words.terms)
        rows_of: dict[str, list[int]] = {term: [] for term in (*said, *asked.whole.hints)}
        for row, clause in enumerate(asked.clauses, 1):
            for term in dict.fromkeys((*clause.words.terms, *clause.hints)):
                rows_of.setdefault(term, []).append(row)
        scores = np.zeros((1 + len(asked.clauses), len(self._living)), np.float32)
        possible = np.full(1 + len(asked.clauses), 1e-6, np.float32)
        for term, rows in rows_of.items():
            posting = self._posting(term)
            count = len(posting.slots) if posting else 0
            rarity = np.float32(math.log(1 + (len(self) - count + 0.5) / (count + 0.5)))
            if term in said:
                possible[[0, *rows]] += rarity
            else:
                rarity *= _HINTED
            if posting:
                gain = posting.weights * rarity
                for row in rows:
                    scores[row, posting.slots] += gain
                if len(rows) != 1:  # the whole is the sum of its clauses, with each word once
                    scores[0, posting.slots] += gain * np.float32(1 - len(rows))
        if asked.clauses:
            scores[0] += scores[1:].sum(axis=0)
        return scores, possible

    def _embedded(self, asked: Request) -> tuple[Floats | None, str | None]:
        """The vectors of the parts, and what is to be said of vectors."""
        if not asked.whole.words.spoken:
            return None, None
        try:
            vectors = self._embedder.embed(asked.texts)
        except EmbeddingFailed as error:
            return None, f"{error.message}; ranked by words only"
        return vectors, _INCOMPLETE if self._unembedded else None

    def _permission(self, allow: Callable[[str], bool] | None) -> Permission | None:
        """Whether the document in a slot is allowed; each is asked for once."""
        if allow is None:
            return None
        return cache(lambda slot: allow(self._entries[slot].key))

    def _named(self, asked: Request, permitted: Permission | None) -> dict[int, float]:
        """The slots of the documents that the query names: 1, or 2 if spelt as they are."""
        named: dict[int, float] = {}
        for name in asked.names:
            posting = self._posting(literal(name))
            for slot in posting.slots.tolist() if posting else ():
                spelt = self._entries[slot].key == name
                meant = spelt or name not in asked.compounds
                if meant and (permitted is None or permitted(slot)):
                    named[slot] = max(named.get(slot, 1.0), 1.0 + spelt)
        return named

    def _posting(self, term: str) -> Posting | None:
        number = self._vocabulary.number(term)
        return None if number is None or number >= len(self._lists) else self._lists[number]

    def _written(self, asked: Request) -> dict[int | None, str]:
        """The words of a query by their numbers."""
        said = asked.whole.words
        return dict(zip(map(self._vocabulary.number, said.terms), said.written, strict=True))

    def _vectors(self, documents: Sequence[Document], weighed: Sequence[Weighed]) -> Floats | None:
        """The vectors of documents; None if they cannot be had."""
        texts = [one.text for one in weighed]
        spans = []
        for document in documents:
            usages = document.usages if len(document.usages) >= _FEWEST_USAGES else ()
            spans.append(slice(len(texts), len(texts) + len(usages)))
            texts += [" ".join(words(usage).spoken) for usage in usages]
        try:
            found = self._embedder.embed(texts) if texts else self._rows.vectors[:0]
        except EmbeddingFailed:
            return None
        vectors = found[: len(spans)].copy()  # what an embedder hands out stays its own
        for row, span in enumerate(spans):
            if span.start < span.stop:
                used = _unit(found[span].sum(axis=0))
                vectors[row] = _unit((1 - _USAGE_SHARE) * vectors[row] + _USAGE_SHARE * used)
        return vectors

    def _with(self, entries: Sequence[_Entry], vectors: Floats, gone: Sequence[int]) -> "Index":
        """The index with more entries, in rows of their own, and without those that are gone."""
        other = Index(self._embedder)
        other._vocabulary = self._vocabulary
        other._rows, slots = self._rows.placed(vectors, self._living)
        other._entries, other._slots = self._entries.copy(), self._slots.copy()
        lost = {slot: other._entries.pop(slot) for slot in gone}
        for entry in lost.values():
            del other._slots[entry.key]
        fresh = dict(zip(slots, entries, strict=True))
        other._entries.update(fresh)
        other._slots.update((entry.key, slot) for slot, entry in fresh.items())
        other._living = np.zeros(max(len(self._living), max(slots, default=-1) + 1), np.bool_)
        other._living[: len(self._living)] = self._living
        other._lots = np.zeros(len(other._living), np.uint64)
        other._lots[: len(self._lots)] = self._lots
        other._lots[slots] = [_lot(entry.key) for entry in entries]
        other._living[gone] = False
        other._living[slots] = True
        if len(lost) + len(fresh) < _MANY:
            other._lists = postings.changed(self._lists, _terms(lost), _terms(fresh))
        else:
            other._lists = postings.inverted(_terms(other._entries))
        without = sum(not entry.fingerprint for entry in fresh.values())
        other._unembedded = (
            self._unembedded + without - sum(not entry.fingerprint for entry in lost.values())
        )
        return other


def _hit(asked: Request, entry: _Entry, place: Ranked, written: Mapping[int | None, str]) -> Hit:
    parts = {
        "lexical": place.lexical,
        "semantic": place.semantic,
        "clause": place.clause,
        "name": place.name,
    }
    has = set(entry.terms.numbers.tolist())
    return Hit(
        entry.key,
        round(sum(parts.values()), 6),
        {name: round(part, 6) for name, part in parts.items() if part},
        tuple(word for number, word in written.items() if number in has),
        None if place.best_clause is None else asked.clauses[place.best_clause].text,
    )


def _lot(key: str) -> int:
    """The same for a key in every index, so that equal documents do not depend on their slots."""
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).digest())


def _terms(entries: Mapping[int, _Entry]) -> dict[int, Terms]:
    return {slot: entry.terms for slot, entry in entries.items()}


def _unit(vector: Floats) -> Floats:
    length = float(np.linalg.norm(vector))
    return vector / np.float32(length) if length else vector
