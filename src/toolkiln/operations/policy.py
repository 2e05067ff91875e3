"""Operations on the operator's rules, and the permissions of tools and callers.

Rules are listed and explained here; they are written in the settings file.

Callers may change visible tools, if all tools of their file are visible: a file is replaced,
removed or rolled back with all of its tools. If the caller may not see one of them, the response
is the same as for a name that does not exist or is taken, and reveals nothing about the hidden
tool. `security.rules` decides what callers may see.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field

from toolkiln.errors import InputError, NotFound, ToolkilnError, UnknownTool
from toolkiln.model.base import Value
from toolkiln.model.call import Grant
from toolkiln.model.identity import Caller, Privilege
from toolkiln.model.policy import Effect, PolicyDecision
from toolkiln.model.spec import ToolSpec
from toolkiln.operations.operation import Nothing, OperationContext, operation
from toolkiln.security.sessions import LOCAL_OPERATOR, SessionToken

if TYPE_CHECKING:
    from toolkiln.catalog.admission import CandidateVersion
    from toolkiln.operations.services import Services


class Right(NamedTuple):
    """A permission that a tool requests."""

    text: str
    is_granted: bool


class InheritedRights(Value):
    """What a tool gets when a person admits its version without granting anything."""

    tool: str
    network: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    workspace: Literal["read", "write"] | None = None
    without_sandbox: bool = False
    settings: tuple[str, ...] = ()
    """Names of the operator's settings that its calls receive."""
    user_settings: bool = False
    """Whether its calls receive the settings of their callers."""

    def __str__(self) -> str:
        named = ("network", self.network), ("secrets", self.secrets), ("settings", self.settings)
        parts = [f"{word} {', '.join(names)}" for word, names in named if names]
        parts += [f"workspace {self.workspace}"] if self.workspace else []
        parts += ["running without the sandbox"] if self.without_sandbox else []
        parts += ["settings of its callers"] if self.user_settings else []
        return f"{self.tool} inherits {'; '.join(parts)}"


def inherited(services: "Services", candidate: "CandidateVersion") -> tuple[InheritedRights, ...]:
    """Return what each tool of a version inherits when a person admits it.

    That is what `[grants]` in the settings names, or else what an earlier admission of the file
    granted, limited to what the tools request; and the settings stored under their names.
    """
    by_name = services.security.live.current().grants
    try:
        entry = services.catalog.manifest.files.get(candidate.file)
    except InputError:  # nothing was admitted yet
        entry = None
    before = entry.rights if entry else {}
    found = []
    for spec in candidate.read.reading.tools:
        setting = by_name.get(spec.name, by_name.get("*"))
        recorded = before.get(spec.name, Grant())
        grant = recorded if setting is None else Grant.model_validate(dict(setting))
        found.append(_inherited(services, spec, grant))
    return tuple(rights for rights in found if rights != InheritedRights(tool=rights.tool))


def _inherited(services: "Services", spec: ToolSpec, grant: Grant) -> InheritedRights:
    requested, is_writer = spec.rights, grant.workspace == "write"
    workspace, settings = requested.workspace, tuple[str, ...]()
    if "operator" in spec.settings:
        settings = tuple(services.security.tool_settings.masked_values(spec))
    return InheritedRights(
        tool=spec.name,
        network=tuple(host for host in requested.network if _covers(grant.network, host)),
        secrets=tuple(name for name in requested.secrets if name in grant.secrets),
        workspace=workspace if is_writer or grant.workspace == workspace else None,
        without_sandbox=not requested.sandbox and not grant.sandbox,
        settings=settings,
        user_settings="user" in spec.settings,
    )


def not_granted(services: "Services", name: str) -> Iterator[str]:
    """Return the permissions that a tool requests and that neither settings nor admission grant."""
    return (right.text for right in rights(services, name) if not right.is_granted)


def rights(services: "Services", name: str) -> Iterator[Right]:
    """Return the permissions that a tool of the catalog requests."""
    if name not in services.registry.specs:
        return
    requested, grant = services.registry.spec(name).rights, services.registry.grant(name)
    yield from _split("network", requested.network, lambda host: _covers(grant.network, host))
    if requested.workspace:
        is_granted = grant.workspace in (requested.workspace, "write")
        yield Right(f"workspace {requested.workspace}", is_granted)
    if not requested.sandbox:
        yield Right("to run without the sandbox", not grant.sandbox)
    yield from _split("secrets", requested.secrets, lambda secret: secret in grant.secrets)


def _split(kind: str, names: Iterable[str], is_granted: Callable[[str], bool]) -> Iterator[Right]:
    """Return the granted names as one permission, and the others as another."""
    for granted in (True, False):
        if some := [name for name in names if is_granted(name) is granted]:
            yield Right(f"{kind} {', '.join(some)}", granted)


