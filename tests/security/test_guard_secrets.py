"""A secret is handed to the call that it is for, and comes out of it nowhere."""

import asyncio
import html
import json
import os
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from execution.conftest import MakeKiln
from execution.observers import SOON, code, open_session, until
from tables import each_row
from toolkiln import Context, tool
from toolkiln.define import ToolError
from toolkiln.errors import NotAllowed, ToolkilnError
from toolkiln.kiln import Kiln
from toolkiln.model.call import Event, Status

from .guarded import about, holding, records, waiting

pytestmark = pytest.mark.asyncio(loop_scope="module")
VALUE = 'pa55-"wörd"\\n/+&= <end>'
OTHER = "another-kept-value-0815"
RAW = VALUE.encode()
FORMS = {
    VALUE,
    json.dumps(VALUE)[1:-1],
    json.dumps(VALUE, ensure_ascii=False)[1:-1],
    quote(VALUE),
    quote(VALUE, safe=""),
    quote_plus(VALUE),
    html.escape(VALUE),
    repr(VALUE)[1:-1],
    RAW.hex(),
    b64encode(RAW).decode().rstrip("="),
    urlsafe_b64encode(RAW).decode().rstrip("="),
    b64encode(b"user:" + RAW).decode()[8:36],
    OTHER,
}
MARK = "[secret:KEY]"
TOOLS = {
    "leaks.py": '''
        import base64, html, json, os, sys, time, urllib.parse
        from pathlib import Path
        from toolkiln import Context, ToolError, tool

        @tool(requires_secrets=["KEY"], return_char_limit=400, timeout=20)
        def leak(how: str, ctx: Context) -> object:
            """Let a secret out in one of many ways."""
            key = ctx.secrets["KEY"]
            raw = key.encode()
            match how:
                case "value": return key
                case "within": return f"before {key} after {key}{key}"
                case "nested": return {"a": [{"b": (key, [key])}], "c": {"d": {key: 1}}}
                case "key": return {key: {f"x{key}": None}}
                case "place": return {f"{'-' * 30}{key}": float("nan")}
                case "bytes": return raw
                case "base64": return base64.b64encode(raw).decode()
                case "header": return "Basic " + base64.b64encode(b"user:" + raw).decode()
                case "urlsafe": return base64.urlsafe_b64encode(raw).decode()
                case "url": return f"https://x.test/?q={urllib.parse.quote(key)}"
                case "plus": return urllib.parse.urlencode({"q": key})
                case "json": return json.dumps({"k": json.dumps(key)})
                case "html": return f"<b>{html.escape(key)}</b>"
                case "hex": return raw.hex()
                case "repr": return repr([key])
                case "object": return Path(key)
                case "exception": raise ValueError(f"wrong {key}")
                case "chained":
                    try:
                        raise KeyError(key)
                    except KeyError as error:
                        raise RuntimeError(key) from error
                case "type": raise type(key, (Exception,), {})("x")
                case "tool error": raise ToolError(f"sorry {key}")
                case "refusal": raise ToolError(f"permission denied: {key}")
                case "failure": return {"success": False, "error": f"no {key}", "more": key}
                case "exit": sys.exit(key)
                case "stdout": print(key, key)
                case "stderr": print("x" * 100, key, file=sys.stderr)
                case "drip":
                    for char in f"<<{key}>>{key}":
                        sys.stdout.write(char)
                        sys.stdout.flush()
                        sys.stderr.write(char)
                        sys.stderr.flush()
                        time.sleep(0.002)
                case "bytewise":
                    for byte in raw + b"|" + base64.b64encode(raw):
                        os.write(1, bytes([byte]))
                        time.sleep(0.001)
                case "half": print(key[:12], end="", flush=True); os._exit(1)
                case "flood":
                    for _ in range(20_000):
                        print(key)
                case "long": return "\\n".join([key] * 2000)
                case "shifted": return "x" * 390 + key + "y" * 390
                case "progress": ctx.report_progress(1, 2, f"at {key}")
                case "log": ctx.log(f"logged {key}")
                case "message": ctx.send_message({"card": key, key: [key]})
                case "inject": ctx.inject_tools(key)
                case "file":
                    (ctx.workdir / "a.txt").write_text(f"contents {key}")
                    (ctx.workdir / "b.bin").write_bytes(b"\\x00\\xff" + raw + b"\\xfe")
                    (ctx.workdir / "k-pa55").write_text(base64.b64encode(raw).decode())
                    for name in ("a.txt", "b.bin", "k-pa55"):
                        ctx.send_file(name)
                case "hang": print(f"hanging {key}", flush=True); time.sleep(60)
                case "crash": print(key, flush=True); os.kill(os.getpid(), 11)
            return "done"

        @tool
        def environment() -> dict:
            """Tell what a process can learn of others."""
            seen = {"own": dict(os.environ), "argv": sys.argv}
            for folder in Path("/proc").glob("[0-9]*"):
                for name in ("environ", "cmdline"):
                    try:
                        data = (folder / name).read_bytes()
                        seen[f"{folder.name} {name}"] = data.decode("latin-1")
                    except OSError:
                        pass
            return seen

        @tool(requires_secrets=["KEY"], workspace="write", timeout=60)
        def hold(ctx: Context) -> dict:
            """Wait with a secret in hand, and tell the environment."""
            ctx.report_progress(1, 2, "holding " + ctx.secrets["KEY"])
            Path("/workspace/held").write_text("yes")
            while not Path("/workspace/go").exists():
                time.sleep(0.01)
            return {"env": dict(os.environ), "argv": sys.argv, "known": sorted(ctx.secrets)}

        @tool
        def echo(text: object) -> object:
            """Give back what was given."""
            print(text)
            return [text, type(text).__name__, "length %d" % len(str(text))]

        @tool
        def complain(text: str) -> None:
            """Raise what was given."""
            raise ToolError(text)

        @tool(return_char_limit=200)
        def repeat(text: str) -> str:
            """Give back what was given, many times."""
            return (text + "\\n") * 200

        @tool
        def numeric(text: int) -> int:
            """Take a number only."""
            return text

        @tool(needs_approval=True)
        def ask(text: str) -> str:
            """Take what a person has seen."""
            return text

        @tool(destructive=True)
        def destroy(text: str) -> str:
            """Do what is recorded with its arguments."""
            return text

        @tool(requires_secrets=["KEY"], timeout=30)
        def hand_on(ctx: Context, name: str, before: str = "") -> object:
            """Hand a secret to another tool as if it were none."""
            key = ctx.secrets["KEY"]
            try:
                if name == "unknown":
                    return ctx.call(f"tool {key}")
                return ctx.call(name, text=before + key)
            except ToolError as error:
                return {"nested": str(error)}

        @tool(requires_secrets=["UNSET"])
        def need_unset() -> None:
            """Need what is not set."""

        @tool(requires_secrets=["SHORT"])
        def need_short() -> None:
            """Need what is too short to be hidden."""

        @tool(requires_secrets=["OTHER"])
        def need_ungranted(ctx: Context) -> None:
            """Need what is not granted."""
    ''',
}


