"""Search index and its file: words and vectors of documents.

An index is immutable: `apply` returns a new one that shares most data with the old, so readers
need no lock. Callers choose the documents, the visible results and the path of the file.
`documents` weights words, `ranking` combines scores. For each word, a posting lists the slots of
documents with that word and its weights.
"""

import hashlib
import json
import math
import os
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolkiln.model.search import Hit, SearchResult
from toolkiln.model.spec import ToolSpec
from toolkiln.search.analysis import ParsedQuery, parse_query, words
from toolkiln.search.bundled_embedder import BundledEmbedder
from toolkiln.search.documents import SearchDocument, WeightedDocument, literal, weigh
from toolkiln.search.documents import document as document_of
from toolkiln.search.embedder import Embedder, EmbeddingFailed
from toolkiln.search.ranking import Floats, Permission, Ranked, best, certainty, ranked


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


_SOURCES = ("analysis.py", "documents.py", "index.py")
"""The modules that determine the file's content; a change invalidates saved files."""

_DAMAGE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Errors of numpy, zipfile and json for a damaged file; the index is rebuilt then."""


class Saved(NamedTuple):
    """The content of an index file."""

    keys: list[str]
    fingerprints: list[str]
    words: list[str]
    """By word number."""
    terms: list[Terms]
    vectors: Floats


def write(path: Path, embedder: Embedder, saved: Saved) -> None:
    """Write the file atomically."""
    lengths = [len(terms.numbers) for terms in saved.terms]
    numbers = np.concatenate([np.zeros(0, np.int32), *(terms.numbers for terms in saved.terms)])
    weights = np.concatenate([np.zeros(0, np.float32), *(terms.weights for terms in saved.terms)])
    used, numbers = np.unique(numbers, return_inverse=True)  # drops unused words
    words = [saved.words[number] for number in used.tolist()]
    texts = json.dumps([saved.keys, saved.fingerprints, words]).encode()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(
                stream,
                version=np.array(_version(embedder)),
                texts=np.frombuffer(texts, np.uint8),
                lengths=np.array(lengths, np.int64),
                numbers=numbers.astype(np.int32),
                weights=weights,
                vectors=saved.vectors,
            )
        Path(name).replace(path)
    except BaseException:  # includes KeyboardInterrupt, so no partial file remains
        Path(name).unlink(missing_ok=True)
        raise


def read(path: Path, embedder: Embedder) -> Saved | None:
    """Read the file; None if it is missing, damaged or of another version."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            if str(arrays["version"]) != _version(embedder):
                return None
            keys, fingerprints, words = json.loads(arrays["texts"].tobytes())
            starts = [0, *np.cumsum(arrays["lengths"]).tolist()]
            numbers, weights, vectors = arrays["numbers"], arrays["weights"], arrays["vectors"]
        is_consistent = (
            len(keys) == len(fingerprints) == len(starts) - 1
            and len(numbers) == len(weights) == starts[-1]
            and numbers.max(initial=-1) < len(words)
            and vectors.shape == (len(keys), embedder.dimensions)
        )
    except _DAMAGE:
        return None
    terms = [Terms(numbers[start:end], weights[start:end]) for start, end in pairwise(starts)]
    return Saved(keys, fingerprints, words, terms, vectors) if is_consistent else None


def _version(embedder: Embedder) -> str:
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update(Path(__file__).with_name(name).read_bytes())
    digest.update(f"{embedder.name} {embedder.dimensions} {unicodedata.unidata_version}".encode())
    return digest.hexdigest()


_MIN_USAGES = 3
"""Fewer usages are not embedded, because a single one may mislead."""
_USAGE_SHARE = 0.6
"""The share of usages in a document's vector."""
_REBUILD_CHANGES = 64
"""Number of changed documents from which rebuilding all postings is cheaper."""
_QUERY_CANDIDATES, _CLAUSE_CANDIDATES = 50, 10
"""Number of candidates for the whole query and for each clause."""
_HINT_WEIGHT = np.float32(0.2)
_INCOMPLETE = "the embeddings of some documents are missing; these are ranked by words only"


