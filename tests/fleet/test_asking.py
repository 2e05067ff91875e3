"""Questions on their way from a worker to a caller, and the answers back, when things go wrong."""

import asyncio
import os
import secrets
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from toolkiln import Context, Kiln, tool
from toolkiln.config import Settings
from toolkiln.errors import StoreError, Unanswered
from toolkiln.fleet import client as client_module
from toolkiln.fleet import keys
from toolkiln.fleet.address import read_address
from toolkiln.fleet.client import FleetClient
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.delivery import ControlMessage
from toolkiln.fleet.message_auth import FleetKeys
from toolkiln.fleet.questions import ANSWER, QuestionSender, write_answers, write_questions
from toolkiln.fleet.queue import Queue
from toolkiln.fleet.supervisor import open_pipe
from toolkiln.fleet.wire import CallReply, Envelope
from toolkiln.fleet.worker import EventPublisher
from toolkiln.model.call import Result
from toolkiln.model.question import (
    FormAnswer,
    FormField,
    FormQuestion,
    Message,
    Question,
    SampleAnswer,
    SampleQuestion,
)
from toolkiln.model.question import Reply as Answer

from .queues import call, calling
from .servers import Server, running
from .workers import Running, asking, tools_folder, until, worker

T = TypeVar("T")
SOON = 30.0
KEY, OTHER_KEY = FleetKeys(b"k" * 32), FleetKeys(b"x" * 32)
NAME = FormQuestion(message="Who?", fields={"name": FormField(type="string")})
OTHER = FormQuestion(message="Where?", fields={"city": FormField(type="string")})
ADA, BOB = [FormAnswer(action="accept", content={"name": name}) for name in ("Ada", "Bob")]
LEFT = "the caller cannot be asked: it no longer waits for this call"