@tool(requires_secrets=["KEY"])
def leak_inline(how: str, ctx: Context) -> Any:
    """Let a secret out of a function of this process."""
    key = ctx.secrets["KEY"]
    if how == "raise":
        raise ValueError(key)
    if how == "error":
        raise ToolError(key)
    ctx.report_progress(1, None, key)
    ctx.log(key)
    ctx.send_message([key])
    return {"is": key, key: how}


@tool
def take(text: Any, deep: dict[str, Any] | None = None) -> list[Any]:
    """Tell the length of what was given, which is no secret."""
    return [len(text), text, deep]


FUNCTIONS = [leak_inline, take]
GRANTED = (
    *("leak", "hold", "echo", "ask", "destroy", "hand_on", "leak_inline", "take", "repeat"),
    *("numeric", "complain"),
)
ENVIRON = {
    "TOOLKILN_SECRET_KEY": VALUE,
    "TOOLKILN_SECRET_OTHER": OTHER,
    "TOOLKILN_SECRET_SHORT": "abc",
}
SETTINGS: dict[str, Any] = {
    "show_exceptions": True,
    "environ": {**os.environ, **ENVIRON},
    "grants": {
        **{name: {"secrets": ["KEY"]} for name in GRANTED},
        "hold": {"secrets": ["KEY"], "workspace": "write"},
        "need_unset": {"secrets": ["UNSET"]},
        "need_short": {"secrets": ["SHORT"]},
    },
}


