"""Search evaluation: recall and NDCG over queries with known answers.

Measures any function from a query to names. An evaluation can be saved as JSON and compared
with a later one.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from difflib import get_close_matches
from math import fsum, log2
from pathlib import Path

from pydantic import ValidationError

from toolkiln.errors import InputError
from toolkiln.model.base import Value
from toolkiln.model.evaluation import (
    DEPTH,
    Comparison,
    Evaluation,
    QueryChange,
    QueryOutcome,
    SearchFunction,
)

Progress = Callable[[int, int], None]
"""Called with the number of finished queries and their total."""


class Case(Value):
    """A query and the tools that it should find."""

    query: str
    gold: tuple[str, ...]


def read_cases(file: Path) -> tuple[Case, ...]:
    """Read cases from a JSON Lines file with the fields `query` and `gold`."""
    cases: list[Case] = []
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    cases.append(_case(line, f"{file}, line {number}"))
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be read: {error.strerror}") from error
    if not cases:
        raise InputError(f"{str(file)!r} has no queries", hint=_FORMAT_HINT)
    return tuple(cases)


def evaluate(
    cases: Sequence[Case],
    search: SearchFunction,
    tools: Collection[str],
    progress: Progress = lambda _done, _total: None,
) -> Evaluation:
    """Run the search for every case whose gold is among `tools`, and measure the results."""
    names = frozenset(tools)
    unknown = Counter(name for case in cases for name in case.gold if name not in names)
    outcomes: list[QueryOutcome] = []
    for done, case in enumerate(cases, 1):
        gold = tuple(name for name in case.gold if name in names)
        if gold:
            outcomes.append(_outcome(case.query, gold, search(case.query, DEPTH)))
        progress(done, len(cases))
    if not outcomes:
        raise InputError("no gold name in the file is a tool", hint=_nearest(list(unknown), names))
    return _evaluation(outcomes, dict(unknown.most_common()), len(cases) - len(outcomes))


def compare(before: Evaluation, after: Evaluation) -> Comparison:
    """Compare two evaluations on the queries that both have."""
    old, new = _by_case(before), _by_case(after)
    common = [key for key in new if key in old]
    if not common:
        raise InputError("the two evaluations have no query in common")
    changes = sorted(
        (QueryChange(before=old[key], after=new[key]) for key in common),
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
    """Read an evaluation saved as JSON."""
    try:
        return Evaluation.model_validate_json(file.read_bytes())
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise InputError(f"{str(file)!r} is not an evaluation", hint="--json prints one") from error


_FORMAT_HINT = 'a line looks like {"query": "what is the weather", "gold": ["get_weather"]}'


def _case(line: bytes, location: str) -> Case:
    try:
        fields = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{location}: this is not JSON", hint=_FORMAT_HINT) from error
    if not isinstance(fields, dict):
        raise InputError(f"{location}: this is not an object", hint=_FORMAT_HINT)
    for key in ("query", "gold"):
        if key not in fields:
            raise InputError(f"{location}: {key!r} is missing", hint=_FORMAT_HINT)
    query, gold = fields["query"], fields["gold"]
    if not isinstance(query, str) or not query.strip():
        raise InputError(f"{location}: 'query' is not a text", hint=_FORMAT_HINT)
    if not isinstance(gold, list) or not gold or not all(isinstance(g, str) for g in gold):
        raise InputError(f"{location}: 'gold' is not a list of names", hint=_FORMAT_HINT)
    try:
        "".join([query, *gold]).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{location}: the text has a lone surrogate") from error
    return Case(query=query, gold=tuple(dict.fromkeys(gold)))


def _outcome(query: str, gold: tuple[str, ...], found: Sequence[str]) -> QueryOutcome:
    names = tuple(dict.fromkeys(found))[:DEPTH]
    hits = [name in gold for name in names] + [False] * (DEPTH - len(names))
    gain = sum(discount for hit, discount in zip(hits, _discounts(DEPTH), strict=True) if hit)
    return QueryOutcome(
        query=query,
        gold=gold,
        found=names,
        recall=tuple(sum(hits[:k]) / len(gold) for k in range(1, DEPTH + 1)),
        ndcg=gain / sum(_discounts(min(len(gold), DEPTH))),
    )


def _discounts(count: int) -> Iterator[float]:
    return (1 / log2(rank + 1) for rank in range(1, count + 1))


def _evaluation(
    outcomes: Sequence[QueryOutcome], unknown: dict[str, int] | None = None, skipped: int = 0
) -> Evaluation:
    by_k = zip(*(outcome.recall for outcome in outcomes), strict=True)
    return Evaluation(
        recall=tuple(fsum(of_k) / len(outcomes) for of_k in by_k),
        ndcg=fsum(outcome.ndcg for outcome in outcomes) / len(outcomes),
        outcomes=tuple(outcomes),
        unknown=unknown or {},
        skipped=skipped,
    )


def _by_case(evaluation: Evaluation) -> dict[tuple[str, frozenset[str]], QueryOutcome]:
    return {(o.query, frozenset(o.gold)): o for o in evaluation.outcomes}


def _nearest(unknown: Sequence[str], tools: Collection[str]) -> str:
    for name in unknown:
        if close := get_close_matches(name, tools, n=1):
            return f"did you mean {close[0]!r} instead of {name!r}?"
    return f"for example, {unknown[0]!r} is unknown"
