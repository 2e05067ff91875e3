"""A request: a query taken apart, before any index is asked.

It has the query as a whole, its clauses, and the names that stand in it literally. Whether
anything answers to them is `index`'s business.
"""

import re
from typing import NamedTuple

from toolkiln.search.analysis import Words, clauses, joined, words_or_all

_LONGEST_HALF = 3_000
"""Characters of a longer query that are looked at, at its start and at its end."""
_MOST_CLAUSES = 8
_LONGEST_NAME = 200
_SPACES = re.compile(r"[^\S\n]+")
_TOKEN = re.compile(r"[\w.:/-]+")
_IDENTIFIER = re.compile(r"\w[_.:/-]\w|[a-z][A-Z]|[A-Za-z][0-9]")
"""What a word has that can hardly be anything but a name."""
_MARKED = re.compile(f"`([^`\n]{{1,{_LONGEST_NAME}}})`")


class Part(NamedTuple):
    """The whole query, or one clause of it."""

    text: str
    words: Words


class Request(NamedTuple):
    """What a query asks for."""

    whole: Part
    clauses: list[Part]
    """Empty if it is one."""
    names: list[str]
    """What may be the literal name of a document, as it is written."""

    @property
    def texts(self) -> list[str]:
        """What the vectors of the whole and of each clause are made of."""
        return [" ".join(part.words.spoken) for part in (self.whole, *self.clauses)]


def request(text: str) -> Request:
    """Take a query apart; of a very long one its start and its end."""
    if len(text) > 2 * _LONGEST_HALF:
        text = f"{text[:_LONGEST_HALF]}\n{text[-_LONGEST_HALF:]}"
    text = _SPACES.sub(" ", text)
    found = [Part(*clause) for clause in clauses(text)]
    whole = joined(part.words for part in found)
    found = [part for part in found if len(part.words.spoken) > 1]
    if len(found) > _MOST_CLAUSES:
        found = found[: _MOST_CLAUSES // 2] + found[-_MOST_CLAUSES // 2 :]
    tokens = [token.rstrip(".:/-") for token in _TOKEN.findall(text) if _IDENTIFIER.search(token)]
    whole_name = [text.strip()] if len(text) <= _LONGEST_NAME else []
    return Request(
        Part(text, whole if whole.terms else words_or_all(text)),
        found if len(found) > 1 else [],
        list(dict.fromkeys([*tokens, *_MARKED.findall(text), *whole_name])),
    )
