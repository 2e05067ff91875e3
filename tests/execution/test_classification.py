"""What a returned value says of its call: an answer, a failure, a refusal."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each_row
from toolkiln.define import ToolDenied, ToolError, ToolResult
from toolkiln.execution.classification import Failure, failure_in
from toolkiln.execution.executor import ExecutionOutcome, Invocation
from toolkiln.execution.inline import InlineExecutor
from toolkiln.execution.refusals import is_refusal
from toolkiln.frameworks import suna
from toolkiln.model.call import Status
from toolkiln.model.spec import Dialect, ToolSpec
from toolkiln.model.tool import ResolvedTool

from .returned_values import DENIED, FAILED, RESULTS

REFUSALS = [
    "Permission denied",
    "permission denied.",
    "PERMISSION_DENIED",
    "❌ **Error:** Permission denied: rm",
    "> _Access denied_",
    "Access denied",
    "Access denied to /etc/shadow",
    "Access denied\nDetails: policy 4",
    "[ERROR] Access denied (policy 4)",
    "🚫 Access to billing is denied.",
    "Error: Not authorized to do this",
    "Not authorised",
    "Unauthorized",
    "HTTP error 401: Unauthorized",
    "403 Forbidden",
    "Forbidden.",
    "Forbidden: guests cannot do that",
    "You do not have permission to do this.",
    "You don't have the ADMIN privilege.",
    "You don’t have sufficient rights for that.",
    "You do not have the required `WRITE_TOOLS` privilege for this. Ask an operator.",
    "You lack the permission to delete channels.",
    "You are not authorized to use this command.",
    "This action is not allowed",
    "This action is not permitted for guests.",
    "Your request was denied because it is late.",
    "run_shell requires the UNSANDBOXED_EXEC privilege",
    "Deleting requires the files.write permission.",
    "⛔ This requires ADMIN privilege",
    "I am not allowed to do that.",
    "I'm sorry, but I'm not permitted to share it",
    "Operation not permitted",
    "denied: by policy",
    "Denied - ask an admin",
    "\x1b[31mAccess denied\x1b[0m",
    "<p><b>Access denied</b></p>",
    "\ud800 Permission denied",
]
ANSWERS = [
    "",
    " ",
    "ok",
    "Zugriff",
    "Forbidden City is a palace in Beijing.",
    "Forbidden in Germany since 1995",
    "Unauthorized biographies sell well.",
    "Permission denied errors are caused by file modes.",
    "Access control lists say who may read and who may not.",
    "Access to the park is easy by bus.",
    "You don't have to ask for permission to enter.",
    "You have permission to go.",
    "You are not allowed to park here on Sundays.",
    "The permission was granted.",
    "Entering the base requires the permission of the commander.",
    "Denied Boarding Regulation",
    "Nothing was denied.",
    "Request accepted",
    "Not allowed characters: a, b",
    "bash: /root: Permission denied",
    "The log says: Permission denied",
    "Permission denied. That is what it says. It means that the file has other modes.",
    "Permission denied\n" * 3,
    "Permission denied " + "x" * 300,
    "Access denied: " + "a line of a log that is long " * 20,
    "401",
    "error",
    "\ud800",
    "!" * 300,
]


@each_row("text", REFUSALS)
def test_a_returned_refusal_is_distinguished_from_an_answer(text: str) -> None:
    failure = failure_in(text)

    assert failure is not None
    assert failure.refused
    assert failure.text == text.strip()


@each_row("text", ANSWERS)
def test_an_ordinary_text_is_an_answer(text: str) -> None:
    assert failure_in(text) is None


@each_row("text", REFUSALS)
@each_row(
    "wrap",
    [
        lambda text: {"success": False, "error": text},
        lambda text: {"ok": False, "message": text},
        lambda text: {"status": "error", "message": text, "data": [1]},
        lambda text: {"isError": True, "content": [{"type": "text", "text": text}]},
        lambda text: {"error": text},
    ],
)
def test_a_failure_in_words_of_refusal_is_a_refusal(text: str, wrap: Any) -> None:
    failure = failure_in(wrap(text))

    assert failure == (text, True)


NOTHING = "the tool reports a failure"


@each_row(
    "value, text",
    [
        ({"success": False}, NOTHING),
        ({"success": False, "error": None, "data": {"a": 1}}, NOTHING),
        ({"success": False, "error": "no such file"}, "no such file"),
        ({"success": False, "error": " ", "message": "no such file"}, "no such file"),
        ({"success": False, "reason": "too late"}, "too late"),
        ({"success": False, "detail": "too late", "data": [1]}, "too late"),
        ({"success": False, "output": "partial"}, "partial"),
        ({"success": False, "error": {"message": "nested", "code": 3}}, "nested"),
        ({"success": False, "error": 17}, NOTHING),
        ({"ok": False, "error": "channel_not_found"}, "channel_not_found"),
        ({"ok": False}, NOTHING),
        ({"status": "error", "message": "it broke"}, "it broke"),
        ({"status": " ERROR ", "error": "it broke", "data": {}}, "it broke"),
        ({"status": "failed", "message": "it broke", "step": 3}, "it broke"),
        ({"isError": True, "content": [{"type": "text", "text": "it broke"}]}, "it broke"),
        ({"isError": True, "content": [{"text": "a"}, {"data": ""}, {"text": "b"}]}, "a\nb"),
        ({"isError": True, "content": "it broke"}, "it broke"),
        ({"isError": True}, NOTHING),
        ({"is_error": True, "content": []}, NOTHING),
        ({"error": "it broke"}, "it broke"),
        ({"error": "it broke", "result": None, "items": [], "note": ""}, "it broke"),
        ({"error": "it broke", "code": 42, "hint": "turn it off", "retryable": False}, "it broke"),
        ({"error": "not found", "status": 404}, "not found"),
        ({"error": {"message": "it broke", "code": 3}}, "it broke"),
    ],
)
def test_a_returned_failure_is_distinguished_from_an_answer(value: Any, text: str) -> None:
    assert failure_in(value) == (text, False)


@each_row(
    "text, failure",
    [
        ('{"success": false, "error": "permission denied"}', ("permission denied", True)),
        (' {"ok": false, "error": "channel_not_found"}\n', ("channel_not_found", False)),
        ('{\n  "error": "it broke",\n  "code": 3\n}', ("it broke", False)),
        ('{"success": false}', (NOTHING, False)),
        ('{"success": true, "message": "Permission denied"}', None),
        ('{"rows": [{"success": false}]}', None),
        ('[{"success": false}]', None),
        ('{"success": false', None),
        ('{"success": false}, {"success": false}', None),
        ('{"a": ' * 50_000 + "1" + "}" * 50_000, None),
        ('{"success": false, "data": "' + "x" * 20_000 + '"}', None),
    ],
)
def test_an_object_written_as_json_means_the_same(
    text: str, failure: tuple[str, bool] | None
) -> None:
    assert failure_in(text) == failure


@each_row("status", ["denied", "forbidden", "Unauthorized", "unauthorised"])
def test_a_status_of_refusal_with_words_is_a_refusal(status: str) -> None:
    assert failure_in({"status": status, "message": "not for you"}) == ("not for you", True)
    assert failure_in({"success": False, "status": status}) == (NOTHING, True)


@each_row(
    "value",
    [
        None,
        False,
        True,
        0,
        [],
        {},
        ["Permission denied"],
        [{"success": False, "error": "x"}],
        {"success": True},
        {"success": True, "error": "x"},
        {"success": True, "message": "Permission denied"},
        {"success": True, "status": "error", "message": "x"},
        {"ok": True, "error": "a warning"},
        {"success": "false"},
        {"success": 0, "data": 1},
        {"ok": None, "data": 1},
        {"status": "error"},
        {"status": "denied"},
        {"status": "error", "count": 3},
        {"status": "error_rate", "message": "0.2 %"},
        {"status": "errors", "error": "", "message": "none"},
        {"status": ["error"], "message": "x"},
        {"status": "ok", "error": "x"},
        {"status": 200, "error": "x"},
        {"error": None, "result": 3},
        {"error": "", "result": None},
        {"error": 0.02},
        {"error": ["a", "b"]},
        {"error": "missing comma", "valid": False},
        {"error": "x", "rows": 0},
        {"error": "Fehler", "warning": "Warnung"},
        {"message": "it broke"},
        {"result": {"success": False, "error": "x"}},
        {"isError": False, "content": [{"text": "Permission denied"}]},
        {"isError": "true", "content": []},
    ],
)
def test_other_values_are_answers(value: Any) -> None:
    assert failure_in(value) is None


SEEN = {"denied": DENIED, "failed": FAILED, "ok": RESULTS}
"""The rules were written with these in view, and not with those in the file."""
HELD_OUT = (Path(__file__).parent / "held_out_values.jsonl").read_text("utf-8")


@pytest.mark.parametrize(
    ("labelled", "size"),
    [
        ([(label, value) for label, values in SEEN.items() for value in values], 300),
        ([tuple(json.loads(line)) for line in HELD_OUT.splitlines()], 600),
    ],
    ids=["seen", "held out"],
)
def test_a_corpus_of_returns_is_classified_precisely(
    labelled: list[tuple[str, Any]], size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """`docs/writing-tools.md` has these figures."""
    found = [(label, _status(failure_in(value)), value) for label, value in labelled]
    wrong = [row for row in found if row[0] != row[1]]

    with capsys.disabled():
        print(f"\n{len(found)} labelled returns, {len(wrong)} classified wrongly")
        for status in ("denied", "failed"):
            right = sum(label == status == given for label, given, _ in found)
            precision = right / sum(given == status for _, given, _ in found)
            recall = right / sum(label == status for label, _, _ in found)
            print(f"{status}: precision {precision:.3f}, recall {recall:.3f}")
            assert precision >= 0.98, wrong
            assert recall >= 0.98, wrong
    assert len(found) >= size


def _status(failure: Failure | None) -> str:
    if failure is None:
        return "ok"
    return "denied" if failure.refused else "failed"


MARKS = {"success", "ok", "status", "error", "isError", "is_error"}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=8) | st.sampled_from(sorted(MARKS | {"message", "detail"})),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=6))
def test_an_object_without_marks_is_an_answer(value: dict[str, Any]) -> None:
    unmarked = {name: content for name, content in value.items() if name not in MARKS}

    assert failure_in(unmarked) is None


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=6))
def test_an_object_that_says_success_is_an_answer(value: dict[str, Any]) -> None:
    unmarked = {name: content for name, content in value.items() if "rror" not in name}

    assert failure_in({**unmarked, "success": True}) is None


@given(st.text() | st.lists(st.sampled_from([*REFUSALS, " ", ".", "\n", "x"])).map("".join))
def test_any_text_can_be_classified(text: str) -> None:
    assert is_refusal(text) in (True, False)
    if len(text) > 300:
        assert failure_in(text) is None


@each_row("part", ["'", "(", "- ", "have expired ", "policy tool ", "only the owner of ", "a.b."])
def test_a_long_text_is_classified_by_patterns_that_do_not_backtrack(part: str) -> None:
    failure_in((part * 300)[:300])  # one that does would not end in a lifetime

    assert is_refusal(part * 10_000) == is_refusal(part * 2000)


def outcome_of(function: Any) -> ExecutionOutcome:
    """What becomes of a function's own way to end."""
    spec = ToolSpec(
        name="f", description="", parameters={}, dialect=Dialect.FUNCTION, entry="f",
        display_name="F", digest="0", path="f.py", line=1,
    )  # fmt: skip

    async def run() -> ExecutionOutcome:
        executor = InlineExecutor()
        try:
            return await executor.run(Invocation(ResolvedTool(spec, dict, function=function), {}))
        finally:
            await executor.close()

    return asyncio.run(run())


