"""Kills, races, full disks and absent indexes: built once or not at all, with a clear error."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from toolkiln.errors import EnvironmentFailed
from toolkiln.sandbox.environments.environments import Environment, Environments

from .index import WAIT, Index, wheel

pytestmark = pytest.mark.faults

BUILDER = """
import asyncio, json, resource, sys
from pathlib import Path
from toolkiln.errors import EnvironmentFailed
from toolkiln.sandbox.environments.environments import Environments

root, environ, largest, *requirements = sys.argv[1:]
if int(largest):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(largest), int(largest)))
try:
    environments = Environments(Path(root), json.loads(environ))
    print(asyncio.run(environments.build(requirements)).key)
except EnvironmentFailed as error:
    sys.exit(f"{error.message}; {error.hint}")
"""


@pytest.fixture
def index(links: Path) -> Iterator[Index]:
    with Index(links) as running:
        yield running


@pytest.fixture
def online(index: Index, tmp_path: Path) -> dict[str, str]:
    return {
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_DEFAULT_INDEX": index.url,
        "UV_HTTP_RETRIES": "0",
        "UV_HTTP_TIMEOUT": "600",  # longer than anybody waits: uv ends when it is killed
    }


@contextmanager
def builder(
    root: Path, environ: dict[str, str], *requirements: str, largest: int = 0
) -> Iterator[subprocess.Popen[str]]:
    """Another process that builds."""
    command = [sys.executable, "-c", BUILDER, str(root), json.dumps(environ), str(largest)]
    with subprocess.Popen(
        [*command, *requirements], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def reached(index: Index) -> None:
    assert await asyncio.to_thread(index.reached.wait, WAIT)


async def start_build(
    root: Path, index: Index, online: dict[str, str]
) -> tuple[Environments, asyncio.Task[Environment | None]]:
    """Start a build that waits for the index."""
    index.hold()
    environments = Environments(root, online)
    building = asyncio.create_task(environments.build(["alpha"]))
    await reached(index)
    return environments, building


async def kill(process: subprocess.Popen[str], root: Path) -> None:
    """Kill a process that builds, and wait for the end of its uv."""
    uv = os.pidfd_open(uv_process(root))
    process.send_signal(signal.SIGKILL)
    await ended(uv)


def parts(root: Path) -> list[str]:
    """What is in the folder beside its two fixed ones."""
    return sorted(path.name for path in root.iterdir() if path.name not in ("guards", "locks"))


def uv_process(folder: Path) -> int:
    """The process that builds below a folder: its working directory is that one."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve(strict=True) == folder.resolve():
                if (process / "comm").read_text().strip() == "uv":
                    return int(process.name)
        except OSError:
            continue
    raise AssertionError("no uv is running")


