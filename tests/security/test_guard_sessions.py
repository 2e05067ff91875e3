"""Who makes a call: sessions that are missing, forged, expired, ended or stolen, and API keys."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from pydantic import ValidationError

from execution.conftest import MakeKiln
from execution.observers import code, local_session, open_session, until
from tables import each_row
from toolkiln import Context, tool
from toolkiln.define import ToolError
from toolkiln.errors import InputError, NotAllowed
from toolkiln.kiln import Kiln
from toolkiln.model.audit import AuditFilter
from toolkiln.model.call import Call, Result, Status, Task
from toolkiln.security.authentication import KeyScope
from toolkiln.security.sessions import LOCAL_OPERATOR, NoSession

from .guarded import about, expired, holding, made, records

pytestmark = pytest.mark.asyncio(loop_scope="module")
DENIED = (Status.DENIED, "no_session")
RAN: list[str] = []
STARTED: list[str] = []
GATE = threading.Event()
TOOLS = {
    "files.py": '''
        from toolkiln import Context, ToolError, tool

        @tool
        def tell_file(ctx: Context) -> dict:
            """Tell who calls."""
            return {"user": ctx.user_id, "platform": ctx.platform, "guild": ctx.guild_id}

        @tool
        def pass_on_file(ctx: Context, tool: str) -> object:
            """Call another tool."""
            return ctx.call(tool)
    ''',
    "webui.py": '''
        class Tools:
            def greet(self, __user__: dict = {}) -> str:
                """Greet the caller."""
                return __user__["id"]
    ''',
}
SETTINGS: dict[str, Any] = {
    "privileges": {
        "kim": ("UNSANDBOXED_EXEC", "ADMIN", "APPROVE"),
        "max": ("ADMIN",),
        "group:ops": ("WRITE_TOOLS",),
    }
}


@tool
def tell(ctx: Context) -> dict[str, Any]:
    """Tell who calls."""
    RAN.append(str(ctx.user_id))
    return {"user": ctx.user_id, "agent": ctx.agent_id, "state": ctx.agent_state}


@tool
def claim(user_id: str, groups: list[str], privileges: list[str], ctx: Context) -> list[Any]:
    """Take arguments that sound like an identity."""
    return [ctx.user_id, user_id, groups, privileges]


@tool
def pass_on(name: str, ctx: Context, arguments: dict[str, Any] | None = None) -> Any:
    """Call another tool once the gate is open."""
    STARTED.append(name)
    GATE.wait(20)
    try:
        return ctx.call(name, **(arguments or {}))
    except ToolError as error:
        return f"nested: {error.message}"


@tool(sandbox=False)
def reach_out() -> str:
    """Run outside the sandbox."""
    return "outside"


FUNCTIONS = [tell, claim, pass_on, reach_out]


@pytest.fixture(autouse=True)
def fresh() -> None:
    RAN.clear()
    STARTED.clear()
    GATE.clear()


TOKENS = [None, "", "0" * 43, "own", "\0", "\ud800", "' OR 1=1 --", "x" * 1_000_000]


@each_row("token", TOKENS)
async def test_missing_or_forged_session_is_always_denied(kiln: Kiln, token: str | None) -> None:
    for name in ("tell", "tell_file", "no_such_tool", "check_task", "write_python_tool", "tel"):
        result = await kiln.call(name, {}, session=token)
        again = await kiln.call(name, {}, session=token, call_id="forged", background=True)

        assert code(result) == DENIED
        assert isinstance(again, Result)
        assert code(again) == DENIED
        assert "tell" not in result.text.replace(name, "")
        record = about(kiln, result)[-1]
        assert (record.outcome, record.user, record.session) == ("denied", "", "")
    assert RAN == []
    for look in (kiln.specs, lambda session: kiln.search("x", session=session)):
        with pytest.raises(NoSession):
            look(token)
    tasks = kiln.tasks
    for ask in (tasks.list(token), tasks.get("x", token), tasks.read_output("x", token)):
        with pytest.raises(NoSession):
            await ask


async def test_token_of_another_store_is_denied(kiln: Kiln, make_kiln: MakeKiln) -> None:
    async with make_kiln({}, functions=[tell]) as other:
        opened = other.security.sessions.create("ann")
        own = other.security.operator

        assert code(await kiln.call("tell", session=opened.token)) == DENIED
        assert code(await kiln.call("tell", session=own)) == DENIED
        assert (await other.call("tell", session=opened.token)).status is Status.OK


async def test_expired_session_is_denied_and_cannot_be_renewed(kiln: Kiln) -> None:
    sessions = kiln.security.sessions
    short, later = (sessions.create("ann", seconds=seconds) for seconds in (0.05, 0.5))
    renewed = sessions.create("ann", seconds=0.5)
    sessions.renew(renewed.token)
    await kiln.call("tell", session=renewed.token)
    await expired(kiln, later)

    for token in (short.token, later.token, "forged", kiln.security.operator):
        with pytest.raises(NoSession):
            sessions.renew(token)
    for token in (short.token, later.token):
        assert code(await kiln.call("tell", session=token)) == DENIED
    assert (await kiln.call("tell", session=renewed.token)).status is Status.OK


async def test_ended_session_is_denied_at_once_and_its_public_id_is_no_token(kiln: Kiln) -> None:
    opened = kiln.security.sessions.create("ann")
    before = await kiln.call("tell", session=opened.token)
    by_trace_id = await kiln.call("tell", session=opened.trace_id)

    kiln.security.sessions.end(opened.token)

    assert before.value["user"] == "ann"
    assert code(by_trace_id) == DENIED
    assert code(await kiln.call("tell", session=opened.token)) == DENIED
    with pytest.raises(NoSession):
        kiln.security.sessions.renew(opened.token)


async def test_token_is_in_no_file(make_kiln: MakeKiln, tmp_path: Path) -> None:
    async with make_kiln({}, functions=[tell, pass_on]) as kiln:
        opened = kiln.security.sessions.create("ann")
        key = kiln.security.keys.create("robot", KeyScope("robot"), LOCAL_OPERATOR)
        by_key = kiln.security.keys.session(key.text)
        tokens = [opened.token, by_key.token, kiln.security.operator, key.text]
        GATE.set()
        for token in tokens[:3]:
            await kiln.call("tell", session=token, call_id="kept")
            await kiln.call("pass_on", {"name": "tell"}, session=token)
        state = tmp_path / "state"
        while_open = [holding(state, token) for token in tokens]

        assert while_open == [set()] * 4
        assert not any(token in str(record) for record in records(kiln) for token in tokens)
    assert [holding(state, token) for token in tokens] == [set()] * 4
    assert holding(state, opened.trace_id) == {"audit.db", "store.db"}


async def test_request_has_no_room_for_an_identity(kiln: Kiln) -> None:
    for field in ("caller", "user_id", "groups", "privileges", "agent_id", "platform"):
        with pytest.raises(ValidationError):
            Call.model_validate({"tool": "tell", field: "admin"})
        with pytest.raises(ValidationError):
            Call.model_validate_json(f'{{"tool": "tell", "{field}": "admin"}}')


async def test_arguments_that_sound_like_an_identity_change_nothing(kiln: Kiln) -> None:
    session = open_session(kiln, "ann", agent_id="helper", platform="chat", guild_id="g")
    identity = {"user_id": "root", "groups": ["ops"], "privileges": ["ADMIN"]}

    claimed = await kiln.call("claim", identity, session=session)
    unasked = await kiln.call("tell", identity, session=session)
    reported = await kiln.call("tell", session=session)
    in_file = await kiln.call("tell_file", session=session)

    assert claimed.value == ["ann", "root", ["ops"], ["ADMIN"]]
    assert unasked.status is Status.INVALID
    assert reported.value == {"user": "ann", "agent": "helper", "state": {}}
    assert in_file.value == {"user": "ann", "platform": "chat", "guild": "g"}
    assert {record.user for record in about(kiln, claimed)} == {"chat:ann"}


@each_row("name", ["__user__", "__id__", "ctx", "self"])
async def test_what_is_injected_is_not_taken_from_arguments(kiln: Kiln, name: str) -> None:
    session = open_session(kiln, "ann")
    forged = {name: {"id": "root", "user_id": "root"}}

    for tool_name in ("greet", "tell", "tell_file"):
        result = await kiln.call(tool_name, forged, session=session)

        assert result.status is Status.INVALID
        assert "root" not in str(result.value)
    assert (await kiln.call("greet", session=session)).value == "ann"


async def test_request_that_claims_to_be_nested_is_none(kiln: Kiln) -> None:
    opened = kiln.security.sessions.create("ann", seconds=0.05)
    held = kiln.security.sessions.create("bob")
    await expired(kiln, opened)
    claims = {"depth": 1, "parent": "another call"}

    too_late = made("tell", opened.token).model_copy(update=claims)
    holding_one = made("tell", held.token).model_copy(update=claims | {"depth": -1000})
    denied, allowed = await kiln.call_many([too_late, holding_one])

    assert code(denied) == DENIED
    assert RAN == ["bob"]
    assert {record.parent for record in (*about(kiln, denied), *about(kiln, allowed))} == {""}


async def test_nested_calls_run_for_the_same_session(kiln: Kiln) -> None:
    opened = kiln.security.sessions.create("ann", agent_id="helper")
    GATE.set()

    inline = await kiln.call("pass_on", {"name": "tell"}, session=opened.token)
    sandboxed = await kiln.call("pass_on_file", {"tool": "tell"}, session=opened.token)
    mixed = await kiln.call("pass_on", {"name": "tell_file"}, session=opened.token)

    assert [inline.value["user"], sandboxed.value["user"], mixed.value["user"]] == ["ann"] * 3
    nested = [r for r in records(kiln, session=opened.trace_id) if r.parent]
    assert [r.parent for r in nested] == [inline.call_id, sandboxed.call_id, mixed.call_id]
    assert {(r.user, r.agent, r.session) for r in nested} == {("ann", "helper", opened.trace_id)}


@pytest.mark.parametrize("background", [False, True])
async def test_running_call_loses_its_rights_with_its_session(kiln: Kiln, background: bool) -> None:
    opened = kiln.security.sessions.create("ann")
    given: dict[str, Any] = {"session": opened.token, "call_id": f"losing {background}"}
    calling = asyncio.create_task(
        kiln.call("pass_on", {"name": "tell"}, background=background, **given)
    )
    await until(lambda: STARTED == ["tell"])

    kiln.security.sessions.end(opened.token)
    GATE.set()
    ended: Any = await calling
    if isinstance(ended, Task):
        same = kiln.security.sessions.create("ann")
        ended = (await kiln.tasks.wait(ended.id, same.token, timeout=20)).result

    assert "session" in ended.value
    assert ended.value.startswith("nested: tell: ")
    assert RAN == []


async def test_call_that_runs_goes_on_when_its_session_merely_expires(kiln: Kiln) -> None:
    opened = kiln.security.sessions.create("ann", seconds=2)
    await kiln.call("tell", session=opened.token, call_id="before")
    nested: dict[str, dict[str, str]] = {
        "tell": {},
        "search_tools": {"query": "tell"},
        "describe_tool": {"name": "tell"},
        "check_task": {"task_id": "before"},
    }
    calls = [
        kiln.call("pass_on", {"name": name, "arguments": given}, session=opened.token)
        for name, given in nested.items()
    ]
    calling = asyncio.gather(*calls)
    await until(lambda: len(STARTED) == len(nested))
    await expired(kiln, opened)

    GATE.set()
    results = await calling

    assert results[0].value["user"] == "ann"
    assert not any("nested:" in str(result.value) for result in results), results
    for name, given in nested.items():
        assert code(await kiln.call(name, given, session=opened.token)) == DENIED


async def test_sessions_of_one_user_do_not_share_what_is_kept_with_another(kiln: Kiln) -> None:
    ann, bob, same = (open_session(kiln, name) for name in ("ann", "bob", "ann"))

    results = [
        await kiln.call("tell", session=session, call_id="shared id")
        for session in (ann, bob, same)
    ]

    assert [result.value["user"] for result in results] == ["ann", "bob", "ann"]
    assert RAN == ["ann", "bob"]
    assert "shared id" not in {t.id for t in await kiln.tasks.list(open_session(kiln, "eve"))}


@each_row(
    "user, identity",
    [
        ("", {}),
        ("x" * 1000, {}),
        ("ann", {"session": "x"}),
        ("ann", {"usre": 1}),
        ("ann", {"groups": "ops"}),
        ("ann", {"privileges": 1}),
        ("ann", {"platform": "p" * 1000}),
        ("ann", {"seconds": 0}),
        (None, {}),
    ],
)
async def test_a_bad_identity_is_refused(kiln: Kiln, user: Any, identity: dict[str, Any]) -> None:
    before = len(kiln.security.sessions.alive(10_000))

    with pytest.raises(InputError):
        kiln.security.sessions.create(user, **identity)

    assert len(kiln.security.sessions.alive(10_000)) == before


# Keys.


async def test_key_reaches_the_tools_of_its_scope_and_no_others(kiln: Kiln) -> None:
    scope = KeyScope("robot", tools=["tell*"])
    key = kiln.security.keys.create("scoped", scope, LOCAL_OPERATOR)
    session = kiln.security.keys.session(key.text).token

    reported = await kiln.call("tell", session=session)
    others = [
        await kiln.call("claim", {}, session=session),
        await kiln.call("pass_on", {"name": "tell"}, session=session),
        await kiln.call("search_tools", {"query": "tell"}, session=session),
        await kiln.call("ｔell", {}, session=session),
    ]

    assert reported.value["user"] == "robot"
    assert set(kiln.specs(session)) == {"tell", "tell_file"}
    assert [result.status for result in others] == [Status.DENIED] * 3 + [Status.INVALID]
    assert "limited" in others[0].text


async def test_settings_do_not_widen_the_privileges_of_a_key(kiln: Kiln) -> None:
    scope = KeyScope("kim", groups=["ops"])
    key = kiln.security.keys.create("kim's", scope, LOCAL_OPERATOR).text
    by_key = kiln.security.keys.session(key).token
    by_hand = open_session(kiln, "kim", groups=["ops"])

    denied = await kiln.call("reach_out", session=by_key)
    with pytest.raises(NotAllowed):
        kiln.security.keys.create("another", KeyScope("kim"), by_key)

    assert code(denied) == (Status.DENIED, "not_allowed")
    assert (await kiln.call("reach_out", session=by_hand)).value == "outside"
    assert kiln.security.caller(by_key).privileges == frozenset()
    assert "WRITE_TOOLS" in kiln.security.caller(by_hand).privileges
    assert records(kiln, act="key.create", outcome="denied")[-1].user == "kim"


async def test_expired_key_makes_no_session_and_none_outlives_it(kiln: Kiln) -> None:
    keys = kiln.security.keys
    short = keys.create("short", KeyScope("robot", days=0.5 / 86_400), LOCAL_OPERATOR)
    opened = keys.session(short.text, seconds=3600)
    with pytest.raises(InputError):
        kiln.security.sessions.renew(opened.token, 3600)

    await expired(kiln, opened)
    await until(lambda: refuses(keys, short.text))

    assert opened.seconds <= 0.5
    assert code(await kiln.call("tell", session=opened.token)) == DENIED


def refuses(keys: Any, text: str) -> bool:
    try:
        keys.session(text)
    except NoSession:
        return True
    return False


@each_row("text", ["", "tk_", "tk_" + "0" * 43, "\ud800", "tk_" + "x" * 100_000])
async def test_what_is_no_key_makes_no_session(kiln: Kiln, text: str) -> None:
    assert refuses(kiln.security.keys, text)


async def test_revoked_key_ends_its_sessions_at_once_and_no_others(kiln: Kiln) -> None:
    keys = kiln.security.keys
    key = keys.create("to be revoked", KeyScope("robot"), LOCAL_OPERATOR)
    sessions = [keys.session(key.text).token for _ in range(3)]
    other = open_session(kiln, "robot")
    before = [await kiln.call("tell", session=token) for token in (*sessions, other)]

    with pytest.raises(NotAllowed):
        keys.revoke(key.key.id, other)
    keys.revoke(key.key.id, LOCAL_OPERATOR)

    assert {result.status for result in before} == {Status.OK}
    for token in sessions:
        assert code(await kiln.call("tell", session=token)) == DENIED
        with pytest.raises(NoSession):
            kiln.security.sessions.renew(token)
    assert refuses(keys, key.text)
    assert (await kiln.call("tell", session=other)).status is Status.OK
    acts = [(r.outcome, r.detail) for r in records(kiln, act="key.revoke")][-3:]
    assert [outcome for outcome, _ in acts] == ["denied", "started", "ok"]


OTHER_PROCESS = """
    import asyncio, sys, time
    from pathlib import Path
    from toolkiln.kiln import Kiln
    from toolkiln.config import Settings

    async def main(tools, state, tokens):
        tokens = tokens.split()
        async with Kiln(Path(tools), settings=Settings(state=Path(state)), dev=True) as kiln:
            while True:
                results = [await kiln.call("no_tool", session=token) for token in tokens]
                print(*(result.status.value for result in results), time.time(), flush=True)
                if all(result.status.value == "denied" for result in results):
                    return
                await asyncio.sleep(0.05)

    asyncio.run(main(*sys.argv[1:]))