class Person:
    """Is asked, one thing at a time, thinks until `says` has something, and says it."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self._is_busy = False
        self.was_asked, self.was_let_go = asyncio.Event(), asyncio.Event()
        self.says: asyncio.Queue[Answer] = asyncio.Queue()

    async def __call__(self, questions: tuple[Question, ...]) -> list[Answer]:
        assert not self._is_busy
        self.asked += questions
        self._is_busy = True
        self.was_asked.set()
        try:
            return [await self.says.get() for _ in questions]
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.was_let_go.set()
            raise
        finally:
            self._is_busy = False


class Ends:
    """Both ends in one process, on connections of their own."""

    def __init__(
        self, client: FleetClient, queue: Queue, pipe: RedisPipe, behind: "redis.Redis"
    ) -> None:
        self.client = client
        self.queue = queue
        self.questions = QuestionSender(pipe, KEY, EventPublisher(queue))
        self.behind = behind
        self.hears = True

    def envelope(self, **said: Any) -> Envelope:
        return call(reply_to=self.client.reply_to, asks=("form", "sample"), **said)

    def ask(self, envelope: Envelope, question: Question = NAME) -> "asyncio.Task[list[Answer]]":
        """What a call asks, on its way."""
        asking = self.questions.channel(envelope)
        assert asking is not None

        async def ask() -> list[Answer]:
            async with asyncio.timeout(SOON):
                return list(await asking.ask((question,)))

        return asyncio.create_task(ask())

    async def heed(self, control: RedisPipe) -> None:
        """Do as a worker does with messages about answers."""
        last = None
        while True:
            with suppress(StoreError):  # a connection that was broken; it comes back
                last, asks = await self.queue.consumers.read_control(last, 100, control)
                for ask in asks:
                    assert ask.command == ANSWER
                    if self.hears:
                        self.questions.notify_answer(ask.target)

    async def until(self, look: Callable[[], T]) -> T:
        """What a look finds, as soon as that is something."""
        async with asyncio.timeout(SOON):
            while not (found := look()):
                await asyncio.sleep(0.005)
        return found

    async def read(self, count: int) -> None:
        """Until the client has read so many questions."""
        await self.until(lambda: self._gets() >= count)
        await self.client.check()  # behind the answer to that

    def _gets(self) -> int:
        said: Any = self.behind.info("commandstats")  # which leaves out what was not asked
        return int(said.get("cmdstat_get", {"calls": 0})["calls"])

    async def question(self) -> str:
        """The id of the question that waits, once there is one."""
        [key] = await self.until(lambda: list(self.behind.scan_iter("*:question:*")))
        return str(key.decode().rpartition(":")[2])

    async def nothing_is_left(self) -> None:
        """Until all keys of questions and answers are gone."""
        await self.until(lambda: not list(self.behind.scan_iter("toolkiln:body:*")))

    async def tell_of_answer(self, envelope: Envelope, question: str, data: bytes) -> None:
        """As anybody could who may write to Redis."""
        self.behind.set(keys.answer(question), data, ex=60)
        await self.queue.consumers.send_control(ControlMessage(ANSWER, envelope.record))


@pytest.fixture
async def ends(server: Server, behind: Any, pipe: RedisPipe) -> AsyncIterator[Ends]:
    behind.config_resetstat()
    async with (
        open_pipe(RedisPipe(read_address(server.url))) as control,
        calling(server.url, KEY) as client,
    ):
        found = Ends(client, Queue(pipe, "default"), pipe, behind)
        heeding = asyncio.create_task(found.heed(control))
        yield found
        heeding.cancel()


async def soon(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), SOON)


async def test_an_answer_reaches_the_call_and_nothing_is_left(ends: Ends) -> None:
    person, envelope = Person(), ends.envelope()
    person.says.put_nowait(ADA)

    with ends.client.questions.register(envelope.record, person):
        answers = await ends.ask(envelope)

    assert answers == [ADA]
    assert person.asked == [NAME]
    assert ends.questions.channel(call(reply_to=ends.client.reply_to)) is None  # it cannot be asked
    await ends.nothing_is_left()


async def test_answers_that_are_forged_or_to_something_else_are_ignored(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    person, envelope = Person(), ends.envelope()

    with ends.client.questions.register(envelope.record, person):
        asking = ends.ask(envelope)
        question = await ends.question()
        about, another = (envelope.record, question), (envelope.record, "0" * 32)
        genuine = write_answers(KEY, about, [BOB])
        for forged in (
            b"",
            b"\xc1" * 100,
            write_answers(OTHER_KEY, about, [BOB]),
            write_answers(KEY, another, [BOB]),
            write_answers(KEY, ("another", question), [BOB]),
            write_questions(KEY, about, "default", [NAME]),
            genuine[:-1] + b"!",
        ):
            caplog.clear()
            await ends.tell_of_answer(envelope, question, forged)
            await ends.until(lambda: "ignoring an answer" in caplog.text)
        person.says.put_nowait(ADA)
        answers = await asking

    assert answers == [ADA]


async def test_an_answer_that_comes_late_is_not_taken_for_the_next_one(ends: Ends) -> None:
    person, envelope = Person(), ends.envelope()

    with ends.client.questions.register(envelope.record, person):
        first = ends.ask(envelope)
        question = await ends.question()
        await soon(person.was_asked)
        first.cancel()
        await soon(person.was_let_go)
        second = ends.ask(envelope)
        late = write_answers(KEY, (envelope.record, question), [BOB])
        await ends.tell_of_answer(envelope, question, late)
        person.says.put_nowait(ADA)
        answers = await second

    assert answers == [ADA]
    assert person.asked == [NAME, NAME]


async def test_questions_that_no_worker_sent_are_not_asked(ends: Ends) -> None:
    person, envelope = Person(), ends.envelope()
    forged = secrets.token_hex(16)
    about = (envelope.record, forged)
    ends.behind.set(keys.question(forged), write_questions(OTHER_KEY, about, "default", [OTHER]))

    with ends.client.questions.register(envelope.record, person):
        replies = [
            CallReply(envelope.record, "question", body) for body in (forged.encode(), b"\xff", b"")
        ]
        await ends.queue.send(envelope.reply_to, replies)
        person.says.put_nowait(ADA)
        answers = await ends.ask(envelope)

    assert answers == [ADA]
    assert person.asked == [NAME]


async def test_a_question_that_was_lost_on_the_way_is_asked_when_it_comes_again(
    ends: Ends,
) -> None:
    person, envelope, question = Person(), ends.envelope(), secrets.token_hex(16)
    data = write_questions(KEY, (envelope.record, question), "default", [NAME])
    replies = [CallReply(envelope.record, "question", question.encode())]

    with ends.client.questions.register(envelope.record, person):
        await ends.queue.send(envelope.reply_to, replies)
        await ends.read(1)
        ends.behind.set(keys.question(question), data)
        for _ in range(2):
            await ends.queue.send(envelope.reply_to, replies)
        await ends.read(2)
        await soon(person.was_asked)

    assert person.asked == [NAME]


@pytest.mark.parametrize("is_answered", [False, True])
async def test_a_question_outlives_the_loss_of_everything_and_is_asked_once(
    ends: Ends, is_answered: bool
) -> None:
    person, envelope = Person(), ends.envelope()

    with ends.client.questions.register(envelope.record, person):
        asking = ends.ask(envelope)
        await soon(person.was_asked)
        if is_answered:  # and the worker has not read it
            ends.hears = False
            person.says.put_nowait(ADA)
            await ends.until(lambda: list(ends.behind.scan_iter("*:answer:*")))
            ends.hears = True
        ends.behind.flushall()
        ends.behind.client_kill_filter(_type="normal", skipme=True)
        if not is_answered:
            person.says.put_nowait(ADA)
        answers = await asking

    assert answers == [ADA]
    assert person.asked == [NAME]


async def test_the_same_question_of_another_run_takes_the_answer_that_is_awaited(
    ends: Ends,
) -> None:
    person, envelope = Person(), ends.envelope()

    with ends.client.questions.register(envelope.record, person):
        dead = ends.ask(envelope)
        await soon(person.was_asked)
        again = ends.ask(envelope)
        await ends.read(2)
        person.says.put_nowait(ADA)
        answers = await again
        dead.cancel()

    assert answers == [ADA]
    assert person.asked == [NAME]


async def test_another_question_of_another_run_is_asked_in_its_place(ends: Ends) -> None:
    person, envelope = Person(), ends.envelope()

    with ends.client.questions.register(envelope.record, person):
        dead = ends.ask(envelope)
        await soon(person.was_asked)
        again = ends.ask(envelope, OTHER)
        await soon(person.was_let_go)
        person.says.put_nowait(BOB)
        answers = await again
        dead.cancel()

    assert answers == [BOB]
    assert person.asked == [NAME, OTHER]


async def test_a_caller_that_leaves_or_has_left_says_so(ends: Ends) -> None:
    person, envelope = Person(), ends.envelope()

    async def wait() -> None:
        with ends.client.questions.register(envelope.record, person):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    asking = ends.ask(envelope)
    await soon(person.was_asked)
    waiting.cancel()
    with pytest.raises(Unanswered, match=LEFT):
        await asking
    with pytest.raises(Unanswered, match=LEFT):
        await ends.ask(envelope)

    assert person.asked == [NAME]
    await soon(person.was_let_go)


async def test_what_is_too_large_to_be_sent_is_no_answer(ends: Ends) -> None:
    person, envelope = Person(), ends.envelope()
    text = "x" * 4_000_000
    person.says.put_nowait(SampleAnswer(text=text))
    for _ in range(10):
        person.says.put_nowait(SampleAnswer(text=text))
    long = SampleQuestion(messages=(Message(role="user", text="y" * 200_000),), max_tokens=1)
    asking = ends.questions.channel(envelope)
    assert asking is not None

    with ends.client.questions.register(envelope.record, person):
        answers = await ends.ask(envelope, long)
        with pytest.raises(Unanswered, match="the limit is"):
            await asyncio.wait_for(asking.ask((long,) * 10), SOON)

    assert answers == [SampleAnswer(text=text)]
    await ends.nothing_is_left()


async def test_a_callers_time_limit_is_suspended_during_a_question(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_GRACE_SECONDS", 0.0)
    person, envelope = Person(), ends.envelope(timeout_ms=1000)

    with ends.client.questions.register(envelope.record, person):
        calling = asyncio.create_task(ends.client.call(envelope))
        asking = ends.ask(envelope)
        await soon(person.was_asked)
        await asyncio.wait([calling], timeout=1.2)
        is_awaited = not calling.done()
        calling.cancel()
        asking.cancel()
        await asyncio.gather(calling, asking, return_exceptions=True)

    assert is_awaited


# A worker's process


TOOLS = '''
from toolkiln import Context, Form, tool

@tool
def insist(ctx: Context, message: str = "Who are you?") -> str:
    """Take a name for granted."""
    return ctx.ask(Form(message, {"name": str}))["name"]

@tool(idempotent=True)
def insist_again(ctx: Context) -> str:
    """Take a name for granted, as often as it takes."""
    return ctx.ask(Form("Who are you?", {"name": str}))["name"]
'''
SECRET = "correct horse battery staple"
LATE = "the caller did not answer in time"


@tool(requires_secrets=["KEY"])
def tell(ctx: Context) -> str:
    """Have a tool of the fleet ask something with a secret of this process in it."""
    name: str = ctx.call("insist", message=f"Is it {ctx.secrets['KEY']}?")
    return name


@dataclass(frozen=True)
class Fleet:
    """A server with one worker."""

    server: Server
    worker: Running


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One whose worker does not wait long for people."""
    folder = tmp_path_factory.mktemp("fleet")
    tools = tools_folder(folder, "approval_seconds = 2\n", surveys=TOOLS)
    with (
        tempfile.TemporaryDirectory(prefix="toolkiln-redis-", dir="/tmp") as name,
        running(Path(name)) as server,
        worker(server.url, tools) as started,
    ):
        yield Fleet(server, started)


