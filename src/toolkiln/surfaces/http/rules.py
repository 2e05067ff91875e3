"""`/v1/rules`: who may run what by the operator's rules, and why. They are written in a file."""

import asyncio
from typing import Annotated

from pydantic import Field

from toolkiln.app import Explanation, Who, explain, rule_text, shadows
from toolkiln.model import Effect, Privilege, Value
from toolkiln.surfaces.http.operations import Operation, Visit
from toolkiln.surfaces.http.shapes import Name, Query

_APART = ("effect", "reason", "approve_own")
_Names = Annotated[list[Name], Field(max_length=100)]


class ShownRule(Value):
    """One rule in its place."""

    place: int
    """From 1: the first that fits decides."""
    effect: Effect
    conditions: str
    """Whom and what it fits, as the settings have it; empty: everybody, every tool."""
    reason: str
    approve_own: bool | None
    """Whether callers whom it lets through may approve their own calls."""
    shadowed_by: int | None
    """The place of an earlier rule that fits all that this one fits, so that it never decides."""


class RuleList(Value):
    """The rules in force, and who has which privileges by the settings."""

    items: tuple[ShownRule, ...]
    policy: Effect
    """What becomes of calls that no rule fits."""
    privileges: dict[str, tuple[str, ...]]
    """By user, or `group:NAME`."""


class ExplainQuery(Query):
    """Somebody who might call a tool; nobody of that name has to be known."""

    tool: Name
    user: Name
    group: _Names = Field(default_factory=list)
    """Of the session that they would come with; may be repeated."""
    privilege: _Names = Field(default_factory=list)
    """Of that session, besides those that the settings give; may be repeated."""
    platform: Name | None = None


async def list_rules(visit: Visit) -> RuleList:
    """The rules of this moment."""

    def listed() -> RuleList:
        visit.kiln.guarding.require(visit.session, Privilege.ADMIN, "rules.list")
        settings = visit.kiln.guarding.live.current()
        shadowed = shadows(settings.rules)
        items = (
            ShownRule(
                place=place,
                effect=rule["effect"],
                conditions=rule_text({n: v for n, v in rule.items() if n not in _APART}),
                reason=rule.get("reason", ""),
                approve_own=rule.get("approve_own"),
                shadowed_by=shadowed.get(place),
            )
            for place, rule in enumerate(settings.rules, 1)
        )
        privileges = {who: tuple(names) for who, names in settings.privileges.items()}
        return RuleList.model_validate(
            {"items": tuple(items), "policy": settings.policy, "privileges": privileges}
        )

    return await asyncio.to_thread(listed)


async def explain_rules(visit: Visit, query: ExplainQuery) -> Explanation:
    """Which rule decides about a call."""

    def explained() -> Explanation:
        visit.kiln.guarding.require(visit.session, Privilege.ADMIN, "rules.explain")
        who = Who(query.user, query.group, query.privilege, query.platform)
        return explain(visit.kiln, who, query.tool)

    return await asyncio.to_thread(explained)


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/rules",
        name="list_rules",
        summary="List the operator's rules in their order, and who has privileges",
        description="Takes the privilege ADMIN.",
        handle=list_rules,
        group="operating",
        answers={200: RuleList},
    ),
    Operation(
        method="GET",
        path="/v1/rules/explain",
        name="explain_rules",
        summary="Tell whether somebody may run a tool, which rule decides, and what else it takes",
        description="Takes the privilege ADMIN.",
        handle=explain_rules,
        group="operating",
        query=ExplainQuery,
        answers={200: Explanation},
    ),
)
