"""The operator's rules: who may run which tool, decided by the first rule that fits.

`decide` is a pure function of a caller, a tool and the rules. It knows nothing of
arguments, grants and approvals, and asks nobody. With very many rules it takes as long as
with few, but for two kinds, which are gone through one by one: rules that name neither a
caller nor a tool's beginning or end (such as those for `*file*`), and rules that name the
same caller and the same tools and differ in the rest. `rule_index` finds the others.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from toolkiln.execution.globs import Globs, folded
from toolkiln.execution.rule_index import Asked, Field, Index, field_of_globs, field_of_texts
from toolkiln.model import ANONYMOUS, Caller, Decision, Effect, Privilege, Rule, ToolSpec
from toolkiln.schema import secret_fields

_GROUP = "group:"
_NOBODY: Mapping[str, Collection[str]] = MappingProxyType({})
_SAYS = {"allow": "allows", "deny": "denies", "ask": "asks for approval"}
_LISTS = ("users", "groups", "privileges", "tools", "toolkits", "hints")
_LONGEST = 80
_LONGEST_REASON = 300
_MOST_LISTED = 5
_NEEDS_NAME = f'which anonymous callers may use only under a rule with users = ["{ANONYMOUS}"]'


def decide(caller: Caller, spec: ToolSpec, rules: "Rules") -> Decision:
    """Whether somebody may run a tool: their session's limits, then the rules, then the default.

    Rules about privileges look at those that the caller holds; whoever makes the caller asks
    `Rules.privileges_of` for them.
    """
    tools = caller.tools
    if tools != ("*",) and not _limits(tools).fits(spec.name, spec.name):
        why = f"the session is limited to {_listed('tools', tools)}"
        return Decision("deny", f"{why}, and {_quoted(spec.name)} is not among them")
    decision = rules.decision(caller, spec)
    if caller.is_anonymous and decision.effect != "deny" and not decision.names_user:
        used = restricted_use(spec)
        if used is not None:
            return Decision("deny", f"{spec.name} {used}, {_NEEDS_NAME}", decision.rule)
    return decision


def restricted_use(spec: ToolSpec) -> str | None:
    """What makes a tool unavailable to anonymous callers; None if it is available."""
    rights = spec.rights
    if not rights.sandbox:
        return "asks to run outside the sandbox"
    if rights.workspace:
        return "asks for a workspace"
    if rights.secrets or any(map(secret_fields, spec.settings.values())):
        return "asks for secrets"
    return None


class Rules:
    """Rules in their order, and the privileges that the operator gives out; immutable."""

    __slots__ = ("_default", "_has_hints", "_index", "_privileges", "_rows")

    def __init__(
        self,
        rules: Sequence[Rule],
        default: Effect = "allow",
        privileges: Mapping[str, Collection[str]] = _NOBODY,
    ) -> None:
        """`privileges` are by user, as `Caller.who` names them, or by `group:NAME`."""
        self._privileges = {who: frozenset(names) for who, names in privileges.items()}
        self._default = Decision(default, f'no rule fits, and policy = "{default}" decides')
        self._rows = _without_repetitions(rules)
        self._has_hints = any(row.hints for row in self._rows)
        self._index = Index([(row.caller_fields(), row.tool_fields()) for row in self._rows])

    def decision(self, caller: Caller, spec: ToolSpec) -> Decision:
        """What the first rule that fits says, or the default; not what the session's limits do."""
        name, toolkit = spec.name, spec.toolkit.name if spec.toolkit else None
        asked = Asked(
            caller.who if caller.user_id else None,
            caller.groups,
            caller.privileges,
            name,
            folded(name),
            toolkit,
            folded(toolkit) if toolkit else "",
            _hints(spec) if self._has_hints else frozenset(),
        )
        rows = self._rows
        best = len(rows)
        for places in self._index.candidates(asked):
            for place in places:
                if place >= best:
                    break
                if rows[place].fits(asked):
                    best = place
                    break
        if best == len(rows):
            return self._default
        row = rows[best]
        return row.naming if asked.who in row.names else row.decision

    def privileges_of(self, caller: Caller, *, from_key: bool = False) -> frozenset[str]:
        """What a caller may: what the session says, and what the operator gives them.

        A session that an API key made has what the key has, and nothing beyond.
        """
        if from_key or not self._privileges:
            return _with_implied(caller.privileges)
        names = [_GROUP + group for group in caller.groups]
        # Somebody who goes by the name of `group:admins` is not that group.
        if caller.user_id and not caller.who.startswith(_GROUP):
            names.append(caller.who)
        held = caller.privileges.union(*(self._privileges.get(name, ()) for name in names))
        return _with_implied(held)


