"""What a search answers: hits in order, each with the reasons for its place."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Hit:
    """One document that was found."""

    key: str
    """Of the document: the name, if it is a tool."""
    score: float
    """The sum of its parts; comparable within one answer only."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """What each way of looking adds: `lexical`, `semantic`, `clause`, `name`."""
    words: tuple[str, ...] = ()
    """The words of the query that it has, as they were written."""
    clause: str | None = None
    """The part of the prompt that it answers best, if the prompt has several."""


@dataclass(frozen=True, slots=True)
class Answer:
    """All hits of one query, best first."""

    hits: tuple[Hit, ...] = ()
    confidence: float = 0.0
    """From 0 to 1, how likely the best hit fits at all; a hint, not a probability."""
    note: str | None = None
    """What kept the search from being as good as it can be."""

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)
