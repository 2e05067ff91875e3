"""Text analysis: words, clauses and parsed queries.

English is stemmed lightly and stripped of stop words. Other languages are split at Unicode
word boundaries, or into pairs of characters where they are written without spaces. Weights
and document frequencies are up to `documents` and `index`.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

_STOP_WORD_LIST = """
    a able about above after again all also am an and any anything are as at be because been
    before being below between both but by can certain could curious currently d did do does
    doesn doing don down during each few finally first firstly for from further furthermore get
    give go going good got great had has have having he hello help helping her here hers hey hi
    him his how however i if im in interested into is isn it its itself just kindly know
    lastly lately later let like ll looking m make maybe me more moreover most much my myself
    need next no nor not now of off ok okay on once only or other our ours out over own plan
    planning please preferably provide re really regarding s same second secondly seeking she
    should show since so some someone something specific specifically such sure t tell than
    thank thanks that the their theirs them then there these they third thirdly this those
    through to too try trying under until up use using ve very want was way we well were what
    when where which while who whom why will with won wonder wondering would yes you your yours
    additionally appreciate assist assistance feeling sake
"""
_STOP_WORDS = frozenset(_STOP_WORD_LIST.split())
"""Function words and the usual openings of a request; they say nothing about a tool."""

_RUN = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_0-9A-Za-z]+")
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
_SENTENCE = re.compile(r"(?<=[.!?;])[\s\"']+|[\n。！？；]+")
_JOINT = re.compile(
    r"[,;]? (?:and then|and also|and|then|also|additionally|furthermore|moreover|finally"
    r"|lastly|secondly|afterwards|after that|plus|as well as|along with|besides)\b[,:]? |, ",
    re.IGNORECASE,
)
_MIN_CLAUSE_WORDS = 3
"""A shorter clause is joined to its neighbour."""
_MAX_CACHED_LENGTH = 50


class Words(NamedTuple):
    """The words of a text, in order, without stop words."""

    terms: list[str]
    """Stemmed; for `getUserID` the whole and its parts."""
    written: list[str]
    """The same in lower case, not stemmed."""
    spoken: list[str]
    """For `getUserID` only the parts; these are embedded."""


def words(text: str) -> Words:
    """Split a text into words."""
    found = Words([], [], [])
    for run in _RUN.findall(_normalize(text)):
        terms, written, spoken = (
            _split_run(run) if len(run) <= _MAX_CACHED_LENGTH else _split_run.__wrapped__(run)
        )
        found.terms.extend(terms)
        found.written.extend(written)
        found.spoken.extend(spoken)
    return found


def words_or_all(text: str) -> Words:
    """Like `words`, but keep stop words if there is nothing else, as in `get_next`."""
    found = words(text)
    if not found.terms:
        runs = [run.lower() for run in _RUN.findall(_normalize(text))]
        found = Words(runs, runs, runs)
    return found


def clauses(text: str) -> list[tuple[str, Words]]:
    """Split a prompt into parts that may each need a different tool."""
    found: list[tuple[str, Words]] = []
    for sentence in _SENTENCE.split(text):
        parts: list[tuple[str, Words]] = []
        for piece in _JOINT.split(sentence):
            part = piece.strip(), words(piece)
            if parts and min(len(parts[-1][1].spoken), len(part[1].spoken)) < _MIN_CLAUSE_WORDS:
                before = parts.pop()
                part = f"{before[0]} {part[0]}", joined([before[1], part[1]])
            parts.append(part)
        found += parts
    return found


def joined(texts: Iterable[Words]) -> Words:
    """Concatenate the words of several texts."""
    return Words(*([*chain.from_iterable(lists)] for lists in zip(*texts, strict=True)))


def pairs(found: Words) -> list[str]:
    """Join neighbouring words: `time zone` is often written `timezone`."""
    return [stem(first + second) for first, second in pairwise(found.spoken)]


def stem(word: str) -> str:
    """Reduce an English word to its stem, without plural, -ing, -ed and -al."""
    if len(word) <= 3 or not word.isascii():
        return word
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        if word.endswith("ies") and len(word) > 4:
            word = word[:-3] + "y"
        else:
            word = word[: -2 if word.endswith(("sses", "xes", "ches", "shes", "zes")) else -1]
    for suffix in ("ing", "ed"):
        rest = word.removesuffix(suffix)
        if rest != word and len(rest) >= 3 and any(letter in "aeiouy" for letter in rest):
            doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "lsz"
            word = rest[:-1] if doubled else rest
            break
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    if len(word) > 5 and word.endswith("al") and word[-3] != "m":  # keep animal apart from anime
        word = word[:-2]
    return word[:-1] + "i" if len(word) > 3 and word.endswith("y") else word


def normalize_name(text: str) -> str:
    """Remove case, separators and accents: `Get weather` and `getWeather` become equal."""
    return "".join(_RUN.findall(_normalize(text))).lower()


def _normalize(text: str) -> str:
    """Normalise to NFKC without accents and vowel signs."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    bare = "".join(char for char in decomposed if not unicodedata.category(char).startswith("M"))
    return unicodedata.normalize("NFKC", bare)


