"""The library: finding tools and reading about them, over what is served at this moment.

The index follows the snapshot: each look at it brings it up to date first, by what has
changed and no more. It is derived from specs, so nothing is lost with it. The first
search loads numpy and the vectors; pages need neither.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from toolkiln import docs, schema
from toolkiln import search as retrieval
from toolkiln.app.offer import Offer
from toolkiln.config import Settings
from toolkiln.model import Admission, Answer, PassageHit, Site, ToolSpec

Allow = Callable[[ToolSpec], bool]
"""Whether a caller may know of a tool."""
Usages = Callable[[], Mapping[str, Sequence[str]]]
"""Past prompts by tool."""

_FEWEST_CHANGES = 200
"""How many documents have to differ from the saved index before it is saved again."""
_PAUSE = 30.0
"""Seconds before vectors that could not be had are asked for again."""
_PAGES = 20
"""How many tools' pages passages are taken from, at least."""


class Library:
    """Search and pages of one Kiln."""

    def __init__(
        self, offer: Offer, settings: Settings, place: Path | None, usages: Usages
    ) -> None:
        """`place` is where the tools lie; each has an index of its own."""
        self._offer = offer
        self._usages = usages
        self._settings = settings
        name = hashlib.sha256(str(place and place.absolute()).encode()).hexdigest()[:24]
        self._file = settings.state.absolute() / "search" / f"{name}.index"
        self._changing = threading.Lock()
        self._index: retrieval.Index | None = None
        self._indexed: Mapping[str, ToolSpec] = {}
        self._unsaved = 0
        self._retry_at = 0.0

    def search(self, query: str, k: int, allow: Allow | None = None) -> Answer:
        """The k tools that fit a query best, among those that are allowed."""
        index, tools = self._current()
        return index.query(query, k, _by_name(allow, tools))

    def select(self, prompt: str, k: int, allow: Allow | None = None) -> list[ToolSpec]:
        """The tools for a model's context: core ones always, then by relevance, k in all."""
        tools = {n: s for n, s in self._offer.tools.items() if allow is None or allow(s)}
        core = [spec for spec in tools.values() if spec.cannot_be_disabled]
        others = tools.keys() - {spec.name for spec in core}
        answer = self.search(prompt, max(0, k - len(core)), lambda spec: spec.name in others)
        return core + [tools[hit.key] for hit in answer]

    def deferring(
        self, provider: str, prompt: str, k: int, allow: Allow | None = None
    ) -> list[dict[str, Any]]:
        """All tools for one request: the k that fit the prompt at hand, the others deferred.

        Raises:
            InputError: the provider has no deferred loading.
        """
        chosen = {spec.name for spec in self.select(prompt, k, allow)}
        at_hand: list[schema.Compiled] = []
        others: list[schema.Compiled] = []
        for name, spec in self._offer.tools.items():
            if allow is not None and not allow(spec):
                continue
            compiled = schema.compile_tool(spec, provider)
            (at_hand if name in chosen else others).append(compiled)
        return schema.deferring_request(provider, at_hand, others)

    def search_docs(self, query: str, k: int, allow: Allow | None = None) -> list[PassageHit]:
        """The passages of tools' pages that answer a query best."""
        index, tools = self._current()
        near = index.query(query, max(_PAGES, k), _by_name(allow, tools)).hits
        found = {passage.key: passage for hit in near for passage in docs.passages(tools[hit.key])}
        documents = [
            retrieval.Document(key, {"title": f"{p.tool} {p.heading}", "description": p.text})
            for key, p in found.items()
        ]
        ranked = retrieval.Index.build(documents, self._embedder).query(query, k)
        return [PassageHit(passage=found[hit.key], score=hit.score) for hit in ranked.hits]

    def page(self, name: str) -> str:
        """The page about a tool as Markdown."""
        return docs.page(self._offer.spec(name), self._admission(name))

    def guide(self, name: str) -> str:
        """How to use a tool, as Markdown for a model."""
        return docs.guide(self._offer.spec(name))

    def prompt_index(self, allow: Allow | None = None) -> str:
        """All tools in one line each, for a prompt."""
        tools = self._offer.tools.values()
        return docs.prompt_index(spec for spec in tools if allow is None or allow(spec))

    def build_docs(self, folder: Path, *, html: bool, allow: Allow | None = None) -> Site:
        """Write the pages of the allowed tools to a folder, with a site of HTML if wanted."""
        entries = [
            (spec, self._admission(name))
            for name, spec in self._offer.tools.items()
            if allow is None or allow(spec)
        ]
        site = docs.write_site(folder, entries)
        if not html:
            return site
        output = folder / "html"
        docs.build_site(folder, output)
        return site.model_copy(update={"html": str(output)})

    def refresh(self) -> str | None:
        """Bring the index up to date; says what it lacks, if anything."""
        index, _ = self._current()
        return index.query("up to date?", 1).note

    def forget(self, name: str) -> None:
        """Index a tool anew: its usages have changed."""
        with self._changing:
            self._indexed = {n: spec for n, spec in self._indexed.items() if n != name}

    def _admission(self, name: str) -> Admission | None:
        served = self._offer.snapshot.served.get(name)
        return served.admission if served else None

    def _current(self) -> "tuple[retrieval.Index, Mapping[str, ToolSpec]]":
        with self._changing:
            tools = self._offer.tools
            if self._index is not None and self._index.is_whole and self._indexed is tools:
                return self._index, tools
            if self._index is None:
                self._index = retrieval.Index.load(self._file, self._embedder)
            if not self._index.is_whole and time.monotonic() >= self._retry_at:
                has = self._index.fingerprints
                self._indexed = {n: s for n, s in self._indexed.items() if has.get(n)}
                self._retry_at = time.monotonic() + _PAUSE
            changed = [s for name, s in tools.items() if self._indexed.get(name) is not s]
            known = self._index.fingerprints if changed or not self._indexed else {}
            gone = (known.keys() | self._indexed.keys()) - tools.keys()
            if changed or gone:
                past = self._usages()
                wanted = (retrieval.document(spec, past.get(spec.name, ())) for spec in changed)
                added = [one for one in wanted if known.get(one.key) != one.fingerprint]
                self._index = self._index.apply(added, gone)
                self._unsaved += len(added) + len(gone)
            self._indexed = tools
            if self._unsaved > max(_FEWEST_CHANGES, len(tools) // 20):
                self._save()
            return self._index, tools

    def _save(self) -> None:
        assert self._index is not None
        self._unsaved = 0
        with suppress(OSError):  # without it the next start takes longer, and no more
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._index.save(self._file)

    @cached_property
    def _embedder(self) -> "retrieval.Embedder":
        settings = self._settings
        if not settings.embeddings:
            return retrieval.Bundled()
        endpoint = retrieval.Endpoint(
            settings.embeddings,
            settings.embeddings_model,
            settings.embeddings_dimensions,
            key=settings.embeddings_key or None,
        )
        return retrieval.Cached(endpoint, settings.state.absolute() / "search")


def _by_name(allow: Allow | None, tools: Mapping[str, ToolSpec]) -> Callable[[str], bool] | None:
    return None if allow is None else lambda name: allow(tools[name])
