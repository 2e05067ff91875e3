"""The operator's rules explained: which one decides about a call, and which never can.

What a call needs beyond them is told along: a person, a privilege, grants, secrets, settings.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkiln.app.rights import rights
from toolkiln.errors import InputError, ToolkilnError
from toolkiln.model import Caller, Decision, Effect, Privilege, ToolSpec, Value

if TYPE_CHECKING:
    from toolkiln.app.kiln import Kiln

_LISTS = ("users", "groups", "privileges", "tools", "toolkits", "hints")
_GLOBS = ("tools", "toolkits")
_TAKES_ALL = ("users", "groups", "privileges", "tools")
"""Where `*` says as much as nothing: a tool of no toolkit fits no toolkit."""

RuleTable = Mapping[str, Any]
"""A rule as the settings have it."""


@dataclass(frozen=True)
class Who:
    """Somebody who might call."""

    user: str
    groups: Sequence[str] = ()
    privileges: Sequence[str] = ()
    platform: str | None = None


class Need(Value):
    """What a call needs besides a rule."""

    what: str
    there: bool


class Explanation(Value):
    """Whether somebody may run a tool, and what decides about that."""

    effect: Effect
    why: str
    rule: int | None
    """The place of the rule that decides, from 1; null: the default, or the session's limits."""
    approve_own: bool | None
    """Whether they may approve their own calls; null: only the local person may."""
    user: str
    tool: str
    text: str | None
    """The rule as it could stand in the settings."""
    approvals: tuple[str, ...]
    """Who asks for a person."""
    needs: tuple[Need, ...]


def explain(kiln: "Kiln", who: Who, tool: str) -> Explanation:
    """Which rule decides whether somebody may run a tool, and what else a call needs.

    Raises:
        InputError: there is no such tool, or the user has no name.
    """
    if not who.user:
        raise InputError("the user has no name")
    spec, caller = kiln.tool(tool), _caller(kiln, who)
    decision = kiln.guarding.guard.decide(caller, spec)
    rules = kiln.guarding.live.current().rules
    return Explanation(
        effect=decision.effect,
        why=decision.why,
        rule=decision.rule,
        approve_own=decision.approve_own,
        user=caller.who,
        tool=spec.name,
        text=None if decision.rule is None else rule_text(rules[decision.rule - 1]),
        approvals=tuple(_approvals(decision, spec)),
        needs=tuple(_needs(kiln, caller, spec)),
    )


def rule_text(rule: RuleTable) -> str:
    """A rule as it could stand in the settings, on one line."""
    given = ((name, json.dumps(value, ensure_ascii=False)) for name, value in rule.items())
    return ", ".join(f"{name} = {value}" for name, value in given)


def shadows(rules: Sequence[RuleTable]) -> dict[int, int]:
    """Rules that never decide, by their place, each with an earlier one that fits all it fits.

    Only where that is obvious: the earlier one has no conditions, or the same.
    """
    found: dict[int, int] = {}
    first: dict[object, int] = {}
    for place, rule in enumerate(rules, 1):
        wants = _conditions(rule)
        # What does not allow fits names that merely look the same, too.
        is_loose = rule["effect"] != "allow" and any(name in _GLOBS for name, _ in wants)
        alike = [((), False), (wants, True)] + ([] if is_loose else [(wants, False)])
        if places := [first[key] for key in alike if key in first]:
            found[place] = min(places)
        first.setdefault((wants, is_loose), place)
    return found


def _conditions(rule: RuleTable) -> tuple[tuple[str, frozenset[str]], ...]:
    given = [(name, frozenset(rule.get(name, ()))) for name in _LISTS]
    return tuple(
        (name, values)
        for name, values in given
        if values and not (name in _TAKES_ALL and "*" in values)
    )


def _caller(kiln: "Kiln", who: Who) -> Caller:
    caller = Caller(
        user_id=who.user,
        platform=who.platform or None,
        groups=frozenset(who.groups),
        privileges=frozenset(who.privileges),
    )
    held = kiln.guarding.live.rules().privileges_of(caller)
    return caller.model_copy(update={"privileges": held})


def _approvals(decision: Decision, spec: ToolSpec) -> Iterator[str]:
    if decision.effect == "ask":
        yield "the rules"
    if spec.rights.approval_function is not None:
        yield f"{spec.name}, with some arguments ({spec.rights.approval_function} tells)"
    elif spec.rights.needs_approval:
        yield f"{spec.name}, before every call"


def _needs(kiln: "Kiln", caller: Caller, spec: ToolSpec) -> Iterator[Need]:
    if not spec.rights.sandbox:
        needed = Privilege.UNSANDBOXED_EXEC
        yield Need(what=f"the privilege {needed}", there=needed in caller.privileges)
    for right in rights(kiln, spec.name):
        yield Need(what=f"the grant: {right.words}", there=right.is_granted)
    for name in spec.rights.secrets:
        yield Need(what=f"a value for the secret {name}", there=_has_value(kiln, name))
    for scope, user in (("operator", ""), ("user", caller.who)):
        if scope in spec.settings:
            lacking = kiln.guarding.tool_settings.missing(spec, user)
            words = f"settings of the {scope}{f': {lacking}' if lacking else ''}"
            yield Need(what=words, there=not lacking)


def _has_value(kiln: "Kiln", name: str) -> bool:
    try:
        return kiln.guarding.secrets.get(name) is not None
    except ToolkilnError:  # it is there, but cannot be read: no call gets it
        return False