def message(result: Result) -> str:
    return result.error.message if result.error else ""


async def test_a_tool_goes_on_without_those_who_died_or_take_too_long(
    fleet: Fleet, tmp_path: Path
) -> None:
    thinking = Person()

    async with (
        asking(fleet.server) as dead,
        Kiln.connect(fleet.server.url, settings=Settings(state=tmp_path)) as kiln,
    ):
        results = await asyncio.gather(
            kiln.call("insist", ask=thinking), dead.call("insist", asks=("form",))
        )
        await soon(thinking.was_let_go)

    assert [message(result) for result in results] == [LATE, LATE]


async def test_a_call_that_begins_again_asks_again(fleet: Fleet, tmp_path: Path) -> None:
    person = Person()

    async with Kiln.connect(fleet.server.url, settings=Settings(state=tmp_path)) as kiln:
        calling = asyncio.create_task(kiln.call("insist_again", ask=person))
        await soon(person.was_asked)
        with closing(fleet.server.client()) as behind:
            before = set(behind.keys("*:question:*"))
            os.kill(fleet.worker.child(), signal.SIGKILL)
            await asyncio.to_thread(until, lambda: set(behind.keys("*:question:*")) - before)
        person.says.put_nowait(ADA)
        person.says.put_nowait(ADA)  # should the first have gone to the dead
        result = await asyncio.wait_for(calling, SOON)

    assert (result.value, message(result)) == ("Ada", "")


