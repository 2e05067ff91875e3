"""Search operations: find and select tools, search their documentation, stored prompts."""

from typing import Annotated, Any

from pydantic import Field

from toolkiln.model.base import Value
from toolkiln.model.identity import Privilege
from toolkiln.operations.operation import Nothing, OperationContext, operation
from toolkiln.operations.pages import Count
from toolkiln.schema.providers import Provider, compile_tool
from toolkiln.schema.providers.compilers import request_tools

_LONGEST_QUERY = 2_000
"""Characters; the request line has to fit it."""
_LONGEST_PROMPT = 100_000
_MOST_SELECTED = 200


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


OPERATIONS = (search_tools, select_tools, search_docs, list_usages, clear_usages)
