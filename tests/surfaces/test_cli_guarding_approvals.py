"""Calls that wait for a person, on the command line: listed, shown, and answered once."""

import json
import re
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tables import each_row
from toolkiln.model.policy import Approval
from toolkiln.security.sessions import account_name
from toolkiln.store.store import open_store

from .conftest import BOUND, Shell, token

SETTINGS = """
[[rules]]
effect = "ask"
tools = ["own"]
approve_own = true
reason = "look first"

[[rules]]
effect = "ask"
tools = ["shut"]
approve_own = false
"""
TOOLS = {
    "tools.py": '''
from toolkiln import tool

@tool(needs_approval=True, timeout=60)
def wipe(path: str, deep: bool = False) -> str:
    """Wipe a path.

    Args:
        path: Which.
        deep: Whether what is below it, too.
    """
    return f"wiped {path}{'/**' if deep else ''}"

@tool
def own(name: str) -> str:
    """Do something of the caller's own.

    Args:
        name: What.
    """
    return f"did {name}"

@tool
def shut(name: str) -> str:
    """Shut something that another person has to look at.

    Args:
        name: What.
    """
    return f"shut {name}"
''',
}
HOSTILE = "fine\nerror: forged \x1b[2J\u202e"


def approver(shell: Shell) -> str:
    return token(shell, "bob", "--privilege", "APPROVE")


def ask(shell: Shell, user: str = "ann", **fields: Any) -> str:
    """Store a request as a waiting call does; its id."""
    given: dict[str, Any] = {
        "id": "", "tool": "wipe", "digest": "0" * 64, "arguments": {"path": "/a"}, "user": user,
        "session": "s", "call_id": "c", "why": "wipe requires approval for every call",
        "created": 0.0, "expires": 300.0,
    }  # fmt: skip
    state = Path(shell.variables["TOOLKILN_STATE"])
    state.mkdir(exist_ok=True)
    with closing(open_store(state / "store.db")) as store:
        request = Approval(**{**given, **fields})
        keys = {"session": "by session", "arguments": "by arguments"}
        return store.approvals.ask(request, "f", json.dumps(fields), keys).id  # type: ignore[arg-type]


def stored(shell: Shell, approval: str) -> Any:
    """The request as it is stored."""
    return shell.invoke("approvals", "show", approval, "--json").json()


class TestLooking:
    def test_what_waits_is_listed(self, fresh: Shell) -> None:
        before = fresh.invoke("approvals", "list")
        approval = ask(fresh)

        done = fresh.invoke("approvals", "list")

        titles, row = done.out.splitlines()
        assert (before.code, before.out, before.err) == (0, "", "no pending approvals\n")
        assert titles.split() == ["id", "state", "tool", "user", "until", "why"]
        assert row.split()[:4] == [approval, "pending", "wipe", "ann"]

    def test_the_arguments_are_shown_exactly(self, fresh: Shell) -> None:
        arguments = {"path": "a\nuser: root\x1b[2J\u202e\x9b é\ud800", "deep": True}
        approval = ask(fresh, arguments=arguments)

        shown = fresh.invoke("approvals", "show", approval).out

        head, _, body = shown.partition("arguments:\n")
        assert json.loads(body) == arguments
        assert not set(shown) & {"\x1b", "\x9b", "\u202e"}
        assert "é" in body
        assert [line.split(":")[0] for line in head.splitlines()] == [
            "id", "tool", "user", "session", "call", "why", "state", "until",
        ]  # fmt: skip

    def test_no_text_of_a_caller_forges_a_line(self, fresh: Shell) -> None:
        approval = ask(fresh, HOSTILE, why=HOSTILE, tool=HOSTILE, call_id=HOSTILE, session=HOSTILE)
        fresh.invoke("approvals", "reject", approval, "--reason", HOSTILE)

        table = fresh.invoke("approvals", "list", "--all").out
        shown = fresh.invoke("approvals", "show", approval).out
        audit = fresh.invoke("audit", "list").out

        assert len(table.splitlines()) == 2
        assert len(shown.partition("arguments:")[0].splitlines()) == 10
        for said in (table, shown, audit):
            assert not re.search("^error", said, re.M)
            assert not set(said) & {"\x1b", "\u202e"}

    def test_others_calls_are_for_those_who_may_answer_them(self, fresh: Shell) -> None:
        approval, mine = ask(fresh, "ann"), ask(fresh, "eve", call_id="d")
        eve, bob = token(fresh, "eve"), approver(fresh)

        def seen(held: str) -> list[str]:
            listed = fresh.invoke("approvals", "list", "--token", held, "--json").json()
            return sorted(one["id"] for one in listed)

        assert seen(eve) == [mine]
        assert seen(bob) == sorted([approval, mine])
        assert fresh.invoke("approvals", "show", approval, "--token", eve).code == 2
        assert fresh.invoke("approvals", "show", approval, "--token", bob).code == 0
        assert fresh.invoke("approvals", "list", "--token", "forged").code == 2

    def test_an_id_that_is_none_is_a_clear_error(self, fresh: Shell) -> None:
        ask(fresh)

        for command in ("show", "approve", "reject", "forget"):
            for which in ("nonsense", "", "%", "abcdef", "x" * 5000, "a\nb"):
                fresh.refused("approvals", command, which)