def ends(outcome: ExecutionOutcome) -> tuple[Status, str | None, str | None]:
    if outcome.error is None:
        return outcome.status, None, None
    return outcome.status, outcome.error.code, outcome.error.message


@each_row(
    "returned, end",
    [
        (ToolResult(True, "Permission denied"), (Status.OK, None, None)),
        (ToolResult(False, "a", "b"), (Status.FAILED, "tool_error", "b")),
        (ToolResult(False, "a"), (Status.FAILED, "tool_error", "a")),
        (ToolResult(False), (Status.FAILED, "tool_error", NOTHING)),
        (ToolResult(False, stderr="Access denied"), (Status.DENIED, "refused", "Access denied")),
        (suna.ToolResult(True, '{"success": false}'), (Status.OK, None, None)),
        (suna.ToolResult(False, "a"), (Status.FAILED, "tool_error", "a")),
        (suna.ToolResult(False, {"a": 1}), (Status.FAILED, "tool_error", NOTHING)),
        (suna.ToolResult(False, "Access denied"), (Status.DENIED, "refused", "Access denied")),
        ("Access denied", (Status.DENIED, "refused", "Access denied")),
        ({"error": "x"}, (Status.FAILED, "tool_error", "x")),
        ("fine", (Status.OK, None, None)),
    ],
)
def test_what_a_tool_returns_decides_how_its_call_ended(returned: Any, end: Any) -> None:
    assert ends(outcome_of(lambda: returned)) == end


def test_the_value_of_a_refusal_is_kept() -> None:
    value = {"success": False, "error": "Access denied", "needed": ["ADMIN"]}

    assert outcome_of(lambda: value).value == value


@each_row(
    "text, status, code",
    [
        ("Pick another day.", Status.FAILED, "tool_error"),
        ("You do not have permission to do this.", Status.DENIED, "refused"),
        ("Permission denied: " + "long " * 1000, Status.DENIED, "refused"),
    ],
)
def test_a_raised_refusal_is_one_too(text: str, status: Status, code: str) -> None:
    def fail() -> None:
        raise ToolError(text, retryable=True)

    outcome = outcome_of(fail)

    assert ends(outcome) == (status, code, text)
    assert outcome.error
    assert outcome.error.type == "ToolError"
    assert outcome.error.retryable


def test_a_tool_can_deny_in_words_of_its_own() -> None:
    def fail() -> None:
        raise ToolDenied("Ask Ada first.")

    assert ends(outcome_of(fail)) == (Status.DENIED, "refused", "Ask Ada first.")
