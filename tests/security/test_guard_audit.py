"""What is recorded of calls and of acts, whatever they are, and whatever happens meanwhile."""

import asyncio
import contextlib
import os
import random
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from execution.conftest import MakeKiln
from execution.observers import SOON, code, open_session, until
from tables import each_row
from toolkiln import Context, tool
from toolkiln.config import load
from toolkiln.define import ToolError
from toolkiln.errors import InputError, NotAllowed, ToolkilnError
from toolkiln.kiln import Kiln
from toolkiln.model.admission import AdmissionDecision
from toolkiln.model.call import Status
from toolkiln.security.authentication import KeyScope
from toolkiln.security.sessions import LOCAL_OPERATOR

from .guarded import about, records, waiting

pytestmark = pytest.mark.asyncio(loop_scope="module")
RAN: list[Any] = []
GATE = threading.Event()
TOOLS = {
    "files.py": '''
        import os
        from toolkiln import tool

        @tool
        def run_file(how: str) -> object:
            """Do one of several things in the sandbox."""
            if how == "exit":
                os._exit(3)
            if how == "memory":
                return len(bytearray(1 << 40))
            if how == "raise":
                raise ValueError("private")
            return how
    ''',
    "broken.py": '''
        import no_such_module_anywhere
        from toolkiln import tool

        @tool
        def unimportable() -> None:
            """Never run."""
    ''',
}


@tool
def run(how: str, text: str = "", ctx: Context | None = None) -> Any:
    """Do one of several things."""
    RAN.append(how)
    match how:
        case "raise":
            raise ValueError(text)
        case "error":
            raise ToolError(text)
        case "refuse":
            raise ToolError("permission denied: no")
        case "refused":
            return {"success": False, "error": "Access denied: you are not on the list"}
        case "sentence":
            return "You do not have permission to do that."
        case "failed":
            return {"success": False, "error": "it broke"}
        case "wait":
            GATE.wait(SOON)
        case "nest":
            assert ctx
            return ctx.call("run", how="x")
    return how


@tool(timeout=0.05)
async def dawdle() -> None:
    """Take too long."""
    await asyncio.sleep(10)


@tool(destructive=True)
def destroy(what: Any = None, password: str = "", options: dict[str, Any] | None = None) -> str:
    """Do something that is recorded before it starts."""
    RAN.append("destroy")
    return "destroyed"


@tool(sandbox=False)
def outside() -> str:
    """Run outside the sandbox."""
    RAN.append("outside")
    return "outside"


OTHER = 'def other() -> int:\n    """Give one."""\n    return 1\n'
FUNCTIONS: list[Callable[..., Any]] = [run, dawdle, destroy, outside]
SETTINGS: dict[str, Any] = {"rules": ({"effect": "deny", "users": ("outcast",)},)}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    RAN.clear()
    GATE.clear()
    yield
    GATE.set()


OUTCOMES = [
    ("run", {"how": "x"}, "ok"),
    ("run", {"how": "raise"}, "exception"),
    ("run", {"how": "error", "text": "sorry"}, "failed"),
    ("run", {"how": "refuse"}, "denied"),
    ("run", {"how": "refused"}, "denied"),
    ("run", {"how": "sentence"}, "denied"),
    ("run", {"how": "failed"}, "failed"),
    ("run", {"how": 3}, "invalid"),
    ("run", "no JSON", "invalid"),
    ("no_such_tool", {}, "invalid"),
    ("dawdle", {}, "timeout"),
    ("outside", {}, "denied"),
    ("run_file", {"how": "x"}, "ok"),
    ("run_file", {"how": "raise"}, "exception"),
    ("run_file", {"how": "exit"}, "exception"),
    ("run_file", {"how": "memory"}, "killed"),
    ("unimportable", {}, "exception"),
    ("check_task", {"task_id": "nothing"}, "failed"),
]


@each_row("name, arguments, outcome", OUTCOMES)
async def test_every_call_is_recorded(kiln: Kiln, name: str, arguments: Any, outcome: str) -> None:
    opened = kiln.security.sessions.create("ann", platform="chat", agent_id="helper")
    before = time.time()

    result = await kiln.call(name, arguments, session=opened.token)

    *earlier, last = about(kiln, result)
    assert {record.outcome for record in earlier} <= {"started"}
    assert last.outcome == outcome
    assert (last.act, last.surface, last.tool) == ("call", "python", name)
    assert (last.user, last.agent, last.session) == ("chat:ann", "helper", opened.trace_id)
    known = {**kiln.services.registry.specs, "check_task": kiln.tool("check_task")}
    assert last.digest == (known[name].digest if name in known else "")
    assert (last.call_id, last.parent) == (result.call_id, "")
    assert before <= last.at <= time.time()
    assert last.duration is not None
    assert last.duration >= 0
    detail = last.detail.removeprefix("dev").removeprefix("; ")  # as files are served here
    assert (detail == "") == (outcome == "ok")
    if result.error:
        assert detail.startswith(f"{result.error.code}: ")


