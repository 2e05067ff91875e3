"""Library: search, selection and documentation of the served tools, and their operations.

Each search first updates the index by what changed in the catalog. The index is derived from
specs and can be rebuilt at any time. The first search loads numpy and the vectors; pages need
neither.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from toolkiln.catalog.catalog import Catalog, utc_now
from toolkiln.catalog.registry import ToolRegistry
from toolkiln.config import Settings
from toolkiln.docs.pages import page, prompt_index
from toolkiln.docs.passages import passages
from toolkiln.errors import ToolkilnError, UnknownTool
from toolkiln.model.base import Value
from toolkiln.model.catalog import Admission
from toolkiln.model.identity import Privilege
from toolkiln.model.search import DocPassage, PassageHit, SearchResult, Site
from toolkiln.model.spec import Role, ToolSpec
from toolkiln.model.tool import FormLoss, ProviderForm
from toolkiln.operations.operation import Count, Nothing, OperationContext, operation
from toolkiln.schema.providers import Provider, compile_tool
from toolkiln.schema.providers.compilers import deferred_request_tools, request_tools
from toolkiln.schema.providers.profile import Compiled

if TYPE_CHECKING:
    from toolkiln.model.evaluation import Comparison, Evaluation, SearchFunction
    from toolkiln.operations.services import Services
    from toolkiln.search.embedder import Embedder
    from toolkiln.search.index import SearchIndex
    from toolkiln.security.sessions import SessionToken
    from toolkiln.store.store import Store

Allow = Callable[[ToolSpec], bool]
"""Returns whether a caller may see a tool."""
UsageSource = Callable[[], Mapping[str, Sequence[str]]]
"""Past prompts by tool."""

_log = logging.getLogger(__name__)
FINDERS = ("search_tools", "describe_tool", "call_tool")
"""The built-in tools by which a model uses tools that are not in its context."""
_LONGEST_QUERY = 2_000
"""Characters; the request line has to fit it."""
_LONGEST_PROMPT = 100_000
_MOST_SELECTED = 200
_STORED_CHARACTERS = 2000
"""Of a prompt that a tool answered."""
_FEWEST_CHANGES = 200
"""Minimum number of changed documents before the index is saved again."""
_RETRY_SECONDS = 30.0
"""Seconds before missing vectors are requested again."""
_PAGES = 20
"""Minimum number of tools whose pages are searched for passages."""


class Library:
    """Search and pages of one Kiln."""

    def __init__(
        self, registry: ToolRegistry, settings: Settings, path: Path | None, usages: UsageSource
    ) -> None:
        """`path` is the folder of the tools; each folder has its own index."""
        self._registry = registry
        self._usages = usages
        self._settings = settings
        name = hashlib.sha256(str(path and path.absolute()).encode()).hexdigest()[:24]
        self._file = settings.state.absolute() / "search" / f"{name}.index"
        self._changing = threading.Lock()
        self._index: SearchIndex | None = None
        self._indexed: Mapping[str, ToolSpec] = {}
        self._unsaved = 0
        self._retry_at = 0.0

    def search(self, query: str, k: int, allow: Allow | None = None) -> SearchResult:
        """Return the k allowed tools that match a query best."""
        index, tools = self._current()
        return index.query(query, k, _by_name(allow, tools))

    def select(self, prompt: str, k: int, allow: Allow | None = None) -> list[ToolSpec]:
        """Return k tools for a model's context: core ones always, then by relevance."""
        tools = {n: s for n, s in self._registry.tools.items() if allow is None or allow(s)}
        core = [spec for spec in tools.values() if spec.cannot_be_disabled]
        others = tools.keys() - {spec.name for spec in core}
        answer = self.search(prompt, max(0, k - len(core)), lambda spec: spec.name in others)
        return core + [tools[hit.key] for hit in answer]

    def deferring(
        self, provider: str, prompt: str, k: int, allow: Allow | None = None
    ) -> list[dict[str, Any]]:
        """Return all tools for one request: all but the k best matches are deferred.

        Raises:
            InputError: the provider has no deferred loading.
        """
        chosen = {spec.name for spec in self.select(prompt, k, allow)}
        loaded: list[Compiled] = []
        deferred: list[Compiled] = []
        for name, spec in self._registry.tools.items():
            if allow is not None and not allow(spec):
                continue
            compiled = compile_tool(spec, provider)
            (loaded if name in chosen else deferred).append(compiled)
        return deferred_request_tools(provider, loaded, deferred)

    def search_docs(self, query: str, k: int, allow: Allow | None = None) -> list[PassageHit]:
        """Return the passages of tools' pages that match a query best."""
        from toolkiln.search.documents import SearchDocument
        from toolkiln.search.index import SearchIndex

        index, tools = self._current()
        near = index.query(query, max(_PAGES, k), _by_name(allow, tools)).hits
        every = [passage for hit in near for passage in passages(tools[hit.key])]
        distinct: dict[tuple[str, str], DocPassage] = {}
        for passage in every:  # tools of one file share what is about their file
            distinct.setdefault((passage.heading, passage.text), passage)
        found = {passage.key: passage for passage in distinct.values()}
        documents = [
            SearchDocument(key, {"title": f"{p.tool} {p.heading}", "description": p.text})
            for key, p in found.items()
        ]
        ranked = SearchIndex.build(documents, self._embedder).query(query, k)
        return [PassageHit(passage=found[hit.key], score=hit.score) for hit in ranked.hits]

    def page(self, name: str) -> str:
        """Return the page about a tool, as Markdown."""
        return page(self._registry.spec(name), self._admission(name))

    def guide(self, name: str) -> str:
        """Return how to use a tool, as Markdown for a model."""
        return self._registry.spec(name).detailed_description()

    def prompt_index(self, allow: Allow | None = None) -> str:
        """Return all tools in one line each, for a prompt."""
        tools = self._registry.tools.values()
        return prompt_index(spec for spec in tools if allow is None or allow(spec))

    def build_docs(self, folder: Path, *, html: bool, allow: Allow | None = None) -> Site:
        """Write the pages of the allowed tools to a folder, with an HTML site if `html` is set."""
        from toolkiln.docs.site import build_site, write_site

        entries = [
            (spec, self._admission(name))
            for name, spec in self._registry.tools.items()
            if allow is None or allow(spec)
        ]
        site = write_site(folder, entries)
        if not html:
            return site
        output = folder / "html"
        build_site(folder, output)
        return site.model_copy(update={"html": str(output)})

    def refresh(self) -> str | None:
        """Update the index; return why it is incomplete, if it is."""
        index, _ = self._current()
        return index.query("up to date?", 1).note

    def forget(self, name: str) -> None:
        """Index a tool again, because its usages have changed."""
        with self._changing:
            self._indexed = {n: spec for n, spec in self._indexed.items() if n != name}

    def _admission(self, name: str) -> Admission | None:
        served = self._registry.snapshot.served.get(name)
        return served.admission if served else None

    def _current(self) -> "tuple[SearchIndex, Mapping[str, ToolSpec]]":
        from toolkiln.search.documents import document
        from toolkiln.search.index import SearchIndex

        with self._changing:
            tools = self._registry.tools
            if self._index is not None and self._index.is_complete and self._indexed is tools:
                return self._index, tools
            if self._index is None:
                self._index = SearchIndex.load(self._file, self._embedder)
            if not self._index.is_complete and time.monotonic() >= self._retry_at:
                has = self._index.fingerprints
                self._indexed = {n: s for n, s in self._indexed.items() if has.get(n)}
                self._retry_at = time.monotonic() + _RETRY_SECONDS
            changed = [s for name, s in tools.items() if self._indexed.get(name) is not s]
            known = self._index.fingerprints if changed or not self._indexed else {}
            gone = (known.keys() | self._indexed.keys()) - tools.keys()
            if changed or gone:
                past = self._usages()
                documents = (document(spec, past.get(spec.name, ())) for spec in changed)
                added = [doc for doc in documents if known.get(doc.key) != doc.fingerprint]
                self._index = self._index.apply(added, gone)
                self._unsaved += len(added) + len(gone)
            self._indexed = tools
            if self._unsaved > max(_FEWEST_CHANGES, len(tools) // 20):
                self._save()
            return self._index, tools

    def _save(self) -> None:
        assert self._index is not None
        self._unsaved = 0
        with suppress(OSError):  # without it only the next start takes longer
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._index.save(self._file)

    @cached_property
    def _embedder(self) -> "Embedder":
        from toolkiln.search.bundled_embedder import BundledEmbedder
        from toolkiln.search.embedder import CachedEmbedder
        from toolkiln.search.openai_embedder import OpenAIEmbedder

        settings = self._settings
        if not settings.embeddings:
            return BundledEmbedder()
        endpoint = OpenAIEmbedder(
            settings.embeddings,
            settings.embeddings_model,
            settings.embeddings_dimensions,
            key=settings.embeddings_key or None,
        )
        return CachedEmbedder(endpoint, settings.state.absolute() / "search")


def _by_name(allow: Allow | None, tools: Mapping[str, ToolSpec]) -> Callable[[str], bool] | None:
    return None if allow is None else lambda name: allow(tools[name])


def listed_tools(services: "Services", session: "SessionToken") -> list[ToolSpec]:
    """Return all tools that a caller may run; if they are too many, core ones and the finders."""
    visible = services.visible(session).values()
    if len(visible) <= services.settings.mcp_tools:
        return list(visible)
    core = [spec for spec in visible if spec.cannot_be_disabled]
    may_see = services.security.may_see(session)
    finders = (services.registry.spec(name) for name in FINDERS)
    return [*core, *(spec for spec in finders if may_see(spec))]


def named(services: "Services", names: Iterable[str], session: "SessionToken") -> list[ToolSpec]:
    """Return tools by their names, built-in ones included.

    Raises:
        UnknownTool: there is none of that name that the caller may run.
    """
    may_see = services.security.may_see(session)
    found = []
    for name in names:
        spec = services.registry.spec(name)
        if spec.role is not Role.TOOL or not may_see(spec):
            raise UnknownTool(name, services.visible(session))
        found.append(spec)
    return found


def refuse_other_roles(services: "Services", name: str) -> None:
    """Refuse models that call a prompt or resource.

    Raises:
        UnknownTool: it is no tool.
    """
    try:
        role = services.registry.spec(name).role
    except ToolkilnError:  # the call itself says why
        return
    if role is not Role.TOOL:
        raise UnknownTool(name, ())


def compiled(specs: Iterable[ToolSpec], provider: str) -> list[dict[str, Any]]:
    """Return the `tools` of a request; those that the provider would refuse are logged."""
    tools = [(spec, compile_tool(spec, provider)) for spec in specs]
    for spec, tool in tools:
        if tool.errors:
            _log.warning("%s is left out for %s: %s", spec.name, provider, "; ".join(tool.errors))
    return request_tools(provider, [tool for _, tool in tools if not tool.errors])


def provider_form(spec: ToolSpec, provider: str) -> ProviderForm:
    """Return a tool in the form of a provider."""
    tool = compile_tool(spec, provider)
    return ProviderForm(
        provider=provider,
        tool=None if tool.errors else tool.payload,
        losses=tuple(FormLoss(**loss._asdict()) for loss in tool.losses),
        left_out=tool.errors,
    )


class Usages:
    """The prompts that the tools of one catalog answered."""

    def __init__(self, catalog: Catalog, store: "Callable[[], Store]") -> None:
        self._catalog = catalog
        self._store = store

    def by_tool(self) -> Mapping[str, Sequence[str]]:
        """Return past prompts by tool."""
        with suppress(ToolkilnError):
            return self._store().archive.usages(self._catalog.manifest.catalog)
        return {}

    def add(self, tool: str, prompt: str) -> None:
        """Store a prompt that a tool answered."""
        with suppress(ToolkilnError):
            catalog, text = self._catalog.manifest.catalog, prompt[:_STORED_CHARACTERS]
            if not catalog:  # in `dev` without a manifest: nothing could find it again
                return
            self._store().archive.add_usage(catalog, tool, text, utc_now())


def evaluate_search(
    file: Path,
    search: "SearchFunction",
    tools: Collection[str],
    against: Path | None,
    progress: Callable[[int, int], None],
) -> "tuple[Evaluation, Comparison | None]":
    """Evaluate a search on the queries of a file, and compare it with the JSON of another run."""
    from toolkiln.search.evaluation import compare, evaluate, read_cases, read_evaluation

    before = read_evaluation(against) if against else None
    after = evaluate(read_cases(file), search, tools, progress)
    return after, compare(before, after) if before else None


class SearchQuery(Value):
    """A search."""

    q: Annotated[str, Field(min_length=1, max_length=_LONGEST_QUERY)]
    """In plain words; it may name several things."""
    k: Annotated[Count, Field(ge=1, le=50)] = 5
    """Maximum number of results."""


class ToolHit(Value):
    """A tool found by a search."""

    name: str
    description: str
    score: float
    """Comparable only within one response."""
    parts: dict[str, float]
    """The components of the score."""
    words: tuple[str, ...]
    """The words of the query that it matches."""
    clause: str | None
    """The part of the query that it matches best, if there are several."""
    dev: bool
    """Whether the file on disk is served without an admission."""


class ToolHits(Value):
    """The tools that match a query, best first."""

    items: tuple[ToolHit, ...]
    confidence: float
    """Confidence in the best hit, from 0 to 1; not a probability."""
    note: str | None
    """Why the ranking may be worse than usual."""


class DocHit(Value):
    """A passage of a tool's page."""

    tool: str
    page: str
    heading: str
    citation: str
    """Page and heading, as in `convert.md#parameters`."""
    text: str
    """Markdown."""
    score: float


class DocHits(Value):
    """The passages that match a query, best first."""

    items: tuple[DocHit, ...]


class SelectTools(Value):
    """The task of a model."""

    prompt: Annotated[str, Field(max_length=_LONGEST_PROMPT)]
    k: Annotated[int, Field(ge=1, le=_MOST_SELECTED)] = 10
    """Number of tools, including core tools, which are always selected."""
    provider: Provider = "openai"
    """Whose form the tools have."""


class OmittedTool(Value):
    """A tool that the provider would refuse."""

    tool: str
    reasons: tuple[str, ...]


class LostConstraint(Value):
    """A constraint of a tool that the provider does not enforce."""

    tool: str
    path: str
    """JSON pointer into the parameters."""
    keyword: str
    reason: str


class Selection(Value):
    """Tools for a request to a provider."""

    provider: str
    names: tuple[str, ...]
    tools: tuple[dict[str, Any], ...]
    """The value of `tools` in the request."""
    losses: tuple[LostConstraint, ...]
    left_out: tuple[OmittedTool, ...]


class ClearUsages(Value):
    """Selects prompts to delete."""

    tool: str | None = None
    """The tool that answered them; null: all tools."""


@operation("search.tools", read_only=True)
def search_tools(context: OperationContext, request: SearchQuery) -> ToolHits:
    """Return the tools that match a query best, among those that the caller may run."""
    services = context.services
    result = services.library.search(request.q, request.k, services.may_see(context.session))
    registry = services.registry
    return ToolHits(
        items=tuple(
            ToolHit(
                name=hit.key,
                description=registry.specs[hit.key].description,
                score=hit.score,
                parts=dict(hit.parts),
                words=hit.words,
                clause=hit.clause,
                dev=registry.is_dev(hit.key),
            )
            for hit in result
        ),
        confidence=result.confidence,
        note=result.note,
    )


@operation("search.select", read_only=True)
def select_tools(context: OperationContext, request: SelectTools) -> Selection:
    """Return the tools for a model's context, in the form of its provider."""
    services = context.services
    allow = services.may_see(context.session)
    specs = services.library.select(request.prompt, request.k, allow)
    tools = {spec.name: compile_tool(spec, request.provider) for spec in specs}
    usable = {name: tool for name, tool in tools.items() if not tool.errors}
    return Selection(
        provider=request.provider,
        names=tuple(usable),
        tools=tuple(request_tools(request.provider, list(usable.values()))),
        losses=tuple(
            LostConstraint(tool=name, path=loss.path, keyword=loss.keyword, reason=loss.reason)
            for name, tool in usable.items()
            for loss in tool.losses
        ),
        left_out=tuple(
            OmittedTool(tool=name, reasons=tool.errors)
            for name, tool in tools.items()
            if tool.errors
        ),
    )


@operation("docs.search", read_only=True)
def search_docs(context: OperationContext, request: SearchQuery) -> DocHits:
    """Return the passages that match a query best, of tools that the caller may run."""
    allow = context.services.may_see(context.session)
    hits = context.services.library.search_docs(request.q, request.k, allow)
    return DocHits(
        items=tuple(
            DocHit(
                tool=hit.passage.tool,
                page=hit.passage.page,
                heading=hit.passage.heading,
                citation=hit.passage.citation,
                text=hit.passage.text,
                score=hit.score,
            )
            for hit in hits
        )
    )


@operation("usages.list", privilege=Privilege.ADMIN, read_only=True)
def list_usages(context: OperationContext, _: Nothing) -> dict[str, tuple[str, ...]]:
    """Return the stored prompts by tool."""
    services = context.services
    return services.store.archive.usages(services.catalog.manifest.catalog)


@operation("usages.clear", privilege=Privilege.ADMIN)
def clear_usages(context: OperationContext, request: ClearUsages) -> None:
    """Delete the stored prompts of a tool, or of all."""
    services = context.services
    services.store.archive.clear_usages(services.catalog.manifest.catalog, request.tool)
