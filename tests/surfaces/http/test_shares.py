"""Callers that take all they can get, and others that still get something."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from ..conftest import BOUND, COMMAND, Shell
from .served import SETTINGS, Served, make_shell, serving

DESCRIPTORS = 256
"""So few that connections soon take all that the server has."""
FEW = f"concurrent_requests = 8\n{SETTINGS}"


class Limited(Shell):
    """Starts servers that may have few descriptors."""

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[str]":
        limit = f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"
        return subprocess.Popen(
            ["prlimit", limit, COMMAND, *arguments],
            cwd=self.folder,
            env=self.environ(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str, str]]:
    """A server with few places, and the keys of two callers."""
    shell = make_shell(tmp_path_factory.mktemp("shares"), FEW)
    keys = [
        shell.invoke("keys", "create", name, "--user", name).out.strip() for name in ("ann", "bob")
    ]
    limited = Limited(**vars(shell))
    with serving(limited) as served:
        yield served, keys[0], keys[1]


def stream(served: Served, key: str, opened: ExitStack) -> HTTPResponse:
    """The answer to a request for events, which stays open."""
    connection = HTTPConnection(served.host, served.port, timeout=BOUND)
    opened.callback(connection.close)
    headers = {"Authorization": f"Bearer {key}", "Accept": "text/event-stream"}
    connection.request("GET", "/v1/events", headers=headers)
    return connection.getresponse()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_the_call_of_a_caller_ends_while_another_one_uses_every_slot(
    served: tuple[Served, str, str],
) -> None:
    server, ann, bob = served
    long = {"arguments": {"name": "slots", "seconds": 25}, "background": True}
    taken = [server.ask("POST", "/v1/tools/linger/call", long, bearer(ann)) for _ in range(40)]
    server.ask("GET", f"/v1/calls/{taken[0].json()['id']}?wait=1", headers=bearer(ann))

    called = server.call("greet", bearer(bob), name="Bob")
    calls = server.ask("GET", "/v1/calls?limit=200", headers=bearer(ann)).json()["items"]
    for call in calls:
        server.ask("POST", f"/v1/calls/{call['id']}/cancel", headers=bearer(ann))

    assert [one.status for one in taken] == [202] * 40
    assert called["text"] == "Hello Bob"
    assert [call["state"] for call in calls] == ["running"] * 40


def test_one_key_opens_streams_until_it_is_refused_and_another_still_gets_one(
    served: tuple[Served, str, str],
) -> None:
    server, ann, bob = served
    with ExitStack() as opened:
        taken = [stream(server, ann, opened).status for _ in range(10)]
        other = stream(server, bob, opened)
        mine = server.ask("GET", "/v1/tools", headers={"Authorization": f"Bearer {ann}"})

    assert taken == [200] * 4 + [503] * 6
    assert other.status == 200
    assert mine.status == 200


def test_streams_that_are_asked_for_in_other_ways_count_as_streams_too(
    served: tuple[Served, str, str],
) -> None:
    server, ann, _ = served
    long = json.dumps({"arguments": {"name": "streams", "seconds": 20}})
    listen = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {
            "notifications": {"toolsListChanged": True},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    }
    events = {"Accept": "text/event-stream", "Content-Type": "application/json"}
    mcp = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "subscriptions/listen",
    }
    asked = [
        ("GET", "/v1/events", None, {}),
        ("POST", "/v1/tools/linger/call", long, events),
        ("POST", "/mcp", json.dumps(listen), mcp),
    ]
    with ExitStack() as opened:
        taken = []
        for method, path, body, headers in asked * 2:
            connection = HTTPConnection(server.host, server.port, timeout=BOUND)
            opened.callback(connection.close)
            connection.request(method, path, body, {**headers, **bearer(ann)})
            taken.append(connection.getresponse().status)
        own = [server.ask("GET", "/v1/tools", headers=bearer(ann)).status for _ in range(3)]

    assert taken == [200] * 4 + [503] * 2
    assert own == [200] * 3


@pytest.mark.parametrize("sent", [b"", b"GET /v1/tools HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
def test_connections_that_send_nothing_or_half_a_head_leave_health_answerable(
    served: tuple[Served, str, str], sent: bytes
) -> None:
    server, ann, _ = served
    with ExitStack() as opened:
        for _ in range(2 * DESCRIPTORS):
            connection = opened.enter_context(server.connect())
            connection.sendall(sent)
        health = server.ask_plainly("GET", "/healthz")
        tools = server.ask("GET", "/v1/tools", headers={"Authorization": f"Bearer {ann}"})

    assert (health.status, tools.status) == (200, 200)
    assert server.descriptors() < DESCRIPTORS
    assert Path(f"/proc/{server.process.pid}").exists()
