"""The ways into one project, each driven as its users drive it. Not a test itself.

A door makes calls for ann, who has no privileges. It answers with an `Outcome`, which is the
same whichever door was used.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from fleet import servers
from preloaded import command
from toolkiln import Kiln
from toolkiln.config import load
from toolkiln.model.call import Result

COMMAND = Path(sys.executable).with_name("toolkiln")
REQUEST = {"room": "pottery"}
"""What every call says about itself."""
META: Any = {"toolkiln/request": REQUEST}
BOUND = 60.0
"""Seconds that anything may take before it counts as hanging."""


@dataclass(frozen=True)
class Outcome:
    """How a call ended: with a value, or with the code of an error."""

    value: Any = None
    code: str | None = None
    state: Any = None
    """The state of the agent, if the tool changed it."""


class Door(Protocol):
    """One way to make calls for ann."""

    def call(self, tool: str, **arguments: Any) -> Outcome:
        """Call a tool."""
        ...

    def names(self) -> set[str]:
        """The tools that she is shown."""
        ...


@dataclass(frozen=True)
class Project:
    """A folder with tools and settings, and the keys of its users."""

    folder: Path
    ann: str
    bob: str
    """Holds APPROVE."""

    def environ(self, key: str | None = None) -> dict[str, str]:
        """The variables of a process that acts for the owner of a key."""
        own = {name: text for name, text in os.environ.items() if not name.startswith("TOOLKILN_")}
        return own | ({"TOOLKILN_API_KEY": key} if key else {})

    def run(self, *arguments: str, key: str | None = None) -> "subprocess.CompletedProcess[str]":
        """Run the command."""
        return subprocess.run(
            [command(), *arguments],
            cwd=self.folder,
            env=self.environ(key),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOUND,
            check=False,
        )


def outcome_of(result: Result) -> Outcome:
    """The outcome of a result."""
    if result.error is not None:
        return Outcome(code=result.error.code)
    return Outcome(result.value, state=result.agent_state)


class Python:
    """A program that opens the project, and calls for a user whom it has authenticated."""

    def __init__(self, kiln: Kiln) -> None:
        self.kiln = kiln
        self._ann = kiln.security.sessions.create("ann").token

    def call(self, tool: str, **arguments: Any) -> Outcome:
        result = self.kiln.call_sync(
            tool, arguments, session=self._ann, called=tool, request=REQUEST
        )
        assert isinstance(result, Result)
        return outcome_of(result)

    def names(self) -> set[str]:
        return set(self.kiln.specs(self._ann))


class CommandLine:
    """Ann at a terminal, with her key in the environment."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def call(self, tool: str, **arguments: Any) -> Outcome:
        more = ("--json", "--request", json.dumps(REQUEST))
        done = self._project.run("call", tool, json.dumps(arguments), *more, key=self._project.ann)
        return outcome_of(Result.model_validate_json(done.stdout))

    def names(self) -> set[str]:
        done = self._project.run("list", "--json", key=self._project.ann)
        return {spec["name"] for spec in json.loads(done.stdout)}


class Http:
    """A program that sends requests with ann's key."""

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client

    def call(self, tool: str, **arguments: Any) -> Outcome:
        body = {"arguments": arguments, "request": REQUEST}
        answer = self._client.post(f"/v1/tools/{tool}/call", json=body).json()
        if "status" in answer and "call_id" in answer:
            return outcome_of(Result.model_validate(answer))
        return Outcome(code=answer["code"])

    def names(self) -> set[str]:
        return {one["name"] for one in self._client.get("/v1/tools").json()["items"]}


