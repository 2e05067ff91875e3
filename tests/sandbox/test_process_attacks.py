"""Processes: none outlives its call, none reaches another, none gains anything."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tables import each_row

from .conftest import BOUND, Service, all_gone, all_modes

pytestmark = pytest.mark.asyncio(loop_scope="session")


@all_modes
@each_row("tool", ["fork_for_ever", "threads_for_ever"])
async def test_processes_and_threads_are_counted(service: Service, tool: str) -> None:
    assert await service.code(tool) == "killed: processes_limit"


@all_modes
async def test_a_fork_bomb_is_ended(service: Service) -> None:
    # The guardian of mode C ends it; elsewhere the kernel refuses, and the bomb goes on trying.
    ends = (
        ["killed: processes_limit"]
        if service.mode == "C"
        else ["timeout: timeout", "killed: cpu_limit"]
    )

    assert await service.code("fork_bomb") in ends


@all_modes
async def test_the_processes_of_one_call_do_not_count_for_another(service: Service) -> None:
    bombs = [service.code("fork_for_ever") for _ in range(3)]
    others = [service.value("balloon_by_children") for _ in range(3)]

    ends = await asyncio.gather(*bombs, *others)

    assert ends == ["killed: processes_limit"] * 3 + [4] * 3


@all_modes
@pytest.mark.parametrize("tool", ["leave_daemon", "leave_many"])
async def test_what_a_call_leaves_running_dies_with_it(
    service: Service, tool: str, marker: str
) -> None:
    assert await service.value(tool, marker=marker) == "left"
    await all_gone(marker)


@all_modes
async def test_a_process_that_is_always_a_new_one_ends_too(service: Service, marker: str) -> None:
    name = f"p{marker[-9:]}"

    assert await service.value("rise_again", name=name) == "left"

    async with asyncio.timeout(BOUND):
        while is_there(name):
            await asyncio.sleep(0.02)


def is_there(name: str) -> bool:
    """Whether any process of the machine is called so."""
    for file in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            if file.read_text().strip() == name:
                return True
    return False


@all_modes
@pytest.mark.parametrize("tool", ["forget_parent", "change_thread"])
async def test_no_process_survives_its_timeout_by_changing_its_parent(
    service: Service, tool: str, marker: str
) -> None:
    assert await service.code(tool, marker=marker) in (
        "timeout: timeout",
        "failed: signalled",  # it closed its socket, which ends it sooner
    )
    await all_gone(marker)


@all_modes
async def test_a_deaf_process_ends_at_its_time(service: Service) -> None:
    assert await service.code("ignore_signals") == "timeout: timeout"


@all_modes
async def test_killing_all_processes_reaches_only_the_call(service: Service) -> None:
    numbers = (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP)

    await service.codes("kill_all", [{"number": int(number)} for number in numbers])


@all_modes
async def test_killing_a_parent_reaches_only_the_call(service: Service) -> None:
    numbers = (signal.SIGINT, signal.SIGKILL, signal.SIGSTOP)
    cases = [{"pid": pid, "number": int(number)} for pid in (0, 1, 2) for number in numbers]

    await service.codes("kill_one", cases)


@all_modes
async def test_a_signal_to_the_group_stays_inside(service: Service) -> None:
    await service.attack("kill_group", number=int(signal.SIGTERM))


@all_modes
@each_row("tool", ["endless_thread", "hanging_exit"])
async def test_a_result_does_not_wait_for_threads_that_still_run(
    service: Service, tool: str
) -> None:
    assert await service.value(tool) == 1


@all_modes
async def test_a_shell_sees_no_more_than_the_tool(service: Service) -> None:
    script = f"cat {service.secret} /etc/passwd /etc/shadow; exec 9<>/dev/tcp/127.0.0.1/22"

    status, output = await service.value("shell", script=script)

    assert status != 0
    assert output == ""


@all_modes
async def test_set_user_programs_give_nothing(service: Service) -> None:
    programs = "su -c id; passwd -S; mount; umount /tmp; newgrp </dev/null"

    _, output = await service.value("shell", script=f"{programs}; grep -h Cap /proc/self/status")

    assert "uid=0" not in output
    assert service.mode == "C" or "CapEff:\t0000000000000000" in output


@all_modes
async def test_another_python_sees_no_more_than_the_tool(service: Service) -> None:
    said = await service.value("fresh_python", secret=str(service.secret))

    assert said.split() == ["no", "no", "no"]


@all_modes
async def test_no_process_changes_its_user_or_group(service: Service) -> None:
    assert set((await service.value("identities")).values()) <= {"EPERM", "EINVAL"}


@all_modes
async def test_limits_cannot_be_raised(service: Service) -> None:
    assert set((await service.value("raise_limits")).values()) == {"no"}


@all_modes
async def test_death_by_any_signal_is_a_result(service: Service) -> None:
    numbers = sorted({int(number) for number in signal.Signals} | {34, 64})

    codes = await service.codes("die_by", [{"number": number} for number in numbers])

    # As process 1 a tool survives what it has no handler for; stopped, it runs out of time.
    assert {code.partition(":")[0] for code in codes} <= {"ok", "failed", "timeout", "killed"}
