"""Tool: the code that a call runs, and the read models that surfaces show."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from toolkiln.model.base import JsonSchema, Value
from toolkiln.model.call import Grant
from toolkiln.model.catalog import Sources
from toolkiln.model.source import Finding
from toolkiln.model.spec import (
    HealthLevel,
    Hints,
    Limits,
    Permissions,
    Role,
    SchemaHealth,
    ToolSpec,
)

_NO_GRANT = Grant()
ServingState = Literal["served", "disabled", "proposed"]


@dataclass(frozen=True, slots=True)
class ResolvedTool:
    """A tool that may be called, with its code and grant."""

    spec: ToolSpec
    sources: Callable[[], Sources]
    grant: Grant = _NO_GRANT
    function: Callable[..., Any] | None = None
    """A function of this process, which runs inline."""
    dev: bool = False
    """Whether `dev` serves it without admission."""
    is_source: bool = False
    """Whether its caller sent the source with the call."""
    is_reviewed: bool = True
    """Whether a person admitted this version; others get no grants or settings."""


class ToolSummary(Value):
    """A tool in a list."""

    id: str
    """Name and version; stable for these bytes."""
    name: str
    role: Role
    """A model does not see a `prompt` or a `resource` as a tool; both can be called."""
    uri: str | None
    """The address of a resource, or a template of addresses."""
    title: str
    """For people."""
    description: str
    """The only prose a model reads when it chooses a tool."""
    toolkit: str | None
    """The toolkit that it belongs to."""
    digest: str
    """SHA-256 of its version; a call or a change can be bound to it."""
    is_core: bool
    """Whether it cannot be disabled."""
    is_shown: bool
    """Whether lists for people include it by default; hidden tools can be called."""
    hints: Hints
    """The effects that it declares."""
    parallel: bool
    """Whether it may run concurrently with other calls of a batch."""
    icon: str | None
    color: str | None
    weight: int
    """Lighter ones come first."""
    metadata: dict[str, Any]
    """What its author adds for programs."""
    dev: bool
    """Whether `dev` serves it without an admission."""


class Tool(ToolSummary):
    """A tool with everything except its source."""

    enabled: bool
    parameters: JsonSchema
    """JSON Schema 2020-12 of the arguments, always an object."""
    returns: JsonSchema | None
    """JSON Schema of the return value, if the source declares it."""
    documentation: str
    """The long form, as Markdown."""
    limits: Limits
    rights: Permissions
    """The permissions that it requests; requesting grants nothing."""
    granted: Grant | None
    """The permissions that it was granted; null for built-in tools."""
    reviewed: bool
    """Whether a person with ADMIN admitted this version; others have no grants and no settings."""
    requirements: tuple[str, ...]
    settings: tuple[str, ...]
    """Whose settings it reads: `operator`, `user`."""
    health: SchemaHealth
    """Whether providers can enforce its parameters."""
    version: int | None
    """Its number in the history of its file; null for built-in tools, and in front of a fleet,
    where `versions` has it."""
    file: str | None
    """Relative to the tools folder."""


class ToolkitMethod(Value):
    """A tool of a toolkit."""

    name: str
    """For calls."""
    display_name: str
    """For people."""
    description: str
    is_core: bool
    visible: bool
    enabled: bool
    """Whether it can be called."""


class ToolkitDetails(Value):
    """A toolkit with its methods."""

    name: str
    """The name of its class."""
    display_name: str
    """For people."""
    description: str
    icon: str | None
    color: str | None
    is_core: bool
    """Whether none of its methods can be disabled."""
    weight: int
    """Lighter ones come first."""
    visible: bool
    """Whether lists for people include it by default."""
    usage_guide: str
    """How to use its methods together, as Markdown."""
    enabled: bool
    """Whether any of its methods can be called."""
    methods: tuple[ToolkitMethod, ...]
    """In the order of their declaration."""


class CardPermissions(Value):
    """The permissions that a tool requests, as a card shows them."""

    network: tuple[str, ...]
    """Hosts."""
    secrets: tuple[str, ...]
    workspace: Literal["read", "write"] | None
    sandbox: bool
    """Whether it runs in the sandbox."""
    needs_approval: bool
    """Whether a person approves its calls, all or some."""


class ToolCard(Value):
    """A tool on the catalog page."""

    name: str
    title: str
    """For people."""
    toolkit: str | None
    """The toolkit that it belongs to."""
    summary: str
    """The first line of its description."""
    role: Role
    icon: str | None
    """The name of a Lucide icon: its own, or else its toolkit's."""
    color: str | None
    """As a CSS color: its own, or else its toolkit's."""
    weight: int
    is_core: bool
    """Whether it cannot be disabled."""
    is_shown: bool
    """Whether lists for people include it by default; hidden tools can be called."""
    read_only: bool
    """Whether it declares that it changes nothing."""
    health: HealthLevel
    """Whether providers can enforce its parameters."""
    rights: CardPermissions
    state: ServingState
    """Only callers with ADMIN see `disabled` and `proposed` ones."""
    has_proposal: bool
    """Whether a version of it waits for an admission; only callers with ADMIN see this."""
    dev: bool
    """Whether `dev` serves it without an admission."""


class FormLoss(Value):
    """A constraint that a provider does not enforce."""

    path: str
    """JSON pointer into the parameters."""
    keyword: str
    reason: str


class ProviderForm(Value):
    """A tool in the format of a provider."""

    provider: str
    tool: dict[str, Any] | None
    """Its entry in a request; null if the provider would reject it."""
    losses: tuple[FormLoss, ...]
    """The constraints that the provider does not enforce."""
    left_out: tuple[str, ...]
    """Why the provider would reject it."""


class ToolPresentation(Value):
    """A tool as people and providers see it."""

    color: str | None
    """As a CSS color: its own, or else its toolkit's."""
    page: str
    """The page that documents it, as Markdown."""
    forms: tuple[ProviderForm, ...]
    """Its format for each provider."""
    examples: tuple[dict[str, Any], ...]
    """Arguments of calls that its documentation shows."""
    findings: tuple[Finding, ...]
    """Findings in its source, if its file is here."""
