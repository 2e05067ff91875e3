"""Search evaluations: the results of queries with known answers, and their comparison."""

from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from toolkiln.model.base import Value

DEPTH = 10
"""Number of results requested for each query."""

Share = Annotated[float, Field(ge=0, le=1)]
Recall = Annotated[tuple[Share, ...], Field(min_length=DEPTH, max_length=DEPTH)]
"""Recall at 1, 2, …"""
SearchFunction = Callable[[str, int], Sequence[str]]
"""Returns at most k names for a query, best first."""


class QueryOutcome(Value):
    """The result of one query."""

    query: str
    gold: tuple[str, ...]
    found: tuple[str, ...]
    """Names found, best first."""
    recall: Recall
    ndcg: Share
    """1 if all gold comes first."""


class Evaluation(Value):
    """The results of all queries and their means."""

    recall: Recall
    ndcg: Share
    outcomes: Annotated[tuple[QueryOutcome, ...], Field(min_length=1)]
    unknown: dict[str, int]
    """Gold names that are not tools, with the number of queries; not counted."""
    skipped: int
    """Number of queries without any known gold."""

    def recall_at(self, k: int) -> float:
        """Return the mean recall among the first `k` names."""
        return self.recall[k - 1]

    def worst(self, count: int) -> tuple[QueryOutcome, ...]:
        """Return the imperfect queries with the lowest NDCG."""
        imperfect = (outcome for outcome in self.outcomes if outcome.ndcg < 1)
        return tuple(sorted(imperfect, key=lambda outcome: outcome.ndcg)[:count])


class QueryChange(Value):
    """One query before and after."""

    before: QueryOutcome
    after: QueryOutcome

    @property
    def gain(self) -> float:
        """The change of NDCG."""
        return self.after.ndcg - self.before.ndcg


class Comparison(Value):
    """Two evaluations, reduced to the queries that both have with the same gold."""

    before: Evaluation
    after: Evaluation
    better: tuple[QueryChange, ...]
    """Improved queries, largest gain first."""
    worse: tuple[QueryChange, ...]
    """Degraded queries, largest loss first."""
    unmatched: int
    """Number of queries in only one of the two."""