async def test_call_that_is_cancelled_or_nested_leaves_its_record(kiln: Kiln) -> None:
    opened = kiln.security.sessions.create("ann")
    calling = asyncio.create_task(kiln.call("run", {"how": "wait"}, session=opened.token))
    await until(lambda: RAN == ["wait"])
    calling.cancel()
    with suppress(asyncio.CancelledError):
        await calling
    GATE.set()
    nested = await kiln.call("run", {"how": "nest"}, session=opened.token)

    reported = records(kiln, session=opened.trace_id)
    cancelled = next(record for record in reported if record.outcome == "cancelled")
    ended = [record for record in reported if record.outcome == "ok"]
    outer = next(record for record in ended if record.call_id == nested.call_id)
    inner = next(record for record in ended if record.parent == nested.call_id)
    assert (cancelled.tool, cancelled.user) == ("run", "ann")
    assert (inner.session, inner.surface) == (outer.session, outer.surface)


async def test_repeated_call_id_leaves_a_record_each_time(kiln: Kiln) -> None:
    opened = kiln.security.sessions.create("ann")

    for _ in range(3):
        await kiln.call("run", {"how": "x"}, session=opened.token, call_id="thrice")
    other = await kiln.call("run", {"how": "y"}, session=opened.token, call_id="thrice")

    reported = [r.outcome for r in records(kiln, session=opened.trace_id, act="call")]
    assert [one for one in reported if one != "started"] == ["ok", "ok", "ok", "invalid"]
    assert code(other) == (Status.INVALID, "conflict")
    assert RAN == ["x"]


async def test_surface_is_what_opened_the_kiln(tmp_path: Path) -> None:
    settings = replace(load(tmp_path, {}), state=tmp_path / "state")
    async with Kiln(functions=FUNCTIONS, settings=settings, surface="mcp") as kiln:
        await kiln.call("run", {"how": "x"})
        kiln.security.create_session("ann")

        assert {record.surface for record in records(kiln)} == {"mcp"}
        assert {record.act for record in records(kiln)} >= {"call", "session.create"}


async def test_privileged_call_is_recorded_with_arguments_before_it_starts(kiln: Kiln) -> None:
    deep: dict[str, Any] = {"level": 1, "api_key": "s3cr3t-value"}
    for level in range(10):
        deep = {"level": level, "inner": [deep, {"Authorization": "Bearer s3cr3t-value"}]}
    arguments = {
        "what": {"headers": [["Cookie", "s3cr3t-value"]], "url": "https://u:s3cr3t-value@h/"},
        "password": "s3cr3t-value",
        "options": {**deep, "kept": "visible", "text": "token=s3cr3t-value", "ref": "visible too"},
    }

    result = await kiln.call("destroy", arguments)
    huge = await kiln.call("destroy", {"what": "x\n\x1b[31m" * 100_000})

    started, ended = about(kiln, result)
    assert (started.outcome, ended.outcome) == ("started", "ok")
    assert started.duration is None
    for record in (started, ended):
        assert "s3cr3t" not in record.arguments
        assert "[redacted]" in record.arguments
    assert "visible" in started.arguments
    for record in about(kiln, huge):
        assert 1000 < len(record.arguments) <= 2000
        assert record.arguments.isprintable()
    ordinary = await kiln.call("run", {"how": "x", "text": "private"})
    assert "private" not in str(about(kiln, ordinary))


HOSTILE = 'evil\nok\tadmin\r\x1b[2J\x00\u2028\u202e"; DROP TABLE x;--' + "A" * 100_000


async def test_nothing_that_people_or_tools_choose_breaks_out_of_its_line(kiln: Kiln) -> None:
    ids = {"user_id": "mallory\n2026 root ok", "agent_id": "\x1b[2J\x07", "platform": "chat\r\n"}
    opened = kiln.security.sessions.create(**ids)  # type: ignore[arg-type]
    results = [
        await kiln.call(HOSTILE, {}, session=opened.token),
        await kiln.call("run", {"how": "error", "text": HOSTILE}, session=opened.token),
        await kiln.call("run", {HOSTILE: 1}, session=opened.token),
        await kiln.call("run", {"how": HOSTILE}, session=opened.token, call_id=HOSTILE[:200]),
        await kiln.call("destroy", {"what": HOSTILE}, session=opened.token),
        await kiln.call("run", {"how": "x"}, session=opened.token, digest=HOSTILE),
    ]
    with pytest.raises(InputError):
        kiln.security.reject("0123456789ab", reason=HOSTILE)
    with pytest.raises(NotAllowed):
        kiln.security.create_session(HOSTILE[:150], session=opened.token)

    reported = [*records(kiln, session=opened.trace_id), *records(kiln, act="reject")]
    assert len(reported) >= len(results) + 2
    for record in reported:
        texts = [value for value in record if isinstance(value, str)]
        assert all(text.isprintable() for text in texts)
        assert all(len(text) <= 500 for text in texts if text is not record.arguments)
    assert kiln.security.audit.verify().ok


