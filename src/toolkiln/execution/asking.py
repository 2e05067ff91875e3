"""A running tool's questions to its caller: from what the tool sent to an answer that fits.

Questions come out of a sandbox, so that nothing about them is believed; answers come from a
client, and are held against the question before the tool sees them. How they are put to
somebody is up to the surface that the call came through, which hands over a function; a call
that came without one cannot ask. Who may run a tool is asked elsewhere (`approvals`).
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from toolkiln.errors import Unanswered
from toolkiln.execution.clock import Clock
from toolkiln.execution.masking import Mask
from toolkiln.model import (
    FormAnswer,
    FormQuestion,
    Question,
    QuestionKind,
    Reply,
    RootsAnswer,
    SampleAnswer,
)
from toolkiln.schema import ArgumentChecker, Problems

_log = logging.getLogger(__name__)
_MOST = 50
"""Times that one call may ask, with the calls that it makes."""
_MOST_TOGETHER = 10
_LARGEST = 1 << 20
"""Bytes of what is asked at once."""
CANNOT_ASK = {"error": "the caller cannot be asked: what this call came through has no way to"}
"""What a tool is told if nobody can be asked at all."""
_KINDS: dict[str, type[Reply]] = {"form": FormAnswer, "sample": SampleAnswer, "roots": RootsAnswer}

Frame = dict[str, Any]
Ask = Callable[[tuple[Question, ...]], Awaitable[Sequence[Reply]]]
"""Puts questions to a caller, and gives an answer for each. Raises Unanswered."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How the caller of a call is asked."""

    ask: Ask
    kinds: Collection[QuestionKind] = ("form", "sample", "roots")
    """What tools are told that can be asked; `ask` has the last word."""

    def masked(self, mask: Mask) -> "Asking":
        """The same for what is asked by those who do not know some secrets for what they are."""

        async def ask(questions: tuple[Question, ...]) -> Sequence[Reply]:
            told = [one.model_dump(by_alias=True, exclude_none=True) for one in questions]
            return await self.ask(_read(mask.value(told)))

        return Asking(ask, self.kinds)


class Asker:
    """The questions of one call."""

    def __init__(
        self, asking: Asking, clock: Clock, mask: Mask, seconds: float, note: Callable[[str], None]
    ) -> None:
        """`mask` knows the secrets of the call; whoever is asked has so many `seconds`."""
        self.kinds = asking.kinds
        self._put = asking.ask
        self._clock = clock
        self._mask = mask
        self._seconds = seconds
        self._note = note
        self._asked = 0
        self._is_asking = False
        self._replying: set[asyncio.Task[Any] | None] = set()

    @property
    def within(self) -> Asking:
        """How calls that the tool makes ask: as it does itself, and on its account."""
        return Asking(self._ask, self.kinds)

    def stop(self) -> None:
        """Ask no more: the call is over."""
        for task in self._replying:
            if task is not None:
                task.cancel()

    async def reply(self, sent: Any) -> Frame:
        """What a tool is told that sent questions."""
        task = asyncio.current_task()
        self._replying.add(task)
        try:
            questions = _read(self._mask.value(sent))
            async with asyncio.timeout(self._seconds):
                given = await self._ask(questions)
            if len(given) != len(questions):
                raise Unanswered("there are not as many answers as questions")
            return {"answers": [_fitting(*pair) for pair in zip(questions, given, strict=True)]}
        except Unanswered as error:
            return {"error": error.message}
        except TimeoutError:
            return {"error": "the caller was asked, and did not answer in time"}
        except Exception:  # noqa: BLE001 - the surface's own fault; the tool must not wait for it
            _log.exception("a tool's question could not be asked")
            return {"error": "the caller could not be asked"}
        finally:
            self._replying.discard(task)

    async def _ask(self, questions: tuple[Question, ...]) -> Sequence[Reply]:
        if self._is_asking:
            raise Unanswered("it has asked something else, which is not answered yet")
        if self._asked >= _MOST:
            raise Unanswered(f"one call asks {_MOST} times at most")
        if not self._asked:
            self._note("asked its caller")
        self._asked += 1
        self._is_asking = True
        try:
            with self._clock.resting():
                return await self._put(questions)
        finally:
            self._is_asking = False


@cache
def _questions() -> TypeAdapter[tuple[Question, ...]]:
    one = Annotated[Question, Field(discriminator="kind")]
    bounds = Field(min_length=1, max_length=_MOST_TOGETHER)
    return TypeAdapter(Annotated[tuple[one, ...], bounds])


def _read(sent: Any) -> tuple[Question, ...]:
    """Questions that can be asked.

    Raises:
        Unanswered: they cannot.
    """
    if len(json.dumps(sent)) > _LARGEST:
        raise Unanswered(f"the question is larger than {_LARGEST:,} bytes")
    try:
        return _questions().validate_python(sent)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        where = f"{place}: " if place else ""
        raise Unanswered(f"this cannot be asked: {where}{first['msg']}"[:500]) from None


def _fitting(question: Question, given: Reply) -> Frame:
    """An answer as the tool gets it.

    Raises:
        Unanswered: it answers something else.
    """
    if not isinstance(given, _KINDS[question.kind]):
        raise Unanswered("the answer is of another kind than the question")
    told = given.model_dump()
    if isinstance(question, FormQuestion) and isinstance(given, FormAnswer):
        told["content"] = _filled(question, given) if given.action == "accept" else {}
    return told


def _filled(question: FormQuestion, given: FormAnswer) -> Frame:
    """What was filled in: the fields that were asked for, with the defaults of those left out."""
    schema = question.form_schema
    fields = schema["properties"]
    content = {name: field["default"] for name, field in fields.items() if "default" in field}
    content |= {k: v for k, v in given.content.items() if k in fields and v is not None}
    checked = ArgumentChecker(schema).check(content)
    if isinstance(checked, Problems):
        raise Unanswered(f"the answer does not fit the form: {checked.problems[0].message}"[:500])
    return checked.arguments