def _covers(granted: Iterable[str], host: str) -> bool:
    return any(
        host == each or (each.startswith("*.") and host.endswith(each[1:])) for each in granted
    )


_LISTS = ("users", "groups", "privileges", "tools", "toolkits", "hints")
_GLOBS = ("tools", "toolkits")
_MATCHES_ALL = ("users", "groups", "privileges", "tools")
"""Conditions where `*` is no condition. A tool without a toolkit matches no `toolkits`."""
_NO_CONDITIONS = ("effect", "reason", "approve_own")
Name = Annotated[str, Field(min_length=1, max_length=200)]
Names = Annotated[list[Name], Field(max_length=100)]

RuleTable = Mapping[str, Any]
"""A rule as written in the settings."""


class RuleInfo(Value):
    """One rule, with its position."""

    place: int
    """From 1. The first rule that matches decides."""
    effect: Effect
    conditions: str
    """The callers and tools that it matches, as written in the settings; empty: all."""
    reason: str
    approve_own: bool | None
    """Whether callers that it allows may approve their own calls."""
    shadowed_by: int | None
    """The position of an earlier rule that matches everything this one matches, so that this one
    never decides."""


class RuleList(Value):
    """The current rules, and the privileges that the settings give."""

    items: tuple[RuleInfo, ...]
    policy: Effect
    """The decision about calls that no rule matches."""
    privileges: dict[str, tuple[str, ...]]
    """By user, or `group:NAME`."""


class ExplainRules(Value):
    """A possible caller of a tool; the user need not exist."""

    tool: Name
    user: Name
    group: Names = Field(default_factory=list)
    """Of their session; may be repeated."""
    privilege: Names = Field(default_factory=list)
    """Of their session, in addition to those in the settings; may be repeated."""
    platform: Name | None = None


class Need(Value):
    """A requirement of a call beyond the rules."""

    what: str
    there: bool


class Explanation(Value):
    """Whether a caller may run a tool, and what decides about it."""

    effect: Effect
    why: str
    rule: int | None
    """The position of the rule that decides, from 1; null: the default, or the session's limits."""
    approve_own: bool | None
    """Whether they may approve their own calls; null: only the local person may."""
    user: str
    tool: str
    text: str | None
    """The rule as it could be written in the settings."""
    approvals: tuple[str, ...]
    """What requires an approval."""
    needs: tuple[Need, ...]


