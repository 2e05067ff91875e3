"""Workspaces as tools see them: declared, granted, and shared within a session."""

from collections.abc import Callable
from typing import Any

import pytest

from execution.observers import code, local_session, space
from toolkiln.kiln import Kiln
from toolkiln.model.call import Status

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOOLS = {
    "files.py": '''
        """Tools with files."""
        import os
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

        @tool(workspace="write")
        def send(ctx: Context) -> str:
            """Send a file of the workspace."""
            (SPACE / "sent.txt").write_text("sent")
            ctx.send_file("/workspace/sent.txt")
            ctx.send_file("sent.txt")
            return str(ctx.workdir)
    ''',
}
SETTINGS: dict[str, Any] = {"grants": {"*": {"workspace": "write"}}}


async def test_what_is_saved_can_be_loaded_in_the_next_call(kiln: Kiln) -> None:
    token = local_session(kiln, workspace="notes")

    saved = await kiln.call("save", {"name": "a/b.txt", "text": "é"}, session=token)
    loaded = await kiln.call("load", {"name": "a/b.txt"}, session=token)

    assert loaded.error is None
    assert (saved.value, loaded.value) == (["a"], "é")
    assert (space(kiln, "notes") / "a" / "b.txt").read_text() == "é"


async def test_a_call_without_the_grant_is_denied_with_the_missing_setting(
    make_kiln: Callable[..., Kiln],
) -> None:
    grants = {"*": {"workspace": "write"}, "save": {}, "load": {}, "send": {"workspace": "read"}}
    calls = [
        ("save", {"name": "a", "text": ""}, "write"),
        ("load", {"name": "a"}, "read"),
        ("send", {}, "write"),
    ]
    async with make_kiln(TOOLS, grants=grants) as kiln:
        for name, arguments, needed in calls:
            result = await kiln.call(name, arguments)

            assert code(result) == (Status.DENIED, "not_granted")
            assert f'[grants.{name}] workspace = "{needed}"' in result.text


async def test_files_of_the_workspace_can_be_sent(kiln: Kiln) -> None:
    result = await kiln.call("send", {}, session=local_session(kiln, workspace="send"))

    assert result.error is None
    assert [(file.name, file.data) for file in result.files] == [("sent.txt", b"sent")] * 2
    assert result.value == "/workspace"
