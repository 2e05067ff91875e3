"""Callers that take all they can get, and others that still get something."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from ..conftest import BOUND, COMMAND, Shell
from .served import META, SETTINGS, Served, bearer, make_keys, make_shell, serving

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
    ann, bob = make_keys(shell, "ann", "bob")
    with serving(Limited(**vars(shell))) as served:
        yield served, ann, bob


def status_of(
    served: Served,
    opened: ExitStack,
    key: str,
    path: str = "/v1/events",
    body: Any = None,
    **more: str,
) -> int:
    """The status of the answer to a request for a stream, which stays open."""
    connection = HTTPConnection(served.host, served.port, timeout=BOUND)
    opened.callback(connection.close)
    headers = {"Accept": "text/event-stream", **bearer(key), **more}
    if body is None:
        connection.request("GET", path, headers=headers)
    else:
        headers["Content-Type"] = "application/json"
        connection.request("POST", path, json.dumps(body), headers)
    return connection.getresponse().status


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
        taken = [status_of(server, opened, ann) for _ in range(10)]
        other = status_of(server, opened, bob)
        mine = server.ask("GET", "/v1/tools", headers=bearer(ann)).status

    assert taken == [200] * 4 + [503] * 6
    assert (other, mine) == (200, 200)


def test_events_of_calls_and_subscriptions_count_as_streams_too(
    served: tuple[Served, str, str],
) -> None:
    server, ann, _ = served
    long = {"arguments": {"name": "streams", "seconds": 20}}
    params = {"notifications": {"toolsListChanged": True}, "_meta": META}
    listen = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    mcp = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "subscriptions/listen",
    }
    with ExitStack() as opened:
        taken = []
        for _ in range(2):
            taken.append(status_of(server, opened, ann))
            taken.append(status_of(server, opened, ann, "/v1/tools/linger/call", long))
            taken.append(status_of(server, opened, ann, "/mcp", listen, **mcp))
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
        tools = server.ask("GET", "/v1/tools", headers=bearer(ann))

    assert (health.status, tools.status) == (200, 200)
    assert server.descriptors() < DESCRIPTORS
    assert Path(f"/proc/{server.process.pid}").exists()
