"""Questions of running calls and their answers, as they travel between worker and caller.

Each is a key of its own, whatever its size; that it is there is told by an entry of a stream:
the caller's for a question (`wire.Reply`), the pool's control stream for an answer. Both are
sealed for one question of one run of one call: its id is random, and told to the caller alone.
The worker's end is in `questions`, the caller's in `answers`.
"""

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter

from toolkiln.errors import InputError, Unanswered
from toolkiln.fleet.identity import FleetKeys, sealed, unsealed
from toolkiln.fleet.wire import BODY_LIMIT, Malformed, pack, read_model, unpack
from toolkiln.model import Question, Reply

T = TypeVar("T")
ANSWER = "answer"
"""What workers are asked on the control stream when an answer is there (`deliveries.Ask`)."""


def write_questions(
    key: FleetKeys, about: tuple[str, str], pool: str, questions: Sequence[Question]
) -> bytes:
    """What a call asks at once, and the pool of the worker that waits for the answers.

    `about` is the call's record and the question's id.
    """
    told = [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in questions]
    return sealed(key, _purpose("question", about), pack([pool, told]))


def read_questions(
    key: FleetKeys, about: tuple[str, str], data: bytes
) -> tuple[str, tuple[Question, ...]]:
    """The pool and the questions that `write_questions` wrote.

    Raises:
        Malformed: these bytes are none, or about something else.
    """
    return _read(_questions(), _opened(key, "question", about, data))


def write_answers(key: FleetKeys, about: tuple[str, str], answers: Sequence[Reply] | str) -> bytes:
    """An answer for each question, or why there will be none.

    Raises:
        Unanswered: one of them is no answer, or cannot be sent.
    """
    why, given = (answers, ()) if isinstance(answers, str) else ("", answers)
    if not all(isinstance(one, Reply) for one in given):
        raise Unanswered("the answer is of another kind than the question")
    try:
        data = pack([why, [one.model_dump() for one in given]])
    except InputError as error:
        raise Unanswered(error.message) from None
    if len(data) > BODY_LIMIT:
        raise Unanswered(f"the answer has {len(data):,} bytes, and {BODY_LIMIT:,} can be sent")
    return sealed(key, _purpose("answer", about), data)


def read_answers(key: FleetKeys, about: tuple[str, str], data: bytes) -> list[Reply]:
    """The answers that `write_answers` wrote.

    Raises:
        Unanswered: there are none.
        Malformed: these bytes are none, or about something else.
    """
    why, given = _read(_answers(), _opened(key, "answer", about, data))
    if why:
        raise Unanswered(why)
    return given


def _purpose(what: str, about: tuple[str, str]) -> str:
    return " ".join((what, *about))


def _opened(key: FleetKeys, what: str, about: tuple[str, str], data: bytes) -> Any:
    content = unsealed(key, _purpose(what, about), data)
    if content is None:
        raise Malformed(f"this is no {what} of the fleet's, or to something else")
    return unpack(content)


@cache
def _questions() -> TypeAdapter[tuple[str, tuple[Question, ...]]]:
    one = Annotated[Question, Field(discriminator="kind")]
    return TypeAdapter(tuple[str, Annotated[tuple[one, ...], Field(min_length=1)]])


@cache
def _answers() -> TypeAdapter[tuple[str, list[Reply]]]:
    return TypeAdapter(tuple[str, list[Reply]])  # no two kinds have a field in common


def _read(expected: TypeAdapter[T], content: Any) -> T:
    return read_model(expected, content, "a question or an answer")
