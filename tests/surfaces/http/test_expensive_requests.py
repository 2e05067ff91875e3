"""Requests that take the server long, and others that are answered meanwhile."""

import json
import select
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from ..conftest import BOUND
from .served import Served, bearer, make_keys, make_shell, serving, until

LISTS = '''from toolkiln import tool


@tool(parallel=True, read_only=True)
def add(numbers: list[int]) -> int:
    """Add numbers."""
    return sum(numbers)
'''
WRONG = {"tool": "add", "arguments": {"numbers": ["a"] * 4_000}}
"""A call whose arguments are expensive to explain."""
CALLS = json.dumps({"calls": [WRONG] * 100}, separators=(",", ":")).encode()
FUNCTION = '''def tool_{}(number: int) -> int:
    """Give back a number."""
    return number
'''


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str, str]]:
    """A server, and the keys of two callers without privileges."""
    folder: Path = tmp_path_factory.mktemp("expensive")
    shell = make_shell(folder, "")
    (folder / "tools" / "lists.py").write_text(LISTS)
    ann, bob = make_keys(shell, "ann", "bob")
    with serving(shell) as served:
        yield served, ann, bob


def send(served: Served, token: str, path: str, body: Any, opened: ExitStack) -> HTTPConnection:
    """A request that was sent as a whole, whose answer may take long."""
    connection = HTTPConnection(served.host, served.port, timeout=BOUND)
    opened.callback(connection.close)
    headers = {"Content-Type": "application/json", **bearer(token)}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, data, headers)
    return connection


def has_answer(connection: HTTPConnection) -> bool:
    return bool(select.select([connection.sock], [], [], 0)[0])


def test_health_answers_before_the_largest_sources_and_arguments_do(
    served: tuple[Served, str, str],
) -> None:
    server, ann, _ = served
    source = "".join(FUNCTION.format(number) for number in range(20_000))[:999_000]
    source = source[: source.rindex("def ")]
    with ExitStack() as opened:
        reading = [
            send(server, server.token, "/v1/schema", {"source": source}, opened) for _ in range(2)
        ]
        calling = [send(server, ann, "/v1/calls", CALLS, opened)]

        health = server.ask_plainly("GET", "/healthz")
        answered = [has_answer(one) for one in (*reading, *calling)]
        statuses = [one.getresponse().status for one in (*reading, *calling)]

    assert health.status == 200
    assert answered == [False] * 3
    assert statuses == [200] * 3


def test_a_caller_is_answered_while_another_one_keeps_the_threads_busy(
    served: tuple[Served, str, str],
) -> None:
    server, ann, bob = served
    server.ask("GET", "/v1/tools", headers=bearer(bob))
    with ExitStack() as opened:
        calling = [send(server, ann, "/v1/calls", CALLS, opened) for _ in range(3)]
        until(lambda: server.metric("toolkiln_tool_calls_in_flight") >= 20, "calls")

        found = server.ask("GET", "/v1/tools", headers=bearer(bob))
        answered = [has_answer(one) for one in calling]

    assert found.status == 200
    assert not all(answered)
