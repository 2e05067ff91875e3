"""What a caller may not run: it is not there for them, whichever way they take."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from execution.conftest import MakeKiln
from execution.observers import code, local_session, open_session
from tables import each_row
from toolkiln import Context, tool
from toolkiln.config import load
from toolkiln.define import ToolError
from toolkiln.errors import InputError, NotAllowed
from toolkiln.kiln import Kiln
from toolkiln.model.admission import ToolDraft
from toolkiln.model.call import Result, Status
from toolkiln.model.search import PassageHit
from toolkiln.security import live_settings
from toolkiln.security.authentication import KeyScope
from toolkiln.security.sessions import LOCAL_OPERATOR
from written_tools import write_tool

from .guarded import about, made, records

pytestmark = pytest.mark.asyncio(loop_scope="module")
DENIED = (Status.DENIED, "not_allowed")
RAN: list[str] = []
TOOLS = {
    "payments.py": '''
        """Payments and their dangers."""
        from toolkiln import Context, tool

        @tool(destructive=True)
        def wire_money(amount: int) -> str:
            """Wire money to an offshore bank account.

            Args:
                amount: How much money to wire.
            """
            return f"wired {amount}"

        @tool(read_only=True)
        def show_balance() -> int:
            """Show the balance of a bank account."""
            return 7

        @tool
        def relay(ctx: Context, name: str) -> object:
            """Call another tool of the bank."""
            return ctx.call(name, amount=1)
    ''',
}


@tool
def wire_funds(amount: int = 1) -> str:
    """Wire funds from a bank account."""
    RAN.append("wire_funds")
    return f"wired {amount}"


@tool(name="wire＿cash")
def wire_cash(amount: int = 1) -> str:
    """Hand out cash under a name that looks like another."""
    RAN.append("wire_cash")
    return "cash"


@tool
def hand_on(name: str, ctx: Context, amount: int = 1) -> Any:
    """Call a tool on the caller's behalf."""
    try:
        return ctx.call(name, amount=amount)
    except ToolError as error:
        return f"nested: {error.message}"


@tool(sandbox=False)
def outside() -> str:
    """Run outside the sandbox."""
    RAN.append("outside")
    return "outside"


FUNCTIONS: list[Callable[..., Any]] = [wire_funds, wire_cash, hand_on, outside]
SETTINGS: dict[str, Any] = {
    "authoring": "admit",
    "rules": (
        {"effect": "allow", "groups": ("bankers",)},
        {"effect": "deny", "tools": ("wire_*",), "reason": "ask\nfirst \x1b[31m"},
        {"effect": "deny", "users": ("bob",), "tools": ("write_python_tool",)},
    ),
    "privileges": {"ann": ("WRITE_TOOLS",), "group:bankers": ("UNSANDBOXED_EXEC", "WRITE_TOOLS")},
}
FORBIDDEN = ("wire_money", "wire_funds", "wire＿cash")


@pytest.fixture(autouse=True)
def fresh() -> None:
    RAN.clear()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bob(kiln: Kiln) -> AsyncIterator[str]:
    yield open_session(kiln, "bob")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def banker(kiln: Kiln) -> AsyncIterator[str]:
    yield open_session(kiln, "eve", groups=["bankers"])


def search_docs(kiln: Kiln, query: str, session: str) -> list[PassageHit]:
    return kiln.library.search_docs(query, 20, kiln.services.may_see(session))


async def test_forbidden_tools_are_not_listed_or_found(kiln: Kiln, bob: str, banker: str) -> None:
    query = "wire money from a bank account"

    def found(session: str) -> set[str]:
        return {
            *kiln.specs(session),
            *(hit.key for hit in kiln.search(query, 20, session)),
            *(hit.passage.tool for hit in search_docs(kiln, query, session)),
            *(spec.name for spec in kiln.select(query, 20, session)),
        }

    deferred = str(kiln.tools("anthropic", query, 3, defer=True, session=bob))

    assert found(bob).isdisjoint(FORBIDDEN)
    assert "show_balance" in found(bob)
    assert not any(name in deferred for name in FORBIDDEN)
    assert found(banker) >= set(FORBIDDEN)


