"""An API served on a free port of this machine, over a small real catalog."""

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import uvicorn

from toolkiln.config import Settings
from toolkiln.define import Context, ToolError, tool
from toolkiln.kiln import Kiln
from toolkiln.model.identity import Privilege
from toolkiln.security.authentication import Authenticator
from toolkiln.surfaces.http.app import App
from toolkiln.surfaces.http.health import Readiness, SystemEndpoints
from toolkiln.surfaces.http.metrics import Metrics
from toolkiln.surfaces.http.routes import ROUTES
from toolkiln.surfaces.http.server import open_listener, url_of

from .served import until

SOON = 60.0

WAITING = '''
import time

from toolkiln import Context, tool


@tool(timeout=120)
def wait(seconds: float, ctx: Context) -> str:
    """Wait for a while."""
    ctx.report_progress(1, 2, "waiting")
    ctx.log("a line")
    print("out", flush=True)
    time.sleep(seconds)
    return "waited"


@tool(parallel=True, read_only=True)
def long_text(characters: int) -> str:
    """Write a long text."""
    return "x" * characters
'''
FAILING = '''
def fail(message: str = "no") -> str:
    """Fail in its own words."""
    raise ValueError(message)
'''
RISKY = '''
from toolkiln import tool


@tool(needs_approval=True, destructive=True)
def pay(amount: int) -> int:
    """Pay an amount."""
    return amount
'''
SETTABLE = '''
from pydantic import BaseModel, SecretStr

from toolkiln import Context, tool


class Values(BaseModel):
    unit: str = "celsius"
    token: SecretStr = SecretStr("")


@tool(settings=Values)
def measure(ctx: Context) -> str:
    """Measure something."""
    return ctx.settings["unit"]
'''
KIT = '''
from toolkiln import tool_metadata


@tool_metadata(visible=True)
class Shelf:
    """Things on a shelf."""

    def put_up(self, thing: str) -> str:
        """Put a thing on the shelf."""
        return thing

    def take_down(self, thing: str) -> str:
        """Take a thing from the shelf."""
        return thing
'''
FILES = {
    "waiting.py": WAITING,
    "failing.py": FAILING,
    "risky.py": RISKY,
    "settable.py": SETTABLE,
    "kit.py": KIT,
}
TRIPLE = '''
def triple(number: int) -> int:
    """Multiply a number by three."""
    return number * 3
'''
EVENTS = {"accept": "text/event-stream"}


@tool(parallel=True)
def double(number: int, ctx: Context) -> int:
    """Double a number, in this process."""
    if number == 13:
        raise ToolError("unlucky")
    ctx.log("doubling")
    return number * 2


class Serving:
    """One server over one folder of tools; restarted, it finds what it kept."""

    functions: ClassVar[Sequence[Callable[..., Any]]] = (double,)

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.tools = folder / "tools"
        given = {"state": folder / "state", "environ": dict(os.environ), **settings}
        self._settings = Settings(**given)
        self.kiln: Kiln
        self.loop: asyncio.AbstractEventLoop

    def write(self, files: Mapping[str, str]) -> None:
        """Put files into the folder and admit them, untried."""
        for file, source in files.items():
            place = self.tools / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(source, "utf-8")
        with self._opened() as kiln:
            candidates = [kiln.services.admissions.candidate(file) for file in files]
            kiln.services.admissions.admit(candidates, kiln.security.decision())

    def _opened(self) -> Kiln:
        return Kiln(self.tools, functions=self.functions, settings=self._settings, surface="http")

    @contextmanager
    def running(self) -> Iterator["Serving"]:
        """Serve as long as the block runs."""
        with open_listener("127.0.0.1", 0) as listener:
            self.url = url_of(listener)
            ready = threading.Event()
            thread = threading.Thread(target=lambda: asyncio.run(self._serve(listener, ready)))
            thread.start()
            assert ready.wait(SOON)
            try:
                yield self
            finally:
                self.server.should_exit = self.server.force_exit = True
                thread.join(SOON)
                assert not thread.is_alive()

    async def _serve(self, listener: socket.socket, ready: threading.Event) -> None:
        async with self._opened() as kiln:
            self.kiln, self.loop = kiln, asyncio.get_running_loop()
            entrance = Authenticator(kiln.security, kiln.settings)
            beside = SystemEndpoints(ROUTES, entrance, Readiness(kiln), Metrics())
            app = App(kiln, entrance, ROUTES, dict.fromkeys(beside.paths, beside))
            config = uvicorn.Config(app, lifespan="off", log_level="critical")
            self.server = uvicorn.Server(config)
            async with AsyncExitStack() as stack:
                stack.callback(kiln.services.runs.subscribe_to(kiln.engine.events))
                await stack.enter_async_context(kiln.services.changes.running())
                serving = asyncio.create_task(self.server.serve([listener]))
                while not self.server.started and not serving.done():
                    await asyncio.sleep(0.005)
                ready.set()
                await serving

    def session(self, user: str = "ann", *privileges: Privilege, **identity: Any) -> str:
        """The token of a session."""
        made = self.kiln.security.sessions.create(user, privileges=privileges, **identity)
        return made.token

    @contextmanager
    def client(self, token: str | None = None, **options: Any) -> Iterator[httpx2.Client]:
        """A client; without a token that of the local person, as after the start-up link."""
        headers = {"authorization": f"Bearer {token or self.kiln.security.operator}"}
        with httpx2.Client(
            base_url=self.url, headers=headers, timeout=SOON, trust_env=False, **options
        ) as client:
            yield client


def call(
    client: httpx2.Client, tool: str, headers: Mapping[str, str] | None = None, **arguments: Any
) -> httpx2.Response:
    """Call a tool and wait for its result."""
    body = {"arguments": arguments}
    return client.post(f"/v1/tools/{tool}/call", json=body, headers=headers)


def problem(answer: httpx2.Response) -> tuple[int, str]:
    """The status and the code of a refusal."""
    return answer.status_code, answer.json()["code"]


def events(answer: httpx2.Response) -> Iterator[tuple[str, Any]]:
    """The events of a stream, as they come."""
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


class Paying:
    """A call of `pay` by a user, which waits for a person."""

    def __init__(self, api: Serving, user: str, amount: int) -> None:
        self._api, self._amount = api, amount
        self.token = api.session(user)
        self._thread = threading.Thread(target=self._pay)
        self._thread.start()
        with api.client(self.token) as client:
            until(lambda: bool(client.get("/v1/approvals").json()["items"]))
            (self.request,) = client.get("/v1/approvals").json()["items"]
        self.place = f"/v1/approvals/{self.request['id']}"

    def _pay(self) -> None:
        with self._api.client(self.token) as client:
            self._result = call(client, "pay", amount=self._amount).json()

    def result(self) -> Any:
        self._thread.join(SOON)
        return self._result