"""


async def test_another_process_denies_what_was_ended_or_revoked_here_within_a_moment(
    make_kiln: MakeKiln, start_python: Callable[..., "Popen[str]"], tmp_path: Path
) -> None:
    source = 'def add(a: int) -> int:\n    """Add."""\n    return a\n'
    async with make_kiln({"add.py": source}) as kiln:
        key = kiln.security.keys.create("robot", KeyScope("robot"), LOCAL_OPERATOR)
        by_key = kiln.security.keys.session(key.text)
        ended = kiln.security.sessions.create("ann")
        tokens = f"{by_key.token} {ended.token}"
        other = start_python(OTHER_PROCESS, tmp_path / "tools", tmp_path / "state", tokens)
        assert other.stdout
        first = await asyncio.to_thread(other.stdout.readline)

        kiln.security.keys.revoke("robot", LOCAL_OPERATOR)
        kiln.security.sessions.end(ended.token)
        rest = await asyncio.wait_for(asyncio.to_thread(other.stdout.read), 20)

        assert first.split()[:2] == ["invalid", "invalid"]
        assert rest.splitlines()[-1].split()[:2] == ["denied", "denied"]
        reported = list(kiln.security.audit.entries(AuditFilter(user="robot", outcome="invalid")))
        assert reported


async def test_local_sessions_are_of_this_process_alone(kiln: Kiln) -> None:
    local = local_session(kiln, user_id="guest")

    assert (await kiln.call("tell", session=local)).value["user"] == "guest"
    async with Kiln(settings=kiln.settings, functions=[tell]) as other:
        assert code(await other.call("tell", session=local)) == DENIED
    kiln.security.sessions.end(local)
    assert code(await kiln.call("tell", session=local)) == DENIED