@lru_cache(50_000)
def _split_run(run: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return terms, written and spoken words of one run of letters and digits."""
    if not run.isascii() and _UNSPACED.search(run):
        written = tuple(_character_pairs(run))
        return written, written, (run,)
    parts = [part.lower() for part in _PART.findall(run)]
    spoken = tuple(part for part in parts if part not in _STOP_WORDS)
    written = (run.lower(), *spoken) if len(parts) > 1 else spoken
    return tuple(map(stem, written)), written, spoken


def _character_pairs(run: str) -> Iterator[str]:
    """Split scripts without spaces into pairs of characters."""
    for piece in filter(None, _UNSPACED.split(run)):
        if len(piece) > 1 and _UNSPACED.match(piece):
            yield from map("".join, pairwise(piece))
        else:
            yield piece.lower()


_MAX_HALF = 3_000
"""Characters used from the start and from the end of a long query."""
_MAX_CLAUSES = 8
_MAX_NAME = 200
_SPACES = re.compile(r"[^\S\n]+")
_TOKEN = re.compile(r"[\w.:/-]+")
_IDENTIFIER = re.compile(r"\w[_.:/-]\w|[a-z][A-Z]|[A-Za-z][0-9]")
"""Characteristic of identifiers."""
_COMPOUND = re.compile(r"[A-Za-z]+(?:[-/][A-Za-z]+)+")
"""May also be ordinary English, like `car-rental`."""
_IN_BACKTICKS = re.compile(f"`([^`\n]{{1,{_MAX_NAME}}})`")
_LINK = re.compile(r"(?:https?://|www\.)[^\s\"'<>]*[^\s\"'<>.,;:!?]")
"""Removed: the words of a link say nothing about the task."""
_MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}\.\w[\w.-]*")
"""Replaced by `email`."""
_VALUE_HINTS = {
    re.compile(
        r"\b(?:\d{4}[-/.]\d\d?[-/.]\d|\d\d?/\d\d?/\d\d|\d+(?:st|nd|rd|th)\b|next (?:week|month)\b"
        r"|(?:jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)[a-z]* \d|today\b|tomorrow\b"
        r"|yesterday\b|(?:mon|tues|wednes|thurs|fri|satur|sun)day\b)",
        re.IGNORECASE,
    ): ("date",),
    re.compile(r"\b(?:in|at|near) [A-Z][a-z]+"): ("location", "city"),
}
"""Kinds of values, with the usual names of parameters that accept them."""


class QueryPart(NamedTuple):
    """The whole query, or one clause of it."""

    text: str
    words: Words
    hints: list[str]
    """Implied terms: joined neighbours, and parameter names for its values."""


class ParsedQuery(NamedTuple):
    """A query split into clauses and names."""

    whole: QueryPart
    clauses: list[QueryPart]
    """Empty if there is only one."""
    names: list[str]
    """Possible literal names of documents."""
    compounds: set[str]
    """Names that only match a document with the same spelling."""

    @property
    def texts(self) -> list[str]:
        """Texts to embed: the whole query, then each clause."""
        return [" ".join(part.words.spoken) for part in (self.whole, *self.clauses)]


def parse_query(text: str) -> ParsedQuery:
    """Parse a query, or the start and end of a very long one."""
    if len(text) > 2 * _MAX_HALF:
        text = f"{text[:_MAX_HALF]}\n{text[-_MAX_HALF:]}"
    text = _SPACES.sub(" ", text)
    prose = _MAIL.sub("email", _LINK.sub("", text))
    if not prose.strip():
        prose = text
    parts = [_part(*clause) for clause in clauses(prose)]
    whole = joined(part.words for part in parts)
    parts = [part for part in parts if len(part.words.spoken) > 1]
    if len(parts) > _MAX_CLAUSES:
        parts = parts[: _MAX_CLAUSES // 2] + parts[-_MAX_CLAUSES // 2 :]
    tokens = [token.rstrip(".:/-") for token in _TOKEN.findall(text) if _IDENTIFIER.search(token)]
    certain = _IN_BACKTICKS.findall(text)
    if len(text) <= _MAX_NAME:
        certain.append(text.strip())
    return ParsedQuery(
        _part(prose, whole if whole.terms else words_or_all(prose)),
        parts if len(parts) > 1 else [],
        list(dict.fromkeys([*tokens, *certain])),
        set(filter(_COMPOUND.fullmatch, tokens)).difference(certain),
    )


def _part(text: str, words: Words) -> QueryPart:
    hints = pairs(words)
    for value, names in _VALUE_HINTS.items():
        if value.search(text):
            hints += map(stem, names)
    terms = set(words.terms)
    return QueryPart(text, words, [hint for hint in dict.fromkeys(hints) if hint not in terms])
