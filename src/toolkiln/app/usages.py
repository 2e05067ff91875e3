"""What tools were used for: prompts of calls that went well, for search to learn from.

Kept only if the operator set `learn_usages`. A store that cannot be used costs search its
memory and nobody an answer.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from toolkiln.catalog import Catalog, utc_now
from toolkiln.errors import ToolkilnError

if TYPE_CHECKING:
    from toolkiln.store import Store

_LONGEST_PROMPT = 2000


class Usages:
    """The usages of one catalog."""

    def __init__(self, catalog: Catalog, store: "Callable[[], Store]") -> None:
        self._catalog = catalog
        self._store = store

    def by_tool(self) -> Mapping[str, Sequence[str]]:
        """Past prompts by tool."""
        with suppress(ToolkilnError):
            return self._store().archive.usages(self._catalog.manifest.catalog)
        return {}

    def add(self, tool: str, prompt: str) -> None:
        """Remember that a tool answered a prompt."""
        with suppress(ToolkilnError):
            catalog, said = self._catalog.manifest.catalog, prompt[:_LONGEST_PROMPT]
            if not catalog:  # in `dev` without a manifest: nothing could find it again
                return
            self._store().archive.add_usage(catalog, tool, said, utc_now())