class _Entry(NamedTuple):
    key: str
    fingerprint: str
    """Empty if the vector is missing; the document then counts as changed."""
    terms: Terms


class SearchIndex:
    """Immutable index of documents."""

    def __init__(self, embedder: Embedder | None = None) -> None:
        """Create an empty index, by default with the bundled embedder."""
        self._embedder = embedder = embedder or BundledEmbedder()
        self._vocabulary = Vocabulary()
        self._rows = Rows.empty(embedder.dimensions)
        self._lists: Lists = []
        self._entries: dict[int, _Entry] = {}
        self._slots: dict[str, int] = {}
        self._is_used = np.zeros(0, np.bool_)
        self._tiebreaks = np.zeros(0, np.uint64)
        self._unembedded = 0

    @classmethod
    def build(
        cls, documents: Iterable[SearchDocument | ToolSpec], embedder: Embedder | None = None
    ) -> "SearchIndex":
        """Build an index of documents or tools."""
        return cls(embedder).apply(documents, ())

    @classmethod
    def load(cls, path: Path, embedder: Embedder) -> "SearchIndex":
        """Load a saved index; empty if the file is missing, damaged or of another version."""
        index = cls(embedder)
        saved = read(path, embedder)
        if saved is None:
            return index
        index._vocabulary = Vocabulary(saved.words)
        entries = map(_Entry, saved.keys, saved.fingerprints, saved.terms)
        return index._with(list(entries), saved.vectors, [])

    def save(self, path: Path) -> None:
        """Save the index atomically.

        Raises:
            OSError: The file cannot be written.
        """
        entries = list(self._entries.values())
        saved = Saved(
            [entry.key for entry in entries],
            [entry.fingerprint for entry in entries],
            self._vocabulary.words(),
            [entry.terms for entry in entries],
            self._rows.vectors[list(self._entries)],
        )
        write(path, self._embedder, saved)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def is_complete(self) -> bool:
        """Whether every document has a vector."""
        return not self._unembedded

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """Key to fingerprint; empty for a document without a vector."""
        return {entry.key: entry.fingerprint for entry in self._entries.values()}

    def apply(
        self, added: Iterable[SearchDocument | ToolSpec], removed: Iterable[str] = ()
    ) -> "SearchIndex":
        """Return an index with some documents added or replaced and others removed."""
        items = (item if isinstance(item, SearchDocument) else document_of(item) for item in added)
        documents = {item.key: item for item in items}
        weighted = [weigh(document) for document in documents.values()]
        vectors = self._vectors(list(documents.values()), weighted)
        entries = [
            _Entry(
                document.key,
                "" if vectors is None else document.fingerprint,
                Terms(
                    np.array(self._vocabulary.numbered(words.weights), np.int32),
                    np.array(list(words.weights.values()), np.float32),
                ),
            )
            for document, words in zip(documents.values(), weighted, strict=True)
        ]
        if vectors is None:
            vectors = np.zeros((len(entries), self._embedder.dimensions), np.float32)
        stale = [self._slots[key] for key in {*removed, *documents} if key in self._slots]
        return self._with(entries, vectors, stale)

    def query(self, text: str, k: int, allow: Callable[[str], bool] | None = None) -> SearchResult:
        """Return the k best documents for a text among those that `allow` accepts."""
        if k <= 0 or not self._slots:
            return SearchResult()
        query = parse_query(text)
        lexical, maximum = self._word_scores(query)
        vectors, note = self._embed(query)
        permitted = self._permission(allow)
        named = self._named(query, permitted)
        count = max(k, _QUERY_CANDIDATES)
        candidates = named.keys() | self._candidates(lexical, vectors, count, permitted)
        # Sorted by key, which orders equal scores.
        slots = sorted(candidates, key=lambda slot: self._entries[slot].key)
        lexical = lexical[:, slots]
        semantic = None if vectors is None else vectors @ self._rows.vectors[slots].T
        names = np.array([named.get(slot, 0) for slot in slots], np.float32)
        ranking = list(ranked(lexical, semantic, names, k))
        if not ranking:
            return SearchResult(note=note)
        first = ranking[0].column
        similarity = None if semantic is None else semantic[:, first]
        confidence = 1.0 if ranking[0].name else certainty(lexical[:, first] / maximum, similarity)
        written = self._written(query)
        hits = [_hit(query, self._entries[slots[item.column]], item, written) for item in ranking]
        return SearchResult(tuple(hits), confidence, note)

    def _candidates(
        self, lexical: Floats, vectors: Floats | None, count: int, permitted: Permission | None
    ) -> set[int]:
        """Return the best slots by words, by each clause and by vectors."""
        slots = set(best(lexical[0], count, self._tiebreaks, permitted))
        for scores in lexical[1:]:
            slots.update(best(scores, _CLAUSE_CANDIDATES, self._tiebreaks, permitted))
        if vectors is not None:
            similarity = self._rows.vectors[: len(self._is_used)] @ vectors[0]
            similarity[~self._is_used] = 0
            slots.update(best(similarity, count, self._tiebreaks, permitted))
        return slots

    def _word_scores(self, query: ParsedQuery) -> tuple[Floats, Floats]:
        """Return scores by part of the query and slot, and the maximum score of each part."""
        terms = dict.fromkeys(query.whole.words.terms)
        rows_of: dict[str, list[int]] = {term: [] for term in (*terms, *query.whole.hints)}
        for row, clause in enumerate(query.clauses, 1):
            for term in dict.fromkeys((*clause.words.terms, *clause.hints)):
                rows_of.setdefault(term, []).append(row)
        scores = np.zeros((1 + len(query.clauses), len(self._is_used)), np.float32)
        maximum = np.full(1 + len(query.clauses), 1e-6, np.float32)
        for term, rows in rows_of.items():
            posting = self._posting(term)
            count = len(posting.slots) if posting else 0
            rarity = np.float32(math.log(1 + (len(self) - count + 0.5) / (count + 0.5)))
            if term in terms:
                maximum[[0, *rows]] += rarity
            else:
                rarity *= _HINT_WEIGHT
            if posting:
                gain = posting.weights * rarity
                for row in rows:
                    scores[row, posting.slots] += gain
                if len(rows) != 1:  # the whole is the sum of its clauses, counting each word once
                    scores[0, posting.slots] += gain * np.float32(1 - len(rows))
        if query.clauses:
            scores[0] += scores[1:].sum(axis=0)
        return scores, maximum

    def _embed(self, query: ParsedQuery) -> tuple[Floats | None, str | None]:
        """Return the vectors of the query's parts, and a note if vectors are missing."""
        if not query.whole.words.spoken:
            return None, None
        try:
            vectors = self._embedder.embed(query.texts)
        except EmbeddingFailed as error:
            return None, f"{error.message}; ranked by words only"
        return vectors, _INCOMPLETE if self._unembedded else None

    def _permission(self, allow: Callable[[str], bool] | None) -> Permission | None:
        if allow is None:
            return None
        return cache(lambda slot: allow(self._entries[slot].key))

    def _named(self, query: ParsedQuery, permitted: Permission | None) -> dict[int, float]:
        """Return the slots of documents named in the query: 1, or 2 for the exact spelling."""
        named: dict[int, float] = {}
        for name in query.names:
            posting = self._posting(literal(name))
            for slot in posting.slots.tolist() if posting else ():
                is_exact = self._entries[slot].key == name
                matches = is_exact or name not in query.compounds
                if matches and (permitted is None or permitted(slot)):
                    named[slot] = max(named.get(slot, 1.0), 1.0 + is_exact)
        return named

    def _posting(self, term: str) -> Posting | None:
        number = self._vocabulary.number(term)
        return None if number is None or number >= len(self._lists) else self._lists[number]

    def _written(self, query: ParsedQuery) -> dict[int | None, str]:
        """Return the words of a query by number."""
        words = query.whole.words
        return dict(zip(map(self._vocabulary.number, words.terms), words.written, strict=True))

    def _vectors(
        self, documents: Sequence[SearchDocument], weighted: Sequence[WeightedDocument]
    ) -> Floats | None:
        """Return the vectors of documents; None if the embedder fails."""
        texts = [document.text for document in weighted]
        spans = []
        for document in documents:
            usages = document.usages if len(document.usages) >= _MIN_USAGES else ()
            spans.append(slice(len(texts), len(texts) + len(usages)))
            texts += [" ".join(words(usage).spoken) for usage in usages]
        try:
            found = self._embedder.embed(texts) if texts else self._rows.vectors[:0]
        except EmbeddingFailed:
            return None
        vectors = found[: len(spans)].copy()  # the array may belong to the embedder
        for row, span in enumerate(spans):
            if span.start < span.stop:
                usage = _unit(found[span].sum(axis=0))
                vectors[row] = _unit((1 - _USAGE_SHARE) * vectors[row] + _USAGE_SHARE * usage)
        return vectors

    def _with(
        self, entries: Sequence[_Entry], vectors: Floats, stale: Sequence[int]
    ) -> "SearchIndex":
        """Return an index with these entries added and the stale slots removed."""
        other = SearchIndex(self._embedder)
        other._vocabulary = self._vocabulary
        other._rows, slots = self._rows.with_vectors(vectors, self._is_used)
        other._entries, other._slots = self._entries.copy(), self._slots.copy()
        removed = {slot: other._entries.pop(slot) for slot in stale}
        for entry in removed.values():
            del other._slots[entry.key]
        added = dict(zip(slots, entries, strict=True))
        other._entries.update(added)
        other._slots.update((entry.key, slot) for slot, entry in added.items())
        other._is_used = np.zeros(max(len(self._is_used), max(slots, default=-1) + 1), np.bool_)
        other._is_used[: len(self._is_used)] = self._is_used
        other._tiebreaks = np.zeros(len(other._is_used), np.uint64)
        other._tiebreaks[: len(self._tiebreaks)] = self._tiebreaks
        other._tiebreaks[slots] = [_tiebreak(entry.key) for entry in entries]
        other._is_used[stale] = False
        other._is_used[slots] = True
        if len(removed) + len(added) < _REBUILD_CHANGES:
            other._lists = updated(self._lists, _terms(removed), _terms(added))
        else:
            other._lists = inverted(_terms(other._entries))
        other._unembedded = sum(not entry.fingerprint for entry in other._entries.values())
        return other


def _hit(query: ParsedQuery, entry: _Entry, item: Ranked, written: Mapping[int | None, str]) -> Hit:
    parts = {
        "lexical": item.lexical,
        "semantic": item.semantic,
        "clause": item.clause,
        "name": item.name,
    }
    numbers = set(entry.terms.numbers.tolist())
    return Hit(
        entry.key,
        round(sum(parts.values()), 6),
        {name: round(part, 6) for name, part in parts.items() if part},
        tuple(word for number, word in written.items() if number in numbers),
        None if item.best_clause is None else query.clauses[item.best_clause].text,
    )


def _tiebreak(key: str) -> int:
    # The same in every index, so that the order of equal documents does not depend on slots.
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).digest())


def _terms(entries: Mapping[int, _Entry]) -> dict[int, Terms]:
    return {slot: entry.terms for slot, entry in entries.items()}


def _unit(vector: Floats) -> Floats:
    length = float(np.linalg.norm(vector))
    return vector / np.float32(length) if length else vector
