"""Files: what a tool sees is its own, and nothing that it sees can be changed."""

import stat
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from toolkiln.sandbox.bubblewrap import interpreter

from .conftest import SECRET, Service, all_modes

pytestmark = pytest.mark.asyncio(loop_scope="session")

REFUSED = {"ENOENT", "EACCES", "EPERM", "EROFS", "ENXIO", "ENOTDIR", "EIO", "EINVAL"}
HIDDEN = [
    "/etc/passwd", "/etc/shadow", "/etc/hostname", "/etc/ssl/private/key.pem",
    "/proc/1/environ", "/proc/1/mem", "/proc/2/environ", "/proc/kcore", "/proc/kmsg",
    "/proc/kallsyms/../../etc/passwd", "/proc/self/root/etc/passwd",
    "/proc/self/root/../../etc/passwd", "/proc/self/cwd/../../../etc/passwd",
    "/proc/thread-self/root/etc/shadow", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda",
    "/var/run/docker.sock", "/sys/kernel/uevent_helper", "/run/secrets", "/kiln/../etc/passwd",
]  # fmt: skip
FOLDERS = [
    "/home", "/root", "/sys", "/run", "/var", "/mnt", "/kiln", "/boot", "/srv",
    "/kiln/versions", "/kiln/envs",
]  # fmt: skip
WRITTEN = [
    "/usr/new", "/usr/bin/sleep", "/usr/lib/new", "/tool/new.py", "/tool/attack_files.py",
    "/env/new", "/toolkiln/toolkiln/define.py", "/toolkiln/toolkiln/runtime/new.py",
    "/toolkiln/base/new.py", "/new", "/dev/new", "/etc/new", "/etc/ld.so.preload", "/kiln/new",
    "/workspace/new", "/proc/new", "/proc/self/root/usr/new",
]  # fmt: skip


async def succeeded(service: Service, how: str, paths: list[str]) -> dict[str, str]:
    """What was not refused."""
    outcomes = await service.value("try_all", how=how, paths=paths)
    assert len(outcomes) == len(paths)
    return {path: said for path, said in outcomes.items() if said not in REFUSED}


@all_modes
async def test_files_of_the_host_and_of_other_tools_cannot_be_read(service: Service) -> None:
    others = [str(service.state / "versions"), str(service.state)]

    assert await succeeded(service, "read", HIDDEN) == {}
    assert await succeeded(service, "list", [*FOLDERS, *others]) == {}


@all_modes
async def test_only_harmless_devices_can_be_opened(service: Service) -> None:
    harmless = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")}
    # Modes A and B have terminals of their own.
    own = set() if service.mode == "C" else {"/dev/ptmx", "/dev/tty", "/dev/console"}
    devices = {f"{path}" for path in Path("/dev").iterdir() if stat.S_ISCHR(path.lstat().st_mode)}
    with NamedTemporaryFile(dir="/dev/shm", prefix="toolkiln-") as shared:
        Path(shared.name).chmod(0o644)
        foreign = [shared.name, "/dev/pts/0", *(devices - harmless - own)]

        opened = await service.value("try_all", how="open", paths=sorted(harmless))
        reached = await succeeded(service, "open", foreign)
        listed = await service.value("try_all", how="list", paths=["/dev", "/dev/shm"])

    assert set(opened.values()) == {"done"}
    assert reached == {}
    assert service.mode != "C" or set(listed.values()) == {"EACCES"}


@all_modes
async def test_the_hosts_secret_cannot_be_reached_in_any_way(service: Service) -> None:
    path = str(service.secret)
    tools = ("read_file", "write_file", "read_through_link", "link_hard")

    outcomes = [await service.value(tool, path=path) for tool in tools]

    assert set(outcomes) <= REFUSED | {"EXDEV"}
    assert service.secret.read_text() == SECRET
    assert service.secret.stat().st_nlink == 1


@all_modes
async def test_modes_and_times_of_the_hosts_files_stay(service: Service) -> None:
    before = service.secret.stat()

    await service.value("change_mode", path=str(service.secret))
    await service.value("change_time", path=str(service.secret))

    after = service.secret.stat()
    assert (before.st_mode, before.st_mtime) == (after.st_mode, after.st_mtime)


async def test_a_tool_sees_its_own_files_only(service: Service) -> None:
    assert await service.value("everything_below", path="/tool") == [
        "/tool/attack_files.py",
        "/tool/trying.py",
    ]
    assert await service.value("everything_below", path="/workspace") == []
    assert await service.value("everything_below", path="/env") == []


async def test_there_is_nothing_else_at_the_top(service: Service) -> None:
    needed = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "proc", "dev", "tmp"}
    needed.add(interpreter().prefix.parts[1])
    others = [str(path) for path in Path("/").iterdir() if path.name not in needed]

    assert await service.value("which_exist", paths=others) == []
    hidden = [
        str(path)
        for path in Path("/etc").iterdir()
        if path.name not in ("ssl", "ld.so.cache", "hosts", "nsswitch.conf")
    ]
    assert await service.value("which_exist", paths=hidden) == []


@all_modes
async def test_nothing_outside_of_the_work_folder_can_be_written(service: Service) -> None:
    assert await succeeded(service, "write", WRITTEN) == {}
    assert await succeeded(service, "make", [f"{path}-folder" for path in WRITTEN]) == {}


async def test_a_tool_has_its_output_its_socket_and_no_other_descriptor(service: Service) -> None:
    assert await service.value("descriptors") in (
        {"0": "/dev/null", "1": "pipe", "2": "pipe", "3": "socket"},
        {},  # not even a look at them
    )


@all_modes
async def test_what_is_open_cannot_be_opened_for_more(service: Service) -> None:
    assert set(await service.value("reopen_descriptors")) <= REFUSED | {"done"}


@all_modes
async def test_the_environment_is_not_the_hosts(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_TOKEN", "secret")

    names = set(await service.value("environment"))

    assert names <= {
        "PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", "PWD", "PYTHONDONTWRITEBYTECODE",
        "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS",
    }  # fmt: skip


@all_modes
async def test_other_processes_cannot_be_looked_into(service: Service) -> None:
    assert await service.value("other_processes") == []


@all_modes
async def test_files_that_command_the_kernel_are_closed(service: Service) -> None:
    outcomes = await service.value("write_to_kernel")

    own = outcomes.pop("/proc/self/oom_score_adj")
    assert own in REFUSED | {"done"}  # it may only become an earlier victim
    assert set(outcomes.values()) <= REFUSED


@all_modes
async def test_mounts_that_hide_files_cannot_be_removed(service: Service) -> None:
    assert set((await service.value("uncover")).values()) == {"EPERM"}


@all_modes
async def test_devices_and_set_user_programs_cannot_be_made(service: Service) -> None:
    assert set(await service.value("make_device")) == {"EPERM"}
    assert await service.value("make_set_user_program") == "EPERM"


@all_modes
async def test_the_host_sends_no_descriptors(service: Service) -> None:
    assert await service.value("receive_nothing") in ("TimeoutError", "[]")