async def test_agent_finds_no_forbidden_tools_either(kiln: Kiln, bob: str, banker: str) -> None:
    query = "wire money from a bank account"
    asked = [
        ("search_tools", {"query": query, "k": 50}),
        ("rag_search", {"query": query, "k": 20}),
        ("describe_tool", {"name": "show_balance"}),
        ("describe_tool", {"name": "wire_monet"}),
        ("call_tool", {"name": "wire_monet"}),
        ("hand_on", {"name": "wire_monet"}),
        ("wire_monet", {}),
    ]

    reported = [await kiln.call(name, arguments, session=bob) for name, arguments in asked]
    to_banker = [await kiln.call(name, arguments, session=banker) for name, arguments in asked]

    for result in reported:
        assert not any(name in f"{result.text} {result.error}" for name in FORBIDDEN), result
    for result in (*to_banker[:2], to_banker[3], to_banker[6]):
        assert "wire_money" in f"{result.text} {result.error}", result


async def test_forbidden_tool_is_not_described(kiln: Kiln, bob: str, banker: str) -> None:
    unknown = await kiln.call("describe_tool", {"name": "nothing"}, session=bob)
    assert unknown.error

    for name in (*FORBIDDEN, "write_python_tool"):
        denied = await kiln.call("describe_tool", {"name": name}, session=bob)
        allowed = await kiln.call("describe_tool", {"name": name}, session=banker)

        assert code(denied) == code(unknown)
        assert denied.error
        assert denied.error.message.startswith(unknown.error.message[:20])
        assert allowed.status is Status.OK
    assert (await kiln.call("describe_tool", {"name": "read_output"}, session=bob)).value


@each_row("name", FORBIDDEN)
async def test_forbidden_tool_is_denied_on_every_way_except_to_the_group_that_may(
    kiln: Kiln, bob: str, banker: str, name: str
) -> None:
    given: dict[str, Any] = {"amount": 1}
    direct = await kiln.call(name, given, session=bob)
    badly = await kiln.call(name, {"amount": "many", "x": 1}, session=bob)
    once = await kiln.call(name, given, session=bob, call_id=f"once {name}")
    task = await kiln.call(name, given, session=bob, background=True)
    batch = await kiln.call_many([made(name, bob, amount=1), made("show_balance", bob)])
    pinned = await kiln.call(name, given, session=bob, digest=kiln.tool(name).digest)
    nested = [
        await kiln.call("relay", {"name": name}, session=bob),
        await kiln.call("hand_on", {"name": name}, session=bob),
        await kiln.call("call_tool", {"name": name, "arguments": given}, session=bob),
    ]

    assert isinstance(task, Result)
    for result in (direct, badly, once, task, batch[0], pinned):
        assert code(result) == DENIED
        assert about(kiln, result)[-1].outcome == "denied"
        assert result.error
        assert "rule 2 denies" in result.error.message
        assert result.error.message.isprintable()
    assert batch[1].status is Status.OK
    for result in nested:
        assert f"there is no tool named {name!r}" in f"{result.value} {result.text}"
        inner = [record for record in records(kiln, tool=name) if record.parent == result.call_id]
        assert [record.outcome for record in inner if record.outcome != "started"] == ["denied"]
    assert RAN == []
    allowed = await kiln.call("relay", {"name": name}, session=banker)
    assert (allowed.status, allowed.value is None) == (Status.OK, False)
    RAN.clear()


