"""How well a search finds: recall and NDCG over questions with known answers.

It measures any function from a query to names, and knows nothing of indexes or of how
results are printed. An evaluation can be written as JSON, read again and compared.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from difflib import get_close_matches
from math import fsum, log2
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from toolkiln.errors import InputError
from toolkiln.model import Value

DEPTH = 10
"""How many names are asked for."""

Share = Annotated[float, Field(ge=0, le=1)]
Recall = Annotated[tuple[Share, ...], Field(min_length=DEPTH, max_length=DEPTH)]
"""The part of the gold among the first 1, 2, … names."""
Search = Callable[[str, int], Sequence[str]]
"""From a query and a number to at most that many names, best first."""
Progress = Callable[[int, int], None]
"""Hears how many queries are done, and of how many."""


class Case(Value):
    """A query and the tools that should be found."""

    query: str
    gold: tuple[str, ...]


class Outcome(Value):
    """What became of one query."""

    query: str
    gold: tuple[str, ...]
    found: tuple[str, ...]
    """The names that came, best first."""
    recall: Recall
    ndcg: Share
    """How near the gold is to the top: 1 if nothing stands before it."""


class Evaluation(Value):
    """The outcomes of all queries, and their means."""

    recall: Recall
    ndcg: Share
    outcomes: Annotated[tuple[Outcome, ...], Field(min_length=1)]
    unknown: dict[str, int]
    """Gold that is no tool, with the number of queries that name it; it is not counted."""
    skipped: int
    """Queries left out because none of their gold is a tool."""

    def recall_at(self, k: int) -> float:
        """The mean part of the gold among the first `k` names."""
        return self.recall[k - 1]

    def worst(self, count: int) -> tuple[Outcome, ...]:
        """The queries that went worst, of those that did not go perfectly."""
        imperfect = (outcome for outcome in self.outcomes if outcome.ndcg < 1)
        return tuple(sorted(imperfect, key=lambda outcome: outcome.ndcg)[:count])


class Change(Value):
    """One query before and after."""

    before: Outcome
    after: Outcome

    @property
    def gain(self) -> float:
        """By how much it goes better; below zero if it goes worse."""
        return self.after.ndcg - self.before.ndcg


class Comparison(Value):
    """Two evaluations over the queries that both have with the same gold."""

    before: Evaluation
    after: Evaluation
    better: tuple[Change, ...]
    """Queries that gained, the most first."""
    worse: tuple[Change, ...]
    """Queries that lost, the most first."""
    unmatched: int
    """Queries that only one of the two has."""


def read_cases(file: Path) -> tuple[Case, ...]:
    """The cases of a file with one JSON object in each line: `query`, and `gold` names.

    Raises:
        InputError: The file cannot be read, or a line of it cannot be used.
    """
    cases: list[Case] = []
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    cases.append(_case(line, f"{file}, line {number}"))
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be read: {error.strerror}") from error
    if not cases:
        raise InputError(f"there is no query in {str(file)!r}", hint=_FORM)
    return tuple(cases)


def evaluate(
    cases: Sequence[Case],
    search: Search,
    tools: Collection[str],
    progress: Progress = lambda _done, _total: None,
) -> Evaluation:
    """Search for every case among `tools`, and measure what comes.

    Raises:
        InputError: No gold is the name of a tool.
    """
    names = frozenset(tools)
    unknown = Counter(name for case in cases for name in case.gold if name not in names)
    outcomes: list[Outcome] = []
    for done, case in enumerate(cases, 1):
        gold = tuple(name for name in case.gold if name in names)
        if gold:
            outcomes.append(_outcome(case.query, gold, search(case.query, DEPTH)))
        progress(done, len(cases))
    if not outcomes:
        raise InputError(
            "none of the names in the file is a tool", hint=_nearest(list(unknown), names)
        )
    return _evaluation(outcomes, dict(unknown.most_common()), len(cases) - len(outcomes))


def compare(before: Evaluation, after: Evaluation) -> Comparison:
    """What became better and what worse, on the queries that both have.

    Raises:
        InputError: They have no query in common.
    """
    old, new = _by_case(before), _by_case(after)
    common = [key for key in new if key in old]
    if not common:
        raise InputError("the two evaluations have no query in common")
    changes = sorted(
        (Change(before=old[key], after=new[key]) for key in common),
        key=lambda change: -change.gain,
    )
    return Comparison(
        before=_evaluation([old[key] for key in common]),
        after=_evaluation([new[key] for key in common]),
        better=tuple(change for change in changes if change.gain > 0),
        worse=tuple(change for change in reversed(changes) if change.gain < 0),
        unmatched=len(old) + len(new) - 2 * len(common),
    )


def read_evaluation(file: Path) -> Evaluation:
    """An evaluation that was written as JSON.

    Raises:
        InputError: The file holds none.
    """
    try:
        return Evaluation.model_validate_json(file.read_bytes())
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise InputError(
            f"{str(file)!r} is no evaluation", hint="one is written by --json"
        ) from error


_FORM = 'a line looks like {"query": "what is the weather", "gold": ["get_weather"]}'


def _case(line: bytes, place: str) -> Case:
    try:
        read = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: this is not JSON", hint=_FORM) from error
    if not isinstance(read, dict):
        raise InputError(f"{place}: this is not an object", hint=_FORM)
    for key in ("query", "gold"):
        if key not in read:
            raise InputError(f"{place}: {key!r} is missing", hint=_FORM)
    query, gold = read["query"], read["gold"]
    if not isinstance(query, str) or not query.strip():
        raise InputError(f"{place}: 'query' is not a text", hint=_FORM)
    if not isinstance(gold, list) or not gold or not all(isinstance(g, str) for g in gold):
        raise InputError(f"{place}: 'gold' is not a list of names", hint=_FORM)
    try:
        "".join([query, *gold]).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{place}: half of a character cannot be searched for") from error
    return Case(query=query, gold=tuple(dict.fromkeys(gold)))


def _outcome(query: str, gold: tuple[str, ...], found: Sequence[str]) -> Outcome:
    names = tuple(dict.fromkeys(found))[:DEPTH]
    hits = [name in gold for name in names] + [False] * (DEPTH - len(names))
    gain = sum(worth for hit, worth in zip(hits, _worths(DEPTH), strict=True) if hit)
    return Outcome(
        query=query,
        gold=gold,
        found=names,
        recall=tuple(sum(hits[:k]) / len(gold) for k in range(1, DEPTH + 1)),
        ndcg=gain / sum(_worths(min(len(gold), DEPTH))),
    )


def _worths(count: int) -> Iterator[float]:
    """What a hit counts in the first, the second, … place."""
    return (1 / log2(place + 1) for place in range(1, count + 1))


def _evaluation(
    outcomes: Sequence[Outcome], unknown: dict[str, int] | None = None, skipped: int = 0
) -> Evaluation:
    by_k = zip(*(outcome.recall for outcome in outcomes), strict=True)
    return Evaluation(
        recall=tuple(fsum(of_k) / len(outcomes) for of_k in by_k),
        ndcg=fsum(outcome.ndcg for outcome in outcomes) / len(outcomes),
        outcomes=tuple(outcomes),
        unknown=unknown or {},
        skipped=skipped,
    )


def _by_case(evaluation: Evaluation) -> dict[tuple[str, frozenset[str]], Outcome]:
    return {(o.query, frozenset(o.gold)): o for o in evaluation.outcomes}


def _nearest(unknown: Sequence[str], tools: Collection[str]) -> str:
    for name in unknown:
        if close := get_close_matches(name, tools, n=1):
            return f"{name!r} could be {close[0]!r}"
    return f"it names {unknown[0]!r}, for example"
