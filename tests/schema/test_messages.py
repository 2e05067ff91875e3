"""Tool calls in the messages of models, made with the SDKs' own types and as plain dicts."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from anthropic.types import Message as AnthropicMessage
from google.genai import types as gemini
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from tables import each_row
from toolkiln import ToolError, tool
from toolkiln.config import Settings
from toolkiln.errors import InputError
from toolkiln.kiln import Kiln
from toolkiln.security.sessions import NoSession

pytestmark = pytest.mark.asyncio(loop_scope="module")


@tool
def divide(dividend: int, divisor: int = 1) -> float:
    """Divide a number.

    Args:
        dividend: What is divided.
        divisor: What it is divided by.
    """
    if divisor == 0:
        raise ToolError("nothing can be divided by 0")
    return dividend / divisor


@tool
def count_letters(words: dict[str, str]) -> dict[str, int]:
    """Count the letters of words.

    Args:
        words: The words by their names.
    """
    return {name: len(word) for name, word in words.items()}


@tool
def kind_of(value: Any) -> str:
    """Tell the JSON type of a value.

    Args:
        value: Any value.
    """
    return type(value).__name__


class Calling(NamedTuple):
    """A call to be put into a message; `None` as id means that there is none."""

    tool: Any
    arguments: Any
    id: str | None = "c1"

    @property
    def text(self) -> str:
        """The arguments as JSON."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


def response(*calls: Calling) -> dict[str, Any]:
    """A response of OpenAI's."""
    items: list[dict[str, Any]] = [{"type": "reasoning", "id": "r1", "summary": []}]
    items += [
        {"type": "function_call", "call_id": c.id, "name": c.tool, "arguments": c.text}
        for c in calls
    ]
    return {"object": "response", "id": "resp_1", "output": items}


def completion(*calls: Calling) -> dict[str, Any]:
    """A completion of OpenAI's."""
    made = [
        {"id": c.id, "type": "function", "function": {"name": c.tool, "arguments": c.text}}
        for c in calls
    ]
    message = {"role": "assistant", "content": None, "tool_calls": made or None}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {"object": "chat.completion", "id": "chat_1", "choices": [choice]}


def message(*calls: Calling) -> dict[str, Any]:
    """A message of Anthropic's."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "Let me see."}]
    blocks += [
        {"type": "tool_use", "id": c.id, "name": c.tool, "input": c.arguments} for c in calls
    ]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": blocks}


def content(*calls: Calling) -> dict[str, Any]:
    """A response of Gemini's."""
    parts: list[dict[str, Any]] = [{"text": "Let me see.", "thought": True}]
    parts += [{"functionCall": {"id": c.id, "name": c.tool, "args": c.arguments}} for c in calls]
    return {"candidates": [{"content": {"role": "model", "parts": parts}}]}


Make = Callable[..., dict[str, Any]]
SDK: dict[Make, Callable[[dict[str, Any]], Any]] = {
    response: lambda made: Response.construct(**made),
    completion: lambda made: ChatCompletion.construct(**made),
    message: lambda made: AnthropicMessage.construct(**made),
    content: gemini.GenerateContentResponse.model_validate,
}
FORMS = list(SDK)
with_ids = pytest.mark.parametrize("form", [response, completion, message])
each_form = each_row("form", FORMS)


class Said(NamedTuple):
    """One answer, independent of its form."""

    id: str | None
    text: str
    is_error: bool | None
    """None: the form has no place for it."""


def said(answers: list[dict[str, Any]]) -> Iterator[Said]:
    """What is answered, read as the provider would."""
    for answer in answers:
        if answer.get("type") == "function_call_output":
            yield Said(answer["call_id"], answer["output"], None)
        elif answer["role"] == "tool":
            yield Said(answer["tool_call_id"], answer["content"], None)
        elif "parts" in answer:
            for part in answer["parts"]:
                reply = part["functionResponse"]
                ((kind, text),) = reply["response"].items()
                yield Said(reply.get("id"), text, kind == "error")
        else:
            for block in answer["content"]:
                yield Said(block["tool_use_id"], block["content"], block.get("is_error", False))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def kiln(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kiln]:
    settings = Settings(state=tmp_path_factory.mktemp("state"))
    async with Kiln(functions=[divide, count_letters, kind_of], settings=settings) as opened:
        yield opened


