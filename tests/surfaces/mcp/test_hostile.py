"""Requests that no client should make, as bytes over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from toolkiln.security.authentication import KeyScope
from toolkiln.security.sessions import LOCAL_OPERATOR

from .functions import ENDED, STARTED
from .served import BOUND, Served, serving
from .wire import ACCEPT, VERSION, meta

pytestmark = pytest.mark.asyncio(loop_scope="module")
META = meta()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served")) as server:
        yield server


def bearer(served: Served, who: str) -> str:
    """What somebody shows who has a key."""
    made = served.kiln.security.keys.create(who, KeyScope(user_id=who), LOCAL_OPERATOR)
    return f"Bearer {made.text}"


async def modern(
    client: httpx.AsyncClient, url: str, method: str, params: dict[str, Any], **headers: str
) -> httpx.Response:
    shown = {**ACCEPT, "mcp-protocol-version": VERSION, "mcp-method": method}
    if "name" in params:
        shown["mcp-name"] = params["name"]
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
    return await client.post(url, json=body, headers={**shown, **headers})


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


@pytest.mark.parametrize(
    ("body", "code"),
    [*NO_REQUESTS, (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}', -32602)],
)
async def test_what_is_no_request_is_refused(served: Served, body: bytes, code: int) -> None:
    headers = {**ACCEPT, "mcp-protocol-version": VERSION, "mcp-method": "tools/list"}

    async with httpx.AsyncClient(timeout=BOUND) as client:
        given = await client.post(served.url, content=body, headers=headers)

    assert given.status_code == 400
    assert given.json()["error"]["code"] == code


@pytest.mark.parametrize(("body", "code"), NO_REQUESTS)
async def test_neither_does_a_session_begin_with_it(served: Served, body: bytes, code: int) -> None:
    async with httpx.AsyncClient(timeout=BOUND) as client:
        given = await client.post(served.url, content=body, headers=ACCEPT)

    assert given.status_code == 400
    assert given.json()["error"]["code"] == code
    assert len(given.json()["error"]["message"]) < 100


@pytest.mark.parametrize("kind", ["text/plain", "application/jsonl", ""])
@pytest.mark.parametrize("version", [VERSION, "2025-11-25"])
async def test_a_body_that_is_not_declared_as_json_is_refused(
    served: Served, kind: str, version: str
) -> None:
    headers = {**ACCEPT, "content-type": kind, "mcp-protocol-version": version}

    async with httpx.AsyncClient(timeout=BOUND) as client:
        given = await client.post(served.url, content=b"{}", headers=headers)

    assert (given.status_code, given.headers["content-type"]) == (415, "application/json")
    assert given.json()["error"]["data"]["code"] == "unsupported_media_type"


async def test_headers_that_lie_are_refused(served: Served) -> None:
    async with httpx.AsyncClient(timeout=BOUND) as client:
        name = await modern(client, served.url, "tools/call", {"name": "add"}, **{"mcp-name": "x"})
        version = await modern(
            client, served.url, "tools/list", {}, **{"mcp-protocol-version": "2199-01-01"}
        )

    assert (name.status_code, name.json()["error"]["code"]) == (400, -32020)
    assert version.status_code == 400
    assert version.json()["error"]["code"] in (-32020, -32022)


async def test_unknown_methods_sessions_and_cursors_are_told(served: Served) -> None:
    old = {**ACCEPT, "mcp-protocol-version": "2025-11-25", "mcp-session-id": "none"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}

    async with httpx.AsyncClient(timeout=BOUND) as client:
        method = await modern(client, served.url, "tools/destroy", {})
        level = await modern(client, served.url, "logging/setLevel", {"level": "info"})
        cursor = await modern(client, served.url, "tools/list", {"cursor": "%%%"})
        session = await client.post(served.url, json=body, headers=old)

    assert (method.status_code, method.json()["error"]["code"]) == (404, -32601)
    assert level.json()["error"]["code"] == -32601
    assert cursor.json()["error"]["code"] == -32602
    assert session.status_code == 404


async def test_whoever_shows_no_key_is_told_which_one_to_show(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, is_local=False) as served,
        httpx.AsyncClient(timeout=BOUND) as client,
    ):
        nothing = await modern(client, served.url, "tools/list", {})
        wrong = await modern(client, served.url, "tools/list", {}, authorization="Bearer tk_no")
        key = bearer(served, "ann")
        right = await modern(client, served.url, "tools/list", {}, authorization=key)

    assert nothing.status_code == wrong.status_code == 401
    assert "Bearer" in nothing.headers["www-authenticate"]
    assert right.status_code == 200
    assert "write_python_tool" in right.text  # what she writes is a proposal


async def test_a_state_serves_its_own_call_only(served: Served) -> None:
    call = {"name": "risky", "arguments": {"what": "a jump"}}
    yes = {"approval": {"action": "accept", "content": {}}}

    async with httpx.AsyncClient(timeout=BOUND) as client:
        asked = (await modern(client, served.url, "tools/call", call)).json()["result"]
        state = asked["requestState"]

        async def answered(**params: Any) -> dict[str, Any]:
            given = {**call, "inputResponses": yes, "requestState": state, **params}
            answer: dict[str, Any] = (await modern(client, served.url, "tools/call", given)).json()
            return answer

        tampered = await answered(
            requestState=state[:-4] + ("AAAA" if state[-4:] != "AAAA" else "BBBB")
        )
        elsewhere = await answered(arguments={"what": "something else"})
        other = await answered(name="add", arguments={"a": 1})
        right = await answered()
        again = await answered()

    assert asked["resultType"] == "input_required"
    for refused in (tampered, elsewhere, other):
        assert refused["error"]["code"] == -32602
    assert right["result"]["structuredContent"] == {"result": "did a jump"}
    assert again["result"]["structuredContent"] == {"result": "did a jump"}


async def test_a_state_serves_its_own_caller_only(tmp_path: Path) -> None:
    rules = ({"effect": "ask", "tools": ("add",), "approve_own": True},)
    call = {"name": "add", "arguments": {"a": 1}}
    yes = {"approval": {"action": "accept", "content": {}}}
    async with (
        serving(tmp_path, is_local=False, rules=rules) as served,
        httpx.AsyncClient(timeout=BOUND) as client,
    ):
        ann, bob = bearer(served, "ann"), bearer(served, "bob")
        asked = await modern(client, served.url, "tools/call", call, authorization=ann)
        state = asked.json()["result"]["requestState"]
        answer = {**call, "inputResponses": yes, "requestState": state}
        stolen = await modern(client, served.url, "tools/call", answer, authorization=bob)
        own = await modern(client, served.url, "tools/call", answer, authorization=ann)

    assert stolen.json()["error"]["code"] == -32602
    assert own.json()["result"]["structuredContent"] == {"result": 2}


async def test_a_session_is_its_openers_only(tmp_path: Path) -> None:
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    start = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    async with (
        serving(tmp_path, is_local=False) as served,
        httpx.AsyncClient(timeout=BOUND) as client,
    ):
        ann, bob = bearer(served, "ann"), bearer(served, "bob")
        opened = await client.post(served.url, json=start, headers={**ACCEPT, "authorization": ann})
        shown = {**ACCEPT, "mcp-session-id": opened.headers["mcp-session-id"]}
        asked = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        stolen = await client.post(served.url, json=asked, headers={**shown, "authorization": bob})
        own = await client.post(served.url, json=asked, headers={**shown, "authorization": ann})

    assert json.loads(opened.text.split("data: ")[1])["result"]["capabilities"]["tools"] == {
        "listChanged": True
    }
    assert stolen.status_code == 404
    assert own.status_code == 200


async def test_a_connection_that_breaks_ends_the_call_without_a_stream(served: Served) -> None:
    STARTED.clear()
    ENDED.clear()
    params = {"name": "wait", "arguments": {}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = {
        **ACCEPT,
        "host": "127.0.0.1",
        "mcp-protocol-version": VERSION,
        "mcp-method": "tools/call",
        "mcp-name": "wait",
        "content-length": str(len(body)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())

    _, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(served.url).port)
    writer.write(f"POST /mcp HTTP/1.1\r\n{lines}\r\n{body}".encode())
    assert await asyncio.to_thread(STARTED.wait, BOUND)
    writer.close()

    assert await asyncio.to_thread(ENDED.wait, BOUND)


async def test_no_more_sessions_are_opened_than_the_server_can_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.surfaces.mcp.endpoint._MAX_SESSIONS", 5)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
    params = {**hello, "clientInfo": {"name": "t", "version": "1"}}
    start = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    async with serving(tmp_path) as served, httpx.AsyncClient(timeout=BOUND) as client:
        opening = [client.post(served.url, json=start, headers=ACCEPT) for _ in range(40)]

        answers = await asyncio.gather(*opening)
        opened = [one for one in answers if one.status_code == 200]
        shown = {**ACCEPT, "mcp-session-id": opened[0].headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        old = await client.post(served.url, json=ping, headers=shown)
        others = await modern(client, served.url, "tools/list", {})
        await client.delete(served.url, headers=shown)
        after = await client.post(served.url, json=start, headers=ACCEPT)

    assert len(opened) == 5
    assert {one.status_code for one in answers} == {200, 503}
    assert old.status_code == others.status_code == after.status_code == 200


async def test_a_caller_opens_a_session_though_another_one_opened_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkiln.surfaces.mcp.endpoint._MAX_SESSIONS", 5)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
    params = {**hello, "clientInfo": {"name": "t", "version": "1"}}
    start = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    async with (
        serving(tmp_path, is_local=False) as served,
        httpx.AsyncClient(timeout=BOUND) as client,
    ):
        ann, bob = ({**ACCEPT, "authorization": bearer(served, who)} for who in ("ann", "bob"))
        taken = [await client.post(served.url, json=start, headers=ann) for _ in range(6)]
        opened = [await client.post(served.url, json=start, headers=bob) for _ in range(3)]
        shown = {"mcp-session-id": opened[0].headers["mcp-session-id"]}
        more = await client.post(served.url, json=start, headers=ann)
        mine = await client.post(served.url, json=ping, headers={**bob, **shown})
        ended = await client.post(
            served.url,
            json=ping,
            headers={**ann, "mcp-session-id": taken[0].headers["mcp-session-id"]},
        )

    assert [one.status_code for one in taken] == [200] * 5 + [503]
    assert [one.status_code for one in opened] == [200, 200, 503]
    assert (more.status_code, mine.status_code, ended.status_code) == (503, 200, 404)
