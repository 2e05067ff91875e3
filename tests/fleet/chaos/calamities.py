"""What befalls a fleet: workers and Redis are killed, stopped, drained, replaced. Not a test."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from ..mortals import Mortal
from ..workers import Running, performer, worker

LEASE = 2.0
POOL = "boxes"
"""Of the workers that have sandboxes; functions are in the usual one."""
TOOLS = '''
from toolkiln import Context, tool

VERSION = {version}

@tool(workspace="write")
def box_act(mark: str, seconds: float, ctx: Context) -> str:
    """Do in a sandbox what must not be done twice."""
    return _do(mark, seconds, ctx)

@tool(workspace="write", idempotent=True)
def box_redo(mark: str, seconds: float, ctx: Context) -> str:
    """Do in a sandbox what may be done again."""
    return _do(mark, seconds, ctx)

def _do(mark: str, seconds: float, ctx: Context) -> str:
    import os, time
    with open(ctx.workdir / mark, "a") as file:
        file.write(f"{{os.getpid()}} at {{time.time():.2f}}\\n")
    time.sleep(seconds)
    return mark
'''
SETTINGS = """
[grants.box_act]
workspace = "write"
[grants.box_redo]
workspace = "write"
"""


@dataclass
class Member:
    """A worker, and how to end it for good."""

    running: Running
    life: ExitStack


class Fleet:
    """Workers and a Redis, and the calamities that befall them."""

    def __init__(self, redis: Mortal, folder: Path, chance: random.Random) -> None:
        self.redis = redis
        self.marks = folder / "marks"
        self.marks.mkdir()
        self._folder, self._chance = folder, chance
        self._stations: list[Member] = []
        self._boxes: list[Member] = []
        self._version = 0
        self.seen: Counter[str] = Counter()
        self.story: list[str] = []

    @property
    def size(self) -> int:
        """How many workers live."""
        return len(self._stations) + len(self._boxes)

    def traces(self, mark: str) -> list[str]:
        """Who began the tool of a call, and when, each time."""
        files = [self.marks / mark, *self._folder.glob(f"boxes/state/workspaces/*/files/{mark}")]
        return [line for file in files if file.exists() for line in file.read_text().splitlines()]

    async def begin(self) -> None:
        """Start with two workers that have functions, and one with sandboxes."""
        await asyncio.gather(self._add_station(), self._add_station(), self._add_box())

    async def end(self) -> None:
        """Let every worker leave as it should."""
        members = self._stations + self._boxes
        await asyncio.gather(*(self._leave(member) for member in members))

    def kill_all(self) -> None:
        """End every process."""
        for member in self._stations + self._boxes:
            member.life.close()

    async def suffer(self) -> None:
        """One calamity, whichever it is, and what follows from it."""
        calamities: dict[Callable[[], Awaitable[None]], int] = {
            self._kill_station: 3,
            self._stop_station: 3,
            self._drain_station: 2,
            self._kill_box: 1,
            self._kill_child: 2,
            self._upgrade: 1,
            self._restart_redis: 3,
            self._stop_redis: 1,
        }
        [calamity] = self._chance.choices(list(calamities), list(calamities.values()))
        name, began = calamity.__name__.strip("_"), time.time()
        self.seen[name] += 1
        await calamity()
        self.story.append(f"{name} from {began:.2f} to {time.time():.2f}")

    async def _kill_station(self) -> None:
        member = self._stations.pop(0)
        await asyncio.to_thread(member.life.close)
        await self._add_station()

    async def _stop_station(self) -> None:
        process = self._chance.choice(self._stations).running.process
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self._chance.uniform(0.1, 2 * LEASE))
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)

    async def _drain_station(self) -> None:
        member = self._stations.pop(0)
        await asyncio.gather(self._leave(member), self._add_station())

    async def _kill_box(self) -> None:
        await asyncio.to_thread(self._boxes.pop(0).life.close)
        await self._add_box()

    async def _kill_child(self) -> None:
        running = self._boxes[0].running
        ready = sum(line.startswith("ready") for line in running.said)
        os.kill(running.child(), signal.SIGKILL)
        await asyncio.to_thread(running.await_line, "ready", ready + 1)

    async def _upgrade(self) -> None:
        old = self._boxes.pop(0)
        await self._add_box()
        await self._leave(old)

    async def _restart_redis(self) -> None:
        await asyncio.to_thread(self.redis.die)
        await asyncio.sleep(self._chance.uniform(0, 1))
        await asyncio.to_thread(self.redis.rise)

    async def _stop_redis(self) -> None:
        process = self.redis.server.process
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self._chance.uniform(0.1, 1.5 * LEASE))
        process.send_signal(signal.SIGCONT)

    async def _add_station(self) -> None:
        station = performer(self.redis.server.url, self.marks, lease=LEASE)
        self._stations.append(await self._started(station))

    async def _add_box(self) -> None:
        self._version += 1
        tools = self._folder / "boxes" / f"v{self._version}"
        tools.mkdir(parents=True)
        (tools.parent / "toolkiln.toml").write_text(SETTINGS)
        (tools / "boxed.py").write_text(TOOLS.format(version=self._version))
        box = worker(self.redis.server.url, tools, "--pool", POOL, "--slots", "4", lease=LEASE)
        self._boxes.append(await self._started(box))

    async def _started(self, context: AbstractContextManager[Running]) -> Member:
        """A worker that is ready, however often Redis is gone meanwhile."""
        life = ExitStack()
        return Member(await asyncio.to_thread(life.enter_context, context), life)

    async def _leave(self, member: Member) -> None:
        await asyncio.to_thread(member.running.stop)
        await asyncio.to_thread(member.life.close)
