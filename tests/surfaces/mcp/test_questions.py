"""Tools ask the clients of both eras: forms, their model, their folders."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from mcp import Client
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ErrorData,
    ListRootsResult,
    Root,
    TextContent,
)

from toolkiln import Context, Form, Kiln, NotAnswered, Roots, Sample, tool
from toolkiln.execution.call_events import CallObserver, RunningCall
from toolkiln.model.call import Result

from .served import BOUND, Served, serving
from .wire import TASKS, VERSION, messages, modern, modern_reply

pytestmark = pytest.mark.asyncio(loop_scope="module")
ERAS = ["legacy", VERSION]
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
EVERYTHING: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
FORM = Form("Where to?", {"city": str, "days": {"type": "integer", "default": 2}}, name="trip")


@tool
def travel(ctx: Context) -> str:
    """Ask where to go."""
    given = ctx.ask(FORM)
    return f"{given['city']}, {given['days']}" if given else given.action


@tool
def wander(ctx: Context) -> str:
    """Ask where to go, and take a while."""
    city = ctx.ask(FORM)["city"]
    time.sleep(0.5)
    return str(city)


@tool
def everything(ctx: Context) -> str:
    """Ask everything at once, then once more."""
    form, said, roots = ctx.ask(FORM, Sample("a word", system="be brief"), Roots())
    again = ctx.ask(Form("Sure?", {"sure": bool}))
    return f"{form['city']} {said} {roots[0].name} {again['sure']}"


@tool
def consult(ctx: Context) -> str:
    """Ask the client's model."""
    return ctx.ask(Sample("a word")).text


@tool
def make_do(ctx: Context) -> list[str]:
    """Ask what can be asked, and note what cannot."""
    noted = [kind.__name__ for kind in (Form, Sample, Roots) if ctx.can_ask(kind)]
    try:
        ctx.ask(Roots())
    except NotAnswered as error:
        noted.append(str(error))
    return noted


@tool(needs_approval=True)
def consult_later(ctx: Context) -> str:
    """Ask the client's model, once a person has allowed it."""
    return ctx.ask(Sample("a word")).text


BETWEEN, SENT = threading.Event(), threading.Event()


@tool
def announce(ctx: Context) -> str:
    """Send messages before, while and after the client is asked."""

    def send() -> None:
        BETWEEN.wait(BOUND)
        ctx.send_message("between")
        SENT.set()

    ctx.send_message("before")
    threading.Thread(target=send).start()
    ctx.ask(FORM)
    ctx.send_message("after")
    return "done"


FUNCTIONS = (announce, travel, wander, everything, consult, make_do, consult_later)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    async with serving(folder, FUNCTIONS, approval_seconds=20, mcp_tools=1) as server:
        yield server


class Person:
    """A person at a client who answers everything."""

    def __init__(self, action: Any = "accept") -> None:
        self._action = action
        self.forms: list[Any] = []
        self.prompts: list[Any] = []

    async def fill_in(self, context: Any, params: Any) -> ElicitResult:
        self.forms.append(params)
        content: dict[str, Any] = {"sure": True} if "Sure" in params.message else {"city": "Oslo"}
        return ElicitResult(
            action=self._action, content=content if self._action == "accept" else None
        )

    async def say(self, context: Any, params: Any) -> CreateMessageResult:
        self.prompts.append(params)
        text = TextContent(text="fjord")
        return CreateMessageResult(role="assistant", content=text, model="m")

    async def folders(self, context: Any) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri="file:///work", name="work")])  # type: ignore[arg-type]

    def at(self, url: str, era: str) -> Client:
        """A client that can be asked everything."""
        return Client(
            url,
            mode=era,
            elicitation_callback=self.fill_in,
            sampling_callback=self.say,
            list_roots_callback=self.folders,
        )


def text_of(given: Any) -> str:
    found: str = given.content[0].text
    return found


@pytest.mark.parametrize("era", ERAS)
async def test_a_form_is_filled_in_or_not_also_for_a_nested_call(served: Served, era: str) -> None:
    for action, outcome in (("accept", "Oslo, 2"), ("decline", "decline"), ("cancel", "cancel")):
        person = Person(action)

        async with person.at(served.url, era) as client:
            given = await client.call_tool("travel", {})
            nested = await client.call_tool("call_tool", {"name": "travel"})

        assert given.structured_content == nested.structured_content == {"result": outcome}
        assert [form.message for form in person.forms] == ["Where to?"] * 2
        assert person.forms[0].requested_schema["required"] == ["city"]