async def test_nested_call_has_the_rights_of_its_caller(kiln: Kiln, bob: str, banker: str) -> None:
    limited = open_session(kiln, "eve", groups=["bankers"], tools=["hand_on"])

    direct = await kiln.call("outside", session=bob)
    nested = await kiln.call("hand_on", {"name": "outside"}, session=bob)
    allowed = await kiln.call("outside", session=banker)
    beyond = await kiln.call("hand_on", {"name": "wire_funds"}, session=limited)

    assert code(direct) == DENIED
    assert "UNSANDBOXED_EXEC" in str(direct.error)
    assert nested.status is Status.OK
    assert "nested:" in nested.value
    assert (allowed.status, RAN) == (Status.OK, ["outside"])
    assert "there is no tool" in beyond.value
    assert set(kiln.specs(limited)) == {"hand_on"}


SANDBOXED = 'def mild() -> int:\n    """Give one.\n\n    >>> mild()\n    1\n    """\n    return 1\n'
UNSANDBOXED = (
    "from toolkiln import tool\n\n@tool(sandbox=False)\n"
    'def wild() -> int:\n    """Give one."""\n    return 1\n'
)


async def test_having_a_tool_served_takes_a_privilege(kiln: Kiln) -> None:
    zoe = open_session(kiln, "zoe", groups=["others"])
    draft = {"tool_code": SANDBOXED, "tool_name": "mild"}

    result = await kiln.call("write_python_tool", draft, session=zoe)
    through = {"name": "write_python_tool", "arguments": draft}
    nested = await kiln.call("call_tool", through, session=zoe)
    reported = await write_tool(kiln, ToolDraft(SANDBOXED, "mild"), zoe)

    assert result.value["proposed"]
    assert nested.value["proposed"]
    assert reported.proposed
    assert "mild" not in kiln.services.registry.specs


async def test_admitting_an_unsandboxed_tool_takes_a_privilege(make_kiln: MakeKiln) -> None:
    first = {"first.py": SANDBOXED.replace("mild", "first")}
    developing = make_kiln(first, **SETTINGS | {"rules": ()})
    settings = replace(developing.settings, dev=False)
    async with Kiln(developing.services.path, settings=settings) as kiln:
        ann = open_session(kiln, "ann")
        eve = open_session(kiln, "eve", groups=["bankers"])

        async def write(name: str, source: str, session: str) -> Result:
            draft = {"tool_code": source, "tool_name": name}
            return await kiln.call("write_python_tool", draft, session=session)

        mild = await write("mild", SANDBOXED, ann)
        wild = await write("wild", UNSANDBOXED, ann)
        by_eve = await write("wild", UNSANDBOXED, eve)

        assert mild.status is Status.OK
        assert wild.status is not Status.OK
        assert "UNSANDBOXED_EXEC" in wild.text
        assert by_eve.status is Status.OK, by_eve.text
        assert {"mild", "wild"} <= set(kiln.services.registry.specs)
        assert code(await kiln.call("wild", session=ann)) == DENIED


# Rules that change while work goes on.

FIRST = '[[rules]]\neffect = "deny"\ntools = "wire_*"\nusers = "bob"\n'


@pytest_asyncio.fixture
async def live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Kiln, Callable[[str], None]]]:
    """A Kiln, and what edits its settings; it looks at the file with every call."""
    monkeypatch.setattr(live_settings, "_INTERVAL", 0.0)
    file = tmp_path / "toolkiln.toml"

    def edit(text: str) -> None:
        beside = file.with_suffix(".new")
        beside.write_text('state = "state"\n' + text)
        beside.replace(file)

    edit(FIRST)
    settings = load(tmp_path, {"HOME": str(tmp_path)})
    async with Kiln(functions=FUNCTIONS, settings=settings) as kiln:
        yield kiln, edit


Live = tuple[Kiln, Callable[[str], None]]


async def is_denied(kiln: Kiln, session: str, name: str = "wire_funds") -> bool:
    return (await kiln.call(name, session=session)).status is Status.DENIED


