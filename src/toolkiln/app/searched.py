"""Finding tools among those that somebody may run. How is `library`'s business."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from toolkiln.app.own import OWN, SessionToken
from toolkiln.model import Answer, PassageHit, ToolSpec

if TYPE_CHECKING:
    from toolkiln.app.library import Allow, Library


class Searched(ABC):
    """What finds tools, for models and for people."""

    @property
    @abstractmethod
    def library(self) -> "Library":
        """Search, and what is written about tools."""

    @abstractmethod
    def _may_see(self, session: SessionToken) -> "Allow | None":
        """What the holder of a session is shown; None if that is everything."""

    def search(self, query: str, k: int = 5, session: SessionToken = OWN) -> Answer:
        """The k tools that fit a query best, among those that the session's holder may run."""
        return self.library.search(query, k, self._may_see(session))

    def search_docs(self, query: str, k: int = 5, session: SessionToken = OWN) -> list[PassageHit]:
        """The passages of tools' pages that answer a query best, as `search`."""
        return self.library.search_docs(query, k, self._may_see(session))

    def select(self, prompt: str, k: int = 10, session: SessionToken = OWN) -> list[ToolSpec]:
        """The tools for a model's context: core ones always, then by relevance, k in all."""
        return self.library.select(prompt, k, self._may_see(session))

    def deferring(
        self, provider: str, prompt: str = "", k: int = 5, session: SessionToken = OWN
    ) -> list[dict[str, Any]]:
        """All tools for one request: the k that fit the prompt at hand, the others deferred.

        What a model sends for one of them is decoded as `compiled` does.

        Raises:
            InputError: the provider has no deferred loading.
        """
        return self.library.deferring(provider, prompt, k, self._may_see(session))
