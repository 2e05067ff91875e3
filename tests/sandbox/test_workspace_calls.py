"""Workspaces as tools see them: declared, granted, and shared within a session."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolkiln.kiln import Kiln
from toolkiln.model.call import Status
from toolkiln.model.identity import Caller

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOOLS = {
    "files.py": '''
        """Tools with files."""
        import os, time
        from pathlib import Path
        from toolkiln import Context, tool

        SPACE = Path("/workspace")

        @tool(workspace="write", parallel=True)
        def save(name: str, text: str) -> list[str]:
            """Save a file."""
            (SPACE / name).parent.mkdir(parents=True, exist_ok=True)
            (SPACE / name).write_text(text)
            return sorted(os.listdir(SPACE))

        @tool(workspace="read", parallel=True)
        def load(name: str) -> str:
            """Load a file."""
            return (SPACE / name).read_text()

        @tool(workspace="read")
        def try_to_save() -> list[str]:
            """Try to write what may only be read."""
            done = []
            for attempt in (
                lambda: (SPACE / "new").write_text("x"),
                lambda: (SPACE / "kept").write_text("x"),
                lambda: (SPACE / "kept").unlink(),
                lambda: (SPACE / "kept").rename(SPACE / "moved"),
                lambda: os.chmod(SPACE / "kept", 0o777),
                lambda: os.mkdir(SPACE / "folder"),
            ):
                try:
                    attempt()
                    done.append("done")
                except OSError as error:
                    done.append(error.strerror)
            return done

        @tool(workspace="write")
        def greedy_save(ctx: Context) -> None:
            """Ask for more than is granted."""

        @tool
        def look_without() -> list[str]:
            """Look for a workspace without asking for one."""
            return os.listdir(SPACE)

        @tool(workspace="write")
        def fill(kind: str) -> str:
            """Fill the workspace."""
            if kind == "bytes":
                with (SPACE / "big").open("wb") as file:
                    for _ in range(5000):
                        file.write(bytes(1 << 16))
                        file.flush()
                        time.sleep(0.001)
            else:
                for number in range(100_000):
                    (SPACE / f"file{number}").touch()
            time.sleep(20)
            return "filled"

        @tool(workspace="write")
        def link_out() -> list[str]:
            """Make links that lead out."""
            os.symlink("/etc/passwd", SPACE / "link")
            os.symlink("..", SPACE / "up")
            (SPACE / "real").write_text("real")
            try:
                os.mkfifo(SPACE / "pipe")
            except OSError:
                pass
            try:
                return [str(os.listdir(SPACE / "up")), (SPACE / "link").read_text()]
            except OSError as error:
                return [error.strerror]

        @tool(workspace="write")
        def send_from(ctx: Context) -> str:
            """Send a file of the workspace."""
            (SPACE / "sent.txt").write_text("sent")
            ctx.send_file("/workspace/sent.txt")
            ctx.send_file("sent.txt")
            return str(ctx.workdir)

        @tool(workspace="write")
        def ping(own: str, other: str) -> bool:
            """Wait for another call's file."""
            (SPACE / own).touch()
            for _ in range(1000):
                if (SPACE / other).exists():
                    return True
                time.sleep(0.01)
            return False
    ''',
}
SETTINGS: dict[str, Any] = {
    "grants": {
        "*": {"workspace": "write"},
        "try_to_save": {"workspace": "read"},
        "greedy_save": {"workspace": "read"},
        "link_out": {"workspace": "write"},
    },
    "workspace_bytes": 2 << 20,
    "workspace_files": 50,
}


def session(kiln: Kiln, workspace: str) -> str:
    return kiln.security.sessions.local(Caller(workspace=workspace))


def space(kiln: Kiln, session: str) -> Path:
    return kiln.engine.workspaces.open(session, writable=True).folder


async def test_what_is_saved_can_be_loaded_in_the_next_call(kiln: Kiln) -> None:
    token = session(kiln, "notes")

    saved = await kiln.call("save", {"name": "a/b.txt", "text": "é"}, session=token)
    loaded = await kiln.call("load", {"name": "a/b.txt"}, session=token)

    assert loaded.error is None
    assert (saved.value, loaded.value) == (["a"], "é")
    assert (space(kiln, "notes") / "a" / "b.txt").read_text() == "é"


async def test_session_sees_nothing_of_another(kiln: Kiln) -> None:
    await kiln.call(
        "save",
        {"name": "mine", "text": "x"},
        session=session(kiln, "one"),
    )

    other = await kiln.call("load", {"name": "mine"}, session=session(kiln, "two"))

    assert other.error
    assert other.error.type == "FileNotFoundError"


async def test_without_a_grant_the_call_is_denied_with_the_missing_setting(
    make_kiln: Callable[..., Kiln],
) -> None:
    async with make_kiln(TOOLS) as kiln:
        save = await kiln.call("save", {"name": "a", "text": ""})
        load = await kiln.call("load", {"name": "a"})

    assert (save.status, load.status) == (Status.DENIED, Status.DENIED)
    assert save.error
    assert load.error
    assert save.error.code == load.error.code == "not_granted"
    assert '[grants.save] workspace = "write"' in (save.error.hint or "")
    assert '[grants.load] workspace = "read"' in (load.error.hint or "")


async def test_grant_to_read_is_none_to_write(kiln: Kiln) -> None:
    result = await kiln.call("greedy_save", {})

    assert result.status is Status.DENIED


async def test_own_grant_takes_the_place_of_the_one_for_all(make_kiln: Callable[..., Kiln]) -> None:
    grants: dict[str, Any] = {"*": {"workspace": "write"}, "save": {}}
    async with make_kiln(TOOLS, grants=grants) as kiln:
        result = await kiln.call("save", {"name": "a", "text": ""})

    assert result.status is Status.DENIED


async def test_workspace_to_read_refuses_every_change(kiln: Kiln) -> None:
    token = session(kiln, "kept")
    await kiln.call("save", {"name": "kept", "text": "kept"}, session=token)

    result = await kiln.call("try_to_save", {}, session=token)

    assert result.error is None
    assert set(result.value) <= {"Read-only file system", "Permission denied"}
    assert (space(kiln, "kept") / "kept").read_text() == "kept"


async def test_tool_that_asks_for_none_has_none(kiln: Kiln) -> None:
    await kiln.call("save", {"name": "a", "text": ""})

    result = await kiln.call("look_without", {})

    assert result.value in ([], None)


async def test_calls_at_once_see_each_others_files(kiln: Kiln) -> None:
    token = session(kiln, "pings")
    calls = [
        kiln.call("ping", {"own": own, "other": other}, session=token)
        for own, other in (("a", "b"), ("b", "a"))
    ]

    assert [result.value for result in await asyncio.gather(*calls)] == [True, True]


@pytest.mark.parametrize("kind", ["bytes", "files"])
async def test_call_that_fills_the_workspace_is_ended(kiln: Kiln, kind: str) -> None:
    result = await kiln.call(
        "fill",
        {"kind": kind},
        session=session(kiln, f"full {kind}"),
    )

    assert result.status is Status.KILLED
    assert result.error
    assert result.error.code == "workspace_limit"


async def test_links_do_not_leave_the_sandbox_and_are_not_exported(
    kiln: Kiln, tmp_path: Path
) -> None:
    result = await kiln.call("link_out", {}, session=session(kiln, "links"))

    assert result.error is None
    assert "passwd" not in str(result.value)
    assert "root:" not in str(result.value)
    kiln.engine.workspaces.export("links", tmp_path / "out")
    exported = sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert exported == ["real"]


async def test_files_of_the_workspace_can_be_sent(kiln: Kiln) -> None:
    result = await kiln.call("send_from", {}, session=session(kiln, "send"))

    assert result.error is None
    assert [(file.name, file.data) for file in result.files] == [("sent.txt", b"sent")] * 2
    assert result.value == "/workspace"


async def test_workspaces_are_listed_exported_and_cleared(kiln: Kiln, tmp_path: Path) -> None:
    await kiln.call(
        "save",
        {"name": "a", "text": "abc"},
        session=session(kiln, "listed"),
    )

    entry = next(e for e in kiln.engine.workspaces.list() if e.session == "listed")
    kiln.engine.workspaces.export("listed", tmp_path / "out")
    kiln.engine.workspaces.clear("listed")
    after = await kiln.call("load", {"name": "a"}, session=session(kiln, "listed"))

    assert (entry.files, entry.bytes >= 3) == (1, True)
    assert (tmp_path / "out" / "a").read_text() == "abc"
    assert after.error
    assert after.error.type == "FileNotFoundError"