async def test_a_call_that_outlasts_its_caller_cannot_ask(fleet: Fleet, tmp_path: Path) -> None:
    person, settings = Person(), Settings(state=tmp_path)
    call_id = secrets.token_hex(8)

    async with Kiln.connect(fleet.server.url, settings=settings) as kiln:
        opened = kiln.security.sessions.create("ann")
        options: dict[str, Any] = {"session": opened.token, "call_id": call_id}
        calling = asyncio.create_task(kiln.call("insist", ask=person, detached=True, **options))
        await soon(person.was_asked)
    await asyncio.gather(calling, return_exceptions=True)
    async with Kiln.connect(fleet.server.url, settings=settings) as kiln:
        task = await kiln.tasks.wait(call_id, session=opened.token, timeout=SOON)

    assert task.result is not None
    assert message(task.result) == LEFT


async def test_secrets_that_the_fleet_does_not_know_are_masked_in_what_is_asked(
    fleet: Fleet, tmp_path: Path
) -> None:
    person = Person()
    person.says.put_nowait(ADA)
    environ = {**os.environ, "TOOLKILN_SECRET_KEY": SECRET}
    settings = Settings(state=tmp_path, environ=environ, grants={"tell": {"secrets": ["KEY"]}})

    async with Kiln.connect(fleet.server.url, functions=[tell], settings=settings) as kiln:
        result = await kiln.call("tell", ask=person)

    assert result.value == "Ada"
    assert [question.message for question in person.asked] == ["Is it [secret:KEY]?"]  # type: ignore[union-attr]