async def test_admin_acts_are_recorded_those_that_were_refused_too(
    make_kiln: MakeKiln, tmp_path: Path
) -> None:
    async with make_kiln({"act.py": "", "other.py": OTHER}, functions=[run]) as developing:
        settings = replace(developing.settings, dev=False)
    async with Kiln(tmp_path / "tools", settings=settings, functions=[destroy]) as kiln:
        security, admissions = kiln.security, kiln.services.admissions
        bob = open_session(kiln, "bob")
        for version in ("first", "second"):
            source = OTHER.replace("other", "act") + f"# {version}\n"
            (tmp_path / "tools" / "act.py").write_text(source)
            admissions.admit([admissions.candidate("act.py")], AdmissionDecision("ann", grant=True))
        admissions.rollback("act", "1", AdmissionDecision("ann"))
        admissions.reject("other.py", "ann")
        admissions.switch("act", False, "ann")
        with pytest.raises(InputError):
            admissions.switch("nothing", False, "ann")
        key = security.keys.create("k", KeyScope("robot"), LOCAL_OPERATOR)
        security.keys.revoke(key.key.id, LOCAL_OPERATOR)
        security.set_secret("NAME", "some value")
        security.create_session("guest")
        for refused in (
            lambda: security.keys.create("k2", KeyScope("robot"), bob),
            lambda: security.keys.revoke("k", bob),
            lambda: security.set_secret("NAME", "x" * 9, bob),
            lambda: security.create_session("guest", session=bob),
            lambda: security.audit.prune(1, bob),
            lambda: security.forget_approval("0123456789ab", bob),
        ):
            with pytest.raises(NotAllowed):
                refused()

        reported = [(r.act, r.outcome) for r in records(kiln)]
        for act in (
            *("admit", "rollback", "reject", "switch", "key.create", "key.revoke", "secret.set"),
            "session.create",
        ):
            place = reported.index((act, "started"))
            assert (act, "ok") in reported[place:], act
        assert ("switch", "failed") in reported
        denied = {act.split(".")[0] for act, outcome in reported if outcome == "denied"}
        assert denied >= {"key", "secret", "session", "audit", "approval"}
        assert {r.user for r in records(kiln, outcome="denied")} == {"bob"}
        assert {r.user for r in records(kiln, act="admit")} == {"ann"}
        assert "some value" not in str(records(kiln))
        assert security.audit.verify().ok


# What cannot be recorded does not happen.


@contextlib.contextmanager
def unwritable(state: Path) -> Iterator[None]:
    """A ledger whose head was edited: nothing is appended to it."""
    with closing(sqlite3.connect(state / "audit.db", timeout=20)) as ledger:
        seal = ledger.execute("SELECT seal FROM toolkiln_audit_head").fetchone()
        with ledger:
            ledger.execute("UPDATE toolkiln_audit_head SET seal = 'x'")
        yield
        with ledger:
            ledger.execute("UPDATE toolkiln_audit_head SET seal = ?", seal)


async def test_privileged_acts_that_cannot_be_recorded_do_not_happen(make_kiln: MakeKiln) -> None:
    rules = ({"effect": "ask", "tools": ("run",), "users": ("kid",)},)
    async with make_kiln({}, functions=FUNCTIONS, rules=rules) as kiln:
        kid = open_session(kiln, "kid")
        await kiln.call("destroy")
        call = await waiting(kiln, "run", {"how": "asked"}, session=kid)
        kiln.security.recorder.flush()
        RAN.clear()
        with unwritable(kiln.settings.state):
            refused = [await kiln.call("destroy"), await kiln.call("outside")]
            with pytest.raises(ToolkilnError):
                kiln.security.approve(call.approval)
            for act in (
                lambda: kiln.security.create_session("ann"),
                lambda: kiln.security.keys.create("k", KeyScope("x"), LOCAL_OPERATOR),
                lambda: kiln.security.set_secret("NAME", "a value"),
            ):
                with pytest.raises(ToolkilnError):
                    act()
            ordinary = await kiln.call("run", {"how": "x"})

            assert [code(r) for r in refused] == [(Status.UNAVAILABLE, "audit_failed")] * 2
            assert RAN == ["x"]
            assert not call.running.done()
            assert kiln.security.keys.list() == []
            assert not (kiln.settings.state / "secrets.toml").exists()
        kiln.security.recorder.flush()
        again = await kiln.call("destroy")
        kiln.security.approve(call.approval)

        assert again.status is Status.OK
        assert (await call.result()).status is Status.OK
        assert about(kiln, ordinary)[-1].outcome == "ok"
        assert [about(kiln, r)[-1].outcome for r in refused] == ["unavailable"] * 2
        assert kiln.security.audit.verify().ok


