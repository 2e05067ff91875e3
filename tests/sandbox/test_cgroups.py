"""Cgroups: found, bounded, removed, on folders that imitate the kernel's."""

import os
from pathlib import Path

import pytest

from toolkiln.sandbox.bubblewrap import find_cgroup


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    for name in ("memory", "pids"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_version_1_bounds_memory_and_processes_and_counts_what_was_killed(version_1: Path) -> None:
    group = find_cgroup(version_1)
    memory, pids = group.folders
    (memory / "memory.oom_control").write_text("under_oom 0\noom_kill 3\n")

    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    assert (memory / "memory.limit_in_bytes").read_text() == str(half)
    assert (pids / "pids.max").read_text() == "2048"
    assert (group.version, group.kills()) == (1, 3)


def test_without_controllers_there_is_no_group_and_a_reason(tmp_path: Path) -> None:
    group = find_cgroup(tmp_path)

    assert group.folders == ()
    assert group.version == 0
    assert group.description.startswith("none: ")
    assert group.open() == []
    assert group.kills() == 0


async def test_a_closed_group_is_gone(version_1: Path) -> None:
    group = find_cgroup(version_1)
    folders = group.folders
    for folder in folders:  # the kernel's control files do not keep a folder from going
        for file in folder.iterdir():
            file.unlink()

    await group.close()

    assert not any(folder.exists() for folder in folders)
    assert group.folders == ()


def test_groups_of_dead_processes_are_removed_and_those_of_living_ones_stay(
    version_1: Path,
) -> None:
    dead = version_1 / "memory" / "toolkiln-4194304-abc"
    living = version_1 / "memory" / f"toolkiln-{os.getpid()}-abc"
    foreign = version_1 / "memory" / "toolkiln-somebody"
    for folder in (dead, living, foreign):
        folder.mkdir()

    find_cgroup(version_1)

    assert not dead.exists()
    assert living.exists()
    assert foreign.exists()