@pytest.mark.parametrize("era", ERAS)
async def test_several_things_are_asked_at_once_and_others_later(served: Served, era: str) -> None:
    person = Person()

    async with person.at(served.url, era) as client:
        given = await client.call_tool("everything", {})

    assert given.structured_content == {"result": "Oslo fjord work True"}
    assert [form.message for form in person.forms] == ["Where to?", "Sure?"]
    assert person.prompts[0].system_prompt == "be brief"


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_is_asked_only_what_it_can_be(served: Served, era: str) -> None:
    async with Client(served.url, mode=era, sampling_callback=Person().say) as client:
        given = await client.call_tool("make_do", {})

    can, cannot = given.structured_content["result"]
    assert can == "Sample"
    assert cannot == "the client cannot be asked: it does not declare roots"


async def test_after_a_handshake_a_missing_capability_or_a_refusal_is_the_tools_failure(
    served: Served,
) -> None:
    async def refuse(context: Any, params: Any) -> ErrorData:
        return ErrorData(code=-1, message="the user said no")

    for callback, words in ((None, "it does not declare sampling"), (refuse, "the user said no")):
        async with Client(served.url, mode="legacy", sampling_callback=callback) as client:
            given = await client.call_tool("consult", {})

        assert given.is_error
        assert words in text_of(given)


@pytest.mark.parametrize(
    "call",
    [{"name": "consult"}, {"name": "call_tool", "arguments": {"name": "consult"}}],
    ids=["itself", "another"],
)
async def test_in_the_modern_era_a_missing_capability_is_an_error_of_its_own(
    client: httpx.AsyncClient, served: Served, call: dict[str, Any]
) -> None:
    given = await modern_reply(client, served.url, "tools/call", **call)

    assert given.status_code == 400
    error = given.json()["error"]
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"sampling": {}}}


async def test_a_client_that_cancels_while_it_is_asked_ends_its_call(served: Served) -> None:
    is_asked = asyncio.Event()

    async def think(context: Any, params: Any) -> ElicitResult:
        is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    with ending(served.kiln) as ended:
        async with Client(served.url, mode="legacy", elicitation_callback=think) as client:
            calling = asyncio.create_task(client.call_tool("travel", {}))
            async with asyncio.timeout(BOUND):
                await is_asked.wait()
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)

            async with asyncio.timeout(BOUND):
                await ended.wait()


@contextmanager
def ending(kiln: Kiln) -> Iterator[asyncio.Event]:
    """Set when a call ends."""

    class Observer(CallObserver):
        def __init__(self) -> None:
            self.has_ended = asyncio.Event()

        def ended(self, _: RunningCall, __: Result | None, /) -> None:
            self.has_ended.set()

    observer = Observer()
    unsubscribe = kiln.engine.events.subscribe(observer)
    try:
        yield observer.has_ended
    finally:
        unsubscribe()


class Raw:
    """A modern client that answers as it likes."""

    def __init__(self, client: httpx.AsyncClient, url: str, name: str) -> None:
        self._client, self._url, self._name = client, url, name
        self.state: str | None = None

    async def send(self, **responses: Any) -> dict[str, Any]:
        """The answer to the call, made or repeated."""
        more: dict[str, Any] = {"inputResponses": responses} if responses else {}
        if self.state is not None:
            more["requestState"] = self.state
        meta = {"io.modelcontextprotocol/protocolVersion": VERSION, CAPABILITIES: EVERYTHING}
        answer = await modern(
            self._client, self._url, "tools/call", name=self._name, arguments={}, **more, _meta=meta
        )
        self.state = answer.get("result", {}).get("requestState", self.state)
        return answer


OSLO = {"action": "accept", "content": {"city": "Oslo"}}
WORD = {"role": "assistant", "content": {"type": "text", "text": "fjord"}, "model": "m"}