@pytest.mark.parametrize("damage", ["garbage", "empty", "folder", "cut", "flipped"])
async def test_damaged_audit_keeps_everything_from_running(
    make_kiln: MakeKiln, tmp_path: Path, damage: str
) -> None:
    await leave_damaged(make_kiln, tmp_path / "state" / "audit.db", damage)

    async with make_kiln({}, functions=FUNCTIONS) as kiln:
        results = [await kiln.call("run", {"how": "x"}), await kiln.call("destroy")]
        with suppress(ToolkilnError):
            assert not kiln.security.audit.verify().ok
            assert damage == "flipped"

        if damage != "flipped" or results[0].status is not Status.OK:
            assert {code(r) for r in results} == {(Status.UNAVAILABLE, "audit_failed")}
            assert RAN == []
            assert "audit" in results[0].text


@pytest.mark.parametrize("damage", ["garbage", "folder", "cut"])
async def test_damaged_store_denies_what_needs_it_and_nothing_else(
    make_kiln: MakeKiln, tmp_path: Path, damage: str
) -> None:
    token = await leave_damaged(make_kiln, tmp_path / "state" / "store.db", damage)

    async with make_kiln({}, functions=FUNCTIONS) as kiln:
        by_session = await kiln.call("run", {"how": "session"}, session=token)
        by_id = await kiln.call("run", {"how": "id"}, call_id="kept")
        in_background = await kiln.call("run", {"how": "task"}, background=True)
        own = await kiln.call("run", {"how": "own"})
        with pytest.raises(ToolkilnError):
            kiln.security.sessions.create("bob")

        assert by_session.status in (Status.UNAVAILABLE, Status.DENIED)
        for result in (by_id, in_background):
            assert result.status is Status.UNAVAILABLE  # type: ignore[union-attr]
        assert own.status is Status.OK
        assert RAN == ["own"]
        assert about(kiln, by_session)[-1].outcome == by_session.status.value


async def leave_damaged(make_kiln: MakeKiln, file: Path, damage: str) -> str:
    """Use a state, then damage a database of it. The token of a session from before."""
    if damage == "folder":
        file.mkdir(parents=True)
        return "none"
    async with make_kiln({}, functions=FUNCTIONS) as kiln:
        token = open_session(kiln, "ann")
        for number in range(40):
            await kiln.call("destroy", {"what": "x" * 50 * number})
    data = file.read_bytes()
    for beside in file.parent.glob(f"{file.name}-*"):
        beside.unlink()
    place = data.find(b"destroy")
    changed = {
        "garbage": random.Random(1).randbytes(len(data)),
        "empty": b"\0" * len(data),
        "cut": data[: len(data) // 3],
        "flipped": data[:place] + b"D" + data[place + 1 :],
    }
    file.write_bytes(changed[damage])
    RAN.clear()
    return token


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root may mount")
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_full_disk_refuses_what_must_be_recorded_and_loses_nothing(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(load(small_disk, {}), state=small_disk / "state")
    async with Kiln(functions=FUNCTIONS, settings=settings) as kiln:
        first = await kiln.call("destroy")
        filler = small_disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as handle:
            while True:
                handle.write(b"x" * 512)
        done, refused = [first], None
        for number in range(3000):  # the log may have some room of its own left
            result = await kiln.call("destroy", {"what": f"{number} " * 300})
            if result.status is not Status.OK:
                refused = result
                break
            done.append(result)
        ran = len(RAN)
        filler.unlink()
        kiln.security.recorder.flush()
        after = await kiln.call("destroy")

        assert refused is not None
        assert code(refused) == (Status.UNAVAILABLE, "audit_failed")
        assert ran == len(done)
        assert after.status is Status.OK
        reported = {record.call_id: record.outcome for record in records(kiln)}
        assert [reported[result.call_id] for result in (*done, after)] == ["ok"] * (len(done) + 1)
        assert kiln.security.audit.verify().ok
