"""What the tests of guarded calls share: waiting, records, people, files. Not a test itself."""

import asyncio
from pathlib import Path
from typing import Any

from execution.observers import SOON, until
from toolkiln.kiln import Kiln
from toolkiln.model.audit import AuditFilter, AuditRecord
from toolkiln.model.call import Call, Event, Result
from toolkiln.model.identity import OpenSession
from toolkiln.model.policy import Approval


def records(kiln: Kiln, **wanted: Any) -> list[AuditRecord]:
    """What was recorded and fits, oldest first."""
    return [entry.record for entry in kiln.security.audit.export(AuditFilter(**wanted))]


def about(kiln: Kiln, result: Result) -> list[AuditRecord]:
    """What was recorded of one call, oldest first."""
    return [record for record in records(kiln) if record.call_id == result.call_id]


def holding(folder: Path, *texts: str) -> set[str]:
    """The files below a folder that contain one of the texts."""
    needles = [text.encode() for text in texts]
    files = [file for file in folder.rglob("*") if file.is_file()]
    found = {file.name: file.read_bytes() for file in files}
    return {name for name, data in found.items() if any(needle in data for needle in needles)}


def made(tool: str, session: str | None, **arguments: Any) -> Call:
    """A call for a batch."""
    return Call(tool=tool, arguments=arguments, session=session)


async def asked(kiln: Kiln, **wanted: Any) -> Approval:
    """Wait for a request for approval with these fields."""
    found: list[Approval] = []

    def is_listed() -> bool:
        found[:] = [
            approval
            for approval in kiln.security.approvals.waiting()
            if all(getattr(approval, name) == value for name, value in wanted.items())
        ]
        return bool(found)

    await until(is_listed)
    return found[0]


async def expired(kiln: Kiln, session: OpenSession) -> None:
    """Wait until a session has expired."""
    await until(
        lambda: all(s.trace_id != session.trace_id for s, _ in kiln.security.sessions.alive())
    )


class Waiting:
    """A call that waits for a person."""

    def __init__(self, running: "asyncio.Task[Result]", approval: str, events: list[Event]) -> None:
        self.running = running
        self.approval = approval
        self.events = events

    async def result(self) -> Result:
        """How it ended."""
        async with asyncio.timeout(SOON):
            return await self.running


async def waiting(kiln: Kiln, tool: str, arguments: Any = None, **options: Any) -> Waiting:
    """Make a call that a person has to approve."""
    events: list[Event] = []
    running = asyncio.create_task(kiln.call(tool, arguments, observe=events.append, **options))

    def asked() -> list[str]:
        return [event.text for event in events if event.kind == "pending"]

    await until(lambda: running.done() or bool(asked()))
    assert asked(), running.result()
    return Waiting(running, asked()[0], events)
