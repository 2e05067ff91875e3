"""Analysis: text to the words that search compares, and a prompt to its clauses.

English is stemmed lightly and loses its little words; every other language is split where
Unicode says so, and into pairs of characters where it writes no spaces. Nothing here knows
of documents, of weights or of how often a word occurs: `index` weighs.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

_LITTLE_WORDS = """
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
"""What says nothing of a tool: function words, and how people open a request."""
_STOP = frozenset(_LITTLE_WORDS.split())

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
_FEWEST = 3
"""Words that a clause has at least; a shorter one belongs to its neighbour."""
_LONGEST = 50
"""Characters of a word that is remembered."""


class Words(NamedTuple):
    """The words of a text that carry meaning, in order."""

    terms: list[str]
    """Stemmed; of `getUserID` the whole and its parts."""
    written: list[str]
    """The same in lower case, not stemmed."""
    spoken: list[str]
    """Of `getUserID` only the parts: what vectors are made of."""


def words(text: str) -> Words:
    """Read a text."""
    found = Words([], [], [])
    for run in _RUN.findall(_plain(text)):
        terms, written, spoken = _read(run) if len(run) <= _LONGEST else _read.__wrapped__(run)
        found.terms.extend(terms)
        found.written.extend(written)
        found.spoken.extend(spoken)
    return found


def words_or_all(text: str) -> Words:
    """The same, but every word where none carries meaning, as in the name `get_next`."""
    found = words(text)
    if not found.terms:
        runs = [run.lower() for run in _RUN.findall(_plain(text))]
        found = Words(runs, runs, runs)
    return found


def clauses(text: str) -> list[tuple[str, Words]]:
    """The parts of a prompt that may each want a tool of their own; its spaces are single."""
    found: list[tuple[str, Words]] = []
    for sentence in _SENTENCE.split(text):
        parts: list[tuple[str, Words]] = []
        for piece in _JOINT.split(sentence):
            part = piece.strip(), words(piece)
            if parts and min(len(parts[-1][1].spoken), len(part[1].spoken)) < _FEWEST:
                before = parts.pop()
                part = f"{before[0]} {part[0]}", joined([before[1], part[1]])
            parts.append(part)
        found += parts
    return found


def joined(several: Iterable[Words]) -> Words:
    """The words of one text after those of another."""
    return Words(*([*chain.from_iterable(lists)] for lists in zip(*several, strict=True)))


def pairs(found: Words) -> list[str]:
    """Neighbouring words as one: `time zone` is often written `timezone`, and means it."""
    return [stem(first + second) for first, second in pairwise(found.spoken)]


def stem(word: str) -> str:
    """The form that an English word shares with its plural, its -ing, its -ed and its -al."""
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
    if len(word) > 5 and word.endswith("al") and word[-3] != "m":  # animal is not akin to anime
        word = word[:-2]
    return word[:-1] + "i" if len(word) > 3 and word.endswith("y") else word


def squeezed(text: str) -> str:
    """A name without case, separators and accents: `Get weather` and `getWeather` are one."""
    return "".join(_RUN.findall(_plain(text))).lower()


def _plain(text: str) -> str:
    """Compatible forms as one, without accents and vowel signs."""
    if text.isascii():
        return text
    parted = unicodedata.normalize("NFKD", text)
    bare = "".join(char for char in parted if not unicodedata.category(char).startswith("M"))
    return unicodedata.normalize("NFKC", bare)


@lru_cache(50_000)
def _read(run: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The terms of a run of letters and digits, as they are written and as they are spoken."""
    if not run.isascii() and _UNSPACED.search(run):
        written = tuple(_pairs(run))
        return written, written, (run,)
    parts = [part.lower() for part in _PART.findall(run)]
    spoken = tuple(part for part in parts if part not in _STOP)
    written = (run.lower(), *spoken) if len(parts) > 1 else spoken
    return tuple(map(stem, written)), written, spoken


def _pairs(run: str) -> Iterator[str]:
    """The neighbouring characters of what is written without spaces; the rest as it is."""
    for piece in filter(None, _UNSPACED.split(run)):
        if len(piece) > 1 and _UNSPACED.match(piece):
            yield from map("".join, pairwise(piece))
        else:
            yield piece.lower()
