"""Hostile messages in both eras: no server error follows, and the next message is answered."""

import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from toolkiln.security.authentication import KeyScope
from toolkiln.security.sessions import LOCAL_OPERATOR

from ..conftest import GREET
from .functions import FUNCTIONS
from .role_functions import review
from .served import BOUND, Served, serving
from .spoken import Spoken
from .wire import ACCEPT, HELLO, VERSION, Legacy, meta, modern, request

TONE = {"type": "ref/prompt", "name": "review"}
ODD = "\x00\u202e\ud800'; DROP TABLE x; -- ../../etc/passwd"
DEEP: Any = json.loads("[" * 150 + "]" * 150)
LONG = "x" * 100_000
URIS = [
    "", "x", "file:///etc/passwd", "toolkiln://../../etc/passwd", "http://[::1", "\x00", ODD,
    "a:" + "%" * 1_000, "data:," + LONG, "x://" + "{a}" * 1_000,
]  # fmt: skip

IDS: list[Any] = [0, -1, 2**63, 10**400, 1.5, "", ODD, LONG, None, True, [], {}, [[]]]
ADD: dict[str, Any] = {"name": "add", "arguments": {"a": 1}}
TOKENS: list[Any] = ["", ODD, LONG, 10**400, -1, 1.5, None, True, [], {}, DEEP]
VALUES: list[Any] = ["", ODD, LONG, 7, None, DEEP]
PARAMS: dict[str, list[Any]] = {
    "tools/call": [
        None, [], 7, "x", {"name": None}, {"name": ODD}, {"name": LONG}, {"name": {}},
        {"name": "add", "arguments": []}, {"name": "add", "arguments": {"a": DEEP}},
        {"name": "add", "arguments": {ODD: ODD, "a": 10**400}},
        {**ADD, "task": "x"}, {**ADD, "task": {"ttl": -(10**30)}}, {**ADD, "requestState": ODD},
        {**ADD, "requestState": DEEP}, {**ADD, "inputResponses": {ODD: DEEP}},
        *({**ADD, "_meta": {"progressToken": token}} for token in TOKENS),
    ],
    "prompts/get": [
        {}, {"name": ODD}, {"name": 1}, {"name": "review", "arguments": DEEP},
        {"name": "review", "arguments": {"code": 1}}, {"name": "review", "arguments": {ODD: ODD}},
        {"name": "review", "arguments": {"code": LONG, "times": "9" * 5_000}},
        {"name": "review", "arguments": {"code": "x", "tone": ODD}},
    ],
    "completion/complete": [
        {}, {"ref": {}, "argument": {}}, {"ref": {"type": ODD}},
        {"ref": {"type": "ref/prompt", "name": ODD}, "argument": {"name": ODD, "value": ODD}},
        {"ref": TONE, "argument": {"name": "tone", "value": LONG}},
        {"ref": TONE, "argument": {"name": "tone", "value": DEEP}},
        {"ref": {"type": "ref/resource", "uri": ODD}, "argument": {"name": "x", "value": "y"}},
        {"ref": TONE, "argument": {"name": "tone", "value": ""},
         "context": {"arguments": {ODD: LONG}}},
    ],
    "logging/setLevel": [{"level": level} for level in VALUES],
    **{f"resources/{act}": [{"uri": uri} for uri in (*URIS, *VALUES)]
       for act in ("read", "subscribe", "unsubscribe")},
    **{f"tasks/{act}": [{"taskId": task} for task in VALUES]
       for act in ("get", "result", "cancel", "update")},
    **{f"{what}/list": [{"cursor": cursor} for cursor in VALUES]
       for what in ("tools", "prompts", "resources", "tasks")},
    **{method: [{}] for method in ("", ODD, LONG, "rpc.discover", "__class__", "tools/call/")},
}  # fmt: skip
NOTIFICATIONS: list[tuple[str, Any]] = [
    *(("notifications/cancelled", given) for given in (
        None, {}, DEEP, {"requestId": 1}, {"requestId": ODD}, {"requestId": DEEP},
        {"requestId": 10**400, "reason": LONG},
    )),
    *(("notifications/progress", given) for given in (
        {}, {"progressToken": ODD, "progress": "x"}, {"progressToken": 1, "progress": 10**400},
    )),
    ("notifications/initialized", DEEP),
    ("notifications/roots/list_changed", {ODD: DEEP}),
    ("notifications/" + LONG, {}),
]  # fmt: skip
ANSWERS: list[dict[str, Any]] = [
    {"id": 1, "result": {"action": "accept", "content": {}}},
    {"id": ODD, "result": DEEP},
    {"id": 10**30, "result": None},
    {"id": 1, "error": {"code": "x"}},
    {"id": 1, "error": {"code": 10**400, "message": LONG, "data": DEEP}},
    {"id": 1, "result": {}, "error": {"code": 1, "message": ""}},
]


LITERALS = [
    "[" * 100_000, '{"a":' * 100_000, "[" * 50_000 + "]" * 50_000, "NaN", "1e999999", "9" * 5_000,
    '{"name":"add","name":"risky","arguments":{"a":1,"a":2}}',
]  # fmt: skip
"""Parameters as text, for what no encoder writes."""


