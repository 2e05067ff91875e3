"""Questions of running calls to their callers, and the answers.

A worker stores a question under a key and notifies the caller's reply stream; the caller stores
its answer and notifies the pool's control stream. A question may be delivered more than once but
is asked once. One that replaces another, because a worker restarted the call, is asked again
unless it is the same and still unanswered.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter

from toolkiln.errors import InputError, StoreError, Unanswered
from toolkiln.execution.questions import QuestionChannel
from toolkiln.fleet import keys
from toolkiln.fleet.connection import RedisPipe
from toolkiln.fleet.delivery import ControlMessage
from toolkiln.fleet.message_auth import FleetKeys, seal_bytes, unseal_bytes
from toolkiln.fleet.queue import REPLIES_KEPT_MS, PoolConsumers
from toolkiln.fleet.wire import BODY_LIMIT, CallReply, Envelope, Malformed, pack, read_model, unpack
from toolkiln.model.question import Question, Reply

if TYPE_CHECKING:
    from toolkiln.execution.questions import Ask
    from toolkiln.fleet.worker import EventPublisher

T = TypeVar("T")
_Question = Annotated[Question, Field(discriminator="kind")]
_QUESTIONS: TypeAdapter[tuple[str, tuple[Question, ...]]] = TypeAdapter(
    tuple[str, Annotated[tuple[_Question, ...], Field(min_length=1)]]
)
_ANSWERS = TypeAdapter(tuple[str, list[Reply]])  # the kinds have no fields in common
ANSWER = "answer"
"""Control message that an answer is available."""


def write_questions(
    key: FleetKeys, ids: tuple[str, str], pool: str, questions: Sequence[Question]
) -> bytes:
    """Encode and seal the questions of a call, and the pool of its worker.

    `ids` are the call's record and the question's id.
    """
    values = [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in questions]
    return seal_bytes(key, _purpose("question", ids), pack([pool, values]))


def read_questions(
    key: FleetKeys, ids: tuple[str, str], data: bytes
) -> tuple[str, tuple[Question, ...]]:
    """Decode the pool and the questions.

    Raises:
        Malformed: the bytes are invalid, or belong to another question.
    """
    return read_model(_QUESTIONS, _open(key, "question", ids, data), "a question")


def write_answers(key: FleetKeys, ids: tuple[str, str], answers: Sequence[Reply] | str) -> bytes:
    """Encode and seal an answer for each question, or the reason why there is none.

    Raises:
        Unanswered: an answer has the wrong type or cannot be sent.
    """
    why, replies = (answers, ()) if isinstance(answers, str) else ("", answers)
    if not all(isinstance(item, Reply) for item in replies):
        raise Unanswered("the answer is of another kind than the question")
    try:
        data = pack([why, [item.model_dump() for item in replies]])
    except InputError as error:
        raise Unanswered(error.message) from None
    if len(data) > BODY_LIMIT:
        raise Unanswered(f"the answer has {len(data):,} bytes; the limit is {BODY_LIMIT:,}")
    return seal_bytes(key, _purpose("answer", ids), data)


def read_answers(key: FleetKeys, ids: tuple[str, str], data: bytes) -> list[Reply]:
    """Decode the answers.

    Raises:
        Unanswered: the caller gave none.
        Malformed: the bytes are invalid, or belong to another question.
    """
    why, replies = read_model(_ANSWERS, _open(key, "answer", ids, data), "an answer")
    if why:
        raise Unanswered(why)
    return replies


def _purpose(what: str, ids: tuple[str, str]) -> str:
    return " ".join((what, *ids))


def _open(key: FleetKeys, what: str, ids: tuple[str, str], data: bytes) -> Any:
    content = unseal_bytes(key, _purpose(what, ids), data)
    if content is None:
        raise Malformed(f"the {what} has no valid seal, or belongs to another question")
    return unpack(content)


_ANSWER_MS = 60_000
"""How long an answer is kept for its worker, which is notified at once."""
_RETRY_SECONDS = 60.0
"""Seconds without Redis after which a question or an answer is dropped."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_CLOSE_SECONDS = 1.0
_MAX_REASON = 10_000
_CALLER_GONE = "the caller cannot be asked: it no longer waits for this call"
_ID = re.compile(rb"[0-9a-f]{32}")
_log = logging.getLogger(__name__)


