"""Call events: who hears of what, in which order, and what an observer cannot do."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from toolkiln.config import Settings
from toolkiln.define import Context, tool
from toolkiln.execution.call_events import CallEvents, CallObserver, EventCallback, RunningCall
from toolkiln.kiln import Kiln
from toolkiln.model.call import Call, Event, Result
from toolkiln.security.masking import Mask

from .observers import RecordingObserver

SECRET = "correct horse battery staple"
LOG = Event(kind="log", text="hello", level="info")


@tool(requires_secrets=["KEY"])
def spill(ctx: Context) -> str:
    """Log a secret, and pass it to another tool."""
    ctx.log(f"it is {ctx.secrets['KEY']}")
    ctx.send_message({ctx.secrets["KEY"]: [ctx.secrets["KEY"]]})
    ctx.inject_tools(ctx.secrets["KEY"])
    ctx.call("repeat", text=ctx.secrets["KEY"])
    return "done"


@tool
def repeat(text: str, ctx: Context) -> str:
    """Log a text.

    Args:
        text: Which.
    """
    ctx.log(f"again {text}")
    ctx.report_progress(1, 2)
    return text


@pytest_asyncio.fixture
async def kiln(tmp_path: Path) -> AsyncIterator[Kiln]:
    """Functions of this process."""
    settings = Settings(
        state=tmp_path / "state",
        environ={"TOOLKILN_SECRET_KEY": SECRET},
        grants={"spill": {"secrets": ["KEY"]}},
    )
    async with Kiln(functions=[spill, repeat], settings=settings) as kiln:
        yield kiln


class Faulty(CallObserver):
    """An observer that always fails."""

    def started(self, call: RunningCall, /) -> None:
        """Fail."""
        raise RuntimeError("start")

    def event(self, call: RunningCall, event: Event, /) -> None:
        """Fail."""
        raise RuntimeError("event")

    def ended(self, call: RunningCall, result: Result | None, /) -> None:
        """Fail."""
        raise RuntimeError("end")


async def test_an_observer_gets_the_start_the_events_and_the_end_of_all_calls(kiln: Kiln) -> None:
    observer = RecordingObserver()
    kiln.engine.events.subscribe(observer)

    result = await kiln.call("repeat", {"text": "x"})

    (call,) = observer.calls
    assert [(name, event.described) for name, event in observer.events] == [
        ("repeat", "again x"),
        ("repeat", "1 of 2"),
    ]
    assert observer.results == [("repeat", "repeat", result)]
    assert call.caller == kiln.security.caller(kiln.security.operator)
    assert call.progress == "1 of 2"


async def test_faults_of_an_observer_are_logged_and_keep_nothing_from_others(
    kiln: Kiln, caplog: pytest.LogCaptureFixture
) -> None:
    observer = RecordingObserver()
    kiln.engine.events.subscribe(Faulty())
    kiln.engine.events.subscribe(observer)

    def observe(event: Event) -> None:
        raise RuntimeError("of the call")

    with caplog.at_level(logging.ERROR):
        result = await kiln.call("repeat", {"text": "x"}, observe=observe)

    faults = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert sorted(faults) == ["end", "event", "event", "of the call", "of the call", "start"]
    assert "an observer of a call of repeat failed" in caplog.text
    assert (result.value, len(observer.events), len(observer.results)) == ("x", 2, 1)


async def test_secrets_are_masked_before_any_observer_sees_them(kiln: Kiln) -> None:
    observer, heard = RecordingObserver(), list[Event]()
    kiln.engine.events.subscribe(observer)

    result = await kiln.call("spill", observe=heard.append)

    texts = [(name, event.text) for name, event in observer.events if event.kind == "log"]
    assert texts == [("spill", "it is [secret:KEY]"), ("repeat", "again [secret:KEY]")]
    assert [event.text for event in heard] == ["it is [secret:KEY]", "", "[secret:KEY]"]
    assert heard[1].value == {"[secret:KEY]": ["[secret:KEY]"]} == result.messages[0]
    assert SECRET not in str(observer.events) + result.model_dump_json()


async def test_a_function_given_with_a_call_gets_the_events_of_that_call_alone(kiln: Kiln) -> None:
    first, second = list[Event](), list[Event]()

    await asyncio.gather(
        kiln.call("repeat", {"text": "a"}, call_id="same", observe=first.append),
        kiln.call("repeat", {"text": "b"}, observe=second.append),
    )

    assert [event.text for event in first if event.kind == "log"] == ["again a"]
    assert [event.text for event in second if event.kind == "log"] == ["again b"]


async def test_an_observer_sees_the_end_of_each_call_whose_start_it_saw_and_no_other() -> None:
    events, early, late = CallEvents(), RecordingObserver(), RecordingObserver()
    unsubscribe = events.subscribe(early)
    call = events.open(Call(tool="show"))
    call.start()
    unsubscribe()
    events.subscribe(late)

    call.emit(LOG)
    call.end(None)

    assert (len(early.calls), len(early.events), len(early.results)) == (1, 1, 1)
    assert (late.calls, late.events, late.results) == ([], [], [])


async def test_an_observer_of_one_call_gets_its_events_until_it_unsubscribes() -> None:
    events, heard = CallEvents(), list[Event]()
    call, other = events.open(Call(tool="show")), events.open(Call(tool="show"))

    unsubscribe = events.subscribe(EventCallback(heard.append), call=call)
    other.emit(LOG)
    call.emit(LOG)
    unsubscribe()
    call.emit(LOG)

    assert heard == [LOG.model_copy(update={"number": 1})]


async def test_nothing_is_reported_after_the_end() -> None:
    events, observer = CallEvents(), RecordingObserver()
    events.subscribe(observer)
    call = events.open(Call(tool="show"))
    call.start()

    call.end(None)
    call.emit(LOG)

    assert (observer.events, len(observer.results)) == ([], 1)


async def test_a_call_that_only_passive_observers_see_is_not_followed() -> None:
    events = CallEvents()
    events.subscribe(RecordingObserver(), passive=True)
    unfollowed = events.open(Call(tool="show"))
    followed = events.open(Call(tool="show"), (RecordingObserver(),))
    nested = events.open(Call(tool="show"), parent=unfollowed)

    assert [call.is_followed for call in (unfollowed, followed, nested)] == [False, True, True]


async def test_a_nested_call_that_waits_for_a_person_is_reported_to_observers_of_the_outer() -> (
    None
):
    events, heard = CallEvents(), list[Event]()
    outer = events.open(Call(tool="outer"), (EventCallback(heard.append),))
    nested = events.open(Call(tool="nested"), parent=outer)

    nested.emit(LOG)
    nested.emit(Event(kind="pending", text="approval"))

    assert heard == [Event(kind="pending", text="approval", number=1)]


async def test_output_that_masking_held_back_is_reported_before_the_end() -> None:
    events, observer = CallEvents(), RecordingObserver()
    events.subscribe(observer)
    call = events.open(Call(tool="show"))
    call.add_secrets(Mask({"KEY": SECRET}))

    call.emit(Event(kind="stdout", text=f"it is {SECRET[:9]}"))
    call.flush(cut=False)

    assert "".join(event.text for _, event in observer.events) == f"it is {SECRET[:9]}"