async def ended(watched: int) -> None:
    """Wait until the process behind a descriptor has ended."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(watched, event.set)
    try:
        await asyncio.wait_for(event.wait(), WAIT)
    finally:
        loop.remove_reader(watched)
        os.close(watched)


# Together


async def test_tasks_that_want_the_same_build_it_once(
    root: Path, index: Index, online: dict[str, str]
) -> None:
    # A cache that is not shared would show a second build as a second download.
    several = [
        Environments(root, online | {"UV_CACHE_DIR": f"{online['UV_CACHE_DIR']}{number}"})
        for number in range(8)
    ]

    built = await asyncio.gather(*(environments.build(["alpha"]) for environments in several))

    assert len({environment.key for environment in built if environment}) == 1
    assert len(index.downloads) == 1
    assert len(parts(root)) == 1


async def test_processes_that_want_the_same_build_it_once(
    root: Path, index: Index, online: dict[str, str], tmp_path: Path
) -> None:
    index.hold()
    other = online | {"UV_CACHE_DIR": str(tmp_path / "other")}
    with builder(root, online, "alpha") as one:
        await reached(index)
        with builder(root, other, "alpha>=2") as two:
            index.release()
            outcomes = [await asyncio.to_thread(p.communicate, timeout=WAIT) for p in (one, two)]

    assert [one.returncode, two.returncode] == [0, 0]
    assert len({key for key, _ in outcomes}) == 1
    assert len(index.downloads) == 1
    assert len(parts(root)) == 1


async def test_different_environments_are_built_at_the_same_time(
    root: Path, index: Index, online: dict[str, str]
) -> None:
    index.hold()
    environments = Environments(root, online)
    held = asyncio.create_task(environments.build(["alpha==1.0"]))
    await reached(index)
    index.reached.clear()

    second = asyncio.create_task(environments.build(["alpha==2.0"]))
    await reached(index)
    index.release()

    assert await held != await second


async def test_the_event_loop_runs_while_many_wait_for_one_build(
    root: Path, index: Index, online: dict[str, str]
) -> None:
    index.hold()
    environments = Environments(root, online)
    waiting = [asyncio.create_task(environments.build(["alpha"])) for _ in range(50)]
    await reached(index)

    assert await asyncio.wait_for(environments.entries(), WAIT) == []
    waiting.pop().cancel()
    index.release()

    assert len(set(map(str, await asyncio.gather(*waiting)))) == 1


async def test_pruning_and_using_at_once_never_takes_away_what_is_used(
    root: Path, environ: dict[str, str]
) -> None:
    users, pruner = Environments(root, environ), Environments(root, environ)

    async def use() -> None:
        for _ in range(5):
            async with users.use(["alpha"]) as environment:
                assert environment
                await asyncio.to_thread(os.listdir, root)
                assert (environment.site / "alpha.py").exists()

    async def prune(until: asyncio.Future[list[None]]) -> None:
        while not until.done():
            await asyncio.gather(pruner.prune(timedelta(0)), users.prune(timedelta(0)))

    using = asyncio.gather(*(use() for _ in range(4)))
    await asyncio.gather(using, prune(using))

    assert len(parts(root)) <= 1


# Ended in the middle


async def test_installer_locks_the_guard_of_what_it_writes(
    root: Path, index: Index, online: dict[str, str]
) -> None:
    _, building = await start_build(root, index, online)

    descriptors = Path(f"/proc/{uv_process(root)}/fd").iterdir()
    held = {path.resolve() for path in descriptors}
    index.release()

    environment = await building
    assert environment
    assert (root / "guards" / environment.key).resolve() in held


async def test_cancelled_build_leaves_nothing(
    root: Path, index: Index, online: dict[str, str]
) -> None:
    environments, building = await start_build(root, index, online)
    uv = os.pidfd_open(uv_process(root))

    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building
    await ended(uv)

    assert parts(root) == []
    index.release()
    assert await environments.build(["alpha"])


async def test_killed_process_takes_its_installer_along_and_is_swept_up(
    root: Path, index: Index, online: dict[str, str]
) -> None:
    index.hold()
    with builder(root, online, "alpha") as process:
        await reached(index)
        await kill(process, root)
    assert [name.endswith(".partial") for name in parts(root)] == [True]
    assert await Environments(root, online).entries() == []
    index.release()

    environment = await Environments(root, online).build(["alpha"])

    assert environment
    assert parts(root) == [environment.key]


async def test_waiting_process_takes_over_from_a_killed_one(
    root: Path, index: Index, online: dict[str, str]
) -> None:
    index.hold()
    with builder(root, online, "alpha") as process:
        await reached(index)
        takeover = asyncio.create_task(Environments(root, online).build(["alpha"]))
        index.reached.clear()
        process.send_signal(signal.SIGKILL)
        await reached(index)
        index.release()
        environment = await takeover

    assert environment
    assert parts(root) == [environment.key]


async def test_pruning_sweeps_up_after_the_dead_and_spares_the_living(
    root: Path, index: Index, online: dict[str, str]
) -> None:
    index.hold()
    environments = Environments(root, online)
    with builder(root, online, "alpha==1.0") as process:
        await reached(index)
        await kill(process, root)
    index.reached.clear()
    living = asyncio.create_task(environments.build(["alpha==2.0"]))
    await reached(index)
    unfinished_lock = root / "locks" / f"{'0' * 64}.12345678.partial"
    unfinished_lock.write_text("{", "utf-8")

    await environments.prune(timedelta(0))

    assert len(parts(root)) == 1
    assert not unfinished_lock.exists()
    index.release()
    assert await living


async def test_killed_installer_is_reported_and_leaves_nothing(
    root: Path, index: Index, online: dict[str, str]
) -> None:
    environments, building = await start_build(root, index, online)

    os.kill(uv_process(root), signal.SIGKILL)
    with pytest.raises(EnvironmentFailed, match="killed by signal 9"):
        await building

    assert parts(root) == []
    index.release()
    assert await environments.build(["alpha"])


async def test_descriptors_and_processes_do_not_grow(
    environments: Environments, links: Path
) -> None:
    await environments.build(["alpha"])
    before = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(100):
        async with environments.use(["alpha"]):
            pass
    for _ in range(3):
        with pytest.raises(EnvironmentFailed):
            await environments.build(["alpha==9"])

    assert len(list(Path("/proc/self/fd").iterdir())) == before


# Full disks


async def test_file_size_limit_is_reported_and_leaves_nothing(
    root: Path, environ: dict[str, str], links: Path
) -> None:
    wheel(links, "large", "1.0", {"large.py": "#" * 3_000_000})
    assert await Environments(root.with_name("fill-the-cache"), environ).build(["large"])

    with builder(root, environ, "large", largest=1_000_000) as process:
        _, said = await asyncio.to_thread(process.communicate, timeout=WAIT)

    assert process.returncode == 1
    assert "the disk is full" in said
    assert "toolkiln env prune" in said
    assert parts(root) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
async def test_full_disk_is_reported_and_leaves_nothing(
    tmp_path: Path, environ: dict[str, str], links: Path
) -> None:
    wheel(links, "large", "1.0", {"large.py": "#" * 3_000_000})
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=False
    )
    if mounted.returncode:
        pytest.skip("root may not mount here")
    try:
        environments = Environments(disk / "envs", environ)
        with pytest.raises(EnvironmentFailed, match="the disk is full") as caught:
            await environments.build(["large"])

        assert "toolkiln env prune" in (caught.value.hint or "")
        assert parts(disk / "envs") == []
        assert await environments.build(["alpha"])
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_unwritable_folder_is_reported(tmp_path: Path, environ: dict[str, str]) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)

    with pytest.raises(EnvironmentFailed, match="Permission denied"):
        await Environments(closed / "envs", environ).build(["alpha"])


# No index


async def test_existing_environments_work_without_an_index(
    root: Path, index: Index, online: dict[str, str]
) -> None:
    environments = Environments(root, online)
    before = await environments.build(["alpha"])
    asked = len(index.requested)

    assert await environments.build(["alpha"]) == before
    assert len(index.requested) == asked
    index.close()

    assert await environments.build(["alpha"]) == before
    with pytest.raises(EnvironmentFailed) as caught:
        await environments.build(["beta"])

    assert "no package index is reachable" in caught.value.message
    assert "existing environments continue to work" in caught.value.message


async def test_credentials_of_an_index_are_not_shown(
    root: Path, index: Index, online: dict[str, str]
) -> None:
    index.close()
    online["UV_DEFAULT_INDEX"] = index.url.replace("//", "//someone:sesame@")

    with pytest.raises(EnvironmentFailed) as caught:
        await Environments(root, online).build(["alpha"])

    assert "sesame" not in caught.value.message


async def test_pips_variables_configure_the_index_too(
    root: Path, index: Index, tmp_path: Path
) -> None:
    environ = {"UV_CACHE_DIR": str(tmp_path / "cache"), "PIP_INDEX_URL": index.url}

    assert await Environments(root, environ).build(["alpha"])


async def test_variables_cannot_switch_off_the_checks(
    root: Path, environ: dict[str, str], links: Path, tmp_path: Path
) -> None:
    constraint = tmp_path / "constraint.txt"
    constraint.write_text("alpha==1.0\n", "utf-8")
    loose = {
        "UV_NO_VERIFY_HASHES": "1",
        "UV_OVERRIDE": str(constraint),
        "UV_CONSTRAINT": str(constraint),
        "UV_SYSTEM_PYTHON": "1",
        "UV_LINK_MODE": "symlink",
        "UV_PYTHON": "/nowhere",
        "PYTHONPATH": str(tmp_path),
    }

    environment = await Environments(root, environ | loose).build(["alpha"])

    assert environment
    assert environment.packages == {"alpha": "2.0"}


async def test_without_a_home_the_cache_is_beside_the_environments(
    root: Path, environ: dict[str, str]
) -> None:
    del environ["UV_CACHE_DIR"]

    assert await Environments(root, environ).build(["alpha"])

    assert (root / "cache").is_dir()


async def test_packages_of_the_real_index_are_installed(root: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache")}
    environments = Environments(root, environ)
    try:
        environment = await environments.build(["six>=1.16", "idna~=3.4"])
    except EnvironmentFailed as error:
        if "no package index is reachable" in error.message:
            pytest.skip("no package index can be reached")
        raise

    assert environment
    assert environment.packages.keys() == {"idna", "six"}
    with pytest.raises(EnvironmentFailed, match=r"six==1\.15"):
        await environments.build(["six==1.16", "six==1.15"])
    with pytest.raises(EnvironmentFailed, match="not found"):
        await environments.build(["toolkiln-has-no-such-package"])
