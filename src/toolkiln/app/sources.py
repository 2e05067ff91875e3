"""Source text that is in no catalog: what it says, what may become of it, and running it once.

Nothing is kept of it: no file, no version, no admission. It stands alone, without helper
modules, and nobody has granted it anything: neither hosts nor secrets, neither a workspace
nor the settings of a tool that has its name. Otherwise its calls are calls like all others.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkiln import docs
from toolkiln.app.own import OWN, SessionToken
from toolkiln.catalog import Report, report
from toolkiln.errors import InputError, NotAllowed, UnknownTool
from toolkiln.execution import Admitted, admits_own_tools, authoring_refusal, lacks
from toolkiln.model import (
    Call,
    Caller,
    CallError,
    Event,
    Privilege,
    Result,
    Severity,
    ToolSpec,
    Value,
)
from toolkiln.spec import MAX_BYTES, read

if TYPE_CHECKING:
    from toolkiln.app.kiln import Kiln

_MEMORY = "<source>"
"""A path without neighbours."""
_FILE = "source.py"


Run = Callable[[Callable[[Event], None]], Coroutine[Any, Any, Result]]
"""Runs what was prepared, once, and tells an observer about it."""


@dataclass(frozen=True)
class SourceCall:
    """One run of a source."""

    source: str
    arguments: object = None
    tool: str | None = None
    """Which of its tools; None if there is but one."""
    timeout: float | None = None
    call_id: str | None = None
    """An id of the caller's own, under which its result is remembered."""
    is_remembered: bool = False
    """Whether somebody else sees to that."""
    surface: str = "python"
    session: SessionToken = OWN


class Permission(Value):
    """Whether somebody may do something; if not, why, and what to do about it."""

    allowed: bool
    reason: str | None = None
    hint: str | None = None


class Prospects(Value):
    """What may become of a source in somebody's hands, as things stand."""

    saving: Permission
    is_proposal: bool
    """Whether a person has to admit what they save before it can be called."""
    running: Permission
    """Whether they may run it as it is."""
    refused_rules: tuple[str, ...]
    """Rules whose findings keep a source from being saved, besides errors."""


def prospects(kiln: "Kiln", caller: Caller) -> Prospects:
    """What somebody may do with a source that they write; nothing is recorded of the question."""
    now = kiln.guarding.live.current()
    may_call = kiln.guarding.guard.may_see(caller, kiln.tool("write_python_tool"))
    saving = authoring_refusal(caller, now.authoring, may_call=may_call)
    return Prospects(
        saving=_permission(saving),
        is_proposal=not admits_own_tools(caller, now.authoring),
        running=_permission(saving or _running_refusal(kiln, caller)),
        refused_rules=tuple(now.refuse),
    )


def _permission(refusal: CallError | None) -> Permission:
    if refusal is None:
        return Permission(allowed=True)
    return Permission(allowed=False, reason=refusal.message, hint=refusal.hint)


def read_source(source: str) -> Report:
    """The tools of a source, with their health and all findings. Nothing of it is run.

    Raises:
        InputError: it is larger than a tool's file may be, or no text.
    """
    try:
        data = source.encode()
    except UnicodeEncodeError:
        raise InputError("the source has half a character, which is no text") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"the source has {len(data):,} bytes, and tools end at {MAX_BYTES:,}")
    return report(read(source, _MEMORY, data=data), {})


def preview(spec: ToolSpec) -> str:
    """The page about a tool that nobody has admitted yet, as Markdown."""
    return docs.page(spec)


async def prepare_source(kiln: "Kiln", wanted: SourceCall) -> Run:
    """What runs a tool of a source in the sandbox, once, and tells an observer about it.

    Raises:
        NotAllowed: whoever holds the session may not write tools, or only propose them.
        InputError: the source cannot be run as it is, or has no such tool.
    """
    await _refuse_unless_author(kiln, wanted.session)
    token = kiln.guarding.token(wanted.session)
    caller = await kiln.guarding.guard.caller(token)
    tool = await kiln.reading.run(caller.who, lambda: _tool(wanted))
    call = Call(
        tool=tool.spec.name,
        arguments=wanted.arguments,
        session=token,
        surface=wanted.surface,
        timeout=wanted.timeout,
    )
    if wanted.call_id is not None:
        call = call.model_copy(update={"id": wanted.call_id, "remember": not wanted.is_remembered})
    about: dict[str, Any] = {"tool": call.tool, "digest": tool.spec.digest, "call_id": call.id}

    def record() -> None:
        """Ahead of the call's own record: that it was no admitted version that ran."""
        kiln.guarding.record("run_source", caller, **about)

    await asyncio.to_thread(record)

    async def run(observe: Callable[[Event], None]) -> Result:
        running = kiln.engine.gateway.beside(tool).call(call, observe)
        return await (kiln.engine.tasks.seen_out(running) if call.remember else running)

    return run


async def _refuse_unless_author(kiln: "Kiln", session: SessionToken) -> None:
    """Whoever may not put a tool into the catalog without asking may not run one either."""
    allowed = await kiln.guarding.may_author(session)
    if isinstance(allowed, CallError):
        raise NotAllowed(allowed.message, hint=allowed.hint)
    caller = await kiln.guarding.guard.caller(kiln.guarding.token(session))
    if refusal := _running_refusal(kiln, caller):
        denied = kiln.guarding.recording.denied
        await asyncio.to_thread(denied, "run_source", caller, refusal.message)
        raise NotAllowed(refusal.message, hint=refusal.hint)


def _running_refusal(kiln: "Kiln", caller: Caller) -> CallError | None:
    """Return why a caller may not run a source; None if they may."""
    if Privilege.WRITE_TOOLS not in caller.privileges:
        return lacks(caller, Privilege.WRITE_TOOLS, "run a source")
    is_proposing = kiln.guarding.live.current().authoring == "propose"
    if is_proposing and Privilege.ADMIN not in caller.privileges:
        return CallError(
            code=NotAllowed.code,
            message="a person has to admit a tool before it runs",
            hint="propose it as a tool; somebody with ADMIN may run a source as it is",
        )
    return None


def _tool(wanted: SourceCall) -> Admitted:
    reading = read_source(wanted.source).reading
    # An ignore comment is for the person who admits a version, and here is none.
    wrong = [f for f in reading.findings if f.severity is Severity.ERROR or f.overruled]
    if wrong:
        raise InputError(
            f"the source cannot be run: line {wrong[0].line}: {wrong[0].message}",
            hint=wrong[0].fix,
        )
    tools = {spec.name: spec for spec in reading.tools}
    if not tools:
        raise InputError(
            "the source declares no tool", hint="write a public function with a docstring"
        )
    if wanted.tool is None and len(tools) > 1:
        raise InputError(
            f"the source declares several tools: {', '.join(tools)}", hint="name one of them"
        )
    spec = tools.get(wanted.tool) if wanted.tool is not None else next(iter(tools.values()))
    if spec is None:
        raise UnknownTool(str(wanted.tool), tools)
    # Settings belong to the admitted tool of that name, and with them secrets.
    alone = spec.model_copy(update={"path": _FILE, "settings": {}})
    data = wanted.source.encode()
    return Admitted(alone, lambda: {_FILE: data}, is_source=True)
