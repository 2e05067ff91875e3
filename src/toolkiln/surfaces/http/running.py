"""`/v1/run` and `/v1/schema`: source text that is in no catalog. Nothing of it is stored."""

import asyncio
from collections.abc import Set
from typing import Any

from pydantic import BaseModel, Field

from toolkiln.app import (
    BUILTIN_NAMES,
    Prospects,
    Repair,
    SourceCall,
    preview,
    prospects,
    read_source,
    repairs_for,
)
from toolkiln.errors import InputError
from toolkiln.model import (
    Finding,
    Health,
    Hints,
    JsonSchema,
    Privilege,
    Result,
    Rights,
    Status,
    ToolSpec,
    Value,
)
from toolkiln.surfaces.http.calls import SURFACE, Provider, Seconds, answered
from toolkiln.surfaces.http.operations import Answer, Operation, Visit
from toolkiln.surfaces.http.presenting import ProviderForm, form_of
from toolkiln.surfaces.http.problems import Refused
from toolkiln.surfaces.http.shapes import Body, Name, Source
from toolkiln.surfaces.http.streams import OF_CALLS, of_call, wants_events


class RunBody(Body):
    """A source and how to call it."""

    source: Source
    """A Python file that declares a tool."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    tool: Name | None = None
    """Which of its tools, if there are several."""
    timeout: Seconds | None = None
    """Seconds to wait at most; the tool's own limit holds too."""


class SchemaBody(Body):
    """A source to be read."""

    source: Source
    provider: Provider | None = None
    """Whose form of the tools is shown too, if any."""


class ReadTool(Value):
    """What a source says of one tool."""

    name: str
    description: str
    parameters: JsonSchema
    returns: JsonSchema | None
    documentation: str
    page: str
    """The page that documents it, as Markdown."""
    dialect: str
    """The way it is written down."""
    hints: Hints
    rights: Rights
    """What it asks for."""
    requirements: tuple[str, ...]
    health: Health
    """Whether models can be held to its parameters."""
    line: int
    is_taken: bool
    """Whether there is a tool of that name already, as far as the caller may know."""
    form: ProviderForm | None
    """As the provider that was asked for is told of it."""


class ReadFinding(Finding):
    """A finding, and what can be put into the source to mend it."""

    repair: Repair | None
    """Null: it takes more than an insertion, or a decision."""


class ReadSource(Value):
    """What a source says, and what is wrong with it."""

    digest: str
    tools: tuple[ReadTool, ...]
    findings: tuple[ReadFinding, ...]
    prospects: Prospects
    """What the caller may do with it."""


async def run_source(visit: Visit, body: RunBody) -> BaseModel | Answer:
    """Run a tool of a source, once."""
    run = await visit.kiln.prepare_source(
        SourceCall(
            source=body.source,
            arguments=body.arguments,
            tool=body.tool,
            timeout=body.timeout,
            call_id=visit.headers.get("idempotency-key"),
            surface=SURFACE,
            session=visit.session,
        ),
    )
    if wants_events(visit):
        return of_call(run)
    result = await run(lambda _: None)
    error = result.error
    if error is not None and result.status is Status.DENIED and error.code == "not_allowed":
        raise Refused(error.code, error.message, hint=error.hint)  # there is nothing to hide
    return answered(result)


async def read(visit: Visit, body: SchemaBody) -> ReadSource:
    """The schemas of a source's tools; nothing of it is run."""
    await asyncio.to_thread(_require_author, visit)

    def made() -> ReadSource:
        report = read_source(body.source)
        found = zip(report.reading.findings, repairs_for(body.source, report), strict=True)
        taken = BUILTIN_NAMES | _served_names(visit)
        return ReadSource(
            digest=report.reading.digest,
            tools=tuple(
                _tool(
                    spec,
                    health=report.health[spec.name],
                    is_taken=spec.name in taken,
                    form=form_of(visit.kiln, spec, body.provider) if body.provider else None,
                )
                for spec in report.reading.tools
            ),
            findings=tuple(ReadFinding(**dict(one), repair=repair) for one, repair in found),
            prospects=prospects(visit.kiln, visit.caller),
        )

    return await visit.kiln.reading.run(visit.caller.who, made)


def _require_author(visit: Visit) -> None:
    visit.kiln.guarding.require(visit.session, Privilege.WRITE_TOOLS, "source.read")


def _served_names(visit: Visit) -> Set[str]:
    try:
        return visit.kiln.visible(visit.session, None).keys()
    except InputError:  # nothing is served, which is no reason not to read a source
        return set()


def _tool(spec: ToolSpec, **beside: Any) -> ReadTool:
    return ReadTool(
        name=spec.name,
        description=spec.description,
        parameters=spec.parameters,
        returns=spec.returns,
        documentation=spec.detailed_description(),
        page=preview(spec),
        dialect=spec.dialect,
        hints=spec.hints,
        rights=spec.rights,
        requirements=spec.requirements,
        line=spec.line,
        **beside,
    )


_SOURCE = '''\
def greet(name: str) -> str:
    """Greet a person.

    Args:
        name: Whom to greet.
    """
    return f"Hello, {name}"
'''

OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/run",
        name="run_source",
        summary="Run a source once, without storing it",
        description=(
            "Takes the privilege WRITE_TOOLS, and ADMIN where tools that agents write are only "
            "proposed. It runs in the sandbox, by the rules, and is recorded like any call; it "
            "has no helper modules, no settings, and no rights beyond its arguments. With an "
            "`Idempotency-Key` its result, and nothing else, is remembered for an hour."
        ),
        handle=run_source,
        group="sources",
        body=RunBody,
        answers={200: Result},
        events=OF_CALLS,
        idempotent_by_key="handled",
        examples={"greet": {"source": _SOURCE, "arguments": {"name": "Ada"}}},
    ),
    Operation(
        method="POST",
        path="/v1/schema",
        name="read_source",
        summary="Read the schemas and findings of a source, without running it",
        description=(
            "Takes the privilege WRITE_TOOLS. What a source may have is limited; a finding says "
            "what was left out. A caller that has too many sources read at once gets 503."
        ),
        handle=read,
        group="sources",
        body=SchemaBody,
        answers={200: ReadSource},
        is_large=True,
        examples={"greet": {"source": _SOURCE}},
    ),
)