@each_form
@each_row("is_sdk", [True, False])
async def test_calls_are_answered_in_their_order(kiln: Kiln, form: Make, is_sdk: bool) -> None:
    made = form(
        Calling("divide", {"dividend": 6, "divisor": 3}, "c1"),
        Calling("divide", {"dividend": 1, "divisor": 0}, "c2"),
        Calling("divide", {"dividend": 9}, "c3"),
    )

    as_sent = SDK[form] if is_sdk else dict
    found = list(said(await kiln.handle(as_sent(made))))

    assert await kiln.handle(as_sent(form())) == []
    assert [one.id for one in found] == ["c1", "c2", "c3"]
    assert [one.text for one in found] == ["2.0", "error: nothing can be divided by 0", "9.0"]
    assert [one.is_error for one in found] in ([None] * 3, [False, True, False])


async def test_each_answer_has_the_form_of_its_provider(kiln: Kiln) -> None:
    good = Calling("divide", {"dividend": 6}, "c1")
    bad = Calling("divide", {"dividend": 6, "divisor": 0}, "c2")
    why = "error: nothing can be divided by 0"

    assert await kiln.handle(response(good, bad)) == [
        {"type": "function_call_output", "call_id": "c1", "output": "6.0"},
        {"type": "function_call_output", "call_id": "c2", "output": why},
    ]
    assert await kiln.handle(completion(good, bad)) == [
        {"role": "tool", "tool_call_id": "c1", "content": "6.0"},
        {"role": "tool", "tool_call_id": "c2", "content": why},
    ]
    failed = {"type": "tool_result", "tool_use_id": "c2", "content": why, "is_error": True}
    assert await kiln.handle(message(good, bad)) == [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "6.0"}, failed],
        }
    ]
    parts = [
        {"functionResponse": {"name": "divide", "response": {"output": "6.0"}, "id": "c1"}},
        {"functionResponse": {"name": "divide", "response": {"error": why}, "id": "c2"}},
    ]
    answers = await kiln.handle(content(good, bad))
    assert answers == [{"role": "user", "parts": parts}]
    assert gemini.Content.model_validate(answers[0]).parts is not None


FOUR = Calling("divide", {"dividend": 4})
PARTS: list[Any] = [
    SDK[response](response(FOUR)).output,
    response(FOUR)["output"][1],
    SDK[completion](completion(FOUR)).choices[0],
    completion(FOUR)["choices"][0]["message"],
    completion(FOUR)["choices"][0]["message"]["tool_calls"],
    SDK[message](message(FOUR)).content,
    message(FOUR)["content"][1],
    {"role": "assistant", "content": message(FOUR)["content"]},
    SDK[content](content(FOUR)).candidates[0].content,
    SDK[content](content(FOUR)).function_calls,
    gemini.FunctionCall(name="divide", args={"dividend": 4}, id="c1"),
    {"function_call": {"name": "divide", "args": {"dividend": 4}, "id": "c1"}},
]


@each_row("part", PARTS)
async def test_parts_of_a_message_are_taken_too(kiln: Kiln, part: object) -> None:
    answers = await kiln.handle(part)

    assert list(said(answers)) in ([Said("c1", "4.0", None)], [Said("c1", "4.0", False)])


@each_row("text", ["hello", [{"type": "text", "text": "hello"}], None])
async def test_an_assistant_that_only_talks_needs_no_answer(kiln: Kiln, text: object) -> None:
    assert await kiln.handle({"role": "assistant", "content": text}) == []


@each_row(
    "given",
    [
        *(None, 7, "divide", {}, [7], object(), SimpleNamespace(text="")),
        {"role": "user", "content": "hello"},
        [{"role": "assistant", "tool_calls": []}],
    ],
)
async def test_an_unknown_response_format_is_bad_input(kiln: Kiln, given: object) -> None:
    with pytest.raises(InputError) as caught:
        await kiln.handle(given)

    assert "SDK" in str(caught.value.hint)


@each_form
async def test_calls_of_other_tools_are_answered_with_the_nearest_name(
    kiln: Kiln, form: Make
) -> None:
    (answer,) = said(await kiln.handle(form(Calling("divid", {"dividend": 1}))))

    assert answer.text == "error: there is no tool named 'divid'\nhint: did you mean 'divide'?"
    assert answer.is_error in (None, True)


@each_form
@each_row("name", [None, 7, {"name": "divide"}])
async def test_a_call_without_a_name_is_answered(kiln: Kiln, form: Make, name: object) -> None:
    (answer,) = said(await kiln.handle(form(Calling(name, {}))))

    assert "names no tool" in answer.text


