"""Calls that wait for a person: who is asked about what, and what an answer is good for."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from typing import Any, Literal

import pytest
import pytest_asyncio

from execution.conftest import MakeKiln
from execution.observers import SOON, change_calls, code, local_session, open_session
from tables import each_row
from toolkiln import Context, tool
from toolkiln.define import ToolError
from toolkiln.errors import InputError, NotAllowed
from toolkiln.kiln import Kiln
from toolkiln.model.admission import AdmissionDecision
from toolkiln.model.call import Status, Task
from toolkiln.model.identity import ANONYMOUS
from toolkiln.model.policy import Approval, ApprovalVerdict
from toolkiln.security.authentication import KeyScope
from toolkiln.security.live_settings import LiveSettings
from toolkiln.security.sessions import LOCAL_OPERATOR

from .guarded import Waiting, about, asked, expired, holding, made, records, waiting

pytestmark = pytest.mark.asyncio(loop_scope="module")
RAN: list[Any] = []
TOOLS = {
    "careful.py": '''
        from toolkiln import Context, tool

        def risky(args):
            if args["path"] == "raise":
                raise RuntimeError("oops")
            return args["path"] == "risky"

        @tool(needs_approval=risky)
        def remove(path: str) -> str:
            """Remove a file."""
            return f"removed {path}"

        @tool
        def indirectly(ctx: Context, to: str) -> object:
            """Pay by way of another tool."""
            return ctx.call("pay", to=to, amount=1)
    ''',
}


@tool(needs_approval=True)
def pay(to: str, amount: int = 1, notes: list[str] | None = None) -> str:
    """Pay a person."""
    RAN.append((to, amount, notes))
    return f"paid {amount} to {to}"


@tool
def look(at: str = "") -> str:
    """Look at something."""
    RAN.append(at)
    return "seen"


@tool
def via(to: str, ctx: Context) -> Any:
    """Pay by way of another tool."""
    try:
        return ctx.call("pay", to=to)
    except ToolError as error:
        return f"nested: {error.message}"


@tool(needs_approval=True, sandbox=False)
def pay_outside() -> None:
    """Pay outside the sandbox."""
    RAN.append("outside")


@tool(needs_approval=True, requires_secrets=["KEY"])
def pay_with_key() -> None:
    """Pay with a secret."""
    RAN.append("key")


FUNCTIONS = [pay, look, via, pay_outside, pay_with_key]
SETTINGS: dict[str, Any] = {
    "rules": (
        {"effect": "deny", "users": ("outcast",)},
        {"effect": "ask", "users": ("kid",), "tools": ("look",), "reason": "kids ask"},
        {"effect": "ask", "users": ("chief",), "tools": ("look",), "approve_own": True},
        {"effect": "allow", "users": ("chief",), "approve_own": True},
    ),
    "privileges": {"boss": ("APPROVE",), "chief": ("APPROVE",), "group:approvers": ("APPROVE",)},
}


@pytest.fixture(autouse=True)
def fresh() -> None:
    RAN.clear()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ann(kiln: Kiln) -> AsyncIterator[str]:
    yield open_session(kiln, "ann")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def boss(kiln: Kiln) -> AsyncIterator[str]:
    yield open_session(kiln, "boss")


def approve(kiln: Kiln, call: Waiting, session: Any = LOCAL_OPERATOR, **how: Any) -> Approval:
    return kiln.security.approve(call.approval, session=session, **how)


async def test_call_runs_only_after_a_person_approves_it(kiln: Kiln, ann: str, boss: str) -> None:
    call = await waiting(kiln, "pay", {"to": "bob", "amount": 3}, session=ann)
    listed = await asked(kiln, id=call.approval)
    before = list(RAN)

    approve(kiln, call, boss, reason="fine\nby me \x1b[1m")
    result = await call.result()

    assert (before, RAN) == ([], [("bob", 3, None)])
    arguments = {"to": "bob", "amount": 3}
    assert (listed.tool, listed.user, listed.arguments) == ("pay", "ann", arguments)
    assert listed.digest == kiln.tool("pay").digest
    assert result.value == "paid 3 to bob"
    started, ended = (r for r in about(kiln, result) if r.act == "call" and r.arguments)
    assert (started.outcome, ended.outcome) == ("started", "ok")
    assert "approved by boss" in ended.detail
    assert json.loads(started.arguments) == arguments
    act = next(r for r in records(kiln, act="approve", outcome="ok") if call.approval in r.detail)
    assert (act.user, act.tool, act.call_id) == ("boss", "pay", result.call_id)
    assert act.detail.isprintable()
    assert holding(kiln.settings.state, boss) == holding(kiln.settings.state, ann) == set()


async def test_rejected_call_never_runs_and_says_why(kiln: Kiln, ann: str, boss: str) -> None:
    call = await waiting(kiln, "pay", {"to": "bob"}, session=ann, call_id="rejected")

    kiln.security.reject(call.approval, session=boss, reason="not on a Sunday")
    result = await call.result()
    again = await kiln.call("pay", {"to": "bob"}, session=ann, call_id="rejected")

    assert code(result) == code(again) == (Status.DENIED, "rejected")
    assert "boss rejected this call: not on a Sunday" in result.text
    assert about(kiln, result)[-1].outcome == "denied"
    assert RAN == []


@pytest.mark.parametrize(("background", "call_id"), [(True, None), ("auto", "unseen")])
async def test_task_without_a_decision_in_time_is_kept_and_can_be_repeated(
    kiln: Kiln, ann: str, boss: str, background: Literal[True, "auto"], call_id: str | None
) -> None:
    given: dict[str, Any] = {"session": ann} | ({"call_id": call_id} if call_id else {})
    task = await kiln.call("pay", {"to": "bob"}, timeout=0.2, background=background, **given)
    assert isinstance(task, Task)

    ended = await kiln.tasks.wait(task.id, ann)
    again = await waiting(kiln, "pay", {"to": "bob"}, session=ann, call_id=task.id)
    approve(kiln, again, boss)

    assert ended.result is not None
    assert code(ended.result) == (Status.DENIED, "approval_expired")
    assert (await again.result()).status is Status.OK
    assert len(RAN) == 1


async def test_no_decision_in_time_means_no(kiln: Kiln, ann: str, boss: str) -> None:
    result = await kiln.call("pay", {"to": "bob"}, session=ann, timeout=0.2, call_id="late")
    late = kiln.security.approvals.history(1)[0]

    with pytest.raises(InputError):
        kiln.security.approve(late.id, session=boss)
    assert code(result) == (Status.DENIED, "approval_expired")
    assert late.state in ("expired", "withdrawn")
    call = await waiting(kiln, "pay", {"to": "bob"}, session=ann, call_id="late")
    assert call.approval != late.id
    approve(kiln, call, boss)
    assert (await call.result()).status is Status.OK


async def test_function_of_the_arguments_or_a_rule_decides_and_any_doubt_asks(
    kiln: Kiln, ann: str
) -> None:
    kid = open_session(kiln, "kid")
    unasked = [
        await kiln.call("remove", {"path": "calm"}, session=ann),
        await kiln.call("look", session=ann),
    ]
    asked_about = {
        "remove requires approval for these arguments": [
            await waiting(kiln, "remove", {"path": path}, session=ann)
            for path in ("risky", "raise")
        ],
        "kids ask": [await waiting(kiln, "look", {"at": "sky"}, session=kid)],
    }

    assert {result.status for result in unasked} == {Status.OK}
    for why, calls in asked_about.items():
        for call in calls:
            assert why in (await asked(kiln, id=call.approval)).why
            approve(kiln, call)
            assert (await call.result()).status is Status.OK


async def test_edited_arguments_replace_the_others(kiln: Kiln, ann: str, boss: str) -> None:
    call = await waiting(kiln, "pay", {"to": "bob", "amount": 900}, session=ann)

    for wrong in ({"amount": 1}, {"to": 1}, {"to": "bob", "secret": 1}, {"to": "\ud800"}):
        with pytest.raises(InputError):
            approve(kiln, call, boss, arguments=wrong)
    approve(kiln, call, boss, arguments={"to": "bob", "amount": 9})
    result = await call.result()

    assert (result.value, RAN) == ("paid 9 to bob", [("bob", 9, None)])
    last = about(kiln, result)[-1]
    assert json.loads(last.arguments) == {"to": "bob", "amount": 9}
    assert "with other arguments" in last.detail


async def test_unchecked_edit_is_checked_before_it_runs(kiln: Kiln, ann: str) -> None:
    call = await waiting(kiln, "pay", {"to": "bob"}, session=ann)
    stolen = await waiting(kiln, "pay", {"to": "bob"}, session=ann)

    wrong = {"to": ["bob"], "amount": "x"}
    kiln.services.store.approvals.decide(
        call.approval, ApprovalVerdict(approve=True, by="x", arguments=wrong)
    )
    kiln.security.approve(stolen.approval, arguments={"to": "secret:KEY"})

    assert code(await call.result()) == (Status.INVALID, "invalid_arguments")
    assert code(await stolen.result()) == (Status.DENIED, "not_granted")
    assert RAN == []


async def test_huge_arguments_can_be_asked_about_and_changed_later_without_effect(
    kiln: Kiln, ann: str
) -> None:
    strange = "\x1b[2J\n\x00\u202e" + "ü" * 200_000
    arguments: dict[str, Any] = {"to": strange, "notes": ["\u2028"] * 100}
    call = await waiting(kiln, "pay", arguments, session=ann)

    arguments["to"] = "eve"
    arguments["notes"].append("second")
    approve(kiln, call)
    result = await call.result()

    assert result.status is Status.OK
    assert [(strange, 1, ["\u2028"] * 100)] == RAN
    assert all(len(r.arguments) <= 2000 and r.arguments.isprintable() for r in about(kiln, result))


async def test_callers_approve_their_own_calls_only_under_a_rule(kiln: Kiln, boss: str) -> None:
    chief = open_session(kiln, "chief")
    own = await waiting(kiln, "pay", {"to": "boss"}, session=boss)
    other_session = open_session(kiln, "boss")
    chiefs = [
        await waiting(kiln, "pay", {"to": "chief"}, session=chief),
        await waiting(kiln, "look", session=chief),
    ]

    for session in (boss, other_session):
        with pytest.raises(NotAllowed):
            approve(kiln, own, session)
        with pytest.raises(NotAllowed):
            kiln.security.reject(own.approval, session=session)
    for call in chiefs:
        approve(kiln, call, chief)
        assert (await call.result()).status is Status.OK
    assert RAN == [("chief", 1, None), ""]
    kiln.security.reject(own.approval, session=chief)
    assert code(await own.result()) == (Status.DENIED, "rejected")
    denied = records(kiln, act="approve", outcome="denied", user="boss")
    assert len(denied) == 2


async def test_answers_come_from_those_who_may_give_them(kiln: Kiln, ann: str) -> None:
    call = await waiting(kiln, "pay", {"to": "bob"}, session=ann)
    bob = open_session(kiln, "bob")
    scope = KeyScope("boss", groups=["approvers"])
    key = kiln.security.keys.create("not boss", scope, LOCAL_OPERATOR)
    by_key = kiln.security.keys.session(key.text).token
    member = open_session(kiln, "mia", groups=["approvers"])

    for session in (bob, by_key):
        with pytest.raises(NotAllowed):
            approve(kiln, call, session)
        with pytest.raises(NotAllowed):
            kiln.security.reject(call.approval, session=session)
    for token in (None, "forged"):
        with pytest.raises(Exception, match="session"):
            approve(kiln, call, token)
    assert (RAN, call.running.done()) == ([], False)
    approve(kiln, call, member)
    assert (await call.result()).status is Status.OK


@each_row("approval", ["", "000000", "x" * 100_000, "%", "\ud800\0", "0'--"])
async def test_answer_to_nothing_is_refused_and_recorded(kiln: Kiln, approval: str) -> None:
    with pytest.raises(InputError):
        kiln.security.approve(approval)
    with pytest.raises(InputError):
        kiln.security.reject(approval, reason="\x1b[2J" * 1000)

    last = records(kiln, act="reject", outcome="failed")[-1]
    assert all(text.isprintable() and len(text) <= 500 for text in (last.detail, last.user))


async def test_people_are_not_asked_about_what_could_not_run(kiln: Kiln, ann: str) -> None:
    outcast = open_session(kiln, "outcast")
    before = len(kiln.security.approvals.history(10_000))

    results = [
        await kiln.call("pay", {"to": 3}, session=ann),
        await kiln.call("pay", {"to": "bob"}, session=outcast),
        await kiln.call("pay", {"to": "bob"}, session="forged"),
        await kiln.call("pay_outside", session=ann),
        await kiln.call("pay_with_key", session=ann),
        await kiln.call("pay", {"to": "secret:KEY"}, session=ann),
    ]

    assert [result.status for result in results] == [Status.INVALID, *[Status.DENIED] * 5]
    assert len(kiln.security.approvals.history(10_000)) == before
    assert RAN == []


async def test_same_call_shares_one_request_and_runs_once(kiln: Kiln, ann: str) -> None:
    calls = [
        asyncio.create_task(kiln.call("pay", {"to": "bob"}, session=ann, call_id="shared"))
        for _ in range(5)
    ]
    request = await asked(kiln, call_id="shared")
    waiting_ids = [a.id for a in kiln.security.approvals.waiting() if a.call_id == "shared"]

    kiln.security.approve(request.id)
    results = await asyncio.wait_for(asyncio.gather(*calls), SOON)

    assert waiting_ids == [request.id]
    assert {result.value for result in results} == {"paid 1 to bob"}
    assert RAN == [("bob", 1, None)]


async def test_approval_is_of_one_call_and_used_once(kiln: Kiln, ann: str) -> None:
    call = await waiting(kiln, "pay", {"to": "bob"}, session=ann, call_id="swap")
    approve(kiln, call)
    first = await call.result()

    repeated = await kiln.call("pay", {"to": "bob"}, session=ann, call_id="swap")
    changed = await kiln.call("pay", {"to": "eve"}, session=ann, call_id="swap")
    other_tool = await kiln.call("look", session=ann, call_id="swap")
    again = await waiting(kiln, "pay", {"to": "bob"}, session=ann)
    with pytest.raises(InputError):
        approve(kiln, call)

    assert first.value == repeated.value == "paid 1 to bob"
    assert code(changed) == code(other_tool) == (Status.INVALID, "conflict")
    assert again.approval != call.approval
    assert RAN == [("bob", 1, None)]
    again.running.cancel()


async def test_answer_is_remembered_for_the_session_or_arguments_only(kiln: Kiln) -> None:
    first, second = (open_session(kiln, "ann") for _ in range(2))
    other = open_session(kiln, "bob")

    async def is_asked(session: str, to: str) -> bool:
        result = await kiln.call("pay", {"to": to}, session=session, timeout=0.05)
        return code(result) == (Status.DENIED, "approval_expired")

    call = await waiting(kiln, "pay", {"to": "x"}, session=first)
    approve(kiln, call, remember="session")
    await call.result()
    call = await waiting(kiln, "pay", {"to": "y"}, session=second)
    approve(kiln, call, remember="arguments")
    remembered = call.approval
    await call.result()

    assert not await is_asked(first, "other")
    assert await is_asked(second, "x")
    assert not await is_asked(second, "y")
    assert not await is_asked(open_session(kiln, "ann"), "y")
    assert await is_asked(other, "y")
    last = about(kiln, await kiln.call("pay", {"to": "y"}, session=second))[-1]
    assert "remembered for arguments" in last.detail
    assert kiln.security.forget_approval(remembered)
    assert await is_asked(second, "y")
    with pytest.raises(NotAllowed):
        kiln.security.forget_approval(remembered, other)


async def test_an_answer_to_an_anonymous_caller_is_not_remembered_for_others(kiln: Kiln) -> None:
    anonymous = local_session(kiln, user_id=ANONYMOUS)
    call = await waiting(kiln, "pay", {"to": "x"}, session=anonymous)

    for remember in ("session", "arguments"):
        with pytest.raises(InputError, match="cannot be remembered"):
            approve(kiln, call, remember=remember)
    approve(kiln, call)

    assert (await call.result()).status is Status.OK
    again = await kiln.call("pay", {"to": "x"}, session=anonymous, timeout=0.05)
    assert code(again) == (Status.DENIED, "approval_expired")


async def test_cancelled_caller_withdraws_the_request(kiln: Kiln, ann: str) -> None:
    call = await waiting(kiln, "pay", {"to": "bob"}, session=ann)

    call.running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.running
    left = kiln.security.approvals.get(call.approval)

    assert left
    assert left.state == "withdrawn"
    with pytest.raises(InputError):
        approve(kiln, call)
    assert RAN == []
    calls = records(kiln, tool="pay", act="call")
    own = [record for record in calls if record.call_id == left.call_id]
    assert own[-1].outcome == "cancelled"


@pytest.mark.parametrize("background", [True, "auto"])
async def test_background_call_is_pending_until_a_person_decides(
    kiln: Kiln, ann: str, background: Literal[True, "auto"]
) -> None:
    given: dict[str, Any] = {"session": ann, "call_id": f"pending {background}"}
    task = await kiln.call("pay", {"to": "bob"}, background=background, **given)
    assert isinstance(task, Task)
    request = await asked(kiln, call_id=task.id)

    pending = await kiln.tasks.get(task.id, ann)
    reported = await kiln.call("check_task", {"task_id": task.id}, session=ann)
    kiln.security.approve(request.id)
    done = await kiln.tasks.wait(task.id, ann, timeout=SOON)

    assert (pending.state, reported.value["state"]) == ("pending", "pending")
    assert done.result
    assert done.result.value == "paid 1 to bob"


@pytest.mark.parametrize(
    ("name", "given"), [("via", {"to": "a"}), ("indirectly", {"to": "b", "amount": 1})]
)
async def test_nested_call_waits_for_a_person_too(
    kiln: Kiln, ann: str, name: str, given: dict[str, Any]
) -> None:
    calling = asyncio.create_task(kiln.call(name, {"to": given["to"]}, session=ann))
    request = await asked(kiln, arguments=given)

    kiln.security.approve(request.id)
    result = await asyncio.wait_for(calling, SOON)

    assert request.user == "ann"
    assert result.value == f"paid 1 to {given['to']}"


async def test_batch_waits_for_its_member(kiln: Kiln, ann: str) -> None:
    batch = [made("look", ann), made("pay", ann, to="batch"), made("look", ann)]
    calling = asyncio.create_task(kiln.call_many(batch))
    request = await asked(kiln, arguments={"to": "batch"})

    kiln.security.reject(request.id)
    results = await asyncio.wait_for(calling, SOON)

    assert [result.status for result in results] == [Status.OK, Status.DENIED, Status.OK]


async def test_session_that_ends_but_not_one_that_expires_ends_its_call(kiln: Kiln) -> None:
    opened = kiln.security.sessions.create("ann")
    key = kiln.security.keys.create("payer", KeyScope("robot"), LOCAL_OPERATOR)
    tokens = [opened.token, kiln.security.keys.session(key.text).token]
    calls = [await waiting(kiln, "pay", {"to": "bob"}, session=token) for token in tokens]
    short = kiln.security.sessions.create("ann", seconds=0.5)
    calls.append(await waiting(kiln, "pay", {"to": "bob"}, session=short.token))

    kiln.security.sessions.end(opened.token)
    kiln.security.keys.revoke("payer", LOCAL_OPERATOR)
    await expired(kiln, short)
    for call in calls:
        approve(kiln, call)
    ended, revoked, expired_one = [await call.result() for call in calls]

    assert code(ended) == code(revoked) == (Status.DENIED, "no_session")
    assert expired_one.status is Status.OK
    assert len(RAN) == 1


async def test_rule_that_denies_while_a_person_thinks_counts(
    make_kiln: MakeKiln, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_kiln({}, functions=[pay]) as kiln:
        ann = open_session(kiln, "ann")
        call = await waiting(kiln, "pay", {"to": "bob"}, session=ann)
        stricter = LiveSettings(
            replace(kiln.settings, rules=({"effect": "deny", "tools": ("pay",)},))
        )

        monkeypatch.setattr(kiln.security.live, "_loaded", stricter._loaded)
        approve(kiln, call)

        assert code(await call.result()) == (Status.DENIED, "not_allowed")
    assert RAN == []


VERSION = '''
from toolkiln import tool

@tool(needs_approval=True)
def act(n: int = 1) -> str:
    """Act."""
    return "first"
'''


async def test_approval_is_of_one_version(make_kiln: MakeKiln, tmp_path: Path) -> None:
    file = tmp_path / "tools" / "act.py"
    async with make_kiln({"act.py": VERSION}) as developing:
        tools, settings = developing.services.path, developing.settings
    async with Kiln(tools, settings=replace(settings, dev=False)) as kiln:
        admissions = kiln.services.admissions
        by = AdmissionDecision("ann", grant=True)
        admissions.admit([admissions.candidate("act.py")], by)
        ann = open_session(kiln, "ann")
        call = await waiting(kiln, "act", session=ann, call_id="old")
        file.write_text(VERSION.replace("first", "second"))
        admissions.admit([admissions.candidate("act.py")], by)

        approve(kiln, call, remember="arguments")
        old = await call.result()
        same_id = await kiln.call("act", session=ann, call_id="old")
        fresh = await kiln.call("act", session=ann, timeout=0.1)

        assert old.value == "first"
        assert old.digest != kiln.tool("act").digest
        assert code(same_id) == (Status.INVALID, "conflict")
        assert code(fresh) == (Status.DENIED, "approval_expired")


CALLING = """
    import asyncio, sys
    from pathlib import Path
    from toolkiln.kiln import Kiln
    from toolkiln.config import Settings

    async def main(tools, state, token):
        def observe(event):
            print(event.text, flush=True)
        async with Kiln(Path(tools), settings=Settings(state=Path(state)), dev=True) as kiln:
            await kiln.call("act", session=token, call_id="survivor", observe=observe)

    asyncio.run(main(*sys.argv[1:]))
