"""Frames: a tool that writes to its call's socket can harm only this call."""

import asyncio
from pathlib import Path

import pytest

from execution.observers import RecordingObserver
from tables import each_row
from toolkiln.model.call import Status

from .conftest import Service, all_gone, one_mode

pytestmark = pytest.mark.asyncio(loop_scope="session")

BROKEN = "killed: output_limit"
LATE = "timeout: timeout"


RAW = [
    ("\xff\xff\xff\xffgarbage", BROKEN),  # a message of 4 GB
    ("\x7f\xff\xff\xff", BROKEN),
    ("\0\0\0\4junk", BROKEN),
    ("\0\0\0\0", BROKEN),
    ("\0\0\0\x02[]", BROKEN),
    ("\0\0\0\x02{}", BROKEN),
    ("\0", LATE),
    ("\0\0\0\x10half", LATE),
    ("", LATE),
]


async def test_bytes_that_are_no_frame_end_the_call(service: Service) -> None:
    codes = await service.codes("say_bytes", [{"data": data} for data, _ in RAW])

    assert codes == [code for _, code in RAW]


NONSENSE = [
    '{"op":"spawn","id":1,"limits":{},"mounts":[],"network":true}',
    '{"op":"kill","id":1}',
    '{"op":"ended","id":1,"status":0,"cpu":0,"memory":0}',
    '{"op":"ready"}',
    '{"op":"load"}',
    '{"op":"_break"}',
    '{"op":"__class__"}',
    '{"op":5}',
    '{"op":["result"]}',
    '{"op":null}',
    '{"value":1}',
    '{"op":"result","value":NaN}',
    '{"op":"result","value":Infinity}',
    '{"op":"result","value":1e999}',
    '{"op":"result","value":-1e999}',
    '{"op":"result","value":"\\ud800"}',
    '{"op":"result","value":{"\\udfff":1}}',
    '{"op":"result","value":"\xed\xa0\x80"}',
    '{"op":"result","value":"\xff"}',
    '{\0"\0o\0p\0"\0:\0"\0r\0e\0s\0u\0l\0t\0"\0}\0',
    '\xef\xbb\xbf{"op":"result","value":1}',
    '{"op":"result","value":' + "9" * 5000 + "}",
    '{"op":"result","value":' + "[" * 1000 + "]" * 1000 + "}",
    '{"op":"result","value":1,"notes":5}',
    '{"op":"result","value":1,"notes":' + str(list(range(200))) + "}",
    '{"op":"result","value":1,"agent_state":[]}',
    '{"op":"tool_result","value":1}',
    '{"op":"tool_result","value":{"ok":true}}',
    '{"op":"tool_result","value":{"ok":true,"stdout":1,"stderr":2}}',
    '{"op":"result","value":1,"cpu":1' + "0" * 400 + "}",
    '{"op":"message"}',
    '{"op":"progress"}',
    '{"op":"progress","done":1' + "0" * 400 + ',"total":1,"message":""}',
    '{"op":"loaded"}',
    '{"op":"loaded","seconds":1' + "0" * 400 + "}",
    '{"op":"file","name":"x","data":"not base64!"}',
    '{"op":"file","name":"x","data":5}',
    '{"op":"inject","names":5}',
    '{"op":"call"}',
    '{"op":"ask"}',
    '{"op":"log"}',
    '{"op":"log","message":"x","level":1' + "0" * 400 + "}",
    "x" * 1000,
]


@one_mode
async def test_frames_that_make_no_sense_end_the_call(service: Service) -> None:
    codes = await service.codes("say", [{"body": body} for body in NONSENSE])

    assert {body: c for body, c in zip(NONSENSE, codes, strict=True) if c != BROKEN} == {}


async def test_a_question_has_to_wait_for_the_answer_to_the_last(service: Service) -> None:
    body = '{"op":"ask","questions":[]}'

    assert (await service.attack("say", body=body, times=2)).status is Status.KILLED