@each_row("form", [response, completion])
@each_row(
    "text, complaint",
    [
        ('{"dividend": 4', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"dividend": NaN}', "not a JSON number"),
        ("[4]", "not a JSON object"),
        ("", "dividend: is required, but missing"),
        ('{"dividend": "four"}', "dividend: "),
        ('{"dividend": 4, "divisr": 2}', "did you mean 'divisor'?"),
        ("9" * 5_000, "error: "),
    ],
)
async def test_arguments_that_do_not_fit_are_answered(
    kiln: Kiln, form: Make, text: str, complaint: str
) -> None:
    (answer,) = said(await kiln.handle(form(Calling("divide", text))))

    assert answer.text.startswith("error: ")
    assert complaint in answer.text


@each_row("form", [message, content])
@each_row("arguments", [[4], "four", 4, {"dividend": "four"}])
async def test_arguments_of_another_type_are_answered(
    kiln: Kiln, form: Make, arguments: object
) -> None:
    (answer,) = said(await kiln.handle(form(Calling("divide", arguments))))

    assert answer.is_error
    assert answer.text.startswith("error: ")


@with_ids
@each_row("call_id", [None, ""])
async def test_a_call_without_an_id_is_answered_and_not_made(
    kiln: Kiln, form: Make, call_id: str | None
) -> None:
    good, bad = Calling("divide", {"dividend": 4}), Calling("divide", {"dividend": 5}, call_id)

    first, second = said(await kiln.handle(form(bad, good)))

    assert (first.id, "has no id" in first.text) == ("", True)
    assert (second.id, second.text) == ("c1", "4.0")


async def test_gemini_may_leave_out_ids(kiln: Kiln) -> None:
    (answer,) = await kiln.handle(content(Calling("divide", {"dividend": 4}, None)))

    assert answer["parts"] == [
        {"functionResponse": {"name": "divide", "response": {"output": "4.0"}}}
    ]


@each_form
async def test_an_id_of_another_conversation_brings_back_nothing_of_it(
    kiln: Kiln, form: Make
) -> None:
    await kiln.handle(form(Calling("divide", {"dividend": 4}, "call_0")))

    (answer,) = said(await kiln.handle(form(Calling("divide", {"dividend": 5}, "call_0"))))

    assert answer.text == "5.0"


@each_form
async def test_arguments_are_decoded_from_the_strict_form(kiln: Kiln, form: Make) -> None:
    words = [{"key": "a", "value": "four"}]

    (answer,) = said(await kiln.handle(form(Calling("count_letters", {"words": words}))))

    assert json.loads(answer.text) == {"a": 4}


async def test_what_was_left_out_in_strict_form_is_null(kiln: Kiln) -> None:
    call = Calling("divide", {"dividend": 4, "divisor": None})

    (answer,) = said(await kiln.handle(completion(call)))

    assert answer.text == "4.0"


@each_row(
    "form, provider",
    [(response, "openai-responses"), (completion, "openai"), (message, "anthropic")],
)
async def test_the_provider_decides_whether_the_strict_form_is_decoded(
    kiln: Kiln, form: Make, provider: str
) -> None:
    made = form(Calling("kind_of", {"value": "5"}))

    (strict,) = said(await kiln.handle(made))
    (loose,) = said(await kiln.handle(made, provider))

    assert (strict.text, loose.text) == ("int", "str")


@each_form
async def test_a_provider_of_another_form_is_refused(kiln: Kiln, form: Make) -> None:
    with pytest.raises(InputError) as caught:
        await kiln.handle(form(), "mcp")

    assert "one of" in str(caught.value.hint)


async def test_calls_run_for_the_caller_of_the_session(tmp_path: Path) -> None:
    rules = ({"effect": "deny", "users": ("eve",), "reason": "not for Eve"},)
    settings = Settings(state=tmp_path, rules=rules)
    async with Kiln(functions=[divide], settings=settings) as kiln:
        eve = kiln.security.sessions.create("eve").token

        made = message(Calling("divide", {"dividend": 4}))
        (refused,) = said(await kiln.handle(made, session=eve))
        (unknown,) = said(await kiln.handle(made, session="made up"))

        assert (refused.is_error, unknown.is_error) == (True, True)
        assert "not for Eve" in refused.text
        assert kiln.tools("anthropic", session=eve) == []
        with pytest.raises(NoSession):
            kiln.tools("anthropic", session="made up")
