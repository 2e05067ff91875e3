"""Finding the few rules that may fit a call among very many.

A rule is kept under the rarest thing that it asks of the caller (a user, a group, a
privilege) together with the rarest that it asks of the tool (a name, how a name begins or
ends, a toolkit). What is found is only worth a look: whether a rule fits is for `rules`.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from toolkiln.execution.globs import Globs

_MOST_CELLS = 64
"""Pairs of caller and tool that one rule is kept under, before it is kept under one side only."""
_ANY = 0


class Asked(NamedTuple):
    """What rules look at."""

    who: str | None
    groups: frozenset[str]
    privileges: frozenset[str]
    name: str
    looks: str
    """The name, folded."""
    toolkit: str | None
    toolkit_looks: str
    hints: frozenset[str]


class Key(NamedTuple):
    """Something that a rule asks for and that it can be found by."""

    field: str
    """Of `model.Rule`."""
    how: str
    """`is`, `begins` or `ends`: what the text is to the name."""
    text: str


Way = frozenset[Key]
"""Keys under which, taken together, a rule is found whenever one of its values fits."""
Field = Sequence[Sequence[Way]]
"""For each value that a rule gives for a field, the ways to find it."""
_Cells = dict[int, list[int]]
"""The places of rules by the number of a key that a tool has."""


def field_of_texts(field: str, texts: Iterable[str]) -> Field:
    """How a rule is found by exact values."""
    return [[frozenset({Key(field, "is", text)})] for text in texts]


def field_of_globs(field: str, globs: Globs) -> Field:
    """How a rule is found by the names that globs fit."""
    found: list[list[Way]] = []
    for plain, loose in globs.globs:
        both = (plain, loose or plain)
        if plain.literal is not None:
            found.append([frozenset({Key(field, "is", both[1].literal or "")})])
            continue
        ways = {"begins": {glob.start for glob in both}, "ends": {glob.end for glob in both}}
        found.append(
            [
                frozenset(Key(field, how, text) for text in texts)
                for how, texts in ways.items()
                if "" not in texts
            ]
        )
    return found


class Index:
    """Where rules are kept; their places are counted from 0."""

    def __init__(self, rules: Sequence[tuple[Sequence[Field], Sequence[Field]]]) -> None:
        """Each rule with the fields that it gives about callers and about tools."""
        counts = Counter(
            key
            for sides in rules
            for side in sides
            for field in side
            for ways in field
            for way in ways
            for key in way
        )
        self._users: dict[str, _Cells] = {}
        self._groups: dict[str, _Cells] = {}
        self._privileges: dict[str, _Cells] = {}
        self._anybody: _Cells = {}
        numbers: dict[Key, int] = {}
        for place, sides in enumerate(rules):
            callers, tools = (_rarest(side, counts) for side in sides)
            if len(callers) * len(tools) > _MOST_CELLS:
                is_by_caller = _weight(callers, counts) < _weight(tools, counts)
                callers, tools = (callers, set()) if is_by_caller else (set(), tools)
            places = [numbers.setdefault(key, len(numbers) + 1) for key in tools] or [_ANY]
            for cells in [self._cells_of(key) for key in callers] or [self._anybody]:
                for number in places:
                    cells.setdefault(number, []).append(place)
        self._tools = _Names("tools", numbers)
        self._toolkits = _Names("toolkits", numbers)

    def candidates(self, asked: Asked) -> Iterator[list[int]]:
        """Lists of places, each in order; what can be found by nothing comes last."""
        numbers = self._tools.numbers(asked.name, asked.looks)
        if asked.toolkit is not None:
            numbers += self._toolkits.numbers(asked.toolkit, asked.toolkit_looks)
        numbers.append(_ANY)
        for cells in self._cells_for(asked):
            for number in numbers:
                if number in cells:
                    yield cells[number]

    def _cells_for(self, asked: Asked) -> list[_Cells]:
        found: list[_Cells] = []
        if asked.who is not None and asked.who in self._users:
            found.append(self._users[asked.who])
        if self._groups:
            found += [self._groups[name] for name in asked.groups if name in self._groups]
        if self._privileges:
            held = asked.privileges
            found += [self._privileges[name] for name in held if name in self._privileges]
        found.append(self._anybody)
        return found

    def _cells_of(self, key: Key) -> _Cells:
        kept = {"users": self._users, "groups": self._groups, "privileges": self._privileges}
        return kept[key.field].setdefault(key.text, {})


class _Names:
    """The keys that a name has: what it is, how it begins, how it ends."""

    def __init__(self, field: str, numbers: dict[Key, int]) -> None:
        by_how: dict[str, dict[str, int]] = {"is": {}, "begins": {}, "ends": {}}
        for key, number in numbers.items():
            if key.field == field:
                by_how[key.how][key.text] = number
        self._exact = by_how["is"]
        self._starts = _Starts(by_how["begins"])
        self._ends = _Starts({text[::-1]: number for text, number in by_how["ends"].items()})

    def numbers(self, name: str, looks: str) -> list[int]:
        found: list[int] = []
        for text in (name,) if name == looks else (name, looks):
            if text in self._exact:
                found.append(self._exact[text])
            if self._starts:
                self._starts.collect(text, found)
            if self._ends:
                self._ends.collect(text[::-1], found)
        return found


class _Starts:
    """Which of many texts a name begins with.

    All of them are the start of the one that comes last before the name in the alphabet, or
    that one itself; so each text knows the longest other one that it begins with.
    """

    def __init__(self, numbers: dict[str, int]) -> None:
        self._texts = sorted(numbers)
        self._numbers = [numbers[text] for text in self._texts]
        self._shorter: list[int] = []
        above: list[int] = []
        for place, text in enumerate(self._texts):
            while above and not text.startswith(self._texts[above[-1]]):
                above.pop()
            self._shorter.append(above[-1] if above else -1)
            above.append(place)

    def __bool__(self) -> bool:
        return bool(self._texts)

    def collect(self, name: str, found: list[int]) -> None:
        place = bisect_right(self._texts, name) - 1
        while place >= 0:
            if name.startswith(self._texts[place]):
                found.append(self._numbers[place])
            place = self._shorter[place]


def _rarest(side: Sequence[Field], counts: Counter[Key]) -> set[Key]:
    """The keys of the field that the fewest rules share; none if no field can be looked up."""
    best: set[Key] = set()
    for field in side:
        if all(field):
            keys = {key for ways in field for key in min(ways, key=lambda w: _weight(w, counts))}
            if not best or _weight(keys, counts) < _weight(best, counts):
                best = keys
    return best


def _weight(keys: Iterable[Key], counts: Counter[Key]) -> int:
    return sum(counts[key] for key in keys)