class TestAnswering:
    def test_the_first_answer_counts(self, fresh: Shell) -> None:
        approval = ask(fresh)

        done = fresh.invoke("approvals", "approve", approval[:6], "--reason", "looks fine")
        fresh.refused("approvals", "reject", approval)

        assert (done.code, done.out) == (0, f"approved: {approval}: wipe for ann\n")
        found = stored(fresh, approval)
        assert (found["state"], found["reason"]) == ("approved", "looks fine")

    def test_a_session_with_the_privilege_approves_as_its_holder(self, fresh: Shell) -> None:
        approval = ask(fresh)

        done = fresh.invoke("approvals", "approve", approval, "--token", approver(fresh))

        assert done.code == 0
        assert stored(fresh, approval)["decided_by"] == "bob"

    def test_a_session_without_it_may_not(self, fresh: Shell) -> None:
        approval, eve = ask(fresh), token(fresh, "eve")

        for command in ("approve", "reject", "forget"):
            assert "APPROVE" in fresh.refused("approvals", command, approval, "--token", eve)

        assert stored(fresh, approval)["state"] == "pending"
        assert fresh.invoke("audit", "list", "--user=eve").out.count("denied") >= 3

    def test_callers_answer_their_own_only_if_a_rule_lets_them(self, fresh: Shell) -> None:
        bob = approver(fresh)
        approval, own = ask(fresh, "bob"), ask(fresh, "bob", approve_own=True, call_id="d")

        for command in ("approve", "reject"):
            error = fresh.refused("approvals", command, approval, "--token", bob)
            assert "made this call and may not approve it" in error

        assert stored(fresh, approval)["state"] == "pending"
        assert fresh.invoke("approvals", "approve", own, "--token", token(fresh, "bob")).code == 0

    def test_other_arguments_can_be_put_in_their_place(self, fresh: Shell, tmp_path: Path) -> None:
        text = '{"path": "/b", "deep": true}'
        (tmp_path / "edit.json").write_text(text)

        for edit in (text, f"@{tmp_path / 'edit.json'}"):
            approval = ask(fresh, call_id=edit)
            done = fresh.invoke("approvals", "approve", approval, "--edit", edit)

            assert done.code == 0
            assert stored(fresh, approval)["edited"] == {"path": "/b", "deep": True}
            assert "run with:\n" in fresh.invoke("approvals", "show", approval).out

    @each_row(
        "edit",
        ['{"path": 3}', "{}", '{"path": "/a", "more": 1}', '{"path"', "[]", "path=/b", "",
         "@nowhere.json", '{"path": "/a", "path": "/b"}', "[" * 100_000],
    )  # fmt: skip
    def test_arguments_that_do_not_fit_are_refused(self, fresh: Shell, edit: str) -> None:
        approval = ask(fresh)

        fresh.refused("approvals", "approve", approval, "--edit", edit)

        assert stored(fresh, approval)["state"] == "pending"

    def test_an_approval_is_remembered_and_forgotten(self, fresh: Shell) -> None:
        approval = ask(fresh)

        assert fresh.invoke("approvals", "approve", approval, "--remember", "ever").code == 2
        fresh.invoke("approvals", "approve", approval, "--remember", "session")

        assert "remembered for: session\n" in fresh.invoke("approvals", "show", approval).out
        assert fresh.invoke("approvals", "forget", approval).code == 0
        fresh.refused("approvals", "forget", approval)

    def test_a_request_that_has_expired_cannot_be_answered(self, fresh: Shell) -> None:
        approval = ask(fresh, expires=0.0)

        assert "has expired" in fresh.refused("approvals", "approve", approval)