def hostile(era: str) -> Iterator[bytes]:
    """Messages of one era."""
    yield from (encoded(message) for message in encodable(era))
    for text in LITERALS:
        yield b'{"jsonrpc":"2.0","id":"l","method":"tools/call","params":%b}' % text.encode()
        yield b'{"jsonrpc":"2.0","id":%b,"method":"tools/list"}' % text.encode()
    yield b'{"jsonrpc":"2.0","id":"d","id":"e","method":"tools/list","method":"ping"}'


def encodable(era: str) -> Iterator[dict[str, Any]]:
    """Those that are JSON as an encoder writes it."""
    for method, several in PARAMS.items():
        for params in several:
            yield {"id": "h", "method": method, "params": dressed(params, era)}
    for odd in IDS:
        yield {"id": odd, "method": "tools/list", "params": dressed({}, era)}
    for method, params in NOTIFICATIONS:
        yield {"method": method, "params": dressed(params, era)}
    yield from ANSWERS


def dressed(params: Any, era: str) -> Any:
    """Parameters with what every request of the modern era carries."""
    if era == "legacy" or not isinstance(params, dict):
        return params
    return {**params, "_meta": {**meta(), **params.get("_meta", {})}}


def encoded(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served"), (*FUNCTIONS, review)) as server:
        yield server


def headers_of(text: bytes) -> dict[str, str]:
    """The headers of a message of the modern era, where its values can be in a header."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        message = {"method": "tools/list"}
    params = message.get("params")
    named = params if isinstance(params, dict) else {}
    name = next((named[key] for key in ("name", "uri", "taskId") if key in named), None)
    shown = {"mcp-method": message.get("method"), "mcp-name": name}
    return {**ACCEPT, "mcp-protocol-version": VERSION} | {
        header: value
        for header, value in shown.items()
        if isinstance(value, str) and value.isascii() and value.isprintable() and len(value) < 2_000
    }


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_over_http_answers_after_every_hostile_message_and_logs_no_error(
    served: Served, client: httpx.AsyncClient, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    legacy = Legacy(client, served.url)
    await legacy.start()
    for message in hostile(era):
        headers = legacy.headers if era == "legacy" else headers_of(message)
        given = await client.post(served.url, content=message, headers=headers)
        if era == "legacy":
            after = await legacy.ask("ping")
        else:
            after = await modern(client, served.url, "tools/list")

        assert given.status_code < 500, message[:500]
        assert "result" in after, message[:500]

    assert not [one for one in caplog.records if one.exc_info or one.levelno >= logging.ERROR]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_caller_neither_cancels_nor_answers_for_another(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    rules = ({"effect": "ask", "tools": ("add",), "approve_own": True},)
    async with serving(tmp_path, is_local=False, rules=rules) as served:
        sessions = []
        for who in ("ann", "bob"):
            made = served.kiln.security.keys.create(who, KeyScope(user_id=who), LOCAL_OPERATOR)
            session = Legacy(client, served.url, authorization=f"Bearer {made.text}")
            await session.start(elicitation={})
            sessions.append(session)
        ann, bob = sessions

        async def send(sender: Legacy, message: dict[str, Any]) -> None:
            await client.post(served.url, content=encoded(message), headers=sender.headers)

        body = request("tools/call", name="add", arguments={"a": 1})
        async with client.stream("POST", served.url, json=body, headers=ann.headers) as stream:
            lines = (line[6:] async for line in stream.aiter_lines() if line.startswith("data: {"))
            asked = json.loads(await anext(lines))
            yes = {"id": asked["id"], "result": {"action": "accept", "content": {}}}
            await send(bob, yes)
            await send(bob, {"method": "notifications/cancelled", "params": {"requestId": 1}})
            await bob.ask("ping")
            (waiting,) = served.kiln.security.approvals.waiting()
            await send(ann, yes)
            given = json.loads(await anext(lines))

    assert asked["method"] == "elicitation/create"
    assert waiting.user == "ann"
    assert given["result"]["structuredContent"] == {"result": 2}


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_process_over_stdio_answers_after_every_hostile_message_and_logs_no_error(
    era: str, tmp_path: Path
) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "greet.py").write_text(GREET)
    with Spoken(tmp_path, "--dev") as spoken:
        if era == "legacy":  # the first message decides for which era the process serves
            spoken.say("initialize", "hello", **HELLO)
            spoken.hear("hello")
            spoken.say("notifications/initialized")
        else:
            spoken.ask("tools/list")
        for number, message in enumerate(hostile(era)):
            spoken.send(message)
            method, name = "ping" if era == "legacy" else "tools/list", f"p{number}"
            spoken.say(method, name, **dressed({}, era))
            assert "result" in spoken.hear(name), message[:500]
        spoken.close()
        code = spoken.process.wait(BOUND)

    assert code == 0
    assert "Traceback" not in spoken.errors.read_text()