@one_mode
@each_row(
    "kind, code",
    [
        ("deep", BROKEN), ("objects", BROKEN), ("messages", BROKEN), ("progress", BROKEN),
        ("files", BROKEN), ("inject", BROKEN), ("notes", BROKEN), ("state", BROKEN),
        ("error", "failed: tool_error"),
    ],
)  # fmt: skip
async def test_floods_of_frames_end_the_call(service: Service, kind: str, code: str) -> None:
    observer = RecordingObserver()
    unsubscribe = service.kiln.engine.events.subscribe(observer)

    assert await service.code("say_much", kind=kind) == code

    unsubscribe()
    events = [event for tool, event in observer.events if tool == "say_much"]
    assert [event.number for event in events] == [*range(1, len(events) + 1)]
    assert len(events) <= 10_000
    assert max((event.size for event in events if event.kind != "progress"), default=0) < 64_100


async def test_frames_after_the_result_are_ignored(service: Service, marker: str) -> None:
    body = '{"op":"result","value":"first"}'

    once = await service.attack("say", body=body, then=marker)
    twice = await service.attack("say", body=body, then="return", times=3)

    assert once.value == twice.value == "first"
    await all_gone(marker)


async def test_an_error_frame_is_shown_in_bounds(service: Service) -> None:
    body = '{"op":"error","kind":["x"],"type":{"a":1},"message":[],"line":"x","errno":[]}'

    odd = await service.attack("say", body=body)
    long = await service.attack("say_much", kind="error")

    assert odd.status is long.status is Status.FAILED
    assert len(long.model_dump_json()) < 250_000


@one_mode
@each_row(
    "name, kept",
    [
        ("../../x", "x"), ("/etc/passwd", "passwd"), ("..", "file"), (".", "file"), ("", "file"),
        ("a/..", "file"), ("a\\u0000b", "ab"), ("x" * 5000, "x" * 200), ("a/b/", "b"),
    ],
)  # fmt: skip
async def test_names_of_files_are_names_only(service: Service, name: str, kept: str) -> None:
    body = f'{{"op":"file","name":"{name}","data":"eA=="}}'

    result = await service.attack("say", body=body, then="return")

    assert [(file.name, file.data) for file in result.files] == [(kept, b"x")]


@one_mode
async def test_figures_that_make_no_sense_are_left_out(service: Service) -> None:
    body = '{"op":"result","value":1,"cpu":-5,"memory":"much"}'

    timing = (await service.attack("say", body=body, then="return")).timing

    assert (timing.cpu, timing.memory) == (None, None)


@each_row("then, code", [("exit", "failed: no_result"), ("wait", "failed: signalled")])
async def test_hanging_up_ends_the_call(service: Service, then: str, code: str) -> None:
    assert await service.code("hang_up", then=then) == code


async def test_descriptors_that_a_tool_passes_do_not_arrive(service: Service) -> None:
    await service.attack("pass_descriptors", count=1)
    before = len(list(Path("/proc/self/fd").iterdir()))

    assert await service.value("pass_descriptors", count=50) == "passed"

    assert len(list(Path("/proc/self/fd").iterdir())) < before + 50


async def test_calls_of_other_tools_go_through_the_gateway(service: Service) -> None:
    for tool, arguments, outcome in [
        ("good", {"number": 1}, 2),
        ("good", {"number": "x"}, "tool_error"),
        ("nobody", {}, "tool_error"),
        ("ungranted", {}, "refused"),
        ("unsandboxed", {}, "refused"),
    ]:
        result = await service.attack("call_another", tool=tool, arguments=arguments)
        assert (result.error.code if result.error else result.value) == outcome


async def test_many_calls_that_make_calls_do_not_lock_each_other_out(service: Service) -> None:
    cases = {"tool": "good", "arguments": {"number": 1}}

    results = await asyncio.gather(*(service.kiln.call("call_another", cases) for _ in range(40)))

    assert {(str(result.status), result.value) for result in results} == {("ok", 2)}


async def test_a_tool_that_calls_itself_is_stopped(service: Service) -> None:
    assert await service.code("call_oneself") == "denied: refused"


async def test_unread_replies_are_not_kept(service: Service) -> None:
    assert await service.code("call_without_reading", tool="gigantic_text") == BROKEN


async def test_replacing_all_modules_harms_no_other_call(service: Service) -> None:
    result = await service.attack("replace_everything")

    assert result.value == "replaced" or result.error is not None
