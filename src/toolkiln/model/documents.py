"""What is written about tools: passages of their pages, and the folders those are in.

How they are written is for `docs`; how passages are found is for `search`.
"""

from toolkiln.model.value import Value


class Passage(Value):
    """A part of a page, small enough to be read in an answer."""

    tool: str
    page: str
    """The file of the page: `convert.md`."""
    heading: str
    text: str
    """Markdown, without the heading."""
    key: str
    """Unique among all passages: the citation, and a number for a further part."""

    @property
    def citation(self) -> str:
        """Page and heading, as in `convert.md#parameters`."""
        return self.key.partition("~")[0]


class PassageHit(Value):
    """A passage that answers a query."""

    passage: Passage
    score: float


class Site(Value):
    """What writing a folder of pages changed."""

    folder: str
    written: int = 0
    """Files that are new or differ from before."""
    unchanged: int = 0
    removed: int = 0
    html: str | None = None
    """The folder of the built site, if it was built."""