async def test_what_a_client_leaves_out_is_asked_again(
    client: httpx.AsyncClient, served: Served
) -> None:
    raw = Raw(client, served.url, "everything")

    first = (await raw.send())["result"]
    second = (await raw.send(trip=OSLO, other=OSLO))["result"]
    third = (await raw.send(sample_2=WORD, roots_3={"roots": [{"uri": "file:///w"}]}))["result"]
    ended = (await raw.send(form_1={"action": "accept", "content": {"sure": False}}))["result"]

    assert first["inputRequests"].keys() == {"trip", "sample_2", "roots_3"}
    assert second["inputRequests"].keys() == {"sample_2", "roots_3"}
    assert third["inputRequests"].keys() == {"form_1"}
    assert ended["structuredContent"] == {"result": "Oslo fjord  False"}


async def test_a_call_that_resumes_sends_each_message_once(
    client: httpx.AsyncClient, served: Served
) -> None:
    level = {"io.modelcontextprotocol/logLevel": "info"}
    version = {"io.modelcontextprotocol/protocolVersion": VERSION, CAPABILITIES: EVERYTHING}
    call: dict[str, Any] = {"name": "announce", "arguments": {}, "_meta": version | level}

    first = messages(await modern_reply(client, served.url, "tools/call", **call))
    BETWEEN.set()
    assert await asyncio.to_thread(SENT.wait, BOUND)
    state = {"requestState": first[-1]["result"]["requestState"], "inputResponses": {"trip": OSLO}}
    second = messages(await modern_reply(client, served.url, "tools/call", **call, **state))

    sent = [[one["params"]["data"]["value"] for one in heard[:-1]] for heard in (first, second)]
    assert sent == [["before"], ["between", "after"]]
    assert second[-1]["result"]["structuredContent"] == {"result": "done"}


async def test_an_answer_of_another_kind_is_refused_and_the_question_stays(
    client: httpx.AsyncClient, served: Served
) -> None:
    raw = Raw(client, served.url, "travel")

    await raw.send()
    wrong = await raw.send(trip=WORD)
    right = await raw.send(trip=OSLO)
    again = await raw.send(trip={"action": "decline"})

    assert wrong["error"]["code"] == -32602
    assert "trip does not answer the question" in wrong["error"]["message"]
    assert right["result"]["structuredContent"] == {"result": "Oslo, 2"}
    assert again["result"] == right["result"]


async def test_a_named_question_can_be_answered_ahead(
    client: httpx.AsyncClient, served: Served
) -> None:
    quick = await Raw(client, served.url, "travel").send(trip=OSLO, unknown=OSLO)
    slow = await Raw(client, served.url, "wander").send(trip=OSLO)

    assert quick["result"]["structuredContent"] == {"result": "Oslo, 2"}
    assert slow["result"]["structuredContent"] == {"result": "Oslo"}


async def test_a_question_of_a_task_is_answered_as_tasks_are(
    client: httpx.AsyncClient, served: Served
) -> None:
    declared: dict[str, Any] = {"sampling": {}, "extensions": {TASKS: {}}}
    meta = {"io.modelcontextprotocol/protocolVersion": VERSION, CAPABILITIES: declared}

    async def ask(method: str, **params: Any) -> dict[str, Any]:
        answer = await modern(client, served.url, method, _meta=meta, **params)
        found: dict[str, Any] = answer["result"]
        return found

    made = await ask("tools/call", name="consult_later", arguments={})
    guarding, task_id = served.kiln.security, made["taskId"]
    (waiting,) = (one for one in guarding.approvals.waiting() if one.call_id == task_id)
    guarding.approve(waiting.id)
    async with asyncio.timeout(BOUND):
        while "inputRequests" not in (stands := await ask("tasks/get", taskId=task_id)):
            pass
    await ask("tasks/update", taskId=task_id, inputResponses={"sample_1": WORD})
    async with asyncio.timeout(BOUND):
        while (ended := await ask("tasks/get", taskId=task_id))["status"] != "completed":
            pass

    assert stands["status"] == "input_required"
    assert stands["inputRequests"]["sample_1"]["method"] == "sampling/createMessage"
    assert ended["result"]["structuredContent"] == {"result": "fjord"}


async def test_a_client_that_never_comes_back_leaves_nothing(
    client: httpx.AsyncClient, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with serving(tmp_path_factory.mktemp("left"), FUNCTIONS, approval_seconds=1) as server:
        raw = Raw(client, server.url, "everything")
        with ending(server.kiln) as ended:
            await raw.send()
            async with asyncio.timeout(BOUND):
                await ended.wait()
        late = (await raw.send())["result"]

    assert late["isError"]
    assert "did not answer in time" in late["content"][0]["text"]