class TestCalling:
    def test_a_call_waits_and_runs_with_what_was_approved(self, fresh: Shell) -> None:
        bob = approver(fresh)
        with fresh.start("call", "shut", "name=a") as call:
            assert call.stdout is not None
            assert call.stderr is not None
            assert call.stderr.readline().startswith("waiting for a person until 2")
            hint = re.search(r"`toolkiln approvals approve (\w+)`", call.stderr.readline())
            assert hint is not None

            refused = fresh.invoke("approvals", "approve", hint[1])
            edited = ["--edit", '{"name": "b"}', "--token", bob]
            approved = fresh.invoke("approvals", "approve", hint[1], *edited)

            assert (refused.code, approved.code) == (2, 0)
            assert call.stdout.read() == "shut b\n"
            assert call.wait(BOUND) == 0

    def test_a_task_that_waits_is_pending(self, fresh: Shell) -> None:
        task = fresh.run("call", "wipe", "path=/a", "--background").out.strip()
        until = monotonic() + BOUND
        while (checked := fresh.invoke("task", "check", task)).out == "running\n":
            assert monotonic() < until

        awaited = fresh.invoke("task", "await", task, "--timeout", "0")
        again = fresh.invoke("call", "wipe", "path=/a", "--background", "--id", task)
        listed = fresh.invoke("task", "list").out
        cancelled = fresh.invoke("task", "cancel", task)

        assert (checked.code, checked.out) == (0, "pending\n")
        assert "toolkiln approvals list" in checked.err
        assert (awaited.code, awaited.out) == (0, "pending\n")
        assert (again.code, again.out) == (2, "")
        assert listed.split() == [task, "pending", "wipe"]
        assert cancelled.code == 0
        assert fresh.invoke("approvals", "list").err == "no pending approvals\n"

    def test_a_task_that_was_not_approved_in_time_says_so_and_can_be_tried_again(
        self, fresh: Shell
    ) -> None:
        call = ["call", "wipe", "path=/a", "--background", "--timeout", "0.3"]
        task = fresh.run(*call).out.strip()

        ended = fresh.invoke("task", "await", task)
        again = fresh.run(*call, "--id", task).out.strip()
        ended_again = fresh.invoke("task", "await", task)

        assert (ended.code, ended.out) == (ended_again.code, ended_again.out) == (2, "")
        assert "this call was not approved in time" in ended.err
        assert again == task
        asked = json.loads(fresh.invoke("approvals", "list", "--all", "--json").out)
        assert len(asked) == 2

    @pytest.mark.parametrize(
        ("answer", "code", "said"),
        [(b"y\n", 0, "did it"), (b"\xff\n", 2, "rejected this call")],
    )
    def test_a_caller_who_may_approve_their_own_is_asked_at_the_terminal(
        self, fresh: Shell, answer: bytes, code: int, said: str
    ) -> None:
        ended, shown = typed(fresh, answer, "call", "own", "name=it")

        assert ended == code
        assert '{\n  "name": "it"\n}\nrun own with these arguments? [y/N] ' in shown
        assert said in shown.partition("[y/N]")[2]

    def test_what_was_typed_before_the_question_is_no_answer(self, fresh: Shell) -> None:
        ended, shown = typed(fresh, b"\n", "call", "own", "name=it", ahead=b"y\n")

        assert (ended, "rejected this call" in shown) == (2, True)

    def test_an_answer_from_elsewhere_is_as_good(self, fresh: Shell) -> None:
        def approve() -> bytes:
            (waiting,) = fresh.invoke("approvals", "list", "--json").json()
            assert fresh.invoke("approvals", "approve", waiting["id"]).code == 0
            return b""

        ended, shown = typed(fresh, approve, "call", "own", "name=it")

        assert (ended, "did it" in shown) == (0, True)

    def test_the_person_at_the_terminal_is_asked_where_no_rule_forbids_it(
        self, fresh: Shell
    ) -> None:
        ended, shown = typed(fresh, b"y\n", "call", "wipe", "path=/a")
        records = fresh.invoke("audit", "list").out

        assert (ended, "wiped /a" in shown) == (0, True)
        assert f"self-approved by {account_name()}" in records

    def test_a_caller_who_may_not_approve_their_own_is_not_asked_there(self, fresh: Shell) -> None:
        ended, shown = typed(fresh, b"y\n\x03", "call", "shut", "name=it", marker=b"approve ")

        assert ended != 0
        assert "[y/N]" not in shown


def typed(
    shell: Shell, answer: Any, *arguments: str, marker: bytes = b"[y/N] ", ahead: bytes = b""
) -> tuple[int, str]:
    """Run the command on a terminal, and type when it has written the marker; or ahead of it."""
    return shell.typed([(marker, answer)], *arguments, ahead=ahead)
