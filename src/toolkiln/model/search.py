"""Search results, documentation passages and written documentation sites."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from toolkiln.model.base import Value


@dataclass(frozen=True, slots=True)
class Hit:
    """A document found by a search."""

    key: str
    """Key of the document; for a tool, its name."""
    score: float
    """Sum of the parts; comparable only within one result."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Components of the score: `lexical`, `semantic`, `clause`, `name`."""
    words: tuple[str, ...] = ()
    """Matching words of the query, in their original spelling."""
    clause: str | None = None
    """The clause of the prompt that it matches best, if there are several."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All hits of one query, best first."""

    hits: tuple[Hit, ...] = ()
    confidence: float = 0.0
    """Confidence in the best hit, from 0 to 1; not a probability."""
    note: str | None = None
    """Why the ranking may be worse than usual."""

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


class DocPassage(Value):
    """Part of a documentation page, small enough for a response."""

    tool: str
    page: str
    """File of the page: `convert.md`."""
    heading: str
    text: str
    """Markdown, without the heading."""
    key: str
    """Unique key: the citation, with a number for further parts."""

    @property
    def citation(self) -> str:
        """Page and heading, as in `convert.md#parameters`."""
        return self.key.partition("~")[0]


class PassageHit(Value):
    """A passage found by a search."""

    passage: DocPassage
    score: float


class Site(Value):
    """Result of writing a folder of documentation pages."""

    folder: str
    written: int = 0
    """New or changed files."""
    unchanged: int = 0
    removed: int = 0
    html: str | None = None
    """Folder of the HTML site, if it was built."""
