"""What every Kiln does, whether its tools run on this machine or in a fleet."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tables import each_row
from toolkiln import Context, tool
from toolkiln.config import Settings, load
from toolkiln.errors import InputError, NotAllowed, NotFound, StaleVersion, Unanswered, UnknownTool
from toolkiln.kiln import Kiln
from toolkiln.model.admission import ToolDraft
from toolkiln.model.audit import AuditFilter, ChainedRecord
from toolkiln.model.base import Value
from toolkiln.model.call import Call, Event, Result, Status, Task
from toolkiln.model.catalog import FileState
from toolkiln.model.question import (
    FormAnswer,
    FormQuestion,
    Question,
    Reply,
    RootFolder,
    RootsAnswer,
    SampleAnswer,
)
from toolkiln.operations import proposals, secrets, tool_files, toolkits, tools, versions
from toolkiln.operations.operation import Operation
from toolkiln.operations.sources import SourceCall
from toolkiln.schema.arguments import check
from toolkiln.security.sessions import NoSession
from written_tools import write_tool

from .contract_tools import SETTINGS, SOURCE, WRITTEN
from .servers import Server
from .workers import admit, code_of, tools_folder, worker

pytestmark = pytest.mark.asyncio(loop_scope="module")
SOON = 60.0
NUMBERS = count()
STATE_HERE = {"TOOLKILN_STATE": "state"}
BETTER = WRITTEN.replace("number * 3", "number * 6").replace("        6\n", "        12\n")
SAYING = '''
import time
from toolkiln import Context

def say(word: str, ctx: Context) -> dict:
    """Say a word, at a moment that no two runs have in common."""
    ctx.log("saying")
    return {"said": word, "run": time.time_ns()}
'''
UNUSUAL = {
    "null": "\0",
    "big": 2**70,
    "negative": -1,
    "float": 1.5,
    "long": "x" * 400_000,
    "nested": [[None, True, {"": []}]],
}


@tool
def square(number: int) -> int:
    """Square a number, in the process that calls."""
    return number * number


@tool
def add_through(ctx: Context, left: int) -> int:
    """Add two to a number with a tool of a file, from a function of the caller's."""
    value: int = ctx.call("add", left=left)
    return value


@tool
def introduce_from_here(ctx: Context) -> list[Any]:
    """Have a tool of a file ask for a name, from a function of the caller's."""
    value: list[Any] = ctx.call("introduce")
    return value


