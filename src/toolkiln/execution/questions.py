"""Questions of running tools to their callers, checked on the way out and back.

Questions come out of a sandbox and are validated; answers come from a client and are checked
against the question before the tool gets them. The surface of a call decides how to put them
to the caller: it passes a `QuestionChannel`. A call without one cannot ask. Approvals of calls
are in `security.approvals`.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from toolkiln.errors import Unanswered
from toolkiln.model.question import (
    FormAnswer,
    FormQuestion,
    Question,
    QuestionKind,
    Reply,
    RootsAnswer,
    SampleAnswer,
)
from toolkiln.schema.arguments import ArgumentChecker, Problems
from toolkiln.security.masking import Mask


class CallTimer:
    """Timer that runs once, and can be paused."""

    __slots__ = ("_callback", "_due", "_handle", "_left", "_loop", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._due = self._loop.time() + seconds
        self._left: float | None = None
        """While it is paused."""
        self._callback: Callable[[], None] | None = None
        self._handle: asyncio.TimerHandle | None = None

    @property
    def left(self) -> float:
        """Seconds left, also before `start`."""
        return self._due - self._loop.time() if self._left is None else self._left

    def start(self, callback: Callable[[], None]) -> None:
        """Call a function once all seconds from here on have passed."""
        self._callback = callback
        self._run(self._seconds)

    def stop(self) -> None:
        """Cancel the timer."""
        self._callback = None
        if self._handle is not None:
            self._handle.cancel()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the timer within the block."""
        if self._left is not None:  # paused already
            yield
            return
        self._left = left = self.left
        if self._handle is not None:
            self._handle.cancel()
        try:
            yield
        finally:
            self._left = None
            self._run(left)

    def _run(self, seconds: float) -> None:
        self._due = self._loop.time() + seconds
        if self._callback is not None:
            self._handle = self._loop.call_at(self._due, self._callback)


_log = logging.getLogger(__name__)
_MAX_ROUNDS = 50
"""Times that one call may ask, including nested calls."""
_MAX_QUESTIONS = 10
"""Questions of one round."""
_MAX_BYTES = 1 << 20
"""Size of one round."""
CANNOT_ASK = {"error": "the caller cannot be asked: the surface of this call does not support it"}
"""Reply to a tool whose call has no channel."""
_KINDS: dict[str, type[Reply]] = {"form": FormAnswer, "sample": SampleAnswer, "roots": RootsAnswer}

Frame = dict[str, Any]
Ask = Callable[[tuple[Question, ...]], Awaitable[Sequence[Reply]]]
"""Puts questions to a caller and returns an answer for each. Raises Unanswered."""


@dataclass(frozen=True, slots=True)
class QuestionChannel:
    """The way to put questions to the caller of a call."""

    ask: Ask
    kinds: Collection[QuestionKind] = ("form", "sample", "roots")
    """Kinds of questions that tools see as supported; `ask` may still refuse one."""

    def masked(self, mask: Mask) -> "QuestionChannel":
        """Return a channel that masks questions before they leave."""

        async def ask(questions: tuple[Question, ...]) -> Sequence[Reply]:
            frames = [q.model_dump(by_alias=True, exclude_none=True) for q in questions]
            return await self.ask(_parse(mask.value(frames)))

        return QuestionChannel(ask, self.kinds)


class CallQuestions:
    """The questions of one call."""

    def __init__(
        self,
        channel: QuestionChannel,
        timer: CallTimer,
        mask: Mask,
        seconds: float,
        note: Callable[[str], None],
    ) -> None:
        """`mask` has the secrets of the call; the caller has `seconds` to answer."""
        self.kinds = channel.kinds
        self._put = channel.ask
        self._timer = timer
        self._mask = mask
        self._seconds = seconds
        self._note = note
        self._rounds = 0
        self._is_asking = False
        self._replying: set[asyncio.Task[Any] | None] = set()

    @property
    def nested_channel(self) -> QuestionChannel:
        """The channel for nested calls, whose questions count as those of this call."""
        return QuestionChannel(self._ask, self.kinds)

    def stop(self) -> None:
        """Cancel all questions: the call has ended."""
        for task in self._replying:
            if task is not None:
                task.cancel()

    async def reply(self, frames: Any) -> Frame:
        """Ask the caller, and return the reply for the tool: answers or an error."""
        task = asyncio.current_task()
        self._replying.add(task)
        try:
            questions = _parse(self._mask.value(frames))
            async with asyncio.timeout(self._seconds):
                answers = await self._ask(questions)
            if len(answers) != len(questions):
                raise Unanswered("the number of answers differs from that of the questions")
            pairs = zip(questions, answers, strict=True)
            return {"answers": [_answer_frame(*pair) for pair in pairs]}
        except Unanswered as error:
            return {"error": error.message}
        except TimeoutError:
            return {"error": "the caller did not answer in time"}
        except Exception:  # noqa: BLE001 - the surface's fault; the tool must get a reply
            _log.exception("a question of a tool failed")
            return {"error": "the caller could not be asked"}
        finally:
            self._replying.discard(task)

    async def _ask(self, questions: tuple[Question, ...]) -> Sequence[Reply]:
        if self._is_asking:
            raise Unanswered("an earlier question of this call is not answered yet")
        if self._rounds >= _MAX_ROUNDS:
            raise Unanswered(f"a call may ask at most {_MAX_ROUNDS} times")
        if not self._rounds:
            self._note("asked its caller")
        self._rounds += 1
        self._is_asking = True
        try:
            with self._timer.paused():
                return await self._put(questions)
        finally:
            self._is_asking = False


@cache
def _questions() -> TypeAdapter[tuple[Question, ...]]:
    question = Annotated[Question, Field(discriminator="kind")]
    bounds = Field(min_length=1, max_length=_MAX_QUESTIONS)
    return TypeAdapter(Annotated[tuple[question, ...], bounds])


def _parse(frames: Any) -> tuple[Question, ...]:
    if len(json.dumps(frames)) > _MAX_BYTES:
        raise Unanswered(f"the question is larger than {_MAX_BYTES:,} bytes")
    try:
        return _questions().validate_python(frames)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = ".".join(map(str, first["loc"]))
        prefix = f"{path}: " if path else ""
        raise Unanswered(f"this cannot be asked: {prefix}{first['msg']}"[:500]) from None


def _answer_frame(question: Question, answer: Reply) -> Frame:
    if not isinstance(answer, _KINDS[question.kind]):
        raise Unanswered("the answer is of another kind than the question")
    frame = answer.model_dump()
    if isinstance(question, FormQuestion) and isinstance(answer, FormAnswer):
        frame["content"] = _form_content(question, answer) if answer.action == "accept" else {}
    return frame


def _form_content(question: FormQuestion, answer: FormAnswer) -> Frame:
    """Return the fields of the form, with defaults for those left out."""
    schema = question.form_schema
    fields = schema["properties"]
    content = {name: field["default"] for name, field in fields.items() if "default" in field}
    content |= {k: v for k, v in answer.content.items() if k in fields and v is not None}
    checked = ArgumentChecker(schema).check(content)
    if isinstance(checked, Problems):
        raise Unanswered(f"the answer does not match the form: {checked.problems[0].message}"[:500])
    return checked.arguments