class _Handler:
    """The handler of one call's questions, and the latest of them."""

    def __init__(self, ask: "Ask") -> None:
        self.ask = ask
        self.context = copy_context()
        self.seen: set[str] = set()
        """Questions that were asked or withdrawn."""
        self.id = ""
        self.pool = ""
        self.questions: tuple[Question, ...] = ()
        self.answer: bytes | None = None
        """The answer, in case it must be sent again."""
        self.task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the handler is still working on an answer."""
        task = self.task
        is_running = task is not None and not task.done() and not task.cancelling()
        return is_running and self.answer is None

    def stop(self) -> None:
        """Cancel the handler."""
        if self.task is not None:
            self.task.cancel()


class QuestionHandlers:
    """Caller side: handles the questions of one client's calls."""

    def __init__(self, pipe: RedisPipe, key: FleetKeys) -> None:
        self._pipe = pipe
        self._key = key
        self._handlers: dict[str, _Handler] = {}
        """By record."""
        self._background: set[asyncio.Task[None]] = set()

    @contextmanager
    def register(self, record: str, ask: "Ask") -> Iterator[None]:
        """Handle a call's questions with `ask` during the block; the first handler wins."""
        if record in self._handlers:
            yield
            return
        handler = self._handlers[record] = _Handler(ask)
        try:
            yield
        except asyncio.CancelledError:  # the call may continue without its caller
            if handler.task is not None and not handler.task.done():
                self._start(self._refuse(record, handler.id, handler.pool))
            raise
        finally:
            del self._handlers[record]
            handler.stop()

    def handle(self, reply: CallReply) -> None:
        """Process a `question` or `withdrawn` reply."""
        if not _ID.fullmatch(reply.body):
            return
        record, question = reply.record, reply.body.decode()
        handler = self._handlers.get(record)
        if reply.kind == "question":
            digest = reply.proof.target if reply.proof is not None else ""
            self._start(self._take(record, question, digest))
        elif handler is not None:
            handler.seen.add(question)
            if handler.id == question:
                handler.stop()

    async def close(self) -> None:
        """Wait a second for unsent answers, then stop."""
        if self._background:
            await asyncio.wait(self._background, timeout=_CLOSE_SECONDS)
        for task in self._background:
            task.cancel()

    async def _take(self, record: str, question: str, digest: str) -> None:
        """Fetch a question and pass it on; it may have come before.

        `digest` is that of the body which a worker signed.
        """
        handler = self._handlers.get(record)
        if handler is not None and question in handler.seen:
            if handler.id == question and handler.answer is not None:
                await self._send(record, question, handler.pool, handler.answer)
            return
        try:
            data = await _retry(lambda: self._pipe.command("GET", keys.question(question)))
            if data is None:
                return  # withdrawn, or lost and sent again later
            if self._key.trusted is not None and sha256(data).hexdigest() != digest:
                raise Malformed("no trusted worker signed this question")
            pool, questions = read_questions(self._key, (record, question), data)
        except StoreError as error:
            _log.warning("cannot ask a call's question: %s", error.message)
            return
        handler = self._handlers.get(record)
        if handler is None:
            await self._refuse(record, question, pool)
        elif question not in handler.seen:
            handler.seen.add(question)
            self._start_handler(record, handler, question, pool, questions)

    def _start_handler(
        self,
        record: str,
        handler: _Handler,
        question: str,
        pool: str,
        questions: tuple[Question, ...],
    ) -> None:
        is_same = handler.is_busy and handler.questions == questions
        handler.id, handler.pool, handler.questions = question, pool, questions
        if not is_same:
            handler.stop()
            handler.answer = None
            work = self._ask(record, handler, handler.task)
            handler.task = asyncio.get_running_loop().create_task(work, context=handler.context)

    async def _ask(
        self, record: str, handler: _Handler, previous: "asyncio.Task[None] | None"
    ) -> None:
        if previous is not None:
            await asyncio.wait([previous])  # one question at a time
        try:
            answers = await handler.ask(handler.questions)
            answer = write_answers(self._key, (record, handler.id), answers)
        except Unanswered as error:
            why = error.message[:_MAX_REASON]
            answer = write_answers(self._key, (record, handler.id), why)
        except Exception:  # noqa: BLE001 - a bug in the handler; the tool must not wait for it
            _log.exception("the question handler failed")
            why = "the caller could not be asked"
            answer = write_answers(self._key, (record, handler.id), why)
        handler.answer = answer
        await self._send(record, handler.id, handler.pool, answer)

    async def _refuse(self, record: str, question: str, pool: str) -> None:
        answer = write_answers(self._key, (record, question), _CALLER_GONE)
        await self._send(record, question, pool, answer)

    async def _send(self, record: str, question: str, pool: str, answer: bytes) -> None:
        async def send() -> None:
            await self._pipe.command("SET", keys.answer(question), answer, "PX", _ANSWER_MS)
            await PoolConsumers(self._pipe, pool).send_control(ControlMessage(ANSWER, record))

        try:
            await _retry(send)
        except StoreError as error:
            _log.warning("cannot send an answer: %s", error.message)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def _retry(action: Callable[[], Awaitable[T]]) -> T:
    """Run an idempotent action, and retry while Redis fails, for up to a minute."""
    until, pause = time.monotonic() + _RETRY_SECONDS, _FIRST_PAUSE
    while True:
        try:
            return await action()
        except StoreError:
            if time.monotonic() > until:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