FUNCTIONS: list[Callable[..., Any]] = [square, add_through, introduce_from_here]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of admitted tools, and settings beside it."""
    parent = tmp_path_factory.mktemp("contract")
    tools = tools_folder(parent, SETTINGS, contract=SOURCE)
    admit(tools, "contract.py")
    return tools


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["embedded", "connected"])
async def kiln(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Kiln]:
    """A Kiln of each kind in turn, over the same tools and rules."""
    if request.param == "embedded":
        settings = load(folder.parent, STATE_HERE)
        async with Kiln(folder, functions=FUNCTIONS, settings=settings) as opened:
            yield opened
        return
    server: Server = request.getfixturevalue("module_server")
    settings = Settings(state=tmp_path_factory.mktemp("caller"))
    with worker(server.url, folder, dev=False):
        async with Kiln.connect(server.url, functions=FUNCTIONS, settings=settings) as opened:
            yield opened


async def test_tools_are_listed_with_the_lightest_first_and_found_by_name(kiln: Kiln) -> None:
    names = list(kiln.services.registry.specs)

    assert names[0] == "divide"
    assert {"add", "send_out", "be_hidden", "square"} <= set(names)
    assert kiln.tool("add").parameters["required"] == ["left"]
    assert kiln.tool("search_tools").name == "search_tools"
    with pytest.raises(UnknownTool) as raised:
        kiln.tool("ad")
    assert "add" in (raised.value.hint or "")


async def test_tools_are_found_by_what_they_are_for_and_compiled_for_providers(kiln: Kiln) -> None:
    found = kiln.search("sum of two numbers", 3)
    chosen = kiln.select("sum of two numbers", 3)
    passages = kiln.library.search_docs("what is divided", 3)
    compiled = [kiln.tools(provider, names=["add"]) for provider in ("openai", "gemini")]
    suitable = kiln.tools("anthropic", "sum of two numbers", 3)

    assert found.hits[0].key in ("add", "add_twice")
    assert {"divide", found.hits[0].key} <= {spec.name for spec in chosen}
    assert passages[0].passage.tool == "divide"
    assert all("left" in json.dumps(tools) for tools in compiled)
    assert "divide" in json.dumps(suitable)


async def test_a_model_s_calls_are_answered(kiln: Kiln) -> None:
    calls = [
        {"id": str(n), "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate([("add", '{"left": 1}'), ("square", '{"number": 4}')])
    ]

    answers = await kiln.handle({"role": "assistant", "content": None, "tool_calls": calls})

    assert [answer["content"] for answer in answers] == ["3", "16"]


async def test_a_call_gives_what_the_tool_returned(kiln: Kiln) -> None:
    result = await kiln.call("add", {"left": 40}, digest=kiln.tool("add").digest)
    back = await kiln.call("give_back", {"value": UNUSUAL})

    assert (result.status, result.value, result.text) == (Status.OK, 42, "42")
    assert (result.tool, result.digest) == ("add", kiln.tool("add").digest)
    assert result.sandbox in ("A", "B", "C")
    assert back.value == UNUSUAL


@each_row(
    "name, arguments, options, ends, says",
    [
        ("ad", {"left": 1}, {}, (Status.INVALID, "unknown_tool"), "add"),
        ("divide", {"dividend": 1, "divisor": 0}, {}, (Status.FAILED, "tool_error"), "divided by"),
        ("last", {"seconds": 30}, {"timeout": 1}, (Status.TIMEOUT, "timeout"), ""),
        ("add", {"left": 1}, {"digest": "0" * 64}, (Status.INVALID, "bad_input"), ""),
        ("divide", {"dividend": "much"}, {}, (Status.INVALID, "invalid_arguments"), "divisor"),
        ("add", {"left": 1}, {"session": None}, (Status.DENIED, "no_session"), ""),
        ("add", {"left": 1}, {"session": "ts_unknown"}, (Status.DENIED, "no_session"), ""),
        *(
            ("give_back", {"value": {"x": given}}, {}, (Status.INVALID, "invalid_arguments"), "")
            for given in ("\ud800", object(), float("nan"), b"bytes", {1: 2})
        ),
    ],
)
async def test_a_call_that_does_not_succeed_says_why(
    kiln: Kiln,
    name: str,
    arguments: dict[str, Any],
    options: dict[str, Any],
    ends: tuple[Status, str],
    says: str,
) -> None:
    result = await kiln.call(name, arguments, **options)

    assert (result.status, code_of(result)) == ends
    assert result.error
    assert says in f"{result.text} {result.error.hint}"


async def test_all_wrong_arguments_are_reported_ahead_or_in_the_call(kiln: Kiln) -> None:
    result = await kiln.call("divide", {"dividend": "much", "divided": 1})
    ahead = str(check(kiln.tool("add"), {"left": "x"}))

    assert "dividend" in result.text
    assert "divisor" in result.text
    assert "left" in ahead


async def test_what_a_tool_hands_out_arrives(kiln: Kiln) -> None:
    seen: list[Event] = []

    result = await kiln.call("send_out", observe=seen.append)

    assert [(e.kind, e.text, e.value, e.index, e.number) for e in seen] == [
        ("file", "data.bin", {"type": "application/octet-stream", "size": 256}, 0, 1),
        ("message", "", {"card": "hello"}, 0, 2),
        ("injected", "add", None, 0, 3),
    ]
    assert 0 < (result.timing.cpu or 0) < 30
    assert 1 << 20 < (result.timing.memory or 0) < 1 << 30
    assert [(file.name, file.data) for file in result.files] == [("data.bin", bytes(range(256)))]
    assert result.messages == ({"card": "hello"},)
    assert result.injected_tools == ("add",)


async def test_a_long_output_can_be_paged_through(kiln: Kiln) -> None:
    result = await kiln.call("write_much", {"characters": 5000})
    assert result.truncation is not None
    assert result.truncation.handle is not None

    page = await kiln.tasks.read_output(result.truncation.handle, offset=4990)

    assert (result.truncation.total, page.text) == (5000, "0123456789")


async def test_a_call_is_watched_while_it_runs_by_observers_that_may_fail(kiln: Kiln) -> None:
    seen: list[Event] = []

    def observe(event: Event) -> None:
        seen.append(event)
        raise RuntimeError("of the observer's own")

    result = await kiln.call("report", {"steps": 3}, observe=observe)

    assert result.value == "reported"
    assert [event.done for event in seen if event.kind == "progress"][-1] == 3
    assert [event.text for event in seen if event.kind == "log"] == ["it begins"]


async def test_an_id_makes_a_call_of_its_caller_run_once(kiln: Kiln) -> None:
    ann, bob = (kiln.security.sessions.create(name).token for name in ("ann", "bob"))

    first, *others = await asyncio.gather(
        *(kiln.call("count_runs", call_id="mine", session=ann) for _ in range(3))
    )
    later = await kiln.call("count_runs", call_id="mine", session=ann)
    other = await kiln.call("count_runs", call_id="other", session=ann)
    his = await kiln.call("count_runs", call_id="mine", session=bob)
    different = await kiln.call("add", {"left": 1}, call_id="mine", session=ann)

    assert {value(one)["run"] for one in (*others, later)} == {value(first)["run"]}
    assert value(other)["run"] != value(first)["run"]
    assert (value(first)["user"], value(his)["user"]) == ("ann", "bob")
    assert (different.status, code_of(different)) == (Status.INVALID, "conflict")


async def test_a_call_that_was_refused_leaves_its_id_free(kiln: Kiln) -> None:
    refused = await kiln.call("divide", {"dividend": 1}, call_id="freed")
    made = await kiln.call("divide", {"dividend": 1, "divisor": 2}, call_id="freed")

    assert refused.status is Status.INVALID
    assert made.value == 0.5


async def test_many_calls_are_answered_in_their_order(kiln: Kiln) -> None:
    calls = [Call(tool="add", arguments={"left": number}) for number in range(5)]
    calls.insert(2, Call(tool="divide", arguments={"dividend": 1, "divisor": 0}))

    results = await kiln.call_many(calls)

    values = [result.value for result in results]
    assert values == [2, 3, None, 4, 5, 6]


async def test_a_call_ends_when_no_caller_awaits_it(kiln: Kiln) -> None:
    running = await begun(kiln, "last", {"seconds": 30}, call_id="stopped")

    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    task = await kiln.tasks.wait("stopped", timeout=SOON)

    assert task.result is not None
    assert task.result.status is Status.CANCELLED


async def test_a_call_in_the_background_is_awaited_by_its_id_and_its_caller(kiln: Kiln) -> None:
    ann, bob = (kiln.security.sessions.create(name).token for name in ("ann", "bob"))
    quick = await kiln.call("add", {"left": 1}, background="auto", session=ann)
    task = await kiln.call("last", {"seconds": 0.5}, background=True, session=ann)
    assert isinstance(task, Task)

    with pytest.raises(NotFound):
        await kiln.tasks.get(task.id, bob)
    ended = await kiln.tasks.wait(task.id, ann, timeout=SOON)
    again = await kiln.tasks.get(task.id, ann)

    assert isinstance(quick, Result)
    assert ended.state == again.state == "done"
    assert ended.result is not None
    assert again.result == ended.result
    assert ended.result.status is Status.OK
    assert task.id in {one.id for one in await kiln.tasks.list(ann)}


async def test_a_call_in_the_background_is_cancelled_by_its_id(kiln: Kiln) -> None:
    task = await kiln.call("last", {"seconds": 30}, background=True)
    assert isinstance(task, Task)

    await kiln.tasks.cancel(task.id)
    ended = await kiln.tasks.wait(task.id, timeout=SOON)

    assert ended.result is not None
    assert ended.result.status is Status.CANCELLED


async def test_functions_run_in_the_process_that_has_them(kiln: Kiln) -> None:
    here = await kiln.call("square", {"number": 7})
    through = await kiln.call("add_through", {"left": 5})
    nested = await kiln.call("add_twice", {"number": 4})

    assert (here.value, here.sandbox) == (49, "none")
    assert (through.value, nested.value) == (7, 8)


async def test_calls_run_for_the_holder_of_their_session(kiln: Kiln) -> None:
    opened = kiln.security.sessions.create("ann", agent_id="helper")

    before = await kiln.call("count_runs", session=opened.token)
    kiln.security.sessions.end(opened.token)
    after = await kiln.call("count_runs", session=opened.token)

    assert (value(before)["user"], value(before)["agent"]) == ("ann", "helper")
    assert after.status is Status.DENIED
    with pytest.raises(NoSession):
        kiln.specs(None)


async def test_callers_are_shown_what_the_rules_let_them_run(kiln: Kiln) -> None:
    ann = kiln.security.sessions.create("ann").token
    limited = kiln.security.sessions.create("cid", tools=["ad*"]).token

    denied = await kiln.call("be_hidden", session=ann)

    assert "be_hidden" in kiln.specs()
    assert "be_hidden" not in kiln.specs(ann)
    assert "be_hidden" not in {hit.key for hit in kiln.search("tell a secret", 50, ann).hits}
    assert set(kiln.specs(limited)) == {"add", "add_twice", "add_through"}
    assert (denied.status, code_of(denied)) == (Status.DENIED, "not_allowed")


async def test_a_call_that_waits_for_a_person_is_a_task_and_runs_once_approved(kiln: Kiln) -> None:
    ann = kiln.security.sessions.create("ann").token

    task = await kiln.call("delete_all", {"what": "notes"}, background="auto", session=ann)
    assert isinstance(task, Task)
    await asyncio.to_thread(kiln.security.approve, await first_pending(kiln, "delete_all"))
    ended = await kiln.tasks.wait(task.id, ann, timeout=SOON)

    assert task.state == "pending"
    assert ended.result is not None
    assert ended.result.value == "deleted notes"


async def test_a_caller_learns_that_its_call_waits_for_a_person(kiln: Kiln) -> None:
    ann = kiln.security.sessions.create("ann").token
    asked = asyncio.Event()

    def observe(event: Event) -> None:
        if event.kind == "pending":
            asked.set()

    running = asyncio.create_task(
        kiln.call("delete_all", {"what": "mail"}, session=ann, observe=observe)
    )
    await asyncio.wait_for(asked.wait(), SOON)
    approval = await first_pending(kiln, "delete_all")
    await asyncio.to_thread(kiln.security.reject, approval, reason="no")
    result = await asyncio.wait_for(running, SOON)

    assert (result.status, code_of(result)) == (Status.DENIED, "rejected")


async def test_a_model_finds_describes_and_calls_tools_by_tools(kiln: Kiln) -> None:
    found = await kiln.call("search_tools", {"query": "sum of two numbers"})
    described = await kiln.call("describe_tool", {"name": "add"})
    called = await kiln.call("call_tool", {"name": "add", "arguments": {"left": 5}})

    assert found.value is not None
    assert "add" in {one["name"] for one in value(found)["tools"]}
    assert "left" in value(described)["parameters"]["properties"]
    assert called.value == 7


async def test_a_tool_that_was_written_can_be_called(kiln: Kiln) -> None:
    name = f"triple_{len(kiln.services.registry.specs)}"  # both kinds write into the same folder
    was_added = asyncio.Event()
    forget = kiln.services.changes.listen(
        lambda change: was_added.set() if name in change.added else None
    )
    async with kiln.services.changes.running():
        written = await kiln.call(
            "write_python_tool",
            {"tool_code": WRITTEN.replace("triple", name), "tool_name": name},
        )
        result = await kiln.call(name, {"number": 14})
        await asyncio.wait_for(was_added.wait(), SOON)
    forget()

    assert value(written)["success"], written
    assert result.value == 42
    assert name in {hit.key for hit in kiln.search("triple a number", 3).hits}


class Person:
    """Answers what is asked, and remembers it."""

    def __init__(self, action: Any = "accept", **content: Any) -> None:
        self._form = FormAnswer(action=action, content=content)
        self.asked: list[Question] = []

    async def __call__(self, questions: tuple[Question, ...]) -> list[Reply]:
        self.asked += questions
        said, folders = SampleAnswer(text="z" * 300_000), (RootFolder(uri="file:///x"),)
        answers: dict[str, Reply] = {"sample": said, "roots": RootsAnswer(roots=folders)}
        return [answers.get(question.kind, self._form) for question in questions]


@each_row("name", ["introduce", "introduce_through", "introduce_from_here"])
async def test_a_tool_asks_its_caller_and_gets_the_answer(kiln: Kiln, name: str) -> None:
    person = Person(name="Ada", unasked=1)

    result = await kiln.call(name, ask=person, asks=["form", "roots"])

    assert value(result) == ["accept", {"name": "Ada", "age": 7}, [True, False, True]]
    [form] = person.asked
    assert isinstance(form, FormQuestion)
    assert (form.message, form.required) == ("Who are you?", ("name",))


async def test_a_person_may_decline_a_form_or_answer_several_questions_at_length(
    kiln: Kiln,
) -> None:
    declined = await kiln.call("introduce", ask=Person("decline"), asks=["form"])
    consulted = await kiln.call("consult", ask=Person())

    assert value(declined)[:2] == ["decline", {}]
    assert value(consulted) == [300_000, ["file:///x"]]


async def test_a_question_without_a_valid_answer_is_an_error_in_the_tool(kiln: Kiln) -> None:
    async def away(_: tuple[Question, ...]) -> list[Reply]:
        raise Unanswered("no one is at home")

    async def broken(_: tuple[Question, ...]) -> list[Reply]:
        raise ZeroDivisionError

    async def another(_: tuple[Question, ...]) -> list[Reply]:
        return [RootsAnswer()]

    async def too_few(_: tuple[Question, ...]) -> list[Reply]:
        return []

    asks: list[Any] = [away, broken, another, too_few, Person(age=-1)]
    results = [await kiln.call("introduce", ask=ask) for ask in asks]
    alone = await kiln.call("introduce")

    assert [result.error and result.error.message for result in (alone, *results)] == [
        "the caller cannot be asked: the surface of this call does not support it",
        "no one is at home",
        "the caller could not be asked",
        "the answer is of another kind than the question",
        "the number of answers differs from that of the questions",
        "the answer does not match the form: name: is required, but missing",
    ]


async def test_a_caller_that_cancels_a_call_gets_no_more_questions(kiln: Kiln) -> None:
    is_asked, is_over = asyncio.Event(), asyncio.Event()

    async def endless(_: tuple[Question, ...]) -> list[Reply]:
        is_asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_over.set()
        return []

    calling = asyncio.create_task(kiln.call("introduce", ask=endless))
    await asyncio.wait_for(is_asked.wait(), SOON)
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    await asyncio.wait_for(is_over.wait(), SOON)

    assert calling.cancelled()


async def test_a_toolkit_is_shown_with_its_methods_disabled_ones_too(kiln: Kiln) -> None:
    run, name = kiln.run_operation, toolkits.ToolkitName(name="Shelf")
    methods = "".join(
        f"    def {method}(self) -> str:\n        'Move a thing of the shelf {method}.'\n"
        for method in ("up", "down")
    )
    code = f"from toolkiln import tool_metadata\n@tool_metadata()\nclass Shelf:\n{methods}"

    written = await run(tool_files.write_file, tool_files.WriteFile(name="shelf", code=code))
    shown = await run(toolkits.get_toolkit, name)
    await run(toolkits.change_toolkit, toolkits.ChangeToolkit(name="Shelf", methods={"up": False}))
    changed = await run(toolkits.get_toolkit, name)
    await run(toolkits.change_toolkit, toolkits.ChangeToolkit(name="Shelf"))
    await run(tools.remove_tool, tools.RemoveTool(name="up", with_others=True))

    assert written.success, written
    assert [(method.name, method.enabled) for method in shown.methods] == [
        ("up", True), ("down", True),
    ]  # fmt: skip
    assert [(method.name, method.enabled) for method in changed.methods] == [
        ("up", False), ("down", True),
    ]  # fmt: skip


async def test_a_tool_is_written_switched_and_taken_back_by_its_name(kiln: Kiln) -> None:
    run = kiln.run_operation
    name = await written(kiln, "quarter")
    first = (await run(tools.tool_state, tools.ToolName(name=name))).spec.digest

    source = BETTER.replace("triple", name)
    beside: dict[str, Any] = {"enable_parallel_execution": True, "return_char_limit": 99}
    order = tool_files.WriteSource(name=name, source=source, match=(first,), **beside)
    better = await run(tool_files.write_source, order)
    state = await run(tools.tool_state, tools.ToolName(name=name))
    off = await run(tools.change_tool, tools.ChangeTool(name=name, enabled=False))
    refused = await kiln.call(name, {"number": 2})
    disabled = await run(tools.list_disabled, tools.ListUnserved())
    on = await run(tools.change_tool, tools.ChangeTool(name=name, enabled=True, match=("*",)))
    called = await kiln.call(name, {"number": 2})
    back = await run(versions.rollback, versions.Rollback(name=name, version="1"))
    history = await run(versions.list_versions, tools.ToolName(name=name))
    second = await run(versions.get_version, versions.GetVersion(name=name, version="2", since="1"))
    again = await kiln.call(name, {"number": 2})
    gone = await run(tools.remove_tool, tools.RemoveTool(name=name, match=(first,)))

    assert (better.authored.success, better.is_new) == (True, False)
    assert (state.spec.parallel, state.spec.limits.return_char_limit) == (True, 99)
    assert (off.enabled, on.enabled, off.version, off.file) == (False, True, 2, f"{name}.py")
    assert refused.status is Status.INVALID
    assert name in {spec.name for spec in disabled}
    assert (called.value, again.value) == (12, 6)
    assert (back.digest, [one.action for one in history]) == (
        first,
        ["rollback", "admit", "admit"],
    )
    assert [one.served for one in history] == [True, False, False]
    assert second.diff is not None
    assert "+    return number * 6" in second.diff
    assert (gone.tools, gone.version) == ((name,), 3)
    assert name not in kiln.services.registry.specs


async def test_what_is_done_about_a_tool_is_about_the_version_that_was_looked_at(
    kiln: Kiln,
) -> None:
    run = kiln.run_operation
    name = await written(kiln, "kept")
    source = BETTER.replace("triple", name)
    stale = ("0" * 64,)
    late: list[tuple[Operation[Any, Any], Value]] = [
        (tool_files.write_source, tool_files.WriteSource(name=name, source=source, match=stale)),
        (tool_files.write_source, tool_files.WriteSource(name=name, source=source, only_new=True)),
        (tools.change_tool, tools.ChangeTool(name=name, enabled=False, match=stale)),
        (tools.remove_tool, tools.RemoveTool(name=name, match=stale)),
        (versions.rollback, versions.Rollback(name=name, version="1", match=())),
    ]

    for operation, request in late:
        with pytest.raises(StaleVersion):
            await run(operation, request)
    with pytest.raises(UnknownTool):
        await run(tools.remove_tool, tools.RemoveTool(name="nothing"))
    with pytest.raises(NotFound):
        await run(versions.get_version, versions.GetVersion(name=name, version="99"))

    assert (await kiln.call(name, {"number": 2})).value == 6


async def test_only_who_has_the_right_does_something_about_tools(kiln: Kiln, folder: Path) -> None:
    run = kiln.run_operation
    name = await written(kiln, "guarded")
    ann = kiln.security.sessions.create("ann").token
    wim = kiln.security.sessions.create(name, privileges=["WRITE_TOOLS"]).token
    beyond: list[tuple[Operation[Any, Any], Value, str]] = [
        (tools.change_tool, tools.ChangeTool(name=name, enabled=False), wim),
        (tools.remove_tool, tools.RemoveTool(name=name), wim),
        (versions.rollback, versions.Rollback(name=name, version="1"), wim),
        (versions.get_version, versions.GetVersion(name=name, version="1"), ann),
        (tools.list_disabled, tools.ListUnserved(), ann),
        (proposals.list_files, proposals.ProposalQuery(), wim),
        (secrets.get_tool_settings, secrets.GetToolSettings(name=name), ann),
    ]

    for operation, request, session in beyond:
        with pytest.raises(NotAllowed):
            await run(operation, request, session)
    with pytest.raises(UnknownTool):
        await run(versions.list_versions, tools.ToolName(name="be_hidden"), ann)
    with pytest.raises(NoSession):
        await run(tools.remove_tool, tools.RemoveTool(name=name), "ts_unknown")
    proposed = await run(
        tool_files.write_source, tool_files.WriteSource(name="w", source=WRITTEN), ann
    )

    assert (proposed.authored.success, proposed.authored.proposed) == (True, True)
    assert (await kiln.call(name, {"number": 2})).value == 6
    records = recorded(folder, AuditFilter(user=name, outcome="denied"))
    assert [one.record.act for one in records][:3] == ["proposals.list", "rollback", "remove"]
    assert {one.record.surface for one in records} == {"python"}


async def test_a_draft_says_where_it_lies_and_what_it_replaces(kiln: Kiln, folder: Path) -> None:
    name = f"nested_{len(kiln.services.registry.specs)}"
    (folder / name).mkdir()
    draft = ToolDraft(WRITTEN.replace("triple", name), name, folder=name)

    made = await write_tool(kiln, draft)
    stale = await write_tool(kiln, replace(draft, overwrite=True, base="0" * 64))
    again = await write_tool(
        kiln, replace(draft, code=BETTER.replace("triple", name), overwrite=True)
    )

    assert (made.success, stale.code, again.success) == (True, "outdated", True)
    assert (folder / name / f"{name}.py").is_file()
    assert (await kiln.call(name, {"number": 1})).value == 6


async def test_a_source_is_run_once_and_nothing_is_kept(kiln: Kiln) -> None:
    names, seen = set(kiln.services.registry.specs), list[Event]()
    wanted = SourceCall(SAYING, {"word": "hello"}, call_id=f"run-{len(names)}")
    ann = kiln.security.sessions.create("ann").token

    ran = await (await kiln.services.prepare_source(wanted))(seen.append)
    again = await (await kiln.services.prepare_source(wanted))(None)
    with pytest.raises(NotAllowed):
        await (await kiln.services.prepare_source(SourceCall(SAYING, session=ann)))(None)
    with pytest.raises(InputError, match="declares no tool"):
        await (await kiln.services.prepare_source(SourceCall("x = 1")))(None)

    assert (ran.tool, value(ran)["said"]) == ("say", "hello")
    assert again.value == ran.value
    assert [event.text for event in seen if event.kind == "log"] == ["saying"]
    assert set(kiln.services.registry.specs) == names


async def test_what_waits_on_disk_is_admitted_or_rejected(kiln: Kiln, folder: Path) -> None:
    run, count = kiln.run_operation, len(kiln.services.registry.specs)
    wanted, unwanted = (f"{word}_{count}" for word in ("wanted", "unwanted"))
    for name in (wanted, unwanted):
        (folder / f"{name}.py").write_text(WRITTEN.replace("triple", name), "utf-8")
    files = (f"{wanted}.py", f"{unwanted}.py")

    waiting = await run(proposals.list_files, proposals.ProposalQuery())
    good, bad = await run(proposals.get_proposals, proposals.ProposalFiles(files=files))
    order = proposals.AdmitProposal(file=good.file, digest=good.digest, base=None)
    admitted = await run(proposals.admit, order)
    called = await kiln.call(wanted, {"number": 2})
    refusal = proposals.ProposalRef(file=bad.file, digest=bad.digest, base=None)
    is_served = await run(proposals.reject, refusal)
    for file, error in ((bad.file, StaleVersion), ("nothing.py", NotFound)):
        with pytest.raises(error):
            await run(proposals.admit, order.model_copy(update={"file": file}))

    assert {*files} <= {*waiting}
    assert (good.state, good.names, admitted.success) == (FileState.NEW, (wanted,), True)
    assert (called.value, is_served) == (6, False)
    assert not {*files} & {*await run(proposals.list_files, proposals.ProposalQuery())}


async def written(kiln: Kiln, word: str) -> str:
    """The name of a tool that was not there before; both kinds write into the same folder."""
    name = f"{word}_{next(NUMBERS)}"
    order = tool_files.WriteSource(name=name, source=WRITTEN.replace("triple", name), only_new=True)
    made = await kiln.run_operation(tool_files.write_source, order)
    assert made.authored.success, made
    return name


def recorded(tools: Path, wanted: AuditFilter) -> list[ChainedRecord]:
    """What the audit has where the tools are, newest first."""
    with Kiln(tools, settings=load(tools.parent, STATE_HERE)) as kiln:
        return list(kiln.security.audit.entries(wanted))


def value(result: Result) -> Any:
    assert result.status is Status.OK, result
    return result.value


async def begun(
    kiln: Kiln, name: str, arguments: dict[str, Any], **options: Any
) -> "asyncio.Task[Result]":
    """A call that has reported an event."""
    started = asyncio.Event()
    observe: Callable[[Event], None] = lambda _: started.set()  # noqa: E731
    running = asyncio.create_task(kiln.call(name, arguments, observe=observe, **options))
    await asyncio.wait_for(started.wait(), SOON)
    return running


async def first_pending(kiln: Kiln, tool: str) -> str:
    """The id of the approval that a call waits for."""
    async with asyncio.timeout(SOON):
        while True:
            waiting = await asyncio.to_thread(kiln.security.approvals.waiting)
            for approval in waiting:
                if approval.tool == tool:
                    return approval.id
            await asyncio.sleep(0.02)