@operation("rules.list", privilege=Privilege.ADMIN, read_only=True)
def list_rules(context: OperationContext, _: Nothing) -> RuleList:
    """Return the current rules in their order."""
    settings = context.services.security.live.current()
    shadowed = shadows(settings.rules)
    items = (
        RuleInfo(
            place=place,
            effect=rule["effect"],
            conditions=rule_text({n: v for n, v in rule.items() if n not in _NO_CONDITIONS}),
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


@operation("rules.explain", privilege=Privilege.ADMIN, read_only=True)
def explain_rules(context: OperationContext, request: ExplainRules) -> Explanation:
    """Return which rule decides whether a user may run a tool, and what else a call needs.

    Raises:
        UnknownTool: there is no such tool.
    """
    services = context.services
    spec, caller = services.registry.spec(request.tool), _caller(services, request)
    decision = services.security.guard.decide(caller, spec)
    rules = services.security.live.current().rules
    return Explanation(
        effect=decision.effect,
        why=decision.why,
        rule=decision.rule,
        approve_own=decision.approve_own,
        user=caller.who,
        tool=spec.name,
        text=None if decision.rule is None else rule_text(rules[decision.rule - 1]),
        approvals=tuple(_approvals(decision, spec)),
        needs=tuple(_needs(services, caller, spec)),
    )


def rule_text(rule: RuleTable) -> str:
    """Return a rule as it could be written in the settings, on one line."""
    values = ((name, json.dumps(value, ensure_ascii=False)) for name, value in rule.items())
    return ", ".join(f"{name} = {value}" for name, value in values)


def shadows(rules: Sequence[RuleTable]) -> dict[int, int]:
    """Return the positions of rules that never decide, each with that of the rule to blame.

    Only obvious cases: the earlier rule has no conditions, or the same ones.
    """
    found: dict[int, int] = {}
    first: dict[object, int] = {}
    for place, rule in enumerate(rules, 1):
        conditions = _conditions(rule)
        # A rule that does not allow also matches names that merely look the same.
        is_loose = rule["effect"] != "allow" and any(name in _GLOBS for name, _ in conditions)
        covering = [((), False), (conditions, True)] + ([] if is_loose else [(conditions, False)])
        if earlier := [first[key] for key in covering if key in first]:
            found[place] = min(earlier)
        first.setdefault((conditions, is_loose), place)
    return found


def _conditions(rule: RuleTable) -> tuple[tuple[str, frozenset[str]], ...]:
    lists = [(name, frozenset(rule.get(name, ()))) for name in _LISTS]
    return tuple(
        (name, values)
        for name, values in lists
        if values and not (name in _MATCHES_ALL and "*" in values)
    )


def _caller(services: "Services", request: ExplainRules) -> Caller:
    caller = Caller(
        user_id=request.user,
        platform=request.platform,
        groups=frozenset(request.group),
        privileges=frozenset(request.privilege),
    )
    privileges = services.security.live.rules().privileges_of(caller)
    return caller.model_copy(update={"privileges": privileges})


def _approvals(decision: PolicyDecision, spec: ToolSpec) -> Iterator[str]:
    if decision.effect == "ask":
        yield "the rules"
    if spec.rights.approval_function is not None:
        yield f"{spec.name}, with some arguments ({spec.rights.approval_function} decides)"
    elif spec.rights.needs_approval:
        yield f"{spec.name}, before every call"


def _needs(services: "Services", caller: Caller, spec: ToolSpec) -> Iterator[Need]:
    if not spec.rights.sandbox:
        needed = Privilege.UNSANDBOXED_EXEC
        yield Need(what=f"the privilege {needed}", there=needed in caller.privileges)
    for right in rights(services, spec.name):
        yield Need(what=f"the grant: {right.text}", there=right.is_granted)
    for name in spec.rights.secrets:
        yield Need(what=f"a value for the secret {name}", there=_has_value(services, name))
    for scope, user in (("operator", ""), ("user", caller.who)):
        if scope in spec.settings:
            lacking = services.security.tool_settings.missing(spec, user)
            detail = f": {lacking}" if lacking else ""
            yield Need(what=f"settings of the {scope}{detail}", there=not lacking)


def _has_value(services: "Services", name: str) -> bool:
    try:
        return services.security.secrets.get(name) is not None
    except ToolkilnError:  # it exists but cannot be read: no call gets it
        return False


def visible_to(services: "Services", session: SessionToken) -> Callable[[ToolSpec], bool]:
    """Return whether a caller may see a tool of a served file; disabled ones require ADMIN."""
    may_see = services.security.may_see(session)
    is_admin = Privilege.ADMIN in services.security.caller(session).privileges
    return lambda spec: may_see(spec) and (is_admin or spec.name in services.catalog.current.tools)


def refuse_hidden(services: "Services", tool: str, session: SessionToken) -> None:
    """Refuse to change a tool or toolkit whose file has a tool that the caller may not see.

    The operator of this process may change every file.

    Raises:
        UnknownTool: the file has a hidden tool.
    """
    if _is_operator(services, session):
        return
    specs = _served_with(services, tool) or _last_version(services, tool)
    may_see = visible_to(services, session)
    if not all(map(may_see, specs)):
        raise UnknownTool(tool, services.visible(session))


def refuse_hidden_file(services: "Services", file: str, session: SessionToken) -> None:
    """Refuse to decide about a file whose served version has a tool the caller may not see.

    Raises:
        NotFound: the file has a hidden tool.
    """
    if _is_operator(services, session):
        return
    served = services.catalog.served_version(file)
    may_see = visible_to(services, session)
    if served is not None and not all(map(may_see, served.reading.tools)):
        raise no_proposal(file)


def no_proposal(file: str) -> NotFound:
    """Return the error about a file that does not wait for a decision."""
    return NotFound(f"no file {file[:200]!r} waits", hint="see `toolkiln status`")


def _is_operator(services: "Services", session: SessionToken) -> bool:
    return session is LOCAL_OPERATOR or services.security.is_local_person(session)


def _served_with(services: "Services", name: str) -> list[ToolSpec]:
    """Return all tools of the files that serve a tool, or a toolkit, of this name."""
    files = {served.file: served for served in services.catalog.snapshot.served.values()}
    return [
        spec
        for served in files.values()
        if any(name in (s.name, s.toolkit and s.toolkit.name) for s in served.reading.tools)
        for spec in served.reading.tools
    ]


def _last_version(services: "Services", tool: str) -> tuple[ToolSpec, ...]:
    """Return the tools of a removed tool's last version."""
    from toolkiln.catalog.folder import read_sources

    try:
        versions = services.admissions.history(tool)
        sources = services.admissions.sources(versions[0])
    except (InputError, IndexError):  # the change itself reports it
        return ()
    return read_sources(sources, services.catalog.root / versions[0].file).tools
