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
        from pathlib import Path
        from toolkiln import Context, tool

        SPACE = Path("/workspace")

        @tool(workspace="read", parallel=True)
        def load(name: str) -> str:
            """Load a file."""
            return (SPACE / name).read_text()

        @tool(workspace="write")
        def send(ctx: Context) -> str:
            """Send a file of the workspace."""
            (SPACE / "sent.txt").write_text("é")
            ctx.send_file("/workspace/sent.txt")
            ctx.send_file("sent.txt")
            return str(ctx.workdir)
    ''',
}
SETTINGS: dict[str, Any] = {"grants": {"*": {"workspace": "write"}}}


async def test_a_call_without_the_grant_is_denied_with_the_missing_setting(
    make_kiln: Callable[..., Kiln],
) -> None:
    grants = {"*": {"workspace": "write"}, "load": {}, "send": {"workspace": "read"}}
    calls: list[tuple[str, dict[str, str], str]] = [
        ("load", {"name": "a"}, "read"), ("send", {}, "write"),
    ]  # fmt: skip
    async with make_kiln(TOOLS, grants=grants) as kiln:
        for name, arguments, needed in calls:
            result = await kiln.call(name, arguments)

            assert code(result) == (Status.DENIED, "not_granted")
            assert f'[grants.{name}] workspace = "{needed}"' in result.text


async def test_files_of_the_workspace_can_be_sent_and_read_in_the_next_call(kiln: Kiln) -> None:
    token = local_session(kiln, workspace="notes")

    sent = await kiln.call("send", {}, session=token)
    loaded = await kiln.call("load", {"name": "sent.txt"}, session=token)

    assert (sent.error, loaded.error) == (None, None)
    assert [(file.name, file.data) for file in sent.files] == [("sent.txt", "é".encode())] * 2
    assert (sent.value, loaded.value) == ("/workspace", "é")
    assert (space(kiln, "notes") / "sent.txt").read_text() == "é"
