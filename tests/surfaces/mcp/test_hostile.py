"""Requests that no client should make, as bytes over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tables import each_row
from toolkiln.security.authentication import KeyScope
from toolkiln.security.sessions import LOCAL_OPERATOR

from .served import Served, serving
from .wire import ACCEPT, HELLO, VERSION, Legacy, modern_reply

pytestmark = pytest.mark.asyncio(loop_scope="module")
YES = {"approval": {"action": "accept", "content": {}}}


@asynccontextmanager
async def serving_keys(
    tmp_path: Path, *users: str, **settings: Any
) -> AsyncIterator[tuple[Served, list[dict[str, str]]]]:
    """A server that needs keys, and the header of each user."""
    async with serving(tmp_path, is_local=False, **settings) as served:
        keys = served.kiln.security.keys
        made = [keys.create(who, KeyScope(user_id=who), LOCAL_OPERATOR).text for who in users]
        yield served, [{"authorization": f"Bearer {key}"} for key in made]


def code(given: httpx.Response) -> tuple[int, int]:
    return given.status_code, given.json()["error"]["code"]


NO_REQUESTS = [
    (b"{", -32700),
    (b"[" * 100_000, -32700),
    (b"[]", -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]', -32600),
    (b'"text"', -32600),
    (b'{"jsonrpc":"2.0","id":1}', -32600),
    (b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}', -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}', -32600),
]


@each_row("body, expected", NO_REQUESTS)
async def test_a_body_that_is_no_request_is_refused_and_opens_no_session(
    served: Served, client: httpx.AsyncClient, body: bytes, expected: int
) -> None:
    for headers in ({"mcp-protocol-version": VERSION, "mcp-method": "tools/list"}, {}):
        given = await client.post(served.url, content=body, headers={**ACCEPT, **headers})

        assert code(given) == (400, expected)
        assert headers or len(given.json()["error"]["message"]) < 100


@each_row(
    "kind, version",
    [
        *((kind, VERSION) for kind in ("text/plain", "application/jsonl", "")),
        ("text/plain", "2025-11-25"),
    ],
)
async def test_a_body_that_is_not_declared_as_json_is_refused(
    served: Served, client: httpx.AsyncClient, kind: str, version: str
) -> None:
    headers = {**ACCEPT, "content-type": kind, "mcp-protocol-version": version}

    given = await client.post(served.url, content=b"{}", headers=headers)

    assert (given.status_code, given.headers["content-type"]) == (415, "application/json")
    assert given.json()["error"]["data"]["code"] == "unsupported_media_type"


async def test_a_request_that_contradicts_itself_or_leads_nowhere_is_refused(
    served: Served, client: httpx.AsyncClient
) -> None:
    async def ask(method: str, *, headers: Any = None, **params: Any) -> httpx.Response:
        return await modern_reply(client, served.url, method, headers=headers, **params)

    bare = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {**ACCEPT, "mcp-protocol-version": VERSION, "mcp-method": "tools/list"}
    without_meta = await client.post(served.url, json=bare, headers=headers)
    name = await ask("tools/call", headers={"mcp-name": "x"}, name="add")
    version = await ask("tools/list", headers={"mcp-protocol-version": "2199-01-01"})
    method = await ask("tools/destroy")
    level = await ask("logging/setLevel", level="info")
    cursor = await ask("tools/list", cursor="%%%")
    session = await Legacy(client, served.url, **{"mcp-session-id": "none"}).post("tools/list")

    assert code(without_meta) == (400, -32602)
    assert code(name) == (400, -32020)
    assert code(version) in ((400, -32020), (400, -32022))
    assert code(method) == (404, -32601)
    assert code(level)[1] == -32601
    assert code(cursor)[1] == -32602
    assert session.status_code == 404


async def test_without_a_key_a_request_is_refused(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    async with serving_keys(tmp_path, "ann") as (served, [ann]):
        nothing, wrong, right = [
            await modern_reply(client, served.url, "tools/list", headers=headers)
            for headers in ({}, {"authorization": "Bearer tk_no"}, ann)
        ]

    assert nothing.status_code == wrong.status_code == 401
    assert "Bearer" in nothing.headers["www-authenticate"]
    assert right.status_code == 200
    assert "write_python_tool" in right.text  # what she writes is a proposal


async def test_a_state_belongs_to_its_own_call(served: Served, client: httpx.AsyncClient) -> None:
    call: dict[str, Any] = {"name": "risky", "arguments": {"what": "a jump"}}
    asked = (await modern_reply(client, served.url, "tools/call", **call)).json()["result"]
    state = asked["requestState"]

    async def answered(**params: Any) -> dict[str, Any]:
        given = {**call, "inputResponses": YES, "requestState": state, **params}
        reply = await modern_reply(client, served.url, "tools/call", **given)
        answer: dict[str, Any] = reply.json()
        return answer

    changed = state[:-4] + ("AAAA" if state[-4:] != "AAAA" else "BBBB")
    refused = [
        await answered(requestState=changed),
        await answered(arguments={"what": "something else"}),
        await answered(name="add", arguments={"a": 1}),
    ]
    right, again = await answered(), await answered()

    assert asked["resultType"] == "input_required"
    assert [one["error"]["code"] for one in refused] == [-32602] * 3
    assert right["result"]["structuredContent"] == {"result": "did a jump"}
    assert again["result"]["structuredContent"] == {"result": "did a jump"}


async def test_a_state_and_a_session_belong_to_their_caller(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    rules = ({"effect": "ask", "tools": ("add",), "approve_own": True},)
    call: dict[str, Any] = {"name": "add", "arguments": {"a": 1}}
    async with serving_keys(tmp_path, "ann", "bob", rules=rules) as (served, [ann, bob]):
        asked = await modern_reply(client, served.url, "tools/call", headers=ann, **call)
        state = asked.json()["result"]["requestState"]
        answer = {**call, "inputResponses": YES, "requestState": state}
        stolen = await modern_reply(client, served.url, "tools/call", headers=bob, **answer)
        own = await modern_reply(client, served.url, "tools/call", headers=ann, **answer)
        session = Legacy(client, served.url, **ann)
        hello = await session.start()
        foreign, mine = await session.post("ping", None, **bob), await session.post("ping")

    assert stolen.json()["error"]["code"] == -32602
    assert own.json()["result"]["structuredContent"] == {"result": 2}
    assert hello["result"]["capabilities"]["tools"] == {"listChanged": True}
    assert (foreign.status_code, mine.status_code) == (404, 200)


async def test_no_more_sessions_are_opened_than_the_server_can_hold(
    client: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.surfaces.mcp.endpoint._MAX_SESSIONS", 5)
    async with serving(tmp_path) as served:
        sessions = [Legacy(client, served.url) for _ in range(40)]

        answers = await asyncio.gather(*(one.post("initialize", HELLO) for one in sessions))
        opened = [one for one in sessions if "mcp-session-id" in one.headers]
        old = await opened[0].post("ping")
        others = await modern_reply(client, served.url, "tools/list")
        await opened[0].end()
        after = await Legacy(client, served.url).post("initialize", HELLO)

    assert len(opened) == 5
    assert {one.status_code for one in answers} == {200, 503}
    assert old.status_code == others.status_code == after.status_code == 200


async def test_a_caller_opens_a_session_though_another_one_opened_all(
    client: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.surfaces.mcp.endpoint._MAX_SESSIONS", 5)
    async with serving_keys(tmp_path, "ann", "bob") as (served, [ann, bob]):

        async def opened(headers: dict[str, str]) -> tuple[Legacy, int]:
            session = Legacy(client, served.url, **headers)
            return session, (await session.post("initialize", HELLO)).status_code

        of_ann = [await opened(ann) for _ in range(6)]
        of_bob = [await opened(bob) for _ in range(3)]
        _, more = await opened(ann)
        mine, ended = await of_bob[0][0].post("ping"), await of_ann[0][0].post("ping")

    assert [status for _, status in of_ann] == [200] * 5 + [503]
    assert [status for _, status in of_bob] == [200, 200, 503]
    assert (more, mine.status_code, ended.status_code) == (503, 200, 404)
