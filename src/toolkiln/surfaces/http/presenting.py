"""`/v1/tools/{name}/presentation`: a tool as people and as providers get to know it."""

import asyncio
from typing import Any, get_args

from toolkiln.app import Kiln, errands, paint, preview, shown_calls
from toolkiln.errors import InputError
from toolkiln.model import Finding, ToolSpec, Value
from toolkiln.surfaces.http.calls import Provider
from toolkiln.surfaces.http.operations import Operation, Visit


class FormLoss(Value):
    """What a provider does not hold a model to."""

    path: str
    """JSON pointer into the parameters."""
    keyword: str
    reason: str


class ProviderForm(Value):
    """A tool as a provider is told of it."""

    provider: str
    tool: dict[str, Any] | None
    """What stands for it in a request; null if the provider would refuse it."""
    losses: tuple[FormLoss, ...]
    """What the provider does not hold a model to."""
    left_out: tuple[str, ...]
    """Why the provider would refuse it."""


class Presentation(Value):
    """What is shown of a tool, and to whom."""

    color: str | None
    """As a browser paints it: its own, or else its toolkit's."""
    page: str
    """The page that documents it, as Markdown."""
    forms: tuple[ProviderForm, ...]
    """As each provider is told of it."""
    examples: tuple[dict[str, Any], ...]
    """Arguments of calls that its documentation shows."""
    findings: tuple[Finding, ...]
    """What could be better in its source, where there is one here."""


def form_of(kiln: Kiln, spec: ToolSpec, provider: Provider) -> ProviderForm:
    """A tool as one provider is told of it."""
    made = kiln.compiled(spec, provider)
    return ProviderForm(
        provider=provider,
        tool=None if made.errors else made.payload,
        losses=tuple(
            FormLoss(path=one.path, keyword=one.keyword, reason=one.reason) for one in made.losses
        ),
        left_out=made.errors,
    )


async def present(visit: Visit) -> Presentation:
    """One tool."""
    kiln = visit.kiln
    spec = (await kiln.tend(errands.Look(name=visit.path["name"]), visit.session)).spec

    def presented() -> Presentation:
        try:
            page = kiln.library.page(spec.name)
        except InputError:  # it is switched off
            page = preview(spec)
        color = spec.color or (spec.toolkit.color if spec.toolkit else None)
        return Presentation(
            color=paint(color) if color else None,
            page=page,
            forms=tuple(form_of(kiln, spec, provider) for provider in get_args(Provider)),
            examples=shown_calls(spec),
            findings=_findings(kiln, spec),
        )

    return await asyncio.to_thread(presented)


def _findings(kiln: Kiln, spec: ToolSpec) -> tuple[Finding, ...]:
    served = kiln.snapshot.served.get(spec.name)
    if served is None or served.read.digest != spec.digest:
        return ()
    return tuple(one for one in served.read.reading.findings if one.tool in (None, spec.name))


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/tools/{name}/presentation",
        name="present_tool",
        summary="Get a tool as people read of it, and as each provider is told of it",
        handle=present,
        group="tools",
        answers={200: Presentation},
    ),
)
