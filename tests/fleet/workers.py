"""Real worker processes, and a caller that speaks to them through Redis. Not a test itself."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import msgspec

from toolkiln import Kiln
from toolkiln.config import Settings, load
from toolkiln.errors import StoreError
from toolkiln.fleet.address import open_redis
from toolkiln.fleet.delivery import Accepted, Admission
from toolkiln.fleet.leases import process_state
from toolkiln.fleet.message_auth import FleetKeys, fleet_keys
from toolkiln.fleet.message_auth import seal as seal_of
from toolkiln.fleet.security_stores import RedisSessions
from toolkiln.fleet.wire import (
    CallReply,
    Envelope,
    end_result,
    event_from_wire,
    pack,
    result_from_wire,
)
from toolkiln.model.call import Event as CallEvent
from toolkiln.model.call import Result
from toolkiln.model.identity import Caller
from toolkiln.security.sessions import SessionService, token_hash
from toolkiln.store.codec import key_of

from .queues import Desk, desk
from .servers import Server

T = TypeVar("T")
BOUND = 60.0
"""Seconds that anything may take before it counts as hanging."""
LEASE = 0.6
"""Seconds, so that what waits for a lease to run out does not wait long."""


@dataclass
class Running:
    """A worker: the process that supervises, and through it the one that runs tools."""

    process: "subprocess.Popen[str]"
    said: list[str] = field(default_factory=list)
    _heard: Event = field(default_factory=Event)

    @property
    def name(self) -> str:
        """What it is called in the fleet."""
        return self.await_line("worker ").split()[1].rstrip(",")

    def child(self) -> int:
        """The process that runs tools, of `toolkiln worker`."""
        return until(self.children)[0]

    def children(self) -> list[int]:
        """The processes beside it, as far as it has not ended."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def await_line(self, start: str, count: int = 1) -> str:
        """The line of its talk that begins so, or the nth of them."""

        def found() -> str | None:
            lines = [line for line in list(self.said) if line.startswith(start)]
            if len(lines) < count and self.process.poll() is not None and not self._reading():
                raise AssertionError(f"it ended: {self.said}")
            return lines[count - 1] if len(lines) >= count else None

        return until(found)

    def stop(self) -> int:
        """Have it end, in its own way."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(BOUND)

    def kill(self) -> None:
        """End it all at once: the process that supervises, and with it the other."""
        self.process.kill()
        self.process.wait(BOUND)

    def _reading(self) -> bool:
        return not self._heard.is_set()

    def listen(self) -> None:
        """Take note of what it says."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip("\n"))
        self._heard.set()


def tools_folder(parent: Path, settings: str = "", **sources: str) -> Path:
    """A folder of tools, and the settings beside it."""
    folder = parent / "tools"
    folder.mkdir(parents=True)
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source, "utf-8")
    (parent / "toolkiln.toml").write_text(settings, "utf-8")
    return folder


def admit(tools: Path, *files: str) -> None:
    """Admit files of a folder."""
    with Kiln(tools, settings=load(tools.parent, {"TOOLKILN_STATE": "state"})) as kiln:
        admissions = kiln.services.admissions
        admissions.admit([admissions.candidate(file) for file in files], kiln.security.decision())


@contextmanager
def worker(
    url: str, tools: Path, *options: str, lease: float = LEASE, dev: bool = True, **variables: str
) -> Iterator[Running]:
    """`toolkiln worker`, ready, and dead at the end; without `dev`, of admitted tools."""
    command = [
        sys.executable, "-m", "toolkiln.surfaces.cli", "worker", "--redis", url,
        "--tools", str(tools), "--lease", str(lease), *(["--dev"] if dev else []), *options,
    ]  # fmt: skip
    with running_program(command, tools.parent, **variables) as running:
        yield running


@contextmanager
def performer(url: str, folder: Path, *, lease: float = LEASE, slots: int = 8) -> Iterator[Running]:
    """A program with functions (`performer.py`), ready, and dead at the end."""
    program = Path(__file__).with_name("performer.py")
    command = [sys.executable, str(program), url, str(lease), str(slots), str(folder)]
    with running_program(command, folder) as running:
        yield running


