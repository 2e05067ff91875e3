"""Tools ask their caller: in the sandbox, in a warm worker and in this process."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from security.guarded import records
from tables import each_row
from toolkiln.errors import Unanswered
from toolkiln.kiln import Kiln
from toolkiln.model.call import Status
from toolkiln.model.question import (
    FormAnswer,
    Question,
    Reply,
    RootFolder,
    RootsAnswer,
    SampleAnswer,
)

from . import surveys
from .conftest import kiln_of
from .observers import code

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND = 30.0
SECRET = "correct horse battery staple"
ADA = FormAnswer(action="accept", content={"name": "Ada", "unasked": 1})
SOURCE = Path(surveys.__file__).read_text("utf-8")
WARM = """
import os
import pydantic
from toolkiln import tool

@tool
def which() -> int:
    return os.getpid()
"""


@asynccontextmanager
async def surveying(folder: Path, sources: dict[str, str], **settings: Any) -> AsyncIterator[Kiln]:
    """A Kiln with the tools of `surveys`, which knows a secret."""
    settings |= {
        "environ": {**os.environ, "TOOLKILN_SECRET_KEY": SECRET},
        "grants": {"tell": {"secrets": ["KEY"]}},
        "approval_seconds": 5,
    }
    async with kiln_of(folder, sources, **settings) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sandbox", "inline"])
async def kiln(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Kiln]:
    """The tools of `surveys`, in the sandbox and in this process."""
    folder = tmp_path_factory.mktemp("kiln")
    is_inline = request.param == "inline"
    functions: dict[str, Any] = {"functions": surveys.FUNCTIONS} if is_inline else {}
    async with surveying(folder, {} if is_inline else {"surveys.py": SOURCE}, **functions) as made:
        yield made


class Person:
    """Answers what is asked, and remembers it."""

    def __init__(self, form: FormAnswer = ADA) -> None:
        self._form = form
        self.asked: list[tuple[Question, ...]] = []

    async def __call__(self, questions: tuple[Question, ...]) -> Sequence[Reply]:
        self.asked.append(questions)
        others = SampleAnswer(text="hello"), RootsAnswer(roots=(RootFolder(uri="file:///x"),))
        answers: dict[str, Reply] = {"form": self._form, "sample": others[0], "roots": others[1]}
        return [answers[question.kind] for question in questions]


async def test_an_answer_fits_the_form_and_has_its_defaults(kiln: Kiln) -> None:
    result = await kiln.call("introduce", ask=Person())

    assert result.value == {"action": "accept", "values": {"name": "Ada", "age": 7}}


@each_row("action", ["decline", "cancel"])
async def test_a_person_need_not_answer(kiln: Kiln, action: Any) -> None:
    person = Person(FormAnswer(action=action, content={"name": "Ada"}))

    reported = await kiln.call("introduce", ask=person)
    failed = await kiln.call("insist", ask=person)

    assert reported.value == {"action": action, "values": {}}
    assert failed.error is not None
    assert failed.error.message == f"the form was not filled in: the answer was {action}"


@each_row(
    "content, why",
    [({}, "name"), ({"name": "Ada", "age": -1}, "age"), ({"name": ["Ada"]}, "name")],
)
async def test_what_does_not_fit_the_form_is_no_answer(
    kiln: Kiln, content: dict[str, Any], why: str
) -> None:
    result = await kiln.call("insist", ask=Person(FormAnswer(action="accept", content=content)))

    assert result.error is not None
    assert result.error.type == "NotAnswered"
    assert f"the answer does not match the form: {why}" in result.error.message


async def test_questions_asked_together_are_answered_together(kiln: Kiln) -> None:
    person = Person()

    result = await kiln.call("consult", ask=person)

    assert result.value == [True, "hello", ["file:///x"]]
    ((form, sample, _),) = person.asked
    assert form.form_schema["required"] == ["name"]  # type: ignore[union-attr]
    assert (sample.messages[0].text, sample.system) == ("hi", "be brief")  # type: ignore[union-attr]


async def test_a_tool_knows_what_can_be_asked(kiln: Kiln) -> None:
    person = Person()

    some = await kiln.call("look", ask=person, asks=["sample"])
    everything = await kiln.call("look", ask=person)
    nothing = await kiln.call("look")

    assert some.value == [False, True, False]
    assert everything.value == [True] * 3
    assert nothing.value == [False] * 3


async def test_without_a_person_to_ask_the_tool_gets_an_error(kiln: Kiln) -> None:
    async def absent(_: tuple[Question, ...]) -> Sequence[Reply]:
        raise Unanswered("the caller is away")

    alone = await kiln.call("insist")
    away = await kiln.call("insist", ask=absent)

    assert alone.error is not None
    assert (alone.status, alone.error.type) == (Status.FAILED, "NotAnswered")
    assert "the caller cannot be asked" in alone.error.message
    assert away.error is not None
    assert away.error.message == "the caller is away"


async def test_a_fault_of_the_surface_is_not_the_tools(kiln: Kiln) -> None:
    async def broken(_: tuple[Question, ...]) -> Sequence[Reply]:
        raise ZeroDivisionError

    async def too_few(_: tuple[Question, ...]) -> Sequence[Reply]:
        return []

    async def another_kind(_: tuple[Question, ...]) -> Sequence[Reply]:
        return [RootsAnswer()]

    results = [await kiln.call("insist", ask=one) for one in (broken, too_few, another_kind)]

    assert [result.error and result.error.message for result in results] == [
        "the caller could not be asked",
        "the number of answers differs from that of the questions",
        "the answer is of another kind than the question",
    ]


async def test_timeouts_pause_while_a_person_answers_also_in_nested_calls(kiln: Kiln) -> None:
    async def slowly(questions: tuple[Question, ...]) -> Sequence[Reply]:
        await asyncio.sleep(3.2)  # longer than the tool itself may take
        return await Person()(questions)

    result = await kiln.call("relay_dawdling", ask=slowly)

    assert result.value == "Ada"


async def test_a_call_asks_so_often_and_no_more(kiln: Kiln) -> None:
    person = Person()

    result = await kiln.call("pester", {"times": 60}, ask=person)

    assert result.value == len(person.asked) == 50


async def test_a_cancelled_call_asks_no_more(kiln: Kiln) -> None:
    is_asked, is_over = asyncio.Event(), asyncio.Event()

    async def endless(_: tuple[Question, ...]) -> Sequence[Reply]:
        is_asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_over.set()
        return []

    calling = asyncio.create_task(kiln.call("insist", ask=endless))
    async with asyncio.timeout(BOUND):
        await is_asked.wait()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await is_over.wait()

    assert calling.cancelled()
    assert (await kiln.call("insist", ask=Person())).value == "Ada"


def form(**fields: object) -> list[dict[str, Any]]:
    """A form as it travels."""
    return [{"kind": "form", "message": "", "fields": fields}]


def sample(role: str, text: str = "", tokens: int = 1, messages: int = 1) -> list[dict[str, Any]]:
    """A request for a text as it travels."""
    asked = [{"role": role, "text": text}] * messages
    return [{"kind": "sample", "max_tokens": tokens, "messages": asked}]


BAD: dict[str, Any] = {
    "nothing": [],
    "no list": {"kind": "form"},
    "too many": [{"kind": "roots"}] * 11,
    "no kind": [{}],
    "another kind": [{"kind": "password"}],
    "nested": form(a={"type": "object"}),
    "keyword": form(a={"type": "string", "pattern": "(a+)+"}),
    "fields": form(**{f"f{n}": {"type": "string"} for n in range(51)}),
    "default": form(a={"type": "integer", "default": "x"}),
    "no number": form(a={"type": "number", "default": True}),
    "any items": form(a={"type": "array"}),
    "no choice": form(a={"type": "array", "items": {}}),
    "long": [{"kind": "form", "message": "x" * 10_001, "fields": {}}],
    "large": sample("user", "x" * 199_000, messages=6),
    "role": sample("system"),
    "tokens": sample("user", tokens=0),
    "more": [{"kind": "roots", "token": "x"}],
}


async def test_a_warm_worker_asks_the_caller_of_each_call(tmp_path: Path) -> None:
    async with surveying(tmp_path, {"surveys.py": WARM + SOURCE}) as kiln:
        async with asyncio.timeout(BOUND):
            while (await kiln.call("which")).value == 1:
                pass  # not in a template yet
        first, person = Person(), Person(FormAnswer(action="decline"))
        together = await kiln.call("consult", ask=first)
        declined = await kiln.call("introduce", ask=person)
        alone = await kiln.call("insist")

    assert together.value == [True, "hello", ["file:///x"]]
    assert declined.value == {"action": "decline", "values": {}}
    assert (len(first.asked), len(person.asked)) == (1, 1)
    assert code(alone) == (Status.FAILED, "tool_error")


@each_row("what", BAD)
async def test_invalid_questions_are_not_asked(kiln: Kiln, what: str) -> None:
    person = Person()

    result = await kiln.call("ask_anything", {"questions": BAD[what]}, ask=person)

    assert result.status is Status.FAILED
    assert result.error is not None
    assert person.asked == []
    assert any(word in result.error.message for word in ("cannot be asked", "larger than"))


async def test_secrets_are_masked_in_what_is_asked(kiln: Kiln) -> None:
    person = Person(FormAnswer(action="decline"))

    result = await kiln.call("tell", ask=person)

    assert result.value == "asked"
    assert SECRET not in str(person.asked)
    assert "Is it [secret:KEY]?" in str(person.asked)


async def test_the_audit_says_that_a_call_asked(kiln: Kiln) -> None:
    asked = await kiln.call("insist", ask=Person())
    silent = await kiln.call("look", ask=Person())

    details = {record.call_id: record.detail for record in records(kiln)}
    assert details[asked.call_id].removeprefix("dev; ") == "asked its caller"
    assert details[silent.call_id].removeprefix("dev") == ""