_RECONNECT_CHECK = 1.0
"""Seconds between checks for a reconnect, after which the question is sent again."""
_LONGEST_RESEND_PAUSE = 2.0


class QuestionSender:
    """Worker side: sends the questions of one worker's calls."""

    def __init__(self, pipe: RedisPipe, key: FleetKeys, events: "EventPublisher") -> None:
        self._pipe = pipe
        self._key = key
        self._events = events
        self._answer_events: dict[str, asyncio.Event] = {}
        """By record: set when an answer may be available. A call asks one question at a time."""
        self._background: set[asyncio.Task[None]] = set()

    def channel(self, envelope: Envelope) -> QuestionChannel | None:
        """Return the channel to the caller; None if it cannot be asked."""
        if envelope.asks is None or not envelope.reply_to:
            return None
        return QuestionChannel(partial(self._ask, envelope), envelope.asks)

    def notify_answer(self, record: str) -> None:
        """Look for an answer to a call of this worker."""
        if (event := self._answer_events.get(record)) is not None:
            event.set()

    async def _ask(self, envelope: Envelope, questions: tuple[Question, ...]) -> Sequence[Reply]:
        record, question = envelope.record, token_hex(16)
        event = self._answer_events[record] = asyncio.Event()
        try:
            answers = await self._answers(envelope, question, questions, event)
        except asyncio.CancelledError:  # the call has ended, or the answer timed out
            self._start(self._withdraw(envelope, question))
            raise
        finally:
            if self._answer_events.get(record) is event:
                del self._answer_events[record]
            self._start(self._clear(question))
        return answers

    async def _answers(
        self,
        envelope: Envelope,
        question: str,
        questions: tuple[Question, ...],
        event: asyncio.Event,
    ) -> Sequence[Reply]:
        """Send questions and wait for the answers, across reconnects.

        A question that is sent twice is asked once, and its answer sent again.
        """
        ids = (envelope.record, question)
        data = write_questions(self._key, ids, envelope.pool, questions)
        connects, pause = -1, _FIRST_PAUSE
        while True:
            try:
                if connects != self._pipe.connects:
                    connects = self._pipe.connects
                    expiry = ("PX", REPLIES_KEPT_MS)
                    await self._pipe.command("SET", keys.question(question), data, *expiry)
                    reply = CallReply(envelope.record, "question", question.encode())
                    await self._events.send(envelope, reply, sha256(data).hexdigest())
                with suppress(TimeoutError):
                    async with asyncio.timeout(_RECONNECT_CHECK):
                        await event.wait()
                if event.is_set():
                    event.clear()
                    answer = await self._pipe.command("GET", keys.answer(question))
                    if answer is not None:
                        return read_answers(self._key, ids, answer)
            except Malformed as error:  # the caller's answer is still to come
                _log.warning("ignoring an answer to %s: %s", envelope.tool, error.message)
            except StoreError as error:
                _log.warning(
                    "a question of %s is waiting for Redis: %s", envelope.tool, error.message
                )
                connects = -1
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_RESEND_PAUSE)

    async def _withdraw(self, envelope: Envelope, question: str) -> None:
        with suppress(StoreError):  # a late answer is ignored
            reply = CallReply(envelope.record, "withdrawn", question.encode())
            await self._events.send(envelope, reply)

    async def _clear(self, question: str) -> None:
        with suppress(StoreError):  # they expire anyway
            await self._pipe.command("DEL", keys.question(question), keys.answer(question))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