class Mcp:
    """An MCP client that stays connected, in the event loop of another thread."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal, self._client = portal, client

    def call(self, tool: str, **arguments: Any) -> Outcome:
        outcome: Outcome = self._portal.call(self._call, tool, arguments)
        return outcome

    def names(self) -> set[str]:
        return {tool.name for tool in self._portal.call(self._client.list_tools).tools}

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Outcome:
        async with asyncio.timeout(BOUND):
            try:
                result = await self._client.call_tool(tool, arguments, meta=META)
            except MCPError as error:  # the protocol's answer for a tool that is not listed
                is_unknown = "there is no tool named" in error.message
                return Outcome(code="unknown_tool" if is_unknown else error.message)
            meta = result.meta or {}
            if "toolkiln/task" in meta:  # it waits for a person, whom this client cannot ask
                task = {"task_id": meta["toolkiln/task"]}
                waited = await self._client.call_tool("await_task", task)
                return _awaited(waited.structured_content)
        if result.is_error:
            return Outcome(code=meta["toolkiln/code"])
        content: Any = result.structured_content
        is_wrapped = isinstance(content, dict) and content.keys() == {"result"}
        value = content["result"] if is_wrapped else content
        return Outcome(value, state=meta.get("toolkiln/agent_state"))


@contextmanager
def _connected(client: AbstractAsyncContextManager[Client]) -> Iterator[Door]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(client) as connected,
    ):
        yield Mcp(portal, connected)


def _awaited(task: Any) -> Outcome:
    """The outcome of a task, as the model reads it."""
    if task["status"] == "ok":
        return Outcome(json.loads(task["result"]))
    assert "rejected" in task["result"]
    return Outcome(code="rejected")


@contextmanager
def python(project: Project) -> Iterator[Door]:
    """`Kiln("tools")` in the project's folder."""
    with Kiln(project.folder / "tools") as kiln:
        yield Python(kiln)


@contextmanager
def command_line(project: Project) -> Iterator[Door]:
    """`toolkiln call`."""
    yield CommandLine(project)


@contextmanager
def http(project: Project) -> Iterator[Door]:
    """`toolkiln serve`, and its HTTP API."""
    headers = {"Authorization": f"Bearer {project.ann}"}
    with (
        _served(project) as url,
        httpx2.Client(base_url=url, headers=headers, timeout=BOUND) as client,
    ):
        yield Http(client)


@contextmanager
def mcp_http(project: Project) -> Iterator[Door]:
    """`toolkiln serve`, and MCP over HTTP."""

    @asynccontextmanager
    async def connect(url: str) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {project.ann}"}
        async with (
            create_mcp_http_client(headers=headers) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
        ):
            yield client

    with _served(project) as url, _connected(connect(url)) as door:
        yield door


@contextmanager
def mcp_stdio(project: Project) -> Iterator[Door]:
    """`toolkiln mcp`."""
    environ = project.environ(project.ann)
    server = StdioServerParameters(
        command=str(COMMAND), args=["mcp"], cwd=project.folder, env=environ
    )
    with _connected(Client(stdio_client(server))) as door:
        yield door


@contextmanager
def fleet_front(project: Project) -> Iterator[Door]:
    """A worker over the project's tools, and a Kiln in front of it."""
    folder = project.folder.parent / "redis"
    folder.mkdir()
    with (
        servers.running(folder) as server,
        running_program([str(COMMAND), "worker", "--redis", server.url], project, "ready"),
        Kiln.connect(server.url, settings=load(project.folder, project.environ())) as kiln,
    ):
        yield Python(kiln)


@contextmanager
def running_program(command: list[str], project: Project, ready: str) -> Iterator[str]:
    """Run a program in the project's folder until the block ends; the line that says it is up."""
    with subprocess.Popen(
        command, cwd=project.folder, env=project.environ(), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if line.startswith(ready))
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield line
        finally:
            process.terminate()
            process.wait(BOUND)


@contextmanager
def _served(project: Project) -> Iterator[str]:
    with running_program([str(COMMAND), "serve", "--port", "0"], project, "HTTP ") as line:
        yield line.split()[1].removesuffix(",").removesuffix("/v1")
