"""The operator's policy: who may run which tool, decided by the first matching rule.

`Rules.decide` is a pure function of a caller, a tool and the rules. It does not look at
arguments, grants or approvals. Rules are scanned in order; decisions are cached, because a server
decides the same questions over and over. Globs have the syntax of `fnmatch`.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from types import MappingProxyType
from unicodedata import normalize

from toolkiln.model.identity import ANONYMOUS, Caller, Privilege
from toolkiln.model.policy import Effect, PolicyDecision, Rule
from toolkiln.model.spec import ToolSpec
from toolkiln.schema.document import secret_fields

_CACHED_DECISIONS = 20_000
_TOKENS = re.compile(
    r"(\*)|(\?|\[(?:!.|[^!])[^\]]*\])|((?:[^*?\[]|\[(?!(?:!.|[^!])[^\]]*\]))+)", re.DOTALL
)
"""A star; `?` or a set in brackets; literal text, including brackets that are not closed."""
_GROUP = "group:"
_NO_PRIVILEGES: Mapping[str, Collection[str]] = MappingProxyType({})
_VERBS = {"allow": "allows", "deny": "denies", "ask": "asks for approval"}
_CONDITIONS = ("users", "groups", "privileges", "tools", "toolkits", "hints")
_MAX_VALUE_LENGTH = 80
_MAX_REASON_LENGTH = 300
_MAX_LISTED_VALUES = 5
_NEEDS_NAME = f'which anonymous callers may use only under a rule with users = ["{ANONYMOUS}"]'


def folded(name: str) -> str:
    """Normalise a name: `Delete-File` and `delete_file` give the same result."""
    if not name.isascii():
        name = normalize("NFKC", normalize("NFKC", name).casefold())
    return name.lower().replace("-", "_")


class Globs:
    """Several globs, matched as a whole: a name must match one of them."""

    __slots__ = ("_folded_names", "_folded_pattern", "_names", "_pattern")

    def __init__(self, globs: Iterable[str], *, loose: bool = False) -> None:
        """With `loose`, names whose folded form matches a folded glob match, too."""
        globs = tuple(globs)
        self._names, self._pattern = _compiled(globs, loose=False)
        self._folded_names, self._folded_pattern = _compiled(globs if loose else (), loose=True)

    def match(self, name: str, folded_name: str) -> bool:
        """Return whether a name matches, given also in its folded form."""
        if name in self._names or folded_name in self._folded_names:
            return True
        if self._folded_pattern is not None:
            if self._folded_pattern.match(folded_name):
                return True
            if name == folded_name:  # the stricter pattern matches nothing else
                return False
        return self._pattern is not None and self._pattern.match(name) is not None


def _compiled(
    globs: Sequence[str], *, loose: bool
) -> tuple[frozenset[str], re.Pattern[str] | None]:
    """Split globs into literal names and one pattern for the rest."""
    names: set[str] = set()
    patterns: list[str] = []
    for glob in globs:
        tokens = _TOKENS.findall(glob)
        if any(star or choice for star, choice, _ in tokens):
            patterns.append(_pattern(tokens, f"glob{len(patterns)}", loose=loose))
        else:
            names.add(folded(glob) if loose else glob)
    return frozenset(names), re.compile("|".join(patterns), re.DOTALL) if patterns else None


def _pattern(tokens: Sequence[tuple[str, str, str]], name: str, *, loose: bool) -> str:
    """Translate a glob; `name` makes the names of its groups unique."""
    pieces = [""]
    for star, choice, literal in tokens:
        if star:
            pieces.append("")
        elif choice:
            pieces[-1] += _choice(choice, loose=loose)
        else:
            pieces[-1] += re.escape(folded(literal) if loose else literal)
    if len(pieces) == 1:
        return rf"{pieces[0]}\Z"
    first, *middle, last = pieces
    # The leftmost match between two stars is as good as any other: a lookahead that does not
    # backtrack keeps the time linear in the length of the name (no atomic groups: see ADR 7).
    between = (
        f"(?=(?P<{name}_{number}>.*?{piece}))(?P={name}_{number})"
        for number, piece in enumerate(middle)
    )
    return rf"{first}{''.join(between)}.*{last}\Z"


def _choice(token: str, *, loose: bool) -> str:
    """Translate `?` or a set; a loose set ignores case and treats `-` as `_`."""
    pattern = translate(token)[:-2]  # without the anchor at the end
    if not loose:
        return pattern
    return f"(?i:{pattern}{'|_' if fnmatchcase('-', token) else ''})"


def _restricted_use(spec: ToolSpec) -> str | None:
    """Return why anonymous callers may not use a tool; None if they may."""
    permissions = spec.rights
    if not permissions.sandbox:
        return "asks to run outside the sandbox"
    if permissions.workspace:
        return "asks for a workspace"
    if permissions.secrets or any(map(secret_fields, spec.settings.values())):
        return "asks for secrets"
    return None


class Rules:
    """Rules in order, and the privileges the operator grants; immutable."""

    __slots__ = ("_decisions", "_default", "_privileges", "_rows")

    def __init__(
        self,
        rules: Sequence[Rule],
        default: Effect = "allow",
        privileges: Mapping[str, Collection[str]] = _NO_PRIVILEGES,
    ) -> None:
        """`privileges` are by user, as in `Caller.who`, or by `group:NAME`."""
        self._privileges = {who: frozenset(names) for who, names in privileges.items()}
        self._default = PolicyDecision(default, f'no rule fits, and policy = "{default}" decides')
        self._rows = _without_duplicates(rules)
        self._decisions: dict[object, PolicyDecision] = {}

    def decide(self, caller: Caller, spec: ToolSpec) -> PolicyDecision:
        """Decide whether a caller may run a tool: the session's limits, the rules, the default.

        Rules about privileges look at `caller.privileges`, which `privileges_of` computes.
        """
        tools = caller.tools
        if tools != ("*",) and not _session_globs(tools).match(spec.name, spec.name):
            why = f"the session is limited to {_listed('tools', tools)}"
            return PolicyDecision("deny", f"{why}, and {_quoted(spec.name)} is not among them")
        who = caller.user_id, caller.platform, caller.groups, caller.privileges
        key = (who, spec.name, spec.digest)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._match(caller, spec)
            if len(self._decisions) >= _CACHED_DECISIONS:
                self._decisions.clear()
            self._decisions[key] = decision
        if caller.is_anonymous and decision.effect != "deny" and not decision.names_user:
            restriction = _restricted_use(spec)
            if restriction is not None:
                why = f"{spec.name} {restriction}, {_NEEDS_NAME}"
                return PolicyDecision("deny", why, decision.rule)
        return decision

    def _match(self, caller: Caller, spec: ToolSpec) -> PolicyDecision:
        """Return the decision of the first matching rule, or the default."""
        user = caller.who if caller.user_id else None
        tool, toolkit = spec.name, spec.toolkit.name if spec.toolkit else None
        folded_tool, folded_toolkit = folded(tool), folded(toolkit or "")
        hints = frozenset(name for name, value in spec.hints if value is True)
        for row in self._rows:
            if (
                (row.users is None or user in row.users)
                and (row.groups is None or not row.groups.isdisjoint(caller.groups))
                and (row.privileges is None or not row.privileges.isdisjoint(caller.privileges))
                and (row.hints is None or not row.hints.isdisjoint(hints))
                and (row.tools is None or row.tools.match(tool, folded_tool))
                and (
                    row.toolkits is None
                    or (toolkit is not None and row.toolkits.match(toolkit, folded_toolkit))
                )
            ):
                return row.decision_by_name if user in row.named_users else row.decision
        return self._default

    def privileges_of(self, caller: Caller, *, from_key: bool = False) -> frozenset[str]:
        """Return the privileges of the session plus those the operator grants the caller.

        A session opened with an API key has the key's privileges only.
        """
        if from_key or not self._privileges:
            return _with_implied(caller.privileges)
        names = [_GROUP + group for group in caller.groups]
        # A user named `group:admins` is not that group.
        if caller.user_id and not caller.who.startswith(_GROUP):
            names.append(caller.who)
        granted = caller.privileges.union(*(self._privileges.get(name, ()) for name in names))
        return _with_implied(granted)


def _with_implied(privileges: frozenset[str]) -> frozenset[str]:
    """Add WRITE_TOOLS to UNSANDBOXED_EXEC."""
    if Privilege.UNSANDBOXED_EXEC in privileges and Privilege.WRITE_TOOLS not in privileges:
        return privileges | {Privilege.WRITE_TOOLS}
    return privileges


class _Row:
    """A compiled rule; a field that is None matches anything."""

    __slots__ = (
        "decision", "decision_by_name", "groups", "hints", "named_users", "privileges", "toolkits",
        "tools", "users",
    )  # fmt: skip

    def __init__(self, number: int, rule: Rule) -> None:
        self.users, self.groups = _values(rule.users), _values(rule.groups)
        self.privileges = _values(rule.privileges)
        self.hints = frozenset(rule.hints) or None
        # A denied tool stays denied under a name that looks the same.
        loose = rule.effect != "allow"
        self.tools = Globs(rule.tools, loose=loose) if _values(rule.tools) else None
        # `*` does not match tools without a toolkit.
        self.toolkits = Globs(rule.toolkits, loose=loose) if rule.toolkits else None
        self.decision = PolicyDecision(rule.effect, _why(number, rule), number, rule.approve_own)
        self.named_users = frozenset(rule.users)
        self.decision_by_name = self.decision._replace(names_user=True)


def _without_duplicates(rules: Sequence[Rule]) -> tuple[_Row, ...]:
    """Drop rules with the conditions of an earlier rule: they never decide."""
    rows: dict[object, _Row] = {}
    for number, rule in enumerate(rules, 1):
        conditions = tuple(frozenset(getattr(rule, name)) for name in _CONDITIONS)
        key = (rule.effect == "allow", conditions)
        if key not in rows:
            rows[key] = _Row(number, rule)
    return tuple(rows.values())


def _values(values: Sequence[str]) -> frozenset[str] | None:
    return None if not values or "*" in values else frozenset(values)


@lru_cache(1000)
def _session_globs(tools: tuple[str, ...]) -> Globs:
    return Globs(tools)


def _why(number: int, rule: Rule) -> str:
    reason = f": {_printable(rule.reason, _MAX_REASON_LENGTH)}" if rule.reason else ""
    fields = [(name, getattr(rule, name)) for name in _CONDITIONS]
    conditions = ", ".join(_listed(name, values) for name, values in fields if values)
    return f"rule {number} {_VERBS[rule.effect]}{reason} ({conditions or 'any call'})"


def _listed(name: str, values: Sequence[str]) -> str:
    omitted = len(values) - _MAX_LISTED_VALUES
    more = f", … {omitted:,} more" if omitted > 0 else ""
    return f"{name} = [{', '.join(map(_quoted, values[:_MAX_LISTED_VALUES]))}{more}]"


def _quoted(text: str) -> str:
    return f'"{_printable(text, _MAX_VALUE_LENGTH)}"'


def _printable(text: str, limit: int) -> str:
    """Shorten untrusted text and escape control characters, to keep it on one line."""
    cut = text if len(text) <= limit else f"{text[:limit]}…"
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode("ascii")