def leaks(text: str) -> set[str]:
    """The forms of a secret that a text contains."""
    return {form for form in FORMS if form in text}


@pytest.fixture(autouse=True)
def clean(kiln: Kiln, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process knows the secrets, and afterwards no file and no record does."""
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)

    yield

    assert not leaks(str(records(kiln)))
    assert holding(kiln.settings.state, *FORMS) == set()


HOWS = {
    MARK: [
        *("value", "within", "nested", "key", "url", "plus", "json", "html", "repr", "object"),
        *("base64", "urlsafe", "hex", "exception", "chained", "tool error", "refusal"),
        *("failure", "stdout", "stderr", "drip", "bytewise", "flood", "long", "progress"),
        *("log", "message", "file", "inject", "shifted", "bytes", "type", "header", "crash"),
    ],
    "": ["exit", "half"],
}


@each_row("how", HOWS[MARK] + HOWS[""], batches=3)
async def test_secret_comes_out_of_the_sandbox_in_no_form(kiln: Kiln, how: str) -> None:
    events: list[Event] = []
    result = await kiln.call("leak", {"how": how}, observe=events.append, call_id=f"leak {how}")
    shown = "".join(event.text for event in events if event.kind == "stdout")
    files = "\n".join(file.data.decode("latin-1") + file.name for file in result.files)
    reported = [
        *(json.dumps(part, ensure_ascii=False) for part in (result.value, result.messages)),
        *(result.text, result.stdout, result.stderr, str(result.error), str(result.notes), files),
        *("".join(e.text for e in events if e.kind == kind) for kind in ("stdout", "stderr")),
        *(event.text for event in events),
        *result.injected_tools,
    ]

    for text in reported:
        assert not leaks(text), text[:300]
        assert not leaks(text.encode("latin-1", "replace").decode("utf-8", "replace"))
    if how in HOWS[MARK]:
        assert MARK in "".join(reported)
    if how == "drip":
        assert shown == f"<<{MARK}>>{MARK}"
    if result.truncation and result.truncation.handle:
        handle, offset = result.truncation.handle, 0
        while (page := await kiln.tasks.read_output(handle, offset=offset, limit=1000)).text:
            assert not leaks(page.text)
            offset += len(page.text)
        assert offset == result.truncation.total
    again = await kiln.call("leak", {"how": how}, call_id=f"leak {how}")
    assert not leaks(again.model_dump_json())


async def test_secret_is_cut_in_no_note_and_stays_in_when_its_call_times_out(kiln: Kiln) -> None:
    events: list[Event] = []
    shortened = await kiln.call("leak", {"how": "place"})
    late = await kiln.call("leak", {"how": "hang"}, timeout=1.0, observe=events.append)

    (note,) = shortened.notes
    assert f"---{MARK}…" in note
    assert late.status is Status.TIMEOUT
    assert not leaks(late.model_dump_json() + str(events))
    assert MARK in late.stdout + str(events)


@each_row("how", ["value", "raise", "error"])
async def test_secret_comes_out_of_a_function_in_no_form(kiln: Kiln, how: str) -> None:
    events: list[Event] = []
    result = await kiln.call("leak_inline", {"how": how}, observe=events.append)

    reported = json.dumps(result.model_dump(mode="json"), ensure_ascii=False) + str(events)
    assert not leaks(reported)
    assert MARK in reported


async def test_reference_in_arguments_reaches_the_tool_as_the_value(kiln: Kiln) -> None:
    events: list[Event] = []
    deep = {"a": [{"b": "secret:KEY"}], "secret:KEY": "kept"}

    inline = await kiln.call("take", {"text": "secret:KEY", "deep": deep})
    listed = {"text": ["secret:KEY", {"x": "secret:KEY"}]}
    sandboxed = await kiln.call("echo", listed, observe=events.append)
    plain = await kiln.call("take", {"text": "not secret:KEY"})

    assert inline.value == [len(VALUE), MARK, {"a": [{"b": MARK}], "secret:KEY": "kept"}]
    assert sandboxed.value[0] == [MARK, {"x": MARK}]
    assert MARK in sandboxed.stdout
    assert plain.value == [14, "not secret:KEY", None]
    assert not leaks(sandboxed.model_dump_json() + str(events))


async def test_the_audit_of_a_call_names_the_secret_only(kiln: Kiln) -> None:
    arguments = {"text": "secret:KEY"}
    shown = 2000 - len('{"text": "…')

    result = await kiln.call("destroy", arguments)
    cut = await kiln.call("hand_on", {"name": "destroy", "before": "-" * (shown - 8)})

    started, ended = about(kiln, result)
    assert (started.outcome, ended.outcome) == ("started", "ok")
    assert json.loads(started.arguments) == json.loads(ended.arguments) == arguments
    inner = [record for record in records(kiln) if record.parent == cut.call_id]
    assert [record.outcome for record in inner] == ["started", "ok"]
    assert all("--" in record.arguments for record in inner)
    assert not any(VALUE[:4] in record.arguments for record in inner)


@each_row(
    "name, arguments, why",
    [
        ("need_ungranted", {}, (Status.DENIED, "not_granted")),
        ("echo", {"text": "secret:OTHER"}, (Status.DENIED, "not_granted")),
        ("echo", {"text": {"a": ["secret:OTHER"]}}, (Status.DENIED, "not_granted")),
        ("environment", {}, (Status.OK, None)),
        ("need_unset", {}, (Status.UNAVAILABLE, "secret_unusable")),
        ("need_short", {}, (Status.UNAVAILABLE, "secret_unusable")),
        ("destroy", {"text": "secret:UNGRANTED"}, (Status.DENIED, "not_granted")),
    ],
)
async def test_only_granted_secrets_that_are_set_are_handed_over(
    kiln: Kiln, name: str, arguments: dict[str, Any], why: tuple[Status, str | None]
) -> None:
    result = await kiln.call(name, arguments)
    nested = await kiln.call("echo", {"text": "secret:KEY"})

    assert code(result) == why
    assert nested.status is Status.OK
    if result.error:
        assert any(n in result.error.message for n in ("OTHER", "UNSET", "SHORT", "UNGRANTED"))
        assert about(kiln, result)[-1].outcome == result.status.value


async def test_secret_set_meanwhile_is_handed_over_without_a_restart(make_kiln: MakeKiln) -> None:
    async with make_kiln(
        {}, functions=[leak_inline, take], grants={"*": {"secrets": ["KEY"]}}, environ={}
    ) as kiln:
        before = await kiln.call("leak_inline", {"how": "value"}, call_id="again")
        kiln.security.set_secret("KEY", VALUE)
        after = await kiln.call("leak_inline", {"how": "value"}, call_id="again")
        bob = open_session(kiln, "bob")
        with pytest.raises(NotAllowed):
            kiln.security.set_secret("KEY", "stolen-one", bob)
        state = kiln.settings.state
        assert holding(state, VALUE[:5]) == {"secrets.toml"}
        kiln.security.set_secret("KEY", None)
        gone = await kiln.call("take", {"text": "secret:KEY"})

        assert code(before) == code(gone) == (Status.UNAVAILABLE, "secret_unusable")
        assert before.error
        assert "KEY is not set" in before.error.message
        assert after.value == {"is": MARK, MARK: "value"}
        assert not leaks(str(records(kiln)))
        acts = {(r.act, r.outcome, r.detail) for r in records(kiln) if r.act.startswith("secret")}
        assert {("secret.set", "ok", "KEY"), ("secret.remove", "ok", "KEY")} <= acts
        assert any(outcome == "denied" for _, outcome, _ in acts)


async def test_secrets_are_in_no_environment_and_no_command_line(kiln: Kiln) -> None:
    session = open_session(kiln, "holder", workspace="holding")
    space = kiln.engine.workspaces.open("holding", writable=True).folder
    await kiln.call("hold", session=session, call_id="held", background=True)
    await until(lambda: (space / "held").exists())

    seen = [read_process(folder) for folder in Path("/proc").glob("[0-9]*") if is_ours(folder)]
    beside = await kiln.call("environment")
    async with asyncio.timeout(SOON):
        while not (progress := (await kiln.tasks.get("held", session)).progress):
            await asyncio.sleep(0.05)
    (space / "go").write_text("")
    done = await kiln.tasks.wait("held", session)

    assert not leaks("\n".join(seen))
    assert "TOOLKILN_SECRET" not in "\n".join(seen)
    assert beside.status is Status.OK
    assert not leaks(beside.model_dump_json())
    assert "TOOLKILN_SECRET" not in beside.text
    assert progress == f"holding {MARK} (1 of 2)"
    assert done.result
    assert done.result.value["known"] == ["KEY"]
    assert not leaks(done.model_dump_json())
    assert "TOOLKILN_SECRET" not in done.model_dump_json()


def is_ours(folder: Path) -> bool:
    """Whether this process started another one, directly or not."""
    number = int(folder.name)
    while number > 1 and number != os.getpid():
        try:
            status = Path(f"/proc/{number}/stat").read_text()
        except OSError:
            return False
        number = int(status.rpartition(")")[2].split()[1])
        if number == os.getpid():
            return True
    return False


def read_process(folder: Path) -> str:
    """The environment and the command line of a process, as far as they can be read."""
    found = []
    for name in ("environ", "cmdline"):
        with suppress(OSError):
            found.append((folder / name).read_bytes().decode("utf-8", "replace"))
    return "\n".join(found)


@each_row("name", ["echo", "complain", "repeat", "numeric", "unknown", "destroy"])
async def test_secret_that_a_tool_hands_to_another_stays_in_too(kiln: Kiln, name: str) -> None:
    result = await kiln.call("hand_on", {"name": name})

    assert result.status is Status.OK
    assert not leaks(json.dumps(result.model_dump(mode="json"), ensure_ascii=False))
    assert MARK in result.text
    inner = [record for record in records(kiln) if record.parent == result.call_id]
    assert inner
    assert not leaks(str(inner))


async def test_people_approve_the_reference_and_the_tool_gets_the_value(kiln: Kiln) -> None:
    ann = open_session(kiln, "ann")
    call = await waiting(kiln, "ask", {"text": "secret:KEY"}, session=ann)

    kiln.security.approve(call.approval)
    result = await call.result()
    handed_on = await kiln.call("hand_on", {"name": "ask"})

    assert result.value == MARK
    assert not leaks(str([event.text for event in call.events]))
    assert "contain the value of a secret" in handed_on.value["nested"]
    shown = [a.arguments for a in kiln.security.approvals.history() if a.tool == "ask"]
    assert shown == [{"text": "secret:KEY"}]


async def test_unusable_secrets_file_ends_no_call_with_a_traceback(
    make_kiln: MakeKiln, tmp_path: Path
) -> None:
    file = tmp_path / "own.toml"
    grants = {"*": {"secrets": ["KEY"]}}
    async with make_kiln(
        {}, functions=[take], grants=grants, secrets_file=file, environ={}
    ) as kiln:
        for text, mode in (("KEY = ", 0o600), ("KEY = 3", 0o600), (f'KEY = "{OTHER}"', 0o644)):
            file.write_text(text)
            file.chmod(mode)
            result = await kiln.call("take", {"text": "secret:KEY"})

            assert code(result) == (Status.UNAVAILABLE, "secret_unusable")
            assert not leaks(result.model_dump_json())
        file.chmod(0o600)
        assert (await kiln.call("take", {"text": "secret:KEY"})).value[1] == MARK
        with pytest.raises(ToolkilnError):
            kiln.security.set_secret("bad name", "x" * 10)