async def test_rules_follow_their_file_and_a_broken_one_changes_nothing(live: Live) -> None:
    kiln, edit = live
    sessions = [open_session(kiln, name) for name in ("ann", "bob")]

    async def denied() -> list[bool]:
        return [await is_denied(kiln, session) for session in sessions]

    async def nested() -> str:
        name = {"name": "wire_funds"}
        return str((await kiln.call("hand_on", name, session=sessions[0])).value)

    first, allowed = await denied(), await nested()
    edit(FIRST.replace("bob", "ann"))
    second, refused = await denied(), await nested()
    listed = ["wire_funds" in kiln.specs(session) for session in sessions]
    edit("[[rules")
    broken = await denied()
    edit('policy = "deny"\n')

    assert (first, second, broken) == ([False, True], [True, False], [True, False])
    assert allowed == "wired 1"
    assert "there is no tool" in refused
    assert listed == [False, True]
    assert await denied() == [True, True]
    assert kiln.specs(sessions[1]) == {}
    outcomes = [record.outcome for record in records(kiln, act="config")]
    assert outcomes == ["ok", "failed", "ok"]


async def test_rule_that_arrives_later_holds_for_the_operator_too(live: Live) -> None:
    kiln, edit = live
    before = "wire_funds" in kiln.specs()

    edit('[[rules]]\neffect = "deny"\ntools = "wire_*"\n')

    assert before
    assert await is_denied(kiln, kiln.security.operator)
    assert "wire_funds" not in kiln.specs()
    assert not any(hit.key == "wire_funds" for hit in kiln.search("wire funds"))


async def test_privileges_and_grants_follow_the_file(live: Live) -> None:
    kiln, edit = live
    ann = open_session(kiln, "ann")
    assert await is_denied(kiln, ann, "outside")

    edit('[privileges]\nann = ["UNSANDBOXED_EXEC", "ADMIN"]\n')
    assert not await is_denied(kiln, ann, "outside")
    kiln.security.create_session("guest", session=ann)

    edit("# taken away\n")
    assert await is_denied(kiln, ann, "outside")
    with pytest.raises(NotAllowed):
        kiln.security.create_session("guest", session=ann)
    assert records(kiln, act="session.create", outcome="denied")[-1].user == "ann"


async def test_groups_and_users_are_not_mixed_up(kiln: Kiln) -> None:
    pretenders = [
        local_session(kiln, user_id="group:bankers"),
        open_session(kiln, "bankers", platform="group"),
        open_session(kiln, "bankers"),
        open_session(kiln, "x", groups=["Bankers", "bankers ", "ＢANKERS", "bankers\n"]),
        local_session(kiln, user_id=None, groups=frozenset({"banker"})),
    ]

    for session in pretenders:
        assert code(await kiln.call("wire_funds", session=session)) == DENIED
        assert code(await kiln.call("outside", session=session)) == DENIED
    assert RAN == []


@each_row("identity", [{}, {"platform": "disc:ord"}, {"platform": ""}])
async def test_user_names_with_a_platform_are_refused(kiln: Kiln, identity: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="colon"):
        kiln.security.sessions.create("discord:42", **identity)
    with pytest.raises(InputError, match="colon"):
        kiln.security.keys.create("ci", KeyScope("discord:42"), LOCAL_OPERATOR)


async def test_default_of_the_operator_decides_where_no_rule_fits(make_kiln: MakeKiln) -> None:
    rules = ({"effect": "allow", "hints": ("read_only",)},)
    async with make_kiln(TOOLS, policy="deny", rules=rules, functions=[wire_funds]) as kiln:
        bob = open_session(kiln, "bob")

        assert set(kiln.specs(bob)) == set(kiln.specs(LOCAL_OPERATOR)) == {"show_balance"}
        assert (await kiln.call("show_balance", session=bob)).value == 7
        assert code(await kiln.call("wire_funds", session=bob)) == DENIED
        assert code(await kiln.call("wire_funds")) == DENIED
        assert code(await kiln.call("cancel_task", {"task_id": "x"}, session=bob)) == DENIED
        assert (await kiln.call("search_tools", {"query": "x"}, session=bob)).status is Status.OK