def _with_implied(held: frozenset[str]) -> frozenset[str]:
    """Code that may run outside the sandbox may also be written."""
    if Privilege.UNSANDBOXED_EXEC in held and Privilege.WRITE_TOOLS not in held:
        return held | {Privilege.WRITE_TOOLS}
    return held


class _Row:
    """A rule, made ready; None: the field fits anything."""

    __slots__ = (
        "decision", "groups", "hints", "names", "naming", "privileges", "toolkits", "tools",
        "users",
    )  # fmt: skip

    def __init__(self, place: int, rule: Rule) -> None:
        self.users, self.groups = _narrowed(rule.users), _narrowed(rule.groups)
        self.privileges = _narrowed(rule.privileges)
        self.hints = frozenset(rule.hints) or None
        # What is forbidden stays forbidden under a name that looks the same.
        loose = rule.effect != "allow"
        self.tools = Globs(rule.tools, loose=loose) if _narrowed(rule.tools) else None
        # A tool of no toolkit does not fit `*` either.
        self.toolkits = Globs(rule.toolkits, loose=loose) if rule.toolkits else None
        self.decision = Decision(rule.effect, _why(place, rule), place, rule.approve_own)
        self.names = frozenset(rule.users)
        self.naming = self.decision._replace(names_user=True)

    def fits(self, asked: Asked) -> bool:
        """Whether everything that the rule gives fits."""
        return (
            (self.users is None or asked.who in self.users)
            and (self.groups is None or not self.groups.isdisjoint(asked.groups))
            and (self.privileges is None or not self.privileges.isdisjoint(asked.privileges))
            and (self.hints is None or not self.hints.isdisjoint(asked.hints))
            and (self.tools is None or self.tools.fits(asked.name, asked.looks))
            and (
                self.toolkits is None
                or (
                    asked.toolkit is not None
                    and self.toolkits.fits(asked.toolkit, asked.toolkit_looks)
                )
            )
        )

    def caller_fields(self) -> list[Field]:
        """How the rule is found by a caller."""
        return [
            field_of_texts(name, texts)
            for name, texts in (
                ("users", self.users),
                ("groups", self.groups),
                ("privileges", self.privileges),
            )
            if texts is not None
        ]

    def tool_fields(self) -> list[Field]:
        """How the rule is found by a tool."""
        return [
            field_of_globs(name, globs)
            for name, globs in (("tools", self.tools), ("toolkits", self.toolkits))
            if globs is not None
        ]


def _without_repetitions(rules: Sequence[Rule]) -> tuple[_Row, ...]:
    """Without rules that ask for what an earlier one asks for already: none ever decides."""
    first: dict[object, _Row] = {}
    for place, rule in enumerate(rules, 1):
        wants = tuple(frozenset(getattr(rule, name)) for name in _LISTS)
        key = (rule.effect == "allow", wants)
        if key not in first:
            first[key] = _Row(place, rule)
    return tuple(first.values())


def _narrowed(values: Sequence[str]) -> frozenset[str] | None:
    return None if not values or "*" in values else frozenset(values)


def _hints(spec: ToolSpec) -> frozenset[str]:
    return frozenset(name for name, says in spec.hints if says is True)


@lru_cache(1000)
def _limits(tools: tuple[str, ...]) -> Globs:
    return Globs(tools)


def _why(place: int, rule: Rule) -> str:
    reason = f": {_shown(rule.reason, _LONGEST_REASON)}" if rule.reason else ""
    given = [(name, getattr(rule, name)) for name in _LISTS]
    wants = ", ".join(_listed(name, values) for name, values in given if values)
    return f"rule {place} {_SAYS[rule.effect]}{reason} ({wants or 'any call'})"


def _listed(name: str, values: Sequence[str]) -> str:
    more = f", … {len(values) - _MOST_LISTED:,} more" if len(values) > _MOST_LISTED else ""
    return f"{name} = [{', '.join(map(_quoted, values[:_MOST_LISTED]))}{more}]"


def _quoted(text: str) -> str:
    return f'"{_shown(text, _LONGEST)}"'


def _shown(text: str, most: int) -> str:
    """A text that others chose, on one line and with nothing that acts on a terminal."""
    cut = text if len(text) <= most else f"{text[:most]}…"
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode("ascii")
