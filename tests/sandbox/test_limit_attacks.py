"""Limits: a call that exceeds one ends with an error that names it."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tables import each_row
from toolkiln.model.call import Status

from .conftest import BOUND, Service, all_modes

pytestmark = pytest.mark.asyncio(loop_scope="session")


@all_modes
@each_row("tool", ["balloon", "balloon_at_once"])
async def test_memory_has_an_end(service: Service, tool: str) -> None:
    assert await service.code(tool) == "killed: memory_limit"


@all_modes
async def test_each_child_has_the_same_bound(service: Service) -> None:
    assert await service.value("balloon_by_children") == 4


@all_modes
async def test_what_never_ends_is_ended_side_by_side(service: Service) -> None:
    tools = ["burn", "sleep_for_ever", "catastrophe", "exploding_value"]

    codes = await asyncio.gather(*map(service.code, tools))

    assert codes[0] == "killed: cpu_limit"
    assert codes[1:3] == ["timeout: timeout", "timeout: timeout"]
    assert codes[3] in ("timeout: timeout", "killed: output_limit", "killed: memory_limit")


@each_row("path", ["/tmp", "/dev/shm"])
async def test_a_work_folder_fills_up(service: Service, path: str) -> None:
    assert await service.code("fill", path=path) == "killed: disk_limit"


@all_modes
async def test_one_file_has_an_end(service: Service) -> None:
    assert await service.code("huge_file") == "killed: disk_limit"


async def test_files_without_content_are_counted_in_mode_a(service: Service) -> None:
    result = await service.attack("many_files", count=6000)

    if service.mode == "A":
        assert result.error is not None
        assert result.error.code == "disk_limit"
    else:  # bounded by memory only, which the documentation says
        assert result.status is Status.OK


@all_modes
async def test_deep_and_closed_folders_do_no_harm(service: Service) -> None:
    assert await service.value("deep_folders", depth=1100) == "done"
    assert await service.value("deep_folders", depth=1100) == "done"

    async with asyncio.timeout(BOUND):
        while any(map(holds_folders, Path(tempfile.gettempdir()).glob("toolkiln-*"))):
            await asyncio.sleep(0.02)


def holds_folders(folder: Path) -> bool:
    """Whether a call's folder is still there; those of other users are not ours to see."""
    try:
        return (folder / "d").exists()
    except PermissionError:
        return False


@all_modes
async def test_descriptors_have_an_end(service: Service) -> None:
    assert await service.value("many_descriptors") == "EMFILE"


@all_modes
@each_row("stream", [1, 2])
async def test_a_flood_of_output_is_cut(service: Service, stream: int) -> None:
    result = await service.attack("flood", stream=stream, megabytes=3)

    assert result.value == "done"
    assert len(result.stdout) + len(result.stderr) == 1 << 20
    assert any("omitted" in note for note in result.notes)


@all_modes
@each_row("stream", [1, 2])
async def test_an_endless_flood_of_output_ends_the_call(service: Service, stream: int) -> None:
    assert await service.code("flood", stream=stream, megabytes=10_000) == "killed: output_limit"


@all_modes
async def test_recursion_is_an_exception(service: Service) -> None:
    assert await service.code("recurse") == "failed: exception"
    assert await service.code("recurse_in_c") in (
        "failed: crashed",
        "failed: exception",
        "killed: memory_limit",
    )


@all_modes
@each_row(
    "tool, arguments",
    [("gigantic_text", {"megabytes": 100}), ("gigantic_number", {}), ("gigantic_list", {})],
)
async def test_gigantic_results_are_bounded(
    service: Service, tool: str, arguments: dict[str, Any]
) -> None:
    result = await service.attack(tool, **arguments)

    assert len(result.model_dump_json()) < 32 << 20
    assert result.status is not Status.OK or result.notes or result.truncation
