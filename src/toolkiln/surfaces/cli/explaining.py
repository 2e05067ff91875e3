"""Commands about the operator's rules: which one decides, and which never can.

What a call needs beyond them is told along: a person, a privilege, grants, secrets, settings.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from toolkiln.app import Kiln
from toolkiln.errors import InputError
from toolkiln.model import Caller, Decision, Privilege, ToolSpec
from toolkiln.surfaces.cli.keeping import has_value
from toolkiln.surfaces.cli.opening import open_kiln
from toolkiln.surfaces.cli.opening import settings as load_settings
from toolkiln.surfaces.cli.rights import rights
from toolkiln.surfaces.cli.tables import one_line
from toolkiln.surfaces.cli.terminal import print_json, say

_LISTS = ("users", "groups", "privileges", "tools", "toolkits", "hints")
_GLOBS = ("tools", "toolkits")
_TAKES_ALL = ("users", "groups", "privileges", "tools")
"""Where `*` says as much as nothing: a tool of no toolkit fits no toolkit."""

Rule = Mapping[str, Any]


@dataclass(frozen=True)
class Who:
    """Somebody who might call."""

    user: str
    groups: Sequence[str]
    privileges: Sequence[str]
    platform: str | None


class Need(NamedTuple):
    """What a call needs besides a rule."""

    what: str
    is_there: bool


def explain(who: Who, tool: str, tools: Path | None, *, as_json: bool) -> int:
    """Print which rule decides; the exit status is 1 if it denies."""
    if not who.user:
        raise InputError("the user has no name")
    with open_kiln(tools) as kiln:
        spec = kiln.tool(tool)
        caller = _caller(kiln, who)
        decision = kiln.guarding.guard.decide(caller, spec)
        asks = list(_approvals(decision, spec))
        needs = list(_needs(kiln, caller, spec))
        rules = kiln.guarding.live.current().rules
    text = None if decision.rule is None else _text(rules[decision.rule - 1])
    if as_json:
        print_json(
            {
                **decision._asdict(),
                "user": caller.who,
                "tool": spec.name,
                "text": text,
                "approvals": asks,
                "needs": [{"what": need.what, "there": need.is_there} for need in needs],
            }
        )
    else:
        say(decision.effect)
        if text is not None:
            say(f"rule {decision.rule}: {text}")
        say(f"why: {one_line(decision.why, 1000)}")
        for line in asks:
            say(f"asks a person: {one_line(line, 1000)}")
        for need in needs:
            say(f"{'has' if need.is_there else 'lacks'}: {one_line(need.what)}")
    return 1 if decision.effect == "deny" else 0


def check(*, as_json: bool) -> None:
    """Print the rules in their order, and warn of those that never decide."""
    settings = load_settings()
    rules = settings.rules
    shadows = _shadows(rules)
    if as_json:
        told = [
            {"place": at, **rule, "shadowed_by": shadows.get(at)}
            for at, rule in enumerate(rules, 1)
        ]
        print_json({"rules": told, "policy": settings.policy})
        return
    for at, rule in enumerate(rules, 1):
        say(f"{at}: {_text(rule)}")
    say(f"otherwise: {settings.policy}")
    for later, earlier in shadows.items():
        why = f"rule {earlier} fits everything that it fits"
        say(f"warning: rule {later} never decides: {why}", err=True)


def _caller(kiln: Kiln, who: Who) -> Caller:
    caller = Caller(
        user_id=who.user,
        platform=who.platform or None,
        groups=frozenset(who.groups),
        privileges=frozenset(who.privileges),
    )
    held = kiln.guarding.live.rules().privileges_of(caller)
    return caller.model_copy(update={"privileges": held})


def _approvals(decision: Decision, spec: ToolSpec) -> Iterator[str]:
    """Who asks for a person."""
    if decision.effect == "ask":
        yield "the rules"
    if spec.rights.approval_function is not None:
        yield f"{spec.name}, with some arguments ({spec.rights.approval_function} tells)"
    elif spec.rights.needs_approval:
        yield f"{spec.name}, before every call"


def _needs(kiln: Kiln, caller: Caller, spec: ToolSpec) -> Iterator[Need]:
    if not spec.rights.sandbox:
        needed = Privilege.UNSANDBOXED_EXEC
        yield Need(f"the privilege {needed}", needed in caller.privileges)
    for right in rights(kiln, spec.name):
        yield Need(f"the grant: {right.words}", right.is_granted)
    for name in spec.rights.secrets:
        yield Need(f"a value for the secret {name}", has_value(kiln, name))
    for scope, user in (("operator", ""), ("user", caller.who)):
        if scope in spec.settings:
            lacking = kiln.guarding.tool_settings.missing(spec, user)
            yield Need(f"settings of the {scope}{f': {lacking}' if lacking else ''}", not lacking)


def _text(rule: Rule) -> str:
    """A rule as it could stand in the settings, on one line."""
    return ", ".join(
        f"{name} = {one_line(json.dumps(value, ensure_ascii=False), 500)}"
        for name, value in rule.items()
    )


def _shadows(rules: Sequence[Rule]) -> dict[int, int]:
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


def _conditions(rule: Rule) -> tuple[tuple[str, frozenset[str]], ...]:
    given = [(name, frozenset(rule.get(name, ()))) for name in _LISTS]
    return tuple(
        (name, values)
        for name, values in given
        if values and not (name in _TAKES_ALL and "*" in values)
    )
