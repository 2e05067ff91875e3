"""A caller's end of questions: what calls that are out ask, put to whoever can answer it.

A question is asked once, however often it is told. One that comes in place of another, as a
worker began the call again, is asked anew, unless it is the same and still waits for its
answer. How questions travel is in `questioning`.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from toolkiln.errors import Unanswered
from toolkiln.fleet import keys
from toolkiln.fleet.crew import Crew
from toolkiln.fleet.deliveries import Ask as Request
from toolkiln.fleet.identity import FleetKeys
from toolkiln.fleet.questioning import ANSWER, read_questions, write_answers
from toolkiln.fleet.resp import Pipe
from toolkiln.fleet.wire import Malformed, Reply
from toolkiln.model import Question
from toolkiln.store import StoreError

if TYPE_CHECKING:
    from toolkiln.execution import Ask

T = TypeVar("T")
_KEPT_MS = 60_000
"""How long an answer waits for its worker, which is told of it at once."""
_PATIENCE = 60.0
"""Seconds for which Redis may be away before a question or an answer is given up."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_LAST_WORDS = 1.0
_LONGEST_REASON = 10_000
_LEFT = "the caller cannot be asked: it waits for this call no longer"
_ID = re.compile(rb"[0-9a-f]{32}")
_log = logging.getLogger(__name__)


class _Asker:
    """Who is asked what a call asks, and what that was last."""

    def __init__(self, ask: "Ask") -> None:
        self.ask = ask
        self.context = copy_context()
        self.seen: set[str] = set()
        """Questions that were asked, or want no answer any more."""
        self.id = ""
        self.pool = ""
        self.questions: tuple[Question, ...] = ()
        self.answer: bytes | None = None
        """What was answered, to send it again."""
        self.asking: asyncio.Task[None] | None = None

    @property
    def is_asked(self) -> bool:
        """Whether somebody thinks about an answer."""
        asking = self.asking
        is_at_it = asking is not None and not asking.done() and not asking.cancelling()
        return is_at_it and self.answer is None

    def stop(self) -> None:
        """Let whoever is asked go."""
        if self.asking is not None:
            self.asking.cancel()


class Answers:
    """What the calls of one client ask, and what is answered."""

    def __init__(self, pipe: Pipe, key: FleetKeys) -> None:
        """`key` is the fleet's."""
        self._pipe = pipe
        self._key = key
        self._askers: dict[str, _Asker] = {}
        """By record."""
        self._beside: set[asyncio.Task[None]] = set()

    @contextmanager
    def given_by(self, record: str, ask: "Ask") -> Iterator[None]:
        """Have somebody asked what a call asks, as long as the block runs.

        Of several who await one call, the first.
        """
        if record in self._askers:
            yield
            return
        asker = self._askers[record] = _Asker(ask)
        try:
            yield
        except asyncio.CancelledError:  # the call may go on without its caller
            if asker.asking is not None and not asker.asking.done():
                self._start(self._refuse(record, asker.id, asker.pool))
            raise
        finally:
            del self._askers[record]
            asker.stop()

    def told(self, reply: Reply) -> None:
        """Hear of a question, or that it wants no answer any more."""
        if not _ID.fullmatch(reply.body):
            return
        record, question = reply.record, reply.body.decode()
        asker = self._askers.get(record)
        if reply.kind == "question":
            digest = reply.proof.of if reply.proof is not None else ""
            self._start(self._take(record, question, digest))
        elif asker is not None:
            asker.seen.add(question)
            if asker.id == question:
                asker.stop()

    async def close(self) -> None:
        """Say what is still to be said, if that takes no time."""
        if self._beside:
            await asyncio.wait(self._beside, timeout=_LAST_WORDS)
        for task in self._beside:
            task.cancel()

    async def _take(self, record: str, question: str, digest: str) -> None:
        """Have a question asked that has come, perhaps not for the first time.

        `digest` is that of the body that a worker signed.
        """
        asker = self._askers.get(record)
        if asker is not None and question in asker.seen:
            if asker.id == question and asker.answer is not None:
                await self._send(record, question, asker.pool, asker.answer)
            return
        try:
            data = await _insist(lambda: self._pipe.command("GET", keys.question(question)))
            if data is None:
                return  # withdrawn, or lost: then it comes again
            if self._key.trusted is not None and sha256(data).hexdigest() != digest:
                raise Malformed("it is not what a trusted worker signed")
            pool, asked = read_questions(self._key, (record, question), data)
        except StoreError as error:
            _log.warning("a question of a call cannot be asked: %s", error.message)
            return
        asker = self._askers.get(record)
        if asker is None:
            await self._refuse(record, question, pool)
        elif question not in asker.seen:
            asker.seen.add(question)
            self._put(record, asker, question, pool, asked)

    def _put(
        self, record: str, asker: _Asker, question: str, pool: str, asked: tuple[Question, ...]
    ) -> None:
        is_same = asker.is_asked and asker.questions == asked
        asker.id, asker.pool, asker.questions = question, pool, asked
        if not is_same:
            asker.stop()
            asker.answer = None
            work = self._ask(record, asker, asker.asking)
            asker.asking = asyncio.get_running_loop().create_task(work, context=asker.context)

    async def _ask(self, record: str, asker: _Asker, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait([before])  # whoever is asked has to be free again
        try:
            answers = await asker.ask(asker.questions)
            answer = write_answers(self._key, (record, asker.id), answers)
        except Unanswered as error:
            why = error.message[:_LONGEST_REASON]
            answer = write_answers(self._key, (record, asker.id), why)
        except Exception:  # noqa: BLE001 - the asker's own fault; the tool must not wait for it
            _log.exception("a tool's question could not be asked")
            why = "the caller could not be asked"
            answer = write_answers(self._key, (record, asker.id), why)
        asker.answer = answer
        await self._send(record, asker.id, asker.pool, answer)

    async def _refuse(self, record: str, question: str, pool: str) -> None:
        answer = write_answers(self._key, (record, question), _LEFT)
        await self._send(record, question, pool, answer)

    async def _send(self, record: str, question: str, pool: str, answer: bytes) -> None:
        async def send() -> None:
            await self._pipe.command("SET", keys.answer(question), answer, "PX", _KEPT_MS)
            await Crew(self._pipe, pool).ask(Request(ANSWER, record))

        try:
            await _insist(send)
        except StoreError as error:
            _log.warning("an answer could not be sent: %s", error.message)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)


async def _insist(act: Callable[[], Awaitable[T]]) -> T:
    """What an act gives that does no harm twice, once Redis lets it.

    Raises:
        StoreError: it did not for long.
    """
    until, pause = time.monotonic() + _PATIENCE, _FIRST_PAUSE
    while True:
        try:
            return await act()
        except StoreError:
            if time.monotonic() > until:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
