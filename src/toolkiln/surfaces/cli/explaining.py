"""Commands about the operator's rules: which one decides, and which never can."""

from pathlib import Path

from toolkiln.app import Who, explain, rule_text, shadows
from toolkiln.model import Privilege
from toolkiln.surfaces.cli.opening import open_kiln, require
from toolkiln.surfaces.cli.tables import one_line
from toolkiln.surfaces.cli.terminal import print_json, say

_LONGEST = 1000


def print_explanation(who: Who, tool: str, tools: Path | None, *, as_json: bool) -> int:
    """Print which rule decides; the exit status is 1 if it denies."""
    with open_kiln(tools) as kiln:
        require(kiln, Privilege.ADMIN, "rules.explain")
        told = explain(kiln, who, tool)
    if as_json:
        print_json(told.model_dump(mode="json"))
    else:
        say(told.effect)
        if told.text is not None:
            say(f"rule {told.rule}: {one_line(told.text, _LONGEST)}")
        say(f"why: {one_line(told.why, _LONGEST)}")
        for line in told.approvals:
            say(f"asks a person: {one_line(line, _LONGEST)}")
        for need in told.needs:
            say(f"{'has' if need.there else 'lacks'}: {one_line(need.what)}")
    return 1 if told.effect == "deny" else 0


def check(*, as_json: bool) -> None:
    """Print the rules in their order, and warn of those that never decide."""
    with open_kiln() as kiln:
        require(kiln, Privilege.ADMIN, "rules.list")
    settings = kiln.settings
    rules = settings.rules
    shadowed = shadows(rules)
    if as_json:
        told = [
            {"place": at, **rule, "shadowed_by": shadowed.get(at)}
            for at, rule in enumerate(rules, 1)
        ]
        print_json({"rules": told, "policy": settings.policy})
        return
    for at, rule in enumerate(rules, 1):
        say(f"{at}: {one_line(rule_text(rule), _LONGEST)}")
    say(f"otherwise: {settings.policy}")
    for later, earlier in shadowed.items():
        why = f"rule {earlier} fits everything that it fits"
        say(f"warning: rule {later} never decides: {why}", err=True)
