"""A worker's end of questions: what its calls ask their callers, until there is an answer.

Nothing is asked of a caller who did not say that it can be. How long one waits, what may be
asked and whether an answer fits is for `execution.asking` to say, as for every call; how
questions travel is in `questioning`.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from secrets import token_hex
from typing import Any

from toolkiln.execution import Asking
from toolkiln.fleet import keys
from toolkiln.fleet.identity import FleetKeys
from toolkiln.fleet.questioning import read_answers, write_questions
from toolkiln.fleet.queue import REPLIES_KEPT_MS
from toolkiln.fleet.resp import Pipe
from toolkiln.fleet.telling import Telling
from toolkiln.fleet.wire import Envelope, Malformed
from toolkiln.fleet.wire import Reply as Told
from toolkiln.model import Question, Reply
from toolkiln.store import StoreError

_LOOK = 1.0
"""Seconds between two looks whether Redis was lost meanwhile, and the question with it."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_log = logging.getLogger(__name__)


class Questions:
    """What the calls of one worker ask."""

    def __init__(self, pipe: Pipe, key: FleetKeys, telling: Telling) -> None:
        """`key` is the fleet's."""
        self._pipe = pipe
        self._key = key
        self._telling = telling
        self._answered: dict[str, asyncio.Event] = {}
        """By record: whether somebody says that there is an answer. A call asks one at a time."""
        self._beside: set[asyncio.Task[None]] = set()

    def of(self, envelope: Envelope) -> Asking | None:
        """How the caller of a call is asked; None if nobody can be."""
        if envelope.asks is None or not envelope.reply_to:
            return None
        return Asking(partial(self._ask, envelope), envelope.asks)

    def answered(self, record: str) -> None:
        """Look for the answer to what a call asks, if it is one of this worker's."""
        if (event := self._answered.get(record)) is not None:
            event.set()

    async def _ask(self, envelope: Envelope, questions: tuple[Question, ...]) -> Sequence[Reply]:
        record, question = envelope.record, token_hex(16)
        event = self._answered[record] = asyncio.Event()
        try:
            answers = await self._answers(envelope, question, questions, event)
        except asyncio.CancelledError:  # the call is over, or nobody answered in time
            self._start(self._withdraw(envelope, question))
            raise
        finally:
            if self._answered.get(record) is event:
                del self._answered[record]
            self._start(self._clear(question))
        return answers

    async def _answers(
        self,
        envelope: Envelope,
        question: str,
        questions: tuple[Question, ...],
        event: asyncio.Event,
    ) -> Sequence[Reply]:
        """What is answered, however often Redis is lost meanwhile.

        A question that is sent twice is asked once, and its answer sent again.
        """
        about = (envelope.record, question)
        data = write_questions(self._key, about, envelope.pool, questions)
        connects, pause = -1, _FIRST_PAUSE
        while True:
            try:
                if connects != self._pipe.connects:
                    connects = self._pipe.connects
                    kept = ("PX", REPLIES_KEPT_MS)
                    await self._pipe.command("SET", keys.question(question), data, *kept)
                    told = Told(envelope.record, "question", question.encode())
                    await self._telling.tell(envelope, told, sha256(data).hexdigest())
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await event.wait()
                if event.is_set():
                    event.clear()
                    given = await self._pipe.command("GET", keys.answer(question))
                    if given is not None:
                        return read_answers(self._key, about, given)
            except Malformed as error:  # then the caller's own is still to come
                _log.warning("an answer to %s is ignored: %s", envelope.tool, error.message)
            except StoreError as error:
                _log.warning("a question of %s waits for Redis: %s", envelope.tool, error.message)
                connects = -1
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _withdraw(self, envelope: Envelope, question: str) -> None:
        with suppress(StoreError):  # what is answered all the same is ignored
            told = Told(envelope.record, "withdrawn", question.encode())
            await self._telling.tell(envelope, told)

    async def _clear(self, question: str) -> None:
        with suppress(StoreError):  # else they expire
            await self._pipe.command("DEL", keys.question(question), keys.answer(question))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
