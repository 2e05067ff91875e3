"""Workspaces under attack: bounded, and no way to another session."""

import pytest

from toolkiln.model.call import Result
from toolkiln.model.identity import Caller

from .conftest import SECRET, Service

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def attack(service: Service, tool: str, session: str, **arguments: object) -> Result:
    result = await service.attack(tool, caller=Caller(workspace=session), **arguments)
    assert result.error is None or result.error.code == "workspace_limit", result.error
    return result


@pytest.mark.parametrize(("tool", "amount"), [("keep_bytes", 8), ("keep_files", 300)])
async def test_a_quota_ends_the_call(service: Service, tool: str, amount: int) -> None:
    name = "megabytes" if tool == "keep_bytes" else "count"

    result = await attack(service, tool, f"full-{tool}", **{name: amount})

    assert result.error is not None
    assert result.error.code == "workspace_limit"


async def test_links_reach_no_host_file_and_special_files_cannot_be_made(service: Service) -> None:
    made = await attack(service, "keep_traps", "traps", secret=str(service.secret))
    seen = await attack(service, "look_around", "traps")

    assert made.value == {
        "link": "done", "link up": "done", "pipe": "EPERM", "device": "EPERM",
        "set user": "EPERM", "hard link": "EXDEV",
    }  # fmt: skip
    assert seen.value["names"] == ["link", "up"]
    assert seen.value["through link"] in ("ENOENT", "EACCES")
    assert service.secret.read_text() == SECRET


async def test_a_workspace_to_read_cannot_be_written(service: Service) -> None:
    await attack(service, "keep_note", "notes", text="kept")

    seen = await attack(service, "look_around", "notes")

    assert seen.value["names"] == ["note"]
    changes = ("write", "remove", "overwrite", "move", "make", "change")
    refused = {seen.value[name] for name in changes}
    assert refused <= {"EROFS", "EACCES"}


async def test_sessions_do_not_see_each_other(service: Service) -> None:
    await attack(service, "keep_note", "mine", text="mine")

    theirs = await attack(service, "look_around", "theirs")

    assert theirs.value["names"] == []


async def test_a_tool_without_a_workspace_has_none(service: Service) -> None:
    await attack(service, "keep_note", "default", text="kept")

    assert await service.value("everything_below", path="/workspace") == []