@contextmanager
def running_program(command: list[str], folder: Path, **variables: str) -> Iterator[Running]:
    """Any program that performs calls and says `ready`, dead at the end."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=folder,
        env={**kept, "TOOLKILN_STATE": str(folder / "state"), **variables},
    ) as process:  # fmt: skip
        running = Running(process)
        listening = Thread(target=running.listen)
        listening.start()
        try:
            running.await_line("ready")
            yield running
        finally:
            beside = running.children()
            process.kill()
            process.wait(BOUND)
            for one in beside:  # a reader that is not quite dead would take the next test's calls
                await_state(one, "", "Z")
            listening.join(BOUND)


class Asker:
    """Makes calls as a client of the fleet does, one session for all of them."""

    def __init__(self, own: Desk, url: str, key: FleetKeys, pool: str) -> None:
        self.pipe = own.pipe
        self.queue = own.queue
        self.key = key
        self._pool = pool
        self.reply_to = f"test-{secrets.token_hex(4)}"
        self._replies = own.replies(self.reply_to)
        self._books = open_redis(url)
        sessions = SessionService(lambda: RedisSessions(self._books), lambda: 300.0)
        opened = sessions.create("ann", workspace="default")
        self.session = token_hash(opened.token)
        self.caller = sessions.find(opened.token).caller
        self.replies: dict[str, list[CallReply]] = {}
        """The terminal ones by record: of each there must be one."""
        self.events: dict[str, list[CallEvent]] = {}
        self._came = asyncio.Condition()
        self._listening = asyncio.create_task(self._listen())

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        await self._replies.close()
        self._books.close()

    def envelope(self, tool: str, arguments: Any = None, **said: Any) -> Envelope:
        """A call, sealed; what is said goes before what is usual, Raw arguments as they are."""
        call_id = said.pop("id", secrets.token_hex(8))
        caller: Caller = said.pop("caller", self.caller)
        fields: dict[str, Any] = {
            "id": call_id,
            "record": key_of(caller, call_id),
            "tool": tool,
            "arguments": arguments
            if isinstance(arguments, msgspec.Raw)
            else msgspec.Raw(pack(arguments or {})),
            "session": self.session,
            "surface": "test",
            "reply_to": self.reply_to,
            "pool": self._pool,
            **said,
        }
        made = Envelope(**fields)
        return msgspec.structs.replace(made, seal=seal_of(self.key, made))

    async def put(self, envelope: Envelope) -> Admission:
        return await self.queue.enqueue(envelope)

    async def start(self, tool: str, arguments: Any = None, **said: Any) -> Envelope:
        """A call that was accepted."""
        envelope = self.envelope(tool, arguments, **said)
        assert isinstance(await self.put(envelope), Accepted)
        return envelope

    async def call(self, tool: str, arguments: Any = None, **said: Any) -> Result:
        """What a call gave."""
        return await self.end_of(await self.start(tool, arguments, **said))

    async def end_of(self, envelope: Envelope) -> Result:
        """How a call ended."""
        async with asyncio.timeout(BOUND), self._came:
            await self._came.wait_for(lambda: envelope.record in self.replies)
        [reply] = self.replies[envelope.record]
        if reply.kind == "end":
            return end_result(reply.body.decode(), call_id=envelope.id, tool=envelope.tool)
        return result_from_wire(reply.body)

    async def events_of(self, envelope: Envelope, count: int = 1) -> list[CallEvent]:
        """The first events of a call."""
        async with asyncio.timeout(BOUND), self._came:
            await self._came.wait_for(lambda: len(self.events.get(envelope.record, ())) >= count)
        return self.events[envelope.record]

    async def _listen(self) -> None:
        while True:
            replies: list[CallReply] = []
            with suppress(StoreError):  # a test that blocks the loop breaks the connection
                replies = await self._replies.next(2000)
            for reply in replies:
                async with self._came:
                    if reply.kind == "event":
                        event = event_from_wire(reply.body)
                        self.events.setdefault(reply.record, []).append(event)
                    elif reply.kind in ("result", "end"):  # it answers nothing that is asked
                        self.replies.setdefault(reply.record, []).append(reply)
                    self._came.notify_all()


@asynccontextmanager
async def asking(server: Server, pool: str = "default", fleet: str = "") -> AsyncIterator[Asker]:
    """A caller of the fleet."""
    async with desk(server.url, pool) as own:
        key = await fleet_keys(own.pipe, Settings(fleet_key=fleet))
        asker = Asker(own, server.url, key, pool)
        try:
            yield asker
        finally:
            await asker.close()


def code_of(result: Result) -> str | None:
    """Why a call did not end well."""
    return result.error.code if result.error else None


def until(look: Callable[[], T | None]) -> T:
    """What a look finds, as soon as that is something."""
    deadline = time.monotonic() + BOUND
    while not (found := look()):
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.01)
    return found


def await_state(process: int, *states: str) -> None:
    """Wait until a process is in one of some states of /proc."""
    until(lambda: process_state(process) in states)