"""


async def test_answer_is_found_by_the_same_call_after_its_process_was_killed(
    make_kiln: MakeKiln, start_python: Callable[..., "Popen[str]"], tmp_path: Path
) -> None:
    async with make_kiln({"act.py": VERSION}) as kiln:
        ann, other = (open_session(kiln, name) for name in ("ann", "bob"))
        process = start_python(CALLING, tmp_path / "tools", tmp_path / "state", ann)
        assert process.stdout
        approval = (await asyncio.to_thread(process.stdout.readline)).strip()

        process.kill()
        await asyncio.to_thread(process.wait)
        kiln.security.approve(approval)
        store = tmp_path / "state"
        change_calls(store, "UPDATE {} SET leased_until = 1")  # as the clock does, in 20 seconds
        stolen = await kiln.call("act", session=other, call_id="survivor", timeout=0.1)
        changed = await kiln.call("act", {"n": 2}, session=ann, call_id="survivor", timeout=0.1)
        change_calls(store, "DELETE FROM {}")  # as it does in an hour
        later = await kiln.call("act", {"n": 2}, session=ann, call_id="survivor", timeout=0.1)
        result = await kiln.call("act", session=ann, call_id="survivor", timeout=SOON)
        used = kiln.security.approvals.get(approval)

        assert code(stolen) == code(later) == (Status.DENIED, "approval_expired")
        assert changed.status is Status.INVALID
        assert result.value == "first"
        assert used
        assert used.state == "used"
        assert [r.outcome for r in records(kiln, tool="act", user="ann")][-1] == "ok"
