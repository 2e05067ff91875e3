"""`/v1/catalog`: all tools and toolkits at one look, as much of each as a card of a page shows.

For people who look around. Programs that want to know all about tools ask for `/v1/tools`.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Literal

from toolkiln.app import errands, health, paint
from toolkiln.errors import BackendError, InputError
from toolkiln.model import HealthLevel, Privilege, Role, Toolkit, ToolSpec, Value
from toolkiln.surfaces.http.operations import Operation, Visit

_LONGEST_SUMMARY = 200

State = Literal["served", "disabled", "proposed"]


class CardRights(Value):
    """What a tool asks for; nothing is granted by being asked for."""

    network: tuple[str, ...]
    """Hosts."""
    secrets: tuple[str, ...]
    workspace: Literal["read", "write"] | None
    sandbox: bool
    """Whether it runs in the sandbox."""
    needs_approval: bool
    """Whether a person is asked before it runs, always or for some arguments."""


class ToolCard(Value):
    """A tool at one look."""

    name: str
    title: str
    """For people."""
    toolkit: str | None
    """The group that it belongs to."""
    summary: str
    """The first line of its description."""
    role: Role
    icon: str | None
    """The name of a Lucide icon: its own, or else its toolkit's."""
    color: str | None
    """As a browser paints it: its own, or else its toolkit's."""
    weight: int
    is_core: bool
    """Whether it cannot be switched off."""
    is_shown: bool
    """Whether people see it unless they ask for all; hidden tools work all the same."""
    read_only: bool
    """Whether it says of itself that it changes nothing."""
    health: HealthLevel
    """Whether models can be held to its parameters."""
    rights: CardRights
    state: State
    """`disabled` and `proposed` ones are told to people with ADMIN only."""
    has_proposal: bool
    """Whether a version of it waits for a person to admit it; told to people with ADMIN only."""
    dev: bool
    """Whether it is served as it is on disk, without an admission."""


class ToolkitCard(Value):
    """A toolkit at one look."""

    name: str
    title: str
    """For people."""
    description: str
    icon: str | None
    color: str | None
    """As a browser paints it."""
    weight: int
    is_core: bool
    """Whether none of its tools can be switched off."""
    enabled: bool
    """Whether any of its tools is offered."""


class CatalogView(Value):
    """The whole catalog, by weight, then name."""

    toolkits: tuple[ToolkitCard, ...]
    tools: tuple[ToolCard, ...]
    hidden: int
    """How many of the tools people are not shown unless they ask for all."""


async def get_catalog(visit: Visit) -> CatalogView:
    """Everything that the caller may see."""
    try:
        served = await asyncio.to_thread(visit.kiln.visible, visit.session, None)
    except InputError as error:
        if error.code != InputError.code:
            raise
        # There is no folder yet, or no file in it: that is how everybody begins.
        return CatalogView(toolkits=(), tools=(), hidden=0)
    disabled: tuple[ToolSpec, ...] = ()
    proposed: tuple[ToolSpec, ...] = ()
    if Privilege.ADMIN in visit.caller.privileges:
        with suppress(BackendError):  # a fleet without workers has nobody who knows
            disabled = await visit.kiln.tend(errands.ListDisabled(), visit.session)
            proposed = await visit.kiln.tend(errands.ListProposed(), visit.session)
    return await asyncio.to_thread(_view, visit, served, _named(disabled), _named(proposed))


def _named(specs: Iterable[ToolSpec]) -> dict[str, ToolSpec]:
    return {spec.name: spec for spec in specs}


def _view(
    visit: Visit,
    served: Mapping[str, ToolSpec],
    disabled: Mapping[str, ToolSpec],
    proposed: Mapping[str, ToolSpec],
) -> CatalogView:
    found: dict[str, tuple[ToolSpec, State]] = {
        **{name: (spec, "proposed") for name, spec in proposed.items()},
        **{name: (spec, "disabled") for name, spec in disabled.items()},
        **{name: (spec, "served") for name, spec in served.items()},
    }
    ordered = sorted(found.values(), key=lambda one: (one[0].weight, one[0].name))
    cards = tuple(
        _in_state(
            visit.kiln.made_of(spec, _card),
            state=state,
            has_proposal=spec.name in proposed,
            dev=visit.kiln.is_dev(spec.name),
        )
        for spec, state in ordered
    )
    offered = {card.toolkit for card in cards if card.state == "served"}
    kits = _toolkits(spec for spec, _ in ordered)
    return CatalogView(
        toolkits=tuple(_toolkit(kit, is_offered=kit.name in offered) for kit in kits),
        tools=cards,
        hidden=sum(not card.is_shown for card in cards),
    )


def _in_state(card: ToolCard, **state: State | bool) -> ToolCard:
    """A card with what can change while the tool's version stays the same."""
    if all(getattr(card, name) == value for name, value in state.items()):
        return card
    return card.model_copy(update=state)


def _card(spec: ToolSpec) -> ToolCard:
    """The card of a tool that is served, of which no other version is proposed."""
    kit, rights = spec.toolkit, spec.rights
    return ToolCard(
        name=spec.name,
        title=spec.display_name,
        toolkit=kit.name if kit else None,
        summary=_summary(spec.description),
        role=spec.role,
        icon=spec.icon,
        color=paint(spec.color) if spec.color else None,
        weight=spec.weight,
        is_core=spec.cannot_be_disabled,
        is_shown=spec.is_shown,
        read_only=bool(spec.hints.read_only),
        health=health(spec.parameters).level,
        rights=CardRights(
            network=rights.network,
            secrets=rights.secrets,
            workspace=rights.workspace,
            sandbox=rights.sandbox,
            needs_approval=rights.needs_approval,
        ),
        state="served",
        has_proposal=False,
        dev=False,
    )


def _summary(description: str) -> str:
    line = next((line for line in map(str.strip, description.splitlines()) if line), "")
    return line if len(line) <= _LONGEST_SUMMARY else f"{line[: _LONGEST_SUMMARY - 1]}…"


def _toolkits(specs: Iterable[ToolSpec]) -> list[Toolkit]:
    found = {spec.toolkit.name: spec.toolkit for spec in specs if spec.toolkit}
    return sorted(found.values(), key=lambda kit: (kit.weight, kit.name))


def _toolkit(kit: Toolkit, *, is_offered: bool) -> ToolkitCard:
    return ToolkitCard(
        name=kit.name,
        title=kit.display_name,
        description=kit.description,
        icon=kit.icon,
        color=paint(kit.color) if kit.color else None,
        weight=kit.weight,
        is_core=kit.is_core,
        enabled=is_offered,
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/catalog",
        name="get_catalog",
        summary="Get the whole catalog at one look",
        description=(
            "By weight, then name: what the caller may run, and for people with ADMIN also what "
            "is switched off or waits to be admitted. Sent with gzip to clients that accept it."
        ),
        handle=get_catalog,
        group="tools",
        answers={200: CatalogView},
        is_large=True,
    ),
)
