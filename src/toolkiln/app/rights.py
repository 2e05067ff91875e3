"""The rights that a tool asks for, whether it gets them, and what a new version would inherit."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from toolkiln.errors import InputError
from toolkiln.model import Grant, ToolSpec, Value

if TYPE_CHECKING:
    from toolkiln.app.kiln import Kiln
    from toolkiln.catalog import Candidate


class Right(NamedTuple):
    """Something that a tool asks for."""

    words: str
    is_granted: bool


class InheritedRights(Value):
    """What a tool has as soon as a person admits its version, without granting anything."""

    tool: str
    network: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    workspace: Literal["read", "write"] | None = None
    without_sandbox: bool = False
    settings: tuple[str, ...] = ()
    """Names of the operator's settings that it is handed."""
    user_settings: bool = False
    """Whether it is handed the settings of its callers."""

    def __str__(self) -> str:
        named = ("network", self.network), ("secrets", self.secrets), ("settings", self.settings)
        parts = [f"{word} {', '.join(names)}" for word, names in named if names]
        parts += [f"workspace {self.workspace}"] if self.workspace else []
        parts += ["running without the sandbox"] if self.without_sandbox else []
        parts += ["settings of its callers"] if self.user_settings else []
        return f"{self.tool} inherits {'; '.join(parts)}"


def inherited(kiln: "Kiln", candidate: "Candidate") -> tuple[InheritedRights, ...]:
    """Return what the tools of a version inherit once a person admits it, tool by tool.

    That is what `[grants]` of the settings names, or else what was granted with an earlier
    admission of the file, as far as the tools ask for it; and the settings kept by their names.
    """
    by_name = kiln.guarding.live.current().grants
    try:
        entry = kiln.catalog.manifest.files.get(candidate.file)
    except InputError:  # nothing was admitted yet
        entry = None
    before = entry.rights if entry else {}
    found = []
    for spec in candidate.read.reading.tools:
        given = by_name.get(spec.name, by_name.get("*"))
        recorded = before.get(spec.name, Grant())
        grant = recorded if given is None else Grant.model_validate(dict(given))
        found.append(_inherited(kiln, spec, grant))
    return tuple(one for one in found if one != InheritedRights(tool=one.tool))


def _inherited(kiln: "Kiln", spec: ToolSpec, grant: Grant) -> InheritedRights:
    asked, is_writer = spec.rights, grant.workspace == "write"
    settings: Iterable[str] = ()
    if "operator" in spec.settings:
        settings = kiln.guarding.tool_settings.shown(spec)
    return InheritedRights(
        tool=spec.name,
        network=tuple(host for host in asked.network if _covers(grant.network, host)),
        secrets=tuple(name for name in asked.secrets if name in grant.secrets),
        workspace=asked.workspace if is_writer or grant.workspace == asked.workspace else None,
        without_sandbox=not asked.sandbox and not grant.sandbox,
        settings=tuple(settings),
        user_settings="user" in spec.settings,
    )


def not_granted(kiln: "Kiln", name: str) -> Iterator[str]:
    """What a tool of the catalog asks for in vain, by the settings or by its admission."""
    return (right.words for right in rights(kiln, name) if not right.is_granted)


def rights(kiln: "Kiln", name: str) -> Iterator[Right]:
    """What a tool of the catalog asks for."""
    if name not in kiln.specs:
        return
    asked, grant = kiln.tool(name).rights, kiln.grant(name)
    yield from _parted("network", asked.network, lambda host: _covers(grant.network, host))
    if asked.workspace:
        is_granted = grant.workspace in (asked.workspace, "write")
        yield Right(f"workspace {asked.workspace}", is_granted)
    if not asked.sandbox:
        yield Right("to run without the sandbox", not grant.sandbox)
    yield from _parted("secrets", asked.secrets, lambda secret: secret in grant.secrets)


def _parted(kind: str, names: Iterable[str], is_granted: Callable[[str], bool]) -> Iterator[Right]:
    """Names that are asked for: those that are granted, then the others."""
    for granted in (True, False):
        if some := [name for name in names if is_granted(name) is granted]:
            yield Right(f"{kind} {', '.join(some)}", granted)


def _covers(granted: Iterable[str], host: str) -> bool:
    return any(
        host == each or (each.startswith("*.") and host.endswith(each[1:])) for each in granted
    )
