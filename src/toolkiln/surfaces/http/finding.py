"""`/v1/search`, `/v1/select` and `/v1/docs/search`: the tools for a task, and about them."""

import asyncio
from typing import Annotated, Any

from pydantic import Field

from toolkiln.model import Hit, Value
from toolkiln.surfaces.http.calls import Provider
from toolkiln.surfaces.http.operations import Operation, Visit
from toolkiln.surfaces.http.shapes import LONGEST_QUERY, LONGEST_TEXT, Body, Count, Query

_MOST_SELECTED = 200


class SearchQuery(Query):
    """What is looked for."""

    q: Annotated[str, Field(min_length=1, max_length=LONGEST_QUERY)]
    """In plain words; several things at once are fine."""
    k: Annotated[Count, Field(ge=1, le=50)] = 5
    """How many at most."""


class FoundTool(Value):
    """A tool that fits."""

    name: str
    description: str
    score: float
    """Comparable within one answer only."""
    parts: dict[str, float]
    """What each way of looking adds to it."""
    words: tuple[str, ...]
    """The words of the query that it has."""
    clause: str | None
    """The part of the query that it answers best, if there are several."""
    dev: bool
    """Whether it is served as it is on disk, without an admission."""


class FoundTools(Value):
    """The tools that fit, best first."""

    items: tuple[FoundTool, ...]
    confidence: float
    """From 0 to 1, how likely the best one fits at all; a hint, not a probability."""
    note: str | None
    """What kept the search from being as good as it can be."""


class FoundPassage(Value):
    """A passage of a tool's page."""

    tool: str
    page: str
    heading: str
    citation: str
    """Page and heading, as in `convert.md#parameters`."""
    text: str
    """Markdown."""
    score: float


class FoundPassages(Value):
    """The passages that answer a query, best first."""

    items: tuple[FoundPassage, ...]


class SelectBody(Body):
    """What a model is about to do."""

    prompt: Annotated[str, Field(max_length=LONGEST_TEXT)]
    k: Annotated[int, Field(ge=1, le=_MOST_SELECTED)] = 10
    """How many tools in all; core tools are always among them."""
    provider: Provider = "openai"
    """Whose form they are given in."""


class LeftOut(Value):
    """A tool that the provider would refuse."""

    tool: str
    reasons: tuple[str, ...]


class LostConstraint(Value):
    """What the provider does not hold a model to."""

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
    """What stands under `tools` in the request, ready to be sent."""
    losses: tuple[LostConstraint, ...]
    left_out: tuple[LeftOut, ...]


async def search(visit: Visit, query: SearchQuery) -> FoundTools:
    """The tools that fit best, of those that the caller may run."""

    def found() -> FoundTools:
        answer = visit.kiln.search(query.q, query.k, visit.session)
        specs = visit.kiln.specs
        return FoundTools(
            items=tuple(
                _found(hit, specs[hit.key].description, dev=visit.kiln.is_dev(hit.key))
                for hit in answer
            ),
            confidence=answer.confidence,
            note=answer.note,
        )

    return await asyncio.to_thread(found)


def _found(hit: Hit, description: str, *, dev: bool) -> FoundTool:
    return FoundTool(
        name=hit.key,
        description=description,
        score=hit.score,
        parts=dict(hit.parts),
        words=hit.words,
        clause=hit.clause,
        dev=dev,
    )


async def search_docs(visit: Visit, query: SearchQuery) -> FoundPassages:
    """The passages that answer best, of tools that the caller may run."""
    hits = await asyncio.to_thread(visit.kiln.search_docs, query.q, query.k, visit.session)
    return FoundPassages(
        items=tuple(
            FoundPassage(
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


async def select(visit: Visit, body: SelectBody) -> Selection:
    """The tools for a model's context, in its provider's form."""

    def selected() -> Selection:
        kiln = visit.kiln
        specs = kiln.select(body.prompt, body.k, visit.session)
        compiled = {spec.name: kiln.compiled(spec, body.provider) for spec in specs}
        fit = {name: one for name, one in compiled.items() if not one.errors}
        return Selection(
            provider=body.provider,
            names=tuple(fit),
            tools=tuple(kiln.tools(body.provider, names=fit, session=visit.session)),
            losses=tuple(
                LostConstraint(tool=name, path=loss.path, keyword=loss.keyword, reason=loss.reason)
                for name, one in fit.items()
                for loss in one.losses
            ),
            left_out=tuple(
                LeftOut(tool=name, reasons=one.errors)
                for name, one in compiled.items()
                if one.errors
            ),
        )

    return await asyncio.to_thread(selected)


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/search",
        name="search",
        summary="Find the tools that can do something",
        handle=search,
        group="finding",
        query=SearchQuery,
        answers={200: FoundTools},
    ),
    Operation(
        method="POST",
        path="/v1/select",
        name="select",
        summary="Choose the tools for a model's context, in its provider's form",
        description=(
            "Core tools always, the others by how well they fit the prompt. What a model sends "
            "for one of them is passed to the call together with `provider`."
        ),
        handle=select,
        group="finding",
        body=SelectBody,
        answers={200: Selection},
        examples={"ask": {"prompt": "double my money", "k": 3, "provider": "openai-strict"}},
    ),
    Operation(
        method="GET",
        path="/v1/docs/search",
        name="search_docs",
        summary="Search what is written about tools",
        handle=search_docs,
        group="finding",
        query=SearchQuery,
        answers={200: FoundPassages},
    ),
)
