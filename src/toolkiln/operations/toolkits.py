"""Toolkit operations: show a toolkit with its methods, enable and disable it."""

from contextlib import suppress

from pydantic import Field

from toolkiln.catalog.manifest import ManifestError
from toolkiln.catalog.registry import NotAdmitted, Specs
from toolkiln.errors import BackendError, NotFound, nearest_hint
from toolkiln.model.base import Value
from toolkiln.model.identity import Privilege
from toolkiln.model.spec import ToolSpec
from toolkiln.model.tool import ToolkitDetails, ToolkitMethod
from toolkiln.operations.operation import OperationContext, operation
from toolkiln.operations.policy import refuse_hidden
from toolkiln.operations.tools import ListUnserved, list_disabled, specs_on_disk
from toolkiln.security.sessions import LOCAL_OPERATOR


class ToolkitName(Value):
    """Names a toolkit."""

    name: str


class ChangeToolkit(Value):
    """Enables or disables a toolkit or some of its methods."""

    name: str
    enabled: bool = True
    """Whether its tools can be called."""
    methods: dict[str, bool] = Field(default_factory=dict)
    """Whether each is enabled, by method or tool; those not named are."""


class ToolkitState(Value):
    """Which tools of a toolkit are enabled."""

    name: str
    tools: dict[str, bool]


@operation("toolkits.get", read_only=True)
async def get_toolkit(context: OperationContext, request: ToolkitName) -> ToolkitDetails:
    """Return a toolkit with its methods; disabled ones require ADMIN."""
    from asyncio import to_thread

    services = context.services
    disabled: tuple[ToolSpec, ...] = ()
    try:
        served = await to_thread(services.visible, context.session, None)
        if context.is_admin:
            with suppress(BackendError):  # a fleet without workers cannot know
                disabled = await context.run(list_disabled, ListUnserved())
    except (ManifestError, NotAdmitted):
        if context.session is not LOCAL_OPERATOR:
            raise
        served = specs_on_disk(services)  # as for a tool, which is shown before its admission
    return _details(request.name, served, disabled)


def _details(name: str, served: Specs, disabled: tuple[ToolSpec, ...]) -> ToolkitDetails:
    specs = [spec for spec in (*served.values(), *disabled) if spec.toolkit]
    members = [spec for spec in specs if spec.toolkit and spec.toolkit.name == name]
    if not members or members[0].toolkit is None:
        known = {spec.toolkit.name for spec in specs if spec.toolkit}
        raise NotFound(f"there is no toolkit named {name!r}", hint=nearest_hint(name, known))
    members.sort(key=lambda spec: (spec.path, spec.line))
    kit = members[0].toolkit
    return ToolkitDetails(
        name=kit.name,
        display_name=kit.display_name,
        description=kit.description,
        icon=kit.icon,
        color=kit.color,
        is_core=kit.is_core,
        weight=kit.weight,
        visible=kit.visible or kit.is_core,
        usage_guide=kit.usage_guide,
        enabled=any(spec.name in served for spec in members),
        methods=tuple(
            ToolkitMethod(
                name=spec.name,
                display_name=spec.display_name,
                description=spec.description,
                is_core=spec.is_core,
                visible=spec.visible or spec.is_core,
                enabled=spec.name in served,
            )
            for spec in members
        ),
    )


@operation("toolkits.update")
async def update_toolkit(context: OperationContext, request: ChangeToolkit) -> ToolkitState:
    """Enable or disable a toolkit or some of its methods; requires ADMIN."""
    return ToolkitState(name=request.name, tools=await context.run(change_toolkit, request))


@operation("toolkits.change", privilege=Privilege.ADMIN, act="switch", routing="worker")
def change_toolkit(context: OperationContext, request: ChangeToolkit) -> dict[str, bool]:
    """Enable or disable a toolkit or some of its methods; return which tools are enabled."""
    services = context.services
    refuse_hidden(services, request.name, context.session)
    change = {"enabled": request.enabled, "methods": request.methods}
    services.admissions.switch(request.name, change, context.caller.who)
    snapshot = services.catalog.snapshot
    specs = (served.read.tool(tool) for tool, served in snapshot.served.items())
    members = (s.name for s in specs if s.toolkit and s.toolkit.name == request.name)
    return {name: name in snapshot.tools for name in members}
