"""A request: a query taken apart, before any index is asked.

It has the query as a whole, its clauses, what both suggest without saying it, and the names
that stand in it literally. Whether anything answers to them is `index`'s business.
"""

import re
from typing import NamedTuple

from toolkiln.search.analysis import Words, clauses, joined, pairs, stem, words_or_all

_LONGEST_HALF = 3_000
"""Characters of a longer query that are looked at, at its start and at its end."""
_MOST_CLAUSES = 8
_LONGEST_NAME = 200
_SPACES = re.compile(r"[^\S\n]+")
_TOKEN = re.compile(r"[\w.:/-]+")
_IDENTIFIER = re.compile(r"\w[_.:/-]\w|[a-z][A-Z]|[A-Za-z][0-9]")
"""What a word has that can hardly be anything but a name."""
_COMPOUND = re.compile(r"[A-Za-z]+(?:[-/][A-Za-z]+)+")
"""What is ordinary English too, like `car-rental`."""
_MARKED = re.compile(f"`([^`\n]{{1,{_LONGEST_NAME}}})`")
_LINK = re.compile(r"(?:https?://|www\.)[^\s\"'<>]*[^\s\"'<>.,;:!?]")
"""A value, whose words say nothing of what is to be done with it."""
_MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}\.\w[\w.-]*")
"""Another one, but it tells that this is about mail."""
_VALUES = {
    re.compile(
        r"\b(?:\d{4}[-/.]\d\d?[-/.]\d|\d\d?/\d\d?/\d\d|\d+(?:st|nd|rd|th)\b|next (?:week|month)\b"
        r"|(?:jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)[a-z]* \d|today\b|tomorrow\b"
        r"|yesterday\b|(?:mon|tues|wednes|thurs|fri|satur|sun)day\b)",
        re.IGNORECASE,
    ): ("date",),
    re.compile(r"\b(?:in|at|near) [A-Z][a-z]+"): ("location", "city"),
}
"""What the parameters are called that take values like these."""


class Part(NamedTuple):
    """The whole query, or one clause of it."""

    text: str
    words: Words
    hints: list[str]
    """Terms it only suggests: two words as one, and what a parameter for its values is called."""


class Request(NamedTuple):
    """What a query asks for."""

    whole: Part
    clauses: list[Part]
    """Empty if it is one."""
    names: list[str]
    """What may be the literal name of a document, as it is written."""
    compounds: set[str]
    """Those of them that a document must spell in the same way."""

    @property
    def texts(self) -> list[str]:
        """What the vectors of the whole and of each clause are made of."""
        return [" ".join(part.words.spoken) for part in (self.whole, *self.clauses)]


def request(text: str) -> Request:
    """Take a query apart; of a very long one its start and its end."""
    if len(text) > 2 * _LONGEST_HALF:
        text = f"{text[:_LONGEST_HALF]}\n{text[-_LONGEST_HALF:]}"
    text = _SPACES.sub(" ", text)
    told = _MAIL.sub("email", _LINK.sub("", text))
    if not told.strip():
        told = text
    found = [_part(*clause) for clause in clauses(told)]
    whole = joined(part.words for part in found)
    found = [part for part in found if len(part.words.spoken) > 1]
    if len(found) > _MOST_CLAUSES:
        found = found[: _MOST_CLAUSES // 2] + found[-_MOST_CLAUSES // 2 :]
    tokens = [token.rstrip(".:/-") for token in _TOKEN.findall(text) if _IDENTIFIER.search(token)]
    certain = _MARKED.findall(text)
    if len(text) <= _LONGEST_NAME:
        certain.append(text.strip())
    return Request(
        _part(told, whole if whole.terms else words_or_all(told)),
        found if len(found) > 1 else [],
        list(dict.fromkeys([*tokens, *certain])),
        set(filter(_COMPOUND.fullmatch, tokens)).difference(certain),
    )


def _part(text: str, said: Words) -> Part:
    hints = pairs(said)
    for value, names in _VALUES.items():
        if value.search(text):
            hints += map(stem, names)
    terms = set(said.terms)
    return Part(text, said, [hint for hint in dict.fromkeys(hints) if hint not in terms])
