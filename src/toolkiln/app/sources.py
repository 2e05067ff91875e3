"""Source text that is in no catalog: what it says, and running it once.

Nothing is kept of it: no file, no version, no admission. It stands alone, without helper
modules, and nobody has granted it anything: neither hosts nor secrets, neither a workspace
nor the settings of a tool that has its name. Otherwise its calls are calls like all others.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkiln.app.own import OWN, SessionToken
from toolkiln.catalog import Report, report
from toolkiln.errors import InputError, NotAllowed, UnknownTool
from toolkiln.execution import Admitted
from toolkiln.model import Call, CallError, Event, Privilege, Result, Severity
from toolkiln.spec import MAX_BYTES, read

if TYPE_CHECKING:
    from toolkiln.app.kiln import Kiln

_MEMORY = "<source>"
"""A path without neighbours."""
_FILE = "source.py"


@dataclass(frozen=True)
class SourceCall:
    """One run of a source."""

    source: str
    arguments: object = None
    tool: str | None = None
    """Which of its tools; None if there is but one."""
    timeout: float | None = None
    call_id: str | None = None
    surface: str = "python"
    session: SessionToken = OWN


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


async def prepare_source(
    kiln: "Kiln", wanted: SourceCall
) -> Callable[[Callable[[Event], None]], Awaitable[Result]]:
    """What runs a tool of a source in the sandbox, once, and tells an observer about it.

    Raises:
        NotAllowed: whoever holds the session may not write tools, or only propose them.
        InputError: the source cannot be run as it is, or has no such tool.
    """
    await _refuse_unless_author(kiln, wanted.session)
    if kiln.engine.is_front:
        raise InputError(
            "a source is not run here: this is the front of a fleet, whose workers run tools",
            hint="write it as a tool, and call that",
        )
    tool = await asyncio.to_thread(_tool, wanted)
    call = Call(
        tool=tool.spec.name,
        arguments=wanted.arguments,
        session=kiln.guarding.token(wanted.session),
        surface=wanted.surface,
        timeout=wanted.timeout,
    )
    if wanted.call_id is not None:
        call = call.model_copy(update={"id": wanted.call_id, "remember": True})
    caller = await kiln.guarding.guard.caller(call.session)
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
    is_proposing = kiln.guarding.live.current().authoring == "propose"
    if is_proposing and Privilege.ADMIN not in caller.privileges:
        raise NotAllowed(
            "a person has to admit a tool before it runs",
            hint="propose it as a tool; somebody with ADMIN may run a source as it is",
        )


def _tool(wanted: SourceCall) -> Admitted:
    reading = read_source(wanted.source).reading
    wrong = [finding for finding in reading.findings if finding.severity is Severity.ERROR]
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
    return Admitted(alone, lambda: {_FILE: data})
